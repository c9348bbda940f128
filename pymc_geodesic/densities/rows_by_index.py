"""Graphs of rows that take entries of a variable by an index, such as ``effect[group]``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.traversal import ancestors, graph_inputs, io_toposort
from pytensor.scalar.basic import Mul
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.graphs import rebuild_graphs
from pymc_geodesic.densities.mixed_rows import inputs_of_mixed_rows


class NotByIndexError(Exception):
    """An effect enters the rows in another way than by an index."""


@dataclass(eq=False)
class Gathered:
    """Entries of an effect that the rows of a term take.

    Attributes
    ----------
    effect : int
        Position of the variable among the effects.
    n_groups : int
        Length of the first axis of the variable.
    index : TensorVariable
        Integer vector, one entry of the first axis of the variable for each row.
    columns : list of TensorVariable
        Placeholder for each column of the entries, of one value per row.
    entries : TensorVariable
        The columns joined, in the coordinates of the model.
    """

    effect: int
    n_groups: int
    index: TensorVariable
    columns: list[TensorVariable]
    entries: TensorVariable


class RowsByIndex:
    """Graphs of terms in which `Gathered` replaces ``effect[index]``.

    An index is moved through elementwise functions, products and transposes to the effects:
    (μ + σ x)[i] = μ + σ x[i], and (x Mᵀ)[i] = x[i] Mᵀ.

    Parameters
    ----------
    effects : list of TensorVariable
        Value variables, with groups along the first axis.
    correlated : collection of TensorVariable
        Effects of which all entries of a group are gathered for ``x[i, j]``, and one is chosen. So
        are those of products with a matrix.

    Attributes
    ----------
    gathered : dict
        By effect and index.
    in_products : set of int
        Effects with an index that was moved through a matrix product.
    """

    def __init__(
        self, effects: Sequence[TensorVariable], correlated: Collection[TensorVariable] = ()
    ) -> None:
        self._effects, self._correlated = list(effects), set(correlated)
        self._every: dict[int, Variable] = {}
        self.gathered: dict[tuple[int, Variable], Gathered] = {}
        self.in_products: set[int] = set()
        self._moved: dict[tuple[Variable, Variable], Variable] = {}

    def replace(self, graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Replace entries of effects in elementwise log-densities of rows.

        Raises
        ------
        NotByIndexError
            If another use of an effect remains, or if a row depends on the entries of others.
        """
        replacements: dict[Variable, Variable] = {}
        for node in io_toposort([], graphs):
            taken = taken_by_index(node)
            if taken is not None and self._uses_effects(node.inputs[0]):
                if taken.entry is not None and self._mixes_columns(node.inputs[0]):
                    row, column = taken.entry
                    matrix = node.inputs[0]
                    entries = self._entries(matrix, row)
                    is_chosen = pt.eq(column[:, None], np.arange(matrix.type.shape[1]))
                    chosen = (entries * is_chosen).sum(axis=1)  # the others times zero
                else:
                    chosen = taken.part_of(self._entries(taken.source, taken.index))
                replacements[node.outputs[0]] = chosen
        for rows in {graph.type.shape[0] for graph in graphs if graph.type.ndim}:
            for effect in self._effects:  # one row for each entry
                if effect.type.shape[:1] == (rows,) and rows != 1:
                    replacements.setdefault(effect, self.every(effect))
        replaced = rebuild_graphs(graphs, replacements)
        left = set(self._effects).intersection(graph_inputs(replaced))
        for each in self.gathered.values():
            columns = set(each.columns)
            if any(inputs_of_mixed_rows(graph, columns) for graph in replaced):
                left.add(self._effects[each.effect])
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

    def _mixes_columns(self, matrix: Variable) -> bool:
        """Whether the entries of a group depend on each other."""
        graph = list(ancestors([matrix]))
        is_mixed = any(each.owner is not None and is_product(each.owner) for each in graph)
        return is_mixed or not self._correlated.isdisjoint(graph)

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
        error = NotByIndexError(*set(self._effects).intersection(graph_inputs([graph])))
        if isinstance(node.op, Elemwise):
            repeated = [e for e in node.inputs if e.type.shape[0] == 1 != graph.type.shape[0]]
            in_all_rows = set(self._effects).intersection(graph_inputs(repeated))
            if in_all_rows:
                raise NotByIndexError(*in_all_rows)
            return node.op(*(self._entries(each, index) for each in node.inputs))
        source, *rest = node.inputs
        if isinstance(node.op, DimShuffle) and node.op.new_order[:1] == (0,):
            return node.op(self._entries(source, index))
        if _is_transpose(node):
            graph = transposed(source)
            if graph.owner is not None and graph.owner.inputs[0] is source:
                raise error
            return self._entries(graph, index)
        if is_ravel(node):
            graph = raveled(source)
            if _is_ravel_of(graph, source):
                raise error
            return self._entries(graph, index)
        if isinstance(node.op, Subtensor) and node.op.idx_list[:1] == (slice(None),):
            return node.op(self._entries(source, index), *rest)
        is_row = isinstance(node.op, Subtensor) and not isinstance(node.op.idx_list[0], slice)
        if is_row and source.type.ndim == 2 and len(rest) == 1:
            return self._entries(transposed(source), index)[:, rest[0]]
        if is_product(node) and not self._uses_effects(rest[0]):
            inputs = set(ancestors([source]))
            self.in_products |= {i for i, each in enumerate(self._effects) if each in inputs}
            return node.op(self._entries(source, index), *rest)
        taken = taken_by_index(node)
        if taken is not None and not taken.is_transposed:
            return taken.part_of(self._entries(taken.source, taken.index[index]))
        raise error

    def _placeholder(self, effect: Variable, index: Variable) -> Gathered:
        position = self._effects.index(effect)
        key = position, index
        if key not in self.gathered:
            width = 1 if effect.type.ndim == 1 else effect.type.shape[1]
            columns = [pt.vector(f"{effect.name}_{k}", dtype="float64") for k in range(width)]
            entries = _joined(columns, effect.type.ndim)
            self.gathered[key] = Gathered(position, effect.type.shape[0], index, columns, entries)
        return self.gathered[key]


