"""Means of directions, axes and frames."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.stats import directional_stats

from pymc_geodesic.diagnostics.posterior_draws import SAMPLE_DIMS
from pymc_geodesic.directional.direction_variables import get_dataset, select_variables

PACKAGE = str(Path(__file__).parents[2])

SMALL_RESULTANT = 0.1
"""Mean resultant length below which the first moment counts as zero."""

AXIAL_EIGENVALUE_MARGIN = 0.1
"""Minimum difference from 1 / d of the largest eigenvalue of the second moments of axial draws."""


class DirectionalMean(NamedTuple):
    """Mean direction or principal axis of draws, and their mean resultant length."""

    mean: np.ndarray
    resultant_length: float
    axial: bool


def unit_rows(points: ArrayLike, name: str = "points") -> np.ndarray:
    """Validate unit vectors and return them as rows.

    Parameters
    ----------
    points : array_like, shape (..., d)
        Unit vectors.
    name : str
        Name in error messages.

    Returns
    -------
    numpy.ndarray, shape (n, d)

    Raises
    ------
    ValueError
        If there are no vectors, or their length is not one.

    Examples
    --------
    >>> from pymc_geodesic.directional.mean_direction import unit_rows
    >>> unit_rows([[[0.6, 0.8]]]).shape
    (1, 2)
    """
    values = np.asarray(points, dtype=float)
    if values.ndim < 1 or values.size == 0 or values.shape[-1] < 2:
        raise ValueError(
            f"`{name}` must contain unit vectors along the last axis; its shape is {values.shape}."
        )
    rows = values.reshape(-1, values.shape[-1])
    length = np.linalg.norm(rows, axis=1)
    if not np.abs(length - 1.0).max() < 1e-3:
        raise ValueError(
            f"`{name}` must contain unit vectors along the last axis; their lengths go from "
            f"{length.min():.4g} to {length.max():.4g}. Divide by the length."
        )
    return rows / length[:, None]


def appears_axial(rows: np.ndarray) -> bool:
    """Return whether the first moment of unit vectors vanishes and the second shows an axis."""
    if np.linalg.norm(rows.mean(axis=0)) >= SMALL_RESULTANT:
        return False
    largest, _ = principal_axis(rows)
    return bool(largest - 1.0 / rows.shape[1] > AXIAL_EIGENVALUE_MARGIN)


def principal_axis(rows: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the largest eigenvalue of the second moments of unit vectors, and its eigenvector."""
    n, d = rows.shape
    if d <= n:
        values, vectors = np.linalg.eigh(rows.T @ rows / n)
        return float(values[-1]), vectors[:, -1]
    values, weights = np.linalg.eigh(rows @ rows.T / n)
    axis = rows.T @ weights[:, -1]
    return float(values[-1]), axis / np.linalg.norm(axis)


def directional_mean(rows: np.ndarray, axial: bool) -> DirectionalMean:
    r"""Return the mean direction of unit vectors, or their principal axis.

    The direction is :math:`\bar x / \lVert\bar x\rVert`; the axis is the leading eigenvector of
    :math:`\frac1n\sum x_i x_i^\top` (Mardia and Jupp 2000, section 10.2), its largest component
    positive, and the resultant length is that of the draws aligned with it.
    """
    if axial:
        _, mean = principal_axis(rows)
        mean = mean * np.sign(mean[np.argmax(np.abs(mean))])
        return DirectionalMean(
            mean, float(np.linalg.norm(align_to_axis(rows, mean).mean(axis=0))), True
        )
    with np.errstate(invalid="ignore"):  # draws that cancel have no mean direction: NaN
        found = directional_stats(rows, normalize=False)
    return DirectionalMean(found.mean_direction, float(found.mean_resultant_length), False)


