"""What is checked where a chain starts."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.densities.log_terms import LogTerms
from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.steps.base.complaints import ComplainingStep
from pymc_geodesic.steps.pymc_parts import Model, PointType, SamplingError

__all__ = ["StartingStep"]


class StartingStep(ComplainingStep):
    """A step that refuses to start where the log-density or its gradient is not finite."""

    model: Model
    estimator: GradientEstimate
    _log_terms: LogTerms | None

    def _edges_of(self) -> list[str]:
        """Variables that may start where their own density is zero or has a pole."""
        return []

    def _check_terms(self, point: PointType, *, thoroughly: bool = False) -> None:
        """Refuse a start where the log-density is not finite, which no proposal would leave.

        Raises
        ------
        SamplingError
            It names the term that is to blame, and the remedy.
        """
        if self._log_terms is None:
            source = self.estimator.source
            placeholders = {*source.arrays, *source.whole} if source.moves else ()
            self._log_terms = LogTerms(self.model, placeholders, self._edges_of())
        if not (thoroughly or self._log_terms.fails(point)):
            return
        report = self._log_terms.report(point)
        if report is not None:
            message = (
                f"the log-density is not finite where {type(self).__name__} starts to sample "
                f"{self._names}, and no step size helps. {report}."
            )
            raise SamplingError(see(message, "start"))

    def _gradient_at(self, position: np.ndarray, argument: int) -> np.ndarray:
        """Gradient of the log-density of one minibatch, shape (size,)."""
        field = self.estimator.field
        output = np.empty(position.size + 1)  # the field may write the log-density too
        evaluate(field.address, position, argument, field.context, output)
        field.raise_error()
        return output[:-1]

    def _check_gradients(self, position: np.ndarray, arguments: np.ndarray) -> None:
        """Raise an error if a minibatch has no gradient where a chain began."""
        for argument in arguments:
            gradient = self._gradient_at(position, int(argument))
            if not np.isfinite(gradient).all():
                raise self._fail_at_start(gradient)

    def _fail_at_start(self, gradient: np.ndarray) -> SamplingError:
        message = (
            f"the gradient in {self._failing_names(gradient)} is not finite where "
            f"{type(self).__name__} starts: no step size helps. Look for NaN in the data and give "
            "other initial values (initval=); model.debug() shows which term is to blame."
        )
        return SamplingError(see(message, "start"))
