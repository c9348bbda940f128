"""Identity of a run: model, data, package versions, arguments of the step and start of a chain."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, cast

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph import Constant, Variable, graph_inputs

from pymc_geodesic.failure_modes import see
from pymc_geodesic.runs.pymc_backend import CompoundStep, find_constants, find_observations
from pymc_geodesic.runs.serialization import class_name, encode, named_class

VERSIONED = ("pymc", "pytensor", "numba", "numpy", "pymc_geodesic")


def _fingerprint(array: Any) -> str:
    if hasattr(array, "tocsr"):  # sparse
        rows = array.tocsr()
        parts = [rows.data, rows.indices, rows.indptr]
    else:
        parts = [np.asarray(array)]
    digest = hashlib.sha256(str([(part.dtype.str, part.shape) for part in parts]).encode())
    for part in parts:
        digest.update(repr(part.tolist()).encode() if part.dtype.hasobject else part.tobytes())
    return digest.hexdigest()


def _data(model: pm.Model) -> dict[str, str]:
    arrays = {**find_constants(model), **find_observations(model)}
    for variable in model.data_vars:
        if hasattr(variable, "get_value"):
            arrays[variable.name] = variable.get_value(borrow=True)
    return {name: _fingerprint(array) for name, array in arrays.items()}


def _density(model: pm.Model) -> str:
    """Digest of the graph of the log-density and of its constants; data have their own digests."""
    density = model.logp()
    text = pytensor.dprint(density, file="str", print_type=True)
    digest = hashlib.sha256(re.sub(r"0x[0-9A-Fa-f]+", "", text).encode())
    for array in _held_arrays(density, model):  # which dprint abbreviates
        digest.update(_fingerprint(array).encode())
    return digest.hexdigest()


def _held_arrays(density: Variable, model: pm.Model) -> list[Any]:
    """Constants and shared variables of a graph other than the data containers."""
    held = []
    for variable in graph_inputs([density]):
        if isinstance(variable, Constant):
            held.append(variable.data)
        elif hasattr(variable, "get_value") and variable not in model.data_vars:
            held.append(variable.get_value(borrow=True))
    return [each for each in held if isinstance(each, np.ndarray) or hasattr(each, "tocsr")]


def compute_identity(model: pm.Model) -> dict[str, Any]:
    """Digests of a model and its data, and the versions of packages, as strings by name."""
    variables = {
        value.name: f"{value.dtype} of shape {np.shape(start)}"
        for value in model.value_vars
        for start in [model.initial_point(0)[value.name]]
    }
    # Without the alignment, which depends on the longest name.
    distributions = {
        name.strip(): distribution.strip()
        for line in model.str_repr().splitlines()
        for name, _, distribution in [line.partition("~")]
    }
    return {
        "variable": variables,
        "data": _data(model),
        "distribution of": distributions,
        "log-density": {"of the model": _density(model)},
        "version of": {name: version(name) for name in VERSIONED},
    }


def _differences(old: dict[str, Any], new: dict[str, Any], kinds: list[str]) -> list[str]:
    """Describe the differences of two identities."""
    found = []
    for kind in kinds:
        for name in [*old[kind], *(set(new[kind]) - set(old[kind]))]:
            was, now = old[kind].get(name), new[kind].get(name)
            if was == now:
                continue
            if kind in ("data", "log-density"):
                was, now = was and "other values", now and "these"
            found.append(f"{kind} {name!r}: {was or 'nothing'} in the run, {now or 'nothing'} now")
    return found


def check_identity(old: dict[str, Any], new: dict[str, Any], *, any_version: bool) -> None:
    """Validate that model, data and versions of packages are those of the run.

    Raises
    ------
    ValueError
        If they differ; the message names the differences.
    """
    kinds = [kind for kind in old if kind != "version of"]
    if found := _differences(old, new, kinds):
        message = (
            f"the run has another model: {'; '.join(found)}. Call resume with the model and data "
            "with which the run started, or start a new run in another folder."
        )
        raise ValueError(see(message, "stopped-run"))
    if not any_version and (found := _differences(old, new, ["version of"])):
        message = (
            f"the run was started with other packages: {'; '.join(found)}. Install those, or pass "
            "any_version=True; draws may then differ from those of an uninterrupted run."
        )
        raise ValueError(see(message, "stopped-run"))


AUTOMATIC = "automatic"
"""Key of the file format: whether PyMC assigned the step, a NUTS for all variables."""

_NOT_KEPT = ("model", "rng", "blocked")
"""Arguments that `build_step` supplies."""


def _by_name(value: Any) -> Any:
    """Replace variables by their names, in nested containers too."""
    if isinstance(value, Variable):
        return value.name
    if isinstance(value, list | tuple):
        return [_by_name(v) for v in value]
    if isinstance(value, dict):
        return {key: _by_name(v) for key, v in value.items()}
    return value


def serialize_step(step: Any) -> dict[str, Any]:
    """Class, variables and arguments of a step method, from which it can be constructed again.

    Returns
    -------
    dict
        ``kept`` are the arguments by name, ``lost`` those that cannot be serialized, with the
        reason. A compound step has ``methods``.
    """
    if isinstance(step, CompoundStep):
        return {"class": "compound", "methods": [serialize_step(method) for method in step.methods]}
    (_, *positional), named = step.__getnewargs_ex__()
    variables = getattr(step, "variables", None)
    kept, lost = {}, {}
    for name, value in named.items():
        value = _by_name(value)
        if name in _NOT_KEPT:
            continue
        try:
            encode(value, {}, name)
        except TypeError as error:
            lost[name] = str(error)
        else:
            kept[name] = value
    if positional:
        lost["positional arguments"] = "arguments that are not passed by keyword"
    names = [v.name for v in (step.vars if variables is None else variables)]
    return {
        "class": class_name(type(step)),
        "vars": names,
        "kept": kept,
        "lost": lost,
        # The NUTS that PyMC assigns to all variables has a mass matrix from its initialization.
        AUTOMATIC: "potential" in lost and isinstance(step, pm.NUTS),
    }


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(v, other[k]) for k, v in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


def step_differences(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Differences of two serialized steps, in words; empty if there are none."""
    if one["class"] != other["class"]:
        return f"{_title(one)} in the run, {_title(other)} now"
    if one["class"] == "compound":
        if len(one["methods"]) != len(other["methods"]):
            return f"{_title(one)} in the run, {_title(other)} now"
        return "; ".join(filter(None, map(step_differences, one["methods"], other["methods"])))
    if one["vars"] != other["vars"]:
        return f"variables {one['vars']} in the run, {other['vars']} now"
    names = [*one["kept"], *(set(other["kept"]) - set(one["kept"]))]
    return "; ".join(
        f"{name}={one['kept'].get(name)!r} in the run, {other['kept'].get(name)!r} now"
        for name in names
        if not _same(one["kept"].get(name), other["kept"].get(name))
    )


