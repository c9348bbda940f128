"""Inflation of the variance of a process by the noise of minibatch estimates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class VarianceInflationSettings:
    """Constants of the schedule of the warm-up.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    first, last : float
        Allowed relative inflation of the variance at the beginning of the warm-up, and after the
        annealing.
    annealing : float
        Fraction of the warm-up over which the inflation is annealed.
    n_bisections : int
        Number of bisections for a step size, down to the rounding error.
    """

    first: float = 10.0
    last: float = 0.05
    annealing: float = 0.7
    n_bisections: int = 60


SETTINGS = VarianceInflationSettings()


def independent_inflation(time: float) -> float:
    r"""Compute the variance added by independent estimates, in units of that of one estimate.

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
    r"""Compute the variance added by estimates from shuffled blocks, in units of that of one.

    Over an epoch of E blocks the deviations sum to zero. With q = e⁻ʰ, the first p blocks of the
    current epoch and all earlier epochs contribute

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
        E, number of steps of an epoch.
    """
    epoch = n_blocks
    if epoch == 1:
        return 0.0

    def power_sum(power: int, terms: int) -> float:
        return math.expm1(-power * time * terms) / math.expm1(-power * time)

    whole = power_sum(2, epoch) - power_sum(1, epoch) ** 2 / epoch
    earlier = whole / -math.expm1(-2.0 * time * epoch)
    # Mean over p of the contribution of the current epoch, in closed form.
    one, two = -math.expm1(-time), -math.expm1(-2.0 * time)
    mean_two = (1.0 - power_sum(2, epoch) / epoch) / two
    mean_one = (1.0 - 2.0 * power_sum(1, epoch) / epoch + power_sum(2, epoch) / epoch) / one**2
    current = mean_two - mean_one / epoch
    total = current + earlier * power_sum(2, epoch) / epoch
    return one**2 * total


def longest_time(added: Callable[[float], float], allowed: float, longest: float) -> float:
    """Find the longest step whose added variance is within the allowed one, by bisection.

    Parameters
    ----------
    added : callable
        Added variance, an increasing function of the time.
    allowed : float
        Allowed added variance.
    longest : float
        Upper bound on the result.
    """
    if added(longest) <= allowed:
        return longest
    low, high = 0.0, longest
    for _ in range(SETTINGS.n_bisections):
        middle = math.sqrt(low * high) if low > 0.0 else 0.1 * high
        if added(middle) <= allowed:
            low = middle
        else:
            high = middle
    return low if low > 0.0 else high


def allowed_inflation(draw: int, n_tune: int) -> float:
    """Compute the allowed relative inflation of the variance at a draw.

    It decreases geometrically and is then constant. At the last draw of the warm-up, whose step
    size is kept, it is the same for any length of warm-up.

    Parameters
    ----------
    draw : int
        Index of the draw, including the warm-up.
    n_tune : int
        Number of draws of the warm-up.
    """
    length = min(SETTINGS.annealing * n_tune, n_tune - 1.0)
    progress = min(draw / length, 1.0) if length > 0.0 else 1.0
    return SETTINGS.first * (SETTINGS.last / SETTINGS.first) ** progress
