"""What local variables ask of a model: rows that are independent, and one number of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pymc.model import Model
from pymc.pytensorf import compile as pymc_compile
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

from pymc_geodesic.densities.log_density import Density
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.source import RowSource

_CHECKED_ROWS = 3


def total_rows(
    model: Model, local: Sequence[ManifoldVariable], source: RowSource, total_size: int | None
) -> int:
    """N, from the step, from observed variables with a ``total_size`` of their own, or counted.

    Parameters
    ----------
    model : pymc.Model
    local : list of ManifoldVariable
    source : RowSource
        Minibatches of the data.
    total_size : int or None
        What the step was told.

    Raises
    ------
    ValueError
        If observed variables and the step say different numbers, or a variable counts another
        axis than that of the rows.
    """
    of_rows = {*(model[name] for name in source.arrays), *(variable.rv for variable in local)}
    said = {} if total_size is None else {"the step": int(total_size)}
    for rv in model.observed_RVs:
        if not isinstance(rv.owner.op, MinibatchRandomVariable):
            continue
        if of_rows.isdisjoint(ancestors([rv, model.rvs_to_values[rv]])):
            continue
        rows, *others = (
            int(size.data) if isinstance(size, Constant) and size.data is not None else None
            for size in rv.owner.inputs[1:]
        )
        if rows is None or any(size is not None for size in others):
            message = (
                f"total_size= of {rv.name!r} counts another axis than the first: with local= it "
                "must be one number, that of the rows"
            )
            raise ValueError(see(message, "local"))
        said[repr(rv.name)] = rows
    if len(set(said.values())) > 1:
        message = (
            f"total_size= differs, {', '.join(f'{n} for {who}' for who, n in said.items())}: rows "
            "with local variables are counted once; give the number to the step alone"
        )
        raise ValueError(see(message, "local"))
    return next(iter(said.values()), source.n_rows)


def check_rows(
    model: Model, density: Density, variables: Sequence[ManifoldVariable], source: RowSource
) -> None:
    """Make sure that each term is computed row by row, at random values of all variables.

    A term with local variables must give one number, or more, for each row, which other rows do
    not change. A term without may be a sum over rows.

    Parameters
    ----------
    model : pymc.Model
    density : Density
        With any number of rows.
    variables : list of ManifoldVariable
        Those of its coordinates.
    source : RowSource
        Minibatches of the data.

    Raises
    ------
    ValueError
        The message names the variable or potential.
    """
    n = min(_CHECKED_ROWS, source.n_rows)
    inputs = [*density.coordinates, *density.others.values(), *density.arrays]
    inputs += [row.block for row in density.rows]
    function = pymc_compile(
        inputs, density.row_terms, mode="FAST_COMPILE", on_unused_input="ignore", trust_input=True
    )
    rng = np.random.default_rng(0)
    points = []
    for variable, coordinate in zip(variables, density.coordinates, strict=True):
        of_rows = coordinate.type.shape[:1] == (None,)
        shape = (n, *coordinate.type.shape[1:]) if of_rows else coordinate.type.shape
        count = int(np.prod(shape, dtype=int)) // variable.manifold.size
        drawn = variable.manifold.to_coordinates(variable.manifold.random_point(rng, count))
        points.append((drawn.reshape(shape), of_rows))
    start = model.initial_point(random_seed=0)
    for name in density.others:
        value = np.asarray(start[name])
        if value.dtype.kind == "f":  # away from zero, where much is equal
            value = (value + 0.1 * rng.standard_normal(value.shape)).astype(value.dtype)
        points.append((value, False))
    points += [(source.whole_array(holder), False) for holder in density.arrays.values()]
    for row in density.rows:  # random rows are not there before the first draw
        data = model[row.name].get_value(borrow=True) if source.with_replacement else row.data
        points.append((data[:n], True))

    def terms_of(rows: slice) -> list[np.ndarray]:
        values = [np.ascontiguousarray(v[rows]) if of_rows else v for v, of_rows in points]
        return [np.asarray(term) for term in function(*values)]

    cut = (n + 1) // 2
    try:
        with np.errstate(all="ignore"):
            parts = [terms_of(slice(n)), terms_of(slice(cut)), terms_of(slice(cut, n))]
    except (ValueError, TypeError, IndexError, AssertionError) as error:
        message = (
            "local= needs a model that can be computed for some of its rows alone, and this one "
            f"cannot ({error}). Name every container with a row per observation in minibatch=, "
            "every variable with a row per observation in local=, and put observed values into "
            "containers"
        )
        raise ValueError(see(message, "local")) from error
    local = {c for c in density.coordinates if c.type.shape[:1] == (None,)}
    for name, term, whole, first, last in zip(
        density.row_names, density.row_terms, *parts, strict=True
    ):
        if local.isdisjoint(ancestors([term])):
            agrees = np.allclose(whole.sum(), first.sum() + last.sum(), equal_nan=True)
        else:
            agrees = (
                whole.shape[:1] == (n,)
                and first.shape[:1] == (cut,)
                and last.shape[:1] == (n - cut,)
                and np.allclose(whole, np.concatenate([first, last]), equal_nan=True)
            )
        if not agrees:
            message = (
                f"local= needs rows that are independent given the other variables, but the "
                f"log-density of {name!r} is not computed row by row: let its first axis count the "
                "rows (a Potential must not be summed over them), or sample the local variables "
                "together with the others, without local="
            )
            raise ValueError(see(message, "local"))
