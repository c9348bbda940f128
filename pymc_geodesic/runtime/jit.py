"""Just-in-time compilation by Numba: decorators of functions and kernels, cache, array helpers.

A *kernel* is a compiled function of few arguments, most of them named tuples of arrays. When Python
passes a tuple to a compiled function, Numba inspects the names and types of its elements, which
takes 0.4 µs, as long as an inner step of a small model. Kernels declare the types of their
arguments in annotations, so that `Kernel.call` skips the inspection; with five tuples this is
faster than passing their elements separately.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain, count
from pathlib import Path
from threading import Event, Thread
from typing import (
    Annotated,
    Any,
    NamedTuple,
    Protocol,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import numba
import numpy as np
from numba import boolean, float64, int32, int64, types, uint64
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

FAST_MATH = {"contract", "reassoc", "nsz"}
"""Floating-point optimizations that the compiler may use.

Sums may be reordered (so that they vectorize), products and sums fused, and the sign of zero
ignored. NaN and infinity are preserved, since kernels detect divergences by them.
"""


_PACKAGE = Path(__file__).parents[1]
_MODULE_NAME = re.compile(rb"pymc_geodesic((?:\.\w+)+)")
_COMPILES = re.compile(
    rb"pymc_geodesic\.(?:runtime\.(?:jit|lazy_compilation)|ops\.numba_backend)\b"
)
_SYMBOLIC = re.compile(rb"^(?:from|import) (?:pymc|pytensor)\b", re.MULTILINE)


def source_stamp(module: Path) -> str:
    """Compute a hash of a module and of all modules whose functions its compiled code may inline.

    Parameters
    ----------
    module : pathlib.Path
        File of a module in the package's folder.

    Returns
    -------
    str
        Hash of the text of the module and, recursively, of the modules named in it that compile
        functions, or whose functions and constants may be compiled. Modules that build graphs are
        excluded.

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
    """Properties of the text of a module that enter a stamp."""

    digest: bytes
    named: tuple[str, ...]
    may_be_inlined: bool


def _version(path: str) -> tuple[int, int]:
    """Return modification time and size of a file; (0, 0) if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@cache
def _source(path: str, *version: int) -> _Source:
    """Read a module once, since the stamps of many functions use the same files."""
    text = Path(path).read_bytes() if any(version) else b""
    named = (_file_of(name) for name in set(_MODULE_NAME.findall(text)))
    may_be_inlined = (
        os.path.basename(path) == "__init__.py"
        or _COMPILES.search(text) is not None
        or _SYMBOLIC.search(text) is None
    )
    return _Source(hashlib.sha256(text).digest(), tuple(named), may_be_inlined)


def _file_of(name: bytes) -> str:
    """Return the file of ``pymc_geodesic<name>``, which does not exist if it is not a module."""
    path = _PACKAGE.joinpath(*name.decode().split(".")[1:])
    return os.fspath(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))


@overload
def compiled[Function: Callable[..., Any]](function: Function, /) -> Function: ...


@overload
def compiled[Function: Callable[..., Any]](
    *, cache: bool = True, **options: Any
) -> Callable[[Function], Function]: ...


def compiled(function: Any = None, /, **options: Any) -> Any:
    """Compile a function with Numba at its first call, and cache the result on disk.

    The compiled code releases the interpreter lock, divides by zero like NumPy, and uses
    `FAST_MATH`. Use it like `numba.njit`, as ``@compiled`` or ``@compiled(inline="always")``.

    Parameters
    ----------
    function : callable
    **options
        Further options of `numba.njit`; ``cache=False`` if there is no source file next to which
        the result can be cached, as in an interactive session.

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
    # Numba's cache only checks the file of the function itself, and would use outdated code of the
    # called functions after their files have changed.
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is not None:
        file._source_stamp = source_stamp(Path(function.__code__.co_filename))
        file._load_index = partial(_readable_index, file._load_index)
    return dispatcher


def _readable_index(load: Callable[[], dict[Any, str]]) -> dict[Any, str]:
    """Load the index of a cache file; empty if it names modules of another version of the package.

    Numba unpickles the types of the arguments before it compares the source stamp.
    """
    try:
        return load()
    except (AttributeError, ImportError):
        return {}


