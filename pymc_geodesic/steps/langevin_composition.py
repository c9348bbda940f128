"""Components of Langevin samplers: adaptation, monitors and reports for the step methods."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.adaptation.adaptation import LangevinAdaptation
from pymc_geodesic.adaptation.annealed_parameters import SETTINGS as ANNEALING
from pymc_geodesic.adaptation.annealed_parameters import (
    AnnealedMeasurements,
    AnnealingRule,
    UnderdampedAnnealing,
)
from pymc_geodesic.adaptation.eligibility import Ineligibility, adapted_gradient
from pymc_geodesic.adaptation.fixed import (
    FixedParameters,
    KnownNoise,
    UserParameters,
    noise_by_coordinate,
)
from pymc_geodesic.adaptation.langevin_parameters import ParameterRule, UnderdampedRule
from pymc_geodesic.adaptation.minibatch_cost import minibatch_cost
from pymc_geodesic.adaptation.sparse_metric import SparseTrajectories
from pymc_geodesic.adaptation.split_hamiltonian import SplitChoice
from pymc_geodesic.adaptation.temperature_annealing import SETTINGS as THERMOSTATS
from pymc_geodesic.adaptation.temperature_annealing import TemperatureAnnealing
from pymc_geodesic.adaptation.whitened import WhitenedAdaptation
from pymc_geodesic.adaptation.whitened_trajectories import WhitenedTrajectories
from pymc_geodesic.arguments import (
    DEFAULT_STEPS,
    check_alternatives,
    check_positive,
    check_positive_number,
    plain_number,
)
from pymc_geodesic.densities.effect_residuals import other_variable_scales
from pymc_geodesic.densities.group_effects import GroupEffects
from pymc_geodesic.densities.variables import angles_of
from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.integrators import EXACT, PAPER
from pymc_geodesic.manifolds import Product
from pymc_geodesic.minibatches.from_arguments import MinibatchNoise
from pymc_geodesic.monitoring.diagnosis import Diagnose, Diagnosis, DrawMonitor
from pymc_geodesic.monitoring.effective_size import REMEDY, EffectiveSizeMonitor
from pymc_geodesic.monitoring.kinetic_temperature import TemperatureMonitor
from pymc_geodesic.monitoring.stationarity_monitors import (
    FixedParameterMonitor,
    StationarityMonitor,
)
from pymc_geodesic.samplers.dynamics import Dynamics
from pymc_geodesic.samplers.hmc import HMCSampler
from pymc_geodesic.samplers.langevin import LangevinSampler
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.estimators import LocalArguments, gradient_estimator
from pymc_geodesic.steps.hierarchy_monitors import effect_scale_monitor, funnel_diagnosis
from pymc_geodesic.steps.sparse_coordinates import find_group_effects, sparse_trajectories
from pymc_geodesic.steps.step import GeodesicStep
from pymc_geodesic.steps.unused_arguments import (
    check_adaptation_arguments,
    check_eligible_arguments,
    check_metric_has_coordinates,
    check_minibatch_arguments,
)

_log = logging.getLogger("pymc")

SPLITTINGS = {"exact": EXACT, "paper": PAPER}

ADAPTATION_STATS: dict[str, tuple[Any, list[int]]] = {
    "phase": (np.dtype("<U7"), []),
    "configurational_temperature": (np.float64, []),
    "whitened_gradient": (np.float64, []),
    "noise_ratio": (np.float64, []),
}
"""Types and shapes of the sample stats of the steps that can whiten their coordinates."""

EXPLORATION_ACCEPTANCE = 0.8
"""Target acceptance rate of the trajectories in the first phase of the warm-up."""

MAX_MONITORED_COORDINATES = 50_000
"""Maximum number of coordinates for which the stationarity monitor runs; it limits memory."""


def user_parameters(
    *,
    step_size: float | Schedule | None,
    learning_rate: float | None = None,
    friction: float | None = None,
    momentum_decay: float | None = None,
) -> UserParameters:
    """Check the user-specified step size and friction.

    Parameters
    ----------
    step_size, learning_rate, friction, momentum_decay
        See `pymc_geodesic.SGGMC`.

    Returns
    -------
    UserParameters
        Numbers of any type are converted to floats.

    Raises
    ------
    ValueError
        If a value is not positive, or if two arguments set the same parameter.
    """
    check_positive("step_size", step_size)
    check_positive_number("learning_rate", learning_rate)
    check_positive_number("friction", friction)
    check_positive_number("momentum_decay", momentum_decay)
    check_alternatives("the step size", step_size=step_size, learning_rate=learning_rate)
    check_alternatives("the friction", friction=friction, momentum_decay=momentum_decay)
    return UserParameters(
        plain_number(step_size),
        plain_number(learning_rate),
        plain_number(friction),
        plain_number(momentum_decay),
    )


@dataclass(frozen=True)
class LangevinArguments:
    """Arguments of a step with Langevin dynamics, except for those of `UserParameters`.

    Attributes
    ----------
    specified : sequence of str
        Arguments with which coordinates are not adapted; see `specified_arguments`.
    metric, control_variates, n_steps, gradient_noise, tune_temperature
        See `pymc_geodesic.SGGMC`.

    Raises
    ------
    ValueError
        For an argument without effect.
    """

    specified: Sequence[str]
    metric: str | np.ndarray | None
    control_variates: str | int
    n_steps: int | None
    gradient_noise: ArrayLike | str | None = None
    tune_temperature: float | None = None

    def __post_init__(self) -> None:
        """Check that the arguments have an effect with each other."""
        check_adaptation_arguments(
            self.specified,
            metric=self.metric,
            control_variates=self.control_variates,
            tune_temperature=self.tune_temperature,
        )

    @property
    def whitens(self) -> bool:
        """Whether the arguments allow coordinates to be adapted, with measured noise subtracted."""
        return self.metric is not None and not self.specified

    @property
    def may_reparametrize(self) -> bool:
        """Whether the arguments allow variables to be sampled in other coordinates than PyMC's."""
        return self.whitens and not isinstance(self.metric, np.ndarray)

    @property
    def noise_is_known(self) -> bool:
        """Whether the user specified a variance to subtract from the injected noise."""
        return self.gradient_noise is not None


