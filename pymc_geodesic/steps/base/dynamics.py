"""What is done in the coordinates that tuning found: dynamics with a momentum, and without."""

from __future__ import annotations

import copy
import math
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.integrators import State, refresh_velocity
from pymc_geodesic.kernels.averaged_langevin import averaged_langevin
from pymc_geodesic.kernels.geodesic_langevin import (
    BathByDirection,
    SharedThermostat,
    geodesic_langevin,
)
from pymc_geodesic.manifolds import Product
from pymc_geodesic.runtime.fields import FieldLike
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.steps.base.prepared import prepare
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
    thermostat : ndarray, shape (1,)
        ξ, added to the friction of all directions.
    """

    has_momentum = True

    def __init__(self, *, has_thermostat: bool, largest_noise: float = math.inf) -> None:
        self._has_thermostat, self._largest_noise = has_thermostat, largest_noise
        self._scratch = np.empty(0)
        prepare(geodesic_langevin, refresh_velocity)
        self.reset()

    def longest_step(self, searched: float, dim: int, *, shared: bool) -> float:
        """See `step_for_shape`."""
        return step_for_shape(searched, dim, shared=shared)

    def reset(self) -> None:
        """Forget the previous chain."""
        self.v, self.thermostat = np.empty(0), np.zeros(1)

    def refresh(self, product: Product, z: np.ndarray, stream: np.ndarray) -> None:
        """Draw a velocity."""
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
        """See `geodesic_langevin`."""
        if self._scratch.size <= z.size:
            self._scratch = np.empty(z.size + 1)
        inertia = 1.0 + SMALL_DIMENSION / product.dim if self._has_thermostat else math.inf
        return geodesic_langevin.call(
            field.callback,
            arguments,
            product.space,
            State(z, self.v),
            settings.step_size,
            BathByDirection(settings.friction, settings.noise),
            SharedThermostat(self.thermostat, inertia),
            stream,
            self._scratch,
        )

    @property
    def state(self) -> dict[str, Any]:
        """Velocity and thermostat."""
        return {"v": self.v.copy(), "thermostat": self.thermostat.copy()}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.v, self.thermostat = state["v"].copy(), state["thermostat"].copy()


class Overdamped:
    """Langevin dynamics without a momentum, on Euclidean coordinates.

    Attributes
    ----------
    last_noise : ndarray
        The normal numbers of which the next step takes the other half.
    """

    has_momentum = False

    def __init__(self) -> None:
        self._scratch = np.empty(0)
        prepare(averaged_langevin)
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
        """See `averaged_langevin`."""
        if self._scratch.size <= z.size:
            self._scratch = np.empty(z.size + 1)
        return averaged_langevin.call(
            field.callback,
            arguments,
            z,
            self.last_noise,
            settings.step_size,
            settings.noise,
            stream,
            self._scratch,
        )

    @property
    def state(self) -> dict[str, Any]:
        """Noise of the last step."""
        return copy.deepcopy({"last_noise": self.last_noise})

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.last_noise = state["last_noise"].copy()
