r"""Chains of one sampler with step sizes ε, ε/2, ε/4, … that see the same noise.

The finest chain draws; the noise of a coarser one is made of that of two finer steps. With friction
γ a velocity forgets e = exp(−γε/2) in the finer step, so that its noise over both is
(e ν₁ + ν₂)/√(1 + e²) of unit variance; without a momentum it is (ν₁ + ν₂)/√2. A coarser step takes
the minibatch of the first of the two; only where rows are walked in epochs, over which their noise
adds up to zero, each chain has a walk of its own. Differences of such chains are much less random
than the chains themselves.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.runtime.finite import all_finite
from pymc_geodesic.runtime.streams import fill_normal, new_tape
from pymc_geodesic.steps.base.adapting import AdaptingStep
from pymc_geodesic.steps.base.underdamped import LangevinStep

__all__ = ["AdaptedChains", "CoupledChains", "GivenChains", "check_coupling", "coupled_chains"]


def check_coupling(step: AdaptingStep) -> None:
    """Refuse a step whose minibatches several chains cannot share.

    Raises
    ------
    ValueError
        If rows come in a stream, or have latent variables of their own.
    """
    source = step.estimator.source
    if source.stays_in_blocks or (source.moves and source.walks_epochs):
        raise ValueError(
            "rows that come in a stream come once, and several chains need them; leave batches= out"
        )
    if step.local:
        raise ValueError("minibatches of local= cannot be shared by several chains")


def coupled_chains(step: AdaptingStep, levels: int) -> CoupledChains:
    """Make chains that go on from a step whose tuning phase is over.

    Parameters
    ----------
    step : AdaptingStep
    levels : int
        How many chains; the first has the step size of the step.

    Raises
    ------
    ValueError
        If there is no one step size that could be halved, or rows come in a stream.
    """
    check_coupling(step)
    return AdaptedChains(step, levels) if step._adapts else GivenChains(step, levels)


class CoupledChains(ABC):
    """Chains with step sizes of which each is half of the one before.

    Parameters
    ----------
    estimate : GradientEstimate
        Where minibatches come from.
    stream : ndarray of uint64
        Where the noise of the finest chain comes from.
    n_steps : int
        Inner steps of a draw of the coarsest chain.
    remembered : list of ndarray, shape (size,)
        What a velocity keeps over a step of each chain; 1 without a momentum.

    Attributes
    ----------
    step_sizes : ndarray, shape (levels,)
        Where there is no momentum time is h²/2, so that half the time is h/√2.
    """

    step_sizes: np.ndarray

    def __init__(
        self,
        estimate: GradientEstimate,
        stream: np.ndarray,
        n_steps: int,
        remembered: list[np.ndarray],
    ) -> None:
        self._estimate, self._stream = estimate, stream
        self._n_steps, self._remembered = n_steps, remembered
        source = estimate.source
        walks = source.epoch is not None and not source.moves
        self._walks = [copy.deepcopy(source.state) for _ in remembered] if walks else []

    @abstractmethod
    def _run(self, level: int, arguments: np.ndarray, tape: np.ndarray) -> None:
        """Move a chain by its inner steps of a draw."""

    @abstractmethod
    def _position(self, level: int) -> np.ndarray:
        """Coordinates of the model."""

    def advance(self) -> np.ndarray:
        """Draw once from each chain, the same time later.

        Returns
        -------
        ndarray, shape (levels, size)
            Coordinates of the model.

        Raises
        ------
        FloatingPointError
            If a chain is not finite any more.
        """
        levels = len(self._remembered)
        n_steps = self._n_steps * 2 ** (levels - 1)
        noise = np.empty((n_steps, self._remembered[0].size))
        fill_normal(self._stream, noise.reshape(-1))
        arguments = np.empty(0, dtype=np.int64)
        for level in reversed(range(levels)):
            arguments = self._arguments(level, len(noise), arguments[::2])
            self._run(level, arguments, new_tape(noise))
            if not all_finite(self._position(level)):
                message = (
                    f"the chain with step size {self.step_sizes[level]:.3g} diverged; use a "
                    "smaller step_size"
                )
                raise FloatingPointError(see(message, "not-finite"))
            if level:
                left = self._remembered[level]
                noise = (left * noise[::2] + noise[1::2]) / np.sqrt(1.0 + left**2)
        return np.stack([self._position(level) for level in range(levels)])

    def _arguments(self, level: int, n: int, shared: np.ndarray) -> np.ndarray:
        """Minibatches of the next inner steps of a chain."""
        if not self._walks:
            return shared.copy() if shared.size else self._estimate.next_arguments(n).copy()
        self._estimate.source.state = self._walks[level]
        arguments = self._estimate.next_arguments(n).copy()
        self._walks[level] = copy.deepcopy(self._estimate.source.state)
        return arguments


class AdaptedChains(CoupledChains):
    """Chains of the dynamics that tuning found, in posterior standard deviations.

    Parameters
    ----------
    step : AdaptingStep
    levels : int
    """

    def __init__(self, step: AdaptingStep, levels: int) -> None:
        adapted = step._adapted
        assert adapted is not None
        assert adapted.settings is not None
        self._gradient, self._product = adapted.gradient, adapted.product
        settings, has_momentum = adapted.settings, adapted.dynamics.has_momentum
        factor = 0.5 if has_momentum else math.sqrt(0.5)
        self._settings = [
            replace(
                settings,
                step_size=settings.step_size * factor**level,
                n_steps=settings.n_steps * 2**level,
            )
            for level in range(levels)
        ]
        self.step_sizes = np.array([each.step_size for each in self._settings])
        remembered = [
            np.exp(-each.friction * each.step_size) if has_momentum else np.ones(adapted.z.size)
            for each in self._settings
        ]
        super().__init__(step.estimator, step.stream, settings.n_steps, remembered)
        self._positions = [adapted.z.copy() for _ in range(levels)]
        self._dynamics: list[Any] = [copy.copy(adapted.dynamics) for _ in range(levels)]
        for dynamics in self._dynamics:
            dynamics.state = adapted.dynamics.state
            dynamics.refresh(self._product, adapted.z, self._stream)

    def _run(self, level: int, arguments: np.ndarray, tape: np.ndarray) -> None:
        field, position = self._gradient.noisy, self._positions[level]
        settings = self._settings[level]
        self._dynamics[level].run(field, arguments, self._product, position, settings, tape)
        field.raise_error()

    def _position(self, level: int) -> np.ndarray:
        return self._gradient.to_position(self._positions[level])


class _ToldMinibatches:
    """An estimate that is told its minibatches."""

    def __init__(self, estimate: GradientEstimate) -> None:
        self._estimate = estimate
        self.arguments = np.empty(0, dtype=np.int64)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._estimate, name)

    def prepare(self, *_: Any, **__: Any) -> tuple[np.ndarray, int]:
        """Hand out what was told; see `GradientEstimate.prepare`."""
        return self.arguments, 0


class GivenChains(CoupledChains):
    """Chains of dynamics in the coordinates of the model, as they were given or tuned.

    Parameters
    ----------
    step : AdaptingStep
    levels : int

    Raises
    ------
    ValueError
        If the step size changes from draw to draw.
    """

    _STATE = ("position", "velocity", "thermostat", "curvature_sums")

    def __init__(self, step: AdaptingStep, levels: int) -> None:
        given: Any = object.__new__(type(step))  # `copy` would compile it again
        vars(given).update(vars(step))
        if callable(given.step_size) or getattr(given, "preconditioner", None):
            raise ValueError(
                f"{type(step).__name__} has a step size that changes from draw to draw, by a "
                "schedule or a preconditioner; give a number, or leave it to tuning"
            )
        if isinstance(step, LangevinStep):
            step_size, friction = step._step_and_friction()
            given.friction = friction
            factor = 0.5
            rates = np.repeat(friction, [p.stop - p.start for p in step.product.slices.values()])
        else:
            step_size = given.tuned_step_size if given.step_size is None else given.step_size
            factor, rates = math.sqrt(0.5), np.zeros(step.product.size)
        self.step_sizes = step_size * factor ** np.arange(levels)
        remembered = [np.exp(-rates * size) for size in self.step_sizes]
        super().__init__(step.estimator, step.stream, step.n_steps, remembered)
        given._looks = None
        given.estimator = self._told = _ToldMinibatches(step.estimator)
        self._step = given
        self._states = [
            {name: copy.copy(getattr(step, name)) for name in self._STATE if hasattr(step, name)}
            for _ in range(levels)
        ]

    def _run(self, level: int, arguments: np.ndarray, tape: np.ndarray) -> None:
        step = self._step
        for name, value in self._states[level].items():
            setattr(step, name, value)
        step.step_size, step.n_steps, step.stream = self.step_sizes[level], arguments.size, tape
        self._told.arguments = arguments
        step._move_as_told()
        self._states[level] = {name: getattr(step, name) for name in self._states[level]}

    def _position(self, level: int) -> np.ndarray:
        return self._states[level]["position"]
