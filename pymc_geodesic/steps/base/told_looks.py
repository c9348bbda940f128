"""Steps that compare gradients with their draws where they run as they were told."""

from __future__ import annotations

from typing import Any

from pymc_geodesic.steps.base.adapted_draw import stats_as_told
from pymc_geodesic.steps.base.handing_on import TunerStep
from pymc_geodesic.tuning.told_looks import ToldLooks

__all__ = ["LooksAsTold"]

MOST_NUMBERS = 50_000
"""Coordinates beyond which sums over batches of looks would fill the memory."""


class LooksAsTold(TunerStep):
    """A step that compares gradients with its draws where it runs as it was told."""

    n_steps: int
    _looks: ToldLooks | None

    @property
    def _larger_minibatches(self) -> str:
        """Remedy for much gradient noise."""
        return "larger minibatches"

    def _make_looks(self) -> ToldLooks | None:
        """Make the looks.

        None with local variables, whose estimates know of the position, and in huge models.
        """
        if self.local or self.product.size > MOST_NUMBERS:
            return None
        return ToldLooks(self.product)

    def _reset_looks(self) -> None:
        if self._looks is not None:
            self._looks.reset(self._n_draws, self.n_steps)

    def _look(self, argument: int) -> int:
        """Look at where a draw after tuning begins; return gradient evaluations."""
        looks = self._looks
        if self.tune or looks is None or not looks.is_due(self.draw - self._n_tune):
            return 0
        looks.take(self.position, self._gradient_at(self.position, argument))
        return 1

    def _stats_as_told(self) -> dict[str, Any]:
        """Stats of steps that can adapt, where nothing is adapted."""
        if self.tune or self._looks is None:
            return stats_as_told(tune=self.tune)
        return stats_as_told(
            tune=False,
            configurational_temperature=self._looks.last_temperature,
            largest_gradient=self._looks.largest_gradient,
        )

    def _looks_complaint(self) -> str | None:
        if self._looks is None:
            return None
        names = [name for variable in self.variables for name in variable.number_names]
        return self._looks.complaint(names, minibatches=self._larger_minibatches)

    @property
    def looks_state(self) -> dict:
        """What the looks have seen."""
        return {} if self._looks is None else self._looks.state

    @looks_state.setter
    def looks_state(self, state: dict) -> None:
        if self._looks is not None and state:
            self._looks.state = state
