"""Adaptation of mass matrix, step size and length of Hamiltonian trajectories.

The step size is adapted by dual averaging after each draw of the warm-up, and the mass matrix at
the end of each of its windows, as in Stan; the mean length of trajectories in whitened coordinates
is fixed. Instead of a mass matrix the coordinates change, z with x = c + Lz.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.adaptation import LARGER_MINIBATCHES
from pymc_geodesic.adaptation.components import (
    curved_variables,
    euclidean_names,
    join_euclidean,
    max_length_scales,
)
from pymc_geodesic.adaptation.mass_matrix import MassMatrixWindows, factor_estimator
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.metric import Metric, unit_metric
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.kernels.dual_averaging import DualAveraging
from pymc_geodesic.kernels.gmc import Leapfrog
from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.product_flows import project
from pymc_geodesic.monitoring.funnels import Funnel
from pymc_geodesic.runtime.gradient_functions import GradientFunctionLike, evaluate
from pymc_geodesic.runtime.streams import uniform


@dataclass(frozen=True)
class TrajectorySettings:
    """Constants of the adaptation; times in whitened coordinates.

    Attributes
    ----------
    length : float
        Mean length of a trajectory: a quarter of the period of a normal distribution with standard
        deviation 1, after which a position is independent of its start; by calculation.
    length_jitter : float
        Relative half-width of the uniform distribution of lengths, so that no direction returns to
        its start; chosen by hand.
    step_size_jitter : float
        Relative half-width of the uniform distribution of the step size; chosen by hand.
    n_short : int
        Number of draws with short trajectories at the beginning of the warm-up; chosen by hand.
    max_steps_short, max_steps_warm_up, max_steps : int
        Maximum number of leapfrog steps of these, of other draws of the warm-up, in which the step
        size may be tiny, and after the warm-up; chosen by hand.
    initial_step_size : float
        Step size with which dual averaging begins; chosen by hand.
    step_size_after_update : float
        Step size with which it begins again after an update of the metric; chosen by hand.
    final_divisor, final_draws : int
        Draws of the warm-up after the last window, in which only the step size is adapted: one in
        ten, and at least 50, or half of a warm-up of less than 100; chosen by hand.
    """

    length: float = 0.5 * math.pi
    length_jitter: float = 0.4
    step_size_jitter: float = 0.1
    n_short: int = 30
    max_steps_short: int = 8
    max_steps_warm_up: int = 64
    max_steps: int = 1024
    initial_step_size: float = 0.1
    step_size_after_update: float = 0.3
    final_divisor: int = 10
    final_draws: int = 50


SETTINGS = TrajectorySettings()


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
        Number of leapfrog steps; those of a quarter of a period by default.
    can_reuse_gradient : bool
        See `TrajectoryAdaptation`.

    Attributes
    ----------
    windows : MassMatrixWindows
        Draws and gradients of the present window.
    """

    is_whitened = needs_warm_up = True
    minibatch_remedy = LARGER_MINIBATCHES

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
    ) -> None:
        self.gradient, self.can_reuse_gradient = gradient, can_reuse_gradient
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
        return f"adapts metric={self.metric_name!r}, step size and length of trajectories."

    @property
    def logp_grad(self) -> GradientFunctionLike:
        """Gradient over all rows, or a sample of them, in whitened coordinates."""
        return self.gradient.exact

    # --- for `pymc_geodesic.adaptation.whitened.WhitenedAdaptation` and distributed chains --------

    @property
    def mixes(self) -> bool:
        """Whether whitened coordinates are combinations of several coordinates of the model."""
        return self._estimator.mixes

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

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `TrajectoryAdaptation`.

        With ``n_tune=0`` metric and step size of the last warm-up are kept.
        """
        self._n_tune = n_tune
        self.is_tuned = self.is_tuned and n_tune == 0
        if self.is_tuned:
            return
        self.set_metric(unit_metric(self.gradient.n_euclidean, len(self._curved)))
        self._averaging = DualAveraging(SETTINGS.initial_step_size, self._target_accept)
        n_final = min(SETTINGS.final_draws, n_tune // 2)
        self._n_windows = n_tune - max(n_tune // SETTINGS.final_divisor, n_final)
        self.windows = MassMatrixWindows(self._n_windows, self._estimator)
        self._n_draws = 0

    def start(self, x: np.ndarray, *, first: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Coordinates of a position; see `TrajectoryAdaptation`."""
        if not (first and self._n_tune):
            return self.gradient.whiten(x), np.empty(0), 0
        gradient = self.gradient.exact_gradient(x)
        d = self.gradient.n_euclidean
        initial = self._estimator.initial_metric(x[:d], gradient[:d])
        lengths = [max(np.mean(gradient[part] ** 2), 1.0) ** -0.25 for part, _ in self._curved]
        self.set_metric(Metric(initial.center, initial.factor, np.array(lengths)))
        return self.gradient.whiten(x), gradient, 1

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""
        return self.gradient.to_position(z)

    def propose(
        self, z: np.ndarray, stream: np.ndarray, *, tune: bool
    ) -> tuple[int, Leapfrog, int]:
        """Choose a trajectory; see `TrajectoryAdaptation`."""
        step_size = self._averaging.current if tune else self._averaging.average
        step_size = min(step_size, self._max_step_size())
        n_steps = self._n_steps
        if n_steps is None:
            n_steps = self._random_steps(step_size, uniform(stream), tune=tune)
        return 0, Leapfrog(step_size, n_steps, SETTINGS.step_size_jitter), 0

    def _random_steps(self, step_size: float, share: float, *, tune: bool) -> int:
        """Leapfrog steps of a random length, for a uniform random number."""
        length = SETTINGS.length * (1.0 + SETTINGS.length_jitter * (2.0 * share - 1.0))
        n_steps = max(round(length / step_size), 1)
        if not tune:
            return min(n_steps, SETTINGS.max_steps)
        is_short = self._n_draws < SETTINGS.n_short
        return min(n_steps, SETTINGS.max_steps_short if is_short else SETTINGS.max_steps_warm_up)

    def _max_step_size(self) -> float:
        """Step size that goes half around the smallest compact manifold."""
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

    def update(self, z: np.ndarray, acceptance: float) -> tuple[np.ndarray | None, int]:
        """Adapt step size and metric; see `TrajectoryAdaptation`."""
        self.is_tuned = True
        # in the coordinates of the model, and so not the gradient that the kernel has computed
        x = self.to_position(z)
        gradient = self.gradient.exact_gradient(x)
        project(self._model_product.blocks, x, gradient)
        self._n_draws += 1
        self._averaging.update(acceptance)
        if self._n_draws > self._n_windows or not self.windows.add(x, gradient):
            return None, 1
        self.windows.discard_early()
        factor = self.windows.factor(self.gradient.n_euclidean)
        if factor is None:
            return None, 1
        self._averaging.restart(SETTINGS.step_size_after_update)
        lengths = [
            self.windows.length(part, dim, longest)
            for (part, dim), longest in zip(self._curved, self._max_lengths, strict=True)
        ]
        self.set_metric(Metric(x[: self.gradient.n_euclidean].copy(), factor, np.array(lengths)))
        return self.gradient.whiten(x), 1

    def funnel(self, in_model: Collection[tuple[str, str]] = ()) -> Funnel | None:
        """Find a variable that sets the scale of another; see `TrajectoryAdaptation`."""
        product = self._model_product
        names = [name for name, manifold, _ in product.components if manifold.is_flat]
        return self.windows.funnel({name: product.slices[name] for name in names}, in_model)

    @property
    def state(self) -> dict[str, Any]:
        """Metric, and what determines the next trajectories."""
        return {
            "n_tune": self._n_tune,
            "is_tuned": self.is_tuned,
            "n_draws": self._n_draws,
            "averaging": self._averaging.state,
            "windows": self.windows.state,
            "gradient": self.gradient.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.initialize(state["n_tune"])
        self.is_tuned, self._n_draws = state["is_tuned"], state["n_draws"]
        self._averaging.state = state["averaging"]
        self.windows.state = state["windows"]
        self.gradient.state = state["gradient"]
        self.set_metric(self.gradient.metric)
