"""Langevin dynamics in coordinates, around an anchor and with friction that it finds itself.

A chain goes through phases. *Search*: trajectories with Metropolis correction find the posterior
and its metric. *Settle*: passes over all rows find the anchor, pairs of minibatches the noise, and
both the settings. *Tune*: the dynamics run, noise and temperature are watched, and settings follow.
*Sample*: nothing changes any more but a thermostat.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.manifolds import Product
from pymc_geodesic.runtime.finite import all_finite
from pymc_geodesic.steps.base.adaptable import rows_of_sample
from pymc_geodesic.steps.base.adapted_draw import Draw
from pymc_geodesic.steps.base.adapted_trajectories import AdaptedTrajectories
from pymc_geodesic.steps.base.anchoring import MOST_PASSES, passes_to_anchor
from pymc_geodesic.steps.base.bounded_settings import BoundedSettings
from pymc_geodesic.steps.base.dynamics import Dynamics
from pymc_geodesic.steps.base.looks import Looks
from pymc_geodesic.steps.base.noise_measurement import PAIRS_AT_PLACE, NoiseMeasurement
from pymc_geodesic.steps.base.prepared import prepare
from pymc_geodesic.steps.base.step_bounds import points_of, step_of_even_heat, step_of_search
from pymc_geodesic.steps.base.variates_choice import VariatesChoice
from pymc_geodesic.tuning.complaint import complaint_about_noise
from pymc_geodesic.tuning.factor_rule import FactorRule
from pymc_geodesic.tuning.funnel import Funnel
from pymc_geodesic.tuning.heat import hottest_draw
from pymc_geodesic.tuning.noise import LangevinSettings, few_beside_many, principal_directions

__all__ = ["AdaptedLangevin"]

SEARCH, MOST_SEARCH = 0.5, 500
"""Part of the tuning phase, and draws at most, that look for the posterior and its scales."""

LEAST_SEARCH = 30
SEARCH_ACCEPTANCE = 0.8

REMEASURED = (0.25, 0.5, 0.75)
"""Parts of the tuning phase behind the search after which noise and centre are looked at again."""

FAR, FARTHEST = 1.0, 2.0
"""Mean square of whitened coordinates of the mean, and the largest of them, from which the anchor
follows it: one scale in a thousand coordinates is enough for noise to be another."""

MOST_LOST = 4
"""Divergences in a row after which the chain goes back to where the search ended."""


class AdaptedLangevin:
    """The dynamics of a step without Metropolis correction, with all that tuning chooses.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        The variables, Euclidean ones first.
    next_arguments : callable
        n → arguments of the minibatch field for n evaluations.
    dynamics : Dynamics
        What is done in the coordinates that are found.
    order : {"auto", 1, 2, 0}
        Of control variates.
    rule : FactorRule
        What the metric is made of.
    n_steps : int, optional
        Inner steps of a draw; chosen by default.

    Attributes
    ----------
    looks : Looks
        What gradients at the draws say of them.
    """

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        next_arguments: Callable[[int], np.ndarray],
        dynamics: Dynamics,
        *,
        order: str | int = "auto",
        rule: FactorRule,
        n_steps: int | None,
    ) -> None:
        self.gradient = gradient
        self._next_arguments = next_arguments
        self.dynamics = dynamics
        prepare(all_finite)
        self._model_product = product
        self.use_rule(rule)
        self._noise = NoiseMeasurement(gradient, self.product, next_arguments)
        self._variates = VariatesChoice(self._noise, order)
        self._points = points_of(product)
        self._bounds = BoundedSettings(dynamics, n_steps)
        self.reset(0)

    def use_rule(self, rule: FactorRule) -> None:
        """Make the metric by a rule, from the next chain on."""
        self._search = AdaptedTrajectories(
            self.gradient, self._model_product, target_accept=SEARCH_ACCEPTANCE, rule=rule
        )
        self.product = self._search.product
        self.looks = Looks(
            self.gradient, self._model_product, self._next_arguments, mixes=rule.mixes
        )

    def reset(self, n_tune: int, n_draws: int = 0) -> None:
        """Forget the previous chain, except what tuning chose if there is no tuning phase."""
        self._n_tune = n_tune
        self.looks.reset(n_draws)
        self._n_search = min(max(int(SEARCH * n_tune), LEAST_SEARCH), MOST_SEARCH, n_tune)
        self.draw = self._n_lost = self._n_strayed = 0
        self.z = np.empty(0)
        self.dynamics.reset()
        if n_tune or self.settings is None:
            self._bounds.reset()
            self.gradient.drop_anchor()
            self._search.reset(self._n_search)
            self._noise.reset()
            self._z_sum, self._z_count = np.zeros(self.product.size), 0
            self._home = np.empty(0)
        else:
            self.gradient.renew_anchor()

    @property
    def settings(self) -> LangevinSettings | None:
        """What the dynamics run with; None before it was chosen."""
        return self._bounds.settings

    def use_sample(self, estimator: GradientEstimate) -> None:
        """Run the search on a weighted sample of the rows."""
        if estimator.source.is_everything:
            return
        sample = rows_of_sample(estimator, self.product.size)
        self.gradient.use_sample(sample.arrays, sample.counts, sample.weights)

    @property
    def state(self) -> dict[str, Any]:
        """All that decides the draws to come."""
        named = {name: copy.deepcopy(getattr(self, name)) for name in self._STATE}
        return named | {
            "bounds": self._bounds.state,
            "search": self._search.state,
            "dynamics": self.dynamics.state,
            "noise": self._noise.state,
            "looks": self.looks.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        for name in self._STATE:
            setattr(self, name, copy.deepcopy(state[name]))
        self._bounds.state = state["bounds"]
        self._search.state = state["search"]
        self.dynamics.state = state["dynamics"]
        self._noise.state = state["noise"]
        self.looks.state = state["looks"]

    _STATE = (
        *("draw", "z", "_n_tune", "_n_search", "_home", "_n_lost", "_n_strayed"),
        *("_z_sum", "_z_count"),
    )

    @property
    def position(self) -> np.ndarray:
        """Coordinates of the model."""
        return self.gradient.to_position(self.z)

    def start(self, x: np.ndarray, stream: np.ndarray) -> np.ndarray:
        """Begin at a place, or go on from where another step has put the variables.

        Returns
        -------
        ndarray
            See `AdaptedTrajectories.start`.
        """
        gradient = self._search.start(x)
        self.z = self._search.z.copy()
        if self.draw >= self._n_search:
            self._search.z = np.empty(0)
        self.dynamics.refresh(self.product, self.z, stream)
        return gradient

    def advance(self, stream: np.ndarray, *, tune: bool) -> Draw:
        """Draw once."""
        if tune and self.draw < self._n_search:
            drawn = self._search_once(stream)
        else:
            n_grad = 0
            if self.settings is None:
                n_grad = self._settle(stream)
            elif tune:
                n_grad = self._look_again(stream)
            drawn = self._follow(stream, n_grad, tune=tune)
        self.draw += 1
        return drawn

    def funnel(self, in_model: Collection[tuple[str, str]]) -> Funnel | None:
        """See `AdaptedTrajectories.funnel`; pairs in the model count without gradient noise."""
        return self._search.funnel(() if self.gradient.has_noise else in_model)

    def complaint(self, names: Sequence[str]) -> str | None:
        """Say what is wrong with the draws, or may be; see `Looks.complaint`."""
        complaint, metric = self.looks.complaint(names), self.gradient.metric
        if complaint is None and self.gradient.has_noise and self.settings is not None:
            return complaint_about_noise(self.settings, self._noise.error, metric, names)
        return complaint

    def _search_once(self, stream: np.ndarray) -> Draw:
        """One transition with Metropolis correction, on all rows or the sample of them."""
        drawn = self._search.advance(stream, tune=True)
        self.z = self._search.z.copy()
        if self.draw == self._n_search - 1:
            self._search.z = np.empty(0)
            self.dynamics.refresh(self.product, self.z, stream)
        return Draw(
            step_size=drawn.step_size,
            friction=0.0,
            temperature=1.0,  # velocities are drawn anew
            n_grad=drawn.n_grad,
            noise_clips=0,
            diverging=drawn.diverging and self.draw > 0,
            phase="search",
        )

    def _settle(self, stream: np.ndarray) -> int:
        """Find the anchor, the noise, and the settings; return gradient evaluations."""
        n_grad = 0
        if self.gradient.variates is not None:
            x = self.position
            windows = self._search.tuner.windows
            if windows is not None and len(windows) > 2:
                d = self.gradient.n_euclidean
                x[:d] = windows.mean[:d]
            n_grad += self._anchor(x)
            self.dynamics.refresh(self.product, self.z, stream)  # tangent at the anchor
        searched = self._search.tuner.step_size.recent
        sizes = [part.stop - part.start for part in self._model_product.slices.values()]
        longest = self.dynamics.longest_step(
            searched, self._model_product.dim, shared=few_beside_many(sizes)
        )
        stable = step_of_search(self._points, self._search.tuner.windows, self.gradient)
        self._bounds.longest = min(self._bounds.longest, longest, stable)
        self._use_draws()
        n_grad += self._measure_noise(stream)
        self._home = self.position
        return n_grad

    def _anchor(self, x: np.ndarray, most_passes: int = MOST_PASSES) -> int:
        """Move to where the gradient of all rows is small, and estimate differences to it."""
        place, total, n_passes = passes_to_anchor(
            self.gradient, self._model_product, x, most_passes
        )
        if place is not None and total is not None:
            self.gradient.anchor_at(place, total)
            self._search.use(self.gradient.metric.moved(place[: self.gradient.n_euclidean]))
            self.z = self.gradient.from_position(place)
        return n_passes

    def _measure_noise(self, stream: np.ndarray) -> int:
        """Measure gradient noise around the centre and choose the settings."""
        if not self.gradient.has_noise:
            self._bounds.choose(self._noise.variances)
            return 0
        steps_of_draw = self._bounds.steps_of_draw
        self._take_noise(self._variates.choose(self.z, stream, steps_of_draw), stream)
        of_second_order = self._variates.reconsider(self.z, stream, steps_of_draw)
        if of_second_order is not None:
            self._take_noise(of_second_order, stream)
        return self._noise.spent()

    def _take_noise(self, differences: np.ndarray, stream: np.ndarray) -> None:
        """Turn to the principal directions of the noise, and choose settings for it."""
        d = self.gradient.n_euclidean
        if self.gradient.metric.is_dense and d:
            rotation, _ = principal_directions(differences[:, :d])
            self.z[:d] = rotation.T @ self.z[:d]
            self.dynamics.rotate(rotation)
            self._search.use(self.gradient.metric.rotated(rotation))
        if self.gradient.order == 2:
            self._noise.choose_reach(self.z, stream)
        if d and (self.gradient.order == 2 or self.gradient.metric.is_dense):
            # others, for the variances along directions are not what these were chosen by
            differences = self._noise.differences(self.z, self._noise.n_wanted, stream)
        self._noise.take(differences)
        self._bounds.longest_by_noise = step_of_even_heat(self._points, differences)
        self._noise.take_more(self.z, stream, self._choose)

    def _use_draws(self) -> None:
        """Measure noise at the draws of the search, moved to where all rows see the posterior."""
        windows, d = self._search.tuner.windows, self.gradient.n_euclidean
        if windows is not None and len(windows):
            x = windows.positions
            if self.gradient.is_anchored:
                x[:, :d] += self.position[:d] - x[:, :d].mean(axis=0)
            self._noise.use_draws(x)

    def _choose(self) -> LangevinSettings:
        """Choose settings for the noise that is known by now."""
        noise = self._noise.variances
        self._bounds.bound(noise, self._noise.spread)
        return self._bounds.choose(noise)

    def _look_again(self, stream: np.ndarray) -> int:
        """Measure pairs where the chain is, and act on what was measured now and then."""
        if self.gradient.has_noise and self.draw % PAIRS_AT_PLACE == 0:
            self._noise.look_at(self.z)
        n_grad = self._noise.spent()
        self._z_sum += self.z
        self._z_count += 1
        behind = self._n_tune - self._n_search
        if any(self.draw - self._n_search == int(part * behind) for part in REMEASURED):
            n_grad += self._remeasure(stream)
        return n_grad

    def _remeasure(self, stream: np.ndarray) -> int:
        d = self.gradient.n_euclidean
        mean = self._z_sum[:d] / max(self._z_count, 1)
        self._z_sum[:], self._z_count = 0.0, 0
        is_far = d > 0 and (float(mean @ mean) / d > FAR or float(np.abs(mean).max()) > FARTHEST)
        if self.gradient.is_anchored and is_far:
            here = self.position
            x = here.copy()
            x[:d] = self.gradient.metric.to_position(mean)
            n_grad = self._anchor(x, most_passes=1)
            self._use_draws()
            self.z = self.gradient.from_position(here)
            return n_grad + self._measure_noise(stream)
        if self.gradient.has_noise:
            self._choose()
        return 0

    def _turn_back(self, z: np.ndarray, stream: np.ndarray, *, strayed: bool) -> None:
        """Go back to where a draw began, or to where the search ended, with half the step."""
        self._n_lost += 1
        self._n_strayed += strayed
        # draws before that were hot as well led away; and after several in a row the place is to
        # blame, not the step
        goes_home = strayed or self._n_lost % MOST_LOST == 0
        self.z = self.gradient.from_position(self._home) if goes_home else z
        self._z_sum[:], self._z_count = 0.0, 0
        self._noise.forget_draws()
        self.dynamics.reset()
        self.dynamics.refresh(self.product, self.z, stream)
        self._bounds.shorten(0.5, self._noise.variances)

    def _judge(
        self, z: np.ndarray, temperature: float, stream: np.ndarray, *, diverging: bool
    ) -> bool:
        """Act on how hot a draw of the tuning phase was; return whether it was thrown away."""
        # within an unstable kick v·v can be far below zero, too
        hottest = hottest_draw(self._model_product.dim, self._n_strayed)
        strayed = not diverging and abs(temperature) > hottest
        if diverging or strayed:
            self._turn_back(z, stream, strayed=strayed)
            return True
        self._n_lost = 0
        self._bounds.watch(temperature, self._noise.variances)
        return False

    def _follow(self, stream: np.ndarray, n_grad: int, *, tune: bool) -> Draw:
        """Inner steps of one draw."""
        settings = self.settings
        assert settings is not None
        z = self.z.copy()
        field = self.gradient.noisy
        temperature, clips = self.dynamics.run(
            field,
            self._next_arguments(settings.n_steps),
            self.product,
            self.z,
            settings,
            stream,
        )
        field.raise_error()
        diverging = not (math.isfinite(temperature) and all_finite(self.z))
        if tune:
            diverging = self._judge(z, temperature, stream, diverging=diverging)
        elif not diverging:
            # gradients that have no part in reaching the draw they are compared with
            n_grad += self.looks.take(self.draw, self.z, self.product.blocks, settings.n_steps)
        return Draw(
            step_size=settings.step_size,
            friction=settings.mean_friction,
            temperature=temperature,
            n_grad=n_grad + settings.n_steps,
            noise_clips=clips,
            diverging=diverging,
            phase="tune" if tune else "sample",
            configurational_temperature=self.looks.last_temperature,
            whitened_gradient=self.looks.largest_gradient,
            noise_ratio=self._noise.variates_ratio,
        )
