"""One step of stochastic gradient Riemannian Langevin dynamics for counts on simplices."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.streams import fill_normal

__all__ = ["expanded_mean_step"]

SMALLEST_STATE = 1e-290


@compiled
def expanded_mean_step(
    log_state: np.ndarray,
    prior: np.ndarray,
    counts: np.ndarray,
    step_size: float,
    stream: np.ndarray,
) -> None:
    r"""Take an Euler step of the expanded mean, reflected at zero, in place.

    .. math::

        \theta_j \leftarrow \Bigl|\theta_j + h\,\bigl(a_j + \hat n_j - \omega_j
        \textstyle\sum_i \hat n_i - \theta_j\bigr) + \sqrt{2h\theta_j}\,\eta_j\Bigr|, \qquad
        \omega = \theta / \textstyle\sum_i \theta_i, \qquad \eta_j \sim N(0, 1).

    Parameters
    ----------
    log_state : ndarray, shape (n, d)
        log θ of n simplices.
    prior, counts : ndarray, shape (n, d)
        a and n̂.
    step_size : float
        h, half of ε in the reference.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.

    References
    ----------
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex, eq. 14 and section 3.
    """
    noise = np.empty(log_state.shape[1])
    for row in range(log_state.shape[0]):
        fill_normal(stream, noise)
        total = seen = 0.0
        for j in range(noise.size):
            total += math.exp(log_state[row, j])
            seen += counts[row, j]
        for j in range(noise.size):
            state = math.exp(log_state[row, j])
            drift = prior[row, j] + counts[row, j] - state * seen / total - state
            state += step_size * drift + math.sqrt(2.0 * step_size * state) * noise[j]
            log_state[row, j] = math.log(max(abs(state), SMALLEST_STATE))
