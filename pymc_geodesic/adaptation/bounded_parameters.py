"""Settings for the noise that was measured, within what a chain has found to be stable."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.tuning.heat import HeatWatch
from pymc_geodesic.tuning.noise import (
    FRICTION,
    LangevinSettings,
    langevin_settings,
    step_for_shape,
)
from pymc_geodesic.tuning.noise_over_places import steady_step
from pymc_geodesic.tuning.overdamped import overdamped_settings, overdamped_steady_step

__all__ = ["BoundedSettings", "OverdampedRule", "ParameterRule", "UnderdampedRule"]

COOLER = 0.7
"""What becomes of the step, or of the noise that is taken off, where the temperature is off."""

SHORTEST_STEP = 0.01
"""Step below which a divergence shortens nothing."""


SHORTEST_STEADY = 0.03
"""Step that noise which differs over the posterior shortens no further."""


THERMOSTAT_BOUNDS = (-0.5, math.inf)
"""Bounds of ξ/γ: a thermostat takes off at most half of the friction."""


class ParameterRule(Protocol):
    """Step size, friction and number of steps for gradient noise of known variance."""

    def settings(
        self, noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
    ) -> LangevinSettings:
        """Choose what is not given, for noise of so much variance along each coordinate."""

    def longest_step(self, explored: float, dim: int, *, shared: bool) -> float:
        """Longest step for a posterior that Metropolis-corrected trajectories explored.

        Parameters
        ----------
        explored : float
            Their step size.
        dim : int
        shared : bool
            Whether many coordinates depend on a few, as effects do on their scale.
        """

    def steady_step(self, noise: np.ndarray, spread: np.ndarray) -> float:
        """Longest step for noise whose variance has the standard deviation ``spread`` over z."""


class UnderdampedRule:
    """Rule for dynamics with a momentum, see `langevin_settings`.

    Parameters
    ----------
    largest_noise : float
        Bound of h² b.
    """

    def __init__(self, largest_noise: float = math.inf) -> None:
        self._largest_noise = largest_noise

    def settings(
        self, noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
    ) -> LangevinSettings:
        """Choose parameters; see `langevin_settings`."""
        settings = langevin_settings(noise, step_size=step_size, n_steps=n_steps)
        longest = math.sqrt(self._largest_noise / max(float(noise.max(initial=0.0)), 1e-12))
        if step_size is not None or settings.step_size <= longest:
            return settings
        return langevin_settings(noise, step_size=longest, n_steps=n_steps)

    def longest_step(self, explored: float, dim: int, *, shared: bool) -> float:
        """Bound the step; see `step_for_shape`."""
        return step_for_shape(explored, dim, shared=shared)

    def steady_step(self, noise: np.ndarray, spread: np.ndarray) -> float:
        """Bound the step; see `pymc_geodesic.tuning.noise_over_places.steady_step`."""
        return steady_step(noise, spread, FRICTION)


class OverdampedRule:
    """Rule for dynamics without a momentum, see `overdamped_settings`."""

    def settings(
        self, noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
    ) -> LangevinSettings:
        """Choose parameters; see `overdamped_settings`."""
        return overdamped_settings(noise, step_size=step_size, n_steps=n_steps)

    def longest_step(self, explored: float, dim: int, *, shared: bool) -> float:
        """Leave the bound to the noise."""
        return math.inf

    def steady_step(self, noise: np.ndarray, spread: np.ndarray) -> float:
        """Bound the step; see `overdamped_steady_step`."""
        return overdamped_steady_step(spread)


class BoundedSettings:
    """Chooses settings of dynamics, and remembers what bounds them.

    Parameters
    ----------
    rule : ParameterRule
    n_steps : int, optional
        Inner steps of a draw; chosen by default.

    Attributes
    ----------
    settings : LangevinSettings or None
        None before the first choice.
    longest : float
        Bound of the step size by the shape of the posterior, and by what heated or diverged.
    longest_by_noise : float
        Bound by noise that differs from one direction of a manifold to another.
    steady : float
        Bound by noise that differs from one place of the posterior to another.
    """

    def __init__(self, rule: ParameterRule, n_steps: int | None) -> None:
        self.rule, self._n_steps = rule, n_steps
        self.reset()

    def reset(self) -> None:
        """Forget settings and bounds."""
        self.settings: LangevinSettings | None = None
        self.longest = self.longest_by_noise = self.steady = math.inf
        self._taken_off = 1.0
        self._heat = HeatWatch()

    def steps_of_draw(self, noise: np.ndarray, spread: np.ndarray) -> int:
        """Inner steps that an independent draw takes.

        Parameters
        ----------
        noise, spread : ndarray, shape (size,)
            Variance of the noise along each coordinate, and its standard deviation over the
            posterior.
        """
        return self._settings(noise, self._steady_step(noise, spread)).n_steps

    def _steady_step(self, noise: np.ndarray, spread: np.ndarray) -> float:
        return max(self.rule.steady_step(noise, spread), SHORTEST_STEADY)

    def _settings(
        self, noise: np.ndarray, steady: float, n_steps: int | None = None
    ) -> LangevinSettings:
        settings = self.rule.settings(noise, n_steps=n_steps)
        longest = min(self.longest, self.longest_by_noise, steady)
        if settings.step_size > longest:
            settings = self.rule.settings(noise, step_size=longest, n_steps=n_steps)
        return settings

    def bound(self, noise: np.ndarray, spread: np.ndarray) -> None:
        """Bound the step by how much the noise differs over the posterior; see `steps_of_draw`."""
        self.steady = self._steady_step(noise, spread)

    def choose(self, noise: np.ndarray) -> LangevinSettings:
        """Choose settings for noise of so much variance along each coordinate."""
        settings = self._settings(noise, self.steady, self._n_steps)
        self.settings = replace(
            settings, noise=self._taken_off * settings.noise, bounds=THERMOSTAT_BOUNDS
        )
        return self.settings

    def shorten(self, factor: float, noise: np.ndarray) -> None:
        """Bound the step size by a part of the present one."""
        assert self.settings is not None
        self.longest = max(factor * self.settings.step_size, SHORTEST_STEP)
        self._heat.forget()
        self.choose(noise)

    def watch(self, temperature: float, noise: np.ndarray) -> None:
        """Shorten the step where it heats by itself, as beside the pole of a density.

        Where it is too cold, more noise was taken off than there is: it varies over the posterior.
        """
        heat = self._heat.observe(temperature)
        if heat > 0:
            self.shorten(COOLER, noise)
        elif heat < 0 and noise.any():
            self._taken_off *= COOLER
            self.choose(noise)

    @property
    def state(self) -> dict[str, Any]:
        """Settings and bounds."""
        return {
            "settings": {}
            if self.settings is None
            else {name: getattr(self.settings, name) for name in self._SETTINGS},
            "longest": self.longest,
            "longest_by_noise": self.longest_by_noise,
            "steady": self.steady,
            "taken_off": self._taken_off,
            "heat": self._heat.sums.copy(),
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.settings = None
        if state["settings"]:
            self.settings = LangevinSettings(**state["settings"], bounds=THERMOSTAT_BOUNDS)
        self.longest, self.longest_by_noise = state["longest"], state["longest_by_noise"]
        self.steady, self._taken_off = state["steady"], state["taken_off"]
        self._heat.sums = state["heat"].copy()

    _SETTINGS = ("step_size", "friction", "noise", "n_steps")
