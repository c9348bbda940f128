"""Errors for blocks of rows that do not match the rest of a model, with remedies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.row_inputs import RowInputs


class ModelError(ValueError):
    """An error with a complete message, which `explain_block_errors` does not extend."""


@contextmanager
def explain_block_errors(model: Model, inputs: RowInputs) -> Iterator[None]:
    """Add a remedy to PyTensor's errors for a block of rows that does not fit the model."""
    try:
        yield
    except ModelError:
        raise
    except (IndexError, TypeError, ValueError) as error:
        if not inputs.arrays and not inputs.drawn:
            raise
        if inputs.drawn:
            message = (
                f"the rows of pm.Minibatch do not match the rest of the model ({error}). "
                "Draw all data with a row per observation together, including observed values: "
                "X_rows, y_rows = pm.Minibatch(X, y, batch_size=...)"
            )
            raise ValueError(see(message, "minibatch")) from error
        others = [data.name for data in model.data_vars if data.name not in inputs.arrays]
        known = f"the model also has {others}" if others else "the model has no other containers"
        message = (
            f"a block of rows of minibatch={list(inputs.arrays)} does not match the rest of the "
            f"model ({error}). Name every container with a row per observation, and use containers "
            f"for observed values; {known}{_suggest_local(model, inputs)}"
            f"{_suggest_arrays(model, inputs)}. Observations that are not conditionally "
            "independent, as in a Gaussian process or a time series, cannot be divided into "
            "minibatches: use all rows, without batch_size="
        )
        raise ValueError(see(message, "minibatch")) from error


def _suggest_local(model: Model, inputs: RowInputs) -> str:
    """Suggest local= for free variables with as many values as there are rows."""
    lengths = {len(model[name].get_value(borrow=True)) for name in inputs.arrays}
    start = model.initial_point(random_seed=0)  # with dims, static shapes are unknown
    found: dict[bool, list[str]] = {True: [], False: []}
    for rv in model.free_RVs:
        value = start[model.rvs_to_values[rv].name]
        if value.shape and value.shape[0] in lengths:
            found[value.dtype.kind == "f"].append(rv.name)
    suggestion = ""
    if found[True]:
        suggestion += f". If {found[True]} have a value for each row, name them in local="
    if found[False]:
        suggestion += (
            f". If {found[False]} are discrete with a value for each row, marginalize them, as "
            "pm.Mixture does"
        )
    return suggestion


def _suggest_arrays(model: Model, inputs: RowInputs) -> str:
    """Suggest remedies for data whose first axis is not the rows, and for hidden data."""
    n_rows = len(model[next(iter(inputs.arrays))].get_value(borrow=True))
    suggestion, graphs = "", [*model.observed_RVs, *model.potentials]
    for leaf in ancestors(graphs, blockers=model.free_RVs):
        if isinstance(leaf, Constant):
            shape = np.shape(leaf.data)
        elif isinstance(leaf, SharedVariable) and not isinstance(leaf.type, RandomType):
            shape = np.shape(leaf.get_value(borrow=True))
        else:
            continue
        if len(shape) > 1 and shape[0] != n_rows == shape[-1]:
            suggestion += (
                f". An array of shape {shape} has the rows along its last axis: transpose it, so "
                "that the rows are the first axis"
            )
        elif shape and shape[0] > n_rows:
            suggestion += (
                f". An array has {shape[0]:,} rows: if the {n_rows:,} observations are a subset of "
                "them, select these rows outside the model"
            )
    if any(type(rv.owner.op).__name__.startswith("CustomDist") for rv in model.observed_RVs):
        suggestion += (
            ". Arrays inside the logp of a pm.CustomDist are not found: pass them as parameters"
        )
    return ". ".join(dict.fromkeys(suggestion.split(". ")))