def _joined(columns: Sequence[TensorVariable], ndim: int) -> TensorVariable:
    """Join columns to a matrix; for ``ndim=1`` there is one."""
    return columns[0] if ndim == 1 else pt.stack(columns, axis=1)


class Taken(NamedTuple):
    """``source[index]`` or ``source[index, column]``, or ``source[index].T``.

    An entry of a matrix for each row, ``x[i, j]``, is one of its flat copy, ``x.ravel()[index]``;
    ``entry`` is i and j.
    """

    source: TensorVariable
    index: TensorVariable
    column: tuple[TensorVariable, ...] = ()
    is_transposed: bool = False
    entry: tuple[TensorVariable, TensorVariable] | None = None

    @property
    def vector(self) -> TensorVariable:
        """Column of the source, or the source without a column."""
        return self.source[:, *self.column] if self.column else self.source

    def part_of(self, entries: TensorVariable) -> TensorVariable:
        """Return the result, given ``source[index]``."""
        if self.is_transposed:
            return entries.T
        return entries[:, *self.column] if self.column else entries


def taken_by_index(node: Any) -> Taken | None:
    """Parts of ``x[i]``, ``x[i, k]``, ``x[k, i]``, ``x[:, i]`` or ``x[i, j]``."""
    if not isinstance(node.op, AdvancedSubtensor):
        return None
    source, *indices = node.inputs  # i and j are vectors of integers, or constant masks
    indices = [_positions(each) for each in indices]
    vectors = [each for each in indices if each.type.ndim == 1]
    numbers = tuple(each for each in indices if each.type.ndim == 0)
    if not all(each.type.dtype.startswith(("int", "uint")) for each in vectors):
        return None
    shape = source.type.shape
    if len(vectors) == len(shape) == 2 and node.op.idx_list == (0, 1) and None not in shape:
        row, column = (pt.cast(i, "int64") % n for i, n in zip(vectors, shape, strict=True))
        return Taken(raveled(source), row * shape[1] + column, entry=(vectors[0], column))
    if len(vectors) != 1 or len(numbers) != len(indices) - 1:
        return None
    if indices[0] is vectors[0] and node.op.idx_list in ((0,), (0, 1)):
        return Taken(source, vectors[0], numbers)
    if source.type.ndim == 2 and node.op.idx_list in ((0, 1), (slice(None), 0)):
        return Taken(transposed(source), vectors[0], numbers, is_transposed=not numbers)
    return None


def _positions(index: TensorVariable) -> TensorVariable:
    """Return the positions that a constant mask selects, such as that of missing observations."""
    is_mask = isinstance(index, Constant) and index.type.ndim == 1 and index.type.dtype == "bool"
    return pt.constant(np.flatnonzero(index.data)) if is_mask else index


def _is_transpose(node: Any) -> bool:
    """Whether a node is the transpose of a matrix."""
    return isinstance(node.op, DimShuffle) and node.op.new_order == (1, 0)


