"""Tangent projection and geodesic flow of product manifolds, in compiled code.

A position is the flat vector of the coordinates of all components. Each component is projected or
moved by the lazily compiled function of its manifold.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, types
from numba.core.errors import TypingError

from pymc_geodesic.manifolds import flat_simplex, half_line, sphere, stiefel
from pymc_geodesic.manifolds.euclidean import Euclidean
from pymc_geodesic.manifolds.flat_simplex import FlatSimplex
from pymc_geodesic.manifolds.half_line import HalfLine
from pymc_geodesic.manifolds.manifold import Floats
from pymc_geodesic.manifolds.simplex import Simplex
from pymc_geodesic.manifolds.sphere import Sphere
from pymc_geodesic.manifolds.stiefel import Stiefel
from pymc_geodesic.runtime.gradient_functions import array_at
from pymc_geodesic.runtime.jit import borrow, compiled, define_intrinsic
from pymc_geodesic.runtime.lazy_compilation import VECTOR, LazyFunction, lazy

EUCLIDEAN = Euclidean.code
HALF_LINE = HalfLine.code
SPHERE = Sphere.code
SIMPLEX = Simplex.code
FLAT_SIMPLEX = FlatSimplex.code
STIEFEL = Stiefel.code


@define_intrinsic
def address_of(_context: Any, flat: Any, _start: Any) -> tuple[Any, Callable[..., Any]]:
    """Return a pointer to element `start` of a contiguous vector of float64."""
    if not (isinstance(flat, types.Array) and flat.dtype == types.float64):
        raise TypingError(f"a flat state must be an array of float64, not {flat}.")
    if flat.ndim != 1 or flat.layout != "C":
        raise TypingError(f"a flat state must be a contiguous vector, not {flat}.")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.gep(array.data, [arguments[1]])

    return types.CPointer(types.float64)(flat, types.intp), generate


_PROJECTION = types.float64(VECTOR, VECTOR, *(types.int64,) * 4)
_MOTION = types.float64(VECTOR, VECTOR, *(types.int64,) * 4, types.float64)


@lazy(_PROJECTION)
def _project_on_sphere(x: Any, v: Any, rows: int, size: int, n: int, p: int) -> float:
    sphere.project(carray(x, (rows, size)), carray(v, (rows, size)))
    return 0.0


@lazy(_PROJECTION)
def _project_on_flat_simplex(x: Any, v: Any, rows: int, size: int, n: int, p: int) -> float:
    flat_simplex.project(carray(x, (rows, size)), carray(v, (rows, size)))
    return 0.0


@lazy(_PROJECTION)
def _project_on_stiefel(x: Any, v: Any, rows: int, size: int, n: int, p: int) -> float:
    stiefel.project(carray(x, (rows, size)), carray(v, (rows, size)), n, p)
    return 0.0


@lazy(_MOTION)
def _move_on_half_line(x: Any, v: Any, rows: int, size: int, n: int, p: int, time: float) -> float:
    half_line.geodesic(carray(x, (rows, size)), carray(v, (rows, size)), time)
    return 0.0


@lazy(_MOTION)
def _move_on_sphere(x: Any, v: Any, rows: int, size: int, n: int, p: int, time: float) -> float:
    sphere.geodesic(carray(x, (rows, size)), carray(v, (rows, size)), time)
    return 0.0


@lazy(_MOTION)
def _move_on_flat_simplex(
    x: Any, v: Any, rows: int, size: int, n: int, p: int, time: float
) -> float:
    flat_simplex.geodesic(carray(x, (rows, size)), carray(v, (rows, size)), time)
    return 0.0


@lazy(_MOTION)
def _move_on_stiefel(x: Any, v: Any, rows: int, size: int, n: int, p: int, time: float) -> float:
    stiefel.geodesic(carray(x, (rows, size)), carray(v, (rows, size)), time, n, p)
    return 0.0


LAZY_FUNCTIONS: dict[int, tuple[LazyFunction, ...]] = {
    EUCLIDEAN: (),
    HALF_LINE: (_move_on_half_line,),
    SPHERE: (_project_on_sphere, _move_on_sphere),
    SIMPLEX: (_project_on_sphere, _move_on_sphere),
    FLAT_SIMPLEX: (_project_on_flat_simplex, _move_on_flat_simplex),
    STIEFEL: (_project_on_stiefel, _move_on_stiefel),
}
"""Functions that `project` and `geodesic` call, by the code of the manifold."""

_sphere_projection = _project_on_sphere.call
_flat_simplex_projection = _project_on_flat_simplex.call
_stiefel_projection = _project_on_stiefel.call
_half_line_motion = _move_on_half_line.call
_sphere_motion = _move_on_sphere.call
_flat_simplex_motion = _move_on_flat_simplex.call
_stiefel_motion = _move_on_stiefel.call


@compiled
def project(blocks: np.ndarray, x: Floats, v: Floats) -> None:
    """Project a flat vector onto the tangent space, in place.

    Parameters
    ----------
    blocks : array of int64, shape (n_blocks, 6)
        `Product.blocks`: one row ``(code, start, rows, size, n, p)`` per component.
    x, v : arrays of float64, shape (size,)
        Coordinates, and the vector to project.
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
    """Move a position along its geodesic, in place.

    Parameters
    ----------
    blocks : array of int64, shape (n_blocks, 6)
        `Product.blocks`: one row ``(code, start, rows, size, n, p)`` per component.
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
            # inlined, since `euclidean.geodesic` takes longer to compile than the rest
            point = array_at(address_of(x, start), (rows * size,), np.float64)
            vector = array_at(address_of(v, start), (rows * size,), np.float64)
            for i in range(rows * size):
                point[i] += time * vector[i]
            continue
        position, velocity = address_of(x, start), address_of(v, start)
        if code == HALF_LINE:
            _half_line_motion((position, velocity, rows, size, n, p, time))
        elif code in (SPHERE, SIMPLEX):
            _sphere_motion((position, velocity, rows, size, n, p, time))
        elif code == FLAT_SIMPLEX:
            _flat_simplex_motion((position, velocity, rows, size, n, p, time))
        elif code == STIEFEL:
            _stiefel_motion((position, velocity, rows, size, n, p, time))


@compiled
def scaled_geodesic(
    blocks: np.ndarray, scales: np.ndarray, x: Floats, v: Floats, time: float
) -> None:
    """Move a position along its geodesic, each component with its own time, in place.

    Parameters
    ----------
    blocks, x, v
        See `geodesic`.
    scales : array of float64, shape (n_blocks,)
        Component b moves for the time ``scales[b] * time``.
    time : float
    """
    for block in range(blocks.shape[0]):
        geodesic(blocks[block : block + 1], x, v, scales[block] * time)
