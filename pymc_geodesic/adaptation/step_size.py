"""Step size adaptation of Hamiltonian trajectories, in the coordinates of the model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.kernels import gmc, probe
from pymc_geodesic.kernels.dual_averaging import DualAveraging
from pymc_geodesic.kernels.gmc import Chains, Leapfrog, Record
from pymc_geodesic.kernels.probe import Line
from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.funnels import Funnel
from pymc_geodesic.runtime.gradient_functions import GradientFunctionLike, evaluate


@dataclass(frozen=True)
class StepSizeSettings:
    """Constants of the adaptation.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    jitter : float
        Relative half-width of the uniform distribution of the step size of a trajectory, which
        avoids periodic orbits; that of Neal (2011), MCMC Using Hamiltonian Dynamics, section 5.3.3.
    n_power_iterations : int
        Number of power iterations for the largest curvature at the starting point.
    probe_length : float
        Length of the finite differences of the gradient.
    initial_angle : float
        Initial step size times the square root of the curvature.
    min_curvature : float
        Lower bound on the curvature, for flat densities.
    first_trial : float
        First step size of the search by acceptance.
    max_trials : int
        Maximum number of doublings or halvings of it.
    """

    jitter: float = 0.2
    n_power_iterations: int = 10
    probe_length: float = 1e-6
    initial_angle: float = 0.1
    min_curvature: float = 1e-2
    first_trial: float = 0.1
    max_trials: int = 60


SETTINGS = StepSizeSettings()


class InitialStepSize(Protocol):
    """Function that finds the initial step size of dual averaging."""

    def __call__(
        self, estimator: GradientEstimator, product: Product, x: np.ndarray, stream: np.ndarray
    ) -> tuple[float, int]:
        """Return the step size (NaN if the gradient is not finite) and the number of gradients."""


class StepSizeAdaptation:
    """Adaptation of the step size by dual averaging, or user-specified, without whitening.

    Parameters
    ----------
    estimator : GradientEstimator
    product : Product
    step_size : float, optional
        ε, a time; adapted by default.
    n_steps : int
        Number of leapfrog steps per draw.
    target_accept : float
    initial_step_size : InitialStepSize
    max_step_size : float
        Upper bound on the adapted step size.
    """

    can_reuse_gradient = whitens = is_settled = False

    def __init__(
        self,
        estimator: GradientEstimator,
        product: Product,
        *,
        step_size: float | None,
        n_steps: int,
        target_accept: float,
        initial_step_size: InitialStepSize,
        max_step_size: float,
    ) -> None:
        self._estimator, self.product = estimator, product
        self._user_specified, self._n_steps = step_size, n_steps
        self._initial_step_size, self._max_step_size = initial_step_size, max_step_size
        self._averaging = DualAveraging(1.0, target_accept)  # `propose` restarts it
        self.is_tuned = self._has_initial = False
        self.needs_warm_up = step_size is None

    def __repr__(self) -> str:
        """Describe what is adapted."""
        if self._user_specified is not None:
            return "adapts nothing: the step size is user-specified."
        return "adapts the step size in the coordinates of the model: metric=None or local= is set."

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `TrajectoryAdaptation`.

        With ``n_tune=0`` the step size of the last warm-up is kept.
        """
        self.is_tuned = self.is_tuned and n_tune == 0
        self._has_initial = self.is_tuned

    @property
    def logp_grad(self) -> GradientFunctionLike:
        """Gradient in the coordinates of the model, followed by the log-density."""
        return self._estimator.logp_grad

    def start(self, x: np.ndarray, *, first: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Coordinates of a position; see `TrajectoryAdaptation`."""
        return x, np.empty(0), 0

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""
        return z

    def evaluated_position(self) -> None:
        """See `TrajectoryAdaptation`."""

    def propose(self, z: np.ndarray, stream: np.ndarray, *, tune: bool) -> tuple[Leapfrog, int]:
        """Choose the step size; see `TrajectoryAdaptation`."""
        _, n_grad = self._estimator.begin_draw(z, 1, stream, tune=tune)
        step_size = self._user_specified
        if step_size is None:
            if not self._has_initial:
                initial, more = self._initial_step_size(self._estimator, self.product, z, stream)
                self._averaging.restart(initial)
                self._has_initial = True
                n_grad += more
            adapted = self._averaging.current if tune else self._averaging.average
            step_size = min(adapted, self._max_step_size)
        return Leapfrog(step_size, self._n_steps, SETTINGS.jitter), n_grad

    def update(
        self, z: np.ndarray, gradient: np.ndarray, acceptance: float
    ) -> tuple[np.ndarray | None, int]:
        """Adapt the step size; see `TrajectoryAdaptation`."""
        if self._user_specified is None:
            self.is_tuned = True
            self._averaging.update(acceptance)
        return None, 0

    def funnel(self) -> Funnel | None:
        """Return None: funnels are only detected in whitened coordinates."""
        return None

    @property
    def state(self) -> dict[str, Any]:
        """State of dual averaging."""
        return {
            "averaging": self._averaging.state,
            "is_tuned": self.is_tuned,
            "has_initial": self._has_initial,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._averaging.state = state["averaging"]
        self.is_tuned, self._has_initial = state["is_tuned"], state["has_initial"]


def step_size_by_curvature(
    estimator: GradientEstimator, product: Product, x: np.ndarray, stream: np.ndarray
) -> tuple[float, int]:
    """Compute the step size that resolves the largest curvature; see `InitialStepSize`."""
    direction = np.empty(product.size)
    refresh_velocity(product.blocks, x, direction, stream)
    curvature = math.nan
    for _ in range(SETTINGS.n_power_iterations):
        curvature = probe.call(
            estimator.logp_grad.callback,
            0,
            product.space,
            Line(x, direction, SETTINGS.probe_length),
            np.empty(0),
            np.empty(len(product.dims)),
            1,
        )
        estimator.logp_grad.raise_error()
    step_size = SETTINGS.initial_angle / math.sqrt(max(abs(curvature), SETTINGS.min_curvature))
    return step_size, 2 * SETTINGS.n_power_iterations


def step_size_by_acceptance(
    estimator: GradientEstimator, product: Product, x: np.ndarray, stream: np.ndarray
) -> tuple[float, int]:
    """Double or halve a step size until the acceptance rate of one leapfrog step crosses 0.5.

    This is used if the log-density has kinks, since between them finite differences of the gradient
    do not show the curvature; see `InitialStepSize`. Each step size is tried with a new velocity.

    References
    ----------
    Hoffman, Gelman (2014), The No-U-Turn Sampler, algorithm 4, FindReasonableEpsilon.
    """
    output = np.empty(product.size + 1)
    evaluate(estimator.logp_grad.address, x, 0, estimator.logp_grad.context, output)
    estimator.logp_grad.raise_error()
    if not np.isfinite(output).all():
        return math.nan, 1
    n_grad, step_size, factor = 1, SETTINGS.first_trial, 0.0
    acceptance, none_kept = np.empty(1), np.empty((0, product.size))
    for _ in range(SETTINGS.max_trials):
        _, more = gmc.call(
            estimator.logp_grad.callback,
            0,
            product.space,
            Chains(1, x.copy(), np.full(product.size + 1, math.nan)),
            Leapfrog(step_size, 1, 0.0),
            stream,
            Record(1, none_kept, acceptance, np.empty((2, 0))),
        )
        estimator.logp_grad.raise_error()
        n_grad += more
        wanted = 2.0 if acceptance[0] > 0.5 else 0.5
        if factor not in (0.0, wanted):
            break
        factor = wanted
        step_size *= factor
    return step_size, n_grad
