"""The stochastic Cox–Ingersoll–Ross process, with counts that minibatches estimate."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.kernels.cox_ingersoll_ross import cir_transition
from pymc_geodesic.kernels.expected_counts import CountsAt, add_difference, estimate_counts
from pymc_geodesic.kernels.geometric_brownian import log_normal_transition
from pymc_geodesic.kernels.positive_numbers import (
    LOG_NORMAL,
    SIMPLEX,
    SMALLEST_VALUE,
    Prior,
    expand_values,
    lift_small_values,
)
from pymc_geodesic.runtime.fields import Callback
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.kernel import Integers, Stream, Table, Vector, kernel, part
from pymc_geodesic.runtime.streams import fill_normal

LONGEST_TIME = 100.0
"""Bound of bτ: the process forgets all but e⁻¹⁰⁰ of its state, and exp(bτ) is finite."""


class Process(NamedTuple):
    """The process that each number follows in a step; memory that the kernel writes to.

    Parameters
    ----------
    shape, rate, log_rate : ndarray, shape (size,)
        â, b̂ and log b̂; Â and B̂ in log-normal blocks.
    time : ndarray, shape (size,)
        b̂τ for a step of time τ, without unit.
    noise : ndarray, shape (size,)
    """

    shape: Vector
    rate: Vector
    log_rate: Vector
    time: Vector
    noise: Vector


@part
def has_constant_sum(count_totals: Vector, start: int) -> bool:
    """Return whether Σn of the simplex block that begins at ``start`` does not depend on ω."""
    return count_totals.size == 0 or math.isnan(count_totals[start])


@part
def hold_total(
    block: Integers,
    log_state: Vector,
    found: CountsAt,
    step_size: float,
    count_totals: Vector,
    process: Process,
) -> None:
    """Add ω (M − Σn̂) to the drift of each row of a simplex block; see `scir`.

    A positive difference is added to the shape â, a negative one to the rate b̂, so that neither
    becomes negative.
    """
    start, rows, width = block[1], block[2], block[3]
    for row in range(rows):
        first = start + row * width
        stop = first + width
        total, state = 0.0, 0.0
        for i in range(first, stop):
            total += found.counts[i]
            state += math.exp(log_state[i])
        missing = count_totals[first] - total
        rate = 1.0 + max(-missing, 0.0) / max(state, SMALLEST_VALUE)
        for i in range(first, stop):
            process.shape[i] += found.values[i] * max(missing, 0.0)
            process.log_rate[i] = math.log(rate)
            process.time[i] = min(step_size * rate, LONGEST_TIME)


@part
def estimate_process(
    blocks: Table,
    log_state: Vector,
    prior: Prior,
    found: CountsAt,
    step_size: float,
    unit: Vector,
    count_totals: Vector,
    process: Process,
) -> None:
    """Add counts to the prior: â = α + n̂ and b̂ = β + ĉ.

    Simplex blocks where Σn does not depend on ω have b̂ = 1 in all numbers, and one time, which are
    written to the first.
    """
    prior, found, process = borrow(prior), borrow(found), borrow(process)
    for block in range(blocks.shape[0]):
        start = blocks[block, 1]
        stop = start + blocks[block, 2] * blocks[block, 3]
        for i in range(start, stop):
            process.shape[i] = prior.shape[i] + found.counts[i]
        if blocks[block, 0] == SIMPLEX:
            if has_constant_sum(count_totals, start):
                process.log_rate[start], process.time[start] = 0.0, step_size
            else:
                hold_total(blocks[block], log_state, found, step_size, count_totals, process)
            continue
        for i in range(start, stop):
            process.rate[i] = prior.rate[i] + found.exposures[i]
            process.log_rate[i] = math.log(process.rate[i])
            process.time[i] = step_size * process.rate[i] / unit[i]


@compiled(inline="always")  # what it calls is long, and would be compiled twice
def exact_transition(
    blocks: Table, log_state: Vector, count_totals: Vector, process: Process, stream: Stream
) -> None:
    """Draw from the law that each number has after the step, in place."""
    for block in range(blocks.shape[0]):
        kind, start = blocks[block, 0], blocks[block, 1]
        stop = start + blocks[block, 2] * blocks[block, 3]
        own = slice(start, stop)
        if kind == LOG_NORMAL:
            fill_normal(stream, process.noise[own])
            log_normal_transition(
                log_state[own],
                process.shape[own],
                process.rate[own],
                process.time[own],
                process.noise[own],
            )
            continue
        shares_rate = kind == SIMPLEX and has_constant_sum(count_totals, start)
        once = slice(start, start + 1 if shares_rate else stop)
        cir_transition(
            log_state[own], process.shape[own], process.log_rate[once], process.time[once], stream
        )


@kernel
def scir(
    field: Callback,
    arguments: Integers,
    blocks: Table,
    log_state: Vector,
    prior: Prior,
    step_size: float,
    unit: Vector,
    count_totals: Vector,
    reference: CountsAt,
    stream: Stream,
    found: CountsAt,
) -> tuple[int, int]:
    r"""Run the inner steps of one SCIR draw, in place.

    Each step estimates â = α + n̂ and b̂ = β + ĉ from the next minibatch and follows
    dθ = (â − b̂θ) dt + √(2θ) dW exactly for the time h / b̄; log-normal variables follow
    d log θ = (Â − B̂ log θ) dt + √2 dW in the same way.

    **Where Σn depends on ω.** Let L be the likelihood of ω, n = ω ⊙ ∂ log L / ∂ω and S = Σθ. As a
    function of θ, L(θ/S) is constant along rays, so that its derivative is

    .. math::

        \theta_j \frac{\partial}{\partial\theta_j} \log L(\theta/S) = n_j - \omega_j \sum_i n_i,

    and not n. With a constant M, the density

    .. math::

        \pi(\theta) \propto \prod_j \theta_j^{\alpha_j - 1} e^{-\theta_j} \; L(\theta/S) \, S^M

    factorizes in polar coordinates, dθ = S^{d−1} dS dω, into Π ω^{α−1} L(ω), the posterior, and
    S^{Σα+M−1} e^{−S}. Since ∂ log S^M / ∂ log θⱼ = M ωⱼ, the diffusion with noise √(2θ) dW that
    leaves π invariant is

    .. math::

        d\theta_j = \Bigl(\alpha_j + n_j + \omega_j \bigl(M - \textstyle\sum_i n_i\bigr)
        - \theta_j\Bigr) dt + \sqrt{2\theta_j}\,dW_j .

    The sum then follows dS = (Σα + M − S) dt + √(2S) dW, whatever ω is, and ω runs at the rate 1/S,
    which no longer depends on ω. With drift α + n − θ alone, S follows Σα + Σn(ω), and the
    stationary law of ω is close to the posterior times Σα + Σn(ω), at every step size. Where Σn is
    constant, M = Σn makes both the same.

    A step holds ω and S of the correction: d = M − Σn̂ is added as ω max(d, 0) to â and as
    max(−d, 0) / S to b̂ = 1, since ω = θ/S. Neither becomes negative for any M, and both are the
    drift above as h → 0.

    Parameters
    ----------
    field : Callback
        Gradient of the likelihood of the minibatch times N/n, without the prior.
    arguments : ndarray of int64, shape (n_steps,)
        One argument per inner step, usually the first row of its minibatch.
    blocks : ndarray of int64, shape (n_blocks, 4)
        See `pymc_geodesic.kernels.positive_numbers.expand_values`.
    log_state : ndarray, shape (size,)
        log θ, where ω = θ / Σθ in simplex blocks.
    prior : Prior
    step_size : float
        h.
    unit : ndarray, shape (size,)
        b̄, a fixed rate near b, which makes h a number without unit; 1 in simplex blocks.
    count_totals : ndarray, shape (size,) or (0,)
        M of the row that a number belongs to, near the mean of Σn; NaN in other blocks and where
        Σn does not depend on ω. Empty if all are NaN.
    reference : CountsAt
        Where control variates are evaluated, and n and c of all data there; empty for none.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    found : CountsAt
        Receives ω before the last step and the estimates of that step, or of the one that failed.

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
    log_state, unit, stream = borrow(log_state), borrow(unit), borrow(stream)
    count_totals = borrow(count_totals)
    prior, found = borrow(prior), borrow(found)
    size, n_reference = log_state.size, reference.values.size
    process = Process(
        np.empty(size), np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    )
    there = CountsAt(reference.values, np.empty(n_reference), np.empty(n_reference))
    clips = 0
    for argument in arguments:
        expand_values(blocks, log_state, found.values)
        lift_small_values(blocks, prior.rate, found.values)
        failed = estimate_counts(field, argument, blocks, found)
        if failed < 0 and n_reference:
            failed = estimate_counts(field, argument, blocks, there)
        if failed >= 0:
            return failed, clips
        if n_reference:
            clips += add_difference(blocks, reference, there, found)
        estimate_process(blocks, log_state, prior, found, step_size, unit, count_totals, process)
        exact_transition(blocks, log_state, count_totals, process, stream)
    return -1, clips
