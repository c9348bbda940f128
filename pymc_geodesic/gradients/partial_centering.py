r"""Partial centering: a triangular change of coordinates for hierarchical models.

The coordinates z are whitened by the factor of a sparse precision matrix Q = L Lᵀ, and for effects
with a normal prior of mean m(θ) and precision p(θ) the factor follows the prior. In the order of
elimination, later coordinates first,

.. math::

    e_i &= m_i + r_i\,(c_i + s_i - \bar m_i) + \sqrt{r_i}\; z_i / \sqrt{D_i}, \qquad
    s_i = -\sum_{k > i} \frac{L_{ki}}{L_{ii}} (e_k - c_k), \\
    r_i &= \frac{D_i}{w_i + p_i(θ)}, \qquad D_i = L_{ii}^2 = w_i + p_i(θ_0), \qquad
    \bar m_i = m_i + \frac{p_i(θ_0)}{D_i} δ_i(θ),

where c is the center, θ₀ the other parameters there, and w the precision of an effect without its
prior, given those that are eliminated later. With normal observations of known variance and one set
of effects this is the conditional distribution of an effect for every θ. Otherwise this holds
approximately, near the center: w and L are computed there, with the noise variance and the prior
precisions of effects that are eliminated before. With little data, w ≪ p, the coordinates are those
of the non-centered form, with much data those of the centered form; each effect has its own degree.
For all other coordinates r = 1. Log scales among them are c + s + S(z), S the spline of
`pymc_geodesic.gradients.normal_scores`, in place of c + s + z / √D.

An effect whose n entries x sum to zero has n − 1 coordinates y, of which x is an isometric function
(`_expand_zero_sums`). Dense rows have couplings with y, and sparse rows with x, in place of e.

For correlated effects, m + δ is the mean given the effects of the same group that are eliminated
later, with the coefficients of this regression at θ₀, as in s; otherwise δ = 0. An effect that the
model writes non-centered is e = m + q x in these equations, x the offset and q its scale, and m = 0
unless it is correlated.

The Jacobian is triangular: log |dx/dz| = Σ (½ log r_i − log q_i) + Σ log S'(z) up to a constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pymc_geodesic.gradients.normal_scores import SETTINGS as NORMAL_SCORES
from pymc_geodesic.gradients.normal_scores import NormalScores, from_score, to_score
from pymc_geodesic.runtime.gradient_functions import (
    Callback,
    ComposedFunction,
    GradientFunctionLike,
    array_at,
    evaluate,
)
from pymc_geodesic.runtime.jit import (
    Integers,
    Vector,
    borrow,
    compiled,
    compiled_for_c,
    part,
)
from pymc_geodesic.runtime.sparse_rows import add_row, dot_row


@dataclass(frozen=True, eq=False)
class TriangularFactor:
    """Factor of a precision matrix, by rows of Lᵀ in the order of elimination.

    The first coordinates have sparse rows, all others dense ones.

    Attributes
    ----------
    order : ndarray of int, shape (size,)
        Coordinate of the position that is eliminated first, second, and so on.
    segments : ndarray of int, shape (n_segments, 3)
        First and last (exclusive) coordinate in the order of elimination of each variable, and
        whether the parameters of priors change with its values. The last segment is that of all
        variables without a prior as an effect.
    starts : ndarray of int64, shape (n_sparse + 1,)
    columns : ndarray of uint32
    couplings : ndarray of float32
        L_ki / L_ii of the sparse rows, as in a CSR matrix with sorted columns. No row has a column
        of its own segment.
    zero_sums : ndarray of int, shape (n_zero_sums, 2)
        First and last (exclusive) coordinate of each effect that sums to zero, which are dense.
        Columns with these numbers, and ``size + k`` for the last one, are the entries of the effect
        k, of which there is one more than coordinates.
    dense : ndarray of float32, shape (n (n − 1) / 2,)
        L_ki / L_ii of the other n rows, above the diagonal, one row after the other. Like
        ``couplings`` in single precision: any numbers define a change of coordinates, and these
        take half the time to read.
    precision : ndarray, shape (size,)
        D.
    weight : ndarray, shape (size,)
        w.
    """

    order: np.ndarray
    segments: np.ndarray
    starts: np.ndarray
    columns: np.ndarray
    couplings: np.ndarray
    zero_sums: np.ndarray
    dense: np.ndarray
    precision: np.ndarray
    weight: np.ndarray

    @property
    def n_sparse(self) -> int:
        """Number of sparse rows."""
        return len(self.starts) - 1


# --- the change of coordinates ------------------------------------------------------------------


class Coordinates(NamedTuple):
    """A `TriangularFactor` at a center, for compiled functions.

    Parameters
    ----------
    order, segments, starts, columns, couplings, zero_sums, dense, precision, weight
        See `TriangularFactor`.
    sd : ndarray, shape (size,)
        1 / √D.
    entry : ndarray of int, shape (size,)
        In the order of elimination, the entry of the effects, or −1 for other coordinates.
    center : ndarray, shape (size,)
        c in the order of elimination.
    is_offset : ndarray of bool, shape (size,)
        In the order of elimination, whether the coordinate of the model is x = (e − m) / q.
    spline : ndarray of int, shape (size,)
        In the order of elimination, the number of the spline S, or −1 for other coordinates.
    grid, coefficients
        See `NormalScores`.
    """

    order: Integers
    segments: np.ndarray
    starts: Integers
    columns: np.ndarray
    couplings: np.ndarray
    zero_sums: np.ndarray
    dense: np.ndarray
    precision: Vector
    weight: Vector
    sd: Vector
    entry: Integers
    center: Vector
    is_offset: np.ndarray
    spline: Integers
    grid: np.ndarray
    coefficients: np.ndarray


class Work(NamedTuple):
    """Memory of one evaluation.

    Parameters
    ----------
    away : ndarray, shape (size + n_zero_sums,)
        e − c in the order of elimination.
    coupling, own, r : ndarray, shape (size,)
        s, z / √D (z for coordinates with a spline) and r in the order of elimination.
    point : ndarray, shape (size + 4 n,)
        The position, and coefficients of m, log p, log q and δ of the n entries of effects.
    prior : ndarray, shape (size + 4 n,)
        The gradient of their sum in the position, then m, log p, log q and δ.
    """

    away: Vector
    coupling: Vector
    own: Vector
    r: Vector
    point: Vector
    prior: Vector


@part
def _expand_zero_sums(zero_sums: np.ndarray, away: Vector) -> None:
    """Replace the coordinates y of effects that sum to zero by their n entries.

    These are y_i − S / (n + √n) and −S / √n, where S = Σ y_i (`pymc.ZeroSumNormal`).
    """
    for k in range(zero_sums.shape[0]):
        y = away[zero_sums[k, 0] : zero_sums[k, 1]]
        n, total = y.size + 1.0, y.sum()
        y -= total / (n + math.sqrt(n))
        away[away.size - zero_sums.shape[0] + k] = -total / math.sqrt(n)


@part
def _contract_zero_sums(zero_sums: np.ndarray, bar: Vector) -> None:
    """Replace derivatives in the entries by those in y, the transpose of `_expand_zero_sums`."""
    for k in range(zero_sums.shape[0]):
        x = bar[zero_sums[k, 0] : zero_sums[k, 1]]
        n = x.size + 1.0
        last = bar[bar.size - zero_sums.shape[0] + k]
        x -= x.sum() / (n + math.sqrt(n)) + last / math.sqrt(n)


@part
def _dense_row(at: Coordinates, i: int) -> np.ndarray:
    """Return the couplings of a dense row with all coordinates after it."""
    n_later = at.order.size - i - 1
    end = at.dense.size - n_later * (n_later - 1) // 2
    return at.dense[end - n_later : end]


@part
def _coupling(at: Coordinates, i: int, away: Vector) -> float:
    """Return s_i, from e − c of the coordinates that are eliminated later."""
    if i < at.starts.size - 1:
        return -dot_row(at.couplings, at.columns, at.starts[i], at.starts[i + 1], away)
    row = _dense_row(at, i)
    rest = away[i + 1 : i + 1 + row.size]
    total = 0.0
    for j in range(row.size):
        total += row[j] * rest[j]
    return -total


@part
def _ratio(log_p: float, weight: float, precision: float) -> float:
    """Return r; scales below 10⁻¹⁵⁰ count as that."""
    return precision / (weight + math.exp(min(log_p, 690.0)))


@part
def _centered_mean(at: Coordinates, i: int, mean: float, shift: float) -> float:
    """Return m + δ p(θ₀) / D."""
    return mean + shift * (1.0 - at.weight[i] / at.precision[i])


@part
def _to_position(at: Coordinates, prior: Callback, work: Work, z: Vector, minibatch: int) -> float:
    """Set the position of z, segments in the opposite order of elimination.

    Returns
    -------
    float
        log |dx/dz| up to a constant.
    """
    size, n_segments = z.size, at.segments.shape[0]
    n = (work.point.size - size) // 4
    mean, log_p = work.prior[size : size + n], work.prior[size + n : size + 2 * n]
    log_q, shift = work.prior[size + 2 * n : size + 3 * n], work.prior[size + 3 * n :]
    work.point[:] = 0.0  # no values of a trajectory that diverged before
    log_jacobian = 0.0
    for number in range(n_segments):
        segment = n_segments - 1 - number
        first, last = at.segments[segment, 0], at.segments[segment, 1]
        is_sparse = first < at.starts.size - 1
        if last == at.starts.size - 1:  # sparse rows begin
            _expand_zero_sums(at.zero_sums, work.away)
        if is_sparse:  # not coupled within a segment
            for i in range(first, last):
                work.coupling[i] = _coupling(at, i, work.away)
        for j in range(last - first):
            i = last - 1 - j
            if not is_sparse:
                work.coupling[i] = _coupling(at, i, work.away)
            s, t = work.coupling[i], z[at.order[i]] * at.sd[i]
            a, k = at.entry[i], at.spline[i]
            if a < 0:
                work.away[i] = s + t
                if k >= 0:
                    t = z[at.order[i]]
                    own, slope, _ = from_score(at.grid[k], at.coefficients[k], t)
                    work.away[i] = s + own
                    log_jacobian += math.log(slope)
                work.point[at.order[i]] = at.center[i] + work.away[i]
            else:
                r = _ratio(log_p[a], at.weight[i], at.precision[i])
                remaining = at.center[i] + s - _centered_mean(at, i, mean[a], shift[a])
                e = mean[a] + r * remaining + math.sqrt(r) * t
                work.away[i] = e - at.center[i]
                work.point[at.order[i]] = (
                    (e - mean[a]) * math.exp(-log_q[a]) if at.is_offset[i] else e
                )
                log_jacobian += 0.5 * math.log(r) - log_q[a]
                work.r[i] = r
            work.own[i] = t
        if at.segments[segment, 2]:
            evaluate(prior.address, work.point, minibatch, prior.context, work.prior)
    return log_jacobian


@part
def _to_gradient(
    at: Coordinates,
    prior: Callback,
    work: Work,
    gradient: Vector,
    bar: Vector,
    out: Vector,
    minibatch: int,
) -> None:
    """Set the gradient in z, the transpose of `_to_position`, in the order of elimination.

    Parameters
    ----------
    gradient : ndarray, shape (size,)
        In the coordinates of the model; changed.
    bar : ndarray
        Receives the derivative in e, shape of ``work.away``.
    out : ndarray, shape (size,)
    """
    size, n_sparse = gradient.size, at.starts.size - 1
    n = (work.point.size - size) // 4
    mean, log_q = work.prior[size : size + n], work.prior[size + 2 * n : size + 3 * n]
    shift = work.prior[size + 3 * n :]
    bar[:] = 0.0
    for segment in range(at.segments.shape[0]):
        if at.segments[segment, 2]:
            # parameters of priors, which the segments before this one have used
            evaluate(prior.address, work.point, minibatch, prior.context, work.prior)
            for i in range(size):
                gradient[i] += work.prior[i]
            work.point[size:] = 0.0
        if at.segments[segment, 0] == n_sparse:  # dense rows begin
            _contract_zero_sums(at.zero_sums, bar)
        for i in range(at.segments[segment, 0], at.segments[segment, 1]):
            a, where, sd = at.entry[i], at.order[i], at.sd[i]
            if a < 0:
                bar[i] += gradient[where]
                slope = bar[i]
                k = at.spline[i]
                if k >= 0:
                    _, first, second = from_score(at.grid[k], at.coefficients[k], work.own[i])
                    out[where] = slope * first + second / first
                else:
                    out[where] = slope * sd
            else:
                r, root = work.r[i], math.sqrt(work.r[i])
                by_e = gradient[where] * (math.exp(-log_q[a]) if at.is_offset[i] else 1.0)
                bar[i] += by_e
                slope = r * bar[i]
                out[where] = root * bar[i] * sd
                work.point[size + a] += (1.0 - r) * bar[i]
                if at.is_offset[i]:
                    work.point[size + a] -= by_e
                    work.point[size + 2 * n + a] -= gradient[where] * work.point[where] + 1.0
                work.point[size + 3 * n + a] -= slope * (1.0 - at.weight[i] / at.precision[i])
                centered_mean = _centered_mean(at, i, mean[a], shift[a])
                remaining = at.center[i] + work.coupling[i] - centered_mean
                by_log_r = bar[i] * (r * remaining + 0.5 * root * work.own[i]) + 0.5
                # d log r / d log p = −p / (w + p)
                work.point[size + n + a] -= by_log_r * (1.0 - at.weight[i] * r / at.precision[i])
            if i < n_sparse:
                add_row(at.couplings, at.columns, at.starts[i], at.starts[i + 1], -slope, bar)
            else:
                row, rest = _dense_row(at, i), bar[i + 1 : size]
                for j in range(row.size):
                    rest[j] -= row[j] * slope


_POINTERS = 29
(_INNER, _INNER_CONTEXT, _N_INNER, _PRIOR, _PRIOR_CONTEXT, _N_PRIOR) = range(6)
(_SIZE, _N_SPARSE, _N_ENTRIES, _N_SEGMENTS, _N_COUPLINGS, _N_ZERO_SUMS, _N_SPLINES) = range(6, 13)
_FIRST = 13
_N_INTERVALS = NORMAL_SCORES.n_intervals


@compiled_for_c
def _in_centered_coordinates(position: Any, minibatch: int, context: Any, output: Any) -> float:
    """Gradient and log-density in the coordinates z."""
    table = array_at(context, (_POINTERS + 1,), np.int64)
    size, n_sparse, n = table[_SIZE], table[_N_SPARSE], table[_N_ENTRIES]
    n_dense, n_couplings = size - n_sparse, table[_N_COUPLINGS]
    n_zero_sums, n_rows = table[_N_ZERO_SUMS], size + table[_N_ZERO_SUMS]
    at = Coordinates(
        array_at(table[_FIRST], (size,), np.int64),
        array_at(table[_FIRST + 1], (table[_N_SEGMENTS], 3), np.int64),
        array_at(table[_FIRST + 2], (n_sparse + 1,), np.int64),
        array_at(table[_FIRST + 3], (n_couplings,), np.uint32),
        array_at(table[_FIRST + 4], (n_couplings,), np.float32),
        array_at(table[_FIRST + 5], (n_zero_sums, 2), np.int64),
        array_at(table[_FIRST + 6], (n_dense * (n_dense - 1) // 2,), np.float32),
        array_at(table[_FIRST + 7], (size,), np.float64),
        array_at(table[_FIRST + 8], (size,), np.float64),
        array_at(table[_FIRST + 9], (size,), np.float64),
        array_at(table[_FIRST + 10], (size,), np.int64),
        array_at(table[_FIRST + 11], (size,), np.float64),
        array_at(table[_FIRST + 12], (size,), np.bool_),
        array_at(table[_FIRST + 13], (size,), np.int64),
        array_at(table[_FIRST + 14], (table[_N_SPLINES], 2), np.float64),
        array_at(table[_FIRST + 15], (table[_N_SPLINES], _N_INTERVALS, 4), np.float64),
    )
    n_point, memory = size + 4 * n, table[_POINTERS]
    after = 2 * n_point + 4 * size + 1
    scratch = array_at(memory, (after + 2 * n_rows,), np.float64)
    work = Work(
        scratch[after : after + n_rows],
        scratch[2 * n_point : 2 * n_point + size],
        scratch[2 * n_point + size : 2 * n_point + 2 * size],
        scratch[2 * n_point + 2 * size : 2 * n_point + 3 * size],
        scratch[:n_point],
        scratch[n_point : 2 * n_point],
    )
    gradient, bar = scratch[2 * n_point + 3 * size : after], scratch[after + n_rows :]
    prior = Callback(table[_PRIOR], array_at(table[_PRIOR_CONTEXT], (table[_N_PRIOR],), np.int64))
    inner_context = array_at(table[_INNER_CONTEXT], (table[_N_INNER],), np.int64)
    out = array_at(output, (size + 1,), np.float64)
    log_jacobian = _to_position(at, prior, work, array_at(position, (size,), np.float64), minibatch)
    evaluate(table[_INNER], work.point[:size], minibatch, inner_context, gradient)
    out[size] = gradient[size] + log_jacobian
    _to_gradient(at, prior, work, gradient[:size], bar, out[:size], minibatch)
    return 0.0


@compiled
def _position(
    at: Coordinates, prior: Callback, z: np.ndarray, n: int, minibatch: int
) -> np.ndarray:
    """Return the position of z."""
    at, size = borrow(at), z.size
    work = Work(
        np.zeros(size + at.zero_sums.shape[0]),
        np.empty(size),
        np.empty(size),
        np.empty(size),
        np.zeros(size + 4 * n),
        np.zeros(size + 4 * n),
    )
    _to_position(at, prior, work, z, minibatch)
    return work.point[:size].copy()


@compiled
def _whitened(
    at: Coordinates,
    x: np.ndarray,
    mean: np.ndarray,
    log_p: np.ndarray,
    log_q: np.ndarray,
    shift: np.ndarray,
) -> np.ndarray:
    """Return z of a position, given the parameters of priors there."""
    at = borrow(at)
    size, n_sparse = x.size, at.starts.size - 1
    away, z = np.empty(size + at.zero_sums.shape[0]), np.empty(size)
    for i in range(size):
        a = at.entry[i]
        e = x[at.order[i]]
        if at.is_offset[i]:
            e = mean[a] + e * math.exp(log_q[a])
        away[i] = e - at.center[i]
    for j in range(size):
        i = (n_sparse + j) % size  # dense rows first
        if j == size - n_sparse:
            _expand_zero_sums(at.zero_sums, away)
        s = _coupling(at, i, away)
        a, k = at.entry[i], at.spline[i]
        t = away[i] - s
        if a < 0 and k >= 0:
            z[at.order[i]] = to_score(at.grid[k], at.coefficients[k], t)
            continue
        if a >= 0:
            r = _ratio(log_p[a], at.weight[i], at.precision[i])
            e = away[i] + at.center[i]
            remaining = at.center[i] + s - _centered_mean(at, i, mean[a], shift[a])
            t = (e - mean[a] - r * remaining) / math.sqrt(r)
        z[at.order[i]] = t / at.sd[i]
    return z


class PartialCentering:
    """Gradient function in the coordinates z of partial centering.

    Parameters
    ----------
    inner : GradientFunctionLike
        Gradient in the coordinates of the model, followed by the log-density.
    prior : GradientFunctionLike
        Function of a position and of coefficients a, b, c and d of the parameters of the priors,
        with ``n_entries`` numbers each: the gradient of Σ (a m + b log p + c log q + d δ) in the
        position, then m, log p, log q and δ.
    size : int
        Length of a position.
    entries : ndarray of int
        Coordinate of each entry of the effects, in the order of ``prior``.
    is_offset : ndarray of bool
        Whether the coordinate of each entry is an offset x = (e − m) / q.
    n_zero_sums : int
        Number of effects that sum to zero.

    Attributes
    ----------
    logp_grad : ComposedFunction
    """

    def __init__(
        self,
        inner: GradientFunctionLike,
        prior: GradientFunctionLike,
        size: int,
        entries: np.ndarray,
        is_offset: np.ndarray,
        n_zero_sums: int,
    ) -> None:
        self._prior, self._size = prior, size
        self._entries = np.asarray(entries, dtype=np.int64)
        self._n = len(self._entries)
        self._is_offset = np.asarray(is_offset)
        self._scratch = np.zeros(2 * (size + 4 * self._n) + 6 * size + 1 + 2 * n_zero_sums)
        context = np.zeros(_POINTERS + 1, dtype=np.int64)
        for first, function in ((_INNER, inner), (_PRIOR, prior)):
            context[first], context[first + 1] = function.address, function.context.ctypes.data
            context[first + 2] = function.context.size
        context[_SIZE], context[_N_ENTRIES] = size, self._n
        context[_N_ZERO_SUMS] = n_zero_sums
        context[_POINTERS] = self._scratch.ctypes.data
        self.logp_grad = ComposedFunction(_in_centered_coordinates, context, [inner, prior], self)

    @property
    def evaluated_position(self) -> np.ndarray:
        """Position of the model at which `logp_grad` was last evaluated."""
        return self._scratch[: self._size].copy()  # `Work.point`

    def parameters(self, x: np.ndarray) -> np.ndarray:
        """m, log p, log q and δ of each entry of the effects, shape (4, n), at a position."""
        return self._evaluate_prior(x, np.zeros(self._n))[self._size :].reshape(4, self._n)

    def slopes(self, x: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """Gradient of Σ b log p at a position, for coefficients b."""
        return self._evaluate_prior(x, coefficients)[: self._size]

    def _evaluate_prior(self, x: np.ndarray, of_log_p: np.ndarray) -> np.ndarray:
        point, output = np.zeros(self._size + 4 * self._n), np.empty(self._size + 4 * self._n)
        point[: self._size] = x
        point[self._size + self._n : self._size + 2 * self._n] = of_log_p
        evaluate(self._prior.address, point, 0, self._prior.context, output)
        self._prior.raise_error()
        return output

    def effects(self, x: np.ndarray) -> np.ndarray:
        """Position with e in place of x."""
        mean, _, log_q, _ = self.parameters(x)
        e = x.copy()
        offsets = self._entries[self._is_offset]
        e[offsets] = (mean + x[self._entries] * np.exp(log_q))[self._is_offset]
        return e

    def set_factor(
        self,
        center: np.ndarray,
        factor: TriangularFactor,
        splines: Mapping[int, NormalScores] | None = None,
    ) -> None:
        """Change the coordinates.

        Parameters
        ----------
        center : ndarray, shape (size,)
            c, a position of the model: z = 0 for coordinates without a spline.
        factor : TriangularFactor
            Of the precision matrix there.
        splines : mapping of int to NormalScores, optional
            Splines by coordinate of the position.
        """
        splines = {} if splines is None else splines
        spline = np.full(self._size, -1, dtype=np.int64)
        spline[list(splines)] = np.arange(len(splines))
        scores = NormalScores.join(list(splines.values()))
        entry = np.full(self._size, -1, dtype=np.int64)
        entry[self._entries] = np.arange(self._n)
        is_offset = np.zeros(self._size, dtype=bool)
        is_offset[self._entries] = self._is_offset
        self._coordinates = Coordinates(
            factor.order,
            factor.segments,
            factor.starts,
            factor.columns,
            factor.couplings,
            factor.zero_sums,
            factor.dense,
            factor.precision,
            factor.weight,
            1.0 / np.sqrt(factor.precision),
            np.ascontiguousarray(entry[factor.order]),
            np.ascontiguousarray(self.effects(center)[factor.order]),
            np.ascontiguousarray(is_offset[factor.order]),
            np.ascontiguousarray(spline[factor.order]),
            scores.grid,
            scores.coefficients,
        )
        context = self.logp_grad.context
        context[_N_SPLINES] = len(splines)
        context[_N_SPARSE], context[_N_SEGMENTS] = factor.n_sparse, len(factor.segments)
        context[_N_COUPLINGS] = factor.couplings.size
        for i, array in enumerate(self._coordinates):
            assert array.flags.c_contiguous
            context[_FIRST + i] = array.ctypes.data

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Coordinates z of a position."""
        return _whitened(self._coordinates, np.ascontiguousarray(x), *self.parameters(x))

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position of coordinates z."""
        prior = Callback(self._prior.address, self._prior.context)
        x = _position(self._coordinates, prior, np.ascontiguousarray(z), self._n, 0)
        self._prior.raise_error()
        return x
