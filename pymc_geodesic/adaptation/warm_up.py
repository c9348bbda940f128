"""Constants and progress of the warm-up of `pymc_geodesic.adaptation.whitened`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class WarmUpSettings:
    """Constants of the warm-up.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    exploration_fraction : float
        Fraction of the warm-up for exploration.
    min_exploration, max_exploration : int
        Bounds on the number of exploration draws. 500 are enough for the posteriors of
        `benchmarks.adaptation`.
    max_tuning : int
        Number of draws of the tuning phase, if nothing changes towards its end.
    check_points : tuple of float
        Fractions of it at which noise and centering point are updated.
    unchanged_fraction : float
        Fraction of it after which it ends if the centering point did not move, no draw diverged and
        no temperature was biased since.
    max_mean_square, max_mean : float
        Mean square and largest component of the distance of the mean of the draws from the
        centering point, in posterior standard deviations, above which that point moves there. In a
        single experiment, with the centering point of a hierarchy 16 standard deviations from the
        mean in the log scale only, gradient noise made the standard deviation of the log scale 50 %
        too large.
    noise_errors : float
        Number of standard errors of the noise variance that are added, in quadrature, to its
        standard deviation over the posterior before the step size is bounded; above 1, because the
        standard error is underestimated if few rows contribute most of the noise. In a single
        experiment with 1.2, the standard deviations of Student-t regressions with covariates of 2.5
        degrees of freedom were 0.91 to 1.08 times the exact ones;
        ``tests/steps/test_order_of_control_variates.py`` requires errors below 15 %.
    max_divergences : int
        Number of divergences in succession after which the chain returns to where the tuning phase
        began.
    rescaling_range : (float, float)
        Bounds on the ratio by which scales of groups change after the exploration. In the logistic
        regression with 2,000 groups of `benchmarks.large_hierarchies`, the scales of the sample of
        the rows were 0.75 to 1.9 times those of all rows.
    """

    exploration_fraction: float = 0.5
    min_exploration: int = 30
    max_exploration: int = 500
    max_tuning: int = 500
    check_points: tuple[float, ...] = (0.25, 0.5, 0.75)
    unchanged_fraction: float = 0.4
    max_mean_square: float = 1.0
    max_mean: float = 2.0
    noise_errors: float = 1.2
    max_divergences: int = 4
    rescaling_range: tuple[float, float] = (0.3, 3.0)


SETTINGS = WarmUpSettings()


@dataclass
class WarmUp:
    """Progress of a warm-up.

    Attributes
    ----------
    n_tune, n_exploration : int
        Number of its draws, and of those of the exploration phase.
    z_sum : ndarray, shape (size,)
        Sum of the draws of the tuning phase since the last check point or divergence.
    z_count : int
        Number of these draws.
    tuning_start : ndarray, shape (size,) or (0,)
        Position where the tuning phase began, in the coordinates of the model.
    n_divergences, n_runaways : int
        Number of divergences in succession, and of all draws at a runaway temperature.
    n_unchanged : int
        Number of draws of the tuning phase since the last change.
    """

    n_tune: int
    n_exploration: int
    z_sum: np.ndarray
    z_count: int = 0
    tuning_start: np.ndarray = field(default_factory=lambda: np.empty(0))
    n_divergences: int = 0
    n_runaways: int = 0
    n_unchanged: int = 0

    @property
    def n_tuning(self) -> int:
        """Number of draws of the tuning phase."""
        return min(self.n_tune - self.n_exploration, SETTINGS.max_tuning)

    @property
    def is_settled(self) -> bool:
        """Whether nothing has changed for some time."""
        return self.n_unchanged > SETTINGS.unchanged_fraction * SETTINGS.max_tuning

    def forget_draws(self) -> None:
        """Begin the mean of the draws again."""
        self.z_sum[:], self.z_count = 0.0, 0

    def is_check_point(self, draw: int) -> bool:
        """Whether noise and centering point are updated at a draw."""
        draw -= self.n_exploration
        return any(draw == int(fraction * self.n_tuning) for fraction in SETTINGS.check_points)
