"""Baselines for subgradient samplers of the linear support vector machine.

The model is a binary linear support vector machine without intercept (append a column of ones with
its own prior scale for an intercept):

    w_j ~ N(0, prior_scale_j²),  log ψ(y_i) = −cost · max(0, margin − y_i x_i·w).

- `DataAugmentationGibbs`: Gibbs sampling with inverse-Gaussian auxiliary variables, exact.
- `StochasticRandomWalk`: random-walk Metropolis with a sequential test on minibatches.
- `pegasos`: stochastic subgradient descent to the mode.
- `quadrature`: the posterior of two weights on a grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy import linalg

BLOCK = 512
"""Rows whose scaled copies fit in the cache of the processor."""


@njit(nogil=True)
def auxiliary_precisions(rng, X, y, w, cost, margin, precision, linear):
    """Draw 1 / λ_i for all rows and accumulate the conditional normal distribution of the weights.

    ψ_i = ∫ (2π λ)^(-1/2) exp(−(λ + h(ℓ − y_i x_i·w))² / (2λ)) dλ with h = cost / 2, so that 1 / λ_i
    given w is inverse Gaussian with mean 1 / (h |ℓ − y_i x_i·w|) and shape 1.
    """
    n_rows, d = X.shape
    half = 0.5 * cost
    scaled = np.empty((BLOCK, d))
    pull = np.empty(BLOCK)
    for start in range(0, n_rows, BLOCK):
        stop = min(start + BLOCK, n_rows)
        rows = X[start:stop]
        scores = np.dot(rows, w)
        for i in range(stop - start):
            distance = half * abs(margin - y[start + i] * scores[i])
            mean = 1.0 / max(distance, 1e-12)
            normal = rng.standard_normal()
            # The product of the roots is mean²; this form of the smaller avoids cancellation.
            a = mean * normal * normal
            root = 1.0 + 0.5 * a + math.sqrt(a + 0.25 * a * a)
            inverse = mean / root if rng.random() * (1.0 + root) <= root else mean * root
            weight = half * math.sqrt(inverse)
            for j in range(d):
                scaled[i, j] = weight * rows[i, j]
            pull[i] = half * y[start + i] * (1.0 + half * margin * inverse)
        part = scaled[: stop - start]
        precision += np.dot(part.T, part)
        linear += np.dot(rows.T, pull[: stop - start])


class DataAugmentationGibbs:
    """Gibbs sampler of Polson and Scott (2011) for the Bayesian linear support vector machine.

    A sweep draws one auxiliary variable for each row and then all weights from a normal
    distribution: one pass over the rows in compiled code with BLAS products, and one Cholesky
    factor.

    Parameters
    ----------
    X : ndarray, shape (row, feature)
    y : ndarray, shape (row,)
        −1 and +1.
    cost, margin : float
    prior_scale : float or ndarray, shape (feature,)
    random_seed : int
    start : ndarray, shape (feature,), optional
        Zero by default.
    """

    def __init__(self, X, y, cost=1.0, margin=1.0, prior_scale=1.0, *, random_seed=0, start=None):
        self.X = np.ascontiguousarray(X, dtype=float)
        self.y = np.asarray(y, dtype=float)
        self.cost, self.margin = float(cost), float(margin)
        d = self.X.shape[1]
        self.prior_precision = np.broadcast_to(1.0 / np.square(prior_scale), d).copy()
        self.rng = np.random.default_rng(random_seed)
        self.weights = np.zeros(d) if start is None else np.array(start, dtype=float)

    def sweep(self) -> np.ndarray:
        """Draw all auxiliary variables and then all weights; return the weights."""
        precision, linear = np.diag(self.prior_precision), np.zeros(self.weights.size)
        auxiliary_precisions(
            self.rng, self.X, self.y, self.weights, self.cost, self.margin, precision, linear
        )
        factor = linalg.cholesky(precision, lower=True)
        center = linalg.solve_triangular(factor, linear, lower=True)
        noise = self.rng.standard_normal(center.size)
        self.weights = linalg.solve_triangular(factor, center + noise, lower=True, trans="T")
        return self.weights

    def sample(self, draws: int, tune: int = 100) -> np.ndarray:
        """Return draws after discarding ``tune`` sweeps, shape (draw, feature)."""
        for _ in range(tune):
            self.sweep()
        return np.stack([self.sweep() for _ in range(draws)])


@njit(nogil=True)
def random_walk(rng, X, y, w, cost, margin, prior_precision, scale, batch_size, level, n_steps):
    """Run steps of the random walk, in place; return accepted proposals and number of rows read."""
    n_rows, d = X.shape
    proposal = np.empty(d)
    accepted, rows_read = 0, 0
    for _ in range(n_steps):
        threshold = math.log(rng.random())
        for j in range(d):
            proposal[j] = w[j] + scale * rng.standard_normal()
            threshold += 0.5 * prior_precision[j] * (proposal[j] ** 2 - w[j] ** 2)
        threshold /= n_rows
        start = rng.integers(0, n_rows)
        total, squares, n = 0.0, 0.0, 0
        while True:
            for _ in range(min(batch_size, n_rows - n)):
                i = (start + n) % n_rows
                old, new = 0.0, 0.0
                for j in range(d):
                    old += X[i, j] * w[j]
                    new += X[i, j] * proposal[j]
                change = cost * (max(0.0, margin - y[i] * old) - max(0.0, margin - y[i] * new))
                total += change
                squares += change * change
                n += 1
            mean = total / n
            if n == n_rows:
                break
            variance = max(squares / n - mean * mean, 0.0) * n / (n - 1)
            error = math.sqrt(variance / n * (1.0 - (n - 1) / (n_rows - 1)))
            # Student's t with batch_size − 1 degrees of freedom or more is close to normal.
            if (
                error > 0.0
                and 0.5 * math.erfc(abs(mean - threshold) / error / 1.4142135623730951) < level
            ):
                break
        rows_read += n
        if mean > threshold:
            w[:] = proposal
            accepted += 1
    return accepted, rows_read


class StochasticRandomWalk:
    """Random-walk Metropolis whose test reads only as many rows as it needs.

    Korattikara, Chen and Welling (2014): the mean change of the log-likelihood is estimated from
    growing minibatches until the probability of a wrong decision is below ``level`` (0 reads all
    rows and is exact). Rows are shuffled once and read in order from a random position.

    Parameters
    ----------
    X, y, cost, margin, prior_scale, random_seed, start
        As for `DataAugmentationGibbs`.
    scale : float
        Standard deviation of the proposal; the max-margin paper has a variance of 0.01.
    batch_size : int
        Rows by which a minibatch grows.
    level : float
        ε of the test.
    """

    def __init__(
        self, X, y, cost=1.0, margin=1.0, prior_scale=1.0, *, scale=0.1, batch_size=500, level=0.05,
        random_seed=0, start=None,
    ):  # fmt: skip
        self.rng = np.random.default_rng(random_seed)
        order = self.rng.permutation(len(y))
        self.X = np.ascontiguousarray(np.asarray(X, dtype=float)[order])
        self.y = np.asarray(y, dtype=float)[order]
        self.cost, self.margin = float(cost), float(margin)
        d = self.X.shape[1]
        self.prior_precision = np.broadcast_to(1.0 / np.square(prior_scale), d).copy()
        self.scale, self.batch_size, self.level = float(scale), int(batch_size), float(level)
        self.weights = np.zeros(d) if start is None else np.array(start, dtype=float)
        self.accepted = self.rows_read = self.steps = 0

    def step(self, n_steps: int = 1) -> np.ndarray:
        """Make proposals; return the weights after them."""
        accepted, rows_read = random_walk(
            self.rng, self.X, self.y, self.weights, self.cost, self.margin, self.prior_precision,
            self.scale, self.batch_size, self.level, n_steps,
        )  # fmt: skip
        self.accepted += accepted
        self.rows_read += rows_read
        self.steps += n_steps
        return self.weights.copy()

    def sample(self, draws: int, tune: int = 100, thin: int = 1) -> np.ndarray:
        """Return draws after discarding ``tune`` proposals, shape (draw, feature)."""
        self.step(tune)
        return np.stack([self.step(thin) for _ in range(draws)])


@njit(nogil=True)
def subgradient_descent(rng, X, y, cost, margin, prior_precision, batch_size, n_steps):
    """Pegasos with averaging over the second half of the steps."""
    n_rows, d = X.shape
    w, mean, gradient = np.zeros(d), np.zeros(d), np.empty(d)
    strongest = prior_precision.min() / (cost * n_rows)
    half = n_steps // 2
    for step in range(n_steps):
        rate = 1.0 / (strongest * (step + 1))
        for j in range(d):
            gradient[j] = -prior_precision[j] * w[j] / (cost * n_rows)
        for _ in range(batch_size):
            i = rng.integers(0, n_rows)
            score = 0.0
            for j in range(d):
                score += X[i, j] * w[j]
            if y[i] * score < margin:
                for j in range(d):
                    gradient[j] += y[i] * X[i, j] / batch_size
        for j in range(d):
            w[j] += rate * gradient[j]
            if step >= half:
                mean[j] += (w[j] - mean[j]) / (step - half + 1)
    return mean


def pegasos(
    X: np.ndarray, y: np.ndarray, cost: float = 1.0, margin: float = 1.0, prior_scale: float = 1.0,
    *, n_steps: int = 100_000, batch_size: int = 1, random_seed: int = 0,
) -> np.ndarray:  # fmt: skip
    """Return the mode of the posterior by stochastic subgradients with steps 1 / (λ t).

    Shalev-Shwartz, Singer and Srebro (2007), with the mean of the second half of the iterates.
    """
    X = np.ascontiguousarray(X, dtype=float)
    precision = np.broadcast_to(1.0 / np.square(prior_scale), X.shape[1]).copy()
    return subgradient_descent(
        np.random.default_rng(random_seed), X, np.asarray(y, dtype=float), float(cost),
        float(margin), precision, batch_size, n_steps,
    )  # fmt: skip


@njit(nogil=True)
def log_posterior(points, X, y, cost, margin, prior_precision):
    """Return the log-density at points, shape (point, feature), up to a constant."""
    result = np.empty(points.shape[0])
    for k in range(points.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            total -= 0.5 * prior_precision[j] * points[k, j] ** 2
        for i in range(X.shape[0]):
            score = 0.0
            for j in range(X.shape[1]):
                score += X[i, j] * points[k, j]
            total -= cost * max(0.0, margin - y[i] * score)
        result[k] = total
    return result


@dataclass(frozen=True)
class Quadrature:
    """A posterior of two weights on a grid.

    Attributes
    ----------
    axes : tuple of ndarray
        Middles of the cells along both weights.
    probability : ndarray, shape (cell, cell)
        Of each cell; the first axis is the first weight.
    """

    axes: tuple[np.ndarray, np.ndarray]
    probability: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Posterior means."""
        return np.array([np.sum(self._marginal(k) * self.axes[k]) for k in range(2)])

    @property
    def covariance(self) -> np.ndarray:
        """Posterior covariance matrix."""
        first, second = (axis - mean for axis, mean in zip(self.axes, self.mean, strict=True))
        off = first @ self.probability @ second
        return np.array(
            [
                [np.sum(self._marginal(0) * first**2), off],
                [off, np.sum(self._marginal(1) * second**2)],
            ]
        )

    @property
    def sd(self) -> np.ndarray:
        """Posterior standard deviations."""
        return np.sqrt(np.diag(self.covariance))

    def _marginal(self, k: int) -> np.ndarray:
        return self.probability.sum(axis=1 - k)

    def sample(self, draws: int, rng: np.random.Generator) -> np.ndarray:
        """Draw cells, and a point within each; shape (draw, 2)."""
        cell = rng.choice(self.probability.size, size=draws, p=self.probability.ravel())
        corner = np.stack(np.unravel_index(cell, self.probability.shape), axis=1)
        width = np.array([axis[1] - axis[0] for axis in self.axes])
        origin = np.array([axis[0] for axis in self.axes])
        return origin + width * (corner + rng.random((draws, 2)) - 0.5)


