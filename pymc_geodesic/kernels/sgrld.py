"""Stochastic gradient Riemannian Langevin dynamics on the probability simplex."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.kernels.positive_numbers import SIMPLEX, SMALLEST_VALUE, Prior, expand_values
from pymc_geodesic.runtime.fields import Callback, evaluate
from pymc_geodesic.runtime.jit import borrow
from pymc_geodesic.runtime.kernel import Integers, Stream, Table, Vector, kernel, part
from pymc_geodesic.runtime.streams import fill_normal

LARGEST_STATE = 1e300


@part
def euler_step(
    blocks: Table,
    log_state: Vector,
    prior: Prior,
    gradient: Vector,
    values: Vector,
    step_size: float,
    unit: Vector,
    moved: Vector,
) -> int:
    r"""Take the reflected Euler step of the expanded mean.

    Parameters
    ----------
    gradient : ndarray, shape (size,)
        ∂ log p / ∂ω.
    moved : ndarray, shape (size,)
        Standard normal numbers; receives log θ after the step.

    Returns
    -------
    int
        Index of a number that was not finite, −1 if there was none.
    """
    prior, log_state, moved = borrow(prior), borrow(log_state), borrow(moved)
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
                drift = prior.shape[i] + values[i] * (gradient[i] - total)
                drift -= prior.rate[i] * state
                state += time * drift + math.sqrt(2.0 * time * state) * moved[i]
                moved[i] = math.log(max(abs(state), SMALLEST_VALUE))
                if not abs(state) <= LARGEST_STATE:
                    return i
    return -1


@kernel
def sgrld(
    field: Callback,
    arguments: Integers,
    blocks: Table,
    log_state: Vector,
    prior: Prior,
    step_size: float,
    unit: Vector,
    stream: Stream,
    values: Vector,
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
    values : ndarray, shape (size,)
        Receives ω before the last step.
    field, arguments, blocks, log_state, prior, unit, stream
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
    log_state, prior, unit = borrow(log_state), borrow(prior), borrow(unit)
    size = log_state.size
    gradient, moved = np.empty(size), np.empty(size)
    for argument in arguments:
        expand_values(blocks, log_state, values)
        evaluate(field.address, values, argument, field.context, gradient)
        fill_normal(stream, moved)
        failed = euler_step(blocks, log_state, prior, gradient, values, step_size, unit, moved)
        if failed >= 0:
            return failed
        for i in range(size):
            log_state[i] = moved[i]
    return -1
