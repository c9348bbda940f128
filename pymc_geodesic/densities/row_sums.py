"""Whether a log-density is a sum over the rows of the data, as minibatches take it to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import numpy as np
import pytensor.tensor as pt
from pymc.model import Model

from pymc_geodesic.densities.interpreted import function_as_written
from pymc_geodesic.densities.log_density import Density, rebuilt
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.source import RowSource

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
