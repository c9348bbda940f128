"""Langevin dynamics between two draws: what a kernel needs besides position and gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.adaptation.langevin_parameters import LangevinParameters
from pymc_geodesic.integrators import (
    EXACT,
    FrictionAndNoise,
    Scratch,
    State,
    Thermostat,
    refresh_velocity,
)
from pymc_geodesic.kernels import gsgnht, sggmc, sgld, ssgnht, thermostat_targets, update_curvature
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.kernels.sgld import NoiseOfStep
from pymc_geodesic.manifolds import Product
from pymc_geodesic.runtime.fields import FieldLike
from pymc_geodesic.runtime.streams import fill_normal

__all__ = [
    "Dynamics",
    "EulerNoseHoover",
    "GeodesicLangevin",
    "GeodesicNoseHoover",
    "OverdampedLangevin",
    "by_block",
]

SMALL_DIMENSION = 20.0
"""Dimension m below which a thermostat needs more inertia than 1/γ², which is (1 + 20/m)/γ².

A single v·v varies much there, and a thermostat that responds within a few steps distorts the
distribution of the positions: −8 % in the variance at m = 2 and γε = 1
(`benchmarks.thermostat_step`).
"""

CURVATURE_MEMORY = 0.98
"""Fraction of the sums for the mean curvature that is kept from draw to draw."""

NOISE_CHUNK = 512
"""Normal variates that are drawn at once: few enough to stay in the first cache."""


class Dynamics(Protocol):
    """Dynamics that move a position by the inner steps of one draw.

    Attributes
    ----------
    state : dict
        All that the dynamics keep besides the position.
    thermostat : ndarray, shape (n_blocks,)
        ξ, the friction of each block that thermostats add; zeros without thermostats.
    squares : ndarray
        AdaGrad's sums of squared gradients; empty without.
    """

    state: dict[str, Any]
    thermostat: np.ndarray
    squares: np.ndarray

    def initialize(self, product: Product) -> None:
        """Begin a chain on a product of manifolds."""

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw velocities, or the noise of the step before, at a position."""

    def rotate(self, rotation: np.ndarray) -> None:
        """Follow a rotation of the Euclidean coordinates, which come first."""

    def run(
        self,
        logp_grad: FieldLike,
        minibatches: np.ndarray,
        product: Product,
        z: np.ndarray,
        parameters: LangevinParameters,
        stream: np.ndarray,
    ) -> tuple[np.ndarray, int]:
        """Move z by one inner step for each minibatch, in place.

        Returns
        -------
        temperatures : ndarray, shape (n_blocks,)
        clips : int
            Coordinates whose injected noise is clipped at zero.
        """


def by_block(product: Product, of_coordinates: np.ndarray) -> np.ndarray:
    """Smallest value in each block of a vector."""
    return np.minimum.reduceat(of_coordinates, product.blocks[:, 1])


def scratch_of(size: int) -> Scratch:
    """Memory for kernels on so many coordinates."""
    return Scratch(np.empty(size + 1), np.empty(min(max(size, 1), NOISE_CHUNK)))