def _title(serialized: dict[str, Any]) -> str:
    if serialized["class"] == "compound":
        return "[" + ", ".join(map(_title, serialized["methods"])) + "]"
    return cast(str, serialized["class"]).rpartition(":")[2]


def build_step(serialized: dict[str, Any], model: pm.Model) -> Any:
    """Construct the step method, or list of step methods; inverse of `serialize_step`.

    Raises
    ------
    ValueError
        If an argument could not be serialized; the message names it.
    """
    if serialized["class"] == "compound":
        return [build_step(method, model) for method in serialized["methods"]]
    if serialized["lost"]:
        message = (
            f"the run does not contain {', '.join(serialized['lost'])} of {_title(serialized)}: "
            f"{'; '.join(serialized['lost'].values())}. Pass the step with which the run started "
            "as step="
        )
        raise ValueError(see(message, "stopped-run"))
    cls = named_class(serialized["class"])
    by_name = {value.name: value for value in model.value_vars} | model.named_vars
    return cls([by_name[name] for name in serialized["vars"]], model=model, **serialized["kept"])


def check_start(
    old: tuple[Mapping[str, Any], Any], new: tuple[Mapping[str, Any], Any], chain: int
) -> None:
    """Validate that a chain starts as the one on disk did.

    Parameters
    ----------
    old, new : tuple
        Point, and sampling state of the step.
    chain : int

    Raises
    ------
    ValueError
        If the point or the state differs; the message names the first difference.
    """
    for what, was, now in zip(("point", "step"), old, new, strict=True):
        if where := first_difference(was, now, what):
            message = (
                f"chain {chain} does not start as the one in the run: {where} differs. Pass the "
                "step= and the initvals= with which the run started."
            )
            raise ValueError(see(message, "stopped-run"))


def first_difference(one: Any, other: Any, where: str) -> str:
    """Path of the first entry in which two states differ by more than rounding; empty if none."""
    if hasattr(one, "__dataclass_fields__") and type(one) is type(other):
        return first_difference(vars(one), vars(other), where)
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return where
        return next(
            filter(None, (first_difference(one[k], other[k], f"{where}.{k}") for k in one)), ""
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return where
        pairs = enumerate(zip(one, other, strict=True))
        return next(
            filter(None, (first_difference(a, b, f"{where}[{i}]") for i, (a, b) in pairs)), ""
        )
    if isinstance(one, np.ndarray | np.generic | float):
        a, b = np.asarray(one), np.asarray(other)
        if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
            return where
        if a.dtype.kind in "fc":
            return "" if np.allclose(a, b, rtol=1e-6, atol=1e-12, equal_nan=True) else where
        return "" if np.array_equal(a, b) else where
    return "" if one == other else where
