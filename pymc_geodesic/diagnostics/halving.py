r"""Bias of a step size, estimated by coupled chains with step sizes ε, ε/2 and ε/4.

The noise of a coarser chain is a combination of that of two finer steps. With friction γ the
velocity decays by e = exp(−γε/2) over the finer step, so that the noise over both is (e ν₁ +
ν₂)/√(1 + e²), of unit variance; without a momentum it is (ν₁ + ν₂)/√2. A coarser step uses the
minibatch of the first of the two finer steps. If each epoch visits all rows, over which gradient
noise sums to zero, each chain has its own minibatch order instead. The differences of coupled
chains vary much less than the chains.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import xarray as xr
from rich.progress import track

from pymc_geodesic.arguments import check_count
from pymc_geodesic.diagnostics.posterior_draws import autocorrelation_times
from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.scores import Model, model_of
from pymc_geodesic.runtime.numerics import all_finite
from pymc_geodesic.runtime.streams import fill_normal, new_tape
from pymc_geodesic.samplers.langevin import LangevinSampler
from pymc_geodesic.steps.step import GeodesicStep

SIGNIFICANCE = 2.0
"""Standard errors below which a difference is not significant."""

DISCARDED = 0.1
"""Fraction of the draws, at the beginning, in which the chains depend on their common start."""


def check_coupling(sampler: LangevinSampler) -> None:
    """Validate that several chains can share minibatches.

    Raises
    ------
    ValueError
        If rows are streamed, or have local variables.
    """
    source = sampler.estimator.source
    if source.stays_in_blocks or (source.replaces_arrays and source.has_epochs):
        raise ValueError("coupled chains cannot share the rows of a stream. Omit batches=.")
    if sampler.estimator.is_local:
        raise ValueError("coupled chains cannot share minibatches of local variables. Omit local=.")


class CoupledChains:
    """Chains with coupled noise, each with half the step size of the one before.

    Parameters
    ----------
    sampler : LangevinSampler
        After its first draw since warm-up; the chains start from its state.
    levels : int
        Number of chains; the first has the step size of the sampler.

    Attributes
    ----------
    step_sizes : ndarray, shape (levels,)
        Without a momentum the time of a step is h²/2, so that half of it is h/√2.

    Raises
    ------
    ValueError
        If the step size changes from draw to draw, or minibatches cannot be shared.
    """

    def __init__(self, sampler: LangevinSampler, levels: int) -> None:
        check_coupling(sampler)
        self._adaptation, self._estimator = sampler.adaptation, sampler.estimator
        if not self._adaptation.is_constant or np.size(getattr(sampler.dynamics, "squares", ())):
            raise ValueError(
                "the step size changes from draw to draw, by a schedule or a preconditioner. Set "
                "step_size= to a number, or omit it."
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
        self._decay = [
            np.exp(-each.friction * each.step_size)
            if has_momentum
            else np.ones(settings.friction.size)
            for each in self._settings
        ]
        self._n_steps, self._stream = settings.n_steps, sampler.stream
        self._positions = [sampler.z.copy() for _ in range(levels)]
        self._dynamics = [copy.deepcopy(sampler.dynamics) for _ in range(levels)]
        source = self._estimator.source
        has_epochs = source.epoch is not None and not source.replaces_arrays
        self._orders = [copy.deepcopy(source.state) for _ in range(levels)] if has_epochs else []

    def advance(self) -> np.ndarray:
        """Advance each chain by the same integration time.

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
                kept = self._decay[level]
                noise = (kept * noise[::2] + noise[1::2]) / np.sqrt(1.0 + kept**2)
        return np.stack([self._adaptation.to_position(z) for z in self._positions])

    def _minibatches(self, level: int, n: int, shared: np.ndarray) -> np.ndarray:
        """Minibatches of the next inner steps of a chain."""
        if not self._orders:
            return shared.copy() if shared.size else self._estimator.next_minibatches(n).copy()
        self._estimator.source.state = self._orders[level]
        minibatches = self._estimator.next_minibatches(n).copy()
        self._orders[level] = copy.deepcopy(self._estimator.source.state)
        return minibatches


