"""The fields of a posterior in the coordinates of a metric: of all rows, and of minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.gradients.change_of_coordinates import ChangeOfCoordinates
from pymc_geodesic.gradients.control_variates import ControlVariates
from pymc_geodesic.gradients.metric import Factor, LowRank, Metric, unit_metric
from pymc_geodesic.gradients.row_curvature import RowCurvature
from pymc_geodesic.gradients.second_order import SecondOrderVariates
from pymc_geodesic.gradients.total_gradient import TotalGradient
from pymc_geodesic.runtime.fields import FieldLike, evaluate

Rows = Callable[[], Iterable[tuple[Mapping[str, np.ndarray], int]] | None]


def _arrays(factor: Factor) -> dict[str, np.ndarray]:
    """Arrays that a factor is made of, by name."""
    if isinstance(factor, LowRank):
        return {
            "factor": factor.scale,
            "directions": factor.directions,
            "stretch": factor.stretch,
        }
    return {"factor": factor}


def _factor(arrays: Mapping[str, Any]) -> Factor:
    """Put a factor together from its arrays."""
    if "directions" in arrays:
        return LowRank(arrays["factor"], arrays["directions"], arrays["stretch"])
    return arrays["factor"]


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
    curvature : callable, optional
        Makes what differences of second order need, or None where there are no such; called when
        they are asked for.

    Attributes
    ----------
    exact, noisy : FieldLike
        In the coordinates of the metric.
    order : {0, 1, 2}
        Of the differences to the anchor by which `noisy` is estimated; 0 until `anchor_at` was
        called, where it is the gradient of a minibatch as it is.
    metric : Metric
    widths : list of int
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
        curvature: Callable[[], RowCurvature | None] | None = None,
    ) -> None:
        self.size, self.n_euclidean = size, size - sum(widths)
        self.widths = list(widths)
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
        self._make_curvature = curvature
        self._curvature: RowCurvature | None = None
        self._second: SecondOrderVariates | None = None
        self._expanded: ChangeOfCoordinates | None = None
        self.order = 0
        self.use(unit_metric(self.n_euclidean, len(widths)))

    @property
    def exact(self) -> FieldLike:
        """Gradient and log-density of all rows, or of the sample that is in use."""
        return self._exact.field

    @property
    def noisy(self) -> FieldLike:
        """Gradient that the dynamics follow."""
        estimate = (self._plain, self._anchored, self._expanded)[self.order]
        if estimate is not None:
            return estimate.field
        return self._exact.field

    @property
    def has_noise(self) -> bool:
        """Whether there are minibatches."""
        return self._plain is not None

    def use(self, metric: Metric) -> None:
        """Change the coordinates."""
        self.metric = metric
        for coordinates in (self._exact, self._plain, self._anchored, self._expanded):
            if coordinates is not None:
                coordinates.use(metric)
        if self._second is not None:
            self._second.reach_along(metric)

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

    def use_sample(
        self,
        arrays: Mapping[str, np.ndarray],
        n_rows: int | np.ndarray,
        weight: float | np.ndarray,
    ) -> None:
        """Let `exact` stand for a sample of the rows with weights; see `TotalGradient.use`."""
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

    @property
    def is_anchored(self) -> bool:
        """Whether differences to an anchor are estimated."""
        return self.order > 0

    def anchor_at(self, x: np.ndarray, gradient: np.ndarray) -> None:
        """Estimate differences to the gradient at a place from now on, to first order."""
        assert self.variates is not None
        self.variates.use(x, gradient)
        self.order = 1

    def has_second_order(self) -> bool:
        """Prepare differences of second order, and say whether there are any."""
        if self._second is None and self._make_curvature is not None:
            self._curvature = self._make_curvature()
            if self._curvature is None:
                self._make_curvature = None
                return False
            self._second = SecondOrderVariates(self._curvature, self.n_euclidean)
            self._second.reach_along(self.metric)
            self._expanded = ChangeOfCoordinates(self._second.field, self.size, self.widths)
            self._expanded.use(self.metric)
        return self._second is not None

    def expand(self, hessian: np.ndarray | None = None) -> None:
        """Estimate differences to second order, where `has_second_order`.

        Parameters
        ----------
        hessian : ndarray, shape (size, size), optional
            Of all rows at the anchor; summed over them by default.
        """
        variates, second, curvature = self.variates, self._second, self._curvature
        assert variates is not None
        assert second is not None
        assert curvature is not None
        if hessian is None:
            parts = None if self._all_rows is None else self._all_rows()
            assert parts is not None
            hessian = curvature.of_all_rows(variates.anchor, parts)
        second.use(variates.anchor, variates.total, hessian)
        self.order = 2

    @property
    def reach(self) -> np.ndarray:
        """Bounds r_j of differences of second order, which can be changed in place."""
        assert self._second is not None
        return self._second.reach

    def renew_anchor(self) -> None:
        """Sum over all rows at the anchor again, for data may have changed since."""
        self.meet_rows({})

    def meet_rows(self, known: dict[bytes, np.ndarray]) -> None:
        """Sum over all rows at an anchor that was found with other rows.

        Parameters
        ----------
        known : dict
            Sums over these rows by order and anchor, to which what is missing is added.
        """
        if self.variates is None or not self.order:
            return
        order, anchor = self.order, self.variates.anchor.copy()
        of_first, of_second = (bytes([k]) + anchor.tobytes() for k in (1, 2))
        if of_first not in known:
            known[of_first] = self.gradient_of_all_rows(anchor)
        self.anchor_at(anchor, known[of_first])
        if order > 1:
            self.expand(known.get(of_second))
            assert self._second is not None
            known[of_second] = self._second.hessian.copy()

    def drop_anchor(self) -> None:
        """Estimate gradients as they are."""
        self.order = 0

    @property
    def state(self) -> dict[str, Any]:
        """Metric and anchor."""
        variates = self.variates if self.order else None
        second = self._second if self.order > 1 else None
        return {
            "centre": self.metric.centre,
            **_arrays(self.metric.factor),
            "lengths": self.metric.lengths,
            "anchor": np.empty(0) if variates is None else variates.anchor.copy(),
            "total": np.empty(0) if variates is None else variates.total.copy(),
            "hessian": np.empty(0) if second is None else second.hessian.copy(),
            "reach": np.empty(0) if second is None else second.reach.copy(),
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.use(Metric(state["centre"], _factor(state), state["lengths"]))
        self.drop_anchor()
        if state["anchor"].size:
            self.anchor_at(state["anchor"], state["total"])
        if state["hessian"].size and self.has_second_order():
            self.expand(state["hessian"])
            self.reach[:] = state["reach"]
