r"""Who belongs to which expert of a Dirichlet-process mixture of classifiers.

Experts have normal features, whose mean and covariance are integrated out, and weights. With the
conjugate prior of mean m₀, strength κ₀, degrees of freedom ν₀ and scatter Ψ₀, one of n rows has

.. math:: \kappa = \kappa_0 + n, \quad \nu = \nu_0 + n, \quad
          m = \frac{\kappa_0 m_0 + \sum_i x_i}{\kappa}, \quad
          \Psi = \Psi_0 + \kappa_0 m_0 m_0^\top + \sum_i x_i x_i^\top - \kappa m m^\top

and a new row the predictive density

.. math:: p(x) = t_{\nu - p + 1}\Bigl(x \Bigm| m,
          \frac{\kappa + 1}{\kappa (\nu - p + 1)} \Psi\Bigr).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.streams import fill_normal, uniform

HINGE, LOGIT = 0, 1
"""Losses: the multi-class hinge, and −log softmax, the multinomial logit."""


class Experts(NamedTuple):
    """Expert k of the arrays' first axis; those without rows have the prior's numbers.

    Attributes
    ----------
    sizes : ndarray, shape (K,)
        Rows of each.
    mean : ndarray, shape (K, p)
        m.
    lower : ndarray, shape (K, p, p)
        Lower Cholesky factor of Ψ.
    weights : ndarray, shape (K, L, q)
        η, of the p features and perhaps an intercept.
    """

    sizes: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    weights: np.ndarray


@compiled
def rank_one(lower: np.ndarray, vector: np.ndarray, sign: float) -> None:
    """Turn the factor of Ψ into that of Ψ ± v vᵀ, in place; v is used up.

    Givens rotations for plus, hyperbolic ones for minus (Golub, Van Loan, section 6.5.4).
    """
    for i in range(vector.size):
        square = lower[i, i] ** 2 + sign * vector[i] ** 2
        root = math.sqrt(max(square, 1e-300))
        c, s = root / lower[i, i], vector[i] / lower[i, i]
        lower[i, i] = root
        for j in range(i + 1, vector.size):
            lower[j, i] = (lower[j, i] + sign * s * vector[j]) / c
            vector[j] = c * vector[j] - s * lower[j, i]


@compiled
def add_row(experts: Experts, k: int, x: np.ndarray, strength: float, scratch: np.ndarray) -> None:
    """Give expert k a row."""
    kappa = strength + experts.sizes[k]
    for j in range(x.size):
        gap = x[j] - experts.mean[k, j]
        scratch[j] = math.sqrt(kappa / (kappa + 1.0)) * gap
        experts.mean[k, j] += gap / (kappa + 1.0)
    experts.sizes[k] += 1.0
    rank_one(experts.lower[k], scratch, 1.0)


@compiled
def remove_row(
    experts: Experts, k: int, x: np.ndarray, strength: float, scratch: np.ndarray
) -> None:
    """Take a row from expert k."""
    kappa = strength + experts.sizes[k] - 1.0
    for j in range(x.size):
        experts.mean[k, j] -= (x[j] - experts.mean[k, j]) / kappa
        scratch[j] = math.sqrt(kappa / (kappa + 1.0)) * (x[j] - experts.mean[k, j])
    experts.sizes[k] -= 1.0
    rank_one(experts.lower[k], scratch, -1.0)


@compiled
def log_predictive(
    mean: np.ndarray, lower: np.ndarray, kappa: float, nu: float, x: np.ndarray,
    scratch: np.ndarray,
) -> float:  # fmt: skip
    """Logarithm of the predictive density of a row."""
    p = x.size
    df = nu - p + 1.0
    square, log_determinant = 0.0, 0.0
    for i in range(p):
        total = x[i] - mean[i]
        for j in range(i):
            total -= lower[i, j] * scratch[j]
        scratch[i] = total / lower[i, i]
        square += scratch[i] ** 2
        log_determinant += math.log(lower[i, i])
    scale = (kappa + 1.0) / (kappa * df)
    return (
        math.lgamma(0.5 * (df + p))
        - math.lgamma(0.5 * df)
        - 0.5 * p * math.log(df * math.pi * scale)
        - log_determinant
        - 0.5 * (df + p) * math.log1p(square / (scale * df))
    )


@compiled
def loss_of_scores(scores: np.ndarray, label: int, margin: float, loss: int) -> float:
    """Return max(0, ℓ + the largest other score, less that of the label), or −log of its share."""
    other, largest = -math.inf, -math.inf
    for y in range(scores.size):
        largest = max(largest, scores[y])
        if y != label:
            other = max(other, scores[y])
    if loss == HINGE:
        return max(0.0, margin + other - scores[label])
    total = 0.0
    for y in range(scores.size):
        total += math.exp(scores[y] - largest)
    return largest + math.log(total) - scores[label]


@compiled
def losses(scores: np.ndarray, labels: np.ndarray, margin: float, loss: int) -> np.ndarray:
    """Losses of rows with these scores, shape (n, L)."""
    found = np.empty(labels.size)
    for row in range(labels.size):
        found[row] = loss_of_scores(scores[row], labels[row], margin, loss)
    return found


@compiled
def loss_of_row(
    weights: np.ndarray, row: np.ndarray, label: int, margin: float, loss: int, scores: np.ndarray
) -> float:
    """Compute the scores η_y·x of a row, and return its loss."""
    for y in range(weights.shape[0]):
        score = 0.0
        for j in range(row.size):
            score += weights[y, j] * row[j]
        scores[y] = score
    return loss_of_scores(scores, label, margin, loss)


@compiled
def count_rows(
    experts: Experts, prior: Experts, X: np.ndarray, assignments: np.ndarray, strength: float
) -> None:
    """Set sizes, means and scatters to those of the assignments, without the error of updates."""
    scratch = np.empty(X.shape[1])
    for k in range(experts.sizes.size):
        experts.sizes[k] = 0.0
        experts.mean[k] = prior.mean[0]
        experts.lower[k] = prior.lower[0]
    for row in range(X.shape[0]):
        add_row(experts, assignments[row], X[row], strength, scratch)


@compiled
def move_rows(
    experts: Experts,
    prior: Experts,
    X: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    assignments: np.ndarray,
    log_base: np.ndarray,
    alpha: float,
    strength: float,
    degrees: float,
    cost: float,
    margin: float,
    loss: int,
    prior_scale: float,
    stream: np.ndarray,
) -> int:
    r"""Draw the expert of every row given those of all others and the weights, in place.

    .. math::

        P(z_d = k) \propto n_{-d,k}\, p(x_d \mid X^k_{-d})\, \psi(y_d \mid \eta_k), \qquad
        P(z_d = \text{new}_j) \propto \frac{\alpha}{m} p(x_d)\, \psi(y_d \mid \eta'_j),

    with m weights η′ drawn from the prior for each row, of which an expert that a row was alone
    in keeps its own as the first: exact for every m.

    Parameters
    ----------
    experts, prior : Experts
        ``prior`` has the weights η′, shape (m, L, q), which are overwritten.
    X, features : ndarray, shape (n, p) and (n, q)
        Features of the normal law, and of the classifiers.
    labels, assignments : ndarray of int64, shape (n,)
    log_base : ndarray, shape (n,)
        log p(x) of every row under the prior.
    alpha, strength, degrees, cost, margin, prior_scale : float
        α, κ₀, ν₀, c, ℓ and the prior standard deviation of weights.
    loss : int
        `HINGE` or `LOGIT`.
    stream : ndarray of uint64, shape (2,)

    Returns
    -------
    int
        How often a row would have founded an expert for which there was no room.

    References
    ----------
    R. M. Neal (2000), Markov Chain Sampling Methods for Dirichlet Process Mixture Models,
    algorithm 8; Hu, Zhu, Zhang (2015), section 4.2.2, which integrates by importance sampling
    instead.
    """
    n, capacity, m = X.shape[0], experts.sizes.size, prior.weights.shape[0]
    scratch, scores = np.empty(X.shape[1]), np.empty(prior.weights.shape[1])
    logp = np.empty(capacity + m)
    fresh = prior.weights.reshape(-1)
    refused = 0
    for row in range(n):
        x, f, label, old = X[row], features[row], labels[row], assignments[row]
        remove_row(experts, old, x, strength, scratch)
        fill_normal(stream, fresh)
        for i in range(fresh.size):
            fresh[i] *= prior_scale
        if experts.sizes[old] < 0.5:
            prior.weights[0] = experts.weights[old]
        room, largest = -1, -math.inf
        for k in range(capacity):
            logp[k] = -math.inf
            if experts.sizes[k] < 0.5:
                room = k if room < 0 else room
                continue
            size = experts.sizes[k]
            logp[k] = (
                math.log(size)
                + log_predictive(
                    experts.mean[k], experts.lower[k], strength + size, degrees + size, x, scratch
                )
                - cost * loss_of_row(experts.weights[k], f, label, margin, loss, scores)
            )
            largest = max(largest, logp[k])
        for j in range(m):
            logp[capacity + j] = (
                math.log(alpha / m)
                + log_base[row]
                - cost * loss_of_row(prior.weights[j], f, label, margin, loss, scores)
            )
            largest = max(largest, logp[capacity + j])
        total = 0.0
        for k in range(capacity + m):
            logp[k] = math.exp(logp[k] - largest)
            total += logp[k]
        left = uniform(stream) * total
        chosen = -1
        for k in range(capacity + m):
            if logp[k] > 0.0:
                chosen = k
                left -= logp[k]
                if left < 0.0:
                    break
        if chosen >= capacity and room < 0:
            refused += 1
            chosen = old
        elif chosen >= capacity:
            experts.weights[room] = prior.weights[chosen - capacity]
            experts.mean[room] = prior.mean[0]
            experts.lower[room] = prior.lower[0]
            chosen = room
        add_row(experts, chosen, x, strength, scratch)
        assignments[row] = chosen
    return refused
