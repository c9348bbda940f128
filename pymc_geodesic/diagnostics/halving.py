"""The bias of a step size, from runs with half and a quarter of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import xarray as xr
from rich.progress import track

from pymc_geodesic.arguments import check_count
from pymc_geodesic.diagnostics.autocorrelation import autocorrelation_times
from pymc_geodesic.diagnostics.coupled_chains import CoupledChains, check_coupling
from pymc_geodesic.gradients.scores import Model, model_of
from pymc_geodesic.samplers.langevin import LangevinSampler
from pymc_geodesic.steps.step import GeodesicStep

ERRORS = 2.0
"""Standard errors below which a difference is not told from chance."""

FORGOTTEN = 0.1
"""Part of the draws, at the beginning, in which the chains leave their common start."""


@dataclass(frozen=True)
class StepHalving:
    """What changes with the step size, and what is left of it where that can be told.

    Attributes
    ----------
    table : xarray.Dataset
        For each number of the sampled values, along ``quantity``,

        - ``mean``, ``sd``: at the given step size;
        - ``delta_mean``, ``delta_mean_se``: what halving it takes off the mean, in standard
          deviations, and its standard error;
        - ``delta_log_sd``, ``delta_log_sd_se``: the same for the logarithm of the standard
          deviation;
        - ``order``: log₂ of the change from ε to ε/2 over that from ε/2 to ε/4, of whichever of
          mean and second moment is seen better; NaN where either is below two errors;
        - ``mean_extrapolated``, ``sd_extrapolated``: at step size zero; NaN where there is nothing
          to extrapolate from.
    step_sizes : tuple of float
        Of the runs; where tuning found the coordinates, in posterior standard deviations.
    n_draws : int
        Draws of each run that were used.
    order : int or None
        With which moments were extrapolated.
    correlation : float
        Mean correlation of the runs with the two longest steps, which see the same noise.

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
            seen = np.abs(change) > ERRORS * error
            shown = np.abs(change) * (seen if seen.any() else 1.0)
            worst = int(np.argmax(shown))
            verdict = "" if seen.any() else ", not told from chance: nothing is extrapolated"
            name = table["quantity"].values[worst]
            lines.append(f"  {name}: {change[worst]:+.2g} ± {error[worst]:.1g} {unit}{verdict}")
        if self.order is None:
            lines.append("  no order of convergence was seen: nothing is extrapolated")
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

    The sampler is tuned once. Then three chains go on from there for the same time, with the same
    metric, anchor and friction, and with noise that is coupled: that of a longer step is made of
    the noise of the two shorter ones in its place. Their differences are then much less random than
    they are themselves, and tell the bias of the step size.

    Moments f are extrapolated to ε = 0, 2f(ε/4) − f(ε/2) for order one and (4f(ε/4) − f(ε/2))/3 for
    order two, and a standard deviation comes from extrapolated moments. A moment that changes by
    less than two standard errors is left alone.

    Parameters
    ----------
    model : pymc.Model or None
        None takes it from the context.
    step : step method or callable
        `SGGMC`, `gSGNHT`, `SSGNHT`, `SGLD` or `SSGLD` for all free variables, left to tuning or
        with a step size of its own; or a function that makes it, which is called in the context of
        the model. It is tuned anew.
    draws, tune : int
        Draws of each run, of which the first tenth is left out, and of the tuning phase.
    order : {1, 2}, optional
        Order of convergence. By default the one that is seen, as a median over the numbers of which
        it can be told.
    random_seed : int, optional
    progressbar : bool

    Returns
    -------
    StepHalving

    Raises
    ------
    ValueError
        For a step that corrects its moves, that leaves variables out, whose step size changes from
        draw to draw, or that has ``local=`` or ``batches=``.
    FloatingPointError
        If a chain diverges.

    Notes
    -----
    It costs seven times the gradients of a run. The values are those that the sampler moves:
    unit vectors and frames themselves, others in PyMC's unconstrained values. What is wrong at
    every step size, as where a chain does not mix, is not seen.

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
            "step_halving(model, step) takes a step method or a function that makes one, got "
            f"{type(step).__name__}"
        )
    with model:
        made = step if isinstance(step, GeodesicStep) else step()
    sampler = getattr(made, "sampler", None)
    if not isinstance(sampler, LangevinSampler):
        raise ValueError(
            f"{type(made).__name__} has no step size whose bias could be seen: it corrects its "
            "moves, or makes them exactly. Compare SGGMC, gSGNHT, SSGNHT, SGLD or SSGLD"
        )
    check_coupling(sampler)
    left_out = {rv.name for rv in model.free_RVs} - {variable.name for variable in made.variables}
    if left_out:
        raise ValueError(
            f"{type(made).__name__} leaves {sorted(left_out)} to other steps; give it all free "
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
        for name in _names_of(
            variable.name if variable.on_manifold else variable.value_name, variable.shape
        )
    ]
    return compared(drawn[:, int(FORGOTTEN * draws) :], names, chains.step_sizes, order)


def compared(
    drawn: np.ndarray, names: list[str], step_sizes: np.ndarray, order: int | None = None
) -> StepHalving:
    """Compare coupled draws.

    Parameters
    ----------
    drawn : ndarray, shape (3, draw, size)
    names : list of str, one for each number
    step_sizes : ndarray, shape (3,)
    order : {1, 2}, optional
    """
    mean, sd = drawn.mean(axis=1), drawn.std(axis=1)
    scale, centre = sd[-1], mean[-1]
    moments = np.stack([drawn - centre, (drawn - centre) ** 2])
    moments /= np.stack([scale, scale**2])[:, np.newaxis, np.newaxis]
    changes = moments[:, :-1] - moments[:, 1:]
    change, change_error = changes.mean(axis=2), _errors(changes)
    seen = np.abs(change) > ERRORS * change_error
    spread = 0.5 * ((drawn - mean[:, np.newaxis]) / sd[:, np.newaxis]) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        told = seen[:, 0] & seen[:, 1] & (change[:, 0] * change[:, 1] > 0.0)
        orders = np.where(told, np.log2(change[:, 0] / change[:, 1]), np.nan)
        clearness = np.where(told, np.abs(change[:, 1] / change_error[:, 1]), -1.0)
    best = np.take_along_axis(orders, clearness.argmax(axis=0)[np.newaxis], axis=0)[0]
    if order is None and told.any():
        order = int(np.clip(round(float(np.nanmedian(best))), 1, 2))
    rest = {None: math.nan, 1: 1.0, 2: 1.0 / 3.0}[order]
    last = moments[:, -1].mean(axis=1)
    limit = last - np.where(seen[:, 1], rest * change[:, 1], 0.0)
    variance = np.where(seen[:, 1].any(axis=0), limit[1] - limit[0] ** 2, np.nan)
    columns = {
        "mean": mean[0],
        "sd": sd[0],
        "delta_mean": change[0, 0],
        "delta_mean_se": change_error[0, 0],
        "delta_log_sd": np.log(sd[0] / sd[1]),
        "delta_log_sd_se": _errors(spread[np.newaxis, 0] - spread[np.newaxis, 1])[0],
        "order": best,
        "mean_extrapolated": centre + scale * np.where(seen[0, 1], limit[0], np.nan),
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


def _names_of(name: str, shape: tuple[int, ...]) -> list[str]:
    """Names of the numbers of a variable, as tables of ArviZ have them."""
    if not shape:
        return [name]
    return [f"{name}[{', '.join(map(str, place))}]" for place in np.ndindex(*shape)]
