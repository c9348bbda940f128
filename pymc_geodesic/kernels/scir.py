"""The stochastic Cox–Ingersoll–Ross process: gamma laws without discretisation error."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.kernels.geometric_brownian import log_normal_transition
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.runtime.variates import exponential, fill_log_gamma, fill_poisson

__all__ = [
    "LOG_NORMAL",
    "POSITIVE",
    "SIMPLEX",
    "cir_transition",
    "estimate_counts",
    "expand_values",
    "lift_small_values",
    "scir",
]

SIMPLEX, POSITIVE, LOG_NORMAL = 0, 1, 2
"""Kinds of blocks: rows that are divided by their sums, positive numbers, log-normal ones."""

SMALLEST_VALUE = 1e-290
"""Least component the gradient is evaluated at: counts up to 10¹⁸ over it are finite."""

SMALLEST_SHARE = 1e-8
"""Least positive variable that exposures are told from, in units of the scale of its prior."""

ROUNDING = 1e-9
"""Negative part of a count, relative to the largest one, that rounding may explain."""

_CHUNK = 1024


@compiled
def cir_transition(
    log_state: np.ndarray,
    shape: np.ndarray,
    log_rate: np.ndarray,
    time: np.ndarray,
    stream: np.ndarray,
) -> None:
    r"""Draw from the exact transition of the CIR process, in place.

    The process dθ = (a − bθ) dt + √(2θ) dW has the stationary law Gamma(a, rate b). With
    y = bθ and t = bτ for a step of time τ,

    .. math::

        y' = \tfrac{1 - e^{-t}}{2} W, \qquad
        W \sim \chi^2\Bigl(2a, \tfrac{2 y e^{-t}}{1 - e^{-t}}\Bigr),

    and W is drawn as twice a Gamma(a + K) variate, K ~ Poisson(y / (eᵗ − 1)). All of it is done
    with logarithms, so that states below the smallest number keep their value.

    Parameters
    ----------
    log_state : ndarray, shape (n,)
        log θ.
    shape : ndarray, shape (n,)
        a > 0.
    log_rate : ndarray, shape (n,) or (1,)
        log b.
    time : ndarray, shape (n,) or (1,)
        t = bτ > 0, without unit.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, eq. 2.2.
    """
    log_state, shape, stream = borrow(log_state), borrow(shape), borrow(stream)
    log_rate, time = borrow(log_rate), borrow(time)
    size = log_state.size
    length = min(_CHUNK, size)
    shapes, draws = np.empty(length), np.empty(length)
    shifts, scales = np.empty(length), np.empty(length)
    own_rate = 1 if log_rate.size > 1 else 0
    own_time = 1 if time.size > 1 else 0
    shift = scale = 0.0
    for start in range(0, size, _CHUNK):
        n = min(_CHUNK, size - start)
        for i in range(n):
            if i == 0 or own_rate or own_time:
                log_b, t = log_rate[own_rate * (start + i)], time[own_time * (start + i)]
                shift = log_b - math.log(math.expm1(t))
                scale = math.log(-math.expm1(-t)) - log_b
            shifts[i], scales[i] = shift, scale
        for i in range(n):
            draws[i] = exponential(log_state[start + i] + shifts[i])
        fill_poisson(stream, draws[:n], shapes[:n])
        for i in range(n):
            shapes[i] += shape[start + i]
        fill_log_gamma(stream, shapes[:n], draws[:n])
        for i in range(n):
            log_state[start + i] = draws[i] + scales[i]


@compiled
def expand_values(blocks: np.ndarray, log_state: np.ndarray, values: np.ndarray) -> None:
    """Turn log θ into what the likelihood sees: θ / Σθ by rows of a simplex block, θ otherwise.

    Parameters
    ----------
    blocks : ndarray of int64, shape (n_blocks, 4)
        Kind, first number, rows and numbers per row of every block.
    log_state : ndarray, shape (size,)
    values : ndarray, shape (size,)
        Receives numbers of at least 10⁻²⁹⁰.
    """
    for block in range(blocks.shape[0]):
        kind, first, rows, width = blocks[block]
        for row in range(rows):
            start = first + row * width
            if kind != SIMPLEX:
                for i in range(start, start + width):
                    values[i] = max(exponential(log_state[i]), SMALLEST_VALUE)
                continue
            top = log_state[start]
            for i in range(start + 1, start + width):
                top = max(top, log_state[i])
            total = 0.0
            for i in range(start, start + width):
                values[i] = exponential(log_state[i] - top)
                total += values[i]
            scale = 1.0 / total
            for i in range(start, start + width):
                values[i] = max(values[i] * scale, SMALLEST_VALUE)


@compiled
def lift_small_values(blocks: np.ndarray, prior_rate: np.ndarray, values: np.ndarray) -> None:
    """Lift positive variables to 10⁻⁸ of the scale 1/β of their priors, in place.

    The exposure c is the difference of two values of n − cω, divided by ω: for a tiny ω it would
    be nothing but the rounding of n. Neither n nor c depends on ω.

    Parameters
    ----------
    blocks : ndarray of int64, shape (n_blocks, 4)
        See `expand_values`.
    prior_rate : ndarray, shape (size,)
        β.
    values : ndarray, shape (size,)
        ω.
    """
    for block in range(blocks.shape[0]):
        if blocks[block, 0] != POSITIVE:
            continue
        start = blocks[block, 1]
        for i in range(start, start + blocks[block, 2] * blocks[block, 3]):
            values[i] = max(values[i], SMALLEST_SHARE / prior_rate[i])


@compiled
def estimate_counts(
    field: int,
    context: np.ndarray,
    argument: int,
    blocks: np.ndarray,
    splits: np.ndarray,
    values: np.ndarray,
    counts: np.ndarray,
    exposures: np.ndarray,
) -> int:
    r"""Read counts, and exposures of positive variables, off a gradient.

    A likelihood proportional to Π ωⱼ^{nⱼ} exp(−cⱼωⱼ) has ω ∂ log p = n − cω. For a simplex
    c = 0. For a positive variable it is told from n by evaluating the gradient a second time,
    where the variable is half as large. For a log-normal variable, whose likelihood has
    θ ∂ log p = A − B log θ, the second evaluation is at θ/e, and A and B are returned.

    Parameters
    ----------
    field : int
        Address of a field that writes ∂ log p / ∂ω.
    context, argument
        Passed on to the field.
    blocks : ndarray of int64, shape (n_blocks, 4)
        See `expand_values`.
    splits : ndarray of bool, shape (n_blocks,)
        Blocks that need the second evaluation: all but simplices, unless it is known that c = 0.
    values : ndarray, shape (size,)
        ω; changed for a while and given back as it was.
    counts, exposures : ndarray, shape (size,)
        Receive n and c, or A and B.

    Returns
    -------
    int
        Index of a negative or undefined count or exposure, −1 if there is none. What rounding
        may explain is set to zero.

    References
    ----------
    Baker et al. (2018), algorithm 1, with expected counts by Fisher's identity.
    """
    size = values.size
    evaluate(field, values, argument, context, counts)
    for i in range(size):
        counts[i] *= values[i]
        exposures[i] = 0.0
    if np.any(splits):
        there = np.empty(size)
        for block in range(blocks.shape[0]):
            if not splits[block]:
                continue
            start = blocks[block, 1]
            stop = start + blocks[block, 2] * blocks[block, 3]
            own = values[start:stop].copy()
            if blocks[block, 0] == LOG_NORMAL:
                values[start:stop] /= math.e
                evaluate(field, values, argument, context, there)
                for i in range(start, stop):
                    exposures[i] = values[i] * there[i] - counts[i]
                    counts[i] += exposures[i] * math.log(own[i - start])
            else:
                values[start:stop] *= 0.5
                evaluate(field, values, argument, context, there)
                for i in range(start, stop):
                    linear = 2.0 * (values[i] * there[i] - counts[i])
                    exposures[i] = linear / own[i - start]
                    counts[i] += linear
            values[start:stop] = own
    for block in range(blocks.shape[0]):
        start = blocks[block, 1]
        stop = start + blocks[block, 2] * blocks[block, 3]
        any_sign = blocks[block, 0] == LOG_NORMAL
        largest = 1.0
        for i in range(start, stop):
            scale = 1.0 if any_sign else values[i]
            largest = max(largest, counts[i], exposures[i] * scale)
        for i in range(start, stop):
            scale = 1.0 if any_sign else values[i]
            if not (any_sign or counts[i] >= -ROUNDING * largest) or counts[i] != counts[i]:
                return i
            if not exposures[i] * scale >= -ROUNDING * largest:
                return i
            if not any_sign:
                counts[i] = max(counts[i], 0.0)
            exposures[i] = max(exposures[i], 0.0)
    return -1


@compiled
def scir(
    field: int,
    context: np.ndarray,
    arguments: np.ndarray,
    blocks: np.ndarray,
    splits: np.ndarray,
    log_state: np.ndarray,
    prior_shape: np.ndarray,
    prior_rate: np.ndarray,
    unit: np.ndarray,
    step_size: float,
    reference: np.ndarray,
    reference_counts: np.ndarray,
    reference_exposures: np.ndarray,
    stream: np.ndarray,
    values: np.ndarray,
    counts: np.ndarray,
    exposures: np.ndarray,
) -> tuple[int, int]:
    r"""Run the inner steps of one SCIR draw, in place.

    Each step estimates â = α + n̂ and b̂ = β + ĉ from the next minibatch and follows
    dθ = (â − b̂θ) dt + √(2θ) dW exactly for the time h / b̄; log-normal variables follow
    d log θ = (Â − B̂ log θ) dt + √2 dW in the same way.

    Parameters
    ----------
    field, context
        See `estimate_counts`; the gradient is that of the likelihood of the minibatch times N/n,
        without the prior.
    arguments : ndarray of int64, shape (n_steps,)
        One argument per inner step, usually the first row of its minibatch.
    blocks, splits
        See `estimate_counts`.
    log_state : ndarray, shape (size,)
        log θ, where ω = θ / Σθ in simplex blocks.
    prior_shape, prior_rate : ndarray, shape (size,)
        α and β; β = 1 in simplex blocks; μ/σ² and 1/σ² in log-normal ones.
    unit : ndarray, shape (size,)
        b̄, a fixed rate near b, which makes h a number without unit; 1 in simplex blocks.
    step_size : float
        h.
    reference : ndarray, shape (size,) or (0,)
        Where control variates are evaluated; empty for none.
    reference_counts, reference_exposures : ndarray, shape (size,) or (0,)
        n and c of all data at the reference.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    values, counts, exposures : ndarray, shape (size,)
        Receive ω before the last step and the estimates of that step, or of the one that failed.

    Returns
    -------
    failed : int
        Index of a number whose count estimate was negative, −1 if there was none. The state is
        then that before the step that failed.
    clips : int
        Control-variate estimates that were negative and set to zero.

    References
    ----------
    Baker et al. (2018), algorithm 1 and eq. 2.3.
    """
    size = log_state.size
    shape = np.empty(size)
    rate = np.empty(size)
    log_rate = np.empty(size)
    time = np.empty(size)
    one_time = np.full(1, step_size)
    no_rate = np.zeros(1)
    noise = np.empty(size)
    with_reference = reference.size > 0
    old_counts = np.empty(reference.size)
    old_exposures = np.empty(reference.size)
    clips = 0
    for argument in arguments:
        expand_values(blocks, log_state, values)
        lift_small_values(blocks, prior_rate, values)
        failed = estimate_counts(
            field, context, argument, blocks, splits, values, counts, exposures
        )
        if failed < 0 and with_reference:
            failed = estimate_counts(
                field, context, argument, blocks, splits, reference, old_counts, old_exposures
            )
        if failed >= 0:
            return failed, clips
        if with_reference:
            for block in range(blocks.shape[0]):
                start = blocks[block, 1]
                for i in range(start, start + blocks[block, 2] * blocks[block, 3]):
                    counts[i] += reference_counts[i] - old_counts[i]
                    exposures[i] += reference_exposures[i] - old_exposures[i]
                    if counts[i] < 0.0 and blocks[block, 0] != LOG_NORMAL:
                        clips += counts[i] < -ROUNDING * max(1.0, reference_counts[i])
                        counts[i] = 0.0
                    if exposures[i] < 0.0:
                        clips += exposures[i] < -ROUNDING * max(1.0, reference_exposures[i])
                        exposures[i] = 0.0
        for block in range(blocks.shape[0]):
            kind = blocks[block, 0]
            start = blocks[block, 1]
            stop = start + blocks[block, 2] * blocks[block, 3]
            for i in range(start, stop):
                shape[i] = prior_shape[i] + counts[i]
            if kind == SIMPLEX:
                cir_transition(log_state[start:stop], shape[start:stop], no_rate, one_time, stream)
                continue
            part = slice(start, stop)
            for i in range(start, stop):
                rate[i] = prior_rate[i] + exposures[i]
                log_rate[i] = math.log(rate[i])
                time[i] = step_size * rate[i] / unit[i]
            if kind == POSITIVE:
                cir_transition(log_state[part], shape[part], log_rate[part], time[part], stream)
            else:
                fill_normal(stream, noise[part])
                log_normal_transition(
                    log_state[part], shape[part], rate[part], time[part], noise[part]
                )
    return -1, clips
