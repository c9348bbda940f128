"""The gradient estimate that the arguments of a step method ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymc_geodesic.counts.estimate import CountEstimate
from pymc_geodesic.counts.gradient_counts import CountEstimator, LikelihoodDensity
from pymc_geodesic.counts.priors import ConjugatePriors, family_of
from pymc_geodesic.counts.topic_counts import TopicCountEstimator
from pymc_geodesic.densities.local_rows import total_rows
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.gradients.local_gradient import LocalGradientEstimator
from pymc_geodesic.gradients.minibatch_gradient import GradientEstimator
from pymc_geodesic.minibatches.from_arguments import minibatch_source
from pymc_geodesic.minibatches.orders import RowNoise
from pymc_geodesic.steps.base.options import LocalDraws, LocalOptions, RowOptions
from pymc_geodesic.steps.base.pymc_parts import Model

__all__ = ["make_count_estimator", "make_estimator"]


def make_estimator(
    model: Model,
    variables: Sequence[ManifoldVariable],
    options: RowOptions,
    *,
    noise: RowNoise = RowNoise.ANY,
    local: Sequence[ManifoldVariable] = (),
    local_draws: LocalOptions | None = None,
    with_value: bool = False,
    compile_kwargs: Mapping[str, Any] | None,
) -> GradientEstimate:
    """Compile the gradient estimate of a step method.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
    options : RowOptions
        What was said of rows.
    noise : RowNoise
        What the step counts on of the noise of minibatches.
    local : list of ManifoldVariable
        Variables with one point for each row.
    local_draws : LocalOptions
        What was said of them.
    with_value : bool
        Whether the log-density is needed too.
    compile_kwargs : mapping, optional

    Raises
    ------
    ValueError
        If the arguments contradict each other or the model.
    """
    if local:
        if options.minibatch is None:
            raise ValueError(
                "local= needs minibatch=[...], the names of the data containers whose rows the "
                "local variables belong to; batch_size= may be left out to use all rows"
            )
        if options.batches is not None:
            raise ValueError("local= needs rows that can be visited again, not batches=")
    n_local = local[0].shape[0] if local else None
    source = minibatch_source(model, options, noise=noise, n_rows=n_local)
    if not local:
        density = RowDensity(model, variables, source, options.total_size)
        return GradientEstimator(density, with_value=with_value, compile_kwargs=compile_kwargs)
    assert local_draws is not None
    total_size = total_rows(model, local, source, options.total_size)
    n_draws = local_draws.local_draws
    if not with_value:
        # While the draws stand still they drag the others along as friction does, and only the
        # scatter of N / n draws or fewer warms as much as that cools.
        n_draws = min(n_draws, max(1, total_size // source.batch_size))
    return LocalGradientEstimator(
        model,
        variables,
        local,
        source=source,
        total_size=total_size,
        n_draws=n_draws,
        n_discarded=local_draws.local_tune,
        n_steps=local_draws.local_steps,
        with_value=with_value,
        compile_kwargs=compile_kwargs,
    )


def make_count_estimator(
    model: Model,
    variables: Sequence[ManifoldVariable],
    options: RowOptions,
    *,
    local: Sequence[ManifoldVariable],
    local_draws: LocalDraws,
    compile_kwargs: Mapping[str, Any] | None,
) -> tuple[CountEstimate, ConjugatePriors]:
    """Make the count estimate of a step method, and the priors of its variables.

    Raises
    ------
    ValueError
        If the arguments contradict each other or the model.
    """
    if not local:
        source = minibatch_source(model, options)
        density = LikelihoodDensity(model, variables, source, options.total_size)
        estimator = CountEstimator(density, compile_kwargs=compile_kwargs)
        return estimator, ConjugatePriors(model, variables, source.names)
    first = variables[0]
    if len(variables) > 1 or len(first.shape) != 2 or family_of(first.rv) != "Dirichlet":
        raise ValueError(
            "local= needs one global variable, a Dirichlet variable of topics with shape "
            f"(topic, word), not {[variable.name for variable in variables]}; give the others to "
            "another step method"
        )
    topic_estimator = TopicCountEstimator(
        model,
        first,
        local,
        minibatches=options,
        n_kept=local_draws.local_draws,
        n_discarded=local_draws.local_tune,
    )
    return topic_estimator, ConjugatePriors(model, variables)