def compiled_for_c(function: Any = None, /, **options: Any) -> Any:
    """Compile a function that C code calls by its address; like `compiled`.

    Python cannot call it: the wrapper for calls from Python often takes longer to compile than the
    function, and is omitted.
    """
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": False}
    return compiled(function, **(wrappers | options))


def machine_address(function: Any, signature: Any) -> int:
    """Compile a function, or load it from disk, and return its address for C code.

    Parameters
    ----------
    function : function of `compiled_for_c`
        Function, which must not be garbage-collected while the address is in use.
    signature : numba signature
        Signature of numbers and pointers.

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
    """Use an array in compiled code without reference counting.

    The atomic reference count takes about 10 ns per array and function, as long as a geodesic step
    of a small variable. A borrowed array has no count and must not outlive the original array:
    borrow only arguments of a function, and do not return borrowed arrays.

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
    """Generate code that removes the reference counts from a value."""
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
    """Copy all elements of a vector to the beginning of another, in compiled code.

    Slice assignment does the same, but its error message for different shapes takes longer to
    compile than a sampler, and a loop is compiled in several versions. Lengths are not checked.

    Parameters
    ----------
    source, target : C-contiguous vectors of the same dtype
    """
    for kind in (source, target):
        if not (isinstance(kind, types.Array) and kind.ndim == 1 and kind.layout == "C"):
            raise TypingError(f"copy_numbers needs contiguous vectors, got {kind}")
    if source.dtype != target.dtype:
        raise TypingError(f"copy_numbers needs equal dtypes, got {source} and {target}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, end = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, arguments, strict=True)
        )
        cgutils.raw_memmove(builder, end.data, start.data, start.nitems, start.itemsize)
        return context.get_dummy_value()

    return types.void(source, target), generate


type Vector = Annotated[np.ndarray, float64[::1]]
type Matrix = Annotated[np.ndarray, float64[:, ::1]]
type Integers = Annotated[np.ndarray, int64[::1]]
type SmallIntegers = Annotated[np.ndarray, int32[::1]]
type Table = Annotated[np.ndarray, int64[:, ::1]]
type Flags = Annotated[np.ndarray, boolean[::1]]
type Stream = Annotated[np.ndarray, uint64[::1]]
type Streams = Annotated[np.ndarray, uint64[:, ::1]]
type Stack = Annotated[np.ndarray, float64[:, :, ::1]]