def quadrature(
    X: np.ndarray, y: np.ndarray, cost: float = 1.0, margin: float = 1.0, prior_scale: float = 1.0,
    *, cells: int = 400, half_width: float = 7.0,
) -> Quadrature:  # fmt: skip
    """Return the posterior of two weights by the midpoint rule on an adaptive grid.

    Parameters
    ----------
    X, y, cost, margin, prior_scale
        As for `DataAugmentationGibbs`, with two features.
    cells : int
        Number of cells along each weight.
    half_width : float
        Half the width of the grid in standard deviations.
    """
    X, y = np.ascontiguousarray(X, dtype=float), np.asarray(y, dtype=float)
    precision = np.broadcast_to(1.0 / np.square(prior_scale), 2).copy()
    middle, half = np.zeros(2), 5.0 / np.sqrt(precision)
    for n in (100, 100, 100, 100, cells):
        axes = tuple(
            m + h * (2 * np.arange(n) + 1 - n) / n for m, h in zip(middle, half, strict=True)
        )
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        value = log_posterior(points, X, y, float(cost), float(margin), precision)
        weight = np.exp(value - value.max()).reshape(n, n)
        result = Quadrature(axes, weight / weight.sum())
        width = np.array([axis[1] - axis[0] for axis in axes])
        # If the posterior lies within one cell, its width is that of the cell.
        middle, half = result.mean, half_width * np.maximum(result.sd, 0.3 * width)
    return result
