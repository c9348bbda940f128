"""Precision matrix of group effects and other variables, from the curvature of each term.

An effect is e = M x, of offsets x, or x itself; see `pymc_geodesic.densities.group_effects`.
Derivatives with respect to entries of e are taken for each row: with respect to placeholders
(`pymc_geodesic.densities.rows_by_index`) that replace ``effect[group]`` in the graph of a term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad, grad, pushforward
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_geodesic.densities.effect_priors import GroupVariable, by_group, is_correlated
from pymc_geodesic.densities.graphs import rebuild_graphs, unoptimized_function
from pymc_geodesic.densities.positive_parts import positive_part, positive_part_of_rows
from pymc_geodesic.densities.rows_by_index import Gathered, NotByIndexError, RowsByIndex, Scale
from pymc_geodesic.densities.smoothness import has_kinks
from pymc_geodesic.densities.sufficient_statistics import NormalStatistics

# --- variables ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Effect:
    """A group effect.

    Attributes
    ----------
    name : str
    part : slice
        Its coordinates in a position.
    width : int
        Entries of one group, such as an intercept and a slope.
    is_transposed : bool
        Whether groups are along the last axis.
    is_centered : bool
        Whether it is not written as a function of offsets.
    is_correlated : bool
        Whether the prior of a column depends on the columns before it.
    parents : tuple of str
        Other effects on which its prior depends.
    last : int or None
        For an effect that sums to zero, the row of its last entry in `GroupEffects.precision`. Such
        an effect has one coordinate fewer than entries.
    """

    name: str
    part: slice
    width: int
    is_transposed: bool
    is_centered: bool
    is_correlated: bool
    parents: tuple[str, ...]
    last: int | None = None

    @property
    def columns(self) -> list[np.ndarray]:
        """Coordinates of each column."""
        every = np.arange(self.part.start, self.part.stop)
        if self.is_transposed:
            return list(every.reshape(self.width, -1))
        return [every[k :: self.width] for k in range(self.width)]

    @property
    def rows(self) -> list[np.ndarray]:
        """Rows of the precision matrix of the entries of each column."""
        if self.last is None:
            return self.columns
        return [np.append(column, self.last) for column in self.columns]


class GatheredColumns(NamedTuple):
    """Columns of the effects that the rows of a term take.

    Parameters
    ----------
    placeholders : list of TensorVariable
    values : list of TensorVariable
        Their values, functions of the value variables.
    blocks : list of (int, int)
        Effect and column of each.
    indices : list of TensorVariable
        Group of each row.
    """

    placeholders: list[TensorVariable]
    values: list[TensorVariable]
    blocks: list[tuple[int, int]]
    indices: list[TensorVariable]

    def replace(self, graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Replace placeholders by their values."""
        return rebuild_graphs(list(graphs), dict(zip(self.placeholders, self.values, strict=True)))