def minibatch_noise(
    step: GeodesicStep, arguments: LangevinArguments, *, has_thermostats: bool = False
) -> MinibatchNoise:
    """Return the assumption of the dynamics about the gradient noise of successive minibatches.

    Parameters
    ----------
    step : GeodesicStep
    arguments : LangevinArguments
    has_thermostats : bool
        Whether thermostats compensate noise of unknown variance.
    """
    if step.local:  # all inner steps use the same minibatch
        return MinibatchNoise.ANY
    # Before compilation, control variates are certain only for a step that samples all variables;
    # rows drawn with replacement are valid in either case.
    has_control_variates = bool(arguments.control_variates) and step.samples_all
    if arguments.noise_is_known or (arguments.whitens and not has_control_variates):
        return MinibatchNoise.SUBTRACTED
    return MinibatchNoise.WHITE if arguments.whitens or has_thermostats else MinibatchNoise.ANY


def whitened_adaptation(
    estimator: GradientEstimator,
    product: Product,
    arguments: LangevinArguments,
    *,
    angles: Collection[str],
    rule: ParameterRule,
    effects: GroupEffects | None = None,
    split: SplitChoice | None = None,
) -> WhitenedAdaptation | Ineligibility:
    """Create the adaptation in whitened coordinates, or return the reason why there is none.

    Parameters
    ----------
    estimator : GradientEstimator
    product : Product
    arguments : LangevinArguments
    angles : collection of str
        Euclidean variables that are angles.
    rule : ParameterRule
        Step size, friction and number of steps for gradient noise of known variance.
    effects : GroupEffects, optional
        Effects of a hierarchical model, for ``metric="sparse"``.
    split : SplitChoice, optional
        Choice to split the Hamiltonian; never by default.

    Raises
    ------
    ValueError
        If ``metric`` or ``control_variates`` has no effect.
    """
    if not arguments.whitens:
        return Ineligibility(
            "coordinates are not adapted with user-specified arguments or local variables"
        )
    metric, control_variates = arguments.metric, arguments.control_variates
    assert metric is not None
    gradient = adapted_gradient(estimator, product, control_variates=control_variates)
    if isinstance(gradient, Ineligibility):
        check_eligible_arguments(gradient, metric=metric, control_variates=control_variates)
        return gradient
    check_metric_has_coordinates(metric, product)
    if control_variates in (1, 2) and gradient.control_variates is None:
        raise ValueError(
            f"control_variates={control_variates} has no effect "
            + (
                "on a step that samples a part of the variables. Omit it, or sample all variables "
                "with this step"
                if gradient.has_noise
                else "without minibatches. Omit it, or set batch_size="
            )
        )
    split = split or SplitChoice(may_split=False)
    explored: WhitenedTrajectories | SparseTrajectories
    if effects is None:
        explored = trajectories = WhitenedTrajectories(
            gradient,
            product,
            target_accept=EXPLORATION_ACCEPTANCE,
            metric=metric,
            angles=angles,
            may_split=split.may_split,
            only_explores=True,
        )
    else:
        explored = sparse_trajectories(
            estimator,
            product,
            effects,
            target_accept=EXPLORATION_ACCEPTANCE,
            only_explores=True,
        )
        trajectories = explored.inner
        gradient = trajectories.gradient
    return WhitenedAdaptation(
        gradient,
        product,
        estimator,
        HMCSampler(explored),
        trajectories,
        rule,
        control_variates=control_variates,
        n_steps=arguments.n_steps,
        cost=minibatch_cost(
            estimator,
            product,
            rule=rule,
            control_variates=control_variates,
            is_split=split.may_split,
        ),
        split=split,
    )


