"""Hamiltonian Monte Carlo sampler: a Markov chain on a vector, with Metropolis correction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.adaptation import TrajectoryAdaptation
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.kernels import gmc
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.kernels.gmc import Chains, Record
from pymc_geodesic.runtime.gradient_functions import NotFiniteError, evaluate
from pymc_geodesic.runtime.numerics import all_finite
from pymc_geodesic.runtime.streams import uniform


class HMCSampler:
    """Geodesic Hamiltonian Monte Carlo with adapted trajectories.

    One draw is one transition of `pymc_geodesic.kernels.gmc`, algorithm 1 of Byrne and Girolami
    (2013): a velocity from N(0, I) on the tangent space, leapfrog steps along geodesics, and
    acceptance with probability min(1, exp(−ΔH)).

    Parameters
    ----------
    adaptation : TrajectoryAdaptation
        Coordinates, step size and number of leapfrog steps.
    estimator : GradientEstimator, optional
        Gradient in the coordinates of the model, whose sample stats are reported.
    square_frames : sequence of (slice, int)
        Coordinates of each orthogonal n × n matrix, and n; see `_flip_columns`.

    Attributes
    ----------
    z : ndarray, shape (size,)
        Position in the coordinates of the adaptation; empty before `start`.
    stream : ndarray of uint64, shape (2,)
        Random stream.
    """

    ineligibility = None

    def __init__(
        self,
        adaptation: TrajectoryAdaptation,
        estimator: GradientEstimator | None = None,
        *,
        square_frames: Sequence[tuple[slice, int]] = (),
    ) -> None:
        self.adaptation, self._estimator = adaptation, estimator
        self._square_frames = square_frames
        size = adaptation.product.size
        # memory that the kernel writes to: no positions, one acceptance rate, lp and energy
        self._record = Record(1, np.empty((0, size)), np.empty(1), np.empty((2, 1)))
        # gradient and log-density at z, from the last transition; NaN if not evaluated yet
        self._current = np.full(size + 1, math.nan)
        prepare(gmc)
        self.initialize(np.zeros(2, dtype=np.uint64), 0, 0)

    def initialize(self, stream: np.ndarray, n_tune: int, n_draws: int) -> None:
        """Begin a chain; see `Sampler`."""
        self.stream = stream
        self.adaptation.initialize(n_tune)
        self.z = np.empty(0)
        self._n = 0  # draws so far, warm-up included
        self._n_grad = 0  # evaluations by `start`, added to the stats of the next draw
        self._current[:] = math.nan
        # in the coordinates of the model; None if not computed yet
        self._position: np.ndarray | None = self.z

    @property
    def position(self) -> np.ndarray:
        """Position in the coordinates of the model; empty before `start`."""
        if self._position is None:
            self._position = self.adaptation.to_position(self.z)
        return self._position

    def start(self, x: np.ndarray) -> None:
        """Set the position; see `Sampler`."""
        # the gradient is empty except at the first position of a chain with a warm-up
        self.z, gradient, self._n_grad = self.adaptation.start(x, first=self._n == 0)
        self._current[:] = math.nan
        self._position = None
        if not all_finite(gradient):
            raise NotFiniteError("gradient", None, gradient, at_start=True)

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Do nothing: the gradient estimate stores the values of other variables."""

    def draw(self, *, tune: bool) -> dict[str, Any]:
        """Generate one draw, and return its sample stats by name.

        A draw of the warm-up for which the adaptation has no use repeats the last one.

        1. Propose sign flips of columns of orthogonal matrices, if there are any.
        2. Get step size and number of leapfrog steps from the adaptation.
        3. Run one transition of the kernel.
        4. In the warm-up, adapt the step size, and at the end of a window the coordinates.

        Raises
        ------
        NotFiniteError
            If the gradient or log-density is not finite at the starting point.
        """
        adaptation = self.adaptation
        if tune and adaptation.is_settled:
            return self._repeated_draw()
        before = self.z.copy()
        n_grad, self._n_grad = self._n_grad + self._flip_columns(), 0
        trajectory, more = adaptation.propose(self.z, self.stream, tune=tune)
        n_grad += more
        if math.isnan(trajectory.step_size):
            raise NotFiniteError("gradient", trajectory.step_size, self.z)
        if not adaptation.can_reuse_gradient:
            self._current[:] = math.nan
        logp_grad = adaptation.logp_grad
        divergences, more = gmc.call(
            logp_grad.callback,
            0,  # all rows
            adaptation.product.space,
            Chains(1, self.z, self._current),
            trajectory,
            self.stream,
            self._record,
        )
        logp_grad.raise_error()
        n_grad += more
        if not np.array_equal(self.z, before):  # accepted: the proposal was evaluated last
            self._position = adaptation.evaluated_position()
        if divergences and self._n == 0:
            self._check_start()
        acceptance = float(self._record.acceptance[0])
        if tune:
            z, more = adaptation.update(self.z, self._current[:-1], acceptance)
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
            **({} if self._estimator is None else self._estimator.stats()),
        }

    def _repeated_draw(self) -> dict[str, Any]:
        """Return the sample stats of a draw that repeats the last one."""
        trajectory, _ = self.adaptation.propose(self.z, self.stream.copy(), tune=False)
        return {
            "step_size": trajectory.step_size,
            "acceptance_rate": math.nan,
            "diverging": False,
            "n_grad": 0,
            "lp": float(self._current[-1]),
            "energy": math.nan,
            **({} if self._estimator is None else self._estimator.stats()),
        }

    def _flip_columns(self) -> int:
        """Propose to flip the sign of a random column of every square frame, in place.

        Orthogonal matrices of determinant +1 and −1 are two components, and no trajectory leads
        from one to the other. The proposal is its own inverse and preserves the surface measure,
        so that it is accepted with probability min(1, π(proposal) / π(frame)).

        Returns
        -------
        int
            Number of gradient evaluations.
        """
        if not self._square_frames:
            return 0
        log_density = self._log_density_at(self.z)
        for part, n in self._square_frames:
            proposal = self.z.copy()
            proposal[part].reshape(n, n)[:, int(n * uniform(self.stream))] *= -1.0
            proposed = self._log_density_at(proposal)
            if math.log(uniform(self.stream)) < proposed - log_density:
                self.z, log_density = proposal, proposed
                self._current[:] = math.nan
        return 1 + len(self._square_frames)

    def _log_density_at(self, z: np.ndarray) -> float:
        output = np.empty(z.size + 1)
        logp_grad = self.adaptation.logp_grad
        evaluate(logp_grad.address, z, 0, logp_grad.context, output)
        logp_grad.raise_error()
        return float(output[-1])

    def _check_start(self) -> None:
        """Raise an error if the log-density is not finite at the starting point."""
        if not math.isfinite(self._log_density_at(self.z)):
            raise NotFiniteError("log-density", None, np.empty(0), at_start=True)

    @property
    def state(self) -> dict[str, Any]:
        """State of the chain, including that of the adaptation."""
        return {
            "z": self.z.copy(),
            "stream": self.stream.copy(),
            "n": self._n,
            "n_grad": self._n_grad,
            "current": self._current.copy(),
            "position": None if self._position is None else self._position.copy(),
            "adaptation": self.adaptation.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.adaptation.state = state["adaptation"]
        self.z, self.stream = state["z"].copy(), state["stream"].copy()
        self._position = None if state["position"] is None else state["position"].copy()
        self._n, self._n_grad = state["n"], state["n_grad"]
        self._current[:] = state["current"]
