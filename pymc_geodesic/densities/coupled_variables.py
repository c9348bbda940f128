"""Variables in terms of the log-density that depend on the rows of data containers."""

from __future__ import annotations

from collections.abc import Sequence

from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable


def variables_coupled_to_rows(model: Model, names: Sequence[str]) -> list[TensorVariable]:
    """Value variables whose conditional distribution depends on the rows of data containers.

    Parameters
    ----------
    model : pymc.Model
    names : list of str
        Data containers, or sparse matrices.
    """
    parts = [f"{name}{part}" for name in names for part in ("", "_values", "_columns", "_rows")]
    rows = {
        found for name in parts if isinstance(found := model.named_vars.get(name), SharedVariable)
    }
    coupled = set()
    for term in (*model.basic_RVs, *model.potentials):
        graphs = [term, model.rvs_to_values[term]] if term in model.rvs_to_values else [term]
        above = set(ancestors(graphs, blockers=[rv for rv in model.free_RVs if rv is not term]))
        if above & rows:
            coupled |= above
    return [model.rvs_to_values[rv] for rv in model.free_RVs if rv in coupled]