class Kernel[**Arguments, Result](Protocol):
    """A compiled function with declared argument types.

    Attributes
    ----------
    call : callable
        Machine code for these types, compiled at the first call or by `prepare`. It does not check
        the types of its arguments; wrong types are misinterpreted. Calls of the kernel itself are
        checked, and slower.
    """

    call: Callable[Arguments, Result]
    py_func: Callable[Arguments, Result]

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Call the kernel, compiled for the types of these arguments."""


def kernel[**Arguments, Result](
    function: Callable[Arguments, Result],
) -> Kernel[Arguments, Result]:
    """Decorate a kernel, which is compiled at its first call.

    Parameters
    ----------
    function : callable
        All arguments are annotated with int, float, the array types of this module, or named
        tuples of them.

    Returns
    -------
    Kernel

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.sgld import sgld
    >>> from pymc_geodesic.runtime.jit import signature_of
    >>> signature_of(sgld)[2:4]
    (Array(float64, 1, 'C', False, aligned=True), float64)
    """
    made: Any = compiled(function)

    def first_call(*arguments: Any) -> Any:
        made.call = made.compile(signature_of(made))
        return made.call(*arguments)

    # without JIT (NUMBA_DISABLE_JIT) it is a plain function
    made.call = first_call if hasattr(made, "py_func") else made
    return cast("Kernel[Arguments, Result]", made)


@overload
def part[Function: Callable[..., Any]](function: Function, /) -> Function: ...


@overload
def part[Function: Callable[..., Any]](
    *, reorders_sums: bool
) -> Callable[[Function], Function]: ...


def part(function: Any = None, /, *, reorders_sums: bool = True) -> Any:
    """Decorate a part of a kernel, which is inlined and can only be called by compiled code.

    A wrapper for calls from Python would often take longer to compile than the part itself.

    Parameters
    ----------
    function : callable
    reorders_sums : bool
        Whether sums may be reordered, so that they vectorize. Sums of entries that are gathered by
        an index take three times as long with vector instructions.

    Returns
    -------
    compiled function
        Function with an attribute ``is_part``.
    """
    if function is None:
        return lambda decorated: _part(decorated, reorders_sums=reorders_sums)
    return _part(function, reorders_sums=reorders_sums)


def _part(function: Any, *, reorders_sums: bool) -> Any:
    fastmath = FAST_MATH if reorders_sums else FAST_MATH - {"reassoc"}
    made: Any = compiled(no_cpython_wrapper=True, forceinline=True, fastmath=fastmath)(function)
    made.is_part = True
    return made


def signature_of(kernel: Any) -> tuple[Any, ...]:
    """Return the argument types of a kernel, from its annotations.

    Parameters
    ----------
    kernel : Kernel

    Returns
    -------
    tuple of numba types

    Raises
    ------
    TypeError
        If an argument has no supported annotation.
    """
    function = kernel.py_func
    hints = get_type_hints(function, include_extras=True)
    return tuple(_native(hints.get(name)) for name in inspect.signature(function).parameters)


def _native(annotation: Any) -> Any:
    """Return the Numba type of an annotation."""
    if annotation is int:
        return int64
    if annotation is float:
        return float64
    if annotation is bool:
        return boolean
    resolved = getattr(annotation, "__value__", annotation)
    if get_origin(resolved) is Annotated:
        return get_args(resolved)[1]
    if hasattr(resolved, "_fields"):
        hints = get_type_hints(resolved, include_extras=True)
        return types.BaseTuple.from_types(
            [_native(hints[name]) for name in resolved._fields], resolved
        )
    raise TypeError(
        f"{annotation!r} is not a supported annotation of kernel arguments. Use int, float, bool, "
        "array types of this module, or named tuples of them"
    )


NOTICES_AFTER = (2.0, 10.0, 30.0, 60.0)
"""Seconds of a stage after which it is reported, and every minute from then on. Loading cached code
takes less than the first of them."""

FIRST_NOTICE = (
    "The first compilation for a model takes 10 to 60 s of processor time; later runs load it from "
    "disk."
)
"""Log message of a long compilation."""


class _OneTimeNotice:
    """Sentence that is added to the first message of a process."""

    def __init__(self) -> None:
        self.is_logged = False

    def take(self) -> str:
        """Return the sentence the first time, and an empty string from then on."""
        text = "" if self.is_logged else f". {FIRST_NOTICE}"
        self.is_logged = True
        return text


_NOTICE = _OneTimeNotice()


def _report_until(is_done: Event, stage: str, after: Sequence[float]) -> None:
    """Log a stage with the seconds so far, until it is done."""
    begin = time.perf_counter()
    for seconds in chain(after, count(after[-1] + 60.0, 60.0)):
        if is_done.wait(max(begin + seconds - time.perf_counter(), 0.0)):
            return
        elapsed = time.perf_counter() - begin
        message = f"Compiling {stage}, {elapsed:.0f} s so far{_NOTICE.take()}"
        logging.getLogger("pymc").info(message)


@contextmanager
def report_long_compilation(stage: str, after: Sequence[float] = NOTICES_AFTER) -> Iterator[None]:
    """Log the stage of a compilation and the seconds so far, if the block takes long.

    Parameters
    ----------
    stage : str
        What is compiled, such as ``"the gradient"``.
    after : sequence of float
        Seconds after which a message is logged.

    Examples
    --------
    >>> from pymc_geodesic.runtime.jit import report_long_compilation
    >>> with report_long_compilation("the gradient"):
    ...     2 + 2
    4
    """
    is_done = Event()
    reporter = Thread(target=_report_until, args=(is_done, stage, after), daemon=True)
    reporter.start()
    try:
        yield
    finally:
        is_done.set()
        reporter.join()  # no thread is left where chains fork
