"""How long the draws of a chain remember each other."""

from __future__ import annotations

import math

import numpy as np


def autocorrelation_times(values: np.ndarray) -> np.ndarray:
    """Integrated autocorrelation times of several series within their chains.

    τ = 1 + 2 Σ ρ_t, up to where the sums of two neighbouring ρ turn negative (Geyer 1992). What
    chains differ by counts as error of the draws, not as slowness.

    Parameters
    ----------
    values : ndarray, shape (chain, draw, n)

    Returns
    -------
    ndarray, shape (n,)
        At least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics.autocorrelation import autocorrelation_times
    >>> noise = np.random.default_rng(1).normal(size=(4, 1000, 1))
    >>> bool(autocorrelation_times(noise)[0] < 1.2)
    True
    """
    n_draws = values.shape[1]
    centred = values - values.mean(axis=1, keepdims=True)
    length = 2 ** math.ceil(math.log2(2 * n_draws))
    spectrum = np.abs(np.fft.rfft(centred, length, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum.mean(axis=0), length, axis=0)[:n_draws]
    correlation = covariance / np.maximum(covariance[0], 1e-300)
    pairs = correlation[: n_draws // 2 * 2].reshape(-1, 2, correlation.shape[1]).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0.0, axis=0)
    times = 2.0 * np.sum(np.where(positive, pairs, 0.0), axis=0) - 1.0
    return np.maximum(times, 1.0)
