r"""Monitor of the scales of group effects in samplers without partial centering.

Given its scale τ, an effect whose data have the precision w has the conditional variance
1/(w + τ⁻²). For τ² < 1/w it is close to τ², as in a funnel, and a sampler with one step size loses
the lower tail of τ. The monitor compares the 1 % quantile of τ with the posterior standard
deviation of the effects.
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
        Largest ratio, without a warning, of the median posterior standard deviation of the effects
        to the 1 % quantile of their scale. In `benchmarks/effects_of_minibatches.py` this quantile
        was correct at ratios up to 0.84, and too large at 1.28 and above; with a correct one,
        ratios were up to 1.1 for 15 groups of 20 rows (`tests/monitoring/test_effect_scales.py`).
    quantile : float
        Level of the quantile of the scale.
    n_draws : int
        Longer chains are thinned to at least this many draws.
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
        Mean and sum of squared deviations (Welford) of each effect, after subtracting its prior
        mean and then the mean over groups; one array per column.
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
        Names of the vectors of effects, or of the columns of a matrix, as in ``b[:, 1]``.
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
            sums.mean = [np.zeros_like(deviation) for deviation in deviations]
            sums.squares = [np.zeros_like(deviation) for deviation in deviations]
        for deviation, mean, squares in zip(deviations, sums.mean, sums.squares, strict=True):
            delta = deviation - mean
            mean += delta / len(sums.scales)
            squares += delta * (deviation - mean)

    @property
    def ratios(self) -> np.ndarray:
        """Median posterior sd of the effects of each column over the quantile of their scale."""
        low = np.quantile(self.sums.scales, SETTINGS.quantile, axis=0)
        sds = [np.median(np.sqrt(squares / len(self.sums.scales))) for squares in self.sums.squares]
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
            quantity="median posterior standard deviation of the group effects",
            value=float(ratios[worst]),
            unit=f" times the {SETTINGS.quantile:.0%} posterior quantile of their scale",
            expected=SETTINGS.max_ratio,
            limit="at most ",
            coordinates=(self._columns[worst],),
            consequence=(
                "at small scales the data of a group are less informative than the prior "
                "(a funnel); the scale may be too large, and its lower tail missing"
            ),
            remedy=PARTIAL_CENTERING,
            anchor="funnel",
        )
