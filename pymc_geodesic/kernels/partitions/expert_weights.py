"""Weights of the experts of a mixture of classifiers, given who belongs to which."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.kernels.hinge_augmentation import draw_scales, draw_weights
from pymc_geodesic.kernels.partitions.gaussian_experts import HINGE, loss_of_row
from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.streams import fill_normal, uniform

__all__ = ["augment_weights", "follow_subgradients"]


@compiled
def add_subgradient(
    weights: np.ndarray, row: np.ndarray, label: int, margin: float, loss: int, factor: float,
    scores: np.ndarray, gradient: np.ndarray,
) -> None:  # fmt: skip
    """Add the subgradient of minus the loss of a row, times a factor."""
    value = loss_of_row(weights, row, label, margin, loss, scores)
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
def follow_subgradients(
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
    r"""Move the weights of all experts by stochastic subgradient thermostats, in place.

    .. math::

        d\eta = v\,dt, \qquad
        dv = \tilde g\,dt - \xi v\,dt + \sqrt{2A}\,dW, \qquad d\xi = (v^\top v / \dim - 1)\,dt,

    g̃ being −η/τ² and (N/n) times the subgradients of a minibatch of random rows, in which every
    row counts for the expert that it belongs to. Half a drift, kick with friction and noise, half
    a drift. A time step of its own for each feature is a metric of the velocities.

    Parameters
    ----------
    weights, velocity : ndarray, shape (K, L, q)
    thermostat : ndarray, shape (1,)
        ξ times the step.
    sizes : ndarray, shape (K,)
    features : ndarray, shape (n, q)
    labels, assignments : ndarray of int64, shape (n,)
    step_sizes : ndarray, shape (q,)
        h of every feature.
    diffusion : float
        A times the step.
    batch_size, n_steps : int
    cost, margin, prior_scale : float
        c, ℓ and τ.
    loss : int
        `HINGE` or `LOGIT`.
    stream : ndarray of uint64, shape (2,)

    Returns
    -------
    float
        Mean of v·v over its dimension.

    References
    ----------
    Hu, Zhu, Zhang (2015), Fast Sampling Methods for Bayesian Max-Margin Models, eqs. 30 and 47.
    """
    n = features.shape[0]
    gradient, noise = np.empty_like(weights), np.empty(weights.shape[2])
    heat, scores = 0.0, np.empty(weights.shape[1])
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
        rub = math.exp(-thermostat[0])
        spread = math.sqrt(2.0 * diffusion)
        total, dim = 0.0, 0
        for k in range(sizes.size):
            if sizes[k] < 0.5:
                continue
            for y in range(classes):
                fill_normal(stream, noise)
                for j in range(width):
                    kick = step_sizes[j] * gradient[k, y, j] + spread * noise[j]
                    velocity[k, y, j] = rub * velocity[k, y, j] + kick
                    total += velocity[k, y, j] ** 2
                    weights[k, y, j] += 0.5 * step_sizes[j] * velocity[k, y, j]
            dim += classes * width
        temperature = total / dim
        heat += temperature
        thermostat[0] += 0.1 * diffusion * (temperature - 1.0)
        thermostat[0] = max(min(thermostat[0], 2.0), -0.1)
    return heat / n_steps


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

    Given the weights of the other classes the loss of a row is a hinge in the score f of one:
    :math:`\max(0, \zeta - f)` for rows of that class, with ζ = ℓ + the largest other score, and
    else :math:`\max(0, f - \tau)` and a constant, with
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
