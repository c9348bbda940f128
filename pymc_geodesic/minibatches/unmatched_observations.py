"""Check of models with `pymc.Minibatch` for observed data of all rows."""

from __future__ import annotations

from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.row_inputs import RowInput, SeenRows, drawn_rows, graphs_of


def check_observed_minibatches(model: Model) -> None:
    """Check that observed data are those of the rows that `pymc.Minibatch` draws.

    PyTensor reports no more than different numbers of rows, and not even that where a minibatch has
    one row or as many rows as the data.

    Raises
    ------
    ValueError
        The message names the observed variable and the data.
    """
    graphs = graphs_of(model)
    drawn = SeenRows(drawn=drawn_rows(graphs)).blocks(model, graphs)
    if not drawn:
        return
    for rv in model.observed_RVs:
        observed = model.rvs_to_values[rv]
        if not drawn.keys().isdisjoint(ancestors([observed])):
            continue
        for variable in ancestors([rv]):
            row = drawn.get(variable)
            if row is not None and len(row.data) == _n_rows(observed):
                raise ValueError(see(_refusal(rv.name, row), "minibatch"))


def _n_rows(observed: Variable) -> int | None:
    """Length of the first axis, if it is known."""
    if isinstance(observed, SharedVariable):
        shape: tuple[int | None, ...] = observed.get_value(borrow=True).shape
    else:
        shape = observed.type.shape
    return shape[0] if shape else None


def _refusal(observed: str, row: RowInput) -> str:
    is_named = row.block.name != f"{row.name}_block"
    X = row.name if is_named else "X"
    n, batch_size = len(row.data), row.block.type.shape[0]
    return (
        f"{observed!r} has all {n} observed values, but pm.Minibatch draws {batch_size} of the {n} "
        f"rows of {repr(X) if is_named else 'its data'}: draw both by one, {X}_rows, "
        f"{observed}_rows = pm.Minibatch({X}, {observed}, batch_size={batch_size}), and pass "
        f"observed={observed}_rows"
    )
