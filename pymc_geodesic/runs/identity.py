"""What a run is the run of: model, data, versions, arguments; and how two of them differ."""

from __future__ import annotations

import hashlib
import re
from importlib.metadata import version
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph import Constant, Variable, graph_inputs

from pymc_geodesic.failure_modes import see
from pymc_geodesic.runs.pymc_parts import find_constants, find_observations

PACKAGES = ("pymc", "pytensor", "numba", "numpy", "pymc_geodesic")


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
    """Digest of the graph of the log-density and of the arrays in it; data are compared apart."""
    density = model.logp()
    text = pytensor.dprint(density, file="str", print_type=True)
    digest = hashlib.sha256(re.sub(r"0x[0-9A-Fa-f]+", "", text).encode())
    for array in _held_arrays(density, model):  # which the text shortens
        digest.update(_fingerprint(array).encode())
    return digest.hexdigest()


def _held_arrays(density: Variable, model: pm.Model) -> list[Any]:
    """Arrays that a graph holds beside the data containers: constants and shared variables."""
    held = []
    for variable in graph_inputs([density]):
        if isinstance(variable, Constant):
            held.append(variable.data)
        elif hasattr(variable, "get_value") and variable not in model.data_vars:
            held.append(variable.get_value(borrow=True))
    return [each for each in held if isinstance(each, np.ndarray) or hasattr(each, "tocsr")]


def identity_of(model: pm.Model) -> dict[str, Any]:
    """Describe a model, its data and the packages that draw from it, as texts by name."""
    variables = {
        value.name: f"{value.dtype} of shape {np.shape(start)}"
        for value in model.value_vars
        for start in [model.initial_point(0)[value.name]]
    }
    # Without the box of signs that depends on the width of the longest name.
    laws = {
        name.strip(): law.strip()
        for line in model.str_repr().splitlines()
        for name, _, law in [line.partition("~")]
    }
    return {
        "variable": variables,
        "data": _data(model),
        "law of": laws,
        "log-density": {"of the model": _density(model)},
        "version of": {name: version(name) for name in PACKAGES},
    }


def _differences(old: dict[str, Any], new: dict[str, Any], kinds: list[str]) -> list[str]:
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
    """Refuse a model, data or packages that are not those of the run.

    Raises
    ------
    ValueError
        If they differ; it names what does.
    """
    kinds = [kind for kind in old if kind != "version of"]
    if found := _differences(old, new, kinds):
        message = (
            f"the run is of another model: {'; '.join(found)}. Give resume the model and the data "
            "that the run began with, or start a new run in another folder."
        )
        raise ValueError(see(message, "stopped-run"))
    if not any_version and (found := _differences(old, new, ["version of"])):
        message = (
            f"the run is of other packages: {'; '.join(found)}. Install those, or pass "
            "any_version=True, and draws may not be those of a run that was never stopped."
        )
        raise ValueError(see(message, "stopped-run"))
