"""What is done in the coordinates that tuning found: dynamics with a momentum, and without."""

from __future__ import annotations

import copy
import math
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.integrators import (
    EXACT,
    FrictionAndNoise,
    Scratch,
    State,
    Thermostat,
    refresh_velocity,
)
from pymc_geodesic.kernels import gsgnht, sggmc, sgld, thermostat_targets, update_curvature
from pymc_geodesic.kernels.sgld import NoiseOfStep
from pymc_geodesic.manifolds import Product
from pymc_geodesic.runtime.fields import FieldLike
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.tuning.noise import (
    FRICTION,
    LangevinSettings,
    langevin_settings,
    step_for_shape,
)
from pymc_geodesic.tuning.noise_over_places import steady_step
from pymc_geodesic.tuning.overdamped import overdamped_settings, overdamped_steady_step

__all__ = ["Dynamics", "Overdamped", "Underdamped"]

SMALL_DIMENSION = 20.0
"""Dimension below which a thermostat needs more inertia: a single v·v strays far from its mean."""

LEAST_FRICTION = 0.5
"""Fraction of the smallest friction that a thermostat leaves at least."""

CURVATURE_MEMORY = 0.98
"""Fraction of the sums for the mean curvature that is kept from draw to draw."""

NOISE_CHUNK = 512
"""Normal variates that are drawn at once: few enough to stay in the first cache."""


def scratch_of(size: int) -> Scratch:
    """Memory for kernels on so many coordinates."""
    return Scratch(np.empty(size + 1), np.empty(min(max(size, 1), NOISE_CHUNK)))


