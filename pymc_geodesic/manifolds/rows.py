"""A flat vector seen as rows of points, at no cost, in compiled code."""

from collections.abc import Callable
from typing import Any

from numba import carray, types
from numba.core.errors import TypingError

from pymc_geodesic.manifolds.manifold import Floats
from pymc_geodesic.runtime.jit import compiled, define_intrinsic


@define_intrinsic
def address_of(_context: Any, flat: Any, _start: Any) -> tuple[Any, Callable[..., Any]]:
    """Pointer to element `start` of a contiguous vector of float64."""
    if not (isinstance(flat, types.Array) and flat.dtype == types.float64):
        raise TypingError(f"a flat state must be an array of float64, not {flat}.")
    if flat.ndim != 1 or flat.layout != "C":
        raise TypingError(f"a flat state must be a contiguous vector, not {flat}.")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.gep(array.data, [arguments[1]])

    return types.CPointer(types.float64)(flat, types.intp), generate


@compiled
def view_rows(flat: Floats, start: int, rows: int, size: int) -> Floats:
    """View ``flat[start : start + rows * size]`` as a ``(rows, size)`` array.

    Slicing and reshaping do the same, but cost about 10 ns a view. The view does not keep `flat`
    alive and is not checked against its bounds, so it must not outlive the function that makes
    it.

    Parameters
    ----------
    flat : C-contiguous array of float64, shape (n,)
    start, rows, size : int

    Returns
    -------
    array of float64, shape (rows, size)

    Examples
    --------
    >>> import numba
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds.rows import view_rows
    >>> @numba.njit
    ... def second_row(flat):
    ...     return view_rows(flat, 0, 2, 3)[1].sum()
    >>> second_row(np.arange(6.0))
    12.0
    """
    return carray(address_of(flat, start), (rows, size))
