"""Interfaces of adaptations: `LangevinAdaptation` and `TrajectoryAdaptation`.

An adaptation chooses coordinates, step size and other parameters of a sampler, and its ``state`` is
nested in that of the sampler. SCIR and SGRLD have one adaptation without an interface,
`pymc_geodesic.adaptation.count_noise.CountNoiseAdaptation`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_geodesic.adaptation.eligibility import Ineligibility
from pymc_geodesic.adaptation.langevin_parameters import LangevinParameters
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.kernels.gmc import Leapfrog
from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.monitoring.funnels import Funnel
from pymc_geodesic.runtime.gradient_functions import GradientFunctionLike


class DynamicsState(Protocol):
    """State of Langevin dynamics without the position; see `pymc_geodesic.samplers.dynamics`.

    Attributes
    ----------
    squares : ndarray
        Sums of squared gradients of AdaGrad; empty without AdaGrad.
    """

    squares: np.ndarray

    def initialize(self, product: Product) -> None:
        """Begin a chain."""

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw new velocities, or the noise of the previous step."""

    def rotate(self, rotation: np.ndarray) -> None:
        """Apply a rotation of the Euclidean coordinates."""


@dataclass(eq=False)
class LangevinChain:
    """State of a chain between two draws.

    Attributes
    ----------
    dynamics : DynamicsState
    z : ndarray, shape (size,)
        Position in the coordinates of the adaptation; empty before the first draw.
    stream : ndarray of uint64
        Random stream.
    n : int
        Number of draws so far, including the warm-up.
    """

    dynamics: DynamicsState
    z: np.ndarray
    stream: np.ndarray
    n: int = 0

    def refresh(self, product: Product) -> None:
        """Draw new velocities at the position."""
        self.dynamics.refresh(product, self.z, self.stream)

    def restart_at(self, z: np.ndarray, product: Product) -> None:
        """Move to a position, with new velocities and thermostats."""
        self.z = z
        self.dynamics.initialize(product)
        self.refresh(product)


class Exploration(NamedTuple):
    """A Metropolis-corrected transition of the exploration phase."""

    step_size: float
    n_grad: int
    diverging: bool


class Proposal(NamedTuple):
    """Parameters and minibatches of the next draw.

    Attributes
    ----------
    parameters : LangevinParameters
    minibatches : ndarray of int64, shape (n_steps,)
    n_grad : int
        Gradient evaluations used to choose them.
    """

    parameters: LangevinParameters
    minibatches: np.ndarray
    n_grad: int


class LangevinAdaptation(Protocol):
    """Coordinates, step size, friction and known noise of Langevin dynamics.

    Attributes
    ----------
    product : Product
        Manifolds of the coordinates.
    state : dict
        State that determines later choices.
    """

    product: Product
    state: dict[str, Any]

    @property
    def logp_grad(self) -> GradientFunctionLike:
        """Gradient estimate in these coordinates."""

    @property
    def ineligibility(self) -> Ineligibility | None:
        """Reason why parameters are adapted without whitening; None otherwise."""

    @property
    def noise_ratio(self) -> float:
        """Variance of the gradient estimate with control variates over that without; 1 if none."""

    @property
    def is_constant(self) -> bool:
        """Whether the parameters do not change after the warm-up."""

    @property
    def whitens(self) -> bool:
        """Whether the warm-up whitens the coordinates."""

    @property
    def needs_warm_up(self) -> bool:
        """Whether any parameter is adapted in the warm-up."""

    @property
    def is_tuned(self) -> bool:
        """Whether the parameters have been adapted in a warm-up."""

    @property
    def settled(self) -> LangevinParameters | None:
        """Parameters, if the warm-up needs no further draws: those that remain repeat the last one.

        None if it needs more draws.
        """

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; without a warm-up, keep the parameters of the previous one."""

    def start(self, x: np.ndarray) -> np.ndarray:
        """Set a new position of the model, and return its coordinates."""

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""

    def explore(self, chain: LangevinChain) -> Exploration | None:
        """Run a Metropolis-corrected transition; return None after the exploration phase."""

    def propose(self, chain: LangevinChain, *, tune: bool) -> Proposal:
        """Choose parameters and minibatches of the next draw."""

    def update(
        self,
        chain: LangevinChain,
        before: np.ndarray,
        proposal: Proposal,
        temperature: float,
        *,
        diverging: bool,
    ) -> tuple[bool, int]:
        """Update the adaptation with a draw of the warm-up.

        Parameters
        ----------
        chain : LangevinChain
            State after the draw; the draw is undone if it is discarded.
        before : ndarray, shape (size,)
            z before the draw.
        proposal : Proposal
        temperature : float
            Temperature, averaged over dimensions; see `position_temperature`.
        diverging : bool
            Whether position or temperature is not finite.

        Returns
        -------
        discarded : bool
        n_grad : int
            Number of gradient evaluations.
        """

    def funnel(self) -> Funnel | None:
        """Find a variable that sets the scale of another in the draws of the warm-up."""

    def noise_diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Diagnose gradient noise that is poorly known, or that inflates the variance."""

    def name_rare_coordinates(self, diagnosis: Diagnosis, names: Sequence[str]) -> Diagnosis:
        """Add all rare coordinates to a diagnosis that contains one of them.

        A coordinate is rare if few minibatches contain rows that depend on it.
        """


