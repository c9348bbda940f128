"""Adaptation of Hamiltonian trajectories: covariance, length and step size, or the last alone."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.adaptation.adaptation import LARGER_MINIBATCHES
from pymc_geodesic.adaptation.mass_matrix import factor_rule
from pymc_geodesic.adaptation.trajectory_tuning import TrajectoryTuner
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.gradients.metric import Metric, unit_metric
from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.kernels import gmc, probe
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.kernels.dual_averaging import DualAveraging
from pymc_geodesic.kernels.gmc import Chains, Leapfrog, Record
from pymc_geodesic.kernels.probe import Line
from pymc_geodesic.manifolds import Euclidean, Product
from pymc_geodesic.manifolds.blocks import project
from pymc_geodesic.monitoring.funnels import Funnel
from pymc_geodesic.runtime.fields import FieldLike, evaluate
from pymc_geodesic.runtime.streams import uniform

JITTER = 0.1
"""Each trajectory of random length uses ε(1 + 0.1 U(−1, 1))."""

JITTER_OF_FIXED_LENGTH = 0.2
"""Each trajectory of fixed length uses ε(1 + 0.2 U(−1, 1)), which breaks periodic orbits."""

POWER_ITERATIONS = 10

FIRST_TRIAL, MOST_TRIALS = 0.1, 60
"""First step size of `step_by_acceptance`, and how often it is doubled or halved at most."""


def compact_parts(product: Product) -> list[tuple[slice, int]]:
    """Slice and dimension of each variable that is not Euclidean."""
    return [
        (product.slices[name], rows * manifold.dim)
        for name, manifold, rows in product.components
        if not manifold.is_flat
    ]


def flat_names(product: Product) -> list[str]:
    """Name of the variable of each Euclidean coordinate."""
    return [
        name
        for name, manifold, rows in product.components
        if manifold.is_flat
        for _ in range(rows * manifold.size)
    ]


def longest_lengths(product: Product) -> list[float]:
    """Bound of the length scale of each variable of `compact_parts`: half lines have none."""
    return [
        1.0 if manifold.is_compact else math.inf
        for _, manifold, _ in product.components
        if not manifold.is_flat
    ]


def joined(product: Product) -> Product:
    """Product with one block for all Euclidean variables, which come first.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.trajectories import joined
    >>> from pymc_geodesic.manifolds import Euclidean, Product, Sphere
    >>> both = Product([("a", Euclidean(2), 1), ("b", Euclidean(3), 1), ("mu", Sphere(3), 4)])
    >>> joined(both).names
    ('Euclidean coordinates', 'mu')
    """
    rest = [one for one in product.components if not one[1].is_flat]
    width = product.size - sum(rows * manifold.size for _, manifold, rows in rest)
    euclidean = [("Euclidean coordinates", Euclidean(width), 1)] if width else []
    return Product([*euclidean, *rest])


class TrajectoryAdaptation(Protocol):
    """Coordinates, step size and length of Hamiltonian trajectories.

    Attributes
    ----------
    product : Product
        Manifolds of the coordinates.
    is_fixed : bool
        Whether the log-density at a position stays what it is, so that it is evaluated there once.
    is_whitened : bool
        Whether the coordinates have unit posterior covariance, as far as is known.
    needs_warm_up, is_tuned : bool
        Whether parameters are left to a warm-up, and whether there was one.
    minibatch_remedy : str
        Change of the minibatches that reduces gradient noise.
    state : dict
        All that decides what is chosen later.
    """

    product: Product
    is_fixed: bool
    is_whitened: bool
    needs_warm_up: bool
    minibatch_remedy: str
    state: dict[str, Any]

    @property
    def is_tuned(self) -> bool:
        """Whether there was a warm-up."""

    @property
    def logp_grad(self) -> FieldLike:
        """Gradient in these coordinates, and the log-density behind it."""

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; without a warm-up, keep what was chosen in the last one."""

    def start(self, x: np.ndarray, *, first: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Coordinates of a position that was set from outside.

        Returns
        -------
        z : ndarray, shape (size,)
        gradient : ndarray
            At the ``first`` position of a chain that has a warm-up, in the coordinates of the
            model; empty elsewhere.
        n_grad : int
            Gradient evaluations.
        """

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""

    def propose(
        self, z: np.ndarray, stream: np.ndarray, *, tune: bool
    ) -> tuple[int, Leapfrog, int]:
        """Minibatch and trajectory of the next draw, and gradient evaluations of the choice."""

    def update(self, z: np.ndarray, acceptance: float) -> tuple[np.ndarray | None, int]:
        """Learn from a draw of the warm-up.

        Returns
        -------
        z : ndarray or None
            The position in new coordinates, where these have changed.
        n_grad : int
            Gradient evaluations.
        """

    def funnel(self, in_model: Collection[tuple[str, str]] = ()) -> Funnel | None:
        """Find a variable that sets the scale of another, from the draws of the warm-up.

        Parameters
        ----------
        in_model : collection of (str, str)
            Pairs of which the model says so, which need less evidence.
        """


class WhitenedTrajectories:
    """Covariance, step size and length of trajectories, adapted together.

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
        Leapfrog steps; by default as many as a quarter of a period takes.
    is_fixed : bool
        See `TrajectoryAdaptation`.
    """

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        *,
        target_accept: float,
        metric: str | np.ndarray,
        angles: Collection[str] = (),
        n_steps: int | None = None,
        is_fixed: bool = False,
    ) -> None:
        self.gradient, self.is_fixed = gradient, is_fixed
        self._target_accept, self._n_steps = target_accept, n_steps
        self.metric_name = metric if isinstance(metric, str) else "covariance"
        self._angles = angles
        self._rule = factor_rule(metric, flat_names(product), angles)
        self._model_product, self.product = product, joined(product)
        self._compact, self._longest = compact_parts(product), longest_lengths(product)
        self.has_tuned = False
        prepare(evaluate, project, uniform)
        self.initialize(0)

    @property
    def logp_grad(self) -> FieldLike:
        """Gradient of all rows, or of a sample of them, in whitened coordinates."""
        return self.gradient.exact

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `TrajectoryAdaptation`."""
        self._n_tune = n_tune
        self.has_tuned = self.has_tuned and n_tune == 0
        if not self.has_tuned:
            self.use(unit_metric(self.gradient.n_euclidean, len(self._compact)))
            self.tuner = TrajectoryTuner(
                n_tune,
                self._target_accept,
                self._rule,
                self.gradient.n_euclidean,
                self._compact,
                self._longest,
            )

    def __repr__(self) -> str:
        """Describe what is adapted."""
        return f"adapts metric={self.metric_name!r}, step size and length of trajectories."

    is_whitened = needs_warm_up = True
    minibatch_remedy = LARGER_MINIBATCHES

    @property
    def is_tuned(self) -> bool:
        """Whether a warm-up has chosen the parameters."""
        return self.has_tuned

    @property
    def mixes(self) -> bool:
        """Whether a whitened coordinate belongs to no coordinate of the model."""
        return self._rule.mixes

    def use_covariance(self, covariance: np.ndarray) -> None:
        """Whiten by a covariance, from the next chain on, unless the user specified the metric."""
        if self.metric_name == "auto":
            self._rule = factor_rule(covariance, flat_names(self._model_product), self._angles)
            self.has_tuned = False
            self.initialize(0)

    def use(self, metric: Metric) -> None:
        """Change the coordinates."""
        self.gradient.use(metric)
        self.product.scales[len(self.product.scales) - len(metric.lengths) :] = metric.lengths

    def start(self, x: np.ndarray, *, first: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Coordinates of a position; see `TrajectoryAdaptation`."""
        if not (first and self._n_tune):
            return self.gradient.from_position(x), np.empty(0), 0
        gradient = self.gradient.exact_gradient(x)
        d = self.gradient.n_euclidean
        first_metric = self._rule.first(x[:d], gradient[:d])
        steep = [max(np.mean(gradient[part] ** 2), 1.0) ** -0.25 for part, _ in self._compact]
        self.use(Metric(first_metric.centre, first_metric.factor, np.array(steep)))
        return self.gradient.from_position(x), gradient, 1

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""
        return self.gradient.to_position(z)

    def _longest_step(self) -> float:
        """Step that goes half around the smallest compact manifold."""
        lengths = self.gradient.metric.lengths
        return min(
            (
                math.pi * longest / (length * math.sqrt(dim))
                for length, longest, (_, dim) in zip(
                    lengths, self._longest, self._compact, strict=True
                )
            ),
            default=math.inf,
        )

    def propose(
        self, z: np.ndarray, stream: np.ndarray, *, tune: bool
    ) -> tuple[int, Leapfrog, int]:
        """Choose a trajectory; see `TrajectoryAdaptation`."""
        steps = self.tuner.step_size
        step_size = min(steps.exploring if tune else steps.settled, self._longest_step())
        n_steps = self._n_steps
        if n_steps is None:
            n_steps = self.tuner.n_steps(step_size, uniform(stream), tune=tune)
        return 0, Leapfrog(step_size, n_steps, JITTER), 0

    def update(self, z: np.ndarray, acceptance: float) -> tuple[np.ndarray | None, int]:
        """Adapt step size and metric; see `TrajectoryAdaptation`."""
        self.has_tuned = True
        x = self.to_position(z)
        gradient = self.gradient.exact_gradient(x)
        project(self._model_product.blocks, x, gradient)
        metric = self.tuner.observe(acceptance, x, gradient)
        if metric is None:
            return None, 1
        self.use(metric)
        return self.gradient.from_position(x), 1

    def funnel(self, in_model: Collection[tuple[str, str]] = ()) -> Funnel | None:
        """Find a variable that sets the scale of another; see `TrajectoryAdaptation`."""
        windows = self.tuner.windows
        if windows is None:
            return None
        product = self._model_product
        names = [name for name, manifold, _ in product.components if manifold.is_flat]
        return windows.funnel({name: product.slices[name] for name in names}, in_model)

    @property
    def state(self) -> dict[str, Any]:
        """Metric, and what decides the trajectories to come."""
        return {
            "n_tune": self._n_tune,
            "has_tuned": self.has_tuned,
            "tuner": self.tuner.state,
            "gradient": self.gradient.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.initialize(state["n_tune"])
        self.has_tuned = state["has_tuned"]
        self.tuner.state = state["tuner"]
        self.gradient.state = state["gradient"]
        self.use(self.gradient.metric)


class FirstStep(Protocol):
    """Finds the step size that dual averaging begins with."""

    def __call__(
        self, estimate: GradientEstimate, product: Product, x: np.ndarray, stream: np.ndarray
    ) -> tuple[float, int]:
        """Return the step size, and gradient evaluations; NaN if the gradient is not finite."""


class StepSizeAdaptation:
    """The step size, user-specified or by dual averaging, in the coordinates of the model.

    Parameters
    ----------
    estimate : GradientEstimate
    product : Product
    step_size : float, optional
        ε, a time; adapted by default.
    n_steps : int
        Leapfrog steps of a draw.
    target_accept : float
    first_step : FirstStep
    longest_step : float
        Bound of the adapted step size.
    reason : str
        Why nothing else is adapted.
    """

    is_fixed = is_whitened = False
    minibatch_remedy = LARGER_MINIBATCHES

    def __init__(
        self,
        estimate: GradientEstimate,
        product: Product,
        *,
        step_size: float | None,
        n_steps: int,
        target_accept: float,
        first_step: FirstStep,
        longest_step: float,
        reason: str,
    ) -> None:
        self._estimate, self.product = estimate, product
        self._given, self._n_steps = step_size, n_steps
        self._first_step, self._longest_step = first_step, longest_step
        self._steps = DualAveraging(1.0, target_accept)
        self._has_tuned = self._has_begun = False
        self._reason = reason
        self.needs_warm_up = step_size is None

    def __repr__(self) -> str:
        """Describe what is adapted."""
        if self._given is not None:
            return "adapts nothing: the step size is user-specified."
        return f"adapts the step size in the coordinates of the model: {self._reason}."

    @property
    def is_tuned(self) -> bool:
        """Whether a warm-up has chosen the step size."""
        return self._has_tuned

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `TrajectoryAdaptation`."""
        self._has_tuned = self._has_tuned and n_tune == 0
        self._has_begun = self._has_tuned

    @property
    def logp_grad(self) -> FieldLike:
        """Gradient in the coordinates of the model, and the log-density behind it."""
        return self._estimate.field

    def start(self, x: np.ndarray, *, first: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Coordinates of a position; see `TrajectoryAdaptation`."""
        return x, np.empty(0), 0

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""
        return z

    def propose(
        self, z: np.ndarray, stream: np.ndarray, *, tune: bool
    ) -> tuple[int, Leapfrog, int]:
        """Choose the step size; see `TrajectoryAdaptation`."""
        minibatches, n_grad = self._estimate.prepare(z, 1, stream, tune=tune)
        step_size = self._given
        if step_size is None:
            if not self._has_begun:
                first, more = self._first_step(self._estimate, self.product, z, stream)
                self._steps.restart(first)
                self._has_begun = True
                n_grad += more
            adapted = self._steps.exploring if tune else self._steps.settled
            step_size = min(adapted, self._longest_step)
        trajectory = Leapfrog(step_size, self._n_steps, JITTER_OF_FIXED_LENGTH)
        return int(minibatches[0]), trajectory, n_grad

    def update(self, z: np.ndarray, acceptance: float) -> tuple[np.ndarray | None, int]:
        """Adapt the step size; see `TrajectoryAdaptation`."""
        if self._given is None:
            self._has_tuned = True
            self._steps.observe(acceptance)
        return None, 0

    def funnel(self, in_model: Collection[tuple[str, str]] = ()) -> Funnel | None:
        """Find nothing: only whitened coordinates show it."""
        return None

    @property
    def state(self) -> dict[str, Any]:
        """Dual averages."""
        return {
            "steps": self._steps.state,
            "has_tuned": self._has_tuned,
            "has_begun": self._has_begun,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._steps.state = state["steps"]
        self._has_tuned, self._has_begun = state["has_tuned"], state["has_begun"]


def step_by_curvature(
    estimate: GradientEstimate, product: Product, x: np.ndarray, stream: np.ndarray
) -> tuple[float, int]:
    """Step that resolves the largest curvature at a point; see `FirstStep`."""
    direction = np.empty(product.size)
    refresh_velocity(product.blocks, x, direction, stream)
    curvature = math.nan
    for _ in range(POWER_ITERATIONS):
        curvature = probe.call(
            estimate.field.callback,
            0,
            product.space,
            Line(x, direction, 1e-6),
            np.empty(0),
            np.empty(len(product.dims)),
            1,
        )
        estimate.field.raise_error()
    return 0.1 / math.sqrt(max(abs(curvature), 1e-2)), 2 * POWER_ITERATIONS


def step_by_acceptance(
    estimate: GradientEstimate, product: Product, x: np.ndarray, stream: np.ndarray
) -> tuple[float, int]:
    """Double or halve a step until the acceptance of one leapfrog step crosses ½; see `FirstStep`.

    Where the gradient has kinks, finite differences of it are zero between them.
    """
    output = np.empty(product.size + 1)
    evaluate(estimate.field.address, x, 0, estimate.field.context, output)
    estimate.field.raise_error()
    if not np.isfinite(output).all():
        return math.nan, 1
    n_grad, step_size, factor = 1, FIRST_TRIAL, 0.0
    acceptance, none_kept = np.empty(1), np.empty((0, product.size))
    for _ in range(MOST_TRIALS):
        _, more = gmc.call(
            estimate.field.callback,
            0,
            product.space,
            Chains(1, x.copy(), np.full(product.size + 1, math.nan)),
            Leapfrog(step_size, 1, 0.0),
            stream,
            Record(1, none_kept, acceptance, np.empty((2, 0))),
        )
        estimate.field.raise_error()
        n_grad += more
        wanted = 2.0 if acceptance[0] > 0.5 else 0.5
        if factor not in (0.0, wanted):
            break
        factor = wanted
        step_size *= factor
    return step_size, n_grad
