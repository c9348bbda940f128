r"""Gamma and Poisson variates from the counter streams.

A gamma variate of small shape is smaller than any floating-point number more often than not:
at shape 10⁻³ one in two lies below 10⁻³²⁴. So what is drawn is its logarithm, by the squeeze of
[1]_ for shapes of at least one, and below by

.. math:: \log G(a) = \log G(a + 1) + \log(U) / a,

which never underflows. Poisson variates are products of uniforms for small rates and the
transformed rejection of [2]_ for large ones, with the log-probability in the saddle-point form of
[3]_, whose rounding error does not grow with the rate.

References
----------
.. [1] G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", ACM
   Transactions on Mathematical Software 26(3), 2000.
.. [2] W. Hörmann, "The transformed rejection method for generating Poisson random variables",
   Insurance: Mathematics and Economics 12, 1993, algorithm PTRS.
.. [3] C. Loader, "Fast and accurate computation of binomial probabilities", 2000.
"""

import math

import numpy as np

from pymc_geodesic.jit import borrow, compiled
from pymc_geodesic.streams import fill_normal, fill_uniform, normal, uniform

LARGE_RATE = 10.0
"""Rate from which transformed rejection is used; its constants are fitted for no smaller one."""

HUGE_RATE = 1e15
STIRLING_FROM = 16.0
CHUNK = 256


@compiled
def _log_gamma_again(stream: np.ndarray, d: float, c: float) -> float:
    """Log of a gamma variate of shape d + 1/3 ≥ 1, after a rejected proposal."""
    while True:
        x = normal(stream)
        base = 1.0 + c * x
        if base <= 0.0:
            continue
        u = uniform(stream)
        square = x * x
        if u < 1.0 - 0.0331 * square * square:
            return math.log(d) + 3.0 * math.log(base)
        cube = base * base * base
        log_cube = 3.0 * math.log(base)
        if math.log(u) < 0.5 * square + d * (1.0 - cube + log_cube):
            return math.log(d) + log_cube


@compiled
def fill_log_gamma(stream: np.ndarray, shape: np.ndarray, out: np.ndarray) -> None:
    r"""Fill `out` with logarithms of independent Gamma(shape, 1) variates.

    Parameters
    ----------
    stream : array of uint64, shape (2,)
        Advanced.
    shape : array of float64, shape (n,)
        a > 0, however small.
    out : array of float64, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.streams import new_stream
    >>> from pymc_geodesic.variates import fill_log_gamma
    >>> draws = np.empty(100_000)
    >>> fill_log_gamma(new_stream(np.random.default_rng(1)), np.full(draws.size, 1e-3), draws)
    >>> bool(np.isfinite(draws).all() and abs(draws.mean() + 1000.6) < 10)  # ψ(0.001)
    True
    """
    stream, shape, out = borrow(stream), borrow(shape), borrow(out)
    size = shape.size
    length = min(CHUNK, size)
    normals = np.empty(length)
    uniforms = np.empty(length)
    boosts = np.empty(length)
    for start in range(0, size, CHUNK):
        n = min(CHUNK, size - start)
        fill_normal(stream, normals[:n])
        fill_uniform(stream, uniforms[:n])
        any_small = False
        for i in range(n):
            any_small |= shape[start + i] < 1.0
        if any_small:
            fill_uniform(stream, boosts[:n])
        for i in range(n):
            a = shape[start + i]
            d = a - 1.0 / 3.0 if a >= 1.0 else a + 2.0 / 3.0
            c = 1.0 / math.sqrt(9.0 * d)
            x = normals[i]
            base = 1.0 + c * x
            square = x * x
            if base > 0.0 and uniforms[i] < 1.0 - 0.0331 * square * square:
                value = math.log(d * base * base * base)
            elif base > 0.0 and math.log(uniforms[i]) < 0.5 * square + d * (
                1.0 - base * base * base + 3.0 * math.log(base)
            ):
                value = math.log(d) + 3.0 * math.log(base)
            else:
                value = _log_gamma_again(stream, d, c)
            if a < 1.0:
                value += math.log(boosts[i]) / a
            out[start + i] = value


@compiled
def log_gamma(stream: np.ndarray, shape: float) -> float:
    """Draw the logarithm of one Gamma(shape, 1) variate; advances the stream.

    Parameters
    ----------
    stream : array of uint64, shape (2,)
    shape : float
        a > 0.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.streams import new_stream
    >>> from pymc_geodesic.variates import log_gamma
    >>> bool(np.isfinite(log_gamma(new_stream(np.random.default_rng(1)), 1e-9)))
    True
    """
    d = shape - 1.0 / 3.0 if shape >= 1.0 else shape + 2.0 / 3.0
    value = _log_gamma_again(stream, d, 1.0 / math.sqrt(9.0 * d))
    if shape < 1.0:
        value += math.log(uniform(stream)) / shape
    return value


@compiled
def _log_poisson(k: float, rate: float) -> float:
    """Log-probability of k under a Poisson law, accurate to rounding at every rate."""
    if k < STIRLING_FROM:
        return k * math.log(rate) - rate - math.lgamma(k + 1.0)
    inverse = 1.0 / (k * k)
    series = 1.0 / 1260.0 - inverse * (1.0 / 1680.0 - inverse / 1188.0)
    stirling = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * series)) / k
    difference = k - rate
    if abs(difference) < 0.1 * (k + rate):
        ratio = difference / (k + rate)
        deviance = difference * ratio
        term = 2.0 * k * ratio
        square = ratio * ratio
        for j in range(1, 40):
            term *= square
            added = deviance + term / (2.0 * j + 1.0)
            if added == deviance:
                break
            deviance = added
    else:
        deviance = k * math.log(k / rate) - difference
    return -stirling - deviance - 0.5 * math.log(2.0 * math.pi * k)


@compiled
def poisson(stream: np.ndarray, rate: float) -> float:
    """Draw one Poisson variate, as a float; advances the stream.

    Parameters
    ----------
    stream : array of uint64, shape (2,)
    rate : float
        λ ≥ 0. From 10¹⁵ on, where neighbouring numbers are further apart than the skewness is
        felt, a rounded normal variate is drawn.

    Returns
    -------
    float
        A whole number.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.streams import new_stream
    >>> from pymc_geodesic.variates import poisson
    >>> stream = new_stream(np.random.default_rng(1))
    >>> poisson(stream, 1e-300), abs(poisson(stream, 1e8) - 1e8) < 1e5
    (0.0, True)
    """
    if rate < LARGE_RATE:
        bound = math.exp(-rate)
        product = uniform(stream)
        count = 0.0
        while product > bound:
            product *= uniform(stream)
            count += 1.0
        return count
    if rate >= HUGE_RATE:
        return math.floor(rate + math.sqrt(rate) * normal(stream))
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    acceptance = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u = uniform(stream) - 0.5
        v = uniform(stream)
        edge = 0.5 - abs(u)
        count = math.floor((2.0 * a / edge + b) * u + rate + 0.43)
        if edge >= 0.07 and v <= acceptance:
            return count
        if count < 0.0 or (edge < 0.013 and v > edge):
            continue
        if math.log(v * inverse_alpha / (a / (edge * edge) + b)) <= _log_poisson(count, rate):
            return count
