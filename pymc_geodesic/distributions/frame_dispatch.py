"""Numba implementation of the random draws of frames.

Imported for its effect when a draw of `MatrixVonMisesFisher` enters a graph.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from pymc_geodesic.distributions.frame_draws import draw_matrix_von_mises_fisher
from pymc_geodesic.distributions.matrix_von_mises_fisher import MatrixVonMisesFisherRV


@numba_core_rv_funcify.register(MatrixVonMisesFisherRV)
def matrix_von_mises_fisher_rv(
    op: MatrixVonMisesFisherRV, node: Apply
) -> tuple[Callable[..., Any], None]:
    """Return the draw of one frame, which leaves compiled code for NumPy and is not cached."""
    dtype = np.dtype(op.dtype)
    matrix = numba.from_dtype(dtype)[:, ::1]

    def draw_in_numpy(rng: np.random.Generator, F: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(draw_matrix_von_mises_fisher(rng, F), dtype=dtype)

    @numba_njit
    def draw(rng, F):  # type: ignore[no-untyped-def]  # typed by Numba
        with numba.objmode(frame=matrix):
            frame = draw_in_numpy(rng, F)
        return frame  # noqa: RET504  # object mode hands its results over by name

    return draw, None
