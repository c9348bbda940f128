"""Bounds on the step size of Langevin dynamics in whitened coordinates.

The step size for the measured noise is bounded by the shape of the posterior, by noise
heterogeneity over the posterior, by anisotropic noise or curvature on manifolds, where metric and
friction are the same in all directions, and by temperatures and divergences of the warm-up.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.langevin_parameters import SETTINGS as LANGEVIN
from pymc_geodesic.adaptation.langevin_parameters import LangevinParameters, ParameterRule
from pymc_geodesic.adaptation.mass_matrix import MassMatrixWindows
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.integrators import NOT_HARMONIC


@dataclass(frozen=True)
class StepSizeBoundSettings:
    """Constants of the bounds; step sizes in posterior standard deviations.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    n_temperatures : int
        Number of draws over which the temperature is averaged for a check.
    temperature_tolerance : float
        Accepted bias of the mean temperature.
    temperature_errors : float
        Number of standard errors by which the bias has to exceed the tolerance.
    reduction : float
        Factor by which the step size, or the subtracted noise, is reduced if the temperature is
        biased.
    runaway_temperature, runaway_square : float
        Constants of the temperature 10 + 100/m in m dimensions above which a draw counts as a
        divergence; by calculation, far beyond those of normally distributed velocities.
    runaway_growth : float
        Factor by which that bound increases after each such draw.
    max_temperature, max_square : float
        The same for draws after the warm-up, 3 + 30/m, which m normally distributed velocities
        exceed with a probability below 1e-7; by calculation.
    min_step_size_after_divergence : float
        Lower bound on the step size after divergences.
    min_step_size_for_heterogeneity : float
        Lower bound on `StepSizeBounds.by_heterogeneity`.
    thermostat_bounds : (float, float)
        Bounds on ξ/C: a thermostat removes at most half of the friction.
    max_anisotropy_bias : float
        Upper bound on the temperature bias along the direction of a manifold with the most noise.
    min_gradients : int
        Minimum number of gradients from which the direction of largest curvature, or the errors of
        means and variances, are estimated.
    shared_scale_ratio : int
        Minimum ratio of all coordinates to those of a variable for which that variable counts as a
        hierarchical scale.
    """

    n_temperatures: int = 40
    temperature_tolerance: float = 0.05
    temperature_errors: float = 4.0
    reduction: float = 0.7
    runaway_temperature: float = 10.0
    runaway_square: float = 100.0
    runaway_growth: float = 3.0
    max_temperature: float = 3.0
    max_square: float = 30.0
    min_step_size_after_divergence: float = 0.01
    min_step_size_for_heterogeneity: float = 0.03
    thermostat_bounds: tuple[float, float] = (-0.5, math.inf)
    max_anisotropy_bias: float = 0.05
    min_gradients: int = 10
    shared_scale_ratio: int = 20


SETTINGS = StepSizeBoundSettings()


class TemperatureCheck:
    """Check of the mean temperature in successive windows of draws.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.step_size_bounds import TemperatureCheck
    >>> check = TemperatureCheck()
    >>> sum(check.update(1.0 + 0.1 * (-1) ** draw) for draw in range(400))
    0
    >>> [check.update(1.3 + 0.1 * (-1) ** draw) for draw in range(40)][-1]
    1
    >>> [check.update(0.7 + 0.1 * (-1) ** draw) for draw in range(40)][-1]
    -1
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin a new window, after a change of the parameters."""
        self.sums = np.zeros(3)

    def update(self, temperature: float) -> int:
        """Add a draw; return the sign of a significant temperature bias, or 0."""
        self.sums += (1.0, temperature, temperature**2)
        count, total, squares = self.sums
        if count < SETTINGS.n_temperatures:
            return 0
        mean = total / count
        error = math.sqrt(max(squares / count - mean**2, 0.0) / count)
        self.reset()
        if abs(mean - 1.0) <= SETTINGS.temperature_tolerance + SETTINGS.temperature_errors * error:
            return 0
        return 1 if mean > 1.0 else -1


@dataclass
class StepSizeBounds:
    """Upper bounds on the step size.

    Attributes
    ----------
    by_posterior : float
        Bound due to the shape and curvature of the posterior, reduced after biased temperatures and
        divergences of the warm-up.
    by_anisotropy : float
        Bound due to gradient noise that differs between directions of a manifold.
    by_heterogeneity : float
        Bound due to gradient noise that differs over the posterior.
    """

    by_posterior: float = math.inf
    by_anisotropy: float = math.inf
    by_heterogeneity: float = math.inf


class BoundedParameters:
    """Parameters for measured noise, within bounds on the step size.

    Parameters
    ----------
    rule : ParameterRule
    n_steps : int, optional
        Number of inner steps per draw; computed by default.

    Attributes
    ----------
    parameters : LangevinParameters or None
        None before the first choice.
    bounds : StepSizeBounds
    is_harmonic : ndarray of bool
        See `LangevinParameters`.
    """

    def __init__(self, rule: ParameterRule, n_steps: int | None) -> None:
        self.rule, self._n_steps = rule, n_steps
        self.reset()

    def reset(self) -> None:
        """Discard parameters and bounds."""
        self.parameters: LangevinParameters | None = None
        self.bounds, self.is_harmonic = StepSizeBounds(), NOT_HARMONIC
        self._noise_fraction = 1.0
        self._check = TemperatureCheck()

    def decorrelation_steps(self, noise: np.ndarray, noise_sd: np.ndarray) -> float:
        """Return the number of inner steps between independent draws.

        Parameters
        ----------
        noise, noise_sd : ndarray, shape (size,)
            Mean over the posterior of the variance of the gradient estimate along each coordinate,
            and its standard deviation. The bound on the step size has no minimum here: if that of
            `bound_by_heterogeneity` is reached, draws are biased, and their cost is too low.
        """
        by_heterogeneity = self.rule.max_step_size_for_heterogeneity(noise, noise_sd)
        bounds = replace(self.bounds, by_heterogeneity=max(by_heterogeneity, 1e-12))
        return self._within(bounds, noise, None).decorrelation_steps

    def bound_by_heterogeneity(self, noise: np.ndarray, noise_sd: np.ndarray) -> None:
        """Bound the step size by noise heterogeneity; see `decorrelation_steps`."""
        self.bounds.by_heterogeneity = max(
            self.rule.max_step_size_for_heterogeneity(noise, noise_sd),
            SETTINGS.min_step_size_for_heterogeneity,
        )

    def _within(
        self, bounds: StepSizeBounds, noise: np.ndarray, n_steps: int | None
    ) -> LangevinParameters:
        parameters = self.rule.parameters(noise, n_steps=n_steps)
        longest = min(bounds.by_posterior, bounds.by_anisotropy, bounds.by_heterogeneity)
        if parameters.step_size > longest:
            return self.rule.parameters(noise, step_size=longest, n_steps=n_steps)
        return parameters

    def choose(self, noise: np.ndarray) -> LangevinParameters:
        """Compute the parameters for noise of this variance along each coordinate."""
        parameters = self._within(self.bounds, noise, self._n_steps)
        self.parameters = replace(
            parameters,
            noise=self._noise_fraction * parameters.noise,
            thermostat_bounds=SETTINGS.thermostat_bounds,
            is_harmonic=self.is_harmonic,
        )
        return self.parameters

    def reduce_step_size(self, factor: float, noise: np.ndarray) -> None:
        """Bound the step size by a fraction of the current one, after a divergence or a bias."""
        assert self.parameters is not None
        reduced = factor * self.parameters.step_size
        self.bounds.by_posterior = max(reduced, SETTINGS.min_step_size_after_divergence)
        self._check.reset()
        self.choose(noise)

    def check_temperature(self, temperature: float, noise: np.ndarray) -> bool:
        """Reduce the step size if the temperature is above 1, as near a pole of the density.

        If it is below 1, too much noise is subtracted, since its variance differs over the
        posterior; then the subtracted noise is reduced. Return whether anything was reduced.
        """
        sign = self._check.update(temperature)
        if sign > 0:
            self.reduce_step_size(SETTINGS.reduction, noise)
        elif sign < 0 and noise.any():
            self._noise_fraction *= SETTINGS.reduction
            self.choose(noise)
        return sign > 0 or (sign < 0 and bool(noise.any()))

    @property
    def state(self) -> dict[str, Any]:
        """Parameters and bounds."""
        return {
            "parameters": {} if self.parameters is None else asdict(self.parameters),
            "bounds": asdict(self.bounds),
            "noise_fraction": self._noise_fraction,
            "temperature_sums": self._check.sums.copy(),
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        parameters = copy.deepcopy(state["parameters"])
        self.parameters = LangevinParameters(**parameters) if parameters else None
        self.bounds = StepSizeBounds(**state["bounds"])
        chosen = self.parameters
        self.is_harmonic = NOT_HARMONIC if chosen is None else chosen.is_harmonic
        self._noise_fraction = state["noise_fraction"]
        self._check.sums = state["temperature_sums"].copy()


def max_temperature(dim: int, n_before: int = 0, *, tune: bool) -> float:
    """Compute the temperature above which a draw has left the posterior, and is undone.

    A chain that leaves the posterior has a high temperature long before it overflows. If the
    temperature is as high again, the chain may be moving towards the posterior; therefore the bound
    increases.

    Parameters
    ----------
    dim : int
    n_before : int
        Number of earlier draws at such a temperature.
    tune : bool
        In the warm-up chains may start far from the posterior, and the bound is larger.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.step_size_bounds import max_temperature
    >>> max_temperature(1, tune=True), max_temperature(100, tune=True)
    (110.0, 11.0)
    >>> max_temperature(10, tune=False), max_temperature(10, n_before=2, tune=False)
    (6.0, 54.0)
    """
    bound, square = SETTINGS.max_temperature, SETTINGS.max_square
    if tune:
        bound, square = SETTINGS.runaway_temperature, SETTINGS.runaway_square
    return (bound + square / max(dim, 1)) * SETTINGS.runaway_growth ** min(n_before, 100)


def has_shared_scales(sizes: Sequence[int]) -> bool:
    """Whether many coordinates may depend on a variable with few coordinates.

    Parameters
    ----------
    sizes : sequence of int
        Number of coordinates of each variable.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.step_size_bounds import has_shared_scales
    >>> has_shared_scales([1, 1, 1000]), has_shared_scales([28]), has_shared_scales([1, 8])
    (True, False, False)
    """
    return bool(sizes) and min(sizes) * SETTINGS.shared_scale_ratio <= sum(sizes)


# --- manifolds -------------------------------------------------------------------------------


def largest_square(vectors: np.ndarray) -> float:
    """Estimate the mean square of random vectors along the direction in which it is largest.

    Half of the vectors determine the direction, and the other half the mean square along it, which
    is unbiased for isotropic vectors.

    Parameters
    ----------
    vectors : ndarray, shape (n, size)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.step_size_bounds import largest_square
    >>> float(largest_square(np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [3.0, 2.0]])))
    9.0
    """
    _, _, directions = np.linalg.svd(vectors[::2], full_matrices=False)
    return float(np.mean((vectors[1::2] @ directions[0]) ** 2))


def max_step_size_along_noisiest_direction(variance: float, additional: float) -> float:
    """Upper bound on h due to the direction of a manifold with the largest noise variance.

    Friction and known noise are the same for all directions of a point. An additional variance s in
    one direction raises the temperature along it by h²/4 · s · coth(Ch/2).

    Parameters
    ----------
    variance, additional : float
        Mean variance of the gradient estimate over directions, and largest deviation from it.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.step_size_bounds import max_step_size_along_noisiest_direction
    >>> max_step_size_along_noisiest_direction(4.0, 0.0)
    0.5
    >>> round(max_step_size_along_noisiest_direction(4.0, 2.0), 3)
    0.056
    """

    def bias(h: float) -> float:
        friction = LANGEVIN.friction + 0.5 * h * variance
        return 0.25 * h * h * additional / math.tanh(0.5 * h * friction)

    longest = LANGEVIN.max_step_size
    if bias(longest) <= SETTINGS.max_anisotropy_bias:
        return longest
    from scipy.optimize import brentq  # imported here because it takes 0.1 s and is rarely needed

    return float(brentq(lambda h: bias(h) - SETTINGS.max_anisotropy_bias, 1e-12, longest))


def max_step_size_for_anisotropic_noise(
    points: Sequence[tuple[slice, int]], differences: np.ndarray
) -> float:
    """Upper bound on h due to gradient noise that differs between directions of manifolds.

    Parameters
    ----------
    points
        See `pymc_geodesic.adaptation.components.curved_points`.
    differences : ndarray, shape (n, size)
        See `pymc_geodesic.kernels.probe.differences_of_pairs`.
    """
    longest = math.inf
    for part, dim in points:
        if dim > 1:
            here = differences[:, part]
            variance = 0.5 * float(np.mean(np.sum(here**2, axis=1))) / dim
            additional = max(0.5 * largest_square(here) - variance, 0.0)
            longest = min(longest, max_step_size_along_noisiest_direction(variance, additional))
    return longest


def max_step_size_for_curvature(
    points: Sequence[tuple[slice, int]], gradients: np.ndarray
) -> float:
    """Upper bound on h due to the largest curvature of the log-density on manifolds.

    The mean square of the gradient along a direction of curvature λ is λ; on manifolds no metric
    reduces it.

    Parameters
    ----------
    points
        See `pymc_geodesic.adaptation.components.curved_points`.
    gradients : ndarray, shape (n, size)
        Gradients of the log-density at draws, multiplied by the length scales.
    """
    longest = math.inf
    for part, _ in points:
        curvature = largest_square(gradients[:, part])
        longest = min(longest, LANGEVIN.max_step_size / math.sqrt(max(curvature, 1.0)))
    return longest


def max_step_size_from_exploration_gradients(
    points: Sequence[tuple[slice, int]],
    windows: MassMatrixWindows,
    gradient: AdaptedGradient,
) -> float:
    """Upper bound on h from the gradients of the exploration, due to their curvature on manifolds.

    Infinite if there are fewer than `StepSizeBoundSettings.min_gradients`.

    Parameters
    ----------
    points
        See `pymc_geodesic.adaptation.components.curved_points`.
    windows : MassMatrixWindows
        Draws and gradients of the exploration.
    gradient : AdaptedGradient
        Gradient with the metric of the exploration.
    """
    if len(windows) < SETTINGS.min_gradients:
        return math.inf
    gradients, d = windows.gradients, gradient.n_euclidean
    gradients[:, d:] *= np.repeat(gradient.metric.lengths, gradient.widths)
    return max_step_size_for_curvature(points, gradients)


# --- leapfrog steps --------------------------------------------------------------------------


def leapfrog_error_rates(
    metric: Metric, x: np.ndarray, gradients: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the errors of means and variances of whitened coordinates, divided by h²/8.

    Their absolute values are reduced by a standard error.

    Parameters
    ----------
    metric : Metric
    x, gradients : ndarray, shape (n, d)
        Positions and gradients of the log-density there.

    Returns
    -------
    of_means, of_variances : ndarray, shape (d,)
        See `pymc_geodesic.adaptation.langevin_parameters.UnderdampedRule`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.step_size_bounds import leapfrog_error_rates
    >>> from pymc_geodesic.gradients.metric import Metric
    >>> x, gradients = np.array([[-1.0], [0.0], [1.0]]), np.array([[3.0], [0.0], [-1.0]])
    >>> of_means, _ = leapfrog_error_rates(Metric(np.zeros(1), np.ones(1)), x, gradients)
    >>> of_means.round(2)
    array([1.32])
    """
    z, squares = metric.whiten(x), np.sum(metric.to_gradient(gradients) ** 2, axis=1)
    z = z - z.mean(axis=0)
    away = (squares - squares.mean())[:, np.newaxis]
    return _reduced_mean(-z * away), _reduced_mean(2.0 - z**2 * away)


def _reduced_mean(values: np.ndarray) -> np.ndarray:
    """Mean of columns, whose absolute value is reduced by a standard error."""
    mean, error = values.mean(axis=0), values.std(axis=0) / math.sqrt(max(len(values), 1))
    return np.asarray(np.sign(mean) * np.maximum(np.abs(mean) - error, 0.0))