class Underdamped(ABC):
    """Dynamics with a momentum, and the state that all of them have.

    Attributes
    ----------
    v : ndarray, shape (size,)
        Velocity.
    thermostat : ndarray, shape (n_blocks,)
        ξ, the friction of each block that thermostats add; zeros without thermostats.
    friction : ndarray, shape (n_blocks,) or (0,)
        γ of each block at the last draw; empty before the first.
    curvature_sums : ndarray, shape (n_blocks, 2)
        See `pymc_geodesic.kernels.gsgnht.update_curvature`.
    """

    def initialize(self, product: Product) -> None:
        """Begin a chain with ξ = 0; see `Dynamics`."""
        n_blocks = len(product.dims)
        self.v, self.friction, self.squares = np.empty(0), np.empty(0), np.empty(0)
        self.thermostat, self.curvature_sums = np.zeros(n_blocks), np.zeros((n_blocks, 2))
        self._scratch = scratch_of(product.size)
        self._work, self._targets = np.empty((n_blocks, 2)), np.empty(n_blocks)
        self._parameters: LangevinParameters | None = None

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw velocities from N(0, I) on the tangent space."""
        self.v = np.empty_like(z)
        refresh_velocity(product.blocks, z, self.v, stream)

    def rotate(self, rotation: np.ndarray) -> None:
        """Rotate velocities; see `Dynamics`."""
        d = len(rotation)
        self.v[:d] = rotation.T @ self.v[:d]

    @abstractmethod
    def run(
        self,
        logp_grad: FieldLike,
        minibatches: np.ndarray,
        product: Product,
        z: np.ndarray,
        parameters: LangevinParameters,
        stream: np.ndarray,
    ) -> tuple[np.ndarray, int]:
        """Run the kernel; see `Dynamics`."""

    def _follow(self, product: Product, parameters: LangevinParameters) -> None:
        """Take the parameters of a draw, where they are not those of the last one.

        ξ changes in proportion to the friction of its block.
        """
        if parameters is self._parameters:
            return
        friction = by_block(product, parameters.friction)
        if self.friction.size:
            self.thermostat *= friction / self.friction
        self.friction, self._parameters = friction, parameters
        self._wanted = parameters.temperatures_of(product)
        self._inertias = inertia_of(self._inertia, product, friction, self._wanted)

    _inertia: float | None = None

    @property
    def state(self) -> dict[str, Any]:
        """Velocity and thermostats."""
        return {name: getattr(self, name).copy() for name in self._STATE}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        for name in self._STATE:
            setattr(self, name, state[name].copy())
        self._parameters = None

    _STATE = ("v", "thermostat", "friction", "curvature_sums")


class GeodesicLangevin(Underdamped):
    """Underdamped Langevin dynamics, `pymc_geodesic.kernels.sggmc`.

    Parameters
    ----------
    splitting : {EXACT, PAPER}
    """

    def __init__(self, splitting: int = EXACT) -> None:
        self._splitting = splitting
        prepare(sggmc, refresh_velocity)

    def run(
        self,
        logp_grad: FieldLike,
        minibatches: np.ndarray,
        product: Product,
        z: np.ndarray,
        parameters: LangevinParameters,
        stream: np.ndarray,
    ) -> tuple[np.ndarray, int]:
        """Run the kernel; see `Dynamics`."""
        temperatures = np.empty(len(product.dims))
        clips = sggmc.call(
            logp_grad.callback,
            minibatches,
            product.space,
            State(z, self.v),
            parameters.step_size,
            FrictionAndNoise(parameters.friction, parameters.noise, self._splitting),
            stream,
            self._scratch,
            temperatures,
        )
        return temperatures, clips


class GeodesicNoseHoover(Underdamped):
    """Underdamped Langevin dynamics with thermostats, `pymc_geodesic.kernels.gsgnht`.

    Parameters
    ----------
    splitting : {EXACT, PAPER}
    inertia : float, optional
        Q, a time squared; (1 + 20/m)/γ² by default.
    """

    def __init__(self, splitting: int = EXACT, inertia: float | None = None) -> None:
        self._splitting, self._inertia = splitting, inertia
        prepare(gsgnht, refresh_velocity, thermostat_targets, update_curvature)

    def run(
        self,
        logp_grad: FieldLike,
        minibatches: np.ndarray,
        product: Product,
        z: np.ndarray,
        parameters: LangevinParameters,
        stream: np.ndarray,
    ) -> tuple[np.ndarray, int]:
        """Run the kernel; see `Dynamics`."""
        self._follow(product, parameters)
        targets, work, temperatures = self._targets, self._work, np.empty(len(product.dims))
        thermostat_targets(
            self._wanted,
            self.curvature_sums,
            self.friction + self.thermostat,
            parameters.step_size,
            self._splitting,
            targets,
        )
        clips = gsgnht.call(
            logp_grad.callback,
            minibatches,
            product.space,
            State(z, self.v),
            Thermostat(self.thermostat, self._inertias, targets),
            parameters.step_size,
            FrictionAndNoise(parameters.friction, parameters.noise, self._splitting),
            stream,
            self._scratch,
            temperatures,
            work,
        )
        expected = minibatches.size * product.dims * targets
        update_curvature(
            self.curvature_sums, work, expected, parameters.step_size, CURVATURE_MEMORY
        )
        parameters.bound(self.thermostat, self.friction)
        return temperatures, clips


class EulerNoseHoover(Underdamped):
    """Euler's method for thermostats on Euclidean coordinates, `pymc_geodesic.kernels.ssgnht`.

    Parameters
    ----------
    inertia : float, optional
        Q, a time squared; (1 + 20/m)/A² by default.
    """

    def __init__(self, inertia: float | None = None) -> None:
        self._inertia = inertia
        prepare(ssgnht, refresh_velocity)

    def run(
        self,
        logp_grad: FieldLike,
        minibatches: np.ndarray,
        product: Product,
        z: np.ndarray,
        parameters: LangevinParameters,
        stream: np.ndarray,
    ) -> tuple[np.ndarray, int]:
        """Run the kernel; see `Dynamics`."""
        self._follow(product, parameters)
        diffusion = self.friction
        total = diffusion + self.thermostat
        temperature = ssgnht.call(
            logp_grad.callback,
            minibatches,
            product.space,
            State(z, self.v),
            Thermostat(total, self._inertias, self._wanted),
            parameters.step_size,
            diffusion,
            stream,
            self._scratch,
        )
        self.thermostat = total - diffusion
        parameters.bound(self.thermostat, diffusion)
        return np.full(len(product.dims), temperature), 0


class OverdampedLangevin:
    """Langevin dynamics without a momentum on Euclidean coordinates, `pymc_geodesic.kernels.sgld`.

    Parameters
    ----------
    averaged : bool
        Whether each step is driven by the mean of two consecutive noises, which is right to second
        order, instead of by noise of its own, Euler's method.
    adagrad : bool
        Whether AdaGrad scales drift and noise of each coordinate.

    Attributes
    ----------
    last_noise : ndarray, shape (size,) or (0,)
        Noise of the step before; empty for Euler's method.
    squares : ndarray, shape (size,) or (0,)
        Sums of squared gradients; empty without AdaGrad.
    """

    def __init__(self, *, averaged: bool, adagrad: bool = False) -> None:
        self._averaged, self._adagrad = averaged, adagrad
        prepare(sgld)

    def initialize(self, product: Product) -> None:
        """Begin a chain; see `Dynamics`."""
        self.last_noise = np.empty(0)
        self.squares = np.zeros(product.size if self._adagrad else 0)
        self.thermostat = np.zeros(len(product.dims))
        self._scratch = scratch_of(product.size)

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw the noise of the step before."""
        if self._averaged:
            self.last_noise = np.empty_like(z)
            fill_normal(stream, self.last_noise)

    def rotate(self, rotation: np.ndarray) -> None:
        """Rotate the noise of the step before; see `Dynamics`."""
        if self._averaged:
            self.last_noise = rotation.T @ self.last_noise

    def run(
        self,
        logp_grad: FieldLike,
        minibatches: np.ndarray,
        product: Product,
        z: np.ndarray,
        parameters: LangevinParameters,
        stream: np.ndarray,
    ) -> tuple[np.ndarray, int]:
        """Run the kernel; see `Dynamics`."""
        temperature, clips = sgld.call(
            logp_grad.callback,
            minibatches,
            z,
            parameters.step_size,
            self.squares,
            NoiseOfStep(self.last_noise, parameters.noise),
            stream,
            self._scratch,
        )
        return np.full(len(product.dims), temperature), clips

    @property
    def state(self) -> dict[str, Any]:
        """Noise of the step before, and sums of squared gradients."""
        return {"last_noise": self.last_noise.copy(), "squares": self.squares.copy()}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.last_noise, self.squares = state["last_noise"].copy(), state["squares"].copy()


def inertia_of(
    given: float | None, product: Product, friction: np.ndarray, temperatures: np.ndarray
) -> np.ndarray:
    """Q of each block, in proportion to the temperature that its thermostat holds."""
    if given is None:
        return (1.0 + SMALL_DIMENSION / product.dims) / friction**2 * temperatures
    return given * temperatures
