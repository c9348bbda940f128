"""What a Langevin sampler asks of its adaptation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_geodesic.adaptation.langevin_parameters import LangevinSettings
from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.monitoring.funnels import Funnel
from pymc_geodesic.runtime.fields import FieldLike

LARGER_MINIBATCHES = "larger minibatches"
"""Usual remedy for too much gradient noise."""


class MovingState(Protocol):
    """State of Langevin dynamics besides the position; see `pymc_geodesic.samplers.dynamics`.

    Attributes
    ----------
    squares : ndarray
        AdaGrad's sums of squared gradients; empty without.
    """

    squares: np.ndarray

    def initialize(self, product: Product) -> None:
        """Begin a chain."""

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw velocities, or the noise of the step before."""

    def rotate(self, rotation: np.ndarray) -> None:
        """Follow a rotation of the Euclidean coordinates."""


@dataclass(eq=False)
class LangevinChain:
    """A chain between two draws.

    Attributes
    ----------
    dynamics : Dynamics
        Velocity, thermostats or noise of the step before.
    z : ndarray, shape (size,)
        Position in the coordinates of the adaptation; empty before the first draw.
    stream : ndarray of uint64
        Random stream.
    n : int
        Draws so far, warm-up included.
    """

    dynamics: MovingState
    z: np.ndarray
    stream: np.ndarray
    n: int = 0

    def refresh(self, product: Product) -> None:
        """Draw velocities at the position."""
        self.dynamics.refresh(product, self.z, self.stream)


class Exploration(NamedTuple):
    """A Metropolis-corrected transition of the first phase of warm-up."""

    step_size: float
    n_grad: int
    diverging: bool


class Proposal(NamedTuple):
    """What the inner steps of the next draw are run with.

    Attributes
    ----------
    settings : LangevinSettings
    minibatches : ndarray of int64, shape (n_steps,)
    n_grad : int
        Gradient evaluations that the choice took.
    """

    settings: LangevinSettings
    minibatches: np.ndarray
    n_grad: int


class LangevinAdaptation(Protocol):
    """Coordinates, step size, friction and known noise of Langevin dynamics.

    Attributes
    ----------
    product : Product
        Manifolds of the coordinates.
    logp_grad : FieldLike
        Gradient estimate in these coordinates.
    noise_ratio : float
        Noise with control variates over noise without; 1 without control variates.
    is_constant : bool
        Whether the parameters stay the same after the warm-up.
    is_whitened : bool
        Whether the coordinates have unit posterior covariance, as far as is known.
    needs_warm_up, is_tuned : bool
        Whether parameters are left to a warm-up, and whether there was one.
    minibatch_remedy : str
        What to do about too much gradient noise.
    state : dict
        All that decides what is chosen later.
    """

    product: Product
    state: dict[str, Any]

    @property
    def noise_ratio(self) -> float:
        """Noise with control variates over noise without."""

    @property
    def is_constant(self) -> bool:
        """Whether the parameters stay the same after the warm-up."""

    @property
    def is_whitened(self) -> bool:
        """Whether the coordinates have unit posterior covariance."""

    @property
    def needs_warm_up(self) -> bool:
        """Whether parameters are left to a warm-up."""

    @property
    def is_tuned(self) -> bool:
        """Whether there was one."""

    @property
    def minibatch_remedy(self) -> str:
        """What to do about too much gradient noise."""

    @property
    def logp_grad(self) -> FieldLike:
        """Gradient estimate in these coordinates."""

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; without a warm-up, keep what was chosen in the last one."""

    def start(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates of a position that was set from outside, and the gradient there if known."""

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""

    def explore(self, chain: LangevinChain) -> Exploration | None:
        """Make a Metropolis-corrected transition; None after the first phase of warm-up."""

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
        """Learn from a draw of the warm-up.

        Parameters
        ----------
        chain : LangevinChain
            After the draw; a draw that is discarded is undone.
        before : ndarray, shape (size,)
            z where the draw began.
        proposal : Proposal
        temperature : float
            Kinetic temperature, averaged over dimensions.
        diverging : bool
            Whether position or temperature is not finite.

        Returns
        -------
        discarded : bool
        n_grad : int
            Gradient evaluations.
        """

    def funnel(self, in_model: Collection[tuple[str, str]]) -> Funnel | None:
        """Find a variable that sets the scale of another, from the draws of the warm-up."""

    def noise_diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Describe gradient noise that is poorly known, or that widens the draws."""