def langevin_adaptation(
    estimator: GradientEstimator,
    product: Product,
    parameters: UserParameters,
    arguments: LangevinArguments,
    *,
    angles: Collection[str],
    rule: ParameterRule,
    annealing: tuple[AnnealingRule, AnnealedMeasurements],
    max_annealed_thermostat: float = THERMOSTATS.max_thermostat,
    effects: GroupEffects | None = None,
    split: SplitChoice | None = None,
) -> LangevinAdaptation:
    """Choose the adaptation of dynamics with a momentum.

    `WhitenedAdaptation` if arguments, rows and manifolds allow it;
    `FixedParameters` if step size and friction are user-specified; otherwise
    `TemperatureAnnealing`, which adapts one or both of them in the coordinates of the model.

    Parameters
    ----------
    estimator : GradientEstimator
    product : Product
    parameters : UserParameters
    arguments : LangevinArguments
    angles : collection of str
        Euclidean variables that are angles.
    rule : ParameterRule
        Parameters in whitened coordinates, for gradient noise of known variance.
    annealing : (AnnealingRule, AnnealedMeasurements)
        Parameters in the coordinates of the model, and the measurements on which they depend.
    max_annealed_thermostat : float
        Upper bound on (C + ξ)/C during annealing, at temperatures above 1.
    effects, split
        See `whitened_adaptation`.

    Raises
    ------
    ValueError
        If an argument has no effect, or ``gradient_noise`` has the wrong size.
    """
    whitened = whitened_adaptation(
        estimator, product, arguments, angles=angles, rule=rule, effects=effects, split=split
    )
    if isinstance(whitened, WhitenedAdaptation):
        return whitened
    check_minibatch_arguments(
        has_minibatches=not estimator.source.has_all_rows,
        learning_rate=parameters.learning_rate,
        tune_temperature=arguments.tune_temperature,
        noise_is_known=arguments.noise_is_known,
    )
    by_rows = estimator.compile_noise() if isinstance(arguments.gradient_noise, str) else None
    known_noise = KnownNoise(noise_by_coordinate(arguments.gradient_noise, product.size), by_rows)
    if parameters.has_step_size and parameters.has_friction:
        return FixedParameters(
            estimator, product, parameters, known_noise, n_steps=arguments.n_steps or DEFAULT_STEPS
        )
    return TemperatureAnnealing(
        estimator,
        product,
        *annealing,
        parameters,
        known_noise,
        noise_is_known=arguments.noise_is_known,
        n_steps=arguments.n_steps or DEFAULT_STEPS,
        fixed_initial_temperature=arguments.tune_temperature is not None or estimator.is_local,
        max_annealed_thermostat=max_annealed_thermostat,
        ineligibility=whitened,
    )


