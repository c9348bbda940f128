"""Collapsed Gibbs sampler for normal models with crossed group effects.

Each block of effects is drawn jointly with the intercept, whose distribution given all else has
these effects integrated out. Half-normal priors of scales are exact: a scale is proposed from its
distribution under a flat prior, and accepted with the ratio of the half-normal densities.

Papaspiliopoulos, Roberts, Zanella (2020), Scalable inference for crossed random effects models.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from benchmarks.large_hierarchy_models import CrossedData


@njit
def _draw_scale(rng, scale: float, squares: float, n: int, prior_sd: float) -> float:
    """Scale of n normal variables with this sum of squares, by an independent proposal."""
    proposal = math.sqrt(0.5 * squares / rng.standard_gamma(0.5 * (n - 1)))
    log_ratio = 0.5 * (scale**2 - proposal**2) / prior_sd**2
    return proposal if math.log(rng.random()) < log_ratio else scale


@njit
def _sweep(
    rng,
    residual: np.ndarray,
    X: np.ndarray,
    codes: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    effects: np.ndarray,
    scales: np.ndarray,
    slopes: np.ndarray,
    intercept: float,
    prior: tuple[float, float, float, float],
) -> float:
    """Update all variables in place, and return the intercept."""
    prior_mean, prior_sd, slope_sd, scale_sd = prior
    n_rows, n_slopes = X.shape
    n_factors = len(codes)
    for f in range(n_factors):
        first, last = starts[f], starts[f + 1]
        n_groups = last - first
        code, size, effect = codes[f], sizes[first:last], effects[first:last]
        sums = np.zeros(n_groups)
        for i in range(n_rows):
            sums[code[i]] += residual[i]
        sums += size * (effect + intercept)
        variance, between = scales[n_factors] ** 2, scales[f] ** 2
        weight, total = 1.0 / prior_sd**2, prior_mean / prior_sd**2
        for j in range(n_groups):
            if size[j] > 0:
                w = 1.0 / (between + variance / size[j])
                weight += w
                total += w * sums[j] / size[j]
        new = total / weight + rng.standard_normal() / math.sqrt(weight)
        change = np.empty(n_groups)
        for j in range(n_groups):
            precision = size[j] / variance + 1.0 / between
            mean = (sums[j] - size[j] * new) / variance / precision
            drawn = mean + rng.standard_normal() / math.sqrt(precision)
            change[j] = effect[j] - drawn + intercept - new
            effect[j] = drawn
        intercept = new
        for i in range(n_rows):
            residual[i] += change[code[i]]
        scales[f] = _draw_scale(rng, scales[f], np.sum(effect**2), n_groups, scale_sd)
    for k in range(n_slopes):
        variance = scales[n_factors] ** 2
        product = square = 0.0
        for i in range(n_rows):
            product += X[i, k] * residual[i]
            square += X[i, k] ** 2
        precision = square / variance + 1.0 / slope_sd**2
        mean = (product + square * slopes[k]) / variance / precision
        drawn = mean + rng.standard_normal() / math.sqrt(precision)
        for i in range(n_rows):
            residual[i] += X[i, k] * (slopes[k] - drawn)
        slopes[k] = drawn
    squares = 0.0
    for i in range(n_rows):
        squares += residual[i] ** 2
    scales[n_factors] = _draw_scale(rng, scales[n_factors], squares, n_rows, scale_sd)
    return intercept


def compile_sweep(data: CrossedData) -> None:
    """Compile, with a sweep of the first rows."""
    few = {name: np.arange(10) % 2 for name in data.codes}
    first = CrossedData(data.y[:10], data.X[:10], few, data.intercept, data.slope_sd, data.scale_sd)
    sample_crossed(first, draws=1, burn_in=0, seed=1)


def sample_crossed(
    data: CrossedData, *, draws: int, burn_in: int, seed: int
) -> dict[str, np.ndarray]:
    """Draw one chain.

    Parameters
    ----------
    data : CrossedData
    draws, burn_in : int
    seed : int

    Returns
    -------
    dict of str to ndarray, shape (draws, ...)
        By the names of the variables of the model, see `Problem`.
    """
    rng = np.random.default_rng(seed)
    codes = np.array(list(data.codes.values()))
    counts = [np.bincount(code).astype(float) for code in codes]
    starts = np.cumsum([0, *(len(count) for count in counts)])
    effects, slopes = np.zeros(starts[-1]), np.zeros(data.X.shape[1])
    intercept = float(data.y.mean())
    residual = data.y - intercept
    scales = data.y.std() * rng.uniform(0.2, 1.0, size=len(codes) + 1)
    prior = (*data.intercept, data.slope_sd, data.scale_sd)
    kept = [np.empty((draws, n)) for n in (1, len(slopes), len(effects), len(scales))]
    X, sizes = np.ascontiguousarray(data.X, dtype=float), np.concatenate(counts)
    for draw in range(-burn_in, draws):
        intercept = _sweep(
            rng, residual, X, codes, starts, sizes, effects, scales, slopes, intercept, prior
        )
        if draw >= 0:
            for array, values in zip(kept, (intercept, slopes, effects, scales), strict=True):
                array[draw] = values
    found = {"intercept": kept[0][:, 0], "slope": kept[1][:, 0], "residual_sd": kept[3][:, -1]}
    for f, name in enumerate(data.codes):
        found[f"{name}_effect"] = kept[2][:, starts[f] : starts[f + 1]]
        found[f"{name}_sd"] = kept[3][:, f]
    return found
