"""Gradient and count estimators of a step method, and the source of their minibatches."""

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
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments, minibatch_source
from pymc_geodesic.minibatches.orders import RowNoise
from pymc_geodesic.steps.pymc_parts import Model

__all__ = ["EstimatingStep"]


class EstimatingStep:
    """A step that estimates gradients or counts.

    Attributes
    ----------
    minibatch_arguments : MinibatchArguments
    compile_kwargs : mapping, optional
        Passed to `pymc.compile`.
    local_draws, local_tune, local_steps : int
        Transitions of the local variables that are averaged over and before them, and leapfrog
        steps of each; ``local_steps`` is None where they are drawn by Gibbs sweeps.
    model : pymc.Model
    variables, local : list of ManifoldVariable
        Those to differentiate by, and those with one point for each row.
    """

    minibatch_arguments: MinibatchArguments
    compile_kwargs: Mapping[str, Any] | None
    local_draws: int
    local_tune: int
    local_steps: int | None
    model: Model
    variables: Sequence[ManifoldVariable]
    local: Sequence[ManifoldVariable]

    def _make_estimator(
        self, *, noise: RowNoise = RowNoise.ANY, with_value: bool = False
    ) -> GradientEstimate:
        """Compile the estimate of the gradient.

        Parameters
        ----------
        noise : RowNoise
            What the step counts on of the noise of minibatches.
        with_value : bool
            Whether the log-density is needed too.

        Raises
        ------
        ValueError
            If the arguments contradict each other or the model.
        """
        if self.local:
            return self._make_local_estimator(noise, with_value)
        rows = self.minibatch_arguments
        source = minibatch_source(self.model, rows, noise=noise)
        density = RowDensity(self.model, self.variables, source, rows.total_size)
        return GradientEstimator(density, with_value=with_value, compile_kwargs=self.compile_kwargs)

    def _make_local_estimator(self, noise: RowNoise, with_value: bool) -> GradientEstimate:
        rows = self.minibatch_arguments
        assert self.local_steps is not None
        if rows.minibatch is None:
            raise ValueError(
                "local= needs minibatch=[...], the names of the data containers whose rows the "
                "local variables belong to; batch_size= may be left out to use all rows"
            )
        if rows.batches is not None:
            raise ValueError("local= needs rows that can be visited again, not batches=")
        n_rows = self.local[0].shape[0]
        source = minibatch_source(self.model, rows, noise=noise, n_rows=n_rows)
        total_size = total_rows(self.model, self.local, source, rows.total_size)
        n_draws = self.local_draws
        if not with_value:
            # While the draws stand still they drag the others along as friction does, and only the
            # scatter of N / n draws or fewer warms as much as that cools.
            n_draws = min(n_draws, max(1, total_size // source.batch_size))
        return LocalGradientEstimator(
            self.model,
            self.variables,
            self.local,
            source=source,
            total_size=total_size,
            n_draws=n_draws,
            n_discarded=self.local_tune,
            n_steps=self.local_steps,
            with_value=with_value,
            compile_kwargs=self.compile_kwargs,
        )

    def _make_counts(self) -> tuple[CountEstimate, ConjugatePriors]:
        """Make the estimate of counts, and the priors of the variables.

        Raises
        ------
        ValueError
            If the arguments contradict each other or the model.
        """
        if self.local:
            return self._make_topic_counts(), ConjugatePriors(self.model, self.variables)
        rows = self.minibatch_arguments
        source = minibatch_source(self.model, rows)
        density = LikelihoodDensity(self.model, self.variables, source, rows.total_size)
        estimator = CountEstimator(density, compile_kwargs=self.compile_kwargs)
        return estimator, ConjugatePriors(self.model, self.variables, source.names)

    def _make_topic_counts(self) -> TopicCountEstimator:
        first = self.variables[0]
        is_dirichlet = len(first.shape) == 2 and family_of(first.rv) == "Dirichlet"
        if len(self.variables) > 1 or not is_dirichlet:
            raise ValueError(
                "local= needs one global variable, a Dirichlet variable of topics with shape "
                f"(topic, word), not {[variable.name for variable in self.variables]}; give the "
                "others to another step method"
            )
        return TopicCountEstimator(
            self.model,
            first,
            self.local,
            minibatches=self.minibatch_arguments,
            n_kept=self.local_draws,
            n_discarded=self.local_tune,
        )
