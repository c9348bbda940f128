r"""Monitor of the scales of group effects in samplers that do not center effects partially.

Given its scale τ, an effect with the precision w of its data has the variance 1/(w + τ⁻²). Where
τ² < 1/w the variance follows τ, and a sampler with one step size does not reach smaller values: it
loses the lower tail of τ. The monitor compares the 1 % quantile of τ with the standard deviation of
the effects, which is at most w^(−1/2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_geodesic.monitoring.diagnosis import Diagnosis, DrawMonitor
from pymc_geodesic.monitoring.funnels import PARTIAL_CENTERING


@dataclass(frozen=True)
class EffectScaleSettings:
    """Constants of the monitor.

    Attributes
    ----------
    max_ratio : float
        Largest ratio, without a warning, of the median standard deviation of the effects to the 1 %
        quantile of the scale. In `benchmarks/effects_of_minibatches.py` this quantile was right at
        ratios up to 0.84, and too large from 1.28 on. Chains with a right one had ratios up to 1.1
        for 15 groups of 20 rows (`tests/monitoring/test_effect_scales.py`).
    quantile : float
        Level of the quantile of the scale.
    n_draws : int
        Minimum number of draws that are evaluated in longer chains, at equal distances.
    min_draws : int
        Minimum number of evaluated draws for a diagnosis.
    """

    max_ratio: float = 1.2
    quantile: float = 0.01
    n_draws: int = 500
    min_draws: int = 50


SETTINGS = EffectScaleSettings()


@dataclass
class EffectScaleSums:
    """Sums over the evaluated draws.

    Attributes
    ----------
    n : int
        Number of draws so far, evaluated or not.
    scales : list of list of float
        Median prior standard deviation of each column of effects, for each evaluated draw.
    mean, squares : list of ndarray
        Mean, and sum of squared deviations from it, of each effect minus the mean of its prior and
        of all groups, for each column.
    """

    n: int = 0
    scales: list[list[float]] = field(default_factory=list)
    mean: list[np.ndarray] = field(default_factory=list)
    squares: list[np.ndarray] = field(default_factory=list)


class EffectScaleMonitor(DrawMonitor):
    """Standard deviation of group effects relative to the lower tail of their scale.

    Parameters
    ----------
    columns : sequence of str
        Name of each column of effects.
    priors : callable
        Function of a position that returns for each column the effects minus their prior means, and
        their prior standard deviations.
    """

    def __init__(
        self,
        columns: Sequence[str],
        priors: Callable[[np.ndarray], Sequence[tuple[np.ndarray, np.ndarray]]],
    ) -> None:
        self._columns, self._priors = list(columns), priors
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `DrawMonitor`."""
        self._every = max(1, n_draws // SETTINGS.n_draws)
        self.sums = EffectScaleSums()

    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Evaluate the priors at a draw; see `DrawMonitor`."""
        self.sums.n += 1
        if (self.sums.n - 1) % self._every:
            return
        sums, priors = self.sums, self._priors(position)
        sums.scales.append([float(np.median(sd)) for _, sd in priors])
        deviations = [residual - residual.mean() for residual, _ in priors]
        if not sums.mean:
            sums.mean = [np.zeros_like(each) for each in deviations]
            sums.squares = [np.zeros_like(each) for each in deviations]
        for each, mean, squares in zip(deviations, sums.mean, sums.squares, strict=True):
            away = each - mean
            mean += away / len(sums.scales)
            squares += away * (each - mean)

    @property
    def ratios(self) -> np.ndarray:
        """Ratio of each column: median posterior sd of the effects over the low scale."""
        low = np.quantile(self.sums.scales, SETTINGS.quantile, axis=0)
        sds = [np.median(np.sqrt(each / len(self.sums.scales))) for each in self.sums.squares]
        return np.array(sds) / low

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Compare the effects with the lower tail of their scale; see `DrawMonitor`."""
        if len(self.sums.scales) < SETTINGS.min_draws:
            return None
        ratios = self.ratios
        worst = int(np.argmax(ratios))
        if ratios[worst] <= SETTINGS.max_ratio:
            return None
        return Diagnosis(
            quantity="ratio of posterior to prior standard deviation",
            condition="at the 1 % quantile of their scale",
            value=float(ratios[worst]),
            expected=SETTINGS.max_ratio,
            limit="at most ",
            number=".1f",
            coordinates=(self._columns[worst],),
            consequence=(
                "the data of a group are less informative there than the prior (a funnel), and the "
                "lower tail of the scale may be missing"
            ),
            remedy=PARTIAL_CENTERING,
            anchor="funnel",
        )