class EffectGraphs:
    """Variables of a model with group effects, for derivatives with respect to the effects e.

    Parameters
    ----------
    values : list of TensorVariable
        Value variables in the order of a position.
    not_by_index, shapes : list of TensorVariable, list of tuple of int
        Those of variables that are not taken by an index, and their shapes.
    effects : list of GroupVariable
        First those that are taken by an index, then coefficients.
    scales : list of Scale or None
        M of each effect; None for the identity.
    n_by_index : int
        Number of effects that are taken by an index.

    Attributes
    ----------
    values, effects, scales, n_by_index
        See above.
    others : list of TensorVariable
        Variables θ that are not taken by an index. A placeholder for e replaces offsets.
    shapes_of_others : list of tuple of int
    coefficients : list of TensorVariable
        Those of them that are effects.
    """

    def __init__(
        self,
        values: Sequence[TensorVariable],
        not_by_index: Sequence[TensorVariable],
        shapes: Sequence[tuple[int, ...]],
        effects: Sequence[GroupVariable],
        scales: Sequence[Scale | None],
        n_by_index: int,
    ) -> None:
        self.values, self.effects, self.scales = list(values), list(effects), list(scales)
        self.shapes_of_others, self.n_by_index = list(shapes), n_by_index
        self._scale_of_offsets = {
            effect.value: scale.diagonal
            for effect, scale in zip(effects[n_by_index:], scales[n_by_index:], strict=True)
            if scale is not None
        }
        self._effect_of_offsets = {offsets: offsets.type() for offsets in self._scale_of_offsets}
        self.others = [self._effect_of_offsets.get(each, each) for each in not_by_index]
        offsets = [each.value for each in effects[n_by_index:]]
        self.coefficients = [self._effect_of_offsets.get(each, each) for each in offsets]

    def rows_by_index(self, own: int | None = None) -> RowsByIndex:
        """Rows that take entries by an index, also of the coefficients ``own``."""
        return RowsByIndex(
            [
                each.value if k < self.n_by_index or k == own else each.value.type()
                for k, each in enumerate(self.effects)
            ],
            [each.value for each in self.effects if is_correlated(each.variable)],
        )

    def of_effects(self, graph: TensorVariable, gathered: Sequence[Gathered]) -> TensorVariable:
        """Replace offsets x = M⁻¹ e, so that the columns of entries are those of e."""
        offsets = {
            each.entries: scale.offsets(each)
            for each in gathered
            if (scale := self.scales[each.effect]) is not None
        }
        offsets |= {x: e / self._scale_of_offsets[x] for x, e in self._effect_of_offsets.items()}
        fresh = {old: old.type() for old in offsets}  # they are functions of what they replace
        (graph,) = rebuild_graphs([graph], fresh)
        (graph,) = rebuild_graphs([graph], {fresh[old]: new for old, new in offsets.items()})
        return graph

    def in_variables(self, graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Replace effects, and values with groups first, by functions of value variables."""
        effects = {e: x * self._scale_of_offsets[x] for x, e in self._effect_of_offsets.items()}
        values = {
            each.value: each.in_variable
            for each in self.effects
            if each.value is not each.in_variable
        }
        return rebuild_graphs(graphs, effects | values)

    def columns(self, gathered: Sequence[Gathered]) -> GatheredColumns:
        """Columns of e that rows take."""
        found = GatheredColumns([], [], [], [])
        for each in gathered:
            effect, scale = self.effects[each.effect].value, self.scales[each.effect]
            taken = (effect if scale is None else scale.times(effect))[each.index]
            for k, column in enumerate(each.columns):
                found.placeholders.append(column)
                found.values.append(taken if effect.type.ndim == 1 else taken[:, k])
                found.blocks.append((each.effect, k))
                found.indices.append(each.index)
        return found

    def curvature_along(
        self, total: TensorVariable, variables: Sequence[Variable]
    ) -> tuple[list[Variable], list[Variable]]:
        """Return a direction d of all other variables θ, and −∂²total/∂v ∂θ · d for each v."""
        direction = [value.type() for value in self.others]
        slopes = grad(total, self.others, disconnected_inputs="ignore")
        along = pt.add(
            pt.zeros(()), *[pt.sum(g * d) for g, d in zip(slopes, direction, strict=True)]
        )
        return direction, grad(-along, list(variables), disconnected_inputs="ignore")

    def scores_along(
        self, terms: TensorVariable, variables: Sequence[Variable]
    ) -> tuple[list[Variable], list[Variable]]:
        """Return a direction d of θ, and Σ ∂t/∂v (∂t/∂θ · d) over terms t for each v."""
        direction = [value.type() for value in self.others]
        (along,) = pushforward(
            [terms],
            self.others,
            direction,
            disconnected_outputs="ignore",
            return_disconnected="zero",
        )
        total = pt.sum(disconnected_grad(along) * terms)
        return direction, grad(total, list(variables), disconnected_inputs="ignore")

    def is_active(self, total: TensorVariable) -> np.ndarray:
        """Whether a sum depends on the variable of each other coordinate, shape (n_others,)."""
        slopes = grad(total, self.others, disconnected_inputs="ignore", return_disconnected="none")
        sizes = [math.prod(shape) for shape in self.shapes_of_others]
        return np.repeat([slope is not None for slope in slopes], sizes)

    def directions(self) -> Iterator[list[np.ndarray]]:
        """Yield the unit vectors of the other coordinates."""
        zeros = [np.zeros(shape) for shape in self.shapes_of_others]
        for array in zeros:
            flat = array.reshape(-1)
            for i in range(flat.size):
                flat[i] = 1.0
                yield zeros
                flat[i] = 0.0


# --- sum over terms -----------------------------------------------------------------------------


class PrecisionSum:
    """Sum of precision matrices of effects and other coordinates θ.

    Parameters
    ----------
    effects : list of Effect
    size : int
        Number of rows, of coordinates and of last entries of effects that sum to zero.
    others : ndarray of int
        Coordinates θ.
    is_transformed : ndarray of bool
        Which of them belong to variables with a transform. They have no couplings with others.

    Attributes
    ----------
    size, others, is_transformed
        See above.
    of_others : ndarray, shape (n_others, n_others)
        Block of θ.
    """

    def __init__(
        self,
        effects: Sequence[Effect],
        size: int,
        others: np.ndarray,
        is_transformed: np.ndarray,
    ) -> None:
        self._rows, self.size = [each.rows for each in effects], size
        self.others, self.is_transformed = others, is_transformed
        self.of_others = np.zeros((len(others), len(others)))
        self._diagonal = np.zeros(size)
        self._entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def rows_of(self, block: tuple[int, int], index: np.ndarray) -> np.ndarray:
        """Rows of the matrix for entries of a column of an effect."""
        effect, column = block
        return self._rows[effect][column][index]

    def add_diagonal(self, at: np.ndarray, numbers: np.ndarray) -> None:
        """Add numbers to the diagonal in some rows, which may occur repeatedly."""
        self._diagonal += np.bincount(at, numbers, self.size)

    def add_pairs(self, rows: np.ndarray, columns: np.ndarray, numbers: np.ndarray) -> None:
        """Add a number for each of some pairs of rows and columns, in both triangles."""
        self._entries += [(rows, columns, numbers), (columns, rows, numbers)]

    def add_couplings(self, other: int, at: np.ndarray, numbers: np.ndarray) -> None:
        """Add couplings of one of θ with effects, whose rows may occur repeatedly."""
        sums = np.bincount(at, numbers, self.size)
        (found,) = np.nonzero(sums)
        self.add_pairs(found, np.full(len(found), self.others[other]), sums[found])

    def add_with_transpose(self, matrix: sparse.csr_array) -> None:
        """Add the sum of a matrix, shape (size, size), and its transpose."""
        kind = np.zeros(self.size, dtype=int)  # 0: effect, 1: θ, 2: transformed
        kind[self.others] = 1 + self.is_transformed
        entries = matrix.tocoo()
        numbers = np.nan_to_num(entries.data, posinf=0.0, neginf=0.0)
        of_row, of_column = kind[entries.row], kind[entries.col]
        is_kept = (of_row == 0) & (of_column <= 1) | (of_column == 0) & (of_row <= 1)
        self.add_pairs(entries.row[is_kept], entries.col[is_kept], numbers[is_kept])
        block = matrix[self.others][:, self.others].toarray()
        self.of_others += block + block.T

    def matrix(self, of_priors: np.ndarray) -> sparse.csr_matrix:
        """Return the sum, with non-negative curvature of θ.

        Parameters
        ----------
        of_priors : ndarray, shape (n_others,)
            Curvature of the priors of θ.
        """
        block = np.nan_to_num(self.of_others, posinf=0.0, neginf=0.0)
        block[self.is_transformed] *= self.is_transformed
        block[:, self.is_transformed] *= self.is_transformed[:, np.newaxis]
        priors = np.nan_to_num(of_priors, posinf=0.0, neginf=0.0)
        block = positive_part(0.5 * (block + block.T)) + np.diag(np.abs(priors))
        rows, columns = np.meshgrid(self.others, self.others, indexing="ij")
        every = np.arange(self.size)
        of_others = rows.ravel(), columns.ravel(), block.ravel()
        parts = [*self._entries, of_others, (every, every, self._diagonal)]
        rows, columns, data = (np.concatenate(each) for each in zip(*parts, strict=True))
        return sparse.coo_matrix((data, (rows, columns)), shape=(self.size, self.size)).tocsr()


# --- terms --------------------------------------------------------------------------------------


class TermCurvature:
    """Compiled second derivatives of a term that is a sum over rows.

    If the log-density of a row has kinks in effects, its second derivatives are no measure of
    information, and products of first derivatives replace them.

    Parameters
    ----------
    graphs : EffectGraphs
    gathered : list of Gathered
        Entries that the rows take.
    graph : TensorVariable
        Elementwise log-density, a function of the columns of e.
    compiled : callable
        Function of inputs and outputs that compiles a function.

    Raises
    ------
    NotImplementedError
        If the log-density has kinks in effects and is one number for all rows.
    """

    def __init__(
        self,
        graphs: EffectGraphs,
        gathered: Sequence[Gathered],
        graph: TensorVariable,
        compiled: Callable[[Sequence[Variable], Sequence[Variable]], Any],
    ) -> None:
        self._graphs, columns, total = graphs, graphs.columns(gathered), pt.sum(graph)
        self._blocks = columns.blocks
        slopes = grad(total, columns.placeholders, disconnected_inputs="ignore")
        pairs = list(combinations_with_replacement(range(len(slopes)), 2))
        variables = [*columns.placeholders, *graphs.others]
        if has_kinks([graph], [*columns.placeholders, *graphs.coefficients]):
            if not graph.type.ndim:
                raise NotImplementedError("a sum over rows has kinks")
            second = [slopes[k] * slopes[m] for k, m in pairs]
            direction, products = graphs.scores_along(graph, variables)
        else:
            second = [
                -grad(pt.sum(slopes[k]), columns.placeholders[m], disconnected_inputs="ignore")
                for k, m in pairs
            ]
            direction, products = graphs.curvature_along(total, variables)
        outputs = graphs.in_variables(columns.replace([*second, *products]))
        n = len(second)
        # values → −∂²/∂u_k ∂u_l for k <= l, a number per row each, and the index of each column
        self._second = compiled(graphs.values, [*outputs[:n], *columns.indices])
        # (values, d) → −∂²/∂u_k ∂θ · d, a number per row each, and −∂²/∂θ² · d
        self._along = compiled([*graphs.values, *direction], outputs[n:])
        self._is_active = graphs.is_active(total)

    def add_to(self, total: PrecisionSum, values: Sequence[np.ndarray]) -> None:
        """Add the observed curvature of each row, whose negative parts are clipped."""
        (*second,) = self._second(*values)
        indices = second[len(second) - len(self._blocks) :]
        # far from the mode second derivatives may overflow
        second = [np.nan_to_num(each, posinf=0.0, neginf=0.0) for each in second]
        at = [
            total.rows_of(block, index) for block, index in zip(self._blocks, indices, strict=True)
        ]
        pairs = combinations_with_replacement(range(len(at)), 2)
        for (k, m), curvature in zip(pairs, positive_part_of_rows(second, len(at)), strict=False):
            numbers = np.broadcast_to(curvature, at[k].shape)
            if k == m:
                total.add_diagonal(at[k], numbers)
            else:
                total.add_pairs(at[k], at[m], numbers)
        for i, direction in enumerate(self._graphs.directions()):
            if not self._is_active[i]:
                continue
            (*cross,) = self._along(*values, *direction)
            total.of_others[:, i] += np.concatenate([np.ravel(each) for each in cross[len(at) :]])
            if not total.is_transformed[i]:
                for own, numbers in zip(at, cross, strict=False):
                    total.add_couplings(i, own, np.broadcast_to(numbers, own.shape))


class NormalCurvature:
    r"""Curvature of normal observations, from their sufficient statistics.

    With the Jacobian J of u(e, θ) it is :math:`J^\top Q J / σ^2` (Gauss–Newton), and for the
    variables of σ the curvature of :math:`-N \log σ - \|y - o - A u\|^2 / 2 σ^2` at this u. If u is
    linear, these are the blocks of the observed curvature; couplings with σ are left out.

    Parameters
    ----------
    graphs : EffectGraphs
    statistics : NormalStatistics

    Raises
    ------
    NotByIndexError
        If an effect sums to zero, or an entry of u depends on one in another way than by an index.
    """

    def __init__(self, graphs: EffectGraphs, statistics: NormalStatistics) -> None:
        self._graphs, self._statistics = graphs, statistics
        zero_sums = [each.value for each in graphs.effects if each.zero_sum is not None]
        if zero_sums:
            raise NotByIndexError(*zero_sums)
        sd, *vectors = by_group(statistics.graphs(graphs.values), graphs.effects)
        rows = graphs.rows_by_index()
        columns = GatheredColumns([], [], [], [])
        self._parts, slopes = [], []
        for i, vector in enumerate(vectors):
            (graph,) = rows.replace([vector])
            gathered = rows.gathered_in(graph)
            vectors[i], own = graphs.of_effects(graph, gathered), graphs.columns(gathered)
            slopes += grad(pt.sum(vectors[i]), own.placeholders, disconnected_inputs="ignore")
            for of_all, of_part in zip(columns, own, strict=True):
                of_all += of_part
            self._parts += [i] * len(own.blocks)
        self._blocks, self._n_parts = columns.blocks, len(vectors)
        direction = [value.type() for value in graphs.others]
        products = pushforward(
            vectors,
            graphs.others,
            direction,
            disconnected_outputs="ignore",
            return_disconnected="none",
        )
        self._varying = [i for i, product in enumerate(products) if product is not None]
        # values → σ, u, ∂u/∂e by column of e, and the index of each column
        outputs = graphs.in_variables(columns.replace([sd, *vectors, *slopes]))
        self._derivatives = unoptimized_function(graphs.values, [*outputs, *columns.indices])
        # (values, d) → ∂u/∂θ · d, of the vectors that depend on θ
        self._along = unoptimized_function(
            [*graphs.values, *direction],
            graphs.in_variables(columns.replace([products[i] for i in self._varying])),
        )
        # (values, ‖y − o − A u‖², d) → the curvature in the variables of σ, times d
        square = pt.dscalar()
        of_sd = pt.sum(-statistics.n_rows * pt.log(sd) - square / (2.0 * sd**2))
        self._changes_sd = graphs.is_active(of_sd)
        direction, products = graphs.curvature_along(of_sd, graphs.others)
        self._along_sd = unoptimized_function(
            [*graphs.values, square, *direction], graphs.in_variables(products)
        )

    def add_to(self, total: PrecisionSum, values: Sequence[np.ndarray]) -> None:
        """Add the curvature at some values of the variables."""
        sd, *found = self._derivatives(*values)
        vectors, n_blocks = found[: self._n_parts], len(self._blocks)
        slopes, indices = found[self._n_parts :][:n_blocks], found[self._n_parts + n_blocks :]
        starts = np.cumsum([0, *(len(each) for each in vectors)])
        entries = []
        for part, block, slope, index in zip(
            self._parts, self._blocks, slopes, indices, strict=True
        ):
            rows = np.arange(starts[part], starts[part + 1])
            entries.append((np.broadcast_to(slope, rows.shape), rows, total.rows_of(block, index)))
        for coordinate, direction in zip(total.others, self._graphs.directions(), strict=True):
            for part, slope in zip(self._varying, self._along(*values, *direction), strict=True):
                (rows,) = np.nonzero(slope)
                at = np.full(len(rows), coordinate)
                entries.append((slope[rows], starts[part] + rows, at))
        data, rows, columns = (np.concatenate(each) for each in zip(*entries, strict=True))
        jacobian = sparse.coo_array((data, (rows, columns)), shape=(starts[-1], total.size))
        with np.errstate(all="ignore"):  # far from the mode it may overflow
            square, half = self._statistics.squared_residuals(
                np.concatenate(vectors), jacobian.tocsr()
            )
            total.add_with_transpose(half * np.square(1.0 / sd).item())
        for i, direction in enumerate(self._graphs.directions()):
            if not self._changes_sd[i]:
                continue
            products = self._along_sd(*values, square, *direction)
            total.of_others[:, i] += np.concatenate([np.ravel(each) for each in products])
