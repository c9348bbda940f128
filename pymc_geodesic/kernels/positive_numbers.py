"""Blocks of probabilities and positive numbers, kept as log θ, and their priors."""

from __future__ import annotations

from typing import NamedTuple

from pymc_geodesic.runtime.branchless import exponential
from pymc_geodesic.runtime.kernel import Table, Vector, kernel

SIMPLEX, POSITIVE, LOG_NORMAL = 0, 1, 2
"""Kinds of blocks: rows that are divided by their sums, positive numbers, log-normal ones."""

SMALLEST_VALUE = 1e-290
"""Least component the gradient is evaluated at: counts up to 10¹⁸ over it are finite."""

SMALLEST_SHARE = 1e-8
"""Least positive variable that exposures are told from, in units of the scale of its prior."""


class Prior(NamedTuple):
    """Priors of all numbers.

    Parameters
    ----------
    shape, rate : ndarray, shape (size,)
        α and β; β = 1 in simplex blocks; μ/σ² and 1/σ² in log-normal ones.
    """

    shape: Vector
    rate: Vector


@kernel
def expand_values(blocks: Table, log_state: Vector, values: Vector) -> None:
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


@kernel
def lift_small_values(blocks: Table, prior_rate: Vector, values: Vector) -> None:
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
