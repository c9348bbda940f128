"""Mean-reverting geometric Brownian motion: log-normal laws without discretisation error."""

from __future__ import annotations

import math

from pymc_geodesic.runtime.kernel import Vector, kernel


@kernel
def log_normal_transition(
    log_state: Vector,
    pull: Vector,
    precision: Vector,
    time: Vector,
    noise: Vector,
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

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, section 2.3, which names the process.
    """
    for i in range(log_state.size):
        decay = math.exp(-time[i])
        centre = pull[i] / precision[i]
        spread = math.sqrt(-math.expm1(-2.0 * time[i]) / precision[i])
        log_state[i] = centre + decay * (log_state[i] - centre) + spread * noise[i]
