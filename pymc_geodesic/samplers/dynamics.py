"""Langevin dynamics of the samplers: velocities, thermostats, and calls of the kernels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.adaptation.adaptation import DynamicsState
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

INERTIA_DIMENSION = 20.0
"""Constant d₀ in the default inertia of a thermostat, (1 + d₀/m)/C², for m dimensions.

In few dimensions v·v/m varies strongly, and a thermostat that responds within a few steps distorts
the distribution of the positions: −8 % in the variance at m = 2 and Cε = 1
(`benchmarks.thermostat_step`).
"""

MIN_DISPLACEMENTS = 16
"""Minimum number of inner steps by which a sum of squared displacements is divided.

It is the default number of inner steps without gradient noise. A single displacement with gradient
noise has heavier tails than a mean of many: without this minimum, draws of two of six chains with
one inner step, for a regression with Laplace errors and batches of 20 rows, exceeded
`max_temperature`.
"""


class Dynamics(DynamicsState, Protocol):
    """Dynamics that move a position by the inner steps of one draw.

    Attributes
    ----------
    has_momentum : bool
        Whether an inner step takes the time h; h²/2 without a momentum.
    displacement_temperature : float or None
        Mean of 2 Δ·Δ/(h² m) over the inner steps of the last draw, where Δ is the displacement in
        one inner step; with a momentum None. It replaces the kinetic temperature: its expectation
        is 1 for a normal distribution and exact gradients. With fewer than
        `MIN_DISPLACEMENTS` inner steps, the sum is divided by that number.
    state : dict
        State in addition to the position.
    thermostat : ndarray, shape (n_blocks,), or None
        ξ, the friction that thermostats add to C in each block; the ξ of the papers is C + ξ.
    """

    has_momentum: bool
    displacement_temperature: float | None
    state: dict[str, Any]

    @property
    def thermostat(self) -> np.ndarray | None:
        """Friction that thermostats add in each block."""

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
            Temperature of each block, averaged over inner steps.
        clips : int
            Number of coordinates whose injected noise is clipped at zero.
        """


