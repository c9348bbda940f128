"""Count-based samplers: estimator, adaptation, sampler and monitor for `SCIR` and `SGRLD`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymc_geodesic.adaptation.count_control_variates import CountControlVariates, CountDrift
from pymc_geodesic.adaptation.count_noise import CountNoiseAdaptation
from pymc_geodesic.adaptation.count_step_size import EulerStepSize, ExactStepSize
from pymc_geodesic.arguments import plain_number
from pymc_geodesic.counts.count_estimator import CountEstimator
from pymc_geodesic.counts.gradient_counts import GradientCountEstimator, likelihood_density
from pymc_geodesic.counts.layout import CountLayout, layout_table
from pymc_geodesic.counts.model_checks import LikelihoodChecks
from pymc_geodesic.counts.priors import ConjugatePriors
from pymc_geodesic.counts.topic_counts import TopicCountEstimator
from pymc_geodesic.minibatches.from_arguments import minibatch_source
from pymc_geodesic.monitoring.variance_inflation import InflationMonitor
from pymc_geodesic.samplers.cir import (
    CIRSampler,
    EulerSteps,
    ExactTransitions,
    InnerSteps,
    TopicSteps,
)
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.packing import LogPacking
from pymc_geodesic.steps.step import GeodesicStep, Progress

COUNT_PROGRESS: Progress = (
    ("step_size", ".1e", "Step size"),
    ("variance_inflation", ".3f", "Inflation"),
)


def compose_count_sampler(
    step: GeodesicStep,
    *,
    is_exact: bool,
    step_size: float | Schedule | None,
    n_steps: int,
    local_draws: int,
    local_tune: int,
    control_variates: bool = False,
    compile_kwargs: Mapping[str, Any] | None,
) -> None:
    """Set the parts of a step method that estimates counts, SCIR or SGRLD.

    Parameters
    ----------
    step : GeodesicStep
        Receives ``packing``, ``estimator``, ``adaptation``, ``sampler``, ``monitors`` and
        ``diagnose_functions``.
    is_exact : bool
        Whether inner steps are the exact transitions of SCIR, which need counts that are not
        negative, or the Euler steps of SGRLD.
    step_size, n_steps, local_draws, local_tune, control_variates, compile_kwargs
        See `pymc_geodesic.SCIR`.

    Raises
    ------
    ValueError
        For a prior or likelihood that the sampler does not support.
    """
    model, variables, minibatches = step.model, step.variables, step.minibatches
    step.packing = LogPacking(model, variables, step.product)
    layout = CountLayout(layout_table(variables))
    estimator: CountEstimator
    if step.local:
        estimator = topics = TopicCountEstimator(
            model,
            variables,
            step.local,
            minibatches=minibatches,
            n_kept=local_draws,
            n_discarded=local_tune,
        )
    else:
        source = minibatch_source(model, minibatches)
        density = likelihood_density(model, variables, source, minibatches.total_size)
        estimator = counts = GradientCountEstimator(density, compile_kwargs=compile_kwargs)
    step.estimator = estimator
    priors = ConjugatePriors(model, variables, estimator.source.names)
    checks = LikelihoodChecks(
        type(step).__name__, model, variables, estimator, layout, allows_negative=not is_exact
    )
    variates = (
        CountControlVariates(estimator, layout, checks.describe_negative)
        if control_variates
        else None
    )
    depends = checks.dependence()
    drift = CountDrift(estimator, layout, variates, allows_negative=not is_exact)
    step.adaptation = adaptation = CountNoiseAdaptation(
        drift,
        ExactStepSize(drift, checks.check_conjugacy) if is_exact else EulerStepSize(drift),
        step_size=plain_number(step_size),
        counts_depend=depends.counts,
        sums_depend=layout.by_coordinate(depends.sums),
    )
    inner_steps: InnerSteps
    if step.local:
        inner_steps = TopicSteps(topics, layout, is_exact=is_exact)
    elif is_exact:
        inner_steps = ExactTransitions(counts.logp_grad, layout, variates, checks.describe_negative)
    else:
        inner_steps = EulerSteps(counts.logp_grad, layout)
    step.sampler = CIRSampler(
        inner_steps,
        estimator,
        priors,
        layout,
        adaptation,
        n_steps=int(n_steps),
        control_variates=variates,
    )
    inflation = InflationMonitor()
    step.monitors, step.diagnose_functions = [inflation], [inflation.diagnosis]
