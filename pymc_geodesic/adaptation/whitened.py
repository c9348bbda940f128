"""Adaptation of Langevin dynamics in whitened coordinates with control variates.

A warm-up has four phases. *Exploration*: trajectories with Metropolis correction find the posterior
and its covariance. *Centering*: passes over all rows find the centering point of the control
variates, pairs of minibatches the gradient noise, and both the parameters. *Tuning*: the dynamics
run, noise and temperature are monitored, and parameters follow. *Sampling*: nothing changes but the
thermostats.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.adaptation.adaptable import rows_of_sample
from pymc_geodesic.adaptation.adaptation import (
    LARGER_MINIBATCHES,
    Exploration,
    LangevinChain,
    Proposal,
)
from pymc_geodesic.adaptation.bounded_parameters import BoundedSettings, ParameterRule
from pymc_geodesic.adaptation.centering import MOST_PASSES, passes_to_anchor
from pymc_geodesic.adaptation.control_variates import VariatesChoice
from pymc_geodesic.adaptation.gradient_noise import PAIRS_AT_PLACE, NoiseMeasurement
from pymc_geodesic.adaptation.manifold_bounds import points_of, step_of_even_heat, step_of_search
from pymc_geodesic.adaptation.trajectories import WhitenedTrajectories
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.monitoring.whitened import WhitenedMonitor
from pymc_geodesic.runtime.fields import FieldLike
from pymc_geodesic.runtime.finite import all_finite
from pymc_geodesic.tuning.complaint import complaint_about_noise
from pymc_geodesic.tuning.funnel import Funnel
from pymc_geodesic.tuning.heat import hottest_draw
from pymc_geodesic.tuning.noise import LangevinSettings, few_beside_many, principal_directions

__all__ = ["WhitenedAdaptation"]

SEARCH, MOST_SEARCH = 0.5, 500
"""Part of the tuning phase, and draws at most, that look for the posterior and its scales."""

LEAST_SEARCH = 30
SEARCH_ACCEPTANCE = 0.8

REMEASURED = (0.25, 0.5, 0.75)
"""Parts of the tuning phase behind the search after which noise and centre are looked at again."""

FAR, FARTHEST = 1.0, 2.0
"""Mean square of whitened coordinates of the mean, and the largest of them, from which the anchor
follows it: one scale in a thousand coordinates is enough for noise to be another."""

SAFETY = 1.2
"""Standard errors of the noise by which the step is bounded like by noise that differs over the
posterior; more than one, for those of rare noise are underestimated."""

MOST_LOST = 4
"""Divergences in a row after which the chain goes back to where the search ended."""


class Explorer(Protocol):
    """Metropolis-corrected sampler that finds the posterior and its covariance.

    See `pymc_geodesic.samplers.hmc.HMCSampler`.
    """

    stream: np.ndarray
    z: np.ndarray
    state: dict[str, Any]

    def initialize(self, stream: np.ndarray, n_tune: int, n_draws: int) -> None:
        """Begin a chain."""

    def start(self, x: np.ndarray) -> None:
        """Set the position."""

    def draw(self, *, tune: bool) -> dict[str, Any]:
        """Draw once."""


class WhitenedAdaptation:
    """Covariance, centering point, gradient noise and parameters, found in the warm-up.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        The variables, Euclidean ones first.
    estimate : GradientEstimate
        Of the gradient in the coordinates of the model; a sample of its rows is explored.
    explorer : Explorer
        Of the same gradient.
    trajectories : WhitenedTrajectories
        What the explorer adapts.
    rule : ParameterRule
        Parameters for known gradient noise.
    order : {"auto", 1, 2, 0}
        Of control variates.
    n_steps : int, optional
        Inner steps of a draw; chosen by default.
    """

    is_whitened = is_constant = needs_warm_up = True
    minibatch_remedy = LARGER_MINIBATCHES

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        estimate: GradientEstimate,
        explorer: Explorer,
        trajectories: WhitenedTrajectories,
        rule: ParameterRule,
        *,
        order: str | int = "auto",
        n_steps: int | None,
    ) -> None:
        self.gradient, self._estimate = gradient, estimate
        self._next_arguments = estimate.next_arguments
        prepare(all_finite)
        self._model_product = product
        self._explorer, self._trajectories = explorer, trajectories
        self.product = trajectories.product
        self._noise = NoiseMeasurement(gradient, self.product, estimate.next_arguments)
        self._order, self._variates = order, VariatesChoice(self._noise, order)
        self._points = points_of(product)
        self._bounds = BoundedSettings(rule, n_steps)
        self.initialize(0)

    def __repr__(self) -> str:
        """Describe what is adapted."""
        parts = [f"metric={self._trajectories.metric_name!r}"]
        if self.gradient.variates is not None:
            parts.append(f"control_variates={self._order!r}")
        parts.append("step size, friction and n_steps" if self.gradient.has_noise else "step size")
        return f"adapts {', '.join(parts)}."

    @property
    def is_tuned(self) -> bool:
        """Whether a warm-up has chosen the parameters."""
        return self.settings is not None

    def monitor(self) -> WhitenedMonitor:
        """Monitor of draws in these coordinates."""
        return WhitenedMonitor(
            self.gradient, self._model_product, self._next_arguments, mixes=self._trajectories.mixes
        )

    def use_covariance(self, covariance: np.ndarray) -> None:
        """Whiten by a covariance, from the next chain on, unless the user specified the metric.

        Parameters
        ----------
        covariance : ndarray, shape (d, d)
            Of the Euclidean coordinates.
        """
        self._trajectories.use_covariance(covariance)

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `LangevinAdaptation`."""
        self._n_tune = n_tune
        self._n_search = min(max(int(SEARCH * n_tune), LEAST_SEARCH), MOST_SEARCH, n_tune)
        self._n_lost = self._n_strayed = 0
        if n_tune or self.settings is None:
            self._bounds.reset()
            self.gradient.drop_anchor()
            self._explorer.initialize(np.zeros(2, dtype=np.uint64), self._n_search, 0)
            self._noise.reset()
            self._z_sum, self._z_count = np.zeros(self.product.size), 0
            self._home = np.empty(0)
        else:
            self.gradient.renew_anchor()
        if n_tune:
            self._use_sample()

    @property
    def settings(self) -> LangevinSettings | None:
        """What the dynamics run with; None before it was chosen."""
        return self._bounds.settings

    @property
    def logp_grad(self) -> FieldLike:
        """Gradient estimate in whitened coordinates."""
        return self.gradient.noisy

    @property
    def noise_ratio(self) -> float:
        """Noise with control variates over noise without; 1 without control variates."""
        return self._noise.variates_ratio

    def _use_sample(self) -> None:
        """Explore the posterior of a weighted sample of the rows."""
        if self._estimate.source.is_everything:
            return
        sample = rows_of_sample(self._estimate, self.product.size)
        self.gradient.use_sample(sample.arrays, sample.counts, sample.weights)
        source = self._estimate.source
        self._noise.noisy_rate = min(sample.n_noisy * source.batch_size / source.n_rows, 1.0)

    @property
    def state(self) -> dict[str, Any]:
        """All that decides what is chosen later."""
        named = {name: copy.deepcopy(getattr(self, name)) for name in self._STATE}
        return named | {
            "bounds": self._bounds.state,
            "search": self._explorer.state,
            "noise": self._noise.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._use_sample()
        for name in self._STATE:
            setattr(self, name, copy.deepcopy(state[name]))
        self._bounds.state = state["bounds"]
        self._explorer.state = state["search"]
        self._noise.state = state["noise"]

    _STATE = ("_n_tune", "_n_search", "_home", "_n_lost", "_n_strayed", "_z_sum", "_z_count")

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""
        return self.gradient.to_position(z)

    def start(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates of a position; see `LangevinAdaptation`."""
        self._explorer.start(x)
        return self._explorer.z.copy(), np.empty(0)

    def funnel(self, in_model: Collection[tuple[str, str]]) -> Funnel | None:
        """See `WhitenedTrajectories.funnel`; pairs in the model count without gradient noise."""
        return self._trajectories.funnel(() if self.gradient.has_noise else in_model)

    def noise_diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Name coordinates whose gradient noise is poorly known."""
        if not self.gradient.has_noise or self.settings is None:
            return None
        message = complaint_about_noise(
            self.settings, self._noise.error, self.gradient.metric, names
        )
        return None if message is None else Diagnosis(message, "stationarity")

    def explore(self, chain: LangevinChain) -> Exploration | None:
        """Make one transition, on all rows or the sample of them."""
        if chain.n >= self._n_search:
            return None
        unused, self._explorer.stream = self._explorer.stream, chain.stream
        drawn = self._explorer.draw(tune=True)
        self._explorer.stream = unused  # so that the state holds one stream, that of the chain
        chain.z = self._explorer.z.copy()
        if chain.n == self._n_search - 1:
            chain.refresh(self.product)
        return Exploration(drawn["step_size"], drawn["n_grad"], drawn["diverging"])

    def propose(self, chain: LangevinChain, *, tune: bool) -> Proposal:
        """Choose parameters and minibatches; see `LangevinAdaptation`."""
        n_grad = 0
        if self.settings is None:
            n_grad = self._settle(chain)
        elif tune:
            n_grad = self._look_again(chain)
        settings = self.settings
        assert settings is not None
        return Proposal(settings, self._next_arguments(settings.n_steps), n_grad)

    def update(
        self,
        chain: LangevinChain,
        before: np.ndarray,
        proposal: Proposal,
        temperature: float,
        *,
        diverging: bool,
    ) -> tuple[bool, int]:
        """Monitor the temperature, and undo a draw that diverged; see `LangevinAdaptation`."""
        # within an unstable kick v·v can be far below zero, too
        hottest = hottest_draw(self._model_product.dim, self._n_strayed)
        strayed = not diverging and abs(temperature) > hottest
        if diverging or strayed:
            self._turn_back(chain, before, strayed=strayed)
            return True, 0
        self._n_lost = 0
        self._bounds.watch(temperature, self._noise.variances)
        return False, 0

    def _settle(self, chain: LangevinChain) -> int:
        """Find the anchor, the noise, and the settings; return gradient evaluations."""
        n_grad = 0
        if self.gradient.variates is not None:
            x = self.to_position(chain.z)
            windows = self._trajectories.tuner.windows
            if windows is not None and len(windows) > 2:
                d = self.gradient.n_euclidean
                x[:d] = windows.mean[:d]
            n_grad += self._anchor(chain, x)
            chain.refresh(self.product)  # tangent at the anchor
        searched = self._trajectories.tuner.step_size.recent
        sizes = [part.stop - part.start for part in self._model_product.slices.values()]
        longest = self._bounds.rule.longest_step(
            searched, self._model_product.dim, shared=few_beside_many(sizes)
        )
        stable = step_of_search(self._points, self._trajectories.tuner.windows, self.gradient)
        self._bounds.longest = min(self._bounds.longest, longest, stable)
        self._use_draws(chain)
        n_grad += self._measure_noise(chain)
        self._home = self.to_position(chain.z)
        return n_grad

    def _anchor(self, chain: LangevinChain, x: np.ndarray, most_passes: int = MOST_PASSES) -> int:
        """Move to where the gradient of all rows is small, and estimate differences to it."""
        place, total, n_passes = passes_to_anchor(
            self.gradient, self._model_product, x, most_passes
        )
        if place is not None and total is not None:
            self.gradient.anchor_at(place, total)
            self._trajectories.use(self.gradient.metric.moved(place[: self.gradient.n_euclidean]))
            chain.z = self.gradient.from_position(place)
        return n_passes

    def _measure_noise(self, chain: LangevinChain) -> int:
        """Measure gradient noise around the centre and choose the settings."""
        if not self.gradient.has_noise:
            self._bounds.choose(self._noise.variances)
            return 0
        steps_of_draw = self._bounds.steps_of_draw
        differences = self._variates.choose(chain.z, chain.stream, steps_of_draw)
        self._take_noise(chain, differences)
        of_second_order = self._variates.reconsider(chain.z, chain.stream, steps_of_draw)
        if of_second_order is not None:
            self._take_noise(chain, of_second_order)
        return self._noise.spent()

    def _take_noise(self, chain: LangevinChain, differences: np.ndarray) -> None:
        """Turn to the principal directions of the noise, and choose settings for it."""
        d = self.gradient.n_euclidean
        if self.gradient.metric.is_dense and d:
            rotation, _ = principal_directions(differences[:, :d])
            chain.z[:d] = rotation.T @ chain.z[:d]
            chain.dynamics.rotate(rotation)
            self._trajectories.use(self.gradient.metric.rotated(rotation))
        if self.gradient.order == 2:
            self._noise.choose_reach(chain.z, chain.stream)
        if d and (self.gradient.order == 2 or self.gradient.metric.is_dense):
            # others, for the variances along directions are not what these were chosen by
            differences = self._noise.differences(chain.z, self._noise.n_wanted, chain.stream)
        self._noise.take(differences)
        self._bounds.longest_by_noise = step_of_even_heat(self._points, differences)
        self._noise.take_more(chain.z, chain.stream, self._choose)

    def _use_draws(self, chain: LangevinChain) -> None:
        """Measure noise at the draws of the search, moved to where all rows see the posterior."""
        windows, d = self._trajectories.tuner.windows, self.gradient.n_euclidean
        if windows is not None and len(windows):
            x = windows.positions
            if self.gradient.is_anchored:
                x[:, :d] += self.to_position(chain.z)[:d] - x[:, :d].mean(axis=0)
            self._noise.use_draws(x)

    def _choose(self) -> LangevinSettings:
        """Choose settings for the noise that is known by now."""
        noise = self._noise.variances
        uncertain = np.hypot(self._noise.spread, SAFETY * self._noise.error)
        self._bounds.bound(noise, uncertain)
        return self._bounds.choose(noise)

    def _look_again(self, chain: LangevinChain) -> int:
        """Measure pairs where the chain is, and act on what was measured now and then."""
        if self.gradient.has_noise and chain.n % PAIRS_AT_PLACE == 0:
            self._noise.look_at(chain.z)
        n_grad = self._noise.spent()
        self._z_sum += chain.z
        self._z_count += 1
        behind = self._n_tune - self._n_search
        if any(chain.n - self._n_search == int(part * behind) for part in REMEASURED):
            n_grad += self._remeasure(chain)
        return n_grad

    def _remeasure(self, chain: LangevinChain) -> int:
        d = self.gradient.n_euclidean
        mean = self._z_sum[:d] / max(self._z_count, 1)
        self._z_sum[:], self._z_count = 0.0, 0
        is_far = d > 0 and (float(mean @ mean) / d > FAR or float(np.abs(mean).max()) > FARTHEST)
        if self.gradient.is_anchored and is_far:
            here = self.to_position(chain.z)
            x = here.copy()
            x[:d] = self.gradient.metric.to_position(mean)
            n_grad = self._anchor(chain, x, most_passes=1)
            self._use_draws(chain)
            chain.z = self.gradient.from_position(here)
            return n_grad + self._measure_noise(chain)
        if self.gradient.has_noise:
            self._choose()
        return 0

    def _turn_back(self, chain: LangevinChain, before: np.ndarray, *, strayed: bool) -> None:
        """Go back to where a draw began, or to where the search ended, with half the step."""
        self._n_lost += 1
        self._n_strayed += strayed
        # draws before that were hot as well led away; and after several in a row the place is to
        # blame, not the step
        goes_home = strayed or self._n_lost % MOST_LOST == 0
        chain.z = self.gradient.from_position(self._home) if goes_home else before
        self._z_sum[:], self._z_count = 0.0, 0
        self._noise.forget_draws()
        chain.dynamics.initialize(self.product)
        chain.refresh(self.product)
        self._bounds.shorten(0.5, self._noise.variances)
