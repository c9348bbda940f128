"""Graphs of rows that take entries of a variable by an index, such as ``effect[group]``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs, io_toposort
from pytensor.scalar.basic import Mul
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.graphs import rebuild_graphs


class NotByIndexError(Exception):
    """An effect enters the rows in another way than by an index."""


@dataclass(eq=False)
class Gathered:
    """Entries of an effect that the rows of a term take.

    Attributes
    ----------
    effect : int
        Position of the variable among the effects.
    index : TensorVariable
        Integer vector, one entry of the first axis of the variable for each row.
    columns : list of TensorVariable
        Placeholder for each column of the entries, of one value per row.
    entries : TensorVariable
        The columns joined, in the coordinates of the model.
    """

    effect: int
    index: TensorVariable
    columns: list[TensorVariable]
    entries: TensorVariable


class RowsByIndex:
    """Graphs of terms in which `Gathered` replaces ``effect[index]``.

    An index is moved through elementwise functions to the effects: (μ + σ x)[i] = μ + σ x[i].

    Parameters
    ----------
    effects : list of TensorVariable
        Value variables.
    """

    def __init__(self, effects: Sequence[TensorVariable]) -> None:
        self._effects = list(effects)
        self._every: dict[int, Variable] = {}
        self.gathered: dict[tuple[int, Variable], Gathered] = {}
        self._moved: dict[tuple[Variable, Variable], Variable] = {}

    def replace(self, graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Replace entries of effects in elementwise log-densities of rows.

        Raises
        ------
        NotByIndexError
            If another use of an effect remains.
        """
        replacements: dict[Variable, Variable] = {}
        for node in io_toposort([], graphs):
            if _is_index(node) and self._uses_effects(node.inputs[0]):
                source, index, *column = node.inputs
                entries = self._entries(source, index)
                replacements[node.outputs[0]] = entries[:, *column] if column else entries
        for rows in {graph.type.shape[0] for graph in graphs if graph.type.ndim}:
            for effect in self._effects:  # one row for each entry
                if effect.type.shape[:1] == (rows,) and rows != 1:
                    replacements.setdefault(effect, self.every(effect))
        replaced = rebuild_graphs(graphs, replacements)
        left = set(self._effects).intersection(graph_inputs(replaced))
        if left:
            raise NotByIndexError(*left)
        return replaced

    def gathered_in(self, graph: TensorVariable) -> list[Gathered]:
        """Entries that a graph of `replace` takes."""
        inputs = set(graph_inputs([graph]))
        return [each for each in self.gathered.values() if not inputs.isdisjoint(each.columns)]

    def every(self, effect: Variable) -> Variable:
        """Entries of an effect whose groups are the rows, ``effect[:]``."""
        rows = effect.type.shape[0]
        index = self._every.setdefault(rows, pt.arange(rows))
        return self._entries(effect, index)

    def _uses_effects(self, graph: Variable) -> bool:
        return not set(self._effects).isdisjoint(ancestors([graph]))

    def _entries(self, graph: Variable, index: Variable) -> Variable:
        """Graph of ``graph[index]``, with the index moved to the effects."""
        key = graph, index
        if key not in self._moved:
            self._moved[key] = self._moved_index(graph, index)
        return self._moved[key]

    def _moved_index(self, graph: Variable, index: Variable) -> Variable:
        if not self._uses_effects(graph):
            return graph if graph.type.shape[:1] == (1,) else graph[index]
        if graph in self._effects:
            return self._placeholder(graph, index).entries
        node = graph.owner
        assert node is not None
        if isinstance(node.op, Elemwise):
            return node.op(*(self._entries(each, index) for each in node.inputs))
        if isinstance(node.op, DimShuffle) and node.op.new_order[:1] == (0,):
            return node.op(self._entries(node.inputs[0], index))
        if isinstance(node.op, Subtensor) and node.op.idx_list[:1] == (slice(None),):
            return node.op(self._entries(node.inputs[0], index), *node.inputs[1:])
        if _is_index(node):
            source, inner, *column = node.inputs
            entries = self._entries(source, inner[index])
            return entries[:, *column] if column else entries
        raise NotByIndexError(*set(self._effects).intersection(graph_inputs([graph])))

    def _placeholder(self, effect: Variable, index: Variable) -> Gathered:
        position = self._effects.index(effect)
        key = position, index
        if key not in self.gathered:
            width = 1 if effect.type.ndim == 1 else effect.type.shape[1]
            columns = [pt.vector(f"{effect.name}_{k}", dtype="float64") for k in range(width)]
            entries = columns[0] if effect.type.ndim == 1 else pt.stack(columns, axis=1)
            self.gathered[key] = Gathered(position, index, columns, entries)
        return self.gathered[key]


def _is_index(node: Any) -> bool:
    """Whether a node is ``x[i]`` or ``x[i, k]`` with a vector of integers i and a number k."""
    if not isinstance(node.op, AdvancedSubtensor) or node.op.idx_list not in ((0,), (0, 1)):
        return False
    index, *column = (each.type for each in node.inputs[1:])
    return (
        index.ndim == 1
        and index.dtype.startswith(("int", "uint"))
        and all(each.ndim == 0 for each in column)
    )


def scale_of(entries: Iterable[TensorVariable], graphs: Sequence[Variable]) -> Variable | None:
    """Factor by which all uses of the entries of an effect are multiplied; None without one.

    It is a product of factors that are equal for all rows and depend on variables of the model, and
    may be negative.
    """
    entries = set(entries)
    scales: list[tuple[Variable, ...]] = []
    for node in io_toposort([], graphs):
        if entries.isdisjoint(node.inputs):
            continue
        if not (isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Mul)):
            return None
        others = [each for each in node.inputs if each not in entries]
        scales.append(tuple(each for each in others if _is_scale(each)))
    if not scales or not scales[0] or any(set(each) != set(scales[0]) for each in scales):
        return None
    product = pt.mul(*scales[0]) if len(scales[0]) > 1 else scales[0][0]
    return product[0]


def _is_scale(graph: Variable) -> bool:
    """Whether a factor is the same for all rows, and depends on variables of the model."""
    return graph.type.shape[:1] == (1,) and any(
        not isinstance(each, Constant | SharedVariable) for each in graph_inputs([graph])
    )
