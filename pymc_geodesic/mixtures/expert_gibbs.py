r"""Gibbs updates of a Dirichlet-process mixture of classifiers: assignments and weights.

The features of an expert are normal, with mean and covariance integrated out under the
normal-inverse-Wishart prior NIW(m₀, κ₀, ν₀, Ψ₀). Given n rows its posterior is NIW(m, κ, ν, Ψ) with

.. math:: \kappa = \kappa_0 + n, \quad \nu = \nu_0 + n, \quad
          m = \frac{\kappa_0 m_0 + \sum_i x_i}{\kappa}, \quad
          \Psi = \Psi_0 + \kappa_0 m_0 m_0^\top + \sum_i x_i x_i^\top - \kappa m m^\top

and the predictive density of a new row is a multivariate t,

.. math:: p(x) = t_{\nu - p + 1}\Bigl(x \Bigm| m,
          \frac{\kappa + 1}{\kappa (\nu - p + 1)} \Psi\Bigr).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.kernels.hinge_augmentation import draw_scales, draw_weights
from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.streams import fill_normal, uniform

HINGE, LOGIT = 0, 1
"""Codes of the losses: multi-class hinge, and −log softmax (multinomial logit)."""


class Experts(NamedTuple):
    """Statistics and weights of the experts; those of an empty expert are those of the prior.

    Attributes
    ----------
    sizes : ndarray, shape (K,)
        Numbers of rows.
    mean : ndarray, shape (K, p)
        m.
    lower : ndarray, shape (K, p, p)
        Lower Cholesky factor of Ψ.
    weights : ndarray, shape (K, L, q)
        η, for the p features and the intercept if there is one.
    """

    sizes: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    weights: np.ndarray


@compiled
def update_cholesky(lower: np.ndarray, vector: np.ndarray, sign: float) -> None:
    """Rank-one update or downdate of a Cholesky factor: that of Ψ ± v vᵀ, in place.

    Givens rotations for plus, hyperbolic ones for minus (Golub, Van Loan, section 6.5.4); v is
    overwritten.
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
    """Add a row to the statistics of expert k."""
    kappa = strength + experts.sizes[k]
    for j in range(x.size):
        gap = x[j] - experts.mean[k, j]
        scratch[j] = math.sqrt(kappa / (kappa + 1.0)) * gap
        experts.mean[k, j] += gap / (kappa + 1.0)
    experts.sizes[k] += 1.0
    update_cholesky(experts.lower[k], scratch, 1.0)


@compiled
def remove_row(
    experts: Experts, k: int, x: np.ndarray, strength: float, scratch: np.ndarray
) -> None:
    """Remove a row from the statistics of expert k."""
    kappa = strength + experts.sizes[k] - 1.0
    for j in range(x.size):
        experts.mean[k, j] -= (x[j] - experts.mean[k, j]) / kappa
        scratch[j] = math.sqrt(kappa / (kappa + 1.0)) * (x[j] - experts.mean[k, j])
    experts.sizes[k] -= 1.0
    update_cholesky(experts.lower[k], scratch, -1.0)


@compiled
def log_predictive(
    mean: np.ndarray, lower: np.ndarray, kappa: float, nu: float, x: np.ndarray,
    scratch: np.ndarray,
) -> float:  # fmt: skip
    """Return the log predictive density of a row, a multivariate t."""
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
def compute_loss(scores: np.ndarray, label: int, margin: float, loss: int) -> float:
    """Return the loss of a row: max(0, ℓ + max_{y ≠ label} s_y − s_label), or −log softmax."""
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
def compute_losses(scores: np.ndarray, labels: np.ndarray, margin: float, loss: int) -> np.ndarray:
    """Return the losses of rows with scores of shape (n, L), shape (n,)."""
    found = np.empty(labels.size)
    for row in range(labels.size):
        found[row] = compute_loss(scores[row], labels[row], margin, loss)
    return found


@compiled
def compute_row_loss(
    weights: np.ndarray, row: np.ndarray, label: int, margin: float, loss: int, scores: np.ndarray
) -> float:
    """Compute the scores η_y·x of a row, in place, and return its loss."""
    for y in range(weights.shape[0]):
        score = 0.0
        for j in range(row.size):
            score += weights[y, j] * row[j]
        scores[y] = score
    return compute_loss(scores, label, margin, loss)


@compiled
def compute_statistics(
    experts: Experts, prior: Experts, X: np.ndarray, assignments: np.ndarray, strength: float
) -> None:
    """Recompute sizes, means and scatters from the assignments, free of accumulated rounding."""
    scratch = np.empty(X.shape[1])
    for k in range(experts.sizes.size):
        experts.sizes[k] = 0.0
        experts.mean[k] = prior.mean[0]
        experts.lower[k] = prior.lower[0]
    for row in range(X.shape[0]):
        add_row(experts, assignments[row], X[row], strength, scratch)