@dataclass(frozen=True)
class StepHalving:
    """Change of means and standard deviations with the step size, and their extrapolation to zero.

    Attributes
    ----------
    table : xarray.Dataset
        For each coordinate, along ``quantity``,

        - ``mean``, ``sd``: at the given step size;
        - ``delta_mean``, ``delta_mean_se``: decrease of the mean by halving the step size, in
          standard deviations, and its standard error;
        - ``delta_log_sd``, ``delta_log_sd_se``: the same for the logarithm of the standard
          deviation;
        - ``order``: log₂ of the change from ε to ε/2 over that from ε/2 to ε/4, for the more
          significant of mean and second moment; NaN if either change is not significant;
        - ``mean_extrapolated``, ``sd_extrapolated``: at step size zero; NaN if no change is
          significant.
    step_sizes : tuple of float
        Of the chains; in adapted coordinates, in posterior standard deviations.
    n_draws : int
        Draws of each chain that were used.
    order : int or None
        Order of the extrapolation.
    correlation : float
        Mean correlation of the chains with the two largest step sizes.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> from pymc_geodesic.diagnostics import step_halving
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x")
    >>> halving = step_halving(model, pg.SGLD, draws=200, tune=100, random_seed=1)
    >>> len(halving.step_sizes), halving.n_draws
    (3, 180)
    """

    table: xr.Dataset = field(repr=False)
    step_sizes: tuple[float, ...]
    n_draws: int
    order: int | None
    correlation: float

    def __str__(self) -> str:
        table = self.table
        steps = " and ".join(f"{each:.3g}" for each in self.step_sizes[:2])
        lines = [f"Step sizes {steps}, {self.n_draws} draws each:"]
        for what, unit in (("mean", "posterior sds"), ("log_sd", "of log sd")):
            change = table[f"delta_{what}"].values
            error = table[f"delta_{what}_se"].values
            significant = np.abs(change) > SIGNIFICANCE * error
            shown = np.abs(change) * (significant if significant.any() else 1.0)
            largest = int(np.argmax(shown))
            verdict = "" if significant.any() else ", not significant: no extrapolation"
            name = table["quantity"].values[largest]
            lines.append(f"  {name}: {change[largest]:+.2g} ± {error[largest]:.1g} {unit}{verdict}")
        if self.order is None:
            lines.append("  no significant order of convergence: no extrapolation")
        return "\n".join(lines)


def step_halving(
    model: Model | None,
    step: GeodesicStep | Callable[[], GeodesicStep],
    *,
    draws: int = 2000,
    tune: int = 1000,
    order: Literal[1, 2] | None = None,
    random_seed: int | None = None,
    progressbar: bool = False,
) -> StepHalving:
    r"""Run a sampler without Metropolis correction at ε, ε/2 and ε/4, and compare.

    The sampler is tuned once. Then three chains continue for the same integration time, with the
    same metric, centering point and friction, and coupled noise: that of a larger step is a
    combination of the noise of the two smaller ones. The differences of these chains vary much less
    than the chains themselves, and estimate the bias of the step size.

    Moments f are extrapolated to ε = 0, 2f(ε/4) − f(ε/2) for order one and (4f(ε/4) − f(ε/2))/3 for
    order two, and standard deviations are computed from extrapolated moments. Moments that change
    by less than two standard errors are not extrapolated.

    Parameters
    ----------
    model : pymc.Model or None
        By default the model of the context.
    step : step method or callable
        `SGGMC`, `gSGNHT`, `SSGNHT`, `SGLD` or `SSGLD` for all free variables, with a tuned or
        user-specified step size; or a function that constructs it in the context of the model. It
        is tuned again.
    draws, tune : int
        Draws of each chain, of which the first tenth is discarded, and of the tuning phase.
    order : {1, 2}, optional
        Order of convergence. By default the median over the coordinates with significant changes.
    random_seed : int, optional
    progressbar : bool

    Returns
    -------
    StepHalving

    Raises
    ------
    ValueError
        If the step has a Metropolis correction, leaves out variables, has a step size that changes
        from draw to draw, ``local=`` or ``batches=``.
    FloatingPointError
        If a chain diverges.

    Notes
    -----
    It needs seven times the gradients of one chain. Quantities are the coordinates of the sampler:
    unit vectors and frames themselves, other variables in PyMC's unconstrained values. Errors that
    do not depend on the step size, such as slow mixing, are not detected.

    References
    ----------
    Talay, Tubaro (1990), Expansion of the global error for numerical schemes solving stochastic
    differential equations.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> from pymc_geodesic.diagnostics import step_halving
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x", shape=2)
    >>> halving = step_halving(model, pg.SGGMC, draws=500, tune=200, random_seed=1)
    >>> halving.table["quantity"].values.tolist(), halving.correlation > 0.9
    (['x[0]', 'x[1]'], True)
    """
    check_count("draws", draws)
    check_count("tune", tune)
    if order not in (None, 1, 2):
        raise ValueError(f"order={order!r} is unknown; choose 1, 2 or None")
    model = model_of(model)
    if not (callable(step) or isinstance(step, GeodesicStep)):
        raise ValueError(
            "step_halving(model, step) takes a step method or a function that returns one, got "
            f"{type(step).__name__}"
        )
    with model:
        made = step if isinstance(step, GeodesicStep) else step()
    sampler = getattr(made, "sampler", None)
    if not isinstance(sampler, LangevinSampler):
        raise ValueError(
            f"{type(made).__name__} has no bias due to its step size: it has a Metropolis "
            "correction or an exact transition. Use SGGMC, gSGNHT, SSGNHT, SGLD or SSGLD"
        )
    check_coupling(sampler)
    left_out = {rv.name for rv in model.free_RVs} - {variable.name for variable in made.variables}
    if left_out:
        raise ValueError(
            f"{type(made).__name__} leaves {sorted(left_out)} to other steps. Assign it all free "
            "variables"
        )
    rng = np.random.default_rng(random_seed)
    made.setup_chain(rng, tune, draws)
    point = model.initial_point(random_seed=int(rng.integers(2**31)))
    for _ in track(range(tune), description="Tuning", disable=not progressbar):
        point, _ = made.step(point)
    made.stop_tuning()
    made.step(point)
    chains = CoupledChains(sampler, 3)
    steps = track(range(draws), description="Halving", disable=not progressbar)
    drawn = np.stack([chains.advance() for _ in steps], axis=1)
    names = [
        name
        for variable in made.variables
        for name in _coordinate_names(
            variable.name if variable.on_manifold else variable.value_name, variable.shape
        )
    ]
    return compare_chains(drawn[:, int(DISCARDED * draws) :], names, chains.step_sizes, order)