class Dynamics(Protocol):
    """Dynamics of which the search, the anchor and the measured noise know nothing.

    Attributes
    ----------
    has_momentum : bool
        Whether a step takes the time h; h²/2 without a momentum.
    state : dict
        All that the dynamics keep beside the position.
    """

    has_momentum: bool
    state: dict[str, Any]

    def longest_step(self, searched: float, dim: int, *, shared: bool) -> float:
        """Longest step for a posterior of which the search settled on a step of its own.

        ``shared`` says whether many coordinates lean on a few.
        """

    def reset(self) -> None:
        """Forget the previous chain."""

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Begin at a place."""

    def rotate(self, rotation: np.ndarray) -> None:
        """Follow a rotation of the first coordinates."""

    def settings(
        self, noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
    ) -> LangevinSettings:
        """Step size and number of steps for gradient noise of known variance by direction."""

    def steady_step(self, noise: np.ndarray, spread: np.ndarray) -> float:
        """Longest step that bears noise whose variance differs over the posterior by ``spread``."""

    def run(
        self,
        field: FieldLike,
        arguments: np.ndarray,
        product: Product,
        z: np.ndarray,
        settings: LangevinSettings,
        stream: np.ndarray,
    ) -> tuple[float, int]:
        """Run the inner steps of a draw on z, in place; return temperature and clips."""


class Underdamped:
    """Langevin dynamics with a momentum, on every manifold.

    Parameters
    ----------
    has_thermostat : bool
    largest_noise : float
        Bound of h² b beside that of `langevin_settings`.

    Attributes
    ----------
    v : ndarray
        Velocity.
    thermostat : ndarray, shape (n_blocks,)
        ξ, added to the friction of each block.
    curvature_sums : ndarray, shape (n_blocks, 2)
        See `pymc_geodesic.kernels.gsgnht.update_curvature`.
    """

    has_momentum = True

    def __init__(self, *, has_thermostat: bool, largest_noise: float = math.inf) -> None:
        self._has_thermostat, self._largest_noise = has_thermostat, largest_noise
        self._scratch = scratch_of(0)
        prepare(gsgnht if has_thermostat else sggmc, refresh_velocity)
        if has_thermostat:
            prepare(thermostat_targets, update_curvature)
        self.reset()

    def longest_step(self, searched: float, dim: int, *, shared: bool) -> float:
        """See `step_for_shape`."""
        return step_for_shape(searched, dim, shared=shared)

    def reset(self) -> None:
        """Forget the previous chain."""
        self.v = np.empty(0)
        self.thermostat, self.curvature_sums = np.empty(0), np.empty((0, 2))

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw a velocity; thermostats keep their values."""
        if not self.thermostat.size:
            n_blocks = len(product.dims)
            self.thermostat, self.curvature_sums = np.zeros(n_blocks), np.zeros((n_blocks, 2))
        self.v = np.empty_like(z)
        refresh_velocity(product.blocks, z, self.v, stream)

    def rotate(self, rotation: np.ndarray) -> None:
        """Follow a rotation of the first coordinates."""
        d = len(rotation)
        self.v[:d] = rotation.T @ self.v[:d]

    def settings(
        self, noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
    ) -> LangevinSettings:
        """See `langevin_settings`."""
        settings = langevin_settings(noise, step_size=step_size, n_steps=n_steps)
        longest = math.sqrt(self._largest_noise / max(float(noise.max(initial=0.0)), 1e-12))
        if step_size is not None or settings.step_size <= longest:
            return settings
        return langevin_settings(noise, step_size=longest, n_steps=n_steps)

    def steady_step(self, noise: np.ndarray, spread: np.ndarray) -> float:
        """See `steady_step`."""
        return steady_step(noise, spread, FRICTION)

    def run(
        self,
        field: FieldLike,
        arguments: np.ndarray,
        product: Product,
        z: np.ndarray,
        settings: LangevinSettings,
        stream: np.ndarray,
    ) -> tuple[float, int]:
        """See `pymc_geodesic.kernels.sggmc` and `gsgnht`."""
        if self._scratch.gradient.size <= z.size:
            self._scratch = scratch_of(z.size)
        temperatures = np.empty(len(product.dims))
        friction = FrictionAndNoise(settings.friction, settings.noise, EXACT)
        dynamics = (product.space, State(z, self.v))
        if self._has_thermostat:
            ones, targets = np.ones_like(temperatures), np.empty_like(temperatures)
            work = np.empty((targets.size, 2))
            thermostat_targets(
                ones, self.curvature_sums, self.thermostat, settings.step_size, EXACT, targets
            )
            inertia = (1.0 + SMALL_DIMENSION / product.dims) / FRICTION**2
            clips = gsgnht.call(
                field.callback, arguments, *dynamics,
                Thermostat(self.thermostat, inertia, targets), settings.step_size, friction,
                stream, self._scratch, temperatures, work,
            )  # fmt: skip
            expected = arguments.size * product.dims * targets
            update_curvature(
                self.curvature_sums, work, expected, settings.step_size, CURVATURE_MEMORY
            )
            least = -LEAST_FRICTION * settings.friction.min()
            np.maximum(self.thermostat, least, out=self.thermostat)
        else:
            clips = sggmc.call(
                field.callback, arguments, *dynamics, settings.step_size, friction,
                stream, self._scratch, temperatures,
            )  # fmt: skip
        return float(product.dims @ temperatures) / product.dim, clips

    @property
    def state(self) -> dict[str, Any]:
        """Velocity and thermostats."""
        return {
            "v": self.v.copy(),
            "thermostat": self.thermostat.copy(),
            "curvature_sums": self.curvature_sums.copy(),
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.v, self.thermostat = state["v"].copy(), state["thermostat"].copy()
        self.curvature_sums = state["curvature_sums"].copy()


class Overdamped:
    """Langevin dynamics without a momentum, on Euclidean coordinates.

    Attributes
    ----------
    last_noise : ndarray
        The normal numbers of which the next step takes the other half.
    """

    has_momentum = False

    def __init__(self) -> None:
        self._scratch = scratch_of(0)
        prepare(sgld)
        self.reset()

    def longest_step(self, searched: float, dim: int, *, shared: bool) -> float:
        """Whatever its settings say."""
        return math.inf

    def reset(self) -> None:
        """Forget the previous chain."""
        self.last_noise = np.empty(0)

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw the noise of a step that is past."""
        self.last_noise = np.empty_like(z)
        fill_normal(stream, self.last_noise)

    def rotate(self, rotation: np.ndarray) -> None:
        """Follow a rotation of the first coordinates."""
        self.last_noise = rotation.T @ self.last_noise

    def settings(
        self, noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
    ) -> LangevinSettings:
        """See `overdamped_settings`."""
        return overdamped_settings(noise, step_size=step_size, n_steps=n_steps)

    def steady_step(self, noise: np.ndarray, spread: np.ndarray) -> float:
        """See `overdamped_steady_step`."""
        return overdamped_steady_step(spread)

    def run(
        self,
        field: FieldLike,
        arguments: np.ndarray,
        product: Product,
        z: np.ndarray,
        settings: LangevinSettings,
        stream: np.ndarray,
    ) -> tuple[float, int]:
        """See `pymc_geodesic.kernels.sgld`."""
        if self._scratch.gradient.size <= z.size:
            self._scratch = scratch_of(z.size)
        return sgld.call(
            field.callback, arguments, z, settings.step_size, np.empty(0),
            NoiseOfStep(self.last_noise, settings.noise), stream, self._scratch,
        )  # fmt: skip

    @property
    def state(self) -> dict[str, Any]:
        """Noise of the last step."""
        return copy.deepcopy({"last_noise": self.last_noise})

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.last_noise = state["last_noise"].copy()
