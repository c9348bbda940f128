"""Counts and exposures of a likelihood, read off its gradient."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.kernels.positive_numbers import LOG_NORMAL, SIMPLEX
from pymc_geodesic.runtime.fields import Callback, evaluate
from pymc_geodesic.runtime.jit import borrow
from pymc_geodesic.runtime.kernel import Integers, Table, Vector, kernel, part

ROUNDING = 1e-9
"""Negative part of a count, relative to the largest one, that rounding may explain."""


class CountsAt(NamedTuple):
    """What data, or an estimate from a minibatch, say at some values.

    Parameters
    ----------
    values : ndarray, shape (size,)
        ω.
    counts, exposures : ndarray, shape (size,)
        n and c; A and B in log-normal blocks.
    """

    values: Vector
    counts: Vector
    exposures: Vector


@part
def split_counts(field: Callback, argument: int, block: Integers, found: CountsAt) -> None:
    """Tell counts and exposures of a block apart, by the gradient at other values of it.

    Parameters
    ----------
    block : ndarray of int64, shape (4,)
        A row of ``blocks``.
    found : CountsAt
        Its counts are n − cω on entry.
    """
    values, counts, exposures = found
    start, width = block[1], block[2] * block[3]
    is_log_normal = block[0] == LOG_NORMAL
    own, there = np.empty(width), np.empty(values.size)
    for i in range(width):
        own[i] = values[start + i]
        values[start + i] = own[i] / math.e if is_log_normal else 0.5 * own[i]
    evaluate(field.address, values, argument, field.context, there)
    for i in range(start, start + width):
        if is_log_normal:
            exposures[i] = values[i] * there[i] - counts[i]
            counts[i] += exposures[i] * math.log(own[i - start])
        else:
            linear = 2.0 * (values[i] * there[i] - counts[i])
            exposures[i] = linear / own[i - start]
            counts[i] += linear
    for i in range(width):
        values[start + i] = own[i]


@part
def first_refused(blocks: Table, found: CountsAt) -> int:
    """Index of a negative or undefined count or exposure, −1 if there is none.

    What rounding may explain is set to zero.
    """
    values, counts, exposures = found
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


@kernel
def estimate_counts(field: Callback, argument: int, blocks: Table, found: CountsAt) -> int:
    r"""Read counts, and exposures of positive variables, off a gradient.

    A likelihood proportional to Π ωⱼ^{nⱼ} exp(−cⱼωⱼ) has ω ∂ log p = n − cω. For a simplex
    c = 0. For a positive variable it is told from n by evaluating the gradient a second time,
    where the variable is half as large. For a log-normal variable, whose likelihood has
    θ ∂ log p = A − B log θ, the second evaluation is at θ/e, and A and B are returned.

    Parameters
    ----------
    field : Callback
        Writes ∂ log p / ∂ω.
    argument : int
        Passed on to the field.
    blocks : ndarray of int64, shape (n_blocks, 4)
        See `pymc_geodesic.kernels.positive_numbers.expand_values`.
    found : CountsAt
        Its values are changed for a while and given back as they were; counts and exposures are
        written.

    Returns
    -------
    int
        Index of a negative or undefined count or exposure, −1 if there is none. What rounding
        may explain is set to zero.

    References
    ----------
    Baker et al. (2018), algorithm 1, with expected counts by Fisher's identity.
    """
    found = borrow(found)
    values, counts, exposures = found
    evaluate(field.address, values, argument, field.context, counts)
    for i in range(values.size):
        counts[i] *= values[i]
        exposures[i] = 0.0
    for block in range(blocks.shape[0]):
        if blocks[block, 0] != SIMPLEX:
            split_counts(field, argument, blocks[block], found)
    return first_refused(blocks, found)


@part
def add_difference(blocks: Table, reference: CountsAt, there: CountsAt, found: CountsAt) -> int:
    """Add what all data say at a reference, less what the minibatch says there.

    Parameters
    ----------
    reference, there : CountsAt
        Of all data and of the minibatch, at the same values.
    found : CountsAt
        Of the minibatch at other values; changed in place.

    Returns
    -------
    int
        Numbers that were negative, and set to zero.
    """
    counts, exposures = found.counts, found.exposures
    clips = 0
    for block in range(blocks.shape[0]):
        start = blocks[block, 1]
        for i in range(start, start + blocks[block, 2] * blocks[block, 3]):
            counts[i] += reference.counts[i] - there.counts[i]
            exposures[i] += reference.exposures[i] - there.exposures[i]
            if counts[i] < 0.0 and blocks[block, 0] != LOG_NORMAL:
                clips += counts[i] < -ROUNDING * max(1.0, reference.counts[i])
                counts[i] = 0.0
            if exposures[i] < 0.0:
                clips += exposures[i] < -ROUNDING * max(1.0, reference.exposures[i])
                exposures[i] = 0.0
    return clips
