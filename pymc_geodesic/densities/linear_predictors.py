"""Decomposition of linear predictors into products of design matrices and vectors.

The linear predictor of a hierarchical regression, such as ``intercept + X @ beta + effect[group]``,
is a sum of products of design matrices, which consist of data, with vectors, which are functions of
the variables: a scalar, the coefficients of columns, or effects of groups.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.rows_by_index import is_product, taken_by_index, transposed

_MAX_PARTS = 256
"""Maximum number of parts of a predictor. A sum over columns has a part for each of them."""


class NotLinearError(Exception):
    """A predictor is not linear, or has a form that is not recognized."""


@dataclass(frozen=True, eq=False)
class LinearPart:
    r"""Product of a design matrix with a vector.

    .. math:: w_i v_{g_i}, \qquad w_i \sum_k X_{ik} v_k \qquad \text{or} \qquad w_i v_0

    for row i, with an index g, with a matrix X, or with neither.

    Attributes
    ----------
    vector : TensorVariable
        v, a function of the variables.
    index, matrix : TensorVariable or None
        g and X, functions of data, as w.
    weights : list of TensorVariable
        Factors of w, vectors with one or N elements.
    """

    vector: TensorVariable
    index: TensorVariable | None = None
    matrix: TensorVariable | None = None
    weights: list[TensorVariable] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Length of the vector."""
        return int(self.vector.type.shape[0])

    def times(self, weights: TensorVariable) -> LinearPart:
        """Multiply the rows by data."""
        return replace(self, weights=[*self.weights, weights])

    def scaled(self, factor: TensorVariable) -> LinearPart:
        """Multiply by a function of the variables that is the same for all rows, shape (1,)."""
        return replace(self, vector=self.vector * factor)


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """Linear predictor of N rows: a sum of data and of products.

    Attributes
    ----------
    offsets : list of TensorVariable
        Functions of data, vectors with one or N elements.
    parts : list of LinearPart
    """

    offsets: list[TensorVariable]
    parts: list[LinearPart]

    @classmethod
    def of(cls, graph: TensorVariable, n_rows: int, varying: Sequence[Variable]) -> LinearPredictor:
        """Decompose a predictor.

        Parameters
        ----------
        graph : TensorVariable
            Vector with static shape (N,) or (1,), or a number.
        n_rows : int
            N.
        varying : sequence of Variable
            Variables of the model; all other inputs are data.

        Returns
        -------
        LinearPredictor

        Raises
        ------
        NotLinearError
            If the predictor is not linear, or has a form that is not recognized.

        Examples
        --------
        >>> import numpy as np
        >>> import pytensor.tensor as pt
        >>> from pymc_geodesic.densities.linear_predictors import LinearPredictor
        >>> slope, effect = pt.dscalar("slope"), pt.tensor("effect", shape=(2,))
        >>> x, group = pt.tensor("x", shape=(5,)), pt.constant(np.array([0, 1, 1, 0, 1]))
        >>> graph = 3.0 + slope * x + effect[group]
        >>> predictor = LinearPredictor.of(graph, 5, [slope, effect])
        >>> len(predictor.offsets), [part.size for part in predictor.parts]
        (1, [1, 2])
        """
        if graph.type.ndim > 1:
            raise NotLinearError
        return _Decomposition(n_rows, [graph], varying).sum_of(pt.atleast_1d(graph))