def stationarity_monitor(
    estimator: GradientEstimator,
    product: Product,
    adaptation: LangevinAdaptation,
    arguments: LangevinArguments,
) -> StationarityMonitor | None:
    """Create the stationarity monitor, which compares gradients with draws.

    None with local variables, since their gradient estimates depend on earlier positions, and for
    more than `MAX_MONITORED_COORDINATES` coordinates.
    """
    if isinstance(adaptation, WhitenedAdaptation):
        return adaptation.monitor()
    if estimator.is_local or product.size > MAX_MONITORED_COORDINATES:
        return None
    return FixedParameterMonitor(product, estimator.gradient_at, arguments.n_steps or DEFAULT_STEPS)


def langevin_monitors(
    step: GeodesicStep, sampler: LangevinSampler, temperature: TemperatureMonitor | None = None
) -> tuple[Sequence[DrawMonitor], Sequence[Diagnose]]:
    """Create the monitors, and list the diagnose functions in the order of their reports."""
    adaptation = sampler.adaptation
    size = EffectiveSizeMonitor(
        step.product, angles_of(step.variables), remedy=step.remedy_of_slow_mixing(REMEDY)
    )
    monitors: list[DrawMonitor] = [size] if temperature is None else [temperature, size]
    is_sparse = isinstance(adaptation, WhitenedAdaptation) and adaptation.has_sparse_metric
    scales = None if is_sparse else effect_scale_monitor(step)
    # causes before consequences, because only the first diagnosis is reported
    causes: list[Diagnose] = []
    if scales is not None:
        monitors.append(scales)
        causes.append(scales.diagnosis)
    if temperature is not None:
        causes.append(temperature.diagnosis)
    if not adaptation.whitens:
        return monitors, [*causes, size.diagnosis, sampler.diagnosis]

    def funnel(names: Sequence[str]) -> Diagnosis | None:
        return funnel_diagnosis(step, adaptation.funnel())

    return monitors, [funnel, *causes, sampler.diagnosis, size.diagnosis]


def report_adaptation(step: GeodesicStep, adaptation: LangevinAdaptation) -> None:
    """Log why a step does not adapt its coordinates.

    The log is a warning if they are adapted with another batch size, or by a step with all rows.
    Also log advice if minibatches cost more than all rows, should be larger, or leave out rows of
    rare levels.
    """
    if not adaptation.needs_warm_up:
        return
    sampled = ", ".join(variable.name for variable in step.variables)
    source = f"{type(step).__name__}[{sampled}]"
    if isinstance(adaptation, WhitenedAdaptation):
        left_out = adaptation.count_rare_rows_left_out()
        if left_out:
            message = (
                f"{source}: many minibatches do not contain any row of some rare level or "
                f"indicator ({left_out:,} rows altogether); the posterior of their coefficients "
                'may be wrong. Use minibatch_order="independent", with which every gradient '
                "contains these rows."
            )
            _log.warning(see(message, "stationarity"))
        if adaptation.cost is not None and adaptation.cost.advice:
            message = f"{source}: {adaptation.cost}. {adaptation.cost.advice}."
            _log.warning(see(message, "minibatches-or-all-rows"))
        return
    message = f"{source} {adaptation!r}"
    ineligibility = adaptation.ineligibility
    if ineligibility is not None and (ineligibility.largest_batch or ineligibility.needs_all_rows):
        _log.warning(see(message, "no-adaptation"))
    else:
        _log.info(message)


