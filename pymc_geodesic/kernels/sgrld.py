"""Stochastic gradient Riemannian Langevin dynamics (SGRLD) transitions on the simplex."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.kernels.counts import SIMPLEX, SMALLEST_VALUE, Prior, values_from_logs
from pymc_geodesic.runtime.gradient_functions import Callback, evaluate
from pymc_geodesic.runtime.jit import Integers, Stream, Table, Vector, borrow, kernel, part
from pymc_geodesic.runtime.streams import fill_normal

MAX_STATE = 1e300
"""Value of θ above which a step counts as a divergence."""


@part
def euler_step(
    layout: Table,
    log_state: Vector,
    prior: Prior,
    gradient: Vector,
    values: Vector,
    step_size: float,
    reference_rate: Vector,
    new_state: Vector,
) -> int:
    r"""Take the reflected Euler step of the expanded mean; see `sgrld`.

    Parameters
    ----------
    layout, log_state, prior, step_size, reference_rate
        See `sgrld`.
    gradient : ndarray, shape (size,)
        ∂ log p / ∂ω.
    values : ndarray, shape (size,)
        ω.
    new_state : ndarray, shape (size,)
        Contains standard normal variates; receives log θ after the step.

    Returns
    -------
    int
        Index of a coordinate that is not finite, or −1.
    """
    prior, log_state, new_state = borrow(prior), borrow(log_state), borrow(new_state)
    for variable in range(layout.shape[0]):
        kind, first, rows, width = layout[variable]
        for row in range(rows):
            start = first + row * width
            total = 0.0
            if kind == SIMPLEX:
                for i in range(start, start + width):
                    total += values[i] * gradient[i]
            for i in range(start, start + width):
                state = math.exp(log_state[i])
                time = step_size / reference_rate[i]
                drift = prior.shape[i] + values[i] * (gradient[i] - total)
                drift -= prior.rate[i] * state
                state += time * drift + math.sqrt(2.0 * time * state) * new_state[i]
                new_state[i] = math.log(max(abs(state), SMALLEST_VALUE))
                if not abs(state) <= MAX_STATE:
                    return i
    return -1


@kernel
def sgrld(
    logp_grad: Callback,
    minibatches: Integers,
    layout: Table,
    log_state: Vector,
    prior: Prior,
    step_size: float,
    reference_rate: Vector,
    stream: Stream,
    values: Vector,
) -> int:
    r"""Run the inner steps of one SGRLD draw, in place.

    In the expanded-mean parametrization ω = θ / Σθ, θⱼ ~ Gamma(αⱼ, 1) under the prior, with the
    metric diag(1/θ), an Euler step reflected at zero is

    .. math::

        \theta_j \leftarrow \Bigl|\theta_j + h\,\bigl(\alpha_j + \hat n_j - \omega_j
        \textstyle\sum_i \hat n_i - \theta_j\bigr) + \sqrt{2h\theta_j}\,\eta_j\Bigr|, \qquad
        \eta_j \sim N(0, 1),

    with n̂ = ω ∂ log p / ∂ω of the minibatch, times N/n. For Gamma variables the term in
    parentheses is α + θ ∂ log p / ∂θ − βθ, and h / b̄ replaces h.

    Parameters
    ----------
    logp_grad, minibatches, layout, log_state, prior, reference_rate, stream
        See `pymc_geodesic.kernels.scir.scir`.
    step_size : float
        h, half of the ε of Patterson and Teh, in the unit of time of
        `pymc_geodesic.kernels.scir.scir`.
    values : ndarray, shape (size,)
        Receives ω before the last step.

    Returns
    -------
    int
        Index of a coordinate that is not finite, or −1. In case of failure the state is the one
        before the failed step.

    References
    ----------
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex, eq. 14 and section 3.
    """
    log_state, prior, reference_rate = borrow(log_state), borrow(prior), borrow(reference_rate)
    size = log_state.size
    gradient, new_state = np.empty(size), np.empty(size)
    for minibatch in minibatches:
        values_from_logs(layout, log_state, values)
        evaluate(logp_grad.address, values, minibatch, logp_grad.context, gradient)
        fill_normal(stream, new_state)
        failed = euler_step(
            layout, log_state, prior, gradient, values, step_size, reference_rate, new_state
        )
        if failed >= 0:
            return failed
        for i in range(size):
            log_state[i] = new_state[i]
    return -1
