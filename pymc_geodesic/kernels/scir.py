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
    Prior,
    expand_values,
    lift_small_values,
)
from pymc_geodesic.runtime.fields import Callback
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.kernel import Integers, Stream, Table, Vector, kernel, part
from pymc_geodesic.runtime.streams import fill_normal

__all__ = ["scir"]


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
def estimate_process(
    blocks: Table, prior: Prior, found: CountsAt, step_size: float, unit: Vector, process: Process
) -> None:
    """Add counts to the prior: â = α + n̂ and b̂ = β + ĉ.

    Simplex blocks have b̂ = 1 in all numbers, and one time, which are written to the first.
    """
    prior, found, process = borrow(prior), borrow(found), borrow(process)
    for block in range(blocks.shape[0]):
        start = blocks[block, 1]
        stop = start + blocks[block, 2] * blocks[block, 3]
        for i in range(start, stop):
            process.shape[i] = prior.shape[i] + found.counts[i]
        if blocks[block, 0] == SIMPLEX:
            process.log_rate[start], process.time[start] = 0.0, step_size
            continue
        for i in range(start, stop):
            process.rate[i] = prior.rate[i] + found.exposures[i]
            process.log_rate[i] = math.log(process.rate[i])
            process.time[i] = step_size * process.rate[i] / unit[i]


@compiled(inline="always")  # what it calls is long, and would be compiled twice
def exact_transition(blocks: Table, log_state: Vector, process: Process, stream: Stream) -> None:
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
        once = slice(start, start + 1 if kind == SIMPLEX else stop)
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
    reference: CountsAt,
    stream: Stream,
    found: CountsAt,
) -> tuple[int, int]:
    r"""Run the inner steps of one SCIR draw, in place.

    Each step estimates â = α + n̂ and b̂ = β + ĉ from the next minibatch and follows
    dθ = (â − b̂θ) dt + √(2θ) dW exactly for the time h / b̄; log-normal variables follow
    d log θ = (Â − B̂ log θ) dt + √2 dW in the same way.

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
        estimate_process(blocks, prior, found, step_size, unit, process)
        exact_transition(blocks, log_state, process, stream)
    return -1, clips
