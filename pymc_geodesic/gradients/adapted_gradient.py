"""Gradient functions in adaptable coordinates: over all rows, and of minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.change_of_coordinates import ChangeOfCoordinates
from pymc_geodesic.gradients.control_variate_gradients import (
    ControlVariates,
    SecondOrderControlVariates,
)
from pymc_geodesic.gradients.full_gradient import RowCurvature, TotalGradient
from pymc_geodesic.gradients.metric import Metric, unit_metric
from pymc_geodesic.gradients.rare_rows import RareRows
from pymc_geodesic.gradients.structured_hessian import HessianStructure, StructuredHessian
from pymc_geodesic.runtime.gradient_functions import GradientFunctionLike, evaluate

type ReadAllRows = Callable[[], Iterable[tuple[Mapping[str, np.ndarray], int]] | None]
"""Function that iterates over all rows in parts; None if they cannot be read again."""


@dataclass(frozen=True)
class AdaptedGradientSettings:
    """Constants of second derivatives of groups.

    Attributes
    ----------
    difference : float
        Step of central differences in posterior standard deviations; their relative error is of the
        order of its square. Heuristic.
    """

    difference: float = 0.1


SETTINGS = AdaptedGradientSettings()


class AdaptedGradient:
    """Gradient functions whose coordinates and control variates can be changed.

    Parameters
    ----------
    size : int
        Length of a position, Euclidean coordinates first.
    widths : sequence of int
        Number of coordinates of each variable that is not Euclidean.
    exact : GradientFunctionLike
        Gradient over all rows, or a sample of them, followed by the log-density.
    minibatch : GradientFunctionLike, optional
        Gradient of a minibatch; without minibatches `exact` is used instead.
    total : TotalGradient, optional
        The sum over rows that `exact` evaluates.
    all_rows : callable, optional
        Function that returns all rows in parts, over which `total` sums.
    use_control_variates : bool
        Whether the minibatch gradient may have control variates.
    make_curvature : callable, optional
        Function that compiles second derivatives of the rows for second-order control variates with
        a Hessian of this structure, and returns None if PyTensor does not have them.
    structures : sequence of HessianStructure
        Possible structures, the first of which that fits is used; none without second order.
    data_version : callable
        Function that returns another number when the rows have changed, so that the structure is
        checked again.

    Attributes
    ----------
    order : {0, 1, 2}
        Order of the control variates of `estimated`; 0 without a centering point.
    metric : Metric
    widths : list of int
    control_variates : ControlVariates or None
        First-order control variates; None without minibatches or with
        ``use_control_variates=False``.
    second_order : SecondOrderControlVariates or None
        None until `compile_second_order`.
    rare : RareRows or None
        Rows that every estimate contains; None without minibatches.
    total : TotalGradient or None
        Gradient of any number of rows; None without minibatches.
    """

    def __init__(
        self,
        size: int,
        widths: Sequence[int],
        exact: GradientFunctionLike,
        minibatch: GradientFunctionLike | None = None,
        total: TotalGradient | None = None,
        all_rows: ReadAllRows | None = None,
        *,
        use_control_variates: bool = True,
        make_curvature: Callable[[HessianStructure], RowCurvature | None] | None = None,
        structures: Sequence[HessianStructure] = (),
        data_version: Callable[[], int] = int,
    ) -> None:
        self.size, self.n_euclidean = size, size - sum(widths)
        self.widths = list(widths)
        self.total, self._all_rows = total, all_rows
        self._model_exact = exact
        self._exact = ChangeOfCoordinates(exact, size, widths, n_values=1)
        self._by_order: list[ChangeOfCoordinates | None] = [None, None, None]
        self.control_variates: ControlVariates | None = None
        self.rare: RareRows | None = None
        if minibatch is not None:
            if total is not None:
                self.rare = RareRows(total, minibatch, size)
                minibatch = self.rare.rest
            plain = minibatch if self.rare is None else self.rare.added_to(minibatch)
            self._by_order[0] = ChangeOfCoordinates(plain, size, widths)
            if use_control_variates:
                self.control_variates = ControlVariates(minibatch, size, self.rare)
                self._by_order[1] = ChangeOfCoordinates(
                    self.control_variates.logp_grad, size, widths
                )
        self._make_curvature, self._structures = make_curvature, list(structures)
        self._data_version, self._checked_version = data_version, -1
        self.curvature: RowCurvature | None = None
        self.second_order: SecondOrderControlVariates | None = None
        self.order = 0
        self.set_metric(unit_metric(self.n_euclidean, len(widths)))

    @property
    def exact(self) -> GradientFunctionLike:
        """Gradient without minibatch noise, of all rows or of the subsample of `set_sample`."""
        return self._exact.logp_grad

    @property
    def estimated(self) -> GradientFunctionLike:
        """Gradient estimate for Langevin dynamics."""
        return (self._by_order[self.order] or self._exact).logp_grad

    @property
    def has_noise(self) -> bool:
        """Whether there are minibatches."""
        return self._by_order[0] is not None

    # --- coordinates -------------------------------------------------------------------------

    def set_metric(self, metric: Metric) -> None:
        """Change the coordinates."""
        self.metric = metric
        for coordinates in (self._exact, *self._by_order):
            if coordinates is not None:
                coordinates.set_metric(metric)
        if self.second_order is not None:
            self.second_order.set_metric(metric)

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""
        x = z.copy()
        x[: self.n_euclidean] = self.metric.to_position(z[: self.n_euclidean])
        return x

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Whitened coordinates of a position of the model."""
        z = x.copy()
        z[: self.n_euclidean] = self.metric.whiten(x[: self.n_euclidean])
        return z

    def to_model_gradient(self, gradient: np.ndarray) -> np.ndarray:
        """Gradient in the coordinates of the model, of one in whitened coordinates."""
        d = self.n_euclidean
        g = gradient.copy()
        g[:d] = self.metric.to_model_gradient(gradient[:d])
        g[d:] /= np.repeat(self.metric.lengths, self.widths)
        return g

    # --- sums over rows, in the coordinates of the model -------------------------------------

    def set_sample(
        self,
        arrays: Mapping[str, np.ndarray],
        n_rows: int | np.ndarray,
        weight: float | np.ndarray,
    ) -> None:
        """Restrict `exact` to a weighted subsample of the rows; see `TotalGradient.set_rows`."""
        assert self.total is not None
        self.total.set_rows(arrays, n_rows, weight)

    def exact_gradient(self, x: np.ndarray) -> np.ndarray:
        """Gradient over all rows, or over the subsample of `set_sample`."""
        output = np.empty(self.size + 1)
        exact = self._model_exact
        evaluate(exact.address, x, 0, exact.context, output)
        exact.raise_error()
        return output[:-1]

    def gradient_of_all_rows(self, x: np.ndarray) -> np.ndarray:
        """Gradient over all rows, even if `exact` uses a subsample."""
        parts = None if self._all_rows is None else self._all_rows()
        if self.total is None or parts is None:
            return self.exact_gradient(x)
        return self.total.sum_over(x, parts)[:-1]

    def gradient_of_rows(self, x: np.ndarray) -> np.ndarray:
        """Gradient of the terms of all rows, without those that do not depend on rows."""
        assert self.total is not None
        return self.total.sum_over(x, self._read_all_rows(), rest=0.0)[:-1]

    def _read_all_rows(self) -> Iterable[tuple[Mapping[str, np.ndarray], int]]:
        parts = None if self._all_rows is None else self._all_rows()
        assert parts is not None
        return parts

    # --- control variates --------------------------------------------------------------------

    @property
    def is_centered(self) -> bool:
        """Whether the estimate has control variates."""
        return self.order > 0

    def center_at(self, x: np.ndarray, gradient: np.ndarray) -> None:
        """Use first-order control variates with a centering point and the gradient there.

        Parameters
        ----------
        x, gradient : ndarray, shape (size,)
            Centering point in the coordinates of the model, and gradient over all rows.
        """
        assert self.control_variates is not None
        self.control_variates.set_center(x, gradient)
        self.order = 1

    def remove_control_variates(self) -> None:
        """Use plain minibatch gradients."""
        self.order = 0

    def compile_second_order(self) -> bool:
        """Compile second-order control variates; return whether the model has them."""
        if self.second_order is None and self._make_curvature is not None:
            structure = self._find_structure()
            self.curvature = None if structure is None else self._make_curvature(structure)
            if self.curvature is None:
                self._make_curvature = None
                return False
            self.second_order = SecondOrderControlVariates(
                self.curvature, self.n_euclidean, self.rare
            )
            self.second_order.set_metric(self.metric)
            estimate = ChangeOfCoordinates(self.second_order.logp_grad, self.size, self.widths)
            estimate.set_metric(self.metric)
            self._by_order[2] = estimate
        return self.second_order is not None

    def _find_structure(self) -> HessianStructure | None:
        """Return the first structure that fits the gradient over all rows around the center."""
        self._checked_version = self._data_version()
        return next((each for each in self._structures if self._coupling(each) <= 1.0), None)

    def _coupling(self, structure: HessianStructure) -> float:
        """Dependence between groups around the center; see `HessianStructure.coupling`."""
        assert self.control_variates is not None
        points = np.tile(self.control_variates.center, (2, 1))
        away = np.random.default_rng(0).standard_normal((2, self.n_euclidean))
        points[:, : self.n_euclidean] += self.metric.to_direction(away)
        return structure.coupling(self.gradient_of_all_rows, *points)

    def precision_of_groups(self) -> np.ndarray:
        """Minus the second derivatives over all rows by each coordinate of the groups.

        Central differences around the centering point, since groups are independent.

        Returns
        -------
        ndarray, shape (size,)
            NaN for common coordinates.
        """
        assert self.control_variates is not None
        assert self.curvature is not None
        center, sd = self.control_variates.center, self.metric.sd
        precision = np.full(self.size, np.nan)
        for vector in self.curvature.structure.vectors:
            step = np.zeros(self.size)
            step[vector] = SETTINGS.difference * sd[vector]
            change = self.gradient_of_all_rows(center - step)
            change -= self.gradient_of_all_rows(center + step)
            precision[vector] = change[vector] / (2.0 * step[vector])
        return precision

    def second_order_sums(self) -> tuple[np.ndarray, StructuredHessian]:
        """Gradient and Hessian of the terms of all rows at the centering point.

        Raises
        ------
        ValueError
            If the rows have changed, and groups are not independent, as they were when second order
            was compiled.
        """
        assert self.control_variates is not None
        assert self.curvature is not None
        version = self._data_version()
        if version != self._checked_version and self._coupling(self.curvature.structure) > 1.0:
            message = (
                "Second-order control variates assume that groups are independent given the common "
                "variables, which does not hold for the present data. Construct the step again, or "
                "use control_variates=1"
            )
            raise ValueError(see(message, "coupled-groups"))
        self._checked_version = version
        center = self.control_variates.center
        return self.gradient_of_rows(center), self.curvature.hessian(center, self._read_all_rows())

    def use_second_order(self, total: np.ndarray, hessian: StructuredHessian) -> None:
        """Use second-order control variates with the centering point of the first-order ones.

        Parameters
        ----------
        total : ndarray, shape (size,)
        hessian : StructuredHessian
            See `second_order_sums`.
        """
        assert self.control_variates is not None
        assert self.second_order is not None
        self.second_order.set_center(self.control_variates.center, total, hessian)
        self.order = 2

    @property
    def clipping_distance(self) -> np.ndarray:
        """Bounds r_j of the second-order terms, which may be modified in place."""
        assert self.second_order is not None
        return self.second_order.clipping_distance

    def recompute_center(self, known: dict[bytes, Any] | None = None) -> None:
        """Recompute the sums over all rows at the centering point, since the data may have changed.

        Parameters
        ----------
        known : dict, optional
            Cache of sums over the current rows, by order and centering point.
        """
        if self.control_variates is None or not self.order:
            return
        known = {} if known is None else known
        order, center = self.order, self.control_variates.center.copy()
        first, second = (bytes([k]) + center.tobytes() for k in (1, 2))
        if first not in known:
            known[first] = self.gradient_of_all_rows(center)
        self.center_at(center, known[first])
        if order > 1:
            if second not in known:
                known[second] = self.second_order_sums()
            self.use_second_order(*known[second])

    @property
    def state(self) -> dict[str, Any]:
        """Metric, and the control variates in use."""
        state: dict[str, Any] = {"metric": self.metric.state, "order": self.order}
        if self.control_variates is not None and self.order:
            state["center"] = self.control_variates.center.copy()
            state["total"] = self.control_variates.total.copy()
        if self.second_order is not None and self.order > 1:
            state["total_of_rows"] = self.second_order.total.copy()
            state["hessian"] = self.second_order.hessian.values.copy()
            state["clipping_distance"] = self.second_order.clipping_distance.copy()
        return state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.set_metric(Metric.from_state(state["metric"]))
        self.remove_control_variates()
        if state["order"]:
            self.center_at(state["center"], state["total"])
        if state["order"] > 1 and self.compile_second_order():
            assert self.curvature is not None
            hessian = StructuredHessian(self.curvature.structure, state["hessian"])
            self.use_second_order(state["total_of_rows"], hessian)
            self.clipping_distance[:] = state["clipping_distance"]
