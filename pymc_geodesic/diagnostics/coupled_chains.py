r"""Chains of one sampler with step sizes ε, ε/2, ε/4, … that share their noise.

The finest chain draws; the noise of a coarser one is a combination of that of two finer steps. With
friction γ a velocity keeps e = exp(−γε/2) over the finer step, so that its noise over both is
(e ν₁ + ν₂)/√(1 + e²), of unit variance; without a momentum it is (ν₁ + ν₂)/√2. A coarser step takes
the minibatch of the first of the two; only where each epoch visits all rows, over which their noise
adds up to zero, each chain has an order of its own. Differences of such chains vary much less than
the chains themselves.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np

from pymc_geodesic.failure_modes import see
from pymc_geodesic.runtime.numerics import all_finite
from pymc_geodesic.runtime.streams import fill_normal, new_tape
from pymc_geodesic.samplers.langevin import LangevinSampler


def check_coupling(sampler: LangevinSampler) -> None:
    """Raise an error where several chains cannot share minibatches.

    Raises
    ------
    ValueError
        If rows come in a stream, or have latent variables of their own.
    """
    source = sampler.estimate.source
    if source.stays_in_blocks or (source.moves and source.walks_epochs):
        raise ValueError(
            "rows that come in a stream come once, and several chains need them; leave batches= out"
        )
    if sampler.estimate.is_local:
        raise ValueError("minibatches of local= cannot be shared by several chains")


class CoupledChains:
    """Chains with step sizes of which each is half of the one before.

    Parameters
    ----------
    sampler : LangevinSampler
        It has drawn since its warm-up; the chains start from its state.
    levels : int
        How many chains; the first has the step size of the sampler.

    Attributes
    ----------
    step_sizes : ndarray, shape (levels,)
        Without a momentum time is h²/2, so that half the time is h/√2.

    Raises
    ------
    ValueError
        If the step size changes from draw to draw, or minibatches cannot be shared.
    """

    def __init__(self, sampler: LangevinSampler, levels: int) -> None:
        check_coupling(sampler)
        self._adaptation, self._estimate = sampler.adaptation, sampler.estimate
        if not self._adaptation.is_constant or np.size(getattr(sampler.dynamics, "squares", ())):
            raise ValueError(
                "the step size changes from draw to draw, by a schedule or a preconditioner; give "
                "a number, or leave it to tuning"
            )
        settings = sampler.parameters
        assert settings is not None
        has_momentum = sampler.dynamics.has_momentum
        factor = 0.5 if has_momentum else math.sqrt(0.5)
        self._settings = [
            replace(settings, step_size=settings.step_size * factor**level, n_steps=2**level)
            for level in range(levels)
        ]
        self.step_sizes = np.array([each.step_size for each in self._settings])
        self._remembered = [
            np.exp(-each.friction * each.step_size)
            if has_momentum
            else np.ones(settings.friction.size)
            for each in self._settings
        ]
        self._n_steps, self._stream = settings.n_steps, sampler.stream
        self._positions = [sampler.z.copy() for _ in range(levels)]
        self._dynamics = [copy.deepcopy(sampler.dynamics) for _ in range(levels)]
        source = self._estimate.source
        has_epochs = source.epoch is not None and not source.moves
        self._orders = [copy.deepcopy(source.state) for _ in range(levels)] if has_epochs else []

    def advance(self) -> np.ndarray:
        """Draw once from each chain, the same time later.

        Returns
        -------
        ndarray, shape (levels, size)
            Coordinates of the model.

        Raises
        ------
        FloatingPointError
            If a chain is not finite.
        """
        levels = len(self._settings)
        noise = np.empty((self._n_steps * 2 ** (levels - 1), self._positions[0].size))
        fill_normal(self._stream, noise.reshape(-1))
        minibatches = np.empty(0, dtype=np.int64)
        for level in reversed(range(levels)):
            minibatches = self._minibatches(level, len(noise), minibatches[::2])
            logp_grad = self._adaptation.logp_grad
            self._dynamics[level].run(
                logp_grad,
                minibatches,
                self._adaptation.product,
                self._positions[level],
                self._settings[level],
                new_tape(noise),
            )
            logp_grad.raise_error()
            if not all_finite(self._positions[level]):
                message = (
                    f"the chain with step size {self.step_sizes[level]:.3g} diverged; use a "
                    "smaller step_size"
                )
                raise FloatingPointError(see(message, "not-finite"))
            if level:
                kept = self._remembered[level]
                noise = (kept * noise[::2] + noise[1::2]) / np.sqrt(1.0 + kept**2)
        return np.stack([self._adaptation.to_position(z) for z in self._positions])

    def _minibatches(self, level: int, n: int, shared: np.ndarray) -> np.ndarray:
        """Minibatches of the next inner steps of a chain."""
        if not self._orders:
            return shared.copy() if shared.size else self._estimate.next_minibatches(n).copy()
        self._estimate.source.state = self._orders[level]
        minibatches = self._estimate.next_minibatches(n).copy()
        self._orders[level] = copy.deepcopy(self._estimate.source.state)
        return minibatches
