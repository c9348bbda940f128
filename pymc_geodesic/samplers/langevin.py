"""Langevin sampler: a Markov chain without Metropolis correction on a vector."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.adaptation import LangevinAdaptation, LangevinChain, Proposal
from pymc_geodesic.adaptation.langevin_parameters import LangevinSettings
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.kernels import gmc
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.monitoring.stationarity_monitors import StationarityMonitor
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.finite import all_finite
from pymc_geodesic.runtime.streams import split_stream
from pymc_geodesic.samplers.dynamics import Dynamics
from pymc_geodesic.samplers.sampler import NotFiniteError

__all__ = ["LangevinSampler"]


class LangevinSampler:
    """Langevin dynamics in the coordinates, and with the parameters, of an adaptation.

    One draw is

    1. in the first phase of a warm-up that has one, a Metropolis-corrected transition;
    2. else the choice of step size, friction, known noise and minibatches (`propose`),
       ``n_steps`` inner steps of the kernel, and in the warm-up an update of the adaptation, which
       may discard the draw.

    Parameters
    ----------
    dynamics : Dynamics
        Which kernel runs, and what it keeps from draw to draw.
    estimate : GradientEstimate
        Of the gradient in the coordinates of the model.
    adaptation : LangevinAdaptation
    monitor : StationarityMonitor or None
        Compares gradients with draws after the warm-up.

    Attributes
    ----------
    adaptation : LangevinAdaptation
    position : ndarray, shape (size,)
        In the coordinates of the model; empty before the first draw.
    """

    def __init__(
        self,
        dynamics: Dynamics,
        estimate: GradientEstimate,
        adaptation: LangevinAdaptation,
        monitor: StationarityMonitor | None,
    ) -> None:
        self.dynamics, self.estimate = dynamics, estimate
        self.adaptation, self.monitor = adaptation, monitor
        prepare(all_finite, evaluate, *((gmc, split_stream) if estimate.is_local else ()))
        self.initialize(np.zeros(2, dtype=np.uint64), 0, 0)

    def initialize(self, stream: np.ndarray, n_tune: int, n_draws: int) -> None:
        """Begin a chain.

        Parameters
        ----------
        stream : ndarray of uint64, shape (2,)
            Random stream.
        n_tune, n_draws : int
            Draws of the warm-up, and behind it. Without a warm-up the parameters of the last one
            are used.
        """
        self.n_tune = n_tune
        self.adaptation.initialize(n_tune)
        self.dynamics.initialize(self.adaptation.product)
        self._chain = LangevinChain(self.dynamics, np.empty(0), stream)
        if self.monitor is not None:
            self.monitor.initialize(n_draws)

    @property
    def position(self) -> np.ndarray:
        """Position in the coordinates of the model."""
        z = self._chain.z
        return self.adaptation.to_position(z) if z.size else z

    @property
    def z(self) -> np.ndarray:
        """Position in the coordinates of the adaptation; empty before the first draw."""
        return self._chain.z

    @property
    def stream(self) -> np.ndarray:
        """Random stream."""
        return self._chain.stream

    def settings(self) -> LangevinSettings:
        """Parameters of the next draw after the warm-up."""
        return self.adaptation.propose(self._chain, tune=False).settings

    def start(self, x: np.ndarray) -> None:
        """Set the position: that of the first draw, or where another step moved the variables.

        Raises
        ------
        NotFiniteError
            If the gradient is not finite there.
        """
        self._chain.z, gradient = self.adaptation.start(x)
        if not all_finite(gradient):
            raise NotFiniteError("gradient", math.nan, gradient, at_start=True)
        self._chain.refresh(self.adaptation.product)

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Do nothing: the gradient estimate takes these values."""

    def draw(self, *, tune: bool) -> dict[str, Any]:
        """Draw once.

        Returns
        -------
        dict
            Sample stats by name.

        Raises
        ------
        NotFiniteError
            If position or velocity is not finite, after the warm-up or at the first draw.
        """
        chain, adaptation = self._chain, self.adaptation
        explored = adaptation.explore(chain) if tune else None
        if explored is not None:
            chain.n += 1
            return self._stats(
                step_size=explored.step_size,
                temperature=1.0,  # velocities are drawn anew for each transition
                n_grad=explored.n_grad,
                diverging=explored.diverging and chain.n > 1,
                phase="search",
            )
        proposal = adaptation.propose(chain, tune=tune)
        n_grad = proposal.n_grad + len(proposal.minibatches)
        if not tune and self.monitor is not None:
            n_grad += self.monitor.before_draw(chain.z, proposal.minibatches)
        before = chain.z.copy() if tune or chain.n == 0 else chain.z
        temperatures, clips = self.dynamics.run(
            adaptation.logp_grad,
            proposal.minibatches,
            adaptation.product,
            chain.z,
            proposal.settings,
            chain.stream,
        )
        adaptation.logp_grad.raise_error()
        diverging = not (all_finite(temperatures) and all_finite(chain.z))
        if diverging and (not tune or chain.n == 0):
            self._check_start(before, proposal)
            if not tune:
                what = "velocity" if all_finite(chain.z) else "position"
                raise NotFiniteError(what, proposal.settings.step_size, chain.z)
        if tune:
            dims = adaptation.product.dims
            mean = float(dims @ temperatures) / adaptation.product.dim
            diverging, more = adaptation.update(chain, before, proposal, mean, diverging=diverging)
            n_grad += more
        elif self.monitor is not None:
            n_grad += self.monitor.after_draw(chain.n, chain.z, len(proposal.minibatches))
        chain.n += 1
        settings = proposal.settings
        friction = settings.block_friction
        thermostat = self.dynamics.thermostat + (
            settings.mean_friction if friction is None else friction
        )
        return self._stats(
            step_size=settings.step_size,
            temperature=math.nan if diverging else mean_of(temperatures),
            friction=settings.mean_friction,
            thermostat=mean_of(thermostat),
            largest_thermostat=float(max(thermostat)),
            noise_clips=clips,
            n_steps=len(proposal.minibatches),
            n_grad=n_grad,
            diverging=diverging,
            phase="tune" if tune else "sample",
        )

    def _stats(
        self,
        *,
        step_size: float,
        temperature: float,
        n_grad: int,
        diverging: bool,
        phase: str,
        friction: float = 0.0,
        thermostat: float = 0.0,
        largest_thermostat: float = 0.0,
        noise_clips: int = 0,
        n_steps: int = 0,
    ) -> dict[str, Any]:
        monitor = self.monitor if phase == "sample" else None
        return {
            "step_size": step_size,
            "temperature": temperature,
            "friction": friction,
            "diffusion": friction,
            "thermostat": thermostat,
            "largest_thermostat": largest_thermostat,
            "noise_clips": noise_clips,
            "n_steps": n_steps,
            "n_grad": n_grad,
            "diverging": diverging,
            "phase": phase,
            "noise_ratio": self.adaptation.noise_ratio,
            "configurational_temperature": math.nan if monitor is None else monitor.temperature,
            "whitened_gradient": math.nan if monitor is None else monitor.largest_gradient,
            **self.estimate.stats(),
        }

    def _check_start(self, before: np.ndarray, proposal: Proposal) -> None:
        """Blame the gradient where the first draw began, if it is not finite there."""
        if self._chain.n > 0:
            return
        x = self.adaptation.to_position(before)
        for minibatch in proposal.minibatches:
            gradient = self.estimate.gradient_at(x, int(minibatch))
            if not all_finite(gradient):
                raise NotFiniteError("gradient", math.nan, gradient, at_start=True)

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Diagnose draws that contradict their gradients, or gradient noise that is poorly known.

        Parameters
        ----------
        names : list of str
            Name of each coordinate.
        """
        diagnosis = None if self.monitor is None else self.monitor.diagnosis(names)
        return diagnosis or self.adaptation.noise_diagnosis(names)

    @property
    def state(self) -> dict[str, Any]:
        """State of the chain, and apart from it that of adaptation and monitor."""
        return {
            "z": self._chain.z.copy(),
            "stream": self._chain.stream.copy(),
            "n": self._chain.n,
            "n_tune": self.n_tune,
            "dynamics": self.dynamics.state,
            "adaptation": self.adaptation.state,
            "monitor": {} if self.monitor is None else self.monitor.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.n_tune = state["n_tune"]
        self._chain.z, self._chain.n = state["z"].copy(), state["n"]
        self._chain.stream = state["stream"].copy()
        self.dynamics.state, self.adaptation.state = state["dynamics"], state["adaptation"]
        if self.monitor is not None and state["monitor"]:
            self.monitor.state = state["monitor"]


def mean_of(values: np.ndarray) -> float:
    """Mean of a few numbers, in less time than NumPy takes for it."""
    return math.fsum(values) / values.size