def is_product(node: Any) -> bool:
    """Whether a node is a product of a matrix with another matrix or a vector."""
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    return isinstance(op, Dot) and node.inputs[0].type.ndim == 2


def transposed(
    graph: TensorVariable, known: dict[TensorVariable, TensorVariable] | None = None
) -> TensorVariable:
    """Transpose of a matrix, moved through products and elementwise functions to their inputs.

    Parameters
    ----------
    graph : TensorVariable
    known : dict, optional
        Transposes of parts of the graph, which is changed.
    """
    known = {} if known is None else known
    node = graph.owner
    if graph not in known:
        if node is not None and _is_transpose(node):
            known[graph] = node.inputs[0]
        elif node is not None and isinstance(node.op, Elemwise):
            known[graph] = node.op(*(transposed(each, known) for each in node.inputs))
        elif node is not None and is_product(node):
            left, right = node.inputs
            known[graph] = node.op(transposed(right, known), transposed(left, known))
        else:
            known[graph] = graph.T
    return known[graph]


def is_ravel(node: Any) -> bool:
    """Whether a node is a matrix as a vector, one row after the other."""
    return isinstance(node.op, Reshape) and node.op.ndim == 1 and node.inputs[0].type.ndim == 2


def _is_ravel_of(graph: Variable, source: Variable) -> bool:
    return graph.owner is not None and is_ravel(graph.owner) and graph.owner.inputs[0] is source


def raveled(graph: TensorVariable) -> TensorVariable:
    """Flat copy of a matrix, moved through elementwise functions to vectors.

    These have the shape of the matrix, or are broadcast along rows or columns.
    """
    node = graph.owner
    if node is not None and node.inputs[0].type.ndim == 1:
        is_column_or_row = isinstance(node.op, DimShuffle) and node.op.new_order in (
            (0, "x"),
            ("x", 0),
        )
        if is_column_or_row or isinstance(node.op, Reshape):
            return node.inputs[0]
    if node is None or not isinstance(node.op, Elemwise):
        return graph.ravel()
    n_rows, n_columns = graph.type.shape
    flat = []
    for each in node.inputs:
        vector = raveled(each)
        if each.type.shape == (n_rows, 1) != graph.type.shape and n_rows != 1:
            vector = vector[np.repeat(np.arange(n_rows), n_columns)]
        elif each.type.shape == (1, n_columns) != graph.type.shape and n_columns != 1:
            vector = vector[np.tile(np.arange(n_columns), n_rows)]
        flat.append(vector)
    return node.op(*flat)


# --- scales of offsets --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scale:
    """Matrix M of effects e = M z of the offsets z of each group.

    Attributes
    ----------
    diagonal : TensorVariable
        Diagonal of M; a number, or a vector of length 1, if its elements are equal. For effects
        with one column, the number M of each group if that differs between groups; for
        coefficients, a factor for each entry.
    matrix : TensorVariable or None
        M, unless it is diagonal.
    """

    diagonal: TensorVariable
    matrix: TensorVariable | None

    @property
    def graph(self) -> TensorVariable:
        """M, or its diagonal."""
        return self.diagonal if self.matrix is None else self.matrix

    def times(self, offsets: TensorVariable) -> TensorVariable:
        """Return the effects of offsets, with groups along the first axis."""
        return offsets * self.diagonal if self.matrix is None else offsets @ self.matrix.T

    def offsets(self, gathered: Gathered) -> TensorVariable:
        """Return the entries, if the columns are those of the effects, by forward substitution."""
        if gathered.entries.type.ndim == 1 and self.diagonal.type.shape not in ((), (1,)):
            return gathered.entries / self.diagonal[gathered.index]
        diagonal = pt.zeros(len(gathered.columns)) + self.diagonal
        found: list[TensorVariable] = []
        for k, column in enumerate(gathered.columns):
            if self.matrix is not None:
                column = pt.add(column, *[-self.matrix[k, j] * z for j, z in enumerate(found)])
            found.append(column / diagonal[k])
        return _joined(found, gathered.entries.type.ndim)

    def after(self, first: Scale) -> Scale:
        """Return the product of M and another matrix."""
        if self.matrix is None and first.matrix is None:
            return Scale(self.diagonal * first.diagonal, None)
        if self.matrix is None:
            matrix = self.diagonal[..., None] * first.matrix
        elif first.matrix is None:
            matrix = self.matrix * first.diagonal
        else:
            matrix = self.matrix @ first.matrix
        return Scale(pt.diagonal(matrix), matrix)


