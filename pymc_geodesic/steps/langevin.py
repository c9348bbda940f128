"""Parts from which the constructors of Langevin steps compose their samplers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.adaptation.adaptable import NotAdapted, adapted_gradient
from pymc_geodesic.adaptation.adaptation import LARGER_MINIBATCHES, LangevinAdaptation
from pymc_geodesic.adaptation.annealed_parameters import (
    FIRST_EXCESS,
    FIRST_EXCESS_WITH_LOCAL,
    TemperatureTuner,
)
from pymc_geodesic.adaptation.annealing import (
    FixedParameters,
    KnownNoise,
    TemperatureAnnealing,
    UserParameters,
)
from pymc_geodesic.adaptation.bounded_parameters import ParameterRule
from pymc_geodesic.adaptation.known_noise import noise_by_coordinate
from pymc_geodesic.adaptation.trajectories import WhitenedTrajectories
from pymc_geodesic.adaptation.whitened import WhitenedAdaptation
from pymc_geodesic.densities.variables import angles_of
from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.integrators import EXACT, PAPER
from pymc_geodesic.manifolds import Product
from pymc_geodesic.minibatches.orders import RowNoise
from pymc_geodesic.monitoring.diagnosis import Diagnose, DrawMonitor
from pymc_geodesic.monitoring.effective_size import EffectiveSizeMonitor
from pymc_geodesic.monitoring.stationarity_monitors import (
    FixedParameterMonitor,
    StationarityMonitor,
)
from pymc_geodesic.samplers.hmc import HMCSampler
from pymc_geodesic.samplers.langevin import LangevinSampler
from pymc_geodesic.steps.step import DEFAULT_STEPS, GeodesicStep

__all__ = [
    "ADAPTATION_STATS",
    "SPLITTINGS",
    "check_unused_covariance",
    "langevin_adaptation",
    "langevin_monitors",
    "monitor_of",
    "report_adaptation",
    "row_noise",
    "temperature_tuner",
    "whitened_adaptation",
]

_log = logging.getLogger("pymc")

SPLITTINGS = {"exact": EXACT, "paper": PAPER}

ADAPTATION_STATS: dict[str, tuple[Any, list[int]]] = {
    "phase": (np.dtype("<U6"), []),
    "configurational_temperature": (np.float64, []),
    "whitened_gradient": (np.float64, []),
    "noise_ratio": (np.float64, []),
}
"""Types and shapes of the sample stats that every step has which can whiten its coordinates."""

EXPLORING_ACCEPTANCE = 0.8
"""Acceptance rate of the trajectories of the first phase of a warm-up."""

LAST_EXCESS_OF_KNOWN_NOISE = 0.5
"""Fraction of the noise of the dynamics that gradient noise of known variance may replace."""

LARGEST_MONITORED = 50_000
"""Coordinates beyond which sums over gradients would fill the memory."""


def row_noise(*, is_local: bool, needs_white: bool, is_subtracted: bool) -> RowNoise:
    """Return what the dynamics assume of the noise of minibatches.

    Parameters
    ----------
    is_local : bool
        Whether rows have local variables.
    needs_white : bool
        Whether gradient noise must be independent from one inner step to the next.
    is_subtracted : bool
        Whether all the noise of minibatches is subtracted from the injected noise.
    """
    if is_local or not needs_white:
        return RowNoise.ANY
    return RowNoise.TAKEN_OFF if is_subtracted else RowNoise.WHITE


def whitened_adaptation(
    estimate: GradientEstimate,
    product: Product,
    *,
    rule: ParameterRule,
    metric: str | np.ndarray,
    angles: Collection[str],
    control_variates: str | int,
    n_steps: int | None,
) -> WhitenedAdaptation | NotAdapted:
    """Adaptation in whitened coordinates, where the estimate allows it, or why not.

    Parameters
    ----------
    estimate : GradientEstimate
    product : Product
    rule : ParameterRule
        Parameters for known gradient noise.
    metric, control_variates, n_steps
        See `pymc_geodesic.SGGMC`.
    """
    gradient = adapted_gradient(estimate, product, control_variates=control_variates)
    if isinstance(gradient, NotAdapted):
        return gradient
    trajectories = WhitenedTrajectories(
        gradient,
        product,
        target_accept=EXPLORING_ACCEPTANCE,
        metric=metric,
        angles=angles,
    )
    return WhitenedAdaptation(
        gradient,
        product,
        estimate,
        HMCSampler(trajectories),
        trajectories,
        rule,
        order=control_variates,
        n_steps=n_steps,
    )


def temperature_tuner(
    product: Product,
    *,
    n_steps: int,
    is_local: bool,
    noise_is_known: bool,
    tune_temperature: float | None,
    last_excess: float,
) -> TemperatureTuner:
    """Tuner of step size and friction for dynamics whose coordinates are not adapted."""
    first = FIRST_EXCESS_WITH_LOCAL if is_local else FIRST_EXCESS
    return TemperatureTuner(
        len(product.dims),
        repeats=n_steps if is_local else 1,
        first_excess=first if tune_temperature is None else tune_temperature - 1.0,
        last_excess=LAST_EXCESS_OF_KNOWN_NOISE if noise_is_known else last_excess,
        least_curvature=max(
            (0.25 * m.dim for _, m, _ in product.components if m.is_compact), default=0.0
        ),
    )


def langevin_adaptation(
    estimate: GradientEstimate,
    product: Product,
    parameters: UserParameters,
    *,
    whitens: bool,
    rule: ParameterRule,
    metric: str | np.ndarray | None,
    angles: Collection[str],
    control_variates: str | int,
    gradient_noise: ArrayLike | str | None,
    tune_temperature: float | None,
    last_excess: float,
    n_steps: int | None,
) -> LangevinAdaptation:
    """Choose what adapts the dynamics of SGGMC and gSGNHT.

    Whitened coordinates with control variates where nothing is user-specified and rows and
    manifolds allow them, else temperature annealing, or nothing where step size and friction are
    user-specified.

    Parameters
    ----------
    estimate : GradientEstimate
    product : Product
    parameters : UserParameters
    whitens : bool
        Whether the arguments leave the coordinates to adaptation.
    rule : ParameterRule
    angles : collection of str
        Euclidean variables that are angles.
    last_excess : float
        Excess of the kinetic temperature by gradient noise at the end of annealing.
    metric, control_variates, gradient_noise, tune_temperature, n_steps
        See `pymc_geodesic.SGGMC`.

    Raises
    ------
    ValueError
        If a covariance is given that nothing uses.
    """
    obstacle = NotAdapted("user-specified arguments or local variables exclude them")
    if whitens:
        assert metric is not None
        whitened = whitened_adaptation(
            estimate,
            product,
            rule=rule,
            metric=metric,
            angles=angles,
            control_variates=control_variates,
            n_steps=n_steps,
        )
        if isinstance(whitened, WhitenedAdaptation):
            return whitened
        obstacle = whitened
    check_unused_covariance(metric)
    fixed_steps = n_steps or DEFAULT_STEPS
    by_rows = estimate.compile_noise() if isinstance(gradient_noise, str) else None
    variance = noise_by_coordinate(gradient_noise, product.size)
    known = KnownNoise(variance if variance.size else np.zeros(product.size), by_rows)
    if parameters.has_step_size and parameters.has_friction:
        return FixedParameters(estimate, product, parameters, known, n_steps=fixed_steps)
    return TemperatureAnnealing(
        estimate,
        product,
        temperature_tuner(
            product,
            n_steps=fixed_steps,
            is_local=estimate.is_local,
            noise_is_known=gradient_noise is not None,
            tune_temperature=tune_temperature,
            last_excess=last_excess,
        ),
        parameters,
        known,
        noise_is_known=gradient_noise is not None,
        n_steps=fixed_steps,
        starts_anywhere=tune_temperature is not None or estimate.is_local,
        obstacle=obstacle,
    )


def check_unused_covariance(metric: str | np.ndarray | None) -> None:
    """Raise an error for a covariance that no whitened coordinates use."""
    if isinstance(metric, np.ndarray):
        raise ValueError(
            "metric= is a covariance, which only adapted dynamics use, and this step does not "
            "adapt: leave out step_size, friction and other dynamics, local= and "
            'splitting="paper"; simplices, and rows from disk in few or sparse minibatches, '
            "never adapt"
        )


def monitor_of(
    estimate: GradientEstimate,
    product: Product,
    adaptation: LangevinAdaptation,
    *,
    n_steps: int | None,
) -> StationarityMonitor | None:
    """Monitor that compares gradients with draws.

    None with local variables, whose estimates depend on the position, and in huge models.
    """
    if isinstance(adaptation, WhitenedAdaptation):
        return adaptation.monitor()
    if estimate.is_local or product.size > LARGEST_MONITORED:
        return None
    return FixedParameterMonitor(product, estimate.gradient_at, n_steps or DEFAULT_STEPS)


def langevin_monitors(
    step: GeodesicStep, sampler: LangevinSampler, *temperature: DrawMonitor
) -> tuple[Sequence[DrawMonitor], Sequence[Diagnose]]:
    """Make monitors, and list the diagnoses in the order in which they are reported."""
    adaptation = sampler.adaptation
    size = EffectiveSizeMonitor(step.product, angles_of(step.variables))
    temperatures = [monitor.diagnosis for monitor in temperature]
    if not adaptation.is_whitened:
        return [*temperature, size], [*temperatures, size.diagnosis, sampler.diagnosis]
    diagnoses = [
        lambda _: step.funnel_diagnosis(adaptation.funnel),
        *temperatures,
        sampler.diagnosis,
        size.diagnosis,
    ]
    return [*temperature, size], diagnoses


def report_adaptation(step: GeodesicStep, adaptation: LangevinAdaptation) -> None:
    """Log what keeps a step from adapting its coordinates, as a warning where there is a remedy."""
    if adaptation.is_whitened or not adaptation.needs_warm_up:
        return
    sampled = ", ".join(variable.name for variable in step.variables)
    message = f"{type(step).__name__}[{sampled}] {adaptation!r}"
    if adaptation.minibatch_remedy != LARGER_MINIBATCHES:
        _log.warning(see(message, "no-adaptation"))
    else:
        _log.info(message)
