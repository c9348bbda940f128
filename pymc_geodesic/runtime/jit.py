"""The one decorator that compiles every numerical kernel of the package, and loans of arrays."""

import hashlib
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, overload

import numba
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

FAST_MATH = {"contract", "reassoc", "nsz"}
"""Floating-point freedom given to the compiler.

Sums may be reordered (so that they vectorise), products and sums fused, and the sign of a zero
ignored. NaN and infinity keep their meaning: kernels find divergences by looking for them.
"""


_PACKAGE = Path(__file__).parents[1]
_MODULE_NAME = re.compile(rb"pymc_geodesic((?:\.\w+)+)")
_COMPILES = re.compile(rb"pymc_geodesic\.(?:runtime\.(?:jit|kernel|late)|ops\.numba_backend)\b")
_SYMBOLIC = re.compile(rb"^(?:from|import) (?:pymc|pytensor)\b", re.MULTILINE)


def source_stamp(module: Path) -> str:
    """Fingerprint of a module and of all modules of the package that its compiled code may inline.

    Parameters
    ----------
    module : pathlib.Path
        File of a module in the package's folder.

    Returns
    -------
    str
        Changes when the text of the module does, or that of a module that is named in it or, in
        turn, in one of these: of those that compile functions, and of plain numerics, whose
        functions and constants are compiled elsewhere. Modules that build graphs do neither.

    Examples
    --------
    >>> from pathlib import Path
    >>> from pymc_geodesic.runtime import jit
    >>> jit.source_stamp(Path(jit.__file__)) == jit.source_stamp(Path(jit.__file__))
    True
    """
    digests: dict[str, bytes] = {}
    first = os.fspath(module)
    waiting = [first]
    while waiting:
        path = waiting.pop()
        if path in digests:
            continue
        source = _source(path, *_version(path))
        inlined = source.may_be_inlined or path == first
        digests[path] = source.digest if inlined else b""
        if inlined:
            waiting += source.named
    return hashlib.sha256(b"".join(digests[path] for path in sorted(digests))).hexdigest()


class _Source(NamedTuple):
    """What a stamp needs of the text of a module."""

    digest: bytes
    named: tuple[str, ...]
    may_be_inlined: bool


def _version(path: str) -> tuple[int, int]:
    """When a file was written and how long it is; (0, 0) of none."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@cache
def _source(path: str, *version: int) -> _Source:
    """Read a module once; a hundred functions ask for the same files while they are imported."""
    text = Path(path).read_bytes() if any(version) else b""
    named = (_file_of(name) for name in set(_MODULE_NAME.findall(text)))
    may_be_inlined = (
        os.path.basename(path) == "__init__.py"
        or _COMPILES.search(text) is not None
        or _SYMBOLIC.search(text) is None
    )
    return _Source(hashlib.sha256(text).digest(), tuple(named), may_be_inlined)


def _file_of(name: bytes) -> str:
    """Where ``pymc_geodesic<name>`` is; any path that does not exist if it is not a module."""
    place = _PACKAGE.joinpath(*name.decode().split(".")[1:])
    return os.fspath(place / "__init__.py" if place.is_dir() else place.with_suffix(".py"))


@overload
def compiled[Function: Callable[..., Any]](function: Function, /) -> Function: ...


@overload
def compiled[Function: Callable[..., Any]](
    *, cache: bool = True, **options: Any
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
    >>> from pymc_geodesic.runtime.jit import compiled
    >>> @compiled(cache=False)
    ... def double(x):
    ...     return 2 * x
    >>> double(1.5)
    3.0
    """
    if function is None:
        return lambda decorated: compiled(decorated, **options)
    defaults = {
        "cache": True,
        "nogil": True,
        "error_model": "numpy",
        "fastmath": FAST_MATH,
        "no_cfunc_wrapper": True,
    }
    dispatcher = numba.njit(function, **(defaults | options))
    # Numba's cache looks at the file of a function alone, and would go on using the old code of
    # the functions it calls after their files have changed.
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is not None:
        file._source_stamp = source_stamp(Path(function.__code__.co_filename))
    return dispatcher


def compiled_for_c(function: Any = None, /, **options: Any) -> Any:
    """Compile a function that C code calls by its address; like `compiled`.

    Python cannot call it: what a caller of either kind needs takes longer to compile than many a
    function, and is left out where nobody calls.
    """
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": False}
    return compiled(function, **(wrappers | options))


def machine_address(function: Any, signature: Any) -> int:
    """Compile a function, or load it from disk, and say where C code finds it.

    Parameters
    ----------
    function : function of `compiled_for_c`
        Must stay alive while the address is in use.
    signature : numba signature
        Of numbers and pointers.

    Returns
    -------
    int
    """
    result = function.get_compile_result(signature)
    address = result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
    assert address, f"{function} is not `compiled_for_c`"
    return int(address)


# For a type checker an intrinsic would take the typing context as its first argument.
define_intrinsic: Any = intrinsic


@define_intrinsic
def borrow(_context: Any, value: Any) -> tuple[Any, Callable[..., Any]]:
    """Use an array in compiled code without counting references to it.

    A function that loops over a shared array pays some 10 ns per array for the atomic counter,
    as much as a whole geodesic step of a small variable. A borrowed array has no counter, so it
    must not outlive the array it came from: borrow the arguments of a function, return none.

    Parameters
    ----------
    value : array, or tuple of arrays and numbers

    Returns
    -------
    array or tuple
        The same data and type.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _borrowed(context, builder, signature.args[0], arguments[0])

    return value(value), generate


def _borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Generate code that takes the counters out of a value."""
    if isinstance(kind, types.BaseTuple):
        for i, inner in enumerate(kind):
            part = _borrowed(context, builder, inner, builder.extract_value(value, i))
            value = builder.insert_value(value, part, i)
    elif isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = array.meminfo.type(None)
        value = array._getvalue()
    return value


@define_intrinsic
def copy_numbers(_context: Any, source: Any, target: Any) -> tuple[Any, Callable[..., Any]]:
    """Copy all numbers of a vector to the beginning of another, in compiled code.

    An assignment to a slice does the same, but for its message about shapes that differ, which
    takes longer to compile than a sampler, and a loop, of which the compiler makes several.
    Nothing is checked.

    Parameters
    ----------
    source, target : C-contiguous vectors of the same type of numbers
    """
    for kind in (source, target):
        if not (isinstance(kind, types.Array) and kind.ndim == 1 and kind.layout == "C"):
            raise TypingError(f"numbers are copied between contiguous vectors, not {kind}")
    if source.dtype != target.dtype:
        raise TypingError(f"numbers of {source} are not those of {target}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, end = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, arguments, strict=True)
        )
        cgutils.raw_memmove(builder, end.data, start.data, start.nitems, start.itemsize)
        return context.get_dummy_value()

    return types.void(source, target), generate
