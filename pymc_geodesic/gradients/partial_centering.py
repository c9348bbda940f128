r"""Partial centering: a triangular change of coordinates for hierarchical models.

The coordinates z are whitened by the factor of a sparse precision matrix Q = L Lᵀ, and for effects
with a normal prior of mean m(θ) and precision p(θ) the factor follows the prior. In the order of
elimination, later coordinates first,

.. math::

    e_i &= m_i + r_i\,(c_i + s_i - m_i) + \sqrt{r_i}\; z_i / \sqrt{D_i}, \qquad
    s_i = -\sum_{k > i} \frac{L_{ki}}{L_{ii}} (e_k - c_k), \\
    r_i &= \frac{D_i}{w_i + p_i(θ)}, \qquad D_i = L_{ii}^2 = w_i + p_i(θ_0),

where c is the center, θ₀ the other parameters there, and w the precision of an effect without its
prior, given those that are eliminated later. In a model with normal observations this is the
conditional distribution of an effect for every θ. With little data, w ≪ p, the coordinates are
those of the non-centered form, with much data those of the centered form; each effect has its own
degree. For all other coordinates r = 1. An effect that the model writes as scale × offset is e = q x
in these equations, q the scale and x the offset.

The Jacobian is triangular: log |dx/dz| = Σ (½ log r_i − log q_i) up to a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.runtime.gradient_functions import (
    ComposedFunction,
    GradientFunctionLike,
    array_at,
    evaluate,
)
from pymc_geodesic.runtime.jit import compiled, compiled_for_c, machine_address, part


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
    starts, columns, couplings : ndarray
        L_ki / L_ii of the sparse rows, as in a CSR matrix; ``starts`` has the length ``n_sparse``
        + 1.
    dense : ndarray, shape (size − n_sparse, size − n_sparse)
        L_ki / L_ii of the other rows, above the diagonal.
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
    dense: np.ndarray
    precision: np.ndarray
    weight: np.ndarray

    @property
    def n_sparse(self) -> int:
        """Number of sparse rows."""
        return len(self.starts) - 1


# --- the change of coordinates ------------------------------------------------------------------


@part
def _coupling(
    i: int,
    n_sparse: int,
    starts: np.ndarray,
    columns: np.ndarray,
    couplings: np.ndarray,
    dense: np.ndarray,
    away: np.ndarray,
) -> float:
    """s_i, from e − c of the coordinates that are eliminated later."""
    total = 0.0
    if i < n_sparse:
        for j in range(starts[i], starts[i + 1]):
            total += couplings[j] * away[columns[j]]
        return -total
    row, rest = dense[i - n_sparse], away[n_sparse:]
    for j in range(i - n_sparse + 1, row.size):
        total += row[j] * rest[j]
    return -total


@part
def _log_ratio(log_p: float, weight: float, precision: float) -> float:
    """log r, without overflow for a scale close to zero."""
    if log_p > 0.0:
        return math.log(precision) - log_p - math.log1p(weight * math.exp(-log_p))
    return math.log(precision) - math.log(weight + math.exp(log_p))


_POINTERS = 24
(_INNER, _INNER_CONTEXT, _N_INNER, _PRIOR, _PRIOR_CONTEXT, _N_PRIOR) = range(6)
(_SIZE, _N_SPARSE, _N_ENTRIES, _N_SEGMENTS, _N_COUPLINGS) = range(6, 11)
(_ORDER, _ENTRY, _SEGMENTS, _STARTS, _COLUMNS, _COUPLINGS, _DENSE) = range(11, 18)
(_PRECISION, _WEIGHT, _CENTER, _SCRATCH) = range(18, 22)


@compiled_for_c
def _in_centered_coordinates(position: Any, minibatch: int, context: Any, output: Any) -> float:
    """Gradient and log-density in the coordinates z."""
    table = array_at(context, (_POINTERS,), np.int64)
    size, n_sparse, n = table[_SIZE], table[_N_SPARSE], table[_N_ENTRIES]
    n_dense, n_segments = size - n_sparse, table[_N_SEGMENTS]
    order = array_at(table[_ORDER], (size,), np.int64)
    entry = array_at(table[_ENTRY], (size,), np.int64)
    segments = array_at(table[_SEGMENTS], (n_segments, 3), np.int64)
    starts = array_at(table[_STARTS], (n_sparse + 1,), np.int64)
    columns = array_at(table[_COLUMNS], (table[_N_COUPLINGS],), np.int64)
    couplings = array_at(table[_COUPLINGS], (table[_N_COUPLINGS],), np.float64)
    dense = array_at(table[_DENSE], (n_dense, n_dense), np.float64)
    precision = array_at(table[_PRECISION], (size,), np.float64)
    weight = array_at(table[_WEIGHT], (size,), np.float64)
    center = array_at(table[_CENTER], (size,), np.float64)
    scratch = array_at(table[_SCRATCH], (7 * size + 1 + 2 * (size + 3 * n),), np.float64)
    away, coupling, log_r = scratch[:size], scratch[size : 2 * size], scratch[2 * size : 3 * size]
    bar, own = scratch[3 * size : 4 * size], scratch[4 * size : 5 * size]
    gradient = scratch[5 * size : 6 * size + 1]
    after = 7 * size + 1
    point = scratch[after : after + size + 3 * n]  # x, then coefficients of m, log p and log q
    prior = scratch[after + size + 3 * n :]  # their gradient in x, then m, log p and log q
    prior_context = array_at(table[_PRIOR_CONTEXT], (table[_N_PRIOR],), np.int64)
    inner_context = array_at(table[_INNER_CONTEXT], (table[_N_INNER],), np.int64)
    z = array_at(position, (size,), np.float64)
    out = array_at(output, (size + 1,), np.float64)
    mean, log_p, log_q = (
        prior[size : size + n],
        prior[size + n : size + 2 * n],
        prior[size + 2 * n : size + 3 * n],
    )

    # x(z), segments in the opposite order of elimination
    point[size:] = 0.0
    log_jacobian = 0.0
    for k in range(n_segments):
        segment = n_segments - 1 - k
        first, last = segments[segment, 0], segments[segment, 1]
        for j in range(last - first):
            i = last - 1 - j
            s = _coupling(i, n_sparse, starts, columns, couplings, dense, away)
            t = z[order[i]] / math.sqrt(precision[i])
            a = entry[i]
            if a < 0:
                away[i] = s + t
                point[order[i]] = center[i] + away[i]
            else:
                log_ratio = _log_ratio(log_p[a], weight[i], precision[i])
                r, root = math.exp(log_ratio), math.exp(0.5 * log_ratio)
                e = mean[a] + r * (center[i] + s - mean[a]) + root * t
                away[i] = e - center[i]
                point[order[i]] = e * math.exp(-log_q[a])
                log_jacobian += 0.5 * log_ratio - log_q[a]
                log_r[i] = log_ratio
            coupling[i], own[i] = s, t
        if segments[segment, 2]:
            evaluate(table[_PRIOR], point, minibatch, prior_context, prior)

    evaluate(table[_INNER], point[:size], minibatch, inner_context, gradient)
    out[size] = gradient[size] + log_jacobian

    # its transpose, in the order of elimination; bar is the derivative in e
    bar[:] = 0.0
    for segment in range(n_segments):
        first, last = segments[segment, 0], segments[segment, 1]
        if segments[segment, 2]:
            # parameters of priors, which the segments before this one have used
            evaluate(table[_PRIOR], point, minibatch, prior_context, prior)
            for i in range(size):
                gradient[i] += prior[i]
            point[size:] = 0.0
        for i in range(first, last):
            a = entry[i]
            if a < 0:
                bar[i] += gradient[order[i]]
                slope = bar[i]
                out[order[i]] = slope / math.sqrt(precision[i])
            else:
                scale = math.exp(-log_q[a])
                r, root = math.exp(log_r[i]), math.exp(0.5 * log_r[i])
                bar[i] += gradient[order[i]] * scale
                remaining = center[i] + coupling[i] - mean[a]
                slope = r * bar[i]
                out[order[i]] = root * bar[i] / math.sqrt(precision[i])
                point[size + a] += (1.0 - r) * bar[i]
                by_log_r = bar[i] * (r * remaining + 0.5 * root * own[i]) + 0.5
                # d log r / d log p = −p / (w + p)
                share = math.exp(log_p[a] + log_r[i]) / precision[i]
                point[size + n + a] -= by_log_r * share
                point[size + 2 * n + a] -= gradient[order[i]] * point[order[i]] + 1.0
            if i < n_sparse:
                for j in range(starts[i], starts[i + 1]):
                    bar[columns[j]] -= couplings[j] * slope
            else:
                row, rest = dense[i - n_sparse], bar[n_sparse:]
                for j in range(i - n_sparse + 1, n_dense):
                    rest[j] -= row[j] * slope
    return 0.0


@compiled
def _whitened(
    n_sparse: int,
    order: np.ndarray,
    entry: np.ndarray,
    starts: np.ndarray,
    columns: np.ndarray,
    couplings: np.ndarray,
    dense: np.ndarray,
    precision: np.ndarray,
    weight: np.ndarray,
    center: np.ndarray,
    x: np.ndarray,
    mean: np.ndarray,
    log_p: np.ndarray,
    log_q: np.ndarray,
) -> np.ndarray:
    """z of a position, given the parameters of priors there."""
    size = x.size
    away, z = np.empty(size), np.empty(size)
    for i in range(size):
        a = entry[i]
        e = x[order[i]] if a < 0 else x[order[i]] * math.exp(log_q[a])
        away[i] = e - center[i]
    for i in range(size):
        s = _coupling(i, n_sparse, starts, columns, couplings, dense, away)
        a = entry[i]
        t = away[i] - s
        if a >= 0:
            log_ratio = _log_ratio(log_p[a], weight[i], precision[i])
            e = away[i] + center[i]
            t = e - mean[a] - math.exp(log_ratio) * (center[i] + s - mean[a])
            t *= math.exp(-0.5 * log_ratio)
        z[order[i]] = t * math.sqrt(precision[i])
    return z


@compiled
def _position(
    prior_address: int,
    prior_context: np.ndarray,
    n_sparse: int,
    order: np.ndarray,
    entry: np.ndarray,
    segments: np.ndarray,
    starts: np.ndarray,
    columns: np.ndarray,
    couplings: np.ndarray,
    dense: np.ndarray,
    precision: np.ndarray,
    weight: np.ndarray,
    center: np.ndarray,
    z: np.ndarray,
    n: int,
) -> np.ndarray:
    """Position x of z."""
    size = z.size
    away = np.zeros(size)
    point, prior = np.zeros(size + 3 * n), np.zeros(size + 3 * n)
    for k in range(len(segments)):
        segment = len(segments) - 1 - k
        first, last = segments[segment, 0], segments[segment, 1]
        for j in range(last - first):
            i = last - 1 - j
            s = _coupling(i, n_sparse, starts, columns, couplings, dense, away)
            t = z[order[i]] / math.sqrt(precision[i])
            a = entry[i]
            if a < 0:
                away[i] = s + t
                point[order[i]] = center[i] + away[i]
            else:
                mean, log_q = prior[size + a], prior[size + 2 * n + a]
                log_ratio = _log_ratio(prior[size + n + a], weight[i], precision[i])
                r, root = math.exp(log_ratio), math.exp(0.5 * log_ratio)
                e = mean + r * (center[i] + s - mean) + root * t
                away[i] = e - center[i]
                point[order[i]] = e * math.exp(-log_q)
        if segments[segment, 2]:
            evaluate(prior_address, point, 0, prior_context, prior)
    return point[:size]


class PartialCentering:
    """Gradient function in the coordinates z of partial centering.

    Parameters
    ----------
    inner : GradientFunctionLike
        Gradient in the coordinates of the model, followed by the log-density.
    prior : GradientFunctionLike
        Function of a position and of coefficients a, b and c of the parameters of the priors, with
        ``n_entries`` numbers each: the gradient of Σ (a m + b log p + c log q) in the position,
        then m, log p and log q.
    size : int
        Length of a position.
    entries : sequence of int
        Coordinate of each entry of the effects, in the order of ``prior``.

    Attributes
    ----------
    logp_grad : ComposedFunction
    """

    def __init__(
        self,
        inner: GradientFunctionLike,
        prior: GradientFunctionLike,
        size: int,
        entries: Sequence[int],
    ) -> None:
        self._prior, self._size = prior, size
        self._entries = np.asarray(entries, dtype=np.int64)
        self._n = len(self._entries)
        self._scratch = np.zeros(7 * size + 1 + 2 * (size + 3 * self._n))
        context = np.zeros(_POINTERS, dtype=np.int64)
        for first, function in ((_INNER, inner), (_PRIOR, prior)):
            context[first], context[first + 1] = function.address, function.context.ctypes.data
            context[first + 2] = function.context.size
        context[_SIZE], context[_N_ENTRIES] = size, self._n
        context[_SCRATCH] = self._scratch.ctypes.data
        self.logp_grad = ComposedFunction(_in_centered_coordinates, context, [inner, prior], self)

    def parameters(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean m, log p and log q of each entry of the effects, at a position."""
        point, output = np.zeros(self._size + 3 * self._n), np.empty(self._size + 3 * self._n)
        point[: self._size] = x
        evaluate(self._prior.address, point, 0, self._prior.context, output)
        self._prior.raise_error()
        mean, log_p, log_q = output[self._size :].reshape(3, self._n)
        return mean, log_p, log_q

    def slopes(self, x: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """Gradient of Σ b log p at a position, for coefficients b."""
        point, output = np.zeros(self._size + 3 * self._n), np.empty(self._size + 3 * self._n)
        point[: self._size] = x
        point[self._size + self._n : self._size + 2 * self._n] = coefficients
        evaluate(self._prior.address, point, 0, self._prior.context, output)
        self._prior.raise_error()
        return output[: self._size]

    def effects(self, x: np.ndarray) -> np.ndarray:
        """Position with e in place of x."""
        _, _, log_q = self.parameters(x)
        e = x.copy()
        e[self._entries] *= np.exp(log_q)
        return e

    def set_factor(self, center: np.ndarray, factor: TriangularFactor) -> None:
        """Change the coordinates.

        Parameters
        ----------
        center : ndarray, shape (size,)
            Position of the model, which becomes z = 0.
        factor : TriangularFactor
            Of the precision matrix there.
        """
        entry = np.full(self._size, -1, dtype=np.int64)
        entry[self._entries] = np.arange(self._n)
        self._arrays = {
            _ORDER: factor.order,
            _ENTRY: np.ascontiguousarray(entry[factor.order]),
            _SEGMENTS: factor.segments,
            _STARTS: factor.starts,
            _COLUMNS: factor.columns,
            _COUPLINGS: factor.couplings,
            _DENSE: factor.dense,
            _PRECISION: factor.precision,
            _WEIGHT: factor.weight,
            _CENTER: np.ascontiguousarray(self.effects(center)[factor.order]),
        }
        context = self.logp_grad.context
        context[_N_SPARSE], context[_N_SEGMENTS] = factor.n_sparse, len(factor.segments)
        context[_N_COUPLINGS] = factor.couplings.size
        for where, array in self._arrays.items():
            assert array.flags.c_contiguous
            context[where] = array.ctypes.data

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Coordinates z of a position."""
        at = self._arrays
        return _whitened(
            int(self.logp_grad.context[_N_SPARSE]),
            *(at[k] for k in (_ORDER, _ENTRY, _STARTS, _COLUMNS, _COUPLINGS, _DENSE)),
            *(at[k] for k in (_PRECISION, _WEIGHT, _CENTER)),
            np.ascontiguousarray(x),
            *(np.ascontiguousarray(each) for each in self.parameters(x)),
        )

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position of coordinates z."""
        at = self._arrays
        position = _position(
            self._prior.address,
            self._prior.context,
            int(self.logp_grad.context[_N_SPARSE]),
            *(at[k] for k in (_ORDER, _ENTRY, _SEGMENTS, _STARTS, _COLUMNS, _COUPLINGS, _DENSE)),
            *(at[k] for k in (_PRECISION, _WEIGHT, _CENTER)),
            np.ascontiguousarray(z),
            self._n,
        )
        self._prior.raise_error()
        return position
