"""The estimate that the options of a step ask for, and the source of its rows."""

from __future__ import annotations

from collections.abc import Sequence
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
from pymc_geodesic.steps.base.pymc_parts import Model

__all__ = ["EstimatingStep"]


class EstimatingStep:
    """A step that estimates gradients or counts.

    What users say of rows goes into a source of them here, and no further.

    Attributes
    ----------
    options : StepOptions
        What users passed, of rows too: they are `RowOptions` as well.
    model : pymc.Model
    variables, local : list of ManifoldVariable
        Those to differentiate by, and those with one point for each row.
    """

    options: Any
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
            If the options contradict each other or the model.
        """
        if self.local:
            return self._make_local_estimator(noise, with_value)
        options = self.options
        source = minibatch_source(self.model, options, noise=noise)
        density = RowDensity(self.model, self.variables, source, options.total_size)
        return GradientEstimator(
            density, with_value=with_value, compile_kwargs=options.compile_kwargs
        )

    def _make_local_estimator(self, noise: RowNoise, with_value: bool) -> GradientEstimate:
        options = self.options
        if options.minibatch is None:
            raise ValueError(
                "local= needs minibatch=[...], the names of the data containers whose rows the "
                "local variables belong to; batch_size= may be left out to use all rows"
            )
        if options.batches is not None:
            raise ValueError("local= needs rows that can be visited again, not batches=")
        n_rows = self.local[0].shape[0]
        source = minibatch_source(self.model, options, noise=noise, n_rows=n_rows)
        total_size = total_rows(self.model, self.local, source, options.total_size)
        n_draws = options.local_draws
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
            n_discarded=options.local_tune,
            n_steps=options.local_steps,
            with_value=with_value,
            compile_kwargs=options.compile_kwargs,
        )

    def _make_counts(self) -> tuple[CountEstimate, ConjugatePriors]:
        """Make the estimate of counts, and the priors of the variables.

        Raises
        ------
        ValueError
            If the options contradict each other or the model.
        """
        if self.local:
            return self._make_topic_counts(), ConjugatePriors(self.model, self.variables)
        options = self.options
        source = minibatch_source(self.model, options)
        density = LikelihoodDensity(self.model, self.variables, source, options.total_size)
        estimator = CountEstimator(density, compile_kwargs=options.compile_kwargs)
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
            minibatches=self.options,
            n_kept=self.options.local_draws,
            n_discarded=self.options.local_tune,
        )
