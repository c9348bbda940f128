"""The fields of a posterior in the coordinates of a metric: of all rows, and of minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.gradients.change_of_coordinates import ChangeOfCoordinates
from pymc_geodesic.gradients.control_variates import ControlVariates
from pymc_geodesic.gradients.total_gradient import TotalGradient
from pymc_geodesic.runtime.fields import FieldLike, evaluate
from pymc_geodesic.tuning.metric import Metric, unit_metric

__all__ = ["AdaptedGradient", "Rows"]

Rows = Callable[[], Iterable[tuple[Mapping[str, np.ndarray], int]] | None]


class AdaptedGradient:
    """What a sampler in the coordinates of a metric evaluates.

    Parameters
    ----------
    size : int
        Length of a position, whose first part the metric changes.
    widths : sequence of int
        Lengths of the parts behind it, one for each variable.
    exact : FieldLike
        Gradient of all rows, or of a sample of them, with the log-density behind it.
    minibatch : FieldLike, optional
        Gradient of a minibatch; that of all rows by default.
    total : TotalGradient, optional
        Where `exact` gets its rows from.
    all_rows : callable, optional
        Parts of all rows, to be summed over by `total`.
    use_variates : bool
        Whether differences to an anchor may be estimated.

    Attributes
    ----------
    exact, noisy : FieldLike
        In the coordinates of the metric. Until `anchor_at` was called, `noisy` is the gradient of a
        minibatch as it is.
    metric : Metric
    """

    def __init__(
        self,
        size: int,
        widths: Sequence[int],
        exact: FieldLike,
        minibatch: FieldLike | None = None,
        total: TotalGradient | None = None,
        all_rows: Rows | None = None,
        *,
        use_variates: bool = True,
    ) -> None:
        self.size, self.n_euclidean = size, size - sum(widths)
        self._total, self._all_rows = total, all_rows
        self._exact = ChangeOfCoordinates(exact, size, widths, n_values=1)
        self._plain = self._anchored = None
        self.variates: ControlVariates | None = None
        if minibatch is not None:
            self._plain = ChangeOfCoordinates(minibatch, size, widths)
            if use_variates:
                self.variates = ControlVariates(minibatch, size)
                self._anchored = ChangeOfCoordinates(self.variates.field, size, widths)
        self._inner_exact = exact
        self.is_anchored = False
        self.use(unit_metric(self.n_euclidean, len(widths)))

    @property
    def exact(self) -> FieldLike:
        """Gradient and log-density of all rows, or of the sample that is in use."""
        return self._exact.field

    @property
    def noisy(self) -> FieldLike:
        """Gradient that the dynamics follow."""
        if self.is_anchored and self._anchored is not None:
            return self._anchored.field
        return self._exact.field if self._plain is None else self._plain.field

    @property
    def has_noise(self) -> bool:
        """Whether there are minibatches."""
        return self._plain is not None

    def use(self, metric: Metric) -> None:
        """Change the coordinates."""
        self.metric = metric
        for coordinates in (self._exact, self._plain, self._anchored):
            if coordinates is not None:
                coordinates.use(metric)

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Coordinates of the model."""
        x = z.copy()
        x[: self.n_euclidean] = self.metric.to_position(z[: self.n_euclidean])
        return x

    def from_position(self, x: np.ndarray) -> np.ndarray:
        """Coordinates of the metric."""
        z = x.copy()
        z[: self.n_euclidean] = self.metric.from_position(x[: self.n_euclidean])
        return z

    def use_sample(self, arrays: Mapping[str, np.ndarray], n_rows: int, weight: float) -> None:
        """Let `exact` stand for some rows, each of which counts for several."""
        assert self._total is not None
        self._total.use(arrays, n_rows, weight)

    def exact_gradient(self, x: np.ndarray) -> np.ndarray:
        """Gradient of what `exact` stands for, in the coordinates of the model."""
        output = np.empty(self.size + 1)
        field = self._inner_exact
        evaluate(field.address, x, 0, field.context, output)
        field.raise_error()
        return output[:-1]

    def gradient_of_all_rows(self, x: np.ndarray) -> np.ndarray:
        """Gradient of all rows, in the coordinates of the model."""
        parts = None if self._all_rows is None else self._all_rows()
        if self._total is None or parts is None:
            return self.exact_gradient(x)
        return self._total.over(x, parts)[:-1]

    def anchor_at(self, x: np.ndarray, gradient: np.ndarray) -> None:
        """Estimate differences to the gradient at a place from now on."""
        assert self.variates is not None
        self.variates.use(x, gradient)
        self.is_anchored = True

    def renew_anchor(self) -> None:
        """Sum over all rows at the anchor again, for data may have changed since."""
        if self.variates is not None and self.is_anchored:
            anchor = self.variates.anchor.copy()
            self.anchor_at(anchor, self.gradient_of_all_rows(anchor))

    def drop_anchor(self) -> None:
        """Estimate gradients as they are."""
        self.is_anchored = False

    @property
    def state(self) -> dict[str, Any]:
        """Metric and anchor."""
        anchored = self.variates is not None and self.is_anchored
        return {
            "centre": self.metric.centre,
            "factor": self.metric.factor,
            "lengths": self.metric.lengths,
            "anchor": self.variates.anchor.copy() if anchored and self.variates else np.empty(0),
            "total": self.variates.total.copy() if anchored and self.variates else np.empty(0),
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.use(Metric(state["centre"], state["factor"], state["lengths"]))
        self.is_anchored = state["anchor"].size > 0
        if self.is_anchored:
            self.anchor_at(state["anchor"], state["total"])
