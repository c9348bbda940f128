"""Settings for the noise that was measured, within what a chain has found to be stable."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.adaptation.langevin_parameters import (
    FRICTION,
    LangevinSettings,
    langevin_settings,
    step_for_shape,
)
from pymc_geodesic.adaptation.noise_variance import steady_step
from pymc_geodesic.adaptation.overdamped_parameters import (
    overdamped_settings,
    overdamped_steady_step,
)

WATCHED, MUCH_HEAT, HEAT_ERRORS = 40, 0.05, 4.0
"""Draws over which the temperature is averaged, the excess and the standard errors beyond it that
are acted on."""


HOTTEST, HOTTEST_SQUARE, HOTTER = 10.0, 100.0, 3.0
"""Temperature, and sum of squares, that no velocity of a normal law comes near; and by what they
grow where a chain was as hot before."""


def hottest_draw(dim: int, n_before: int = 0) -> float:
    """Temperature of a draw from which a chain is taken to run away.

    A chain that leaves the posterior gets hot long before its numbers overflow, and is far away by
    then. Where it is as hot with shorter steps as well, it is on its way to the posterior: the
    bound grows.

    Parameters
    ----------
    dim : int
    n_before : int
        How often the chain was that hot before.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.bounded_parameters import hottest_draw
    >>> hottest_draw(1), hottest_draw(100), hottest_draw(100, n_before=2)
    (110.0, 11.0, 99.0)
    """
    bound = HOTTEST + HOTTEST_SQUARE / max(dim, 1)
    return bound * HOTTER ** min(n_before, 100)


class HeatWatch:
    """Averages the kinetic temperature over some draws at a time, and judges the mean.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.bounded_parameters import HeatWatch
    >>> watch = HeatWatch()
    >>> sum(watch.observe(1.0 + 0.1 * (-1) ** draw) for draw in range(400))
    0
    >>> [watch.observe(1.3 + 0.1 * (-1) ** draw) for draw in range(40)][-1]
    1
    >>> [watch.observe(0.7 + 0.1 * (-1) ** draw) for draw in range(40)][-1]
    -1
    """

    def __init__(self) -> None:
        self.sums = np.zeros(3)

    def forget(self) -> None:
        """Begin anew, for the settings have changed."""
        self.sums = np.zeros(3)

    def observe(self, temperature: float) -> int:
        """Take in a draw; return 1 if it is too hot beyond doubt, −1 if too cold, and else 0."""
        self.sums += (1.0, temperature, temperature**2)
        count, total, squares = self.sums
        if count < WATCHED:
            return 0
        mean = total / count
        error = math.sqrt(max(squares / count - mean**2, 0.0) / count)
        self.forget()
        if abs(mean - 1.0) <= MUCH_HEAT + HEAT_ERRORS * error:
            return 0
        return 1 if mean > 1.0 else -1


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
        """Bound the step; see `pymc_geodesic.adaptation.noise_variance.steady_step`."""
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
