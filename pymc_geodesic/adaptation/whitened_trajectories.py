"""Adaptation of mass matrix, step size and length of Hamiltonian trajectories.

The step size is adapted by dual averaging after each draw of the warm-up, and the mass matrix at
the end of each of its windows, as in Stan; the mean length of trajectories in whitened coordinates
is fixed. The mass matrix is the identity in the coordinates z, x = c + Lz, which are
adapted instead.

Where the posterior is nearly N(0, I) in these coordinates, trajectories follow the flow of N(0, I)
exactly and are kicked by the residual r(z) = ∇log π(z) + z (`pymc_geodesic.kernels.gmc`). Where it
is not, they are those of the leapfrog integrator; so are those of a few exceptional coordinates
(`pymc_geodesic.adaptation.split_hamiltonian`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.components import (
    curved_variables,
    describe_adaptation,
    euclidean_names,
    join_euclidean,
    max_length_scales,
)
from pymc_geodesic.adaptation.mass_matrix import SETTINGS as MASS_MATRIX
from pymc_geodesic.adaptation.mass_matrix import MassMatrixWindows, factor_estimator
from pymc_geodesic.adaptation.split_hamiltonian import harmonic_coordinates, mean_square_residual
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.metric import Metric, unit_metric
from pymc_geodesic.integrators import NOT_HARMONIC
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.kernels.dual_averaging import SETTINGS as DUAL_AVERAGING
from pymc_geodesic.kernels.dual_averaging import DualAveraging
from pymc_geodesic.kernels.gmc import MAX_STAGES, Leapfrog
from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.product_flows import project
from pymc_geodesic.monitoring.funnels import Funnel
from pymc_geodesic.runtime.gradient_functions import GradientFunctionLike, evaluate
from pymc_geodesic.runtime.streams import uniform


@dataclass(frozen=True)
class TrajectorySettings:
    """Constants of the adaptation; times in whitened coordinates.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    length : float
        Mean length of a trajectory, more than π/2, the quarter of a period after which a position
        on N(0, I) is independent of its start: means over draws with negative autocorrelations are
        more precise. On N(0, I) the effective draws are 1.5 times as many for means and 0.98 times
        for variances as with π/2 (1 ± 0.4), by calculation; in regressions and hierarchies they are
        1.3 to 1.6 and 0.95 to 1.1 times as many (`benchmarks.split_hamiltonian`).
    length_jitter : float
        Relative half-width of the uniform distribution of lengths, so that no direction returns to
        its start. With 0.2 variances along directions with scales from 0.5 to 2 have half as many
        effective draws, with 0.3 and the length 1.8 about 0.7 times as many, as with π/2 (1 ± 0.4).
    step_size_jitter : float
        Relative half-width of the uniform distribution of the step size.
    draws_for_leapfrog : int
        Minimum number of draws in a window after which a coordinate ceases to be harmonic.
    min_fitted : int
        Minimum number of draws of a window that shows that the metric fits new draws.
    draws_per_coordinate : float
        Number of draws that are kept of the last window, per coordinate, below which a dense metric
        is the inverse curvature at its origin. If the draws of an exploration fit the metric before
        them, that one is kept where its residual is smaller or the log-density is not concave.
    min_curvature : float
        Minimum ratio of the smallest to the largest curvature, in the previous metric.
    split_rejections : float
        Ratio of the rejection probability that the step size is adapted to with a split Hamiltonian
        to that with leapfrog steps. The errors of long steps are in the tails, where chains stay:
        with 1 in place of 0.5 small regressions have 10 to 40 % fewer effective draws
        (`benchmarks.split_hamiltonian`).
    min_stages : int
        Number of steps from which they have the times and weights of Gauss-Lobatto quadrature. With
        2 in place of 3 steps become longer, and the scale of 14 effects in the ratings of
        `benchmarks.large_hierarchies` has up to five times fewer effective draws.
    n_short : int
        Number of draws with short trajectories at the beginning of the warm-up.
    max_steps_short, max_steps_warm_up, max_steps : int
        Maximum number of leapfrog steps of these draws, of the other draws of the warm-up, in which
        the step size may be tiny, and of draws after the warm-up. The last is that of NUTS with the
        tree depth 10, the maximum in Stan and PyMC.
    initial_step_size : float
        Step size with which dual averaging begins.
    step_size_after_update : float
        Step size with which it begins again after an update of the metric.
    exploration_shrinkage : float
        γ of dual averaging in an exploration; see `DualAveraging`. With 0.1 in place of 0.05 the
        explorations of five regressions, one of them with 2,000 groups, took 0.64 to 0.86 times as
        many gradients (6 or 8 chains each), and R-hat and ESS of the draws were the same.
    final_divisor, final_draws : int
        Draws of the warm-up after the last window, in which only the step size is adapted: one in
        ten, and at least 50, as in Stan, or half of a warm-up of less than 100.
    """

    length: float = 1.8
    length_jitter: float = 0.3
    step_size_jitter: float = 0.1
    draws_for_leapfrog: int = 50
    min_fitted: int = 40
    draws_per_coordinate: float = 2.0
    min_curvature: float = 1e-8
    split_rejections: float = 0.5
    min_stages: int = 3
    n_short: int = 30
    max_steps_short: int = 8
    max_steps_warm_up: int = 64
    max_steps: int = 1024
    initial_step_size: float = 0.1
    step_size_after_update: float = 0.3
    exploration_shrinkage: float = 0.1
    final_divisor: int = 10
    final_draws: int = 50


SETTINGS = TrajectorySettings()


@dataclass(frozen=True)
class NearNormalSettings:
    """Constants of a warm-up that begins with a split Hamiltonian, near N(0, I).

    The best step sizes are then between 0.5 and the length of a trajectory. Together with the start
    of `SparseMetric.typical_position`, and compared with the constants of other warm-ups except
    γ = 0.1, five models of `benchmarks.large_hierarchies` took between half as many and 1.1 times
    as many gradients in the warm-up.

    Attributes
    ----------
    step_size : float
        Step size with which dual averaging begins.
    shrinkage, initial_factor : float
        See `DualAveraging`. With γ = 0.05, as elsewhere, the step size varied by a factor of ten in
        the first 50 draws.
    first_window : int
        Number of draws of the first window of the mass matrix; with 20 the last update but one is
        early enough to end the warm-up after 150 of 300 draws.
    """

    step_size: float = 0.5
    shrinkage: float = 0.2
    initial_factor: float = 1.0
    first_window: int = 20


NEAR_NORMAL = NearNormalSettings()


def centered_metric(metric: Metric, x: np.ndarray, gradients: np.ndarray) -> Metric:
    r"""Return the metric with the origin at which the mean of ∇log π(z) + z over draws is 0.

    This origin is :math:`\bar x + L L^\top \bar g`, the mean of the normal distribution that
    minimizes the Fisher divergence from the posterior. For a normal posterior and its covariance
    L Lᵀ it is the exact mean, whatever the draws.

    Parameters
    ----------
    metric : Metric
    x, gradients : ndarray, shape (n, d)
        Positions and gradients of the log-density there.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.whitened_trajectories import centered_metric
    >>> from pymc_geodesic.gradients.metric import Metric
    >>> x = np.array([[5.0], [9.0]])
    >>> centered_metric(Metric(np.zeros(1), np.array([2.0])), x, (1.0 - x) / 4.0).center
    array([1.])
    """
    shift = metric.to_direction(metric.to_gradient(gradients.mean(axis=0)))
    return metric.recentered(x.mean(axis=0) + shift)


def factor_by_curvature(
    metric: Metric, x: np.ndarray, gradient: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray | None:
    r"""Compute the factor of the inverse curvature at the origin of a metric.

    The curvature along a whitened coordinate is the difference of the gradients at −1 and 1, a
    posterior standard deviation on both sides. The estimate from draws needs more of them than
    there are coordinates; this one needs two gradients per coordinate.

    Parameters
    ----------
    metric : Metric
        With a dense factor.
    x : ndarray, shape (size,)
        Position, whose coordinates beyond those of the metric are fixed.
    gradient : callable
        Gradient of the log-density at a position, in the coordinates of the model.

    Returns
    -------
    ndarray, shape (d, d), or None
        None if the log-density is not concave there.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.whitened_trajectories import factor_by_curvature
    >>> from pymc_geodesic.gradients.metric import Metric
    >>> precision = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> factor = factor_by_curvature(
    ...     Metric(np.zeros(2), np.eye(2)), np.zeros(2), lambda x: -precision @ x
    ... )
    >>> np.allclose(factor @ factor.T @ precision, np.eye(2))
    True
    """
    d = metric.center.size
    curvature, directions = np.empty((d, d)), metric.to_direction(np.eye(d))
    for k, direction in enumerate(directions):
        ends = []
        for sign in (-1.0, 1.0):
            point = x.copy()
            point[:d] = metric.center + sign * direction
            ends.append(metric.to_gradient(gradient(point)[:d]))
        with np.errstate(invalid="ignore"):
            curvature[k] = 0.5 * (ends[0] - ends[1])
    if not np.isfinite(curvature).all():
        return None
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    if values[0] <= SETTINGS.min_curvature * values[-1]:
        return None
    return directions.T @ (vectors / np.sqrt(values))


def _fits_better(metric: Metric, other: Metric, x: np.ndarray, gradients: np.ndarray) -> bool:
    """Whether the mean square residual of draws is smaller in a metric than in another one."""
    residuals = [mean_square_residual(each, x, gradients).sum() for each in (metric, other)]
    return bool(residuals[0] < residuals[1])


class WhitenedTrajectories:
    """Mass matrix, step size and length of trajectories, adapted together.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        The variables, Euclidean ones first.
    target_accept : float
    metric : {"auto", "dense", "diag"} or ndarray
        Which correlations the metric has; an array is a covariance.
    angles : collection of str
        Euclidean variables that are angles.
    n_steps : int, optional
        Number of leapfrog steps; by default those of a random length.
    can_reuse_gradient : bool
        See `TrajectoryAdaptation`.
    may_split : bool
        Whether the Hamiltonian may be split; never with ``n_steps`` or angles.
    only_explores : bool
        Whether the draws are only those of the exploration of Langevin dynamics, which ends with
        a window where ``fits_new_draws``. The step size is then not adapted again.
    is_near_normal : bool
        Whether the posterior is near N(0, I) in the coordinates of ``gradient``, so that the
        warm-up begins with the unit metric and a split Hamiltonian.

    Attributes
    ----------
    windows : MassMatrixWindows
        Draws and gradients of the current window.
    fits_new_draws : bool
        Whether the residual of the draws of the last window of an exploration, if they are many,
        was small in the metric before it. No draws of that window are discarded then.
    """

    whitens = needs_warm_up = True
    is_settled = False

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        *,
        target_accept: float,
        metric: str | np.ndarray,
        angles: Collection[str] = (),
        n_steps: int | None = None,
        can_reuse_gradient: bool = False,
        may_split: bool = True,
        only_explores: bool = False,
        is_near_normal: bool = False,
    ) -> None:
        self.gradient, self.can_reuse_gradient = gradient, can_reuse_gradient
        # angles may go around the circle, where N(0, I) is a poor approximation of the posterior
        self._may_split = may_split and n_steps is None and not angles
        self._only_explores, self._is_near_normal = only_explores, is_near_normal
        self._target_accept, self._n_steps = target_accept, n_steps
        self.metric_name = metric if isinstance(metric, str) else "covariance"
        self._angles = angles
        self._estimator = factor_estimator(metric, euclidean_names(product), angles)
        self._model_product, self.product = product, join_euclidean(product)
        self._curved = curved_variables(product)
        self._max_lengths = max_length_scales(product)
        self.is_tuned = False
        prepare(evaluate, project, uniform)
        self.initialize(0)

    def __repr__(self) -> str:
        """Describe what is adapted."""
        return self.describe(*self.describe_metric())

    def describe(self, adapted: list[str], specified: list[str]) -> str:
        """Describe the adaptation, given what is adapted and user-specified of the coordinates.

        Also what the last warm-up in this process chose.
        """
        adapted, chosen = [*adapted, "step size"], []
        if self._n_steps is None:
            adapted.append("length of trajectories")
        else:
            specified = [*specified, f"n_steps={self._n_steps}"]
        if self.is_tuned:
            step_size = self._averaging.average
            chosen.append(f"step size {step_size:.2g} (posterior standard deviations)")
            if self.is_split:
                chosen.append("the split Hamiltonian")
        return describe_adaptation(adapted, specified, chosen)

    def describe_metric(self) -> tuple[list[str], list[str]]:
        """Describe what is adapted of the coordinates, and what is user-specified."""
        if self.metric_name != "covariance":
            return [f"metric={self.metric_name!r}"], []
        components = self._model_product.components
        curved = [name for name, manifold, _ in components if not manifold.is_flat]
        return [f"scale of {name!r}" for name in curved], ["metric="]

    @property
    def logp_grad(self) -> GradientFunctionLike:
        """Gradient over all rows, or a sample of them, in whitened coordinates."""
        return self.gradient.exact

    # --- for `pymc_geodesic.adaptation.whitened.WhitenedAdaptation` and distributed chains --------

    @property
    def is_dense(self) -> bool:
        """Whether every whitened coordinate may depend on every coordinate of the model."""
        return self._estimator.is_dense

    @property
    def recent_step_size(self) -> float:
        """Step size averaged over about the last twenty draws of the warm-up."""
        return self._averaging.recent_average

    def use_covariance(self, covariance: np.ndarray) -> None:
        """Whiten by a covariance, from the next chain on, unless the user specified the metric."""
        if self.metric_name == "auto":
            names = euclidean_names(self._model_product)
            self._estimator = factor_estimator(covariance, names, self._angles)
            self.is_tuned = False
            self.initialize(0)

    # --- a chain ---------------------------------------------------------------------------------

    def set_metric(self, metric: Metric) -> None:
        """Change the coordinates."""
        self.gradient.set_metric(metric)
        self.product.scales[len(self.product.scales) - len(metric.lengths) :] = metric.lengths

    @property
    def is_split(self) -> bool:
        """Whether trajectories follow the flow of N(0, I) exactly, in some coordinates."""
        return self._is_harmonic.size > 0

    @property
    def n_unchanged(self) -> int:
        """Number of draws since the last change of the coordinates."""
        return self._averaging.count

    def _set_integrator(self, is_harmonic: np.ndarray, *, has_small_residual: bool) -> None:
        """Choose the integrator, and with it the acceptance probability."""
        self._has_small_residual = has_small_residual
        splits = self._may_split and is_harmonic.any()
        self._is_harmonic = is_harmonic if splits else NOT_HARMONIC
        factor = SETTINGS.split_rejections if self.is_split else 1.0
        self._averaging.target = 1.0 - factor * (1.0 - self._target_accept)

    @property
    def _first_window(self) -> int:
        return NEAR_NORMAL.first_window if self._is_near_normal else MASS_MATRIX.first_window

    def _initial_averaging(self) -> DualAveraging:
        """Dual averaging before the first draw; a step is not longer than a trajectory."""
        longest = (1.0 + SETTINGS.length_jitter) * SETTINGS.length
        maximum = longest if self._n_steps is None else math.inf
        if self._is_near_normal:
            return DualAveraging(
                NEAR_NORMAL.step_size,
                self._target_accept,
                maximum,
                NEAR_NORMAL.shrinkage,
                NEAR_NORMAL.initial_factor,
            )
        shrinkage = (
            SETTINGS.exploration_shrinkage if self._only_explores else DUAL_AVERAGING.shrinkage
        )
        return DualAveraging(SETTINGS.initial_step_size, self._target_accept, maximum, shrinkage)

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `TrajectoryAdaptation`.

        With ``n_tune=0`` metric and step size of the last warm-up are kept.
        """
        self._n_tune = n_tune
        self.is_tuned = self.is_tuned and n_tune == 0
        if self.is_tuned:
            return
        self.set_metric(unit_metric(self.gradient.n_euclidean, len(self._curved)))
        is_harmonic = np.zeros(self.product.size, dtype=bool)
        is_harmonic[: self.gradient.n_euclidean] = self._is_near_normal
        self._averaging = self._initial_averaging()
        self._set_integrator(is_harmonic, has_small_residual=self._is_near_normal)
        n_final = min(SETTINGS.final_draws, n_tune // 2)
        self._n_windows = n_tune - max(n_tune // SETTINGS.final_divisor, n_final)
        self.windows = MassMatrixWindows(self._n_windows, self._estimator, self._first_window)
        self._n_draws, self.fits_new_draws = 0, False

    def start(self, x: np.ndarray, *, first: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Coordinates of a position; see `TrajectoryAdaptation`."""
        if not (first and self._n_tune):
            return self.gradient.whiten(x), np.empty(0), 0
        gradient = self.gradient.exact_gradient(x)
        if self._is_near_normal:
            return self.gradient.whiten(x), gradient, 1
        d = self.gradient.n_euclidean
        initial = self._estimator.initial_metric(x[:d], gradient[:d])
        lengths = [max(np.mean(gradient[part] ** 2), 1.0) ** -0.25 for part, _ in self._curved]
        self.set_metric(Metric(initial.center, initial.factor, np.array(lengths)))
        return self.gradient.whiten(x), gradient, 1

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""
        return self.gradient.to_position(z)

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Whitened coordinates of a position of the model."""
        return self.gradient.whiten(x)

    def evaluated_position(self) -> None:
        """See `TrajectoryAdaptation`."""

    def propose(self, z: np.ndarray, stream: np.ndarray, *, tune: bool) -> tuple[Leapfrog, int]:
        """Choose a trajectory; see `TrajectoryAdaptation`."""
        step_size = self._averaging.current if tune else self._averaging.average
        step_size = min(step_size, self._max_step_size())
        n_steps, stages = self._n_steps, 1
        if n_steps is None:
            n_steps, stages, step_size = self._random_trajectory(
                step_size, uniform(stream), tune=tune
            )
        jitter = SETTINGS.step_size_jitter
        return Leapfrog(step_size, n_steps, jitter, self._is_harmonic, stages), 0

    def _random_trajectory(
        self, step_size: float, share: float, *, tune: bool
    ) -> tuple[int, int, float]:
        """Divide a random length into steps.

        Steps of a split Hamiltonian have the mean size ``step_size`` or less, with the times of as
        few quadratures as possible. Leapfrog steps are ``step_size`` long: where the posterior is
        not normal, longer steps diverge.

        The length is a quantile of its distribution: ``share`` is a uniform random number.

        Returns
        -------
        n_steps, stages : int
        step_size : float
        """
        length = SETTINGS.length * (1.0 + SETTINGS.length_jitter * (2.0 * share - 1.0))
        max_steps = SETTINGS.max_steps
        if tune:
            is_short = self._n_draws < SETTINGS.n_short
            max_steps = SETTINGS.max_steps_short if is_short else SETTINGS.max_steps_warm_up
        if step_size * max_steps < length:
            return max_steps, 1, step_size
        if not self.is_split:
            return max(round(length / step_size), 1), 1, step_size
        n_steps = math.ceil(length / step_size)
        # in curved coordinates the kicks are not small
        has_small_kicks = self._has_small_residual and not self._curved
        if not has_small_kicks or n_steps < SETTINGS.min_stages:
            return n_steps, 1, length / n_steps
        n_quadratures = math.ceil(n_steps / MAX_STAGES)
        stages = math.ceil(n_steps / n_quadratures)
        n_steps = n_quadratures * stages
        return n_steps, stages, length / n_steps

    def _max_step_size(self) -> float:
        """Step size with which a typical step covers half of the smallest compact manifold."""
        lengths = self.gradient.metric.lengths
        return min(
            (
                math.pi * longest / (length * math.sqrt(dim))
                for length, longest, (_, dim) in zip(
                    lengths, self._max_lengths, self._curved, strict=True
                )
            ),
            default=math.inf,
        )

    def update(
        self, z: np.ndarray, gradient: np.ndarray, acceptance: float
    ) -> tuple[np.ndarray | None, int]:
        """Adapt step size and metric; see `TrajectoryAdaptation`."""
        self.is_tuned = True
        x, gradient = self.to_position(z), self.gradient.to_model_gradient(gradient)
        project(self._model_product.blocks, x, gradient)
        self._n_draws += 1
        self._averaging.update(acceptance)
        if self._n_draws > self._n_windows or not self.windows.add(x, gradient):
            return None, 0
        d = self.gradient.n_euclidean
        is_harmonic, is_small = self.harmonic_coordinates()  # in the metric before these draws
        self.fits_new_draws = (
            self._only_explores
            and is_small
            and d == self.product.size
            and len(self.windows) >= SETTINGS.min_fitted
        )
        if not self.fits_new_draws:
            self.windows.discard_early()
        factor = self.windows.factor(d)
        if factor is None:
            return None, 0
        lengths = [
            self.windows.length(part, dim, longest)
            for (part, dim), longest in zip(self._curved, self._max_lengths, strict=True)
        ]
        positions, gradients = self.windows.positions[:, :d], self.windows.gradients[:, :d]
        if not self.fits_new_draws:
            # near normal the step size changes little with the metric
            recent = self._averaging.recent_average
            after_update = recent if self._is_near_normal else SETTINGS.step_size_after_update
            self._averaging.restart(after_update)
        metric = centered_metric(Metric(x[:d], factor, np.array(lengths)), positions, gradients)
        n_evaluations = 0
        has_few_draws = len(positions) < SETTINGS.draws_per_coordinate * d
        is_last = self._n_draws == self._n_windows or self.fits_new_draws
        if metric.is_dense and has_few_draws and is_last:
            factor = factor_by_curvature(metric, x, self.gradient.exact_gradient)
            n_evaluations = 2 * d
            if factor is not None:
                metric = centered_metric(replace(metric, factor=factor), positions, gradients)
            if self.fits_new_draws:
                # neither metric was estimated from these draws
                before = centered_metric(self.gradient.metric, positions, gradients)
                if factor is None or not _fits_better(metric, before, positions, gradients):
                    metric = before
        self.set_metric(metric)
        # an exploration splits by new draws only, since a dense metric fits few draws exactly
        if not self._only_explores:
            is_harmonic, is_small = self.harmonic_coordinates()
        # one of many mean squares of few draws may be large by chance
        if self.is_split and len(positions) < SETTINGS.draws_for_leapfrog:
            is_harmonic |= self._is_harmonic
            is_small |= self._has_small_residual
        self._set_integrator(is_harmonic, has_small_residual=is_small)
        return self.gradient.whiten(x), n_evaluations

    def harmonic_coordinates(self) -> tuple[np.ndarray, bool]:
        """Coordinates that are harmonic for the draws of the window in the present metric.

        Return also whether the residual is small; see `harmonic_coordinates`.
        """
        d, windows = self.gradient.n_euclidean, self.windows
        is_harmonic, is_small = np.zeros(self.product.size, dtype=bool), False
        if len(windows):
            residual = mean_square_residual(
                self.gradient.metric, windows.positions[:, :d], windows.gradients[:, :d]
            )
            is_harmonic[:d], is_small = harmonic_coordinates(residual)
        return is_harmonic, is_small

    def funnel(self) -> Funnel | None:
        """Find a variable that sets the scale of another; see `TrajectoryAdaptation`."""
        product = self._model_product
        names = [name for name, manifold, _ in product.components if manifold.is_flat]
        return self.windows.funnel({name: product.slices[name] for name in names})

    @property
    def state(self) -> dict[str, Any]:
        """Metric, and what determines the next trajectories."""
        return {
            "n_tune": self._n_tune,
            "is_tuned": self.is_tuned,
            "is_harmonic": self._is_harmonic.copy(),
            "has_small_residual": self._has_small_residual,
            "fits_new_draws": self.fits_new_draws,
            "n_draws": self._n_draws,
            "averaging": self._averaging.state,
            "windows": self.windows.state,
            "gradient": self.gradient.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.initialize(state["n_tune"])
        self.is_tuned, self._n_draws = state["is_tuned"], state["n_draws"]
        self.fits_new_draws = state["fits_new_draws"]
        self._averaging.state = state["averaging"]
        self._set_integrator(state["is_harmonic"], has_small_residual=state["has_small_residual"])
        self.windows.state = state["windows"]
        self.gradient.state = state["gradient"]
        self.set_metric(self.gradient.metric)
