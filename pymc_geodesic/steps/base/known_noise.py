"""Gradient noise whose variance is known: the number for each coordinate, and the order of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.steps.base.coverage import drawn_row_numbers
from pymc_geodesic.steps.base.options import MinibatchOptions
from pymc_geodesic.steps.base.pymc_parts import Model

__all__ = ["noise_by_coordinate", "order_of_rows"]

FEW_BLOCKS = 1000
"""Blocks of shuffled rows below which rows are drawn at random where their noise must be known."""


def noise_by_coordinate(gradient_noise: ArrayLike | str | None, size: int) -> np.ndarray:
    """Variance along every coordinate, nothing where it is unknown; zero before rows tell it.

    Raises
    ------
    ValueError
        If it is negative, or has another size.

    Examples
    --------
    >>> from pymc_geodesic.steps.base.known_noise import noise_by_coordinate
    >>> noise_by_coordinate(0.5, 3)
    array([0.5, 0.5, 0.5])
    """
    if gradient_noise is None:
        return np.empty(0)
    if isinstance(gradient_noise, str):
        return np.zeros(size)
    noise = np.asarray(gradient_noise, dtype=float)
    if not np.all(noise >= 0):
        raise ValueError("gradient_noise= is a variance and must not be negative")
    if noise.size not in (1, size):
        raise ValueError(
            f"gradient_noise= has {noise.size} elements; give one or {size}, one per coordinate of "
            "the sampled variables"
        )
    return np.broadcast_to(noise.ravel(), (size,)).copy()


def order_of_rows(
    minibatches: MinibatchOptions, model: Model, *, is_white: bool, is_taken_off: bool
) -> str:
    """Choose the order of the rows: independent minibatches for shuffled ones where noise is known.

    Over K blocks of rows shuffled once, the variance in a direction is off by about sqrt(2 / K) of
    itself. So where it is taken off and the blocks are few, the rows are drawn at random.

    Parameters
    ----------
    minibatches : MinibatchOptions
    model : pymc.Model
    is_white : bool
        Whether noise must be independent from one inner step to the next.
    is_taken_off : bool
        Whether all the noise of minibatches is taken off the noise that is injected.
    """
    if not is_white or minibatches.minibatch_order != "shuffled":
        return minibatches.minibatch_order
    few = is_taken_off and _has_few_blocks(minibatches, model)
    return "random" if few else "independent"


def _has_few_blocks(minibatches: MinibatchOptions, model: Model) -> bool:
    names, batch_size = minibatches.minibatch, minibatches.batch_size
    if names is None:
        return any(rows < FEW_BLOCKS * drawn for rows, drawn in drawn_row_numbers(model))
    if not batch_size:
        return False
    first = names if isinstance(names, str) else next(iter(names), "")
    rows = model.named_vars.get(first)
    if not hasattr(rows, "get_value"):
        return False
    return len(rows.get_value(borrow=True)) < FEW_BLOCKS * batch_size
