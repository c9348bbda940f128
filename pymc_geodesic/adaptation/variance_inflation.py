"""How much the noise of minibatches widens the law of a process that follows their estimates."""

from __future__ import annotations

import math
from collections.abc import Callable

FIRST_INFLATION, LAST_INFLATION = 10.0, 0.05
"""Relative excess of the variance that tuning allows first and last."""

COOLING = 0.7
"""Part of the tuning phase over which the allowed excess falls."""

_HALVINGS = 60


def independent_inflation(time: float) -> float:
    r"""Variance that independent estimates add, in units of the variance of one.

    A process x' = e⁻ʰ x + (1 − e⁻ʰ) â with estimates â of variance 1 has the stationary variance
    (1 − e⁻ʰ)/(1 + e⁻ʰ) = tanh(h/2).

    Parameters
    ----------
    time : float
        h, the time of one step, in relaxation times.

    References
    ----------
    Baker et al. (2018), corollary 3.2.
    """
    return math.tanh(0.5 * time)


def shuffled_inflation(time: float, n_blocks: int) -> float:
    r"""Variance that estimates from blocks of shuffled rows add, in units of the variance of one.

    Over an epoch of E blocks the deviations add up to zero. With q = e⁻ʰ, the p blocks of the
    current epoch and the whole earlier ones contribute

    .. math::

        (1-q)^2 \Bigl[ s_2(p) - \frac{s_1(p)^2}{E}
        + q^{2p} \frac{s_2(E) - s_1(E)^2 / E}{1 - q^{2E}} \Bigr],
        \qquad s_k(p) = \sum_{i<p} q^{ki},

    averaged over p. For hE ≪ 1 this is (hE)/3 of the variance that independent blocks add.

    Parameters
    ----------
    time : float
        h, the time of one step, in relaxation times.
    n_blocks : int
        E, steps of an epoch.
    """
    epoch = n_blocks
    if epoch == 1:
        return 0.0

    def power_sum(power: int, terms: int) -> float:
        return math.expm1(-power * time * terms) / math.expm1(-power * time)

    whole = power_sum(2, epoch) - power_sum(1, epoch) ** 2 / epoch
    earlier = whole / -math.expm1(-2.0 * time * epoch)
    # The mean over p of the current epoch's part, in closed form.
    one, two = -math.expm1(-time), -math.expm1(-2.0 * time)
    mean_two = (1.0 - power_sum(2, epoch) / epoch) / two
    mean_one = (1.0 - 2.0 * power_sum(1, epoch) / epoch + power_sum(2, epoch) / epoch) / one**2
    current = mean_two - mean_one / epoch
    total = current + earlier * power_sum(2, epoch) / epoch
    return one**2 * total


def longest_time(added: Callable[[float], float], allowed: float, longest: float) -> float:
    """Longest time of a step that adds no more variance than allowed.

    Parameters
    ----------
    added : callable
        Variance that a time adds, an increasing function.
    allowed : float
    longest : float
        Bound of the result.
    """
    if added(longest) <= allowed:
        return longest
    low, high = 0.0, longest
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high) if low > 0.0 else 0.1 * high
        if added(middle) <= allowed:
            low = middle
        else:
            high = middle
    return low if low > 0.0 else high


def allowed_inflation(draw: int, n_tune: int) -> float:
    """Relative excess of the variance that a draw may have: falling first, then 5 %.

    The last draw of the tuning phase, whose step size is kept, has 5 % however short the phase.

    Parameters
    ----------
    draw : int
        Number of the draw, with tuning.
    n_tune : int
        Draws of the tuning phase.
    """
    length = min(COOLING * n_tune, n_tune - 1.0)
    progress = min(draw / length, 1.0) if length > 0.0 else 1.0
    return FIRST_INFLATION * (LAST_INFLATION / FIRST_INFLATION) ** progress
