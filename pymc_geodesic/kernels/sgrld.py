"""Stochastic gradient Riemannian Langevin dynamics on the probability simplex."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.kernels.scir import SIMPLEX, SMALLEST_VALUE, expand_values
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.streams import fill_normal

__all__ = ["sgrld"]

LARGEST_STATE = 1e300


@compiled
def sgrld(
    field: int,
    context: np.ndarray,
    arguments: np.ndarray,
    blocks: np.ndarray,
    log_state: np.ndarray,
    prior_shape: np.ndarray,
    prior_rate: np.ndarray,
    unit: np.ndarray,
    step_size: float,
    stream: np.ndarray,
    values: np.ndarray,
) -> int:
    r"""Run the inner steps of one SGRLD draw, in place.

    The expanded mean: ω = θ / Σθ with θⱼ ~ Gamma(αⱼ, 1) under the prior, the metric diag(1/θ),
    and an Euler step that is reflected at zero,

    .. math::

        \theta_j \leftarrow \Bigl|\theta_j + h\,\bigl(\alpha_j + \hat n_j - \omega_j
        \textstyle\sum_i \hat n_i - \theta_j\bigr) + \sqrt{2h\theta_j}\,\eta_j\Bigr|, \qquad
        \eta_j \sim N(0, 1),

    with n̂ = ω ∂ log p / ∂ω of the minibatch, times N/n. Positive variables have
    α + θ ∂ log p / ∂θ − βθ instead of the parenthesis, and h / b̄ instead of h.

    Parameters
    ----------
    step_size : float
        h, half of the authors' ε: the same unit of time as that of `pymc_geodesic.kernels.scir`.
    field, context, arguments, blocks, log_state, prior_shape, prior_rate, unit, stream, values
        See `pymc_geodesic.kernels.scir`.

    Returns
    -------
    int
        Index of a number that was not finite, −1 if there was none. The state is then that before
        the step that failed.

    References
    ----------
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex, eq. 14 and section 3.
    """
    size = log_state.size
    gradient = np.empty(size)
    noise = np.empty(size)
    moved = np.empty(size)
    for argument in arguments:
        expand_values(blocks, log_state, values)
        evaluate(field, values, argument, context, gradient)
        fill_normal(stream, noise)
        for block in range(blocks.shape[0]):
            kind, first, rows, width = blocks[block]
            for row in range(rows):
                start = first + row * width
                total = 0.0
                if kind == SIMPLEX:
                    for i in range(start, start + width):
                        total += values[i] * gradient[i]
                for i in range(start, start + width):
                    state = math.exp(log_state[i])
                    time = step_size / unit[i]
                    drift = prior_shape[i] + values[i] * (gradient[i] - total)
                    drift -= prior_rate[i] * state
                    state += time * drift + math.sqrt(2.0 * time * state) * noise[i]
                    moved[i] = math.log(max(abs(state), SMALLEST_VALUE))
                    if not abs(state) <= LARGEST_STATE:
                        return i
        log_state[:] = moved
    return -1
