"""Hamiltonian Monte Carlo: a Markov chain with Metropolis correction on a vector."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.trajectories import TrajectoryAdaptation
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.kernels import gmc
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.kernels.gmc import Chains, Record
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.finite import all_finite
from pymc_geodesic.samplers.sampler import NotFiniteError

__all__ = ["HMCSampler"]


class HMCSampler:
    """Geodesic Hamiltonian Monte Carlo with the trajectories of an adaptation.

    One draw is one transition of `pymc_geodesic.kernels.gmc`: a velocity from N(0, I) on the
    tangent space, leapfrog steps along geodesics, and acceptance with probability min(1, exp(−ΔH)).

    Parameters
    ----------
    adaptation : TrajectoryAdaptation
    estimate : GradientEstimate, optional
        What has sample stats of its own, the draws of local variables.

    Attributes
    ----------
    z : ndarray, shape (size,)
        Position in the coordinates of the adaptation; empty before the first draw.
    stream : ndarray of uint64, shape (2,)
        Random stream.
    """

    def __init__(
        self, adaptation: TrajectoryAdaptation, estimate: GradientEstimate | None = None
    ) -> None:
        self.adaptation, self._estimate = adaptation, estimate
        size = adaptation.product.size
        self._record = Record(1, np.empty((0, size)), np.empty(1), np.empty((2, 1)))
        self._current = np.full(size + 1, math.nan)
        prepare(gmc)
        self.initialize(np.zeros(2, dtype=np.uint64), 0, 0)

    def initialize(self, stream: np.ndarray, n_tune: int, n_draws: int) -> None:
        """Begin a chain; see `Sampler`."""
        self.stream, self._n_tune = stream, n_tune
        self.adaptation.initialize(n_tune)
        self.z = np.empty(0)
        self._n = self._n_grad = 0
        self._current[:] = math.nan

    @property
    def position(self) -> np.ndarray:
        """Position in the coordinates of the model; empty before the first draw."""
        return self.adaptation.to_position(self.z) if self.z.size else self.z

    def start(self, x: np.ndarray) -> None:
        """Set the position.

        Raises
        ------
        NotFiniteError
            If the gradient is not finite there.
        """
        self.z, gradient, self._n_grad = self.adaptation.start(
            x, self.stream, first=self._n == 0
        )
        self._current[:] = math.nan
        if not all_finite(gradient):
            raise NotFiniteError("gradient", math.nan, gradient, at_start=True)

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Do nothing: the gradient estimate takes these values."""

    def draw(self, *, tune: bool) -> dict[str, Any]:
        """Draw once, and return sample stats by name.

        Raises
        ------
        NotFiniteError
            If the log-density is not finite where the chain starts.
        """
        adaptation = self.adaptation
        minibatch, trajectory, n_grad = adaptation.propose(self.z, self.stream, tune=tune)
        if math.isnan(trajectory.step_size):
            raise NotFiniteError("gradient", trajectory.step_size, self.z)
        if not adaptation.is_fixed:
            self._current[:] = math.nan
        logp_grad = adaptation.logp_grad
        divergences, more = gmc.call(
            logp_grad.callback,
            minibatch,
            adaptation.product.space,
            Chains(1, self.z, self._current),
            trajectory,
            self.stream,
            self._record,
        )
        logp_grad.raise_error()
        n_grad += more + self._n_grad
        self._n_grad = 0
        if divergences and self._n == 0:
            self._check_start(minibatch)
        acceptance = float(self._record.acceptance[0])
        if tune:
            z, more = adaptation.update(self.z, acceptance)
            n_grad += more
            if z is not None:
                self.z = z
                self._current[:] = math.nan
        self._n += 1
        return {
            "step_size": trajectory.step_size,
            "acceptance_rate": acceptance,
            "diverging": divergences > 0,
            "n_grad": n_grad,
            "lp": float(self._record.energies[0, 0]),
            "energy": float(self._record.energies[1, 0]),
            **({} if self._estimate is None else self._estimate.stats()),
        }

    def _check_start(self, minibatch: int) -> None:
        """Raise an error where the log-density is not finite, which no proposal would leave."""
        output = np.empty(self.z.size + 1)
        field = self.adaptation.logp_grad
        evaluate(field.address, self.z, minibatch, field.context, output)
        if not math.isfinite(output[-1]):
            raise NotFiniteError("log-density", math.nan, np.empty(0), at_start=True)

    def funnel(self, names: Sequence[str]) -> Diagnosis | None:
        """Describe a variable that sets the scale of another, as the warm-up has shown it."""
        found = self.adaptation.funnel()
        return None if found is None else Diagnosis(found.complaint, "funnel")

    @property
    def state(self) -> dict[str, Any]:
        """State of the chain, and apart from it that of the adaptation."""
        return {
            "z": self.z.copy(),
            "stream": self.stream.copy(),
            "n": self._n,
            "n_grad": self._n_grad,
            "current": self._current.copy(),
            "adaptation": self.adaptation.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.adaptation.state = state["adaptation"]
        self.z, self.stream = state["z"].copy(), state["stream"].copy()
        self._n, self._n_grad = state["n"], state["n_grad"]
        self._current[:] = state["current"]
