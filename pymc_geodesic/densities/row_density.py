"""Log-density of a model as a sum over rows, with checks of additivity over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import batched, chain, count

import numpy as np
import pytensor.tensor as pt
from pymc.model import Model
from pymc.pytensorf import compile as pymc_compile
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.graphs import rebuild_graphs, unoptimized_function
from pymc_geodesic.densities.log_density import Density, build_density
from pymc_geodesic.densities.row_dependence import IndexCheck, warn_about_wrong_total_size
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.source import RowSource


class RowDensity:
    """Log-density of a model for blocks of rows.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Variables of the gradient, which have kernel coordinates.
    source : RowSource
        Source of the rows.
    total_size : int, optional
        N, if it is not the number of rows of the source.
    without : sequence of TensorVariable
        Random variables whose own terms are omitted.
    rewrite : callable, optional
        Function that modifies each log-density in place.

    Attributes
    ----------
    total_size : int
        N, the number of rows that minibatches represent.
    minibatch : Density
        Log-density of the rows of a minibatch.

    Raises
    ------
    ValueError
        If the log-density is not a sum over rows, if data without a minibatch have as many rows as
        a minibatch, or if an index is out of bounds.
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
            _check_placeholders(model, self.minibatch, source)
            warn_about_wrong_total_size(model, source, total_size)
            n_rows = _unambiguous_size(self.minibatch, {row.block.type.shape[0] for row in rows})
            density = self.minibatch if n_rows is None else self.of_rows(n_rows)
            check_row_sums(model, self.variables, density, source)

    def of_rows(
        self, n_rows: int | None = None, *, arrays: Mapping[str, np.ndarray] | None = None
    ) -> Density:
        """Build the log-density for a number of rows.

        Parameters
        ----------
        n_rows : int, optional
            Number of rows; that of a minibatch by default.
        arrays : mapping of str to ndarray, optional
            Rows of named containers, instead of those of the source.
        """
        inputs = self.source.row_inputs(n_rows)
        if arrays is not None and inputs.arrays:
            inputs = replace(inputs, arrays=arrays)
        density = build_density(self.model, self.variables, inputs, without=self._without)
        if self._rewrite is not None:
            self._rewrite(density)
        return density

    def check_data(self) -> None:
        """Check the bounds of indices in memory; see `IndexCheck`."""
        self._indices.check()

    def levels(
        self, rows: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
        """Compute the indices of rows into arrays; see `IndexCheck.levels`."""
        return self._indices.levels(rows)


def _unambiguous_size(density: Density, block_sizes: set[int | None]) -> int | None:
    """Choose a number of rows that differs from the lengths of all other data.

    A block of one row broadcasts against any number of rows, and a block with as many rows as an
    array without a minibatch is combined with it elementwise, although the rows differ. With
    another number of rows both raise errors. Return None if the blocks have such a number of rows.
    """
    blocks = {row.block for row in density.rows}
    others = [each for each in graph_inputs(density.row_graphs) if each not in blocks]
    taken = {length for each in others for length in getattr(each.type, "shape", ())}
    if block_sizes.isdisjoint(taken | {1}):
        return None
    return next(n for n in count(2) if n not in taken)


def _check_placeholders(model: Model, density: Density, source: RowSource) -> None:
    """Raise ValueError for a container of one row, a placeholder, that ``minibatch=`` omits."""
    rows = [found for name in source.names if (found := model.named_vars.get(name)) is not None]
    lengths = {found.get_value(borrow=True).shape[:1] for found in rows}
    if source.batch_size == 1 or lengths != {(1,)}:
        return
    inputs = set(graph_inputs(density.row_graphs))
    for copy, holder in density.arrays.items():
        if holder in model.data_vars and copy.type.shape[:1] == (1,) and copy in inputs:
            message = (
                f"{copy.name!r} has one row, like the placeholders of minibatch="
                f"{list(source.names)}, and would be broadcast to all rows of a block. Name it in "
                "minibatch= too, or make it a scalar if it is the same for all rows"
            )
            raise ValueError(see(message, "minibatch"))


# --- sums over rows -----------------------------------------------------------------------------

_ROWS = 24
"""Number of rows of each of the two parts that are compared with their union."""

_POINT_SDS = (0.5, 0.05, 0.005)
"""Standard deviations of random points around the initial point, in PyMC's values; the next one is
used if the log-density is not finite."""

_TOLERANCE = {"float64": 2e-9, "float32": 2e-3}

_NO_VALUE = (ArithmeticError, AssertionError, IndexError, TypeError, ValueError)
"""Errors of evaluations of a log-density with invalid parameters."""


def check_row_sums(
    model: Model, variables: Sequence[ManifoldVariable], density: Density, source: RowSource
) -> None:
    r"""Check that a log-density is a sum over rows.

    Minibatches represent all rows if the log-density is f(rows) = Σ_i f_i, up to a constant. Then
    for any two parts A and B of the rows and any two points x and x' of the variables
    D(A ∪ B) = D(A) + D(B), where D = f(·; x') − f(·; x). This fails for a mean over rows, a prior
    in the same term, or dependent rows, as in a time series.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
    density : Density
        Log-density for any number of rows.
    source : RowSource
        Source of the rows.

    Raises
    ------
    ValueError
        If a term is not a sum over rows; the message names it.
    """
    # models that reshape rows into groups, such as reshape((-1, 5)), need a multiple of the size
    for n_rows in dict.fromkeys((_ROWS, source.batch_size)):
        if _check_parts(model, variables, density, source, n_rows):
            return


def _splits(n_rows: int) -> tuple[tuple[slice, slice], ...]:
    """List two splits into parts of ``n_rows`` rows: alternating rows, and the two halves.

    A term that depends on the positions of rows in a minibatch, such as ``reshape((n_groups, -1))``
    of rows that are sorted by group, may be additive for only one of the two splits.
    """
    alternating = slice(0, None, 2), slice(1, None, 2)
    return alternating, (slice(n_rows), slice(n_rows, None))


class _RowTerms:
    """Row terms of a log-density as a function of a point and rows.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
    density : Density
    source : RowSource
    examples : mapping of str to ndarray
        Arrays that are indexed by the example rows.
    sizes : iterable of int
        Numbers of rows for which the terms can be evaluated.
    """

    def __init__(
        self,
        model: Model,
        variables: Sequence[ManifoldVariable],
        density: Density,
        source: RowSource,
        examples: Mapping[str, np.ndarray],
        sizes: Sequence[int],
    ) -> None:
        self._variables, self._density = variables, density
        self._point = model.initial_point(random_seed=0)
        self._functions = {n: self._function(n) for n in sizes}
        self._fixed = [
            np.asarray(self._point[name], v.type.dtype) for name, v in density.others.items()
        ]
        for copy, holder in density.arrays.items():
            array = source.whole_array(examples.get(copy.name, holder))
            self._fixed.append(array.astype(copy.type.dtype, copy=False))

    def _function(self, n_rows: int) -> Callable[..., list[np.ndarray]]:
        density = self._density
        blocks = {row.block: row.resized(n_rows) for row in density.rows}
        graphs = rebuild_graphs(density.row_graphs, blocks)
        inputs = [*density.coordinates, *density.others.values(), *density.arrays, *blocks.values()]
        return unoptimized_function(inputs, [pt.sum(graph) for graph in graphs])

    def random_point(self, sd: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw coordinates around the initial point; uniformly on compact manifolds."""
        coordinates = []
        for variable in self._variables:
            if variable.manifold.is_flat:
                value = np.asarray(self._point[variable.value.name], dtype=float)
                drawn = value + sd * rng.standard_normal(value.shape)
            else:
                value = variable.manifold.random_point(rng, variable.rows)
                drawn = variable.manifold.to_coordinates(value)
            coordinates.append(np.reshape(drawn, variable.shape))
        return coordinates

    def __call__(self, point: list[np.ndarray], rows: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the value of each term, shape (n_terms,)."""
        blocks = [rows[r.name].astype(r.block.type.dtype) for r in self._density.rows]
        with np.errstate(all="ignore"):
            return np.array(self._functions[len(blocks[0])](*point, *self._fixed, *blocks))


def _check_parts(
    model: Model,
    variables: Sequence[ManifoldVariable],
    density: Density,
    source: RowSource,
    n_rows: int,
) -> bool:
    """Check additivity for parts of ``n_rows`` rows; return whether it could be evaluated."""
    random_rows, whole = source.example_rows(2 * n_rows)
    try:
        terms = _RowTerms(model, variables, density, source, whole, (n_rows, 2 * n_rows))
    except _NO_VALUE:
        return False
    has_value = False
    for description, rows in chain([("", random_rows)], source.related_examples(2 * n_rows)):
        slices = [slice(None), *chain.from_iterable(_splits(n_rows))]
        parts = [{name: array[part] for name, array in rows.items()} for part in slices]
        for sd in _POINT_SDS:
            rng = np.random.default_rng(1)
            points = [terms.random_point(sd, rng) for _ in range(2)]
            try:
                values = np.array([[terms(point, part) for point in points] for part in parts])
            except IndexError as error:
                containers = [row.name for row in density.rows]
                raise ValueError(_index_beyond_rows(containers, error)) from error
            except _NO_VALUE:
                continue
            has_value = True
            if _is_additive(values, description, density):
                break
        if not has_value:
            return False
    return has_value


def _is_additive(values: np.ndarray, description: str, density: Density) -> bool:
    """Compare the values of terms for two parts of the rows with the values for their union.

    Parameters
    ----------
    values : ndarray, shape (1 + 2 n_splits, 2, n_terms)
        Values of the row terms for all rows, and for the two parts of each split, at two points.
    description : str
        Property that the rows have in common, for the error message.
    density : Density

    Returns
    -------
    bool
        False if the values of a term are not finite, so that other points are needed.

    Raises
    ------
    ValueError
        If the values of a term are not additive.
    """
    with np.errstate(invalid="ignore"):  # for rows with zero density at both points
        both, *parts = values[:, 1] - values[:, 0]
        sums = np.array([first + second for first, second in batched(parts, 2)])
    tolerance = _TOLERANCE[str(values.dtype)] * np.abs(values[:3]).sum(axis=(0, 1))
    for i, term in enumerate(density.row_terms):
        if not np.isfinite(both[i]):
            continue
        errors = [np.abs(both[i] - sums[:, i]).max()]
        if term.is_scaled:  # the factor N/n is half as large for the union
            errors.append(np.abs(2.0 * both[i] - sums[:, i]).max())
        if not any(error <= tolerance[i] for error in errors):
            raise ValueError(_not_a_sum(term.name, [row.name for row in density.rows], description))
    return bool(np.isfinite(both).all())


def _not_a_sum(name: str, containers: Sequence[str], description: str) -> str:
    parts = f"two parts {description}" if description else "two parts of the rows"
    return see(
        f"the log-density of {name!r} is not a sum over the rows of {containers}: its value for "
        f"{parts} together is not the sum of the two values, so that minibatches, scaled by N/n, "
        "give a biased estimate of the log-density of all rows. Write one term for each row, "
        "without a mean over rows, a prior, or terms that combine rows, such as those of a time "
        "series or a group. Compute statistics of groups outside the model and pass them as data, "
        "or use all rows, without minibatch=",
        "no-sum-over-rows",
    )


def _index_beyond_rows(containers: Sequence[str], error: IndexError) -> str:
    return see(
        f"an index in the model exceeds the number of rows of {containers} in a minibatch "
        f"({error}). An array that is indexed by the rows, such as group effects, does not have a "
        "row for each observation: remove it from minibatch=, and name the container of the "
        "indices. Otherwise check that all indices are within the bounds of the indexed arrays",
        "no-sum-over-rows",
    )


def find_averaging_terms(
    model: Model, variables: Sequence[ManifoldVariable], density: Density, source: RowSource
) -> list[bool]:
    """Find row terms that PyMC divides by the number of rows of the evaluated block.

    With ``total_size`` PyMC multiplies the sum over rows by N/n. Whether n is the size of a
    minibatch or of the block depends on the model code. This is determined at the point where a
    term is largest, since a term can be zero at the initial point.

    Returns
    -------
    list of bool
        One value for each of ``density.row_terms``.
    """
    n_terms = len(density.row_terms)
    if not any(term.is_scaled for term in density.row_terms):
        return [False] * n_terms
    rows, whole = source.example_rows(_ROWS)
    terms = _RowTerms(model, variables, density, source, whole, (_ROWS, 2 * _ROWS))
    repeated = {name: np.concatenate([array, array]) for name, array in rows.items()}
    largest, is_average = np.zeros(n_terms), np.zeros(n_terms, dtype=bool)
    rng = np.random.default_rng(1)
    for sd in (0.0, *_POINT_SDS):
        point = terms.random_point(sd, rng)
        try:
            once, twice = terms(point, rows), terms(point, repeated)
        except _NO_VALUE:
            continue
        with np.errstate(invalid="ignore"):  # for rows with zero density
            size = np.where(np.isfinite(once) & np.isfinite(twice), np.abs(once), 0.0)
            is_constant = np.abs(twice - once) < np.abs(twice - 2.0 * once)
        is_average = np.where(size > largest, is_constant, is_average)
        largest = np.maximum(size, largest)
    return [
        bool(term.is_scaled and average)
        for term, average in zip(density.row_terms, is_average, strict=True)
    ]


# --- independent rows, for local variables ------------------------------------------------------

_INDEPENDENT_ROWS = 3
"""Number of rows for which independence is checked."""


def check_independent_rows(
    model: Model, density: Density, variables: Sequence[ManifoldVariable], source: RowSource
) -> None:
    """Check at random values that rows are independent given the global variables.

    A term with local variables must have one or several values for each row, which do not depend on
    other rows. Other terms may be sums over rows.

    Parameters
    ----------
    model : pymc.Model
    density : Density
        Log-density for any number of rows.
    variables : list of ManifoldVariable
        Variables of its coordinates.
    source : RowSource
        Minibatches of the data.

    Raises
    ------
    ValueError
        If rows are dependent; the message names the variable or potential.
    """
    n = min(_INDEPENDENT_ROWS, source.n_rows)
    cut = (n + 1) // 2
    parts = _values_of_rows(
        model, density, variables, source, [slice(n), slice(cut), slice(cut, n)]
    )
    local = {c for c in density.coordinates if c.type.shape[:1] == (None,)}
    for term, whole, first, last in zip(density.row_terms, *parts, strict=True):
        if local.isdisjoint(ancestors([term.graph])):
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
                f"log-density of {term.name!r} does not have one value per row. Use its first axis "
                "for rows (do not sum a Potential over them), or sample the local variables "
                "together with the others, without local="
            )
            raise ValueError(see(message, "local"))


def _values_of_rows(
    model: Model,
    density: Density,
    variables: Sequence[ManifoldVariable],
    source: RowSource,
    parts: Sequence[slice],
) -> list[list[np.ndarray]]:
    """Evaluate the row terms at random values, for parts of the rows of which the first has all.

    Raises
    ------
    ValueError
        If the log-density cannot be evaluated for these rows.
    """
    function = pymc_compile(
        [*density.coordinates, *density.inputs],
        density.row_graphs,
        mode="FAST_COMPILE",
        on_unused_input="ignore",
        trust_input=True,
    )
    values = _random_inputs(model, density, variables, source, parts[0].stop)

    def terms_of(rows: slice) -> list[np.ndarray]:
        inputs = [np.ascontiguousarray(v[rows]) if has_rows else v for v, has_rows in values]
        return [np.asarray(term) for term in function(*inputs)]

    try:
        with np.errstate(all="ignore"):
            return [terms_of(rows) for rows in parts]
    except (ValueError, TypeError, IndexError, AssertionError) as error:
        message = (
            f"local= needs a model that can be evaluated for a subset of its rows ({error}). Name "
            "every container with a row per observation in minibatch=, every variable with a row "
            "per observation in local=, and use containers for observed values"
        )
        raise ValueError(see(message, "local")) from error


def _random_inputs(
    model: Model,
    density: Density,
    variables: Sequence[ManifoldVariable],
    source: RowSource,
    n_rows: int,
) -> list[tuple[np.ndarray, bool]]:
    """Draw values of the coordinates and inputs of a log-density.

    Each is paired with whether its first axis is that of the rows.
    """
    rng = np.random.default_rng(0)
    values: list[tuple[np.ndarray, bool]] = []
    for variable, coordinate in zip(variables, density.coordinates, strict=True):
        has_rows = coordinate.type.shape[:1] == (None,)
        shape = (n_rows, *coordinate.type.shape[1:]) if has_rows else coordinate.type.shape
        n_points = int(np.prod(shape, dtype=int)) // variable.manifold.size
        drawn = variable.manifold.to_coordinates(variable.manifold.random_point(rng, n_points))
        values.append((drawn.reshape(shape), has_rows))
    start = model.initial_point(random_seed=0)
    for name in density.others:
        value = np.asarray(start[name])
        if value.dtype.kind == "f":  # not zero, since different terms may be equal there
            value = (value + 0.1 * rng.standard_normal(value.shape)).astype(value.dtype)
        values.append((value, False))
    values += [(source.whole_array(holder), False) for holder in density.arrays.values()]
    for row in density.rows:  # rows with replacement have not been drawn yet
        data = model[row.name].get_value(borrow=True) if source.with_replacement else row.data
        values.append((data[:n_rows], True))
    return values
