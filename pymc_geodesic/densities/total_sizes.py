"""Whether the number of rows that a model states is that of its data."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from pymc.model import Model
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.row_inputs import drawn_rows
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.sparse import containers_of


def stating_totals(model: Model, names: Sequence[str]) -> list[str]:
    """Names of observed variables with a ``total_size=`` that see rows of named containers.

    Parameters
    ----------
    model : pymc.Model
    names : sequence of str
        Data containers, or matrices in several of them.
    """
    rows = {container for name in names for container in containers_of(model, name)}
    return [
        rv.name
        for rv in model.observed_RVs
        if isinstance(rv.owner.op, MinibatchRandomVariable)
        and not rows.isdisjoint(ancestors([rv, model.rvs_to_values[rv]]))
    ]


def warn_of_other_totals(model: Model, source: RowSource, total_size: int | None = None) -> None:
    """Warn where ``total_size=`` of an observed variable is not the number of rows it sees.

    Its log-density is multiplied by that number over the rows of a minibatch, so that a wrong one
    makes the posterior too narrow or too wide by the root of their quotient, at a temperature of 1.

    Parameters
    ----------
    model : pymc.Model
    source : RowSource
    total_size : int, optional
        N, where the step was told.
    """
    named = {model[name] for name in source.names}
    for rv in model.observed_RVs:
        if not isinstance(rv.owner.op, MinibatchRandomVariable):
            continue
        stated = rv.owner.inputs[1]
        if not isinstance(stated, Constant) or stated.data is None:
            continue
        graphs = [rv, model.rvs_to_values[rv]]
        counts = {len(row.data) for row in drawn_rows(graphs).values()}
        if not named.isdisjoint(ancestors(graphs)):
            counts.add(source.n_rows if total_size is None else int(total_size))
        if counts and int(stated.data) not in counts:
            n_rows = max(counts)
            message = (
                f"total_size={int(stated.data)} of {rv.name!r} is not the {n_rows} rows of its "
                "data: its log-density counts as that many rows, and the posterior is "
                f"{'narrower' if stated.data > n_rows else 'wider'} than that of the data. Pass "
                f"total_size={n_rows}, the number of all rows and not that of a minibatch"
            )
            warnings.warn(see(message, "total-size"), UserWarning, stacklevel=2)
