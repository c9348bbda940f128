"""Mean-reverting geometric Brownian motion: log-normal laws without discretisation error."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.fields import evaluate
from pymc_geodesic.jit import compiled
from pymc_geodesic.streams import fill_normal

__all__ = ["geometric_brownian", "log_normal_transition"]


@compiled
def log_normal_transition(
    log_state: np.ndarray,
    pull: np.ndarray,
    precision: np.ndarray,
    time: np.ndarray,
    noise: np.ndarray,
) -> None:
    r"""Apply the exact transition of mean-reverting geometric Brownian motion, in place.

    With y = log θ the process dy = (A − By) dt + √2 dW has the stationary law N(A/B, 1/B), so
    that θ is log-normal. After the time τ, with t = Bτ,

    .. math:: y' = A/B + e^{-t} (y - A/B) + \sqrt{(1 - e^{-2t}) / B}\;\eta, \quad \eta \sim N(0, 1).

    Parameters
    ----------
    log_state : ndarray, shape (n,)
        y.
    pull, precision : ndarray, shape (n,)
        A and B > 0.
    time : ndarray, shape (n,)
        t, without unit.
    noise : ndarray, shape (n,)
        η, standard normal.
    """
    for i in range(log_state.size):
        decay = math.exp(-time[i])
        centre = pull[i] / precision[i]
        spread = math.sqrt(-math.expm1(-2.0 * time[i]) / precision[i])
        log_state[i] = centre + decay * (log_state[i] - centre) + spread * noise[i]


@compiled
def geometric_brownian(
    field: int,
    context: np.ndarray,
    arguments: np.ndarray,
    log_state: np.ndarray,
    prior_pull: np.ndarray,
    prior_precision: np.ndarray,
    unit: np.ndarray,
    step_size: float,
    stream: np.ndarray,
    precision: np.ndarray,
) -> int:
    r"""Run the inner steps of one draw of log-normal variables, in place.

    A likelihood that is log-normal in θ has the gradient θ ∂ log p / ∂θ = A − B log θ. Both are
    estimated from the gradients of one minibatch at θ and at eθ, and the process with the sum of
    prior and estimate is followed exactly for the time h / B̄.

    Parameters
    ----------
    field, context, arguments
        See `pymc_geodesic.kernels.scir`: the gradient of the likelihood in θ.
    log_state : ndarray, shape (size,)
        log θ.
    prior_pull, prior_precision : ndarray, shape (size,)
        μ/σ² and 1/σ² of the prior.
    unit : ndarray, shape (size,)
        B̄, a fixed precision near B, which makes h a number without unit.
    step_size : float
        h.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    precision : ndarray, shape (size,)
        Receives the last estimate of the precision of the likelihood.

    Returns
    -------
    int
        Index of a number whose estimated precision was not positive, −1 if there was none. The
        state is then that before the step that failed.

    References
    ----------
    Baker et al. (2018), section 2.3, which names the process.
    """
    size = log_state.size
    values = np.empty(size)
    here = np.empty(size)
    there = np.empty(size)
    pull = np.empty(size)
    time = np.empty(size)
    noise = np.empty(size)
    total = np.empty(size)
    for argument in arguments:
        for i in range(size):
            values[i] = math.exp(log_state[i])
        evaluate(field, values, argument, context, here)
        for i in range(size):
            here[i] *= values[i]
            values[i] *= math.e
        evaluate(field, values, argument, context, there)
        for i in range(size):
            precision[i] = here[i] - values[i] * there[i]
            total[i] = prior_precision[i] + precision[i]
            if not (total[i] > 0.0 and math.isfinite(here[i])):
                return i
            pull[i] = prior_pull[i] + here[i] + precision[i] * log_state[i]
            time[i] = step_size * total[i] / unit[i]
        fill_normal(stream, noise)
        log_normal_transition(log_state, pull, total, time, noise)
    return -1
