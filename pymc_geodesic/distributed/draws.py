"""What chains brought home, as `pymc.sample` returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
from pytensor.graph import ancestors
from xarray import DataTree

from pymc_geodesic.distributed.pymc_parts import (
    coords_and_dims_for_inferencedata,
    is_transformed_name,
)
from pymc_geodesic.distributed.resident import VisitDraws
from pymc_geodesic.distributed.schedule import Visit
from pymc_geodesic.sparse import containers_of


def tree_of(
    model: pm.Model,
    row_names: Sequence[str],
    local_names: Sequence[str],
    plans: Sequence[Sequence[Visit]],
    chains: Sequence[Sequence[VisitDraws]],
    *,
    tune: int,
    save_warmup: bool,
) -> DataTree:
    """Put the draws of all chains together.

    Parameters
    ----------
    model : pymc.Model
    row_names : sequence of str
        Data containers whose rows are elsewhere: what is computed from them is left out.
    local_names : sequence of str
        Variables with a value for each row, left out likewise.
    plans, chains
        Visits of each chain, and what came of them.
    tune : int
        Draws of the tuning phase.
    save_warmup : bool
        Whether these are kept.
    """
    rows = {container for name in row_names for container in containers_of(model, name)}
    rows |= {model.rvs_to_values[model[name]] for name in local_names}
    travelling = [value for value in model.value_vars if value not in rows]
    named = [
        variable
        for variable in model.unobserved_value_vars
        if not is_transformed_name(variable.name) and rows.isdisjoint(ancestors([variable]))
    ]
    evaluate = model.compile_fn(
        inputs=travelling, outs=named, point_fn=False, on_unused_input="ignore"
    )
    values, stats = [], []
    for plan, visits in zip(plans, chains, strict=True):
        points = _joined([visit.values for visit in visits])
        inputs = [points[value.name] for value in travelling]
        drawn = [[np.array(v) for v in evaluate(*each)] for each in zip(*inputs, strict=True)]
        columns = [np.stack(column) for column in zip(*drawn, strict=True)]
        values.append(dict(zip([v.name for v in named], columns, strict=True)))
        of_visits = [
            visit.stats | {"shard": np.full(stay.n_draws, stay.shard)}
            for stay, visit in zip(plan, visits, strict=True)
        ]
        stats.append(_joined(of_visits))
    parts = {"": slice(tune, None)} | ({"warmup_": slice(0, tune)} if save_warmup else {})
    groups: dict[str, Mapping[str, np.ndarray]] = {}
    for prefix, part in parts.items():
        groups[f"{prefix}posterior"] = _stacked(values, part)
        groups[f"{prefix}sample_stats"] = _stacked(stats, part)
    coords, dims = coords_and_dims_for_inferencedata(model)
    kept = {v.name: list(dims[v.name]) for v in named if None not in dims.get(v.name, [None])}
    used = {dim for of in kept.values() for dim in of}
    tree = az.from_dict(
        groups,
        coords={name: values for name, values in coords.items() if name in used},
        dims=kept,
        save_warmup=save_warmup,
    )
    for group in groups:
        tree[group].attrs["tuning_steps"] = tune
    return tree


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _stacked(chains: Sequence[Mapping[str, np.ndarray]], part: slice) -> dict[str, Any]:
    return {name: np.stack([chain[name][part] for chain in chains]) for name in chains[0]}
