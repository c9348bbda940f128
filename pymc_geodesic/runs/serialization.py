"""Serialization of nested values to ``.npz`` files with JSON, without pickle.

Supported are the types of sampling states: numbers, strings, lists, tuples, dictionaries, arrays,
named tuples and dataclasses. Arrays are stored exactly. Classes are stored by name, and loaded only
from `PACKAGES`, so that a file cannot run code.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import zipfile
from enum import Enum
from pathlib import Path
from typing import Any, cast

import numpy as np

PACKAGES = ("pymc", "pymc_extras", "pymc_geodesic")
"""Packages whose classes a file may contain."""

_TREE = "tree"


class UnreadableFileError(ValueError):
    """A file is truncated, damaged or has another format."""


def class_name(cls: type) -> str:
    """Name of a class, as ``module:qualified name``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def named_class(name: str) -> Any:
    """Import a class of `PACKAGES` by its name; see `class_name`.

    Raises
    ------
    UnreadableFileError
        If it is not a class of these packages.
    """
    module, _, path = name.partition(":")
    if module.split(".")[0] not in PACKAGES:
        raise UnreadableFileError(f"{name!r} is not a class of {', '.join(PACKAGES)}")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UnreadableFileError(f"the class {name!r} no longer exists") from error
    if not isinstance(found, type):
        raise UnreadableFileError(f"{name!r} is not a class")
    return found


def encode(value: Any, arrays: dict[str, np.ndarray], where: str = "value") -> Any:
    """Convert a value to JSON; arrays are collected in a dictionary.

    Raises
    ------
    TypeError
        If it contains an unsupported type, or a class that cannot be imported by name.
    """
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise TypeError(f"{where} is an array of objects, which cannot be written")
        key = f"a{len(arrays)}"
        arrays[key] = array
        return {"scalar" if isinstance(value, np.generic) else "array": key}
    if isinstance(value, Enum):
        return {"enum": class_name(type(value)), "name": value.name}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {
            "object": _writable(type(value), where),
            "fields": {k: encode(v, arrays, f"{where}.{k}") for k, v in parts.items()},
        }
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        items = [encode(v, arrays, f"{where}[{i}]") for i, v in enumerate(value)]
        return {"named": _writable(type(value), where), "items": items}
    if isinstance(value, tuple):
        return {"tuple": [encode(v, arrays, f"{where}[{i}]") for i, v in enumerate(value)]}
    if isinstance(value, list):
        return [encode(v, arrays, f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, dict):
        pairs = [
            [encode(k, arrays, f"a key of {where}"), encode(v, arrays, f"{where}[{k!r}]")]
            for k, v in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, type):
        if issubclass(value, np.generic):
            return {"numpy": value.__name__}
        return {"class": _writable(value, where)}
    raise TypeError(f"{where} is of type {type(value).__name__}, which cannot be written")


def _writable(cls: type, where: str) -> str:
    name = class_name(cls)
    try:
        if named_class(name) is cls:
            return name
    except UnreadableFileError:
        pass
    raise TypeError(f"{where} is of the class {name}, which cannot be imported by name")


def decode(tree: Any, arrays: Any) -> Any:
    """Inverse of `encode`."""
    if isinstance(tree, list):
        return [decode(v, arrays) for v in tree]
    if not isinstance(tree, dict):
        return tree
    match tree:
        case {"array": key}:
            return arrays[key]
        case {"scalar": key}:
            return arrays[key][()]
        case {"enum": name, "name": member}:
            return named_class(name)[member]
        case {"dtype": text}:
            return np.dtype(text)
        case {"numpy": name}:
            return np.dtype(name).type
        case {"tuple": items}:
            return tuple(decode(v, arrays) for v in items)
        case {"dict": pairs}:
            return {decode(k, arrays): decode(v, arrays) for k, v in pairs}
        case {"class": name}:
            return named_class(name)
        case {"named": name, "items": items}:
            return named_class(name)._make(decode(v, arrays) for v in items)
        case {"object": name, "fields": parts}:
            cls = named_class(name)
            if not dataclasses.is_dataclass(cls):
                raise UnreadableFileError(f"{name!r} is not a dataclass")
            made: Any = object.__new__(cast(Any, cls))
            for key, value in parts.items():
                object.__setattr__(made, key, decode(value, arrays))
            return made
    raise UnreadableFileError(f"the file has an entry with the unknown keys {sorted(tree)}")


def write_tree(path: Path, value: Any) -> None:
    """Write a value to a file atomically.

    A temporary file is flushed to disk and then renamed; it replaces an older file.

    Raises
    ------
    OSError
        If the disk is full or not writable; an older file of this name is unchanged.
    """
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(encode(value, arrays)).encode()
    arrays[_TREE] = np.frombuffer(text, np.uint8)
    temporary = path.with_name(f"{path.name}.part")
    try:
        with temporary.open("wb") as file:
            # No key is called `file`, the name of the first parameter of savez.
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_tree(path: Path) -> Any:
    """Read a value that `write_tree` wrote.

    Raises
    ------
    UnreadableFileError
        If the file is truncated or its checksums do not match.
    """
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return decode(json.loads(arrays.pop(_TREE).tobytes()), arrays)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UnreadableFileError(f"{path} cannot be read: {error}") from error
