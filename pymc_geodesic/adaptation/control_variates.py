"""Which control variates make an independent draw cheapest: none, of first or of second order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pymc_geodesic.adaptation.gradient_noise import PAIRS_AT_ONCE, NoiseMeasurement, by_place
from pymc_geodesic.adaptation.langevin_parameters import principal_directions
from pymc_geodesic.adaptation.noise_variance import NoiseOverPlaces

StepsOfDraw = Callable[[np.ndarray, np.ndarray], int]

SECOND_ORDER_COST = 1.5
"""Cost of a difference of second order, in such of first order."""

MORE_THAN_LEAST = 1.2
"""What second order has to promise before it is compiled, if it left no noise at all."""

DOUBTFUL_NOISE = 0.01
"""Error of a temperature, for noise of first order that is known badly, from which second order is
tried: a few rows make most of that noise, and at points in the tails much more of it."""

USELESS_VARIATES = 0.5
"""Part of the plain noise from which control variates do not pay."""


class VariatesChoice:
    """Chooses control variates, and sets those of the gradient that is measured.

    Parameters
    ----------
    noise : NoiseMeasurement
    order : {"auto", 1, 2, 0}
        Of control variates; all but ``"auto"`` is a choice already.
    """

    def __init__(self, noise: NoiseMeasurement, order: str | int = "auto") -> None:
        self._noise, self._order = noise, order
        self._may_try = False

    def choose(self, z: np.ndarray, stream: np.ndarray, steps_of_draw: StepsOfDraw) -> np.ndarray:
        """Choose the order of control variates that makes an independent draw cheapest.

        Parameters
        ----------
        z, stream
            See `differences`.
        steps_of_draw : callable
            Variances along coordinates, and their standard deviations over the posterior → inner
            steps of an independent draw.

        Returns
        -------
        ndarray, shape (n, size)
            Differences of pairs of what was chosen.
        """
        gradient = self._noise.gradient
        self._may_try = gradient.is_centered and self._order == "auto"
        if not gradient.is_centered:
            return self._noise.differences(z, self._noise.n_wanted, stream)
        if self._order == 2:
            self._expand_for_pairs(z, stream)
        differences = self._noise.differences(z, self._noise.n_wanted, stream)
        if self._promises(steps_of_draw(*self._principal_variances(differences)), steps_of_draw):
            differences = self._try_second_order(z, stream, steps_of_draw)
        order = gradient.order
        gradient.remove_control_variates()
        plain = self._noise.differences(z, PAIRS_AT_ONCE, stream)
        self._noise.variates_ratio = float(np.mean(differences**2) / np.mean(plain**2))
        if not self._noise.variates_ratio < USELESS_VARIATES:
            self._noise.variates_ratio, self._may_try = 1.0, False
            return self._noise.differences(z, self._noise.n_wanted, stream)
        self._go_on_with(order)
        return differences

    def reconsider(
        self, z: np.ndarray, stream: np.ndarray, steps_of_draw: StepsOfDraw
    ) -> np.ndarray | None:
        """Use second order if it pays by the noise measured since, or if that is uncertain.

        The pairs that `choose` sees may be without the rows that make most of the noise,
        and promise little then. Where a few rows make most of the noise of first order, its
        variance stays uncertain, and it grows with the distance from the anchor.

        Parameters
        ----------
        z, stream, steps_of_draw
            See `choose`.

        Returns
        -------
        ndarray or None, shape (n, size)
            Differences of pairs of second order; None where all stays as it is.
        """
        cost = steps_of_draw(self._noise.variances, self._noise.spread)
        if not self._promises(cost, steps_of_draw, doubt=self._noise.doubt):
            return None
        differences = self._try_second_order(z, stream, steps_of_draw, known=True)
        order = self._noise.gradient.order
        self._go_on_with(order)
        return differences if order == 2 else None

    def _go_on_with(self, order: int) -> None:
        """Use control variates of an order, the second with the Hessian of all rows."""
        if order == 2:
            self._noise.gradient.use_second_order()
            self._noise.n_grad += self._noise.size
        else:
            self._noise.gradient.order = order

    def _expand_for_pairs(self, z: np.ndarray, stream: np.ndarray) -> None:
        """Use second order without the Hessian of all rows, which cancels in differences."""
        self._noise.gradient.use_second_order(np.zeros((self._noise.size, self._noise.size)))
        self._noise.choose_reach(z, stream)

    def _promises(self, first_cost: int, steps_of_draw: StepsOfDraw, *, doubt: float = 0.0) -> bool:
        """Whether second order, not tried yet, would pay if it left no noise at all."""
        nothing = np.zeros(self._noise.size)
        least = SECOND_ORDER_COST * steps_of_draw(nothing, nothing)
        return (
            self._may_try
            and (first_cost > MORE_THAN_LEAST * least or doubt > DOUBTFUL_NOISE)
            and self._noise.gradient.compile_second_order()
        )

    def _try_second_order(
        self,
        z: np.ndarray,
        stream: np.ndarray,
        steps_of_draw: StepsOfDraw,
        *,
        known: bool = False,
    ) -> np.ndarray:
        """Go over to second order if it pays; return differences of what was chosen.

        Where the noise of first order is ``known``, the trial tells what part of it is left.
        """
        self._may_try = False
        noise = self._noise
        variances, spread = noise.variances, noise.spread
        self._expand_for_pairs(z, stream)
        # of the same minibatches: where rows have heavy tails a few of them make all the noise
        first, second = noise.differences_of_orders((1, 2), z, noise.n_wanted, stream)
        left = float(np.mean(second**2) / np.mean(first**2)) if first.any() else 1.0
        if known:
            noises = [(variances, spread), (left * variances, left * spread)]
        else:
            noises = [self._principal_variances(each) for each in (first, second)]
        noises[1] = (noises[1][0], np.maximum(noises[1][1], noise.tail_spread))
        costs = [steps_of_draw(*noise) for noise in noises]
        pays = SECOND_ORDER_COST * costs[1] < costs[0]
        if known and left * self._noise.doubt < DOUBTFUL_NOISE < self._noise.doubt:
            pays = True
        self._noise.gradient.order = 2 if pays else 1
        if known and pays:
            self._noise.variates_ratio *= left
        return second if pays else first

    def _principal_variances(self, differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Variances along the directions that friction may differ in, and their spread."""
        d = self._noise.gradient.n_euclidean
        if self._noise.gradient.metric.is_dense and d:
            rotation, _ = principal_directions(differences[:, :d])
            differences = differences.copy()
            differences[:, :d] @= rotation
        noise = NoiseOverPlaces(self._noise.size)
        noise.take(by_place(differences))
        spread = noise.spread
        spread[d:] = 0.0
        return noise.mean, spread
