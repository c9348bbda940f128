"""Detection of sums that are constant on a simplex.

The values of a sum at several points of the simplex are compared. All other quantities that may
change (rows of a minibatch, data containers, variables of other steps, and functions of them) are
replaced in the graph by random values; a sum that is constant for these is constant for all values.
The data are not used, since rows of a minibatch may contain zeros that other rows do not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytensor
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import BaseSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.graphs import rebuild_graphs


@dataclass(frozen=True)
class ConstantSumSettings:
    """Constants of the comparison.

    Attributes
    ----------
    n_values : int
        Number of sets of random values for all quantities that are not on a simplex.
    n_points : int
        Number of points of the simplex for each set.
    relative_tolerance : float
        Maximum relative difference of two sums that is attributed to rounding.
    largest_integer : int
        Upper bound on random integers that are not used as indices.
    """

    n_values: int = 6
    n_points: int = 3
    relative_tolerance: float = 1e-9
    largest_integer: int = 100


SETTINGS = ConstantSumSettings()


def constant_sums(
    terms: Sequence[TensorVariable],
    simplices: Sequence[TensorVariable],
    own: TensorVariable,
    examples: Mapping[TensorVariable, np.ndarray],
    fixed: Collection[Variable] = (),
) -> list[Variable]:
    """Find sums that depend on the elements of a simplex variable but are constant on the simplex.

    Parameters
    ----------
    terms : sequence of TensorVariable
        Graphs to search. The terms themselves are not returned.
    simplices : sequence of TensorVariable
        All variables with rows on simplices, with known shapes.
    own : TensorVariable
        The variable for which sums are searched.
    examples : mapping
        A value for every input of the graphs; only its shape is used.
    fixed : collection of Variable
        Inputs that never change.

    Returns
    -------
    list of Variable
        Outputs of sums, without sums that are zero.
    """
    nodes = list(io_toposort([], terms))
    depend_on_own = _depending_on([own], nodes)
    depend_on_any = _depending_on(simplices, nodes)
    never_change = {*fixed}
    found = []
    for node in nodes:
        total = node.outputs[0]
        if isinstance(node.op, Sum) and total in depend_on_own and total not in terms:
            subgraph = _Subgraph(total, depend_on_any, never_change)
            if subgraph.is_constant(own, simplices, examples):
                found.append(total)
    return found


def _depending_on(variables: Sequence[Variable], nodes: Sequence[Apply]) -> set[Variable]:
    found = set(variables)
    for node in nodes:
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


class _Subgraph:
    """Subgraph between simplex variables and a sum.

    Parameters
    ----------
    total : Variable
        The sum.
    dependent : set of Variable
        All variables that depend on a simplex variable.
    fixed : set of Variable
        Inputs that never change.
    """

    def __init__(self, total: Variable, dependent: set[Variable], fixed: set[Variable]) -> None:
        nodes = [n for n in io_toposort([], [total]) if not dependent.isdisjoint(n.outputs)]
        self._total = total
        constants = _constant_variables([total], fixed)
        inputs = [
            each
            for node in nodes
            for each in node.inputs
            if each not in dependent and each not in constants
        ]
        self._replaced = list(dict.fromkeys(i for i in inputs if hasattr(i.type, "dtype")))
        replaced = set(self._replaced)
        self._has_other_inputs = any(each not in replaced for each in inputs)
        # Lengths of the axes that are indexed by a replaced variable.
        self._axis_lengths: dict[Variable, set[int]] = {}
        for node in nodes:
            if not isinstance(node.op, BaseSubtensor):
                continue
            for index in node.inputs[1:]:
                if index in replaced:
                    lengths = {n for n in node.inputs[0].type.shape if n is not None}
                    self._axis_lengths.setdefault(index, set()).update(lengths)

    def is_constant(
        self,
        own: TensorVariable,
        simplices: Sequence[TensorVariable],
        examples: Mapping[TensorVariable, np.ndarray],
    ) -> bool:
        """Whether the sum is the same at all values of ``own``, and not zero."""
        if self._has_other_inputs or not all(self._axis_lengths.values()):
            return False
        shapes = _shapes_of(self._replaced, examples)
        inputs = [each.type() for each in self._replaced]
        (total,) = rebuild_graphs([self._total], dict(zip(self._replaced, inputs, strict=True)))
        others = [each for each in examples if each not in simplices]
        mode = pytensor.compile.mode.get_mode("FAST_COMPILE")
        function = pytensor.function(
            [*simplices, *others, *inputs],
            total,
            mode=mode.including("local_remove_check_parameter"),
            on_unused_input="ignore",
        )
        rng = np.random.default_rng(1)

        def points() -> list[np.ndarray]:
            return [_simplex_point(rng, examples[each].shape) for each in simplices]

        position = list(simplices).index(own)
        other_values = [examples[each] for each in others]
        bounds = sorted(set().union(*self._axis_lengths.values()), reverse=True) or [1]
        for bound in bounds:
            size = min((int(np.prod(shape)) for shape in shapes), default=1) or 1
            n_values = max(SETTINGS.n_values, -(-bound // size) if self._axis_lengths else 0)
            try:
                for i in range(n_values):
                    values = [
                        _random_values(rng, each, shape, i, bound * (each in self._axis_lengths))
                        for each, shape in zip(self._replaced, shapes, strict=True)
                    ]
                    arguments = points()
                    results = []
                    for _ in range(SETTINGS.n_points):
                        arguments[position] = points()[position]
                        results.append(np.asarray(function(*arguments, *other_values, *values)))
                    if not _are_equal(results):
                        return False
                return True
            except IndexError:  # an indexed axis is shorter: try the next bound
                continue
            except ValueError:  # a parameter check failed
                return False
        return False


def _constant_variables(graphs: Sequence[Variable], fixed: set[Variable]) -> set[Variable]:
    """Find variables of graphs that are computed from constants and shapes only."""
    found = set(fixed)
    found.update(each for each in ancestors(graphs) if isinstance(each, Constant))
    for node in io_toposort([], graphs):
        is_shape = isinstance(node.op, Shape | Shape_i)
        if is_shape or all(each in found for each in node.inputs):
            found.update(node.outputs)
    return found


def _shapes_of(
    variables: Sequence[Variable], examples: Mapping[TensorVariable, np.ndarray]
) -> list[tuple[int, ...]]:
    unknown = [each for each in variables if None in each.type.shape]
    found: dict[Variable, tuple[int, ...]] = {}
    if unknown:
        shapes = pytensor.function(
            list(examples),
            [each.shape for each in unknown],
            mode="FAST_COMPILE",
            on_unused_input="ignore",
        )(*examples.values())
        found = {
            each: tuple(int(n) for n in shape) for each, shape in zip(unknown, shapes, strict=True)
        }
    return [found.get(each, each.type.shape) for each in variables]


def _simplex_point(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    weights = rng.gamma(0.5, size=shape) + 1e-3
    return weights / weights.sum(axis=-1, keepdims=True)


def _random_values(
    rng: np.random.Generator,
    like: Variable,
    shape: tuple[int, ...],
    number: int,
    bound: int,
) -> np.ndarray:
    """Draw nonzero values, with both signs in every second set; indices enumerate all values."""
    kind = np.dtype(like.type.dtype).kind
    if kind == "b":
        draws = np.full(shape, number == 0) if number < 2 else rng.random(shape) < 0.5
    elif kind in "iu" and not bound:
        draws = rng.integers(1, SETTINGS.largest_integer, shape)
    elif kind in "iu":
        # The largest index comes first, so that indices out of bounds are detected.
        size = int(np.prod(shape))
        draws = (bound - 1 - number * size - np.arange(size)).reshape(shape) % bound
    else:
        draws = rng.gamma(0.5, size=shape) + 0.1
        if number % 2:
            draws = np.where(rng.random(shape) < 0.5, -draws, draws)
    return np.asarray(draws, dtype=like.type.dtype)


def _are_equal(results: Sequence[np.ndarray]) -> bool:
    first = results[0]
    return bool(np.any(first)) and all(
        np.allclose(each, first, rtol=SETTINGS.relative_tolerance, atol=0.0) for each in results[1:]
    )