def scales_of(gathered: Iterable[Gathered], graphs: Sequence[Variable]) -> list[Scale]:
    """Linear functions of the entries of an effect through which all of their uses pass.

    The first is that of the entries themselves, and each of the others is the product of the one
    before and another factor. Factors are equal for all rows, or for all rows of a group, and
    depend on variables of the model. They may be any matrices.
    """
    present = {each.entries: each for each in gathered}
    scales: list[Scale] = []
    nodes = list(io_toposort([], graphs))
    while present:
        uses = [node for node in nodes if not present.keys().isdisjoint(node.inputs)]
        taken = [next(present[each] for each in node.inputs if each in present) for node in uses]
        factors = [
            factor
            for node, entries in zip(uses, taken, strict=True)
            if (factor := _factor(node, present, entries)) is not None
        ]
        if not factors or len(factors) < len(uses):
            break
        first, *others = factors
        if any(not equal_computations([first.graph], [each.graph]) for each in others):
            break
        scales.append(first.after(scales[-1]) if scales else first)
        # another factor, such as a covariate, differs between rows
        is_last = any(len(node.inputs) > 2 for node in uses)
        outputs = [node.outputs[0] for node in uses]
        present = {} if is_last else dict(zip(outputs, taken, strict=True))
    return scales


def factors_of(coefficients: TensorVariable, graphs: Sequence[Variable]) -> list[Scale]:
    """Factors of coefficients by which all of their uses multiply them, entry by entry.

    Each is the product of the one before and another factor; all depend on variables of the model.
    """
    present: set[Variable] = {coefficients}
    product: TensorVariable | None = None
    scales: list[Scale] = []
    nodes = list(io_toposort([], graphs))
    while True:
        present |= {n.outputs[0] for n in nodes if _adds_axes(n) and n.inputs[0] in present}
        uses = [n for n in nodes if not present.isdisjoint(n.inputs) and not _adds_axes(n)]
        factors = [f for node in uses if (f := _entrywise_factor(node, present)) is not None]
        if not factors or len(factors) < len(uses):
            return scales
        first, *others = (each.reshape(coefficients.type.shape) for each in factors)
        if any(not equal_computations([first], [each]) for each in others):
            return scales
        product = first if product is None else product * first
        if _depends_on_variables(product):
            scales.append(Scale(product, None))
        present = {node.outputs[0] for node in uses}


def _adds_axes(node: Any) -> bool:
    """Whether the output of a node is its input with further axes of length one."""
    if not isinstance(node.op, DimShuffle):
        return False
    kept = [axis for axis in node.op.new_order if axis != "x"]
    return kept == list(range(node.inputs[0].type.ndim))


def _entrywise_factor(node: Any, present: set[Variable]) -> TensorVariable | None:
    """Factor of coefficients in a product of the same shape, which is that of the factor."""
    if not (isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Mul)):
        return None
    own = [each for each in node.inputs if each in present]
    others = [each for each in node.inputs if each not in present]
    if len(own) > 1 or own[0].type.shape != node.outputs[0].type.shape:
        return None
    return pt.mul(*others, pt.ones(own[0].type.shape))


def _factor(node: Any, present: Collection[Variable], entries: Gathered) -> Scale | None:
    """Linear function of entries in a node that is the same for all rows, or those of a group."""
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Mul):
        others = [each for each in node.inputs if each not in present]
        scales = [_of_group(each, entries) for each in others if _depends_on_variables(each)]
        known = [each for each in scales if each is not None]
        if known:
            return Scale(pt.mul(*known) if len(known) > 1 else known[0], None)
    if is_product(node) and node.inputs[0] in present:
        right = node.inputs[1]
        if right.type.ndim == 2 and _depends_on_variables(right):
            matrix = transposed(right)
            return Scale(pt.diagonal(matrix), matrix)
    return None


def _of_group(factor: TensorVariable, entries: Gathered) -> TensorVariable | None:
    """Return a factor that is equal for all rows, or those of the groups that the rows take."""
    if factor.type.shape[:1] == (1,):
        return factor[0]
    taken = None if factor.owner is None else taken_by_index(factor.owner)
    if taken is None or taken.source.type.shape != (entries.n_groups,) or factor.type.ndim > 1:
        return None
    return taken.source if equal_computations([taken.index], [entries.index]) else None


def _depends_on_variables(graph: Variable) -> bool:
    """Whether a graph has inputs other than constants and data."""
    return any(not isinstance(each, Constant | SharedVariable) for each in graph_inputs([graph]))
