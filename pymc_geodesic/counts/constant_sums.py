"""Sums that are the same number wherever on a simplex a variable lies.

Such a sum is told by its values. What does not depend on a simplex and may ever change (rows of
a minibatch, data containers, variables of other steps, and all that is computed from them) is
cut out of the graph, and takes random values there: what is the same number for whatever values,
is so for those that it will have. Data themselves would not do, the rows of a minibatch least of
all, for they may be zero where others are not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pytensor
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import BaseSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.log_density import rebuilt

__all__ = ["constant_sums"]

_SETTINGS = 6
_PLACES = 3
_SAME = 1e-9
_LARGEST_NUMBER = 100
"""Whole numbers below it stand for those that index nothing."""


def constant_sums(
    terms: Sequence[TensorVariable],
    simplices: Sequence[TensorVariable],
    own: TensorVariable,
    examples: Mapping[TensorVariable, np.ndarray],
    fixed: Collection[Variable] = (),
) -> list[Variable]:
    """Find the sums that depend on a simplex but not on the place on it.

    Parameters
    ----------
    terms : list of TensorVariable
        Graphs to look through; they themselves are left out.
    simplices : list of TensorVariable
        Rows on simplices, each of a known shape. All lie on them.
    own : TensorVariable
        The one of them that is looked at.
    examples : mapping
        One value for every input of the graphs. Only shapes are taken from it.
    fixed : collection of Variable
        Inputs that never change.

    Returns
    -------
    list of Variable
        Outputs of sums; a sum that is zero is none of them.
    """
    every = list(io_toposort([], terms))
    above_own = _depending_on([own], every)
    above_any = _depending_on(simplices, every)
    never = {*fixed}
    found = []
    for node in every:
        total = node.outputs[0]
        if isinstance(node.op, Sum) and total in above_own and total not in terms:
            part = _Part(total, above_any, never)
            if part.is_constant(own, simplices, examples):
                found.append(total)
    return found


def _depending_on(variables: Sequence[Variable], nodes: Sequence) -> set[Variable]:
    found = set(variables)
    for node in nodes:
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


class _Part:
    """The part of a graph between simplices and a sum.

    Parameters
    ----------
    total : Variable
    moving : set of Variable
        All that depends on a simplex.
    fixed : set of Variable
        Inputs that never change.
    """

    def __init__(self, total: Variable, moving: set[Variable], fixed: set[Variable]) -> None:
        nodes = [n for n in io_toposort([], [total]) if not moving.isdisjoint(n.outputs)]
        self._total = total
        steady = _steady([total], fixed)
        cut = dict.fromkeys(
            each
            for node in nodes
            for each in node.inputs
            if each not in moving and each not in steady and hasattr(each.type, "dtype")
        )
        self._cut = list(cut)
        self._lengths: dict[Variable, set[int]] = {}
        for node in nodes:
            if not isinstance(node.op, BaseSubtensor):
                continue
            for index in node.inputs[1:]:
                if index in cut:
                    lengths = {n for n in node.inputs[0].type.shape if n is not None}
                    self._lengths.setdefault(index, set()).update(lengths)
        self._without_value = [
            each
            for node in nodes
            for each in node.inputs
            if each not in moving and each not in steady and each not in cut
        ]

    def is_constant(
        self,
        own: TensorVariable,
        simplices: Sequence[TensorVariable],
        examples: Mapping[TensorVariable, np.ndarray],
    ) -> bool:
        """Whether the sum is the same for all places of ``own``, and not zero."""
        if self._without_value or not all(self._lengths.values()):
            return False
        shapes = _shapes_of(self._cut, examples)
        holes = [each.type() for each in self._cut]
        (total,) = rebuilt([self._total], dict(zip(self._cut, holes, strict=True)))
        steady = [each for each in examples if each not in simplices]
        mode = pytensor.compile.mode.get_mode("FAST_COMPILE")
        function = pytensor.function(
            [*simplices, *steady, *holes],
            total,
            mode=mode.including("local_remove_check_parameter"),
            on_unused_input="ignore",
        )
        rng = np.random.default_rng(1)

        def places() -> list[np.ndarray]:
            return [_place(rng, examples[each].shape) for each in simplices]

        position = list(simplices).index(own)
        values = [examples[each] for each in steady]
        bounds = sorted(set().union(*self._lengths.values()), reverse=True) or [1]
        for bound in bounds:
            size = min((int(np.prod(shape)) for shape in shapes), default=1) or 1
            settings = max(_SETTINGS, -(-bound // size) if self._lengths else 0)
            try:
                for setting in range(settings):
                    filled = [
                        _filling(rng, each, shape, setting, bound * (each in self._lengths))
                        for each, shape in zip(self._cut, shapes, strict=True)
                    ]
                    arguments = places()
                    results = []
                    for _ in range(_PLACES):
                        arguments[position] = places()[position]
                        results.append(np.asarray(function(*arguments, *values, *filled)))
                    if not _same(results):
                        return False
                return True
            except IndexError:  # there is a shorter axis
                continue
            except ValueError:  # of a check of parameters
                return False
        return False


def _steady(graphs: Sequence[Variable], fixed: set[Variable]) -> set[Variable]:
    """Variables of graphs that are made of constants and shapes alone."""
    steady = set(fixed)
    steady.update(each for each in ancestors(graphs) if isinstance(each, Constant))
    for node in io_toposort([], graphs):
        of_shape = isinstance(node.op, Shape | Shape_i)
        if of_shape or all(each in steady for each in node.inputs):
            steady.update(node.outputs)
    return steady


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


def _place(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    weights = rng.gamma(0.5, size=shape) + 1e-3
    return weights / weights.sum(axis=-1, keepdims=True)


def _filling(
    rng: np.random.Generator,
    like: Variable,
    shape: tuple[int, ...],
    setting: int,
    bound: int,
) -> np.ndarray:
    """Random numbers that are not zero, of both signs every other time; indices run through."""
    kind = np.dtype(like.type.dtype).kind
    if kind == "b":
        draws = np.full(shape, setting == 0) if setting < 2 else rng.random(shape) < 0.5
    elif kind in "iu" and not bound:
        draws = rng.integers(1, _LARGEST_NUMBER, shape)
    elif kind in "iu":
        # The largest index comes first, so that one that is too large is noticed.
        size = int(np.prod(shape))
        draws = (bound - 1 - setting * size - np.arange(size)).reshape(shape) % bound
    else:
        draws = rng.gamma(0.5, size=shape) + 0.1
        if setting % 2:
            draws = np.where(rng.random(shape) < 0.5, -draws, draws)
    return np.asarray(draws, dtype=like.type.dtype)


def _same(results: Sequence[np.ndarray]) -> bool:
    first = results[0]
    return bool(np.any(first)) and all(
        np.allclose(each, first, rtol=_SAME, atol=0.0) for each in results[1:]
    )
