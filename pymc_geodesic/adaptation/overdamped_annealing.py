"""Adaptation of overdamped Langevin dynamics by annealing the variance that a step adds."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.adaptable import NotAdapted
from pymc_geodesic.adaptation.adaptation import (
    Exploration,
    LangevinChain,
    Proposal,
)
from pymc_geodesic.adaptation.annealed_parameters import DiffusionTuner
from pymc_geodesic.adaptation.langevin_parameters import LangevinSettings
from pymc_geodesic.arguments import step_size_at
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.kernels.sgld import adagrad_preconditioner
from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.monitoring.funnels import Funnel
from pymc_geodesic.runtime.fields import FieldLike
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.schedules import Schedule

FIRST_MEASUREMENTS = 20

LONGEST_PROBE = 0.1
"""Length over which curvature is measured at first, where the density is flat."""

RUNAWAY = 1e6
"""Distance, in units of that of free noise, from which a draw of the warm-up counts as diverging.

Steps that are too long for the curvature grow without bound, but take a long time to overflow.
"""


class OverdampedAnnealing:
    """Step size, user-specified or from measured curvature and noise, of Euler's method.

    Parameters
    ----------
    estimate : GradientEstimate
    product : Product
    step_size : float, callable or None
        h, a time, or a schedule; adapted by default.
    n_steps : int
        Inner steps of a draw.
    obstacle : NotAdapted
        Why coordinates are not whitened.
    """

    is_whitened = False
    noise_ratio = 1.0

    def __init__(
        self,
        estimate: GradientEstimate,
        product: Product,
        *,
        step_size: float | Schedule | None,
        n_steps: int,
        obstacle: NotAdapted,
    ) -> None:
        self._estimate, self.product = estimate, product
        self._given, self._n_steps = step_size, n_steps
        self._tuner = DiffusionTuner(epoch=estimate.source.epoch)
        self._obstacle, self.needs_warm_up = obstacle, step_size is None
        self._has_tuned = False
        self.initialize(1)

    def __repr__(self) -> str:
        """Describe what is adapted."""
        if self._given is not None:
            return "adapts nothing: the step size is user-specified."
        return f"adapts {self._obstacle.instead_of_whitening('step size')}"

    @property
    def is_tuned(self) -> bool:
        """Whether a warm-up has chosen the step size."""
        return self._has_tuned

    @property
    def minibatch_remedy(self) -> str:
        """What to do about too much gradient noise."""
        return self._obstacle.minibatch_remedy

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `LangevinAdaptation`."""
        self._has_tuned = self._has_tuned and n_tune == 0
        if n_tune or not self._tuner.has_measured:
            self._tuner.reset(n_tune)
            self._step_size = 0.0
        self._direction = self._last_gradient = self._last_difference = np.empty(0)
        self._compared = False
        self._settings: LangevinSettings | None = None

    @property
    def is_constant(self) -> bool:
        """Whether the step size is no schedule."""
        return not callable(self._given)

    @property
    def logp_grad(self) -> FieldLike:
        """Gradient estimate in the coordinates of the model."""
        return self._estimate.field

    def start(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates of a position; see `LangevinAdaptation`."""
        self._last_gradient = np.empty(0)
        return x, np.empty(0)

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""
        return z

    def explore(self, chain: LangevinChain) -> Exploration | None:
        """Explore nothing."""
        return None

    def funnel(self, in_model: Collection[tuple[str, str]]) -> Funnel | None:
        """Find nothing: only whitened coordinates show it."""
        return None

    def noise_diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Find nothing: no noise is measured by coordinate."""
        return None

    def propose(self, chain: LangevinChain, *, tune: bool) -> Proposal:
        """Measure curvature, and choose the step by it; see `LangevinAdaptation`."""
        minibatches, n_grad = self._estimate.prepare(
            chain.z, self._n_steps, chain.stream, tune=tune
        )
        self._compared, self._squares = False, squares_of(chain).copy()
        if self._given is None and (tune or not self._tuner.has_measured):
            n_grad += self._measure(chain, minibatches)
        given = self._given
        step_size = step_size_at(given, chain.n) if callable(given) else given
        if step_size is None:
            step_size = self._step_size
        if self._settings is None or step_size != self._settings.step_size:
            friction = np.zeros(self.product.size)
            self._settings = LangevinSettings(step_size, friction, np.empty(0), self._n_steps)
        return Proposal(self._settings, minibatches, n_grad)

    def update(
        self,
        chain: LangevinChain,
        before: np.ndarray,
        proposal: Proposal,
        temperature: float,
        *,
        diverging: bool,
    ) -> tuple[bool, int]:
        """Halve the step after a divergence; see `LangevinAdaptation`."""
        self._has_tuned = True
        step_size, n_steps = proposal.settings.step_size, proposal.minibatches.size
        moved = 0.0 if diverging else float(np.abs(chain.z - before).max())
        if diverging or moved > RUNAWAY * step_size * math.sqrt(n_steps):
            self._tuner.shrink()
            chain.z = before
            squares_of(chain)[:] = self._squares
            chain.refresh(self.product)
            self._last_gradient = np.empty(0)
            return True, 0
        if self._given is None and not (self._compared and n_steps == 1):
            return False, self._remember_gradient(chain.z, int(proposal.minibatches[-1]))
        return False, 0

    def _observe(self, chain: LangevinChain, minibatch: int, *, counts: bool = True) -> None:
        """Measure curvature and gradient noise here, in the coordinates θ/√P.

        The square of the product of two differences of gradients estimates tr S² if the differences
        are independent: no minibatch may enter both.
        """
        x, squares = chain.z, squares_of(chain)
        gradient = self._estimate.gradient_at(x, minibatch)
        root: np.ndarray | float = 1.0
        if squares.size:
            root = np.sqrt([adagrad_preconditioner(square) for square in squares + gradient**2])
        if self._direction.size == 0:
            self._direction = np.empty(self.product.size)
            fill_normal(chain.stream, self._direction)
        direction = self._direction / math.sqrt(self._direction @ self._direction)
        length = self._step_size
        if not length:
            # over this length the density changes by a factor e, and some kinks are likely crossed
            size = root * gradient
            length = 1.0 / max(math.sqrt(size @ size), 1.0 / LONGEST_PROBE)
        moved = self._estimate.gradient_at(x + length * root * direction, minibatch)
        change = root * (gradient - moved) / length
        curvature = float(direction @ change)
        noise = None
        self._compared = self._last_gradient.size > 0
        if self._compared:
            difference = root * (gradient - self._last_gradient)
            if self._last_difference.size:
                noise = np.array(
                    [
                        0.5 * difference @ difference,
                        0.25 * (difference @ self._last_difference) ** 2,
                    ]
                )
            self._last_difference = difference
            self._last_gradient = np.empty(0)
        self._tuner.observe(curvature, noise, counts)
        if math.isfinite(curvature):
            # a small part of the old direction keeps the power iteration alive between kinks
            self._direction = change + 1e-3 * max(abs(curvature), 1e-12) * direction
        else:
            self._direction = self._last_difference = np.empty(0)

    def _remember_gradient(self, x: np.ndarray, minibatch: int) -> int:
        """Keep the gradient of a minibatch, to compare with that of the next one.

        Return the number of gradient evaluations.
        """
        if self._estimate.source.is_everything:
            return 0
        self._last_gradient = self._estimate.gradient_at(x, minibatch)
        return 1

    def _measure(self, chain: LangevinChain, minibatches: np.ndarray) -> int:
        """Choose h for this draw; return the number of gradient evaluations."""
        n_grad = 2
        if not self._tuner.has_measured:
            for i in range(FIRST_MEASUREMENTS):
                minibatch = int(minibatches[i % minibatches.size])
                self._observe(chain, minibatch, counts=False)
                if not self._compared and i + 1 < minibatches.size:
                    n_grad += self._remember_gradient(chain.z, minibatch)
            self._last_difference = np.empty(0)
            n_grad += 2 * FIRST_MEASUREMENTS
            if not self._estimate.source.is_everything:
                # with few inner steps nothing is known of the noise yet: all may be noise
                gradient = self._estimate.gradient_at(chain.z, int(minibatches[0]))
                square = float(gradient @ gradient)
                self._tuner.suppose_noise(np.array([square, square**2]))
                n_grad += 1
        self._observe(chain, int(minibatches[0]))
        self._step_size = self._tuner.step_size()
        return n_grad

    @property
    def state(self) -> dict[str, Any]:
        """What was measured and chosen."""
        named = {name: copy.deepcopy(getattr(self, name)) for name in self._STATE}
        return named | {"tuner": copy.deepcopy(self._tuner.state)}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        for name in self._STATE:
            setattr(self, name, copy.deepcopy(state[name]))
        self._tuner.state = copy.deepcopy(state["tuner"])

    _STATE = ("_step_size", "_direction", "_last_gradient", "_last_difference", "_has_tuned")


def squares_of(chain: LangevinChain) -> np.ndarray:
    """AdaGrad's sums of squared gradients, which the dynamics hold; empty without."""
    squares: np.ndarray = chain.dynamics.squares
    return squares
