"""Choice of the order of the control variates, by the cost of an independent draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.adaptation.gradient_noise import NoiseMeasurement, squares_by_point
from pymc_geodesic.adaptation.noise_variance import NoiseVariance
from pymc_geodesic.gradients.structured_hessian import StructuredHessian

DecorrelationSteps = Callable[[np.ndarray, np.ndarray], float]
"""Function of the variances of the gradient estimate along the coordinates, and of their standard
deviations over the posterior, that returns the number of inner steps between independent draws."""


@dataclass(frozen=True)
class ControlVariateSettings:
    """Constants of the choice.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    second_order_cost : float
        Ratio of the cost of an inner step with second order to that with first order. In a single
        experiment, a logistic regression with 28 coefficients, it was 1.2 to 1.6.
    min_saving : float
        Minimum factor by which noise-free gradients would reduce the cost of a draw for second
        order to be compiled.
    uncertain_temperature : float
        Error of a temperature, due to poorly known first-order noise, above which second order is
        tried: then a few rows contribute most of the noise, and more of it in the tails.
    max_noise_ratio : float
        Ratio of the noise with control variates to that without, above which they are not used:
        each evaluation with control variates takes two gradients.
    compared_pairs : int
        Number of pairs of minibatches from which this ratio is estimated.
    """

    second_order_cost: float = 1.5
    min_saving: float = 1.2
    uncertain_temperature: float = 0.01
    max_noise_ratio: float = 0.5
    compared_pairs: int = 96


SETTINGS = ControlVariateSettings()


def principal_directions(differences: np.ndarray) -> np.ndarray:
    """Compute the principal directions of gradient noise, the columns of a rotation (d, d).

    Parameters
    ----------
    differences : ndarray, shape (n, d)
        See `pymc_geodesic.kernels.probe.differences_of_pairs`.
    """
    covariance = 0.5 * differences.T @ differences / len(differences)
    return np.linalg.eigh(covariance)[1]


class ControlVariateOrder:
    """Chooses the order of the control variates of a gradient.

    Parameters
    ----------
    noise : NoiseMeasurement
        Noise measurement, which contains the gradient whose order is set.
    order : {"auto", 1, 2, 0}
        Order of the control variates. A user-specified order is not used either if the noise is
        more than half of that without control variates.
    """

    def __init__(self, noise: NoiseMeasurement, order: str | int = "auto") -> None:
        self._noise, self._order = noise, order
        self._may_try_second = False

    def choose(
        self, z: np.ndarray, stream: np.ndarray, decorrelation_steps: DecorrelationSteps
    ) -> np.ndarray:
        """Choose second order, first order or no control variates by a first noise measurement.

        Parameters
        ----------
        z, stream
            See `NoiseMeasurement.differences`.
        decorrelation_steps : DecorrelationSteps

        Returns
        -------
        ndarray, shape (n, size)
            Differences of pairs of gradient estimates with the chosen order.
        """
        noise, gradient = self._noise, self._noise.gradient
        self._may_try_second = gradient.is_centered and self._order == "auto"
        if not gradient.is_centered:
            return noise.differences(z, noise.n_trial_pairs, stream)
        if self._order == 2:
            self._use_second_order_of_pairs(z, stream)
        differences = noise.differences(z, noise.n_trial_pairs, stream)
        cost = decorrelation_steps(*self._principal_variances(differences))
        if self._is_promising(cost, decorrelation_steps):
            differences = self._try_second_order(z, stream, decorrelation_steps)
        order = gradient.order
        # with the same minibatches, since a few of them may contribute nearly all of the noise
        orders, n_pairs = (order, 0), SETTINGS.compared_pairs
        controlled, plain = noise.differences_of_orders(orders, z, n_pairs, stream)
        ratio = float(np.mean(controlled**2) / np.mean(plain**2)) if plain.any() else 1.0
        if not ratio < SETTINGS.max_noise_ratio:
            self._use(0)
            noise.measured.noise_ratio, self._may_try_second = 1.0, False
            return noise.differences(z, noise.n_trial_pairs, stream)
        noise.measured.noise_ratio = ratio
        self._use(order)
        return differences

    def reconsider(
        self, z: np.ndarray, stream: np.ndarray, decorrelation_steps: DecorrelationSteps
    ) -> np.ndarray | None:
        """Switch to second order if further measurements show a saving, or are uncertain.

        The pairs of `choose` may not contain the rows that contribute most of the noise. If a few
        rows do, its variance remains uncertain, and increases with the distance from the center.

        Parameters
        ----------
        z, stream, decorrelation_steps
            See `choose`.

        Returns
        -------
        ndarray or None, shape (n, size)
            Differences of pairs with second order; None if the order is not changed.
        """
        noise = self._noise
        cost = decorrelation_steps(noise.variances, noise.sd)
        if not self._is_promising(cost, decorrelation_steps, error=noise.temperature_error):
            return None
        differences = self._try_second_order(z, stream, decorrelation_steps, is_measured=True)
        order = noise.gradient.order
        self._use(order)
        return differences if order == 2 else None

    def _use(self, order: int) -> None:
        """Set the order; second order includes the Hessian over all rows."""
        gradient = self._noise.gradient
        if order == 2:
            gradient.use_second_order(*gradient.second_order_sums())
            assert gradient.curvature is not None
            self._noise.n_grad += gradient.curvature.structure.n_products + 1
        else:
            gradient.order = order

    def _use_second_order_of_pairs(self, z: np.ndarray, stream: np.ndarray) -> None:
        """Use second order without the sums over all rows, which cancel in differences."""
        gradient = self._noise.gradient
        assert gradient.curvature is not None
        hessian = StructuredHessian(gradient.curvature.structure)
        gradient.use_second_order(np.zeros(gradient.size), hessian)
        self._noise.choose_clipping(z, stream)

    def _is_promising(
        self, first_cost: float, decorrelation_steps: DecorrelationSteps, *, error: float = 0.0
    ) -> bool:
        """Whether second order is not tried yet, and would save time if it removed all noise."""
        nothing = np.zeros(self._noise.size)
        least = SETTINGS.second_order_cost * decorrelation_steps(nothing, nothing)
        return (
            self._may_try_second
            and (first_cost > SETTINGS.min_saving * least or error > SETTINGS.uncertain_temperature)
            and self._noise.gradient.compile_second_order()
        )

    def _try_second_order(
        self,
        z: np.ndarray,
        stream: np.ndarray,
        decorrelation_steps: DecorrelationSteps,
        *,
        is_measured: bool = False,
    ) -> np.ndarray:
        """Set the cheaper of first and second order; return its differences.

        If the first-order noise ``is_measured``, the pairs only determine the ratio of the two.
        """
        self._may_try_second = False
        noise = self._noise
        variances, sd = noise.variances, noise.sd
        self._use_second_order_of_pairs(z, stream)
        first, second = noise.differences_of_orders((1, 2), z, noise.n_trial_pairs, stream)
        if not np.isfinite(second).all():
            noise.gradient.order = 1
            return first
        ratio = float(np.mean(second**2) / np.mean(first**2)) if first.any() else 1.0
        if is_measured:
            of_first, of_second = (variances, sd), (ratio * variances, ratio * sd)
        else:
            of_first, of_second = (self._principal_variances(each) for each in (first, second))
        first_cost = decorrelation_steps(*of_first)
        second_cost = decorrelation_steps(
            of_second[0], np.maximum(of_second[1], noise.measured.tail_sd)
        )
        pays = SETTINGS.second_order_cost * second_cost < first_cost
        error, limit = noise.temperature_error, SETTINGS.uncertain_temperature
        if is_measured and ratio * error < limit < error:
            pays = True
        noise.gradient.order = 2 if pays else 1
        if is_measured and pays:
            noise.measured.noise_ratio *= ratio
        return second if pays else first

    def _principal_variances(self, differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Variances along the directions in which friction can differ, and their sd over points."""
        d = self._noise.gradient.n_euclidean
        if self._noise.gradient.metric.is_dense and d:
            rotation = principal_directions(differences[:, :d])
            differences = differences.copy()
            differences[:, :d] @= rotation
        variance = NoiseVariance.empty(self._noise.size)
        variance.add(squares_by_point(differences))
        sd = variance.sd
        sd[d:] = 0.0
        return variance.mean, sd
