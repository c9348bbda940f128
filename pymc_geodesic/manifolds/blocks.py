"""What compiled code does with the blocks of a position: project on tangent spaces, and move."""

from typing import Any

import numpy as np
from numba import carray, types

from pymc_geodesic.manifolds import flat_simplex, half_line, sphere, stiefel
from pymc_geodesic.manifolds.euclidean import Euclidean
from pymc_geodesic.manifolds.flat_simplex import FlatSimplex
from pymc_geodesic.manifolds.half_line import HalfLine
from pymc_geodesic.manifolds.manifold import Floats
from pymc_geodesic.manifolds.rows import address_of
from pymc_geodesic.manifolds.simplex import Simplex
from pymc_geodesic.manifolds.sphere import Sphere
from pymc_geodesic.manifolds.stiefel import Stiefel
from pymc_geodesic.runtime.fields import array_at
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.late import VECTOR, LateFunction, late

EUCLIDEAN = Euclidean.code
HALF_LINE = HalfLine.code
SPHERE = Sphere.code
SIMPLEX = Simplex.code
FLAT_SIMPLEX = FlatSimplex.code
STIEFEL = Stiefel.code

_PROJECTION = types.float64(VECTOR, VECTOR, *(types.int64,) * 4)
_MOTION = types.float64(VECTOR, VECTOR, *(types.int64,) * 4, types.float64)


@late(_PROJECTION)
def _project_on_sphere(x: Any, v: Any, rows: int, size: int, n: int, p: int) -> float:
    sphere.project(carray(x, (rows, size)), carray(v, (rows, size)))
    return 0.0


@late(_PROJECTION)
def _project_on_flat_simplex(x: Any, v: Any, rows: int, size: int, n: int, p: int) -> float:
    flat_simplex.project(carray(x, (rows, size)), carray(v, (rows, size)))
    return 0.0


@late(_PROJECTION)
def _project_on_stiefel(x: Any, v: Any, rows: int, size: int, n: int, p: int) -> float:
    stiefel.project(carray(x, (rows, size)), carray(v, (rows, size)), n, p)
    return 0.0


@late(_MOTION)
def _move_on_half_line(x: Any, v: Any, rows: int, size: int, n: int, p: int, time: float) -> float:
    half_line.geodesic(carray(x, (rows, size)), carray(v, (rows, size)), time)
    return 0.0


@late(_MOTION)
def _move_on_sphere(x: Any, v: Any, rows: int, size: int, n: int, p: int, time: float) -> float:
    sphere.geodesic(carray(x, (rows, size)), carray(v, (rows, size)), time)
    return 0.0


@late(_MOTION)
def _move_on_flat_simplex(
    x: Any, v: Any, rows: int, size: int, n: int, p: int, time: float
) -> float:
    flat_simplex.geodesic(carray(x, (rows, size)), carray(v, (rows, size)), time)
    return 0.0


@late(_MOTION)
def _move_on_stiefel(x: Any, v: Any, rows: int, size: int, n: int, p: int, time: float) -> float:
    stiefel.geodesic(carray(x, (rows, size)), carray(v, (rows, size)), time, n, p)
    return 0.0


LATE_FUNCTIONS: dict[int, tuple[LateFunction, ...]] = {
    EUCLIDEAN: (),
    HALF_LINE: (_move_on_half_line,),
    SPHERE: (_project_on_sphere, _move_on_sphere),
    SIMPLEX: (_project_on_sphere, _move_on_sphere),
    FLAT_SIMPLEX: (_project_on_flat_simplex, _move_on_flat_simplex),
    STIEFEL: (_project_on_stiefel, _move_on_stiefel),
}
"""What `project` and `geodesic` call by code; points of other codes would stand still."""

_sphere_projection = _project_on_sphere.call
_flat_simplex_projection = _project_on_flat_simplex.call
_stiefel_projection = _project_on_stiefel.call
_half_line_motion = _move_on_half_line.call
_sphere_motion = _move_on_sphere.call
_flat_simplex_motion = _move_on_flat_simplex.call
_stiefel_motion = _move_on_stiefel.call


@compiled
def project(blocks: np.ndarray, x: Floats, v: Floats) -> None:
    """Project a flat vector on the tangent space, block by block, in place.

    Parameters
    ----------
    blocks : array of int64, shape (n_blocks, 6)
        `Product.blocks`: one row ``(code, start, rows, size, n, p)`` per variable.
    x, v : arrays of float64, shape (size,)
        Coordinates, and the vector that is projected.
    """
    table = borrow(blocks)
    for block in range(table.shape[0]):
        code = table[block, 0]
        if code in (EUCLIDEAN, HALF_LINE):
            continue
        start = table[block, 1]
        rows, size = table[block, 2], table[block, 3]
        n, p = table[block, 4], table[block, 5]
        point, vector = address_of(x, start), address_of(v, start)
        if code in (SPHERE, SIMPLEX):
            _sphere_projection((point, vector, rows, size, n, p))
        elif code == FLAT_SIMPLEX:
            _flat_simplex_projection((point, vector, rows, size, n, p))
        elif code == STIEFEL:
            _stiefel_projection((point, vector, rows, size, n, p))


@compiled
def geodesic(blocks: np.ndarray, x: Floats, v: Floats, time: float) -> None:
    """Move a flat vector along the geodesics of its blocks, in place.

    Parameters
    ----------
    blocks : array of int64, shape (n_blocks, 6)
        `Product.blocks`: one row ``(code, start, rows, size, n, p)`` per variable.
    x, v : arrays of float64, shape (size,)
        Coordinates and velocity.
    time : float
    """
    table = borrow(blocks)
    for block in range(table.shape[0]):
        code = table[block, 0]
        start = table[block, 1]
        rows, size = table[block, 2], table[block, 3]
        n, p = table[block, 4], table[block, 5]
        if code == EUCLIDEAN:
            # `euclidean.geodesic` without its rows, which take longer to compile than the rest
            point = array_at(address_of(x, start), (rows * size,), np.float64)
            vector = array_at(address_of(v, start), (rows * size,), np.float64)
            for i in range(rows * size):
                point[i] += time * vector[i]
            continue
        place, speed = address_of(x, start), address_of(v, start)
        if code == HALF_LINE:
            _half_line_motion((place, speed, rows, size, n, p, time))
        elif code in (SPHERE, SIMPLEX):
            _sphere_motion((place, speed, rows, size, n, p, time))
        elif code == FLAT_SIMPLEX:
            _flat_simplex_motion((place, speed, rows, size, n, p, time))
        elif code == STIEFEL:
            _stiefel_motion((place, speed, rows, size, n, p, time))


@compiled
def scaled_geodesic(
    blocks: np.ndarray, scales: np.ndarray, x: Floats, v: Floats, time: float
) -> None:
    """Move a flat vector along geodesics, each block for a time of its own, in place.

    Parameters
    ----------
    blocks, x, v
        See `geodesic`.
    scales : array of float64, shape (n_blocks,)
        Block b moves for ``scales[b] * time``.
    time : float
    """
    for block in range(blocks.shape[0]):
        geodesic(blocks[block : block + 1], x, v, scales[block] * time)
