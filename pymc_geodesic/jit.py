"""The one decorator that compiles every numerical kernel of the package, and loans of arrays."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, overload

import numba
from numba.extending import intrinsic

FAST_MATH = {"contract", "reassoc", "nsz"}
"""Floating-point freedom given to the compiler.

Sums may be reordered (so that they vectorise), products and sums fused, and the sign of a zero
ignored. NaN and infinity keep their meaning: kernels find divergences by looking for them.
"""


def source_stamp(folder: Path) -> str:
    """Fingerprint of all modules under a folder that import this one.

    Parameters
    ----------
    folder : pathlib.Path

    Returns
    -------
    str
        Changes when the text of one of these modules does.

    Examples
    --------
    >>> from pathlib import Path
    >>> from pymc_geodesic import jit
    >>> jit.source_stamp(Path(jit.__file__).parent) == jit.SOURCE_STAMP
    True
    """
    texts = (path.read_bytes() for path in sorted(folder.rglob("*.py")))
    importers = (text for text in texts if b"pymc_geodesic.jit" in text)
    return hashlib.sha256(b"".join(importers)).hexdigest()


SOURCE_STAMP = source_stamp(Path(__file__).parent)


@overload
def compiled[Function: Callable[..., Any]](function: Function, /) -> Function: ...


@overload
def compiled[Function: Callable[..., Any]](
    *, inline: str = "never", cache: bool = True
) -> Callable[[Function], Function]: ...


def compiled(function: Any = None, /, **options: Any) -> Any:
    """Compile a function with Numba when it is first called, and keep the result on disk.

    The compiled code does not hold the interpreter lock, divides by zero as NumPy does, and uses
    `FAST_MATH`. Like `numba.njit`, to be written ``@compiled`` or ``@compiled(inline="always")``.

    Parameters
    ----------
    function : callable
    **options
        Further options of `numba.njit`; ``cache=False`` where there is no source file to keep the
        result beside, as in an interactive session.

    Returns
    -------
    callable

    Examples
    --------
    >>> from pymc_geodesic.jit import compiled
    >>> @compiled(cache=False)
    ... def double(x):
    ...     return 2 * x
    >>> double(1.5)
    3.0
    """
    if function is None:
        return lambda decorated: compiled(decorated, **options)
    defaults = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": FAST_MATH}
    dispatcher = numba.njit(function, **(defaults | options))
    # Numba's cache looks at the file of a function alone, and would go on using the old code of
    # the functions it calls after their files have changed.
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is not None:
        file._source_stamp = SOURCE_STAMP
    return dispatcher


# For a type checker an intrinsic would take the typing context as its first argument.
define_intrinsic: Any = intrinsic


@define_intrinsic
def borrow(_context: Any, array: Any) -> tuple[Any, Callable[..., Any]]:
    """Use an array in compiled code without counting references to it.

    A function that loops over a shared array pays some 10 ns per array for the atomic counter,
    as much as a whole geodesic step of a small variable. A borrowed array has no counter, so it
    must not outlive the array it came from: borrow the arguments of a function, return none.

    Parameters
    ----------
    array : array

    Returns
    -------
    array
        The same data and type.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        borrowed = context.make_array(signature.args[0])(context, builder, arguments[0])
        borrowed.meminfo = borrowed.meminfo.type(None)
        return borrowed._getvalue()

    return array(array), generate
