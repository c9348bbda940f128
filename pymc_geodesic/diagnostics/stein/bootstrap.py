r"""Wild bootstrap of degenerate statistics of dependent draws.

Under the null hypothesis n²V = Σ h(x_i, x_j) is a sum of weighted squares. Multiplied by a process
W with mean 0, variance 1 and a correlation that lasts longer than that of the draws, Σ W_i W_j
h(x_i, x_j) has the same law (Leucht and Neumann), while under an alternative it stays small. The
process is W_t = e^{−1/ℓ} W_{t−1} + √(1 − e^{−2/ℓ}) ε_t in each chain.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.signal import lfilter

LENGTHS = 8.0
"""Correlation length ℓ of the process, times the excess of the autocorrelation time over 1.

With half of it autoregressions of the right law were rejected too often, with twice of it too
rarely.
"""


def multipliers(
    chains: np.ndarray, dependence: float, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw processes W, independent between chains.

    Parameters
    ----------
    chains : ndarray of int, shape (n_draws,)
        Which chain each draw belongs to, in order.
    dependence : float
        ℓ, in draws; 0 for independent numbers.
    n : int
        Number of processes.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, shape (n_draws, n)
    """
    noise = rng.standard_normal((len(chains), n))
    if dependence <= 0.0:
        return noise
    decay = math.exp(-1.0 / dependence)
    for chain in np.unique(chains):
        inside = chains == chain
        innovations = math.sqrt(1.0 - decay**2) * noise[inside]
        innovations[0] = noise[inside][0]
        noise[inside] = lfilter([1.0], [1.0, -decay], innovations, axis=0)
    return noise
