"""Langevin dynamics between two draws: what a kernel needs besides position and gradient."""

from __future__ import annotations

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
from pymc_geodesic.kernels import gsgnht, sggmc, sgld, ssgnht
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.manifolds import Product
from pymc_geodesic.runtime.gradient_functions import GradientFunctionLike
from pymc_geodesic.runtime.streams import fill_normal

SMALL_DIMENSION = 20.0
"""Dimension m below which the inertia of a thermostat, (1 + 20/m)/C², is more than twice 1/C².

A single v·v/m varies much there, and a thermostat that responds within a few steps distorts the
distribution of the positions: −8 % in the variance at m = 2 and Cε = 1
(`benchmarks.thermostat_step`).
"""


class Dynamics(Protocol):
    """Dynamics that move a position by the inner steps of one draw.

    Attributes
    ----------
    has_momentum : bool
        Whether an inner step takes the time h; h²/2 without a momentum.
    state : dict
        All that the dynamics keep besides the position.
    thermostat : ndarray, shape (n_blocks,), or None
        ξ, the friction of each block that thermostats add to C; the ξ of the papers is C + ξ.
    squares : ndarray
        AdaGrad's sums of squared gradients; empty without.
    """

    has_momentum: bool
    state: dict[str, Any]
    squares: np.ndarray

    @property
    def thermostat(self) -> np.ndarray | None:
        """Friction of each block that thermostats add."""

    def initialize(self, product: Product) -> None:
        """Begin a chain on a product of manifolds."""

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw v ~ N(0, I) on the tangent space, or the noise of the step before."""

    def rotate(self, rotation: np.ndarray) -> None:
        """Follow a rotation of the Euclidean coordinates, which come first."""

    def run(
        self,
        logp_grad: GradientFunctionLike,
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


class GeodesicLangevin:
    """Underdamped Langevin dynamics, `pymc_geodesic.kernels.sggmc`.

    Parameters
    ----------
    splitting : {EXACT, PAPER}

    Attributes
    ----------
    v : ndarray, shape (size,)
        Velocity.
    """

    has_momentum = True
    thermostat = None

    def __init__(self, splitting: int = EXACT) -> None:
        self._splitting = splitting
        prepare(sggmc, refresh_velocity)

    def initialize(self, product: Product) -> None:
        """Begin a chain; see `Dynamics`."""
        self.v, self.squares = np.empty(0), np.empty(0)
        self._scratch = scratch_of(product.size)

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw velocities; see `Dynamics`."""
        self.v = draw_velocity(product, z, stream)

    def rotate(self, rotation: np.ndarray) -> None:
        """Rotate velocities; see `Dynamics`."""
        self.v = rotated(self.v, rotation)

    def run(
        self,
        logp_grad: GradientFunctionLike,
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

    @property
    def state(self) -> dict[str, Any]:
        """Velocity."""
        return {"v": self.v.copy()}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.v = state["v"].copy()


class GeodesicNoseHoover:
    """Underdamped Langevin dynamics with thermostats, `pymc_geodesic.kernels.gsgnht`.

    Parameters
    ----------
    splitting : {EXACT, PAPER}
    inertia : float, optional
        Q, a time squared; (1 + 20/m)/C² by default.

    Attributes
    ----------
    v : ndarray, shape (size,)
        Velocity.
    curvature_sums : ndarray, shape (n_blocks, 2)
        See `pymc_geodesic.kernels.gsgnht`.
    """

    has_momentum = True

    def __init__(self, splitting: int = EXACT, inertia: float | None = None) -> None:
        self._splitting, self._thermostats = splitting, Thermostats(inertia)
        prepare(gsgnht, refresh_velocity)

    @property
    def thermostat(self) -> np.ndarray:
        """ξ of each block."""
        return self._thermostats.xi

    def initialize(self, product: Product) -> None:
        """Begin a chain with ξ = 0; see `Dynamics`."""
        self.v, self.squares = np.empty(0), np.empty(0)
        self._thermostats.initialize(product)
        self.curvature_sums = np.zeros((len(product.dims), 2))
        self._scratch = scratch_of(product.size)

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw velocities; see `Dynamics`."""
        self.v = draw_velocity(product, z, stream)

    def rotate(self, rotation: np.ndarray) -> None:
        """Rotate velocities; see `Dynamics`."""
        self.v = rotated(self.v, rotation)

    def run(
        self,
        logp_grad: GradientFunctionLike,
        minibatches: np.ndarray,
        product: Product,
        z: np.ndarray,
        parameters: LangevinParameters,
        stream: np.ndarray,
    ) -> tuple[np.ndarray, int]:
        """Run the kernel; see `Dynamics`."""
        thermostats, temperatures = self._thermostats, np.empty(len(product.dims))
        thermostats.follow(product, parameters)
        clips = gsgnht.call(
            logp_grad.callback,
            minibatches,
            product.space,
            State(z, self.v),
            Thermostat(thermostats.xi, thermostats.inertia, thermostats.temperatures),
            self.curvature_sums,
            parameters.step_size,
            FrictionAndNoise(parameters.friction, parameters.noise, self._splitting),
            stream,
            self._scratch,
            temperatures,
        )
        thermostats.bound()
        return temperatures, clips

    @property
    def state(self) -> dict[str, Any]:
        """Velocity, thermostats and curvature."""
        own = {"v": self.v.copy(), "curvature_sums": self.curvature_sums.copy()}
        return own | self._thermostats.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.v, self.curvature_sums = state["v"].copy(), state["curvature_sums"].copy()
        self._thermostats.state = state


class EulerNoseHoover:
    """Euler's method for thermostats on Euclidean coordinates, `pymc_geodesic.kernels.ssgnht`.

    Parameters
    ----------
    inertia : float, optional
        Q, a time squared; (1 + 20/m)/A² by default.

    Attributes
    ----------
    v : ndarray, shape (size,)
        Velocity.
    """

    has_momentum = True

    def __init__(self, inertia: float | None = None) -> None:
        self._thermostats = Thermostats(inertia)
        prepare(ssgnht, refresh_velocity)

    @property
    def thermostat(self) -> np.ndarray:
        """ξ of each block, in addition to A; that of the kernel is the sum."""
        return self._thermostats.xi

    def initialize(self, product: Product) -> None:
        """Begin a chain with ξ = 0; see `Dynamics`."""
        self.v, self.squares = np.empty(0), np.empty(0)
        self._thermostats.initialize(product)
        self._scratch = scratch_of(product.size)

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw velocities; see `Dynamics`."""
        self.v = draw_velocity(product, z, stream)

    def rotate(self, rotation: np.ndarray) -> None:
        """Rotate velocities; see `Dynamics`."""
        self.v = rotated(self.v, rotation)

    def run(
        self,
        logp_grad: GradientFunctionLike,
        minibatches: np.ndarray,
        product: Product,
        z: np.ndarray,
        parameters: LangevinParameters,
        stream: np.ndarray,
    ) -> tuple[np.ndarray, int]:
        """Run the kernel; see `Dynamics`."""
        thermostats = self._thermostats
        thermostats.follow(product, parameters)
        diffusion = thermostats.friction
        total = diffusion + thermostats.xi
        temperature = ssgnht.call(
            logp_grad.callback,
            minibatches,
            product.space,
            State(z, self.v),
            Thermostat(total, thermostats.inertia, thermostats.temperatures),
            parameters.step_size,
            diffusion,
            stream,
            self._scratch,
        )
        thermostats.xi = total - diffusion
        thermostats.bound()
        return in_every_block(temperature, product), 0

    @property
    def state(self) -> dict[str, Any]:
        """Velocity and thermostats."""
        return {"v": self.v.copy()} | self._thermostats.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.v = state["v"].copy()
        self._thermostats.state = state


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

    has_momentum = False
    thermostat = None

    def __init__(self, *, averaged: bool, adagrad: bool = False) -> None:
        self._averaged, self._adagrad = averaged, adagrad
        prepare(sgld)

    def initialize(self, product: Product) -> None:
        """Begin a chain; see `Dynamics`."""
        self.last_noise = np.empty(0)
        self.squares = np.zeros(product.size if self._adagrad else 0)
        self._scratch = scratch_of(product.size)

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw the noise of the step before."""
        if self._averaged:
            self.last_noise = np.empty_like(z)
            fill_normal(stream, self.last_noise)

    def rotate(self, rotation: np.ndarray) -> None:
        """Rotate the noise of the step before; see `Dynamics`."""
        if self._averaged:
            self.last_noise = rotated(self.last_noise, rotation)

    def run(
        self,
        logp_grad: GradientFunctionLike,
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
            self.last_noise,
            parameters.noise,
            stream,
            self._scratch,
        )
        return in_every_block(temperature, product), clips

    @property
    def state(self) -> dict[str, Any]:
        """Noise of the step before, and sums of squared gradients."""
        return {"last_noise": self.last_noise.copy(), "squares": self.squares.copy()}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.last_noise, self.squares = state["last_noise"].copy(), state["squares"].copy()


class Thermostats:
    """Thermostats of a chain, one for each block.

    Parameters
    ----------
    inertia : float, optional
        Q at temperature 1, a time squared; (1 + 20/m)/C² by default.

    Attributes
    ----------
    xi : ndarray, shape (n_blocks,)
        ξ, in addition to C.
    friction : ndarray, shape (n_blocks,) or (0,)
        C of each block at the last draw, the least over its coordinates; empty before the first.
    inertia, temperatures : ndarray, shape (n_blocks,)
        Q, and the temperature that each block is to have.
    """

    def __init__(self, inertia: float | None) -> None:
        self._inertia = inertia

    def initialize(self, product: Product) -> None:
        """Begin a chain with ξ = 0, which is C in the papers."""
        self.xi, self.friction = np.zeros(len(product.dims)), np.empty(0)
        self._parameters: LangevinParameters | None = None

    def follow(self, product: Product, parameters: LangevinParameters) -> None:
        """Take the parameters of a draw, where they are not those of the last one.

        ξ changes in proportion to the friction of its block.
        """
        if parameters is self._parameters:
            return
        friction = np.minimum.reduceat(parameters.friction, product.blocks[:, 1])
        if self.friction.size:
            self.xi *= friction / self.friction
        self.friction, self._parameters = friction, parameters
        self.temperatures = parameters.temperatures_of(product)
        self.inertia = inertia_of(self._inertia, product, friction, self.temperatures)
        self._bounds = [each * friction for each in parameters.thermostat_bounds or ()]

    def bound(self) -> None:
        """Keep ξ within the bounds of the parameters, if there are any."""
        if self._bounds:
            least, most = self._bounds
            np.maximum(self.xi, least, out=self.xi)
            np.minimum(self.xi, most, out=self.xi)

    @property
    def state(self) -> dict[str, Any]:
        """Thermostats, and the friction that they belong to."""
        return {"thermostat": self.xi.copy(), "friction": self.friction.copy()}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.xi, self.friction = state["thermostat"].copy(), state["friction"].copy()
        self._parameters = None


def inertia_of(
    given: float | None, product: Product, friction: np.ndarray, temperatures: np.ndarray
) -> np.ndarray:
    """Q of each block, in proportion to the temperature that its thermostat holds."""
    if given is None:
        return (1.0 + SMALL_DIMENSION / product.dims) / friction**2 * temperatures
    return given * temperatures


def in_every_block(temperature: float, product: Product) -> np.ndarray:
    """One temperature for all blocks, in a fifth of the time of `numpy.full`."""
    temperatures = np.empty(len(product.dims))
    temperatures[:] = temperature
    return temperatures


def scratch_of(size: int) -> Scratch:
    """Memory for kernels on so many coordinates."""
    return Scratch(np.empty(size + 1), np.empty(size))


def draw_velocity(product: Product, z: np.ndarray, stream: np.ndarray) -> np.ndarray:
    """Draw v ~ N(0, I) on the tangent space at z."""
    v = np.empty_like(z)
    refresh_velocity(product.blocks, z, v, stream)
    return v


def rotated(vector: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """Rotate the Euclidean coordinates of a vector, which come first."""
    d = len(rotation)
    return np.concatenate([rotation.T @ vector[:d], vector[d:]])
