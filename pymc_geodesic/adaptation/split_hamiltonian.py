r"""Split Hamiltonians: which coordinates follow the flow of N(0, I), and how long steps may be.

In whitened coordinates z, in which the posterior is nearly N(0, I), harmonic coordinates follow the
flow of N(0, I) exactly, and kicks contain the residual r(z) = ∇log π(z) + z
(`pymc_geodesic.integrators.drift`).

Along a coordinate with curvature 1 + δ a step h of Langevin dynamics has the relative error δ h²/12
of the variance. The first-order error of the Hamiltonian, with r = −∇U, is

.. math:: \tfrac{h^2}{24} (v^\top \nabla^2 U\, v - z \cdot \nabla U) ,

whose mean over velocities has the standard deviation h²/24 sd(z·r) over the posterior if r is
linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.langevin_parameters import SETTINGS as LANGEVIN
from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.integrators import NOT_HARMONIC
from pymc_geodesic.monitoring.effect_scales import EffectScaleMonitor


@dataclass(frozen=True)
class SplitSettings:
    """Constants of the choice of harmonic coordinates, and of the bounds on Langevin steps.

    Attributes
    ----------
    max_residual : float
        Mean square of a coordinate of the residual r, relative to that of the gradient of N(0, I),
        up to which the Hamiltonian is split. Regressions have 0.01 to 0.2, where the split gives
        1.1 to 3 times as many effective draws per gradient; the non-centered eight schools,
        bananas and mixtures have 0.6 and more, t distributions with 3 degrees of freedom mostly
        0.2 to 0.7, where it makes as many or fewer (`benchmarks.split_hamiltonian`).
    residual_of_exceptions, max_exceptions : float
        Mean square above which a coordinate is an exception, and the largest fraction of
        exceptions that are not harmonic in a split Hamiltonian: in their tails, long steps of the
        split Hamiltonian are rejected. Log scales of few group effects are such exceptions where
        they are not replaced by normal scores.
    min_draws : int
        Number of draws from which a Langevin sampler splits the Hamiltonian. Heuristic.
    max_effect_ratio : float
        Largest ratio of the median posterior standard deviation of group effects to the 1 %
        quantile of their scale with which a Langevin sampler without partial centering splits the
        Hamiltonian; about 1/√2 if the data of a group are as informative as its prior. In a Poisson
        regression with 200 groups and a scale near zero, the split made the scale 1.5 times as
        large, and monitors detected it less often.
    max_error : float
        Upper bound on the relative error of the variance along a coordinate.
    max_error_of_scales : float
        Upper bound on the standard deviation over the posterior of the error of the Hamiltonian. It
        bounds the error of any mean in standard deviations, such as that of the scale of many
        coordinates.
    """

    max_residual: float = 0.25
    residual_of_exceptions: float = 0.1
    max_exceptions: float = 0.05
    min_draws: int = 30
    max_effect_ratio: float = 0.7
    max_error: float = 0.02
    max_error_of_scales: float = 0.1


SETTINGS = SplitSettings()


def mean_square_residual(metric: Metric, x: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Mean square over draws of each whitened coordinate of the residual r(z) = ∇log π(z) + z.

    Parameters
    ----------
    metric : Metric
    x, gradients : ndarray, shape (n, d)
        Positions and gradients of the log-density there.
    """
    residual = metric.whiten(x) + metric.to_gradient(gradients)
    return np.asarray(np.mean(residual**2, axis=0))


def harmonic_coordinates(residual: np.ndarray) -> tuple[np.ndarray, bool]:
    """Choose the coordinates that follow the flow of N(0, 1).

    Few exceptions follow the leapfrog integrator; otherwise all coordinates follow the same one.

    Parameters
    ----------
    residual : ndarray, shape (d,)
        Mean square of each coordinate of the residual r.

    Returns
    -------
    is_harmonic : ndarray of bool, shape (d,)
    is_small : bool
        Whether the residual of all coordinates but the exceptions is small.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.split_hamiltonian import harmonic_coordinates
    >>> is_harmonic, is_small = harmonic_coordinates(np.array([0.5] + 99 * [0.01]))
    >>> int(is_harmonic.sum()), is_small
    (99, True)
    >>> harmonic_coordinates(np.array([0.5, 0.01]))
    (array([False, False]), False)
    """
    is_exception = residual > SETTINGS.residual_of_exceptions
    if is_exception.sum() <= SETTINGS.max_exceptions * len(residual):
        return ~is_exception, True
    return np.full(len(residual), residual.max() <= SETTINGS.max_residual), False