def align_to_axis(rows: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Flip the sign of unit vectors with a negative inner product with an axis."""
    return np.where(rows @ axis < 0, -1.0, 1.0)[..., None] * rows


def mean_frame(frames: np.ndarray) -> DirectionalMean:
    r"""Return the extrinsic mean of orthonormal frames, shape (n, rows, columns).

    The polar factor :math:`U V^\top` of the mean matrix :math:`U S V^\top` is the frame with the
    least mean square Frobenius distance (Chikuse 2003, *Statistics on Special Manifolds*, section
    2.4); the resultant length is :math:`\operatorname{tr} S / p`, which is
    :math:`\lVert\bar x\rVert` for one column.
    """
    left, scale, right = np.linalg.svd(frames.mean(axis=0), full_matrices=False)
    return DirectionalMean(left @ right, float(scale.mean()), False)


def mean_direction(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    group: str = "posterior",
    coords: Mapping[Any, Any] | None = None,
    sample_dims: str | Sequence[str] | None = None,
    axial: bool | str | Sequence[str] | None = None,
) -> xr.Dataset:
    r"""Extrinsic posterior means of directions, axes and orthonormal frames.

    A direction has the mean :math:`\bar x / \lVert\bar x\rVert`, an axis the leading eigenvector
    of the second moments, a frame the polar factor of the mean matrix, which is the Fréchet mean in
    the Frobenius distance. All lie on the manifold.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    var_names : str or sequence of str, optional
        Directions or frames; by default all, see `direction_variables`.
    group : str
        Group of the tree.
    coords : mapping, optional
        Labels to select along dimensions, as in ArviZ.
    sample_dims : str or sequence of str, optional
        Dimensions of the draws; see `direction_variables`.
    axial : bool, str, sequence of str or None
        Whether x and −x are equivalent, for all directions or those named. With None a direction
        is treated as an axis, with a warning, if the first moment vanishes and the second shows an
        axis.

    Returns
    -------
    xarray.Dataset
        Each variable without ``chain`` and ``draw``.

    Raises
    ------
    ValueError
        If there is no such variable, or none that `axial` names.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional import mean_direction
    >>> angle = np.random.default_rng(1).normal(0.0, 0.1, size=(2, 500))
    >>> mu = np.stack([np.sin(angle), np.cos(angle)], axis=-1)
    >>> mean = mean_direction(az.from_dict({"posterior": {"mu": mu}}))["mu"].values
    >>> bool(abs(mean[0]) < 0.02), bool(mean[1] > 0.99)
    (True, True)
    """
    check_axial(axial, idata, group)
    variables = select_variables(
        idata, var_names, group, coords, sample_dims, kinds=("direction", "frame")
    )
    result = {}
    for name, variable in variables.items():
        core = 2 if variable.attrs["manifold"] == "frame" else 1
        batches = stack_batches(variable, core)
        if core == 2:
            means = [mean_frame(each.reshape(-1, *each.shape[2:])).mean for each in batches]
        else:
            rows = [each.reshape(-1, each.shape[-1]) for each in batches]
            means = [directional_mean(each, resolve_axial(each, name, axial)).mean for each in rows]
        template = variable.isel(dict.fromkeys(SAMPLE_DIMS, 0), drop=True)
        result[name] = template.copy(data=np.reshape(means, template.shape))
    return xr.Dataset(result)


def check_axial(axial: bool | str | Sequence[str] | None, idata: Any, group: str) -> None:
    """Raise ``ValueError`` if `axial` names a variable that the group does not hold."""
    if axial is None or isinstance(axial, bool):
        return
    names = list(map(str, get_dataset(idata, group).data_vars))
    for name in [axial] if isinstance(axial, str) else axial:
        if name not in names:
            raise ValueError(
                f"`axial` names {name!r}, but the variables of the group {group!r} are "
                f"{', '.join(names)}."
            )


def resolve_axial(rows: np.ndarray, name: str, axial: bool | str | Sequence[str] | None) -> bool:
    """Return whether a variable is an axis, with a warning if `axial` is None and it appears so."""
    if isinstance(axial, bool):
        return axial
    if axial is not None:
        return name in ([axial] if isinstance(axial, str) else axial)
    if not appears_axial(rows):
        return False
    warnings.warn(
        f"The mean of the draws of {name!r} vanishes and they lie along an axis: it is summarized "
        "as an axis, with x and −x equivalent. Set `axial=True` to silence this warning, or "
        "`axial=False` to summarize a direction.",
        UserWarning,
        skip_file_prefixes=(PACKAGE,),
    )
    return True


def stack_batches(variable: xr.DataArray, core: int) -> np.ndarray:
    """Return draws with the shape (batch, chain, draw, ...core)."""
    missing = [dim for dim in SAMPLE_DIMS if dim not in variable.dims]
    if missing:
        raise ValueError(
            f"{variable.name!r} has no dimension {missing[0]!r}; use `arviz.from_dict` or "
            "`arviz.convert_to_datatree`."
        )
    values = variable.transpose(*SAMPLE_DIMS, ...).values
    chain, draw = values.shape[:2]
    shape = values.shape[values.ndim - core :]
    return np.moveaxis(values.reshape((chain, draw, -1, *shape)), 2, 0)
