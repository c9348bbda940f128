"""Points on the sphere that users give, dense or sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pymc_geodesic.distributions.draws import are_unit_vectors
from pymc_geodesic.runtime.missing_values import check_missing


def unit_points(points: Any) -> NDArray[np.float64] | sparse.csr_array:
    """Take points on the sphere, dense or sparse, or raise ValueError if they are none."""
    check_missing("points", points)
    if sparse.issparse(points):
        rows = sparse.csr_array(points, dtype=float)
        squared = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
        is_unit = are_unit_vectors(np.sqrt(squared)[:, None])
    else:
        rows = np.asarray(points, dtype=float)
        is_unit = are_unit_vectors(rows) if rows.ndim == 2 else np.ones(1, dtype=bool)
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] < 2:
        raise ValueError(
            "points must be a matrix (point, coordinate) of at least one point and two "
            f"coordinates, got shape {rows.shape}"
        )
    if not is_unit.all():
        worst = int(np.argmin(is_unit))
        raise ValueError(
            f"{np.sum(~is_unit)} of the {len(is_unit)} points are no unit vectors, the first of "
            f"them points[{worst}]: divide each row by its length, and drop rows of zeros"
        )
    return rows
