"""Poisson variates from the counter streams.

They are products of uniforms for small rates and the transformed rejection of [1]_ for large ones,
with the log-probability in the saddle-point form of [2]_, whose rounding error does not grow with
the rate.

References
----------
.. [1] W. Hörmann, "The transformed rejection method for generating Poisson random variables",
   Insurance: Mathematics and Economics 12, 1993, algorithm PTRS.
.. [2] C. Loader, "Fast and accurate computation of binomial probabilities", 2000.
"""

import math

import numpy as np

from pymc_geodesic.runtime.branchless import CHUNK, divide, exponential
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.streams import fill_uniform, normal, uniform

LARGE_RATE = 10.0
"""Rate from which transformed rejection is used; its constants are fitted for no smaller one."""

HUGE_RATE = 1e15
STIRLING_FROM = 16.0


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


@compiled(inline="always")
def _proposed_poisson(rate: float, u: float) -> tuple[float, float, float]:
    """Proposal of the transformed rejection, with its distance to the edge and acceptance."""
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    edge = 0.5 - abs(u)
    count = np.floor((2.0 * a / edge + b) * u + rate + 0.43)
    return count, edge, 0.9277 - 3.6224 / (b - 2.0)


@compiled
def _large_poisson(stream: np.ndarray, rate: float, u: float, v: float) -> float:
    """Poisson variate of a rate of at least 10, by rejection that starts with `u` and `v`."""
    if not rate < HUGE_RATE:  # what is not a number is handed on
        return np.floor(rate + math.sqrt(rate) * normal(stream))
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    while True:
        count, edge, acceptance = _proposed_poisson(rate, u)
        if edge >= 0.07 and v <= acceptance:
            return count
        if count >= 0.0 and not (edge < 0.013 and v > edge):
            squeezed = v * inverse_alpha / (a / (edge * edge) + b)
            if math.log(squeezed) <= _log_poisson(count, rate):
                return count
        u = uniform(stream) - 0.5
        v = uniform(stream)


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
    >>> from pymc_geodesic.runtime.streams import new_stream
    >>> from pymc_geodesic.runtime.poisson import poisson
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
    return _large_poisson(stream, rate, uniform(stream) - 0.5, uniform(stream))


@compiled
def _fill_small_poisson(
    stream: np.ndarray, rate: np.ndarray, out: np.ndarray, scratch: np.ndarray
) -> None:
    """Fill `out` with Poisson variates of rates below 10, by products of uniform numbers."""
    n = rate.size
    stream, rate, out = borrow(stream), borrow(rate), borrow(out)
    uniforms, bounds = borrow(scratch[0]), borrow(scratch[1])
    fill_uniform(stream, uniforms[:n])
    for i in range(n):
        bounds[i] = exponential(-rate[i])
    for i in range(n):
        product = uniforms[i]
        count = 0.0
        while product > bounds[i]:
            product *= uniform(stream)
            count += 1.0
        out[i] = count


@compiled
def _fill_large_poisson(
    stream: np.ndarray, rate: np.ndarray, out: np.ndarray, scratch: np.ndarray
) -> None:
    """Fill `out` with Poisson variates of rates of at least 10, by transformed rejection."""
    n = rate.size
    stream, rate, out = borrow(stream), borrow(rate), borrow(out)
    firsts, seconds = borrow(scratch[0]), borrow(scratch[1])
    fill_uniform(stream, firsts[:n])
    fill_uniform(stream, seconds[:n])
    for i in range(n):
        count, edge, acceptance = _proposed_poisson(rate[i], firsts[i] - 0.5)
        inside = edge >= 0.07 and seconds[i] <= acceptance and rate[i] < HUGE_RATE
        out[i] = count if inside else -1.0
    for i in range(n):
        if out[i] < 0.0:
            out[i] = _large_poisson(stream, rate[i], firsts[i] - 0.5, seconds[i])


@compiled
def fill_poisson(stream: np.ndarray, rate: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` with independent Poisson variates, as floats.

    Parameters
    ----------
    stream : array of uint64, shape (2,)
        Advanced.
    rate : array of float64, shape (n,)
        λ ≥ 0.
    out : array of float64, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.streams import new_stream
    >>> from pymc_geodesic.runtime.poisson import fill_poisson
    >>> draws = np.empty(100_000)
    >>> fill_poisson(new_stream(np.random.default_rng(1)), np.full(draws.size, 0.3), draws)
    >>> bool(abs(draws.mean() - 0.3) < 0.01)
    True
    """
    stream, rate, out = borrow(stream), borrow(rate), borrow(out)
    size = rate.size
    length = min(CHUNK, size)
    scratch = np.empty((2, length))
    rates, draws = np.empty(length), np.empty(length)
    places = np.empty(length + 1, dtype=np.int64)
    for start in range(0, size, CHUNK):
        n = min(CHUNK, size - start)
        own, found = rate[start : start + n], out[start : start + n]
        n_small = divide(own, LARGE_RATE, places)
        if n_small == n:
            _fill_small_poisson(stream, own, found, scratch)
        else:
            for i in range(n):
                rates[i] = own[places[i]]
            _fill_small_poisson(stream, rates[:n_small], draws[:n_small], scratch)
            _fill_large_poisson(stream, rates[n_small:n], draws[n_small:n], scratch)
            for i in range(n):
                found[places[i]] = draws[i]
