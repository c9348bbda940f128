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
from pymc_geodesic.streams import _log, fill_normal, fill_uniform, normal, uniform

LARGE_RATE = 10.0
"""Rate from which transformed rejection is used; its constants are fitted for no smaller one."""

HUGE_RATE = 1e15
STIRLING_FROM = 16.0
CHUNK = 256


@compiled(inline="always")
def exponential(x: float) -> float:
    """Exponential of a number in [−700, 700], which the compiler can turn into vector instructions.

    Parameters
    ----------
    x : float
        What lies outside counts as −700 or 700.

    Returns
    -------
    float
        With a relative error of some 10⁻¹⁶ (1 + |x|).

    Examples
    --------
    >>> from pymc_geodesic.variates import exponential
    >>> exponential(1.0)
    2.71828182845904
    """
    x = min(max(x, -700.0), 700.0)
    power = np.floor(x * 1.4426950408889634 + 0.5)
    rest = x - power * 0.6931471805599453
    series = 2.505210838544172e-8 + rest * (2.08767569878681e-9 + rest * 1.6059043836821613e-10)
    series = 2.7557319223985893e-6 + rest * (2.755731922398589e-7 + rest * series)
    series = 1.984126984126984e-4 + rest * (2.48015873015873e-5 + rest * series)
    series = 8.333333333333333e-3 + rest * (1.388888888888889e-3 + rest * series)
    series = 0.16666666666666666 + rest * (4.1666666666666664e-2 + rest * series)
    series = 1.0 + rest * (1.0 + rest * (0.5 + rest * series))
    # Vector instructions turn floats into integers of 32 bits only.
    return series * np.int64(np.int64(np.int32(power) + 1023) << 52).view(np.float64)


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
    accepted = np.empty(length)
    for start in range(0, size, CHUNK):
        n = min(CHUNK, size - start)
        fill_normal(stream, normals[:n])
        fill_uniform(stream, uniforms[:n])
        any_small = False
        for i in range(n):
            any_small |= shape[start + i] < 1.0
        if any_small:
            fill_uniform(stream, boosts[:n])
        # The first loop has no branch, so that it runs on vectors; few proposals need the second.
        for i in range(n):
            a = shape[start + i]
            d = a - 1.0 / 3.0 if a >= 1.0 else a + 2.0 / 3.0
            x = normals[i]
            base = 1.0 + x / math.sqrt(9.0 * d)
            square = x * x
            inside = base > 0.0 and uniforms[i] < 1.0 - 0.0331 * square * square
            accepted[i] = 1.0 if inside else 0.0
            base = base if inside else 1.0
            out[start + i] = _log(d * base * base * base)
        for i in range(n):
            if accepted[i] == 0.0:
                a = shape[start + i]
                d = a - 1.0 / 3.0 if a >= 1.0 else a + 2.0 / 3.0
                c = 1.0 / math.sqrt(9.0 * d)
                x = normals[i]
                base = 1.0 + c * x
                if base > 0.0 and math.log(uniforms[i]) < 0.5 * x * x + d * (
                    1.0 - base * base * base + 3.0 * math.log(base)
                ):
                    out[start + i] = math.log(d) + 3.0 * math.log(base)
                else:
                    out[start + i] = _log_gamma_again(stream, d, c)
        if any_small:
            for i in range(n):
                a = shape[start + i]
                boost = _log(boosts[i]) / a
                out[start + i] += boost if a < 1.0 else 0.0


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
    if rate >= HUGE_RATE:
        return math.floor(rate + math.sqrt(rate) * normal(stream))
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
    return _large_poisson(stream, rate, uniform(stream) - 0.5, uniform(stream))


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
    >>> from pymc_geodesic.streams import new_stream
    >>> from pymc_geodesic.variates import fill_poisson
    >>> draws = np.empty(100_000)
    >>> fill_poisson(new_stream(np.random.default_rng(1)), np.full(draws.size, 0.3), draws)
    >>> bool(abs(draws.mean() - 0.3) < 0.01)
    True
    """
    stream, rate, out = borrow(stream), borrow(rate), borrow(out)
    size = rate.size
    length = min(CHUNK, size)
    uniforms, bounds = np.empty(length), np.empty(length)
    seconds, accepted = np.empty(length), np.empty(length)
    for start in range(0, size, CHUNK):
        n = min(CHUNK, size - start)
        own = rate[start : start + n]
        found = out[start : start + n]
        fill_uniform(stream, uniforms[:n])
        any_large = False
        for i in range(n):
            any_large |= own[i] >= LARGE_RATE
        if any_large:
            fill_uniform(stream, seconds[:n])
            for i in range(n):
                proposal = _proposed_poisson(max(own[i], LARGE_RATE), uniforms[i] - 0.5)
                inside = proposal[1] >= 0.07 and seconds[i] <= proposal[2] and own[i] < HUGE_RATE
                found[i] = proposal[0]
                accepted[i] = 1.0 if inside else 0.0
        for i in range(n):
            bounds[i] = exponential(-own[i])
        for i in range(n):
            if own[i] >= LARGE_RATE:
                if accepted[i] == 0.0:
                    found[i] = _large_poisson(stream, own[i], uniforms[i] - 0.5, seconds[i])
                continue
            product = uniforms[i]
            count = 0.0
            while product > bounds[i]:
                product *= uniform(stream)
                count += 1.0
            found[i] = count
