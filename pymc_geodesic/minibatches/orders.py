"""The orders that rows in memory may come in, and which of them a sampler gets."""

from __future__ import annotations

from enum import Enum

from pymc_geodesic.minibatches.random_rows import RandomRows
from pymc_geodesic.minibatches.shuffled_rows import IndependentRows, ShuffledRows

MINIBATCH_ORDERS: dict[str, type[ShuffledRows | RandomRows]] = {
    "shuffled": ShuffledRows,
    "independent": IndependentRows,
    "random": RandomRows,
}

FEW_BLOCKS = 1000
"""Blocks of shuffled rows below which rows are drawn at random where their noise must be known."""


class RowNoise(Enum):
    """What a sampler counts on of the noise of its minibatches."""

    ANY = "nothing"
    WHITE = "it is independent from one inner step to the next"
    TAKEN_OFF = "it is independent, and all of it is subtracted from the injected noise"


def check_order(minibatch_order: str) -> None:
    """Refuse an order that is unknown.

    Raises
    ------
    ValueError
        The message names those there are.
    """
    if minibatch_order not in MINIBATCH_ORDERS:
        raise ValueError(
            f"minibatch_order={minibatch_order!r} is unknown; choose one of "
            f"{sorted(MINIBATCH_ORDERS)}"
        )


def order_for(asked: str, noise: RowNoise, n_blocks: float) -> str:
    """Choose the order of the rows: independent minibatches for shuffled ones where noise is known.

    Over K blocks of rows shuffled once, the variance in a direction is off by about sqrt(2 / K) of
    itself. So where it is taken off and the blocks are few, the rows are drawn at random.

    Parameters
    ----------
    asked : str
        The order that the user asked for.
    noise : RowNoise
    n_blocks : float
        K, rows of the data for each of a minibatch; infinite where that is not known.

    Examples
    --------
    >>> from pymc_geodesic.minibatches.orders import RowNoise, order_for
    >>> order_for("shuffled", RowNoise.WHITE, 100.0)
    'independent'
    >>> order_for("shuffled", RowNoise.TAKEN_OFF, 100.0)
    'random'
    """
    if noise is RowNoise.ANY or asked != "shuffled":
        return asked
    return "random" if noise is RowNoise.TAKEN_OFF and n_blocks < FEW_BLOCKS else "independent"
