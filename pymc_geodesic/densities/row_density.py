"""Log-density of a model as a sum over the rows of a source, and the checks that it is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count

import numpy as np
import pytensor.tensor as pt
from pymc.model import Model
from pymc.pytensorf import compile as pymc_compile
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.graphs import function_as_written
from pymc_geodesic.densities.log_density import Density, density_of, rebuilt
from pymc_geodesic.densities.rows import IndexCheck, warn_of_other_totals
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.source import RowSource


def _other_number(density: Density, block_sizes: set[int | None]) -> int | None:
    """Rows to build the density of once more, where the block fits data that are none of its rows.

    A block of a single row broadcasts against any number of them, and one of as many rows as an
    array that `minibatch=` leaves out goes with it row by row, though it holds other rows. Neither
    goes with a block of another length.
    """
    blocks = {row.block for row in density.rows}
    others = [each for each in graph_inputs(density.row_terms) if each not in blocks]
    taken = {length for each in others for length in getattr(each.type, "shape", ())}
    if block_sizes.isdisjoint(taken | {1}):
        return None
    return next(n for n in count(2) if n not in taken)


def _refuse_single_rows(model: Model, density: Density, source: RowSource) -> None:
    """Refuse a container with one row, as placeholders of streamed data have, that is not named."""
    rows = [found for name in source.names if (found := model.named_vars.get(name)) is not None]
    lengths = {found.get_value(borrow=True).shape[:1] for found in rows}
    if source.batch_size == 1 or lengths != {(1,)}:
        return
    of_rows = set(graph_inputs(density.row_terms))
    for copy, holder in density.arrays.items():
        if holder in model.data_vars and copy.type.shape[:1] == (1,) and copy in of_rows:
            message = (
                f"{copy.name!r} has one row, as the placeholders of minibatch="
                f"{list(source.names)} have, and would go with every row of a block: name it too, "
                "or make it a scalar if it belongs to no row"
            )
            raise ValueError(see(message, "minibatch"))


class RowDensity:
    """Log-density of a model that sees its rows in blocks.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Variables to differentiate by; kernel coordinates stand for them.
    source : RowSource
        Where the rows come from.
    total_size : int, optional
        N, where it is not the number of rows of the source.
    without : sequence of TensorVariable
        Random variables whose own terms are left out.
    rewrite : callable, optional
        Changes each log-density that is built, in place.

    Attributes
    ----------
    total_size : int
        N, the rows that the log-density stands for.
    minibatch : Density
        Of as many rows as a minibatch of the source has.

    Raises
    ------
    ValueError
        If the log-density is no sum over the rows, data that are not named have as many rows as
        a minibatch, or data point beyond an array.
    """

    def __init__(
        self,
        model: Model,
        variables: Sequence[ManifoldVariable],
        source: RowSource,
        total_size: int | None = None,
        *,
        without: Sequence[TensorVariable] = (),
        rewrite: Callable[[Density], None] | None = None,
    ) -> None:
        self.model = model
        self.variables = list(variables)
        self.source = source
        self._without, self._rewrite = list(without), rewrite
        self.total_size = total_size or source.n_rows
        self.minibatch = self.of_rows()
        self._indices = IndexCheck(model, self.variables, self.minibatch, source)
        self.check_data()
        rows = self.minibatch.rows
        if rows:
            _refuse_single_rows(model, self.minibatch, source)
            warn_of_other_totals(model, source, total_size)
            other = _other_number(self.minibatch, {row.block.type.shape[0] for row in rows})
            sums = self.minibatch if other is None else self.of_rows(other)
            check_row_sums(model, self.variables, sums, source)

    def of_rows(
        self,
        n_rows: int | None = None,
        *,
        scale: float | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> Density:
        """Build the log-density of another number of rows.

        Parameters
        ----------
        n_rows : int, optional
            As many as a minibatch has by default.
        scale : float, optional
            By which the log-density of the rows is multiplied: by default as those of a minibatch.
        arrays : mapping of str to ndarray, optional
            Rows of named containers, instead of those of the source.
        """
        seen = self.source.seen(n_rows)
        if arrays is not None and seen.arrays:
            seen = replace(seen, arrays=arrays)
        density = density_of(
            self.model,
            self.variables,
            seen,
            scale=self.total_size / self.source.batch_size if scale is None else scale,
            without=self._without,
        )
        if self._rewrite is not None:
            self._rewrite(density)
        return density

    def check_data(self) -> None:
        """Refuse data in memory that point beyond an array; see `IndexCheck`."""
        self._indices.check()

    def levels(
        self, rows: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
        """Compute the indices of rows into arrays, with the containers that hold them."""
        return self._indices.levels(rows)


# --- sums over rows ------------------------------------------------------------------------------

_ROWS = 24
"""Rows of each of the two parts that are compared with both together."""

_SPREADS = (0.5, 0.05, 0.005)
"""How far from the initial point; where the log-density is not finite, the next one is tried."""

_PARTS = (slice(0, None, 2), slice(1, None, 2), slice(None))
"""Two parts of the rows, which alternate, and both together in their order."""

_TOLERANCE = {"float64": 2e-9, "float32": 2e-3}

_NO_VALUE = (ArithmeticError, AssertionError, IndexError, TypeError, ValueError)
"""What evaluation of a log-density raises for parameters out of their range."""


def check_row_sums(
    model: Model, variables: Sequence[ManifoldVariable], density: Density, source: RowSource
) -> None:
    r"""Refuse a log-density that is no sum over the rows.

    A minibatch stands for all rows if the log-density is f(rows) = Σ_i f_i, apart from a
    constant. Then, for any two parts A and B of the rows and any two places x and x' of the
    variables, D(A ∪ B) = D(A) + D(B), where D = f(·; x') − f(·; x). A mean over rows, a prior in
    the same term, or rows that depend on each other, as in a time series, have it otherwise.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
    density : Density
        Of a minibatch of any number of rows.
    source : RowSource
        Where the rows come from.

    Raises
    ------
    ValueError
        The message names the term.
    """
    # a model that takes rows in groups, such as reshape((-1, 5)), goes with few numbers of rows
    for n_rows in dict.fromkeys((_ROWS, source.batch_size)):
        if _check_parts(model, variables, density, source, n_rows):
            return


def _check_parts(
    model: Model,
    variables: Sequence[ManifoldVariable],
    density: Density,
    source: RowSource,
    n_rows: int,
) -> bool:
    """Check parts of so many rows; return whether the log-density has a value for them."""
    random_rows, whole = source.example_rows(2 * n_rows)
    point = model.initial_point(random_seed=0)
    try:
        functions = {n: _function(density, n) for n in (n_rows, 2 * n_rows)}
    except _NO_VALUE:
        return False
    fixed = [np.asarray(point[name], v.type.dtype) for name, v in density.others.items()]
    for copy, holder in density.arrays.items():
        array = source.whole_array(whole.get(copy.name, holder))
        fixed.append(array.astype(copy.type.dtype, copy=False))

    def terms(place: list[np.ndarray], rows: Mapping[str, np.ndarray], part: slice) -> np.ndarray:
        blocks = [rows[r.name][part].astype(r.block.type.dtype) for r in density.rows]
        with np.errstate(all="ignore"):
            return np.array(functions[len(blocks[0])](*place, *fixed, *blocks))

    has_value = False
    for description, rows in chain([("", random_rows)], source.related_examples(2 * n_rows)):
        for spread in _SPREADS:
            rng = np.random.default_rng(1)
            places = [_place(variables, point, spread, rng) for _ in range(2)]
            try:
                values = np.array(
                    [[terms(place, rows, part) for place in places] for part in _PARTS]
                )
            except IndexError as error:
                containers = [row.name for row in density.rows]
                raise ValueError(_beyond_rows(containers, error)) from error
            except _NO_VALUE:
                continue
            has_value = True
            if _is_additive(values, description, density):
                break
        if not has_value:
            return False
    return has_value


def _is_additive(values: np.ndarray, description: str, density: Density) -> bool:
    """Compare values of terms for two parts of rows with those for both parts together.

    Parameters
    ----------
    values : ndarray, shape (3, 2, n_terms)
        Values of the row terms for the first part, the second part and both parts, at two points.
    description : str
        What the rows have in common.
    density : Density

    Returns
    -------
    bool
        False if the values of a term are not finite, so that others are needed.

    Raises
    ------
    ValueError
        If the values of a term for both parts are not the sums of those for the two parts.
    """
    repeats = len(density.row_terms) // len(density.row_names)
    scaled = density.row_scaled * repeats
    with np.errstate(invalid="ignore"):  # of rows that are impossible at both places
        first, second, both = values[:, 1] - values[:, 0]
    tolerance = _TOLERANCE[str(values.dtype)] * np.abs(values).sum(axis=(0, 1))
    for i, name in enumerate(density.row_names * repeats):
        if not np.isfinite(both[i]):
            continue
        errors = [abs(both[i] - first[i] - second[i])]
        if scaled[i]:  # by N/n, so that n times as much is a sum
            errors.append(abs(2.0 * both[i] - first[i] - second[i]))
        if not any(error <= tolerance[i] for error in errors):
            raise ValueError(_message(name, [row.name for row in density.rows], description))
    return bool(np.isfinite(both).all())


def _function(density: Density, n_rows: int) -> Callable[..., list[np.ndarray]]:
    """Row terms of so many rows, as a function of all inputs."""
    blocks = {
        row.block: pt.TensorType(row.block.type.dtype, (n_rows, *row.block.type.shape[1:]))(
            row.block.name
        )
        for row in density.rows
    }
    terms = rebuilt(density.row_terms, blocks)
    inputs = [*density.coordinates, *density.others.values(), *density.arrays, *blocks.values()]
    return function_as_written(inputs, [pt.sum(term) for term in terms])


def _message(name: str, containers: Sequence[str], description: str) -> str:
    parts = f"two parts {description}" if description else "two parts of the rows"
    return see(
        f"the log-density of {name!r} is no sum over the rows of {containers}: that of {parts} "
        "together is not that of one plus that of the other, so that minibatches, scaled by N/n, "
        "estimate another log-density than that of all rows. Give each row a term of its own, "
        "without a mean over rows, a prior, or terms that join rows such as those of a time series "
        "or of a group; compute statistics of groups before and pass them as data; or use all "
        "rows, without minibatch=",
        "no-sum-over-rows",
    )


def _beyond_rows(containers: Sequence[str], error: IndexError) -> str:
    return see(
        f"an index in the model points beyond the rows of {containers} that a minibatch has "
        f"({error}). A table that rows point into, such as numbers of groups, has no row for each "
        "observation: leave it out of minibatch=, and name the container of the indices. Else, an "
        "index may be larger than the array it points into",
        "no-sum-over-rows",
    )


def _place(
    variables: Sequence[ManifoldVariable],
    point: Mapping[str, np.ndarray],
    spread: float,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Coordinates of a random place."""
    coordinates = []
    for variable in variables:
        if variable.manifold.is_flat:
            value = np.asarray(point[variable.value_name], dtype=float)
            place = value + spread * rng.standard_normal(value.shape)
        else:
            value = variable.manifold.random_point(rng, variable.rows)
            place = variable.manifold.to_coordinates(value)
        coordinates.append(np.reshape(place, variable.shape))
    return coordinates


def averaged_terms(
    model: Model, variables: Sequence[ManifoldVariable], density: Density, source: RowSource
) -> list[bool]:
    """Say which row terms divide by the number of rows they are given.

    A ``total_size`` makes the sum over rows stand for all of them, N times their mean: whether the
    number of rows is that of the minibatch or that of the rows at hand depends on how the model
    was written. It is seen where a term is furthest from zero, which a hinge without a margin is at
    the initial point and which doubles to zero.

    Returns
    -------
    list of bool
        One for each of ``density.row_terms``.
    """
    if not any(density.row_scaled):
        return [False] * len(density.row_terms)
    rows, whole = source.example_rows(_ROWS)
    point = model.initial_point(random_seed=0)
    fixed = [np.asarray(point[name], v.type.dtype) for name, v in density.others.items()]
    for copy, holder in density.arrays.items():
        array = source.whole_array(whole.get(copy.name, holder))
        fixed.append(array.astype(copy.type.dtype, copy=False))
    functions = [_function(density, repeats * _ROWS) for repeats in (1, 2)]
    largest, same = np.zeros(len(density.row_terms)), np.zeros(len(density.row_terms), dtype=bool)
    rng = np.random.default_rng(1)
    for spread in (0.0, *_SPREADS):
        place = _place(variables, point, spread, rng)
        values = []
        try:
            for repeats, function in enumerate(functions, start=1):
                blocks = [
                    np.concatenate([rows[row.name]] * repeats).astype(row.block.type.dtype)
                    for row in density.rows
                ]
                with np.errstate(all="ignore"):
                    values.append(np.array(function(*place, *fixed, *blocks)))
        except _NO_VALUE:
            continue
        with np.errstate(invalid="ignore"):  # of rows that are impossible
            once, twice = values
            size = np.where(np.isfinite(once) & np.isfinite(twice), np.abs(once), 0.0)
            stays = np.abs(twice - once) < np.abs(twice - 2.0 * once)
        same = np.where(size > largest, stays, same)
        largest = np.maximum(size, largest)
    scaled = density.row_scaled * (len(density.row_terms) // len(density.row_scaled))
    return [bool(flag and average) for flag, average in zip(scaled, same, strict=True)]


# --- local ---------------------------------------------------------------------------------------

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