def compare_chains(
    drawn: np.ndarray, names: list[str], step_sizes: np.ndarray, order: int | None = None
) -> StepHalving:
    """Compare coupled draws.

    Parameters
    ----------
    drawn : ndarray, shape (3, draw, size)
    names : list of str
        Of the coordinates.
    step_sizes : ndarray, shape (3,)
    order : {1, 2}, optional
    """
    mean, sd = drawn.mean(axis=1), drawn.std(axis=1)
    scale, center = sd[-1], mean[-1]
    moments = np.stack([drawn - center, (drawn - center) ** 2])
    moments /= np.stack([scale, scale**2])[:, np.newaxis, np.newaxis]
    changes = moments[:, :-1] - moments[:, 1:]
    change, change_error = changes.mean(axis=2), _errors(changes)
    significant = np.abs(change) > SIGNIFICANCE * change_error
    squares = 0.5 * ((drawn - mean[:, np.newaxis]) / sd[:, np.newaxis]) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        both = significant[:, 0] & significant[:, 1] & (change[:, 0] * change[:, 1] > 0.0)
        orders = np.where(both, np.log2(change[:, 0] / change[:, 1]), np.nan)
        significance = np.where(both, np.abs(change[:, 1] / change_error[:, 1]), -1.0)
    best = np.take_along_axis(orders, significance.argmax(axis=0)[np.newaxis], axis=0)[0]
    if order is None and both.any():
        order = int(np.clip(round(float(np.nanmedian(best))), 1, 2))
    rest = {None: math.nan, 1: 1.0, 2: 1.0 / 3.0}[order]
    last = moments[:, -1].mean(axis=1)
    limit = last - np.where(significant[:, 1], rest * change[:, 1], 0.0)
    variance = np.where(significant[:, 1].any(axis=0), limit[1] - limit[0] ** 2, np.nan)
    columns = {
        "mean": mean[0],
        "sd": sd[0],
        "delta_mean": change[0, 0],
        "delta_mean_se": change_error[0, 0],
        "delta_log_sd": np.log(sd[0] / sd[1]),
        "delta_log_sd_se": _errors(squares[np.newaxis, 0] - squares[np.newaxis, 1])[0],
        "order": best,
        "mean_extrapolated": center + scale * np.where(significant[0, 1], limit[0], np.nan),
        "sd_extrapolated": scale * np.sqrt(np.where(variance > 0.0, variance, np.nan)),
    }
    table = xr.Dataset(
        {name: ("quantity", column) for name, column in columns.items()}, {"quantity": names}
    )
    first, second = (drawn[level] - mean[level] for level in range(2))
    correlation = float(np.mean(np.mean(first * second, axis=0) / (sd[0] * sd[1])))
    sizes = tuple(float(size) for size in step_sizes)
    return StepHalving(table, sizes, drawn.shape[1], order, correlation)


def _errors(series: np.ndarray) -> np.ndarray:
    """Return standard errors of means over draws, shape (..., draw, size) to (..., size)."""
    flat = series.reshape(-1, *series.shape[-2:])
    times = np.stack([autocorrelation_times(each[np.newaxis]) for each in flat])
    errors = flat.std(axis=1) * np.sqrt(times / flat.shape[1])
    return errors.reshape(*series.shape[:-2], series.shape[-1])


def _coordinate_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """Names of the coordinates of a variable, as in tables of ArviZ."""
    if not shape:
        return [name]
    return [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]