class MomentumDynamics(ABC):
    """Abstract base class of dynamics with a momentum.

    Attributes
    ----------
    v : ndarray, shape (size,)
        Velocity; empty before `refresh`.
    """

    has_momentum = True
    displacement_temperature: float | None = None
    squares = np.empty(0)
    v: np.ndarray

    @abstractmethod
    def initialize(self, product: Product) -> None:
        """Begin a chain; see `Dynamics`."""

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw v ~ N(0, I) on the tangent space at z."""
        self.v = np.empty_like(z)
        refresh_velocity(product.blocks, z, self.v, stream)

    def rotate(self, rotation: np.ndarray) -> None:
        """Rotate velocities; see `Dynamics`."""
        self.v = rotate_euclidean(self.v, rotation)


class GeodesicLangevin(MomentumDynamics):
    """Underdamped Langevin dynamics, `pymc_geodesic.kernels.sggmc`.

    Parameters
    ----------
    splitting : {EXACT, PAPER}
    """

    thermostat = None

    def __init__(self, splitting: int = EXACT) -> None:
        self._splitting = splitting
        prepare(sggmc, refresh_velocity)

    def initialize(self, product: Product) -> None:
        """Begin a chain; see `Dynamics`."""
        self.v = np.empty(0)
        self._scratch = allocate_scratch(product.size)

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
            parameters.is_harmonic,
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


class GeodesicNoseHoover(MomentumDynamics):
    """Underdamped Langevin dynamics with thermostats, `pymc_geodesic.kernels.gsgnht`.

    Parameters
    ----------
    splitting : {EXACT, PAPER}
    inertia : float, optional
        Q, a time squared; (1 + 20/m)/C² by default.

    Attributes
    ----------
    curvature_sums : ndarray, shape (n_blocks, 2)
        See `pymc_geodesic.kernels.gsgnht`.
    """

    def __init__(self, splitting: int = EXACT, inertia: float | None = None) -> None:
        self._splitting, self._thermostats = splitting, Thermostats(inertia)
        prepare(gsgnht, refresh_velocity)

    @property
    def thermostat(self) -> np.ndarray:
        """ξ of each block."""
        return self._thermostats.xi

    def initialize(self, product: Product) -> None:
        """Begin a chain with ξ = 0; see `Dynamics`."""
        self.v = np.empty(0)
        self._thermostats.initialize(product)
        self.curvature_sums = np.zeros((len(product.dims), 2))
        self._scratch = allocate_scratch(product.size)

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
        thermostats.set_parameters(product, parameters)
        clips = gsgnht.call(
            logp_grad.callback,
            minibatches,
            product.space,
            State(z, self.v),
            Thermostat(thermostats.xi, thermostats.inertia, thermostats.temperatures),
            self.curvature_sums,
            parameters.step_size,
            parameters.is_harmonic,
            FrictionAndNoise(parameters.friction, parameters.noise, self._splitting),
            stream,
            self._scratch,
            temperatures,
        )
        thermostats.clip()
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


class EulerNoseHoover(MomentumDynamics):
    """Euler's method for thermostats on Euclidean coordinates, `pymc_geodesic.kernels.ssgnht`.

    Parameters
    ----------
    inertia : float, optional
        Q, a time squared; (1 + 20/m)/A² by default.
    """

    def __init__(self, inertia: float | None = None) -> None:
        self._thermostats = Thermostats(inertia)
        prepare(ssgnht, refresh_velocity)

    @property
    def thermostat(self) -> np.ndarray:
        """ξ of each block, in addition to A; the kernel uses A + ξ."""
        return self._thermostats.xi

    def initialize(self, product: Product) -> None:
        """Begin a chain with ξ = 0; see `Dynamics`."""
        self.v = np.empty(0)
        self._thermostats.initialize(product)
        self._scratch = allocate_scratch(product.size)

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
        thermostats.set_parameters(product, parameters)
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
        thermostats.clip()
        return fill_blocks(temperature, product), 0

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
        Whether the noise of each step is the mean of two consecutive normal variates, a scheme of
        second order, instead of independent noise (Euler's method).
    adagrad : bool
        Whether AdaGrad scales drift and noise of each coordinate.

    Attributes
    ----------
    displacement_temperature : float
        See `Dynamics`. It refers to averaged noise, which adapted coordinates have.
    last_noise : ndarray, shape (size,) or (0,)
        Noise of the previous step; empty for Euler's method.
    squares : ndarray, shape (size,) or (0,)
        Sums of squared gradients; empty without AdaGrad.
    """

    has_momentum = False
    thermostat = None

    def __init__(self, *, averaged: bool, adagrad: bool = False) -> None:
        self._averaged, self._adagrad = averaged, adagrad
        self.displacement_temperature: float | None = math.nan
        prepare(sgld)

    def initialize(self, product: Product) -> None:
        """Begin a chain; see `Dynamics`."""
        self.last_noise = np.empty(0)
        self.squares = np.zeros(product.size if self._adagrad else 0)
        self._scratch = allocate_scratch(product.size)

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw the noise of the previous step."""
        if self._averaged:
            self.last_noise = np.empty_like(z)
            fill_normal(stream, self.last_noise)

    def rotate(self, rotation: np.ndarray) -> None:
        """Rotate the noise of the previous step; see `Dynamics`."""
        if self._averaged:
            self.last_noise = rotate_euclidean(self.last_noise, rotation)

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
        temperature, mean_square, clips = sgld.call(
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
        share = min(len(minibatches) / MIN_DISPLACEMENTS, 1.0)
        self.displacement_temperature = 2.0 * share * mean_square / parameters.step_size**2
        return fill_blocks(temperature, product), clips

    @property
    def state(self) -> dict[str, Any]:
        """Noise of the previous step, and sums of squared gradients."""
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
        C of each block at the last draw, the minimum over its coordinates; empty before the first.
    inertia, temperatures : ndarray, shape (n_blocks,)
        Q, and the target temperature of each block.
    """

    def __init__(self, inertia: float | None) -> None:
        self._inertia = inertia

    def initialize(self, product: Product) -> None:
        """Begin a chain with ξ = 0, which is C in the papers."""
        self.xi, self.friction = np.zeros(len(product.dims)), np.empty(0)
        self._parameters: LangevinParameters | None = None

    def set_parameters(self, product: Product, parameters: LangevinParameters) -> None:
        """Set the parameters of a draw, if they have changed.

        ξ is rescaled in proportion to the friction of its block.
        """
        if parameters is self._parameters:
            return
        friction = np.minimum.reduceat(parameters.friction, product.blocks[:, 1])
        if self.friction.size:
            self.xi *= friction / self.friction
        self.friction, self._parameters = friction, parameters
        self.temperatures = parameters.temperatures_of(product)
        self.inertia = thermostat_inertia_of(self._inertia, product, friction, self.temperatures)
        self._bounds = [each * friction for each in parameters.thermostat_bounds or ()]

    def clip(self) -> None:
        """Clip ξ to the bounds of the parameters, if there are any."""
        if self._bounds:
            least, most = self._bounds
            np.maximum(self.xi, least, out=self.xi)
            np.minimum(self.xi, most, out=self.xi)

    @property
    def state(self) -> dict[str, Any]:
        """Thermostats, and the corresponding friction."""
        return {"thermostat": self.xi.copy(), "friction": self.friction.copy()}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.xi, self.friction = state["thermostat"].copy(), state["friction"].copy()
        self._parameters = None


def thermostat_inertia_of(
    given: float | None, product: Product, friction: np.ndarray, temperatures: np.ndarray
) -> np.ndarray:
    """Compute Q of each block, in proportion to its target temperature."""
    if given is None:
        return (1.0 + INERTIA_DIMENSION / product.dims) / friction**2 * temperatures
    return given * temperatures


def fill_blocks(temperature: float, product: Product) -> np.ndarray:
    """Repeat one temperature for all blocks, five times faster than `numpy.full`."""
    temperatures = np.empty(len(product.dims))
    temperatures[:] = temperature
    return temperatures


def allocate_scratch(size: int) -> Scratch:
    """Allocate the working memory of kernels for a number of coordinates."""
    return Scratch(np.empty(size + 1), np.empty(size))


def rotate_euclidean(vector: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """Rotate the Euclidean coordinates of a vector, which come first."""
    d = len(rotation)
    return np.concatenate([rotation.T @ vector[:d], vector[d:]])
