"""The gradient estimate that the arguments of a step method ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.arguments import check_containers, check_count
from pymc_geodesic.counts.gradient_counts import CountEstimator
from pymc_geodesic.counts.priors import ConjugatePriors
from pymc_geodesic.counts.topic_counts import TopicCountEstimator
from pymc_geodesic.densities.local_rows import total_rows
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.gradients.local_gradient import LocalGradientEstimator
from pymc_geodesic.gradients.minibatch_gradient import GradientEstimator
from pymc_geodesic.manifolds import FlatSimplex
from pymc_geodesic.minibatches.from_arguments import named_row_source
from pymc_geodesic.steps.base.adaptor import Model

__all__ = ["LocalDraws", "Minibatches", "make_count_estimator", "make_estimator"]


@dataclass(frozen=True)
class Minibatches:
    """The minibatch arguments of a step method; see `pymc_geodesic.SGGMC`."""

    batch_size: int | None = None
    names: Sequence[str] | str | None = None
    batches: Iterable[Any] | None = None
    total_size: int | None = None
    order: str = "shuffled"
    draws_per_block: int | None = None

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)
        check_count("total_size", self.total_size)
        check_containers(self.names)
        if self.batches is not None and not isinstance(self.batches, Iterable):
            raise ValueError(
                f"batches= must yield blocks of rows, one after the other, got {self.batches!r}; "
                "batch_size= is the number of rows"
            )

    @property
    def streamed(self) -> tuple[str, ...]:
        """Names of the data whose rows come from ``batches=``."""
        if self.batches is None or self.names is None:
            return ()
        return (self.names,) if isinstance(self.names, str) else tuple(self.names)


@dataclass(frozen=True)
class LocalDraws:
    """How local variables are drawn.

    Attributes
    ----------
    draws, discarded, steps : int
        Transitions that are averaged over, transitions before them, leapfrog steps of each.

    Raises
    ------
    ValueError
        If a number is not an integer, or too small.
    """

    draws: int
    discarded: int
    steps: int

    def __post_init__(self) -> None:
        for argument, value, least in (
            ("local_draws", self.draws, 1),
            ("local_tune", self.discarded, 0),
            ("local_steps", self.steps, 1),
        ):
            if not isinstance(value, int | np.integer) or value < least:
                raise ValueError(
                    f"{argument} must be an integer of at least {least}, got {value!r}"
                )


def make_estimator(
    model: Model,
    variables: Sequence[ManifoldVariable],
    minibatches: Minibatches,
    *,
    local: Sequence[ManifoldVariable] = (),
    local_draws: LocalDraws,
    with_value: bool = False,
    compile_kwargs: Mapping[str, Any] | None,
) -> GradientEstimator | LocalGradientEstimator:
    """Compile the gradient estimate of a step method.

    Raises
    ------
    ValueError
        If the arguments contradict each other or the model.
    """
    batch_size = minibatches.batch_size
    if local:
        if minibatches.names is None:
            raise ValueError(
                "local= needs minibatch=[...], the names of the data containers whose rows the "
                "local variables belong to; batch_size= may be left out to use all rows"
            )
        if minibatches.batches is not None:
            raise ValueError("local= needs rows that can be visited again, not batches=")
        batch_size = local[0].shape[0] if batch_size is None else batch_size
    source = named_row_source(
        model,
        batch_size=batch_size,
        minibatch=minibatches.names,
        batches=minibatches.batches,
        total_size=minibatches.total_size,
        minibatch_order=minibatches.order,
        draws_per_block=minibatches.draws_per_block,
    )
    if not local:
        return GradientEstimator(
            model,
            variables,
            source=source,
            total_size=minibatches.total_size,
            minibatch_order=minibatches.order,
            with_value=with_value,
            compile_kwargs=compile_kwargs,
        )
    assert source is not None
    total_size = total_rows(model, local, source, minibatches.total_size)
    n_draws = local_draws.draws
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
        n_discarded=local_draws.discarded,
        n_steps=local_draws.steps,
        with_value=with_value,
        compile_kwargs=compile_kwargs,
    )


def make_count_estimator(
    model: Model,
    variables: Sequence[ManifoldVariable],
    minibatches: Minibatches,
    *,
    local: Sequence[ManifoldVariable],
    local_draws: LocalDraws,
    compile_kwargs: Mapping[str, Any] | None,
) -> tuple[CountEstimator | TopicCountEstimator, ConjugatePriors]:
    """Make the count estimate of a step method, and the priors of its variables.

    Raises
    ------
    ValueError
        If the arguments contradict each other or the model.
    """
    if not local:
        source = named_row_source(
            model,
            batch_size=minibatches.batch_size,
            minibatch=minibatches.names,
            batches=minibatches.batches,
            total_size=minibatches.total_size,
            minibatch_order=minibatches.order,
        )
        estimator = CountEstimator(
            model,
            variables,
            source=source,
            total_size=minibatches.total_size,
            minibatch_order=minibatches.order,
            compile_kwargs=compile_kwargs,
        )
        divided = () if source is None else tuple(source.arrays)
        return estimator, ConjugatePriors(model, variables, divided)
    first = variables[0]
    if len(variables) > 1 or len(first.shape) != 2 or not isinstance(first.manifold, FlatSimplex):
        raise ValueError(
            "local= needs one global variable, a Dirichlet variable of topics with shape "
            f"(topic, word), not {[variable.name for variable in variables]}; give the others to "
            "another step method"
        )
    topic_estimator = TopicCountEstimator(
        model,
        first,
        local,
        batch_size=minibatches.batch_size,
        minibatch=minibatches.names,
        batches=minibatches.batches,
        total_size=minibatches.total_size,
        minibatch_order=minibatches.order,
        n_kept=local_draws.draws,
        n_discarded=local_draws.discarded,
    )
    return topic_estimator, ConjugatePriors(model, variables)