class _Decomposition:
    """Decomposition of graphs of N rows; see `LinearPredictor.of`."""

    def __init__(
        self, n_rows: int, graphs: Sequence[TensorVariable], varying: Sequence[Variable]
    ) -> None:
        self._n_rows = n_rows
        self._products: dict[Variable, LinearPart] = {}
        self._known: dict[Variable, LinearPredictor] = {}
        self._fixed: set[Variable] = set()
        self._varies: set[Variable] = set(varying)
        for node in io_toposort([], graphs):
            if not self._varies.isdisjoint(node.inputs):
                self._varies.update(node.outputs)

    def _depends(self, graph: Variable) -> bool:
        """Whether a graph depends on variables; also one that was built after the others."""
        if graph in self._varies:
            return True
        if graph.owner is None or graph in self._fixed:
            return False
        depends = any(map(self._depends, graph.owner.inputs))
        (self._varies if depends else self._fixed).add(graph)
        return depends

    def sum_of(self, graph: TensorVariable) -> LinearPredictor:
        """Decompose a vector."""
        if graph not in self._known:
            self._known[graph] = self._sum_of(graph)
        return self._known[graph]

    def _sum_of(self, graph: TensorVariable) -> LinearPredictor:
        if not self._depends(graph):
            return LinearPredictor([_as_float(graph)], [])
        if graph.type.shape == (1,):
            return LinearPredictor([], [LinearPart(graph)])
        if graph in self._products:
            return LinearPredictor([], [self._products[graph]])
        node = graph.owner
        if node is None:
            raise NotLinearError
        if isinstance(node.op, ViewOp):
            return self.sum_of(node.inputs[0])
        if isinstance(node.op, Elemwise):
            return self._elementwise(node)
        taken = taken_by_index(node)
        if taken is not None and not taken.is_transposed and not self._depends(taken.index):
            return LinearPredictor([], [_checked(LinearPart(taken.vector, index=taken.index))])
        if isinstance(node.op, DimShuffle) and node.inputs[0].type.ndim == 2:
            matrix = node.inputs[0] if node.op.new_order == (0,) else transposed(node.inputs[0])
            return self.sum_of(self._column(matrix, 0))
        if isinstance(node.op, Subtensor) and node.inputs[0].type.ndim == 2:
            return self.sum_of(self._column_of_subtensor(node))
        if isinstance(node.op, Sum) and node.op.axis == (1,) and node.inputs[0].type.ndim == 2:
            return self._sum_over_columns(node.inputs[0])
        raise NotLinearError

    def _elementwise(self, node: Apply) -> LinearPredictor:
        """Decompose a sum, or a product of which at most one factor has rows and variables."""
        function = node.op.scalar_op
        if isinstance(function, ps.Identity):
            return self.sum_of(node.inputs[0])
        if isinstance(function, ps.Neg):
            return _times(self.sum_of(node.inputs[0]), pt.constant([-1.0]))
        if isinstance(function, ps.Add):
            return _plus(*map(self.sum_of, node.inputs))
        if isinstance(function, ps.Sub):
            first, second = map(self.sum_of, node.inputs)
            return _plus(first, _times(second, pt.constant([-1.0])))
        if isinstance(function, ps.TrueDiv):
            first, second = node.inputs
            if self._depends(second) and second.type.shape != (1,):
                raise NotLinearError
            return self._product([first, 1.0 / _as_float(second)])
        if isinstance(function, ps.Mul):
            return self._product(node.inputs)
        raise NotLinearError

    def _product(self, factors: Sequence[TensorVariable]) -> LinearPredictor:
        """Decompose a product of vectors."""
        data = [each for each in factors if not self._depends(each)]
        scales = [each for each in factors if self._depends(each) and each.type.shape == (1,)]
        others = [each for each in factors if each not in data and each not in scales]
        if len(others) > 1:
            raise NotLinearError
        if not others:
            others = [scales.pop()]
        result = self.sum_of(others[0])
        for each in data:
            result = _times(result, each)
        for each in scales:
            parts = [part.scaled(each) for part in result.parts]
            if result.offsets:
                parts.append(LinearPart(each).times(reduce(operator.add, result.offsets)))
            result = LinearPredictor([], parts)
        return result

    def _sum_over_columns(self, graph: TensorVariable) -> LinearPredictor:
        n = graph.type.shape[1]
        if n is None or n > _MAX_PARTS:
            raise NotLinearError
        return _plus(*(self.sum_of(self._column(graph, k)) for k in range(n)))

    def _column_of_subtensor(self, node: Apply) -> TensorVariable:
        """Column of ``matrix[:, k]``."""
        rows, *others = node.op.idx_list
        if rows != slice(None) or len(others) != 1 or isinstance(others[0], slice):
            raise NotLinearError
        (k,) = node.inputs[1:]
        if self._depends(k):
            raise NotLinearError
        return self._column(node.inputs[0], k)

    def _column(self, graph: TensorVariable, k: int | TensorVariable) -> TensorVariable:
        """Column k of a matrix, taken from the inputs of its elementwise functions."""
        if not self._depends(graph) or graph.type.shape[0] == 1:
            return graph[:, k]
        node = graph.owner
        if node is None:
            raise NotLinearError
        if isinstance(node.op, Elemwise):
            wide = [each.type.shape[1] == 1 for each in node.inputs]
            columns = [
                self._column(each, 0 if is_one else k)
                for each, is_one in zip(node.inputs, wide, strict=True)
            ]
            return node.op(*columns)
        if is_product(node) and not self._depends(node.inputs[0]):
            matrix, right = node.inputs
            if matrix.type.shape[0] != self._n_rows:
                raise NotLinearError
            column = pt.TensorType("float64", (self._n_rows,))()
            self._products[column] = _checked(LinearPart(right[:, k], matrix=matrix))
            self._varies.add(column)
            return column
        if isinstance(node.op, DimShuffle) and node.op.new_order == (0, "x"):
            return node.inputs[0]
        taken = taken_by_index(node)
        if taken is None or taken.column or taken.is_transposed or taken.source.type.ndim != 2:
            raise NotLinearError
        return taken.source[:, k][taken.index]


def _checked(part: LinearPart) -> LinearPart:
    """Raise NotLinearError unless the length of the vector is known."""
    if part.vector.type.ndim != 1 or None in part.vector.type.shape:
        raise NotLinearError
    return part


def _plus(*terms: LinearPredictor) -> LinearPredictor:
    offsets = [offset for each in terms for offset in each.offsets]
    parts = [part for each in terms for part in each.parts]
    if len(offsets) + len(parts) > _MAX_PARTS:
        raise NotLinearError
    return LinearPredictor(offsets, parts)


def _as_float(data: TensorVariable) -> TensorVariable:
    """Double precision, in which products of integers do not overflow."""
    return data.astype("float64")


def _times(predictor: LinearPredictor, weights: TensorVariable) -> LinearPredictor:
    weights = _as_float(weights)
    return LinearPredictor(
        [offset * weights for offset in predictor.offsets],
        [each.times(weights) for each in predictor.parts],
    )