@compiled
def sample_assignments(
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

    with m auxiliary weights η′ drawn from the prior for each row. If the row was the only one of
    its expert, the first of them are the weights of that expert. Exact for every m.

    Parameters
    ----------
    experts, prior : Experts
        ``prior.weights`` are η′, shape (m, L, q), which are overwritten.
    X, features : ndarray, shape (n, p) and (n, q)
        Features of the normal distribution and of the classifiers.
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
        Number of rows that drew a new expert while all K experts had rows.

    References
    ----------
    R. M. Neal (2000), Markov Chain Sampling Methods for Dirichlet Process Mixture Models,
    algorithm 8; Hu, Zhu, Zhang (2015), section 4.2.2, with importance sampling instead.
    """
    n, capacity, m = X.shape[0], experts.sizes.size, prior.weights.shape[0]
    scratch, scores = np.empty(X.shape[1]), np.empty(prior.weights.shape[1])
    logp = np.empty(capacity + m)
    auxiliary = prior.weights.reshape(-1)
    n_overflows = 0
    for row in range(n):
        x, f, label, old = X[row], features[row], labels[row], assignments[row]
        remove_row(experts, old, x, strength, scratch)
        fill_normal(stream, auxiliary)
        for i in range(auxiliary.size):
            auxiliary[i] *= prior_scale
        if experts.sizes[old] < 0.5:
            prior.weights[0] = experts.weights[old]
        empty, largest = -1, -math.inf
        for k in range(capacity):
            logp[k] = -math.inf
            if experts.sizes[k] < 0.5:
                empty = k if empty < 0 else empty
                continue
            size = experts.sizes[k]
            logp[k] = (
                math.log(size)
                + log_predictive(
                    experts.mean[k], experts.lower[k], strength + size, degrees + size, x, scratch
                )
                - cost * compute_row_loss(experts.weights[k], f, label, margin, loss, scores)
            )
            largest = max(largest, logp[k])
        for j in range(m):
            logp[capacity + j] = (
                math.log(alpha / m)
                + log_base[row]
                - cost * compute_row_loss(prior.weights[j], f, label, margin, loss, scores)
            )
            largest = max(largest, logp[capacity + j])
        total = 0.0
        for k in range(capacity + m):
            logp[k] = math.exp(logp[k] - largest)
            total += logp[k]
        remainder = uniform(stream) * total
        chosen = -1
        for k in range(capacity + m):
            if logp[k] > 0.0:
                chosen = k
                remainder -= logp[k]
                if remainder < 0.0:
                    break
        if chosen >= capacity and empty < 0:
            n_overflows += 1
            chosen = old
        elif chosen >= capacity:
            experts.weights[empty] = prior.weights[chosen - capacity]
            experts.mean[empty] = prior.mean[0]
            experts.lower[empty] = prior.lower[0]
            chosen = empty
        add_row(experts, chosen, x, strength, scratch)
        assignments[row] = chosen
    return n_overflows


@compiled
def add_subgradient(
    weights: np.ndarray, row: np.ndarray, label: int, margin: float, loss: int, factor: float,
    scores: np.ndarray, gradient: np.ndarray,
) -> None:  # fmt: skip
    """Add a subgradient of the negative loss of a row, times a factor, in place."""
    value = compute_row_loss(weights, row, label, margin, loss, scores)
    if value <= 0.0:
        return
    if loss == HINGE:
        rival = 1 if label == 0 else 0
        for y in range(scores.size):
            if y != label and scores[y] > scores[rival]:
                rival = y
        for j in range(row.size):
            gradient[label, j] += factor * row[j]
            gradient[rival, j] -= factor * row[j]
        return
    log_total = value + scores[label]
    for y in range(scores.size):
        part = (1.0 if y == label else 0.0) - math.exp(scores[y] - log_total)
        for j in range(row.size):
            gradient[y, j] += factor * part * row[j]


@compiled
def thermostat_weights(
    weights: np.ndarray,
    velocity: np.ndarray,
    thermostat: np.ndarray,
    sizes: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    assignments: np.ndarray,
    step_sizes: np.ndarray,
    diffusion: float,
    batch_size: int,
    n_steps: int,
    cost: float,
    margin: float,
    loss: int,
    prior_scale: float,
    stream: np.ndarray,
) -> float:
    r"""Update the weights of all experts by stochastic subgradient Nosé–Hoover thermostats.

    .. math::

        d\eta = v\,dt, \qquad
        dv = \tilde g\,dt - \xi v\,dt + \sqrt{2A}\,dW, \qquad d\xi = (v^\top v / \dim - 1)\,dt,

    where g̃ is −η/τ² plus (N/n) times the subgradients of a minibatch of random rows, each added to
    the expert of the row. A step is half a drift, a kick with friction and noise, and half a drift.
    A step size for each feature amounts to a diagonal metric. Weights, velocities and thermostat
    are updated in place.

    Parameters
    ----------
    weights, velocity : ndarray, shape (K, L, q)
    thermostat : ndarray, shape (1,)
        ξ times the step size.
    sizes : ndarray, shape (K,)
    features : ndarray, shape (n, q)
    labels, assignments : ndarray of int64, shape (n,)
    step_sizes : ndarray, shape (q,)
        h of each feature.
    diffusion : float
        A times the step size.
    batch_size, n_steps : int
    cost, margin, prior_scale : float
        c, ℓ and τ.
    loss : int
        `HINGE` or `LOGIT`.
    stream : ndarray of uint64, shape (2,)

    Returns
    -------
    float
        Mean temperature, v·v / dim.

    References
    ----------
    Hu, Zhu, Zhang (2015), Fast Sampling Methods for Bayesian Max-Margin Models, eqs. 30 and 47.
    """
    n = features.shape[0]
    gradient, noise = np.empty_like(weights), np.empty(weights.shape[2])
    sum_temperature, scores = 0.0, np.empty(weights.shape[1])
    classes, width = weights.shape[1], weights.shape[2]
    for _ in range(n_steps):
        for k in range(sizes.size):
            if sizes[k] > 0.5:
                for y in range(classes):
                    for j in range(width):
                        weights[k, y, j] += 0.5 * step_sizes[j] * velocity[k, y, j]
                        gradient[k, y, j] = -weights[k, y, j] / prior_scale**2
        for _ in range(batch_size):
            row = min(int(uniform(stream) * n), n - 1)
            k = assignments[row]
            add_subgradient(
                weights[k], features[row], labels[row], margin, loss, cost * n / batch_size,
                scores, gradient[k],
            )  # fmt: skip
        decay = math.exp(-thermostat[0])
        noise_scale = math.sqrt(2.0 * diffusion)
        total, dim = 0.0, 0
        for k in range(sizes.size):
            if sizes[k] < 0.5:
                continue
            for y in range(classes):
                fill_normal(stream, noise)
                for j in range(width):
                    kick = step_sizes[j] * gradient[k, y, j] + noise_scale * noise[j]
                    velocity[k, y, j] = decay * velocity[k, y, j] + kick
                    total += velocity[k, y, j] ** 2
                    weights[k, y, j] += 0.5 * step_sizes[j] * velocity[k, y, j]
            dim += classes * width
        temperature = total / dim
        sum_temperature += temperature
        thermostat[0] += 0.1 * diffusion * (temperature - 1.0)
        thermostat[0] = max(min(thermostat[0], 2.0), -0.1)
    return sum_temperature / n_steps


def augment_weights(
    rng: np.random.Generator,
    weights: np.ndarray,
    sizes: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    assignments: np.ndarray,
    *,
    cost: float,
    margin: float,
    prior_scale: float,
) -> None:
    r"""Draw the weights of all experts by data augmentation, class by class, in place.

    Given the weights of the other classes, the loss of a row is a hinge in the score f of a class:
    :math:`\max(0, \zeta - f)` for rows of that class, with ζ = ℓ + the largest other score, and
    :math:`\max(0, f - \tau)` plus a constant for the others, with
    :math:`\tau = \max(0, \ell + \text{other} - \text{own}) - (\ell - \text{own})`.

    Parameters
    ----------
    rng : numpy.random.Generator
    weights : ndarray, shape (K, L, q)
    sizes : ndarray, shape (K,)
    features : ndarray, shape (n, q)
    labels, assignments : ndarray of int64, shape (n,)
    cost, margin, prior_scale : float
    """
    n_classes = weights.shape[1]
    for k in np.flatnonzero(sizes > 0.5):
        rows = np.flatnonzero(assignments == k)
        x, y = features[rows], labels[rows]
        scores = x @ weights[k].T
        each = np.arange(len(rows))
        for c in range(n_classes):
            own = scores[each, y]
            others = scores.copy()
            others[:, c] = -np.inf
            others[each, y] = -np.inf
            other = others.max(axis=1)
            is_own = y == c
            base = np.maximum(0.0, margin + other - own)
            bound = np.where(is_own, margin + other, base - margin + own)
            signs = np.where(is_own, 1.0, -1.0)
            offset = signs * bound
            scales = draw_scales(rng, offset - signs * scores[:, c], cost)
            weights[k, c] = draw_weights(
                rng, x, signs, scales, cost=cost, margin=offset, prior_scale=prior_scale
            )
            scores[:, c] = x @ weights[k, c]