def split_hamiltonian(
    metric: Metric,
    x: np.ndarray,
    gradients: np.ndarray,
    *,
    may_have_exceptions: bool,
) -> tuple[np.ndarray, float]:
    """Choose the harmonic coordinates of Langevin dynamics, and an upper bound on h.

    Parameters
    ----------
    metric : Metric
    x, gradients : ndarray, shape (n, d)
        Positions and gradients of the log-density there. The mean of the residual is subtracted: it
        differs from zero for draws given a sample of the rows, and shifts the mean of the sampler
        by only h²/24 of itself.
    may_have_exceptions : bool
        Whether a few coordinates may not be harmonic.

    Returns
    -------
    is_harmonic : ndarray of bool, shape (d,) or (0,)
        Empty if the Hamiltonian is not split.
    longest : float

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.split_hamiltonian import split_hamiltonian
    >>> from pymc_geodesic.gradients.metric import Metric
    >>> x = np.random.default_rng(1).normal(size=(100, 2))
    >>> metric = Metric(np.zeros(2), np.ones(2))
    >>> split_hamiltonian(metric, x, -x, may_have_exceptions=False)
    (array([ True,  True]), 1.0)
    >>> split_hamiltonian(metric, x, -x**3, may_have_exceptions=False)
    (array([], dtype=bool), inf)
    """
    if len(x) < SETTINGS.min_draws:
        return NOT_HARMONIC, math.inf
    z = metric.whiten(x)
    z -= z.mean(axis=0)
    residual = z + metric.to_gradient(gradients)
    residual -= residual.mean(axis=0)
    mean_square = np.mean(residual**2, axis=0)
    is_harmonic = np.full(len(mean_square), mean_square.max() <= SETTINGS.max_residual)
    if may_have_exceptions:
        is_harmonic, _ = harmonic_coordinates(mean_square)
    if not is_harmonic.any():
        return NOT_HARMONIC, math.inf
    longest = LANGEVIN.max_split_step_size if is_harmonic.all() else LANGEVIN.max_step_size
    # errors over their bounds, of a step h = 1
    of_variance = math.sqrt(float(mean_square[is_harmonic].max())) / 12.0
    of_scales = float(np.sum((z * residual)[:, is_harmonic], axis=1).std()) / 24.0
    error = max(of_variance / SETTINGS.max_error, of_scales / SETTINGS.max_error_of_scales, 1e-12)
    return is_harmonic, min(longest, 1.0 / math.sqrt(error))


class SplitChoice:
    """Choice of a Langevin sampler to split the Hamiltonian, by draws of its warm-up.

    Parameters
    ----------
    may_split : bool
        Whether the dynamics may split the Hamiltonian; only with Euclidean variables.
    effect_scales : EffectScaleMonitor, optional
        Of group effects without partial centering, for the draws of the tuning phase. Those of the
        exploration do not show a scale near zero: given a sample of the rows, effects vary more.

    Attributes
    ----------
    may_split : bool
    """

    def __init__(self, *, may_split: bool, effect_scales: EffectScaleMonitor | None = None) -> None:
        self.may_split, self._monitor = may_split, effect_scales
        self.forget_draws()

    def forget_draws(self) -> None:
        """Begin a chain, or the observation of draws again."""
        if self._monitor is not None:
            self._monitor.initialize(0)

    def choose(
        self, metric: Metric, x: np.ndarray, gradients: np.ndarray, *, may_have_exceptions: bool
    ) -> tuple[np.ndarray, float]:
        """Choose harmonic coordinates and a bound on h; see `split_hamiltonian`."""
        if not self.may_split:
            return NOT_HARMONIC, math.inf
        return split_hamiltonian(metric, x, gradients, may_have_exceptions=may_have_exceptions)

    def observe(self, position: np.ndarray) -> None:
        """Add a draw of the tuning phase."""
        if self._monitor is not None:
            self._monitor.observe(position, {})

    def has_funnel(self) -> bool:
        """Whether the data of a group are less informative than its prior; see the settings."""
        monitor = self._monitor
        if monitor is None or len(monitor.sums.scales) < SETTINGS.min_draws:
            return False
        return bool(monitor.ratios.max() > SETTINGS.max_effect_ratio)

    @property
    def state(self) -> dict[str, Any]:
        """Sums over the draws."""
        return {} if self._monitor is None else self._monitor.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        if self._monitor is not None:
            self._monitor.state = state
