"""Machine code of functions of tests, kept on disk like that of the package.

Numba keeps what stands in a file, and forgets it when the file changes. A mutant stands in no file,
and a field is made anew by every test, of the target that it closes over. What they compile to
depends on their own text and on all that it names, in turn, as far as the package, and on the
package: machine code is found by a digest of these.
"""

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any
from uuid import uuid4

import numba
import numpy as np
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from tests.sources import PACKAGE, folder_of_tests

PLAIN = (int, float, complex, str, bytes, type(None), type(...), np.generic)
NAMED = (type, ModuleType, BuiltinFunctionType, np.ufunc)


def kept(function: Any = None, /, **options: Any) -> Any:
    """Compile like `numba.njit`, and once for all runs of the tests; a decorator."""
    if function is None:
        return lambda decorated: kept(decorated, **options)
    dispatcher = numba.njit(function, **options)
    if "NUMBA_CACHE_DIR" in os.environ:
        dispatcher._cache = KeptCode(function, options, folder_of_tests())
    return dispatcher


class KeptCode(NullCache):
    """Where Numba looks for the machine code of a function before it compiles.

    Parameters
    ----------
    function : callable
        Looked at when it is first called: all that it names is there by then.
    options : dict
        Of the compiler.
    folder : pathlib.Path
        Of a version of the package.
    """

    def __init__(self, function: Callable[..., Any], options: dict, folder: Path) -> None:
        self._function, self._options, self._folder = function, options, folder

    @cached_property
    def _name(self) -> str:
        """Name the function, and let Numba name its machine code so.

        Of two functions with one name in one process the machine code of the first would be run.
        """
        name = f"{self._function.__name__}_{digest_of(self._function, self._options)}"
        self._function.__qualname__ = name
        return name

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return what was compiled for a signature, None if nothing was."""
        context.refresh()
        try:
            data = self._path(signature, context.codegen()).read_bytes()
        except FileNotFoundError:
            return None
        return CompileResult._rebuild(context, *pickle.loads(data))

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep what was compiled, unless it holds addresses of this process."""
        if result.lifted or result.library.has_dynamic_globals:
            return
        path = self._path(signature, result.codegen)
        path.parent.mkdir(exist_ok=True)
        new = path.with_suffix(f".{uuid4().hex}")
        new.write_bytes(dumps(result._replace(type_annotation="")._reduce()))
        new.replace(path)

    def _path(self, signature: Any, codegen: Any) -> Path:
        versions = numba.__version__, sys.version, codegen.magic_tuple()
        return self._folder / f"{self._name}-{digest_of(str(signature), versions)}.code"


def digest_of(*values: Any) -> str:
    """Name values, and all that functions among them compile to.

    Raises
    ------
    TypeError
        If something is named that is neither a value nor a function.
    """
    digest = hashlib.sha256()
    for part in described(values, set()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:20]


def described(value: Any, seen: set[int]) -> Iterator[str]:
    """Spell out a value, functions but once."""
    if isinstance(value, PLAIN):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype.str} {value.shape} {value.tobytes().hex()}"
    elif isinstance(value, CodeType):
        yield f"{value.co_varnames} {value.co_names} {value.co_code.hex()}"
        yield from described(value.co_consts, seen)
    elif isinstance(value, Dispatcher):
        yield from described((value.targetoptions, value.py_func), seen)
    elif isinstance(value, FunctionType):
        yield from of_function(value, seen)
    elif isinstance(value, (tuple, list, dict, set, frozenset)):
        items = value.items() if isinstance(value, dict) else value
        ordered = sorted(items, key=repr) if isinstance(value, (set, frozenset)) else items
        yield f"{type(value).__name__} of {len(value)}"
        for item in ordered:
            yield from described(item, seen)
    elif isinstance(value, NAMED) and not is_module_of_tests(value):
        yield f"{getattr(value, '__module__', '')} {value.__name__}"
    elif type(value).__module__.startswith("numba.") and " at 0x" not in repr(value):
        yield repr(value)
    else:
        raise TypeError(f"machine code that depends on {value!r} cannot be kept")


def of_function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    """Spell out a function, of the package by its name alone."""
    yield f"{function.__module__} {function.__code__.co_qualname}"
    if id(function) in seen:
        return
    seen.add(id(function))
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    yield from described((function.__defaults__, cells), seen)
    if PACKAGE not in Path(function.__code__.co_filename).parents:
        yield from described(function.__code__, seen)
        for name in sorted(names_in(function.__code__)):
            if name in function.__globals__:
                yield name
                yield from described(function.__globals__[name], seen)


def names_in(code: CodeType) -> set[str]:
    """Names that a function and those within it look up."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(names_in, inner))


def is_module_of_tests(value: Any) -> bool:
    """Whether a name of this value would be too little: what it holds may change."""
    return isinstance(value, ModuleType) and value.__name__.startswith("tests")
