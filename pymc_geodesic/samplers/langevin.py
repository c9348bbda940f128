"""Langevin sampler: a Markov chain on a vector, without Metropolis correction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.adaptation import LangevinAdaptation, LangevinChain, Proposal
from pymc_geodesic.adaptation.eligibility import Ineligibility
from pymc_geodesic.adaptation.langevin_parameters import LangevinParameters
from pymc_geodesic.adaptation.step_size_bounds import max_temperature
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.kernels import gmc
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.monitoring.stationarity_monitors import StationarityMonitor
from pymc_geodesic.runtime.gradient_functions import NotFiniteError, evaluate
from pymc_geodesic.runtime.numerics import all_finite
from pymc_geodesic.runtime.streams import split_stream
from pymc_geodesic.samplers.dynamics import Dynamics

EXPLORATION_STATS = {
    "temperature": 1.0,  # each transition draws a new velocity
    "friction": 0.0,
    "diffusion": 0.0,
    "thermostat": 0.0,
    "largest_thermostat": 0.0,
    "noise_clips": 0,
    "n_steps": 0,
    "phase": "explore",
    "configurational_temperature": math.nan,
    "whitened_gradient": math.nan,
}
"""Sample stats of Metropolis-corrected transitions, without friction and gradient noise."""

MAX_EXCURSIONS = 10
"""Number of successive draws that are undone, after which one that is not finite is an error."""


class LangevinSampler:
    """Langevin dynamics with adapted coordinates and parameters.

    The lines of algorithms 1 and 2 of Liu, Zhu and Song (2016) are implemented as follows:

    - ξ⁰ ← C: `initialize`. The dynamics store ξ − C, which is 0 initially.
    - x⁰, and v⁰ ← Λ(x⁰) v*, v* ~ N(0, I): `start`, with ``dynamics.refresh``.
    - Sample a subset S: in `draw`, the minibatches of `LangevinAdaptation.propose`, one for each
      inner step, with the step size ε, the friction C and the known noise V of the draw.
    - Gradient −∇Ũ of a minibatch, with the factor N / n: ``adaptation.logp_grad``, compiled by
      `pymc_geodesic.steps.estimators.gradient_estimator`.
    - For l = 1, …, L the steps A B O B A: in `draw`, ``dynamics.run``, which calls the kernel.
    - (xⁿ, vⁿ, ξⁿ) ← (x_L, v_L, ξ_L), no Metropolis–Hastings test: the kernel updates position and
      velocity in place.

    During warm-up, a draw may instead be a Metropolis-corrected transition (`explore`). The
    adaptation is updated after each other draw, and may discard it (`update`). Once it is settled,
    the draws that remain repeat the last one. After a warm-up in whitened coordinates, a draw that
    has left the posterior is undone (`_undo_excursion`).

    Parameters
    ----------
    dynamics : Dynamics
        Kernel, and its state in addition to the position: velocity, thermostats.
    estimator : GradientEstimator
        Gradient estimate in the coordinates of the model.
    adaptation : LangevinAdaptation
    monitor : StationarityMonitor or None
        Compares gradients with draws after the warm-up.

    Attributes
    ----------
    adaptation : LangevinAdaptation
    parameters : LangevinParameters or None
        Parameters of the last draw; None before the first.
    """

    def __init__(
        self,
        dynamics: Dynamics,
        estimator: GradientEstimator,
        adaptation: LangevinAdaptation,
        monitor: StationarityMonitor | None,
    ) -> None:
        self.dynamics, self.estimator = dynamics, estimator
        self.adaptation, self.monitor = adaptation, monitor
        prepare(all_finite, evaluate, *((gmc, split_stream) if estimator.is_local else ()))
        self.initialize(np.zeros(2, dtype=np.uint64), 0, 0)

    @property
    def ineligibility(self) -> Ineligibility | None:
        """See `LangevinAdaptation`."""
        return self.adaptation.ineligibility

    @property
    def position(self) -> np.ndarray:
        """Position in the coordinates of the model, shape (size,); empty before `start`."""
        return self.adaptation.to_position(self.z) if self.z.size else self.z

    @property
    def z(self) -> np.ndarray:
        """Position in the coordinates of the adaptation, shape (size,); empty before `start`."""
        return self._chain.z

    @property
    def stream(self) -> np.ndarray:
        """Random stream, shape (2,)."""
        return self._chain.stream

    def initialize(self, stream: np.ndarray, n_tune: int, n_draws: int) -> None:
        """Begin a chain; see `Sampler`."""
        self.adaptation.initialize(n_tune)
        self.dynamics.initialize(self.adaptation.product)
        self._chain = LangevinChain(self.dynamics, np.empty(0), stream)
        self.parameters: LangevinParameters | None = None
        self._n_excursions = self._n_successive_excursions = 0
        if self.monitor is not None:
            self.monitor.initialize(n_draws)

    def start(self, x: np.ndarray) -> None:
        """Set the position and draw a velocity; see `Sampler`."""
        self._chain.z = self.adaptation.start(x)
        self.dynamics.refresh(self.adaptation.product, self.z, self.stream)

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Do nothing: the gradient estimate stores the values of other variables."""

    def draw(self, *, tune: bool) -> dict[str, Any]:
        """Generate one draw.

        Returns
        -------
        dict
            Sample stats by name.

        Raises
        ------
        NotFiniteError
            If position or velocity is not finite after the warm-up, or if the gradient at the
            starting point is not finite.
        """
        chain, adaptation = self._chain, self.adaptation
        monitor = None if tune else self.monitor
        explored = adaptation.explore(chain) if tune else None
        if explored is not None:
            chain.n += 1
            return EXPLORATION_STATS | {
                "step_size": explored.step_size,
                "n_grad": explored.n_grad,
                "diverging": explored.diverging and chain.n > 1,
                "noise_ratio": adaptation.noise_ratio,
                **self.estimator.stats(),
            }
        if tune and adaptation.settled is not None:
            chain.n += 1
            return self._stats(adaptation.settled, None) | {
                "temperature": math.nan, "noise_clips": 0, "n_steps": 0, "n_grad": 0,
                "diverging": False, "phase": "tune",
            }  # fmt: skip
        # step size, friction, known noise, and one minibatch for each inner step
        proposal = adaptation.propose(chain, tune=tune)
        if self._n_successive_excursions:  # undone draws from the same position
            step_size = 0.5**self._n_successive_excursions * proposal.parameters.step_size
            parameters = replace(proposal.parameters, step_size=step_size)
            proposal = proposal._replace(parameters=parameters)
        self.parameters, minibatches = proposal.parameters, proposal.minibatches
        n_grad = proposal.n_grad + len(minibatches)
        if monitor is not None:
            n_grad += monitor.before_draw(chain.z, minibatches)
        before = chain.z.copy()
        # n_steps inner steps A B O B A, in place; no Metropolis–Hastings test
        temperatures, noise_clips = self.dynamics.run(
            adaptation.logp_grad,
            minibatches,
            adaptation.product,
            chain.z,
            proposal.parameters,
            chain.stream,
        )
        adaptation.logp_grad.raise_error()
        temperature = sum(temperatures.tolist()) / temperatures.size
        diverging = not (math.isfinite(temperature) and all_finite(chain.z))
        if diverging:
            self._check_divergence(before, proposal, may_undo=tune or adaptation.whitens)
        mean_temperature = float(adaptation.product.dims @ temperatures) / adaptation.product.dim
        if tune:
            diverging, more = adaptation.update(
                chain, before, proposal, mean_temperature, diverging=diverging
            )
            n_grad += more
        elif adaptation.whitens:
            diverging = self._undo_excursion(before, mean_temperature, diverging=diverging)
        if monitor is not None:
            n_grad += monitor.after_draw(chain.n, chain.z, len(minibatches))
        chain.n += 1
        stats = self._stats(proposal.parameters, monitor)
        stats["temperature"] = math.nan if diverging else temperature
        stats["noise_clips"] = noise_clips
        stats["n_steps"], stats["n_grad"] = len(minibatches), n_grad
        stats["diverging"] = diverging
        stats["phase"] = "tune" if tune else "sample"
        return stats

    def _check_divergence(self, before: np.ndarray, proposal: Proposal, *, may_undo: bool) -> None:
        """Raise an error for a draw that is not finite.

        Such a draw may be undone in the warm-up, if the gradient at the starting point is finite,
        and afterwards in adapted coordinates, unless many draws before were undone.
        """
        chain = self._chain
        if chain.n == 0:
            x = self.adaptation.to_position(before)
            for minibatch in proposal.minibatches:
                gradient = self.estimator.gradient_at(x, int(minibatch))
                if not all_finite(gradient):
                    raise NotFiniteError("gradient", None, gradient, at_start=True)
        if not may_undo or self._n_successive_excursions >= MAX_EXCURSIONS:
            what = "velocity" if all_finite(chain.z) else "position"
            raise NotFiniteError(what, proposal.parameters.step_size, chain.z)

    def _undo_excursion(self, before: np.ndarray, temperature: float, *, diverging: bool) -> bool:
        """Return to before a draw that left the posterior or is not finite; return whether it did.

        Draws of the posterior practically never have a kinetic temperature above `max_temperature`.
        In a funnel such a draw can move a scale by many posterior standard deviations. Without a
        momentum, the displacements of the inner steps replace the velocities.
        """
        dim = self.adaptation.product.dim
        bound = max_temperature(dim, self._n_successive_excursions, tune=False)
        displacement = self.dynamics.displacement_temperature
        is_hot = abs(temperature if displacement is None else displacement) > bound
        if not (is_hot or diverging):
            self._n_successive_excursions = 0
            return False
        self._n_excursions += 1
        self._n_successive_excursions += 1
        self._chain.restart_at(before, self.adaptation.product)
        return True

    def _stats(
        self, parameters: LangevinParameters, monitor: StationarityMonitor | None
    ) -> dict[str, Any]:
        """Sample stats of the parameters of a draw, the thermostats and the monitor."""
        friction, thermostat = parameters.mean_friction, self.dynamics.thermostat
        mean = largest = friction
        if thermostat is not None:
            own = friction if parameters.block_friction is None else parameters.block_friction
            thermostats = (own + thermostat).tolist()
            mean, largest = fmean(thermostats), max(thermostats)
        return {
            "step_size": parameters.step_size,
            "friction": friction,
            "diffusion": friction,
            "thermostat": mean,
            "largest_thermostat": largest,
            "configurational_temperature": math.nan if monitor is None else monitor.temperature,
            "whitened_gradient": math.nan if monitor is None else monitor.largest_gradient,
            "noise_ratio": self.adaptation.noise_ratio,
            **self.estimator.stats(),
        }

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Diagnose a stationary distribution other than the posterior, or poorly known noise.

        Parameters
        ----------
        names : list of str
            Name of each coordinate.
        """
        if self._n_excursions:
            return Diagnosis(
                quantity="number of draws that left the posterior",
                value=self._n_excursions,
                expected=0,
                consequence=(
                    "each was replaced by the draw before it, and the posterior that other draws "
                    "did not leave may be wrong too, most of all in the tails of scale parameters"
                ),
                remedy="Use GMC() or NUTS, which correct each step, or {minibatches}.",
                anchor="divergences",
                format_spec=".0f",
            )
        diagnosis = None if self.monitor is None else self.monitor.diagnosis(names)
        diagnosis = diagnosis or self.adaptation.noise_diagnosis(names)
        if diagnosis is None:
            return None
        return self.adaptation.name_rare_coordinates(diagnosis, names)

    @property
    def state(self) -> dict[str, Any]:
        """State of the chain, with those of the dynamics, the adaptation and the monitor."""
        return {
            "z": self._chain.z.copy(),
            "stream": self._chain.stream.copy(),
            "n": self._chain.n,
            "n_excursions": np.array([self._n_excursions, self._n_successive_excursions]),
            "dynamics": self.dynamics.state,
            "adaptation": self.adaptation.state,
            "monitor": {} if self.monitor is None else self.monitor.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._chain.z, self._chain.n = state["z"].copy(), state["n"]
        self._chain.stream = state["stream"].copy()
        self._n_excursions, self._n_successive_excursions = state["n_excursions"].tolist()
        self.dynamics.state, self.adaptation.state = state["dynamics"], state["adaptation"]
        if self.monitor is not None and state["monitor"]:
            self.monitor.state = state["monitor"]