def split_choice(step: GeodesicStep, *, has_partial_centering: bool) -> SplitChoice:
    """Create the choice to split the Hamiltonian of a step.

    It is possible if the step samples all variables, all are Euclidean, and none is an angle. In
    funnels the bounds on the step size do not hold: without partial centering, the scales of all
    variables must be constant or monitored.
    """
    is_euclidean = all(manifold.is_flat for _, manifold, _ in step.product.components)
    if not step.samples_all or not is_euclidean or angles_of(step.variables):
        return SplitChoice(may_split=False)
    if has_partial_centering:
        return SplitChoice(may_split=True)
    if other_variable_scales(step.model, step.variables):
        return SplitChoice(may_split=False)
    return SplitChoice(may_split=True, effect_scales=effect_scale_monitor(step))


def compose_geodesic_langevin(
    step: GeodesicStep,
    dynamics: Dynamics,
    parameters: UserParameters,
    arguments: LangevinArguments,
    *,
    has_thermostats: bool,
    local_arguments: LocalArguments,
    compile_kwargs: Mapping[str, Any] | None,
) -> None:
    """Set the parts of a step method with geodesic Langevin dynamics, SGGMC or gSGNHT.

    Parameters
    ----------
    step : GeodesicStep
        Receives ``estimator``, ``adaptation``, ``sampler``, ``monitors`` and
        ``diagnose_functions``.
    dynamics : Dynamics
    parameters : UserParameters
    arguments : LangevinArguments
    has_thermostats : bool
        Whether thermostats compensate noise of unknown variance.
    local_arguments : LocalArguments
    compile_kwargs
        See `pymc_geodesic.SGGMC`.
    """
    whitens, tune_temperature = arguments.whitens, arguments.tune_temperature
    # ∇log π̃ of the algorithms, in which the rows of a minibatch count N / n times
    step.estimator = estimator = gradient_estimator(
        step.model,
        step.variables,
        step.minibatches,
        local=step.local,
        local_arguments=local_arguments,
        noise=minibatch_noise(step, arguments, has_thermostats=has_thermostats),
        with_value=whitens and step.minibatches.minibatch is None,
        compile_kwargs=compile_kwargs,
    )
    product, is_local = step.product, estimator.is_local
    final_bias = ANNEALING.final_bias
    if arguments.noise_is_known:
        final_bias = ANNEALING.final_bias_of_known_noise
    elif has_thermostats:
        final_bias = ANNEALING.final_bias_with_thermostats
    initial_bias = ANNEALING.initial_bias_with_local if is_local else ANNEALING.initial_bias
    measured = AnnealedMeasurements(
        len(product.dims),
        initial_bias=initial_bias if tune_temperature is None else tune_temperature - 1.0,
        final_bias=final_bias,
        min_curvature=max(
            (0.25 * m.dim for _, m, _ in product.components if m.is_compact), default=0.0
        ),
    )
    repeats = (arguments.n_steps or DEFAULT_STEPS) if is_local else 1
    effects = (
        find_group_effects(step, estimator, arguments.metric, compile_kwargs) if whitens else None
    )
    step.adaptation = adaptation = langevin_adaptation(
        estimator,
        product,
        parameters,
        arguments,
        angles=angles_of(step.variables),
        rule=UnderdampedRule(),
        annealing=(UnderdampedAnnealing(repeats=repeats), measured),
        effects=effects,
        split=split_choice(step, has_partial_centering=effects is not None) if whitens else None,
    )
    monitor = stationarity_monitor(estimator, product, adaptation, arguments)
    step.sampler = sampler = LangevinSampler(dynamics, estimator, adaptation, monitor)
    temperature = TemperatureMonitor(adaptation.product.dims)
    step.monitors, step.diagnose_functions = langevin_monitors(step, sampler, temperature)
    report_adaptation(step, adaptation)