class ModelCoordinateAdaptation(ABC):
    """Base class of the Langevin adaptations in the coordinates of the model.

    Parameters
    ----------
    estimator : GradientEstimator
    product : Product
    """

    ineligibility: Ineligibility | None = None
    settled: LangevinParameters | None = None

    def __init__(self, estimator: GradientEstimator, product: Product) -> None:
        self._estimator, self.product = estimator, product

    @property
    def logp_grad(self) -> GradientFunctionLike:
        """Gradient estimate in the coordinates of the model."""
        return self._estimator.logp_grad

    @property
    def noise_ratio(self) -> float:
        """Return 1: there are no control variates."""
        return 1.0

    @property
    def whitens(self) -> bool:
        """Return False."""
        return False

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Return the position."""
        return z

    def explore(self, chain: LangevinChain) -> Exploration | None:
        """Return None: there is no exploration phase."""
        return None

    def funnel(self) -> Funnel | None:
        """Return None: funnels are only detected in whitened coordinates."""
        return None

    def name_rare_coordinates(self, diagnosis: Diagnosis, names: Sequence[str]) -> Diagnosis:
        """Return the diagnosis unchanged: noise is not measured for single coordinates."""
        return diagnosis

    @abstractmethod
    def noise_diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """See `LangevinAdaptation`."""


class TrajectoryAdaptation(Protocol):
    """Coordinates, step size and length of Hamiltonian trajectories.

    Attributes
    ----------
    product : Product
        Manifolds of the coordinates.
    state : dict
        State that determines later choices.
    """

    product: Product
    state: dict[str, Any]

    @property
    def logp_grad(self) -> GradientFunctionLike:
        """Gradient in these coordinates, followed by the log-density."""

    @property
    def can_reuse_gradient(self) -> bool:
        """Whether gradient and log-density of the last draw are valid for the next draw."""

    @property
    def whitens(self) -> bool:
        """Whether the warm-up whitens the coordinates."""

    @property
    def needs_warm_up(self) -> bool:
        """Whether any parameter is adapted in the warm-up."""

    @property
    def is_tuned(self) -> bool:
        """Whether the parameters have been adapted in a warm-up."""

    @property
    def is_settled(self) -> bool:
        """Whether the warm-up needs no further draws: those that remain repeat the last one."""

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; without a warm-up, keep the parameters of the previous one."""

    def start(self, x: np.ndarray, *, first: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Set a new position of the model, and return its coordinates.

        Returns
        -------
        z : ndarray, shape (size,)
        gradient : ndarray
            Gradient in the coordinates of the model, at the ``first`` position of a chain with a
            warm-up; empty otherwise.
        n_grad : int
            Number of gradient evaluations.
        """

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""

    def evaluated_position(self) -> np.ndarray | None:
        """Position at which `logp_grad` was last evaluated; None if `to_position` is as fast."""

    def propose(self, z: np.ndarray, stream: np.ndarray, *, tune: bool) -> tuple[Leapfrog, int]:
        """Choose the trajectory of the next draw.

        Returns
        -------
        trajectory : Leapfrog
            Its step size is NaN if the gradient at ``z`` is not finite.
        n_grad : int
            Gradient evaluations.
        """

    def update(
        self, z: np.ndarray, gradient: np.ndarray, acceptance: float
    ) -> tuple[np.ndarray | None, int]:
        """Update the adaptation with a draw of the warm-up.

        Parameters
        ----------
        z, gradient : ndarray, shape (size,)
            The draw, and the gradient there, in the coordinates of the adaptation.
        acceptance : float
            Mean acceptance probability.

        Returns
        -------
        z : ndarray or None
            The position in the new coordinates; None if they have not changed.
        n_grad : int
            Number of gradient evaluations.
        """

    def funnel(self) -> Funnel | None:
        """Find a variable that sets the scale of another in the draws of the warm-up."""


class Explorer(Protocol):
    """Metropolis-corrected sampler of the exploration phase.

    See `pymc_geodesic.samplers.hmc.HMCSampler`.
    """

    adaptation: Any
    stream: np.ndarray
    z: np.ndarray
    state: dict[str, Any]

    def initialize(self, stream: np.ndarray, n_tune: int, n_draws: int) -> None:
        """Begin a chain."""

    def start(self, x: np.ndarray) -> None:
        """Set the position."""

    def draw(self, *, tune: bool) -> dict[str, Any]:
        """Draw once, and return sample stats."""
