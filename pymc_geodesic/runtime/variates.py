r"""Log-gamma and Poisson variates from the random streams of `pymc_geodesic.runtime.streams`.

A gamma variate of small shape often underflows: at shape 10⁻³, 50 % are below 10⁻³²⁴. Therefore its
logarithm is drawn, by the method of [1]_ for shapes of at least 1, and for smaller shapes by

.. math:: \log G(a) = \log G(a + 1) + \log(U) / a.

Poisson variates are drawn by products of uniforms for small rates and the transformed rejection of
[2]_ for large ones, with the log-probability in the saddle-point form of [3]_, whose rounding error
does not grow with the rate.

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

from pymc_geodesic.runtime.jit import Stream, borrow, compiled
from pymc_geodesic.runtime.numerics import CHUNK, exponential, partition
from pymc_geodesic.runtime.streams import _log, fill_normal, fill_uniform, normal, uniform

INVERSE_E = math.exp(-1.0)
ACCEPTED = 2.0
"""Value that marks accepted proposals in the array of uniform variates."""
SMALL_SHAPE = 0.1
"""Shape below which gamma variates are proposed by a power of a uniform variate."""


@compiled
def _log_gamma_again(stream: np.ndarray, d: float, c: float) -> float:
    """Draw the log of a gamma variate of shape d + 1/3 ≥ 1, after a rejected proposal."""
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
def _small_log_gamma_again(stream: np.ndarray, a: float) -> float:
    """Draw the log of a gamma variate of small shape a, after a rejected proposal."""
    bound = 1.0 + a * INVERSE_E
    while True:
        p = bound * uniform(stream)
        u = uniform(stream)
        if p <= 1.0:
            log_x = math.log(p) / a
            if u <= math.exp(-math.exp(log_x)):
                return log_x
        else:
            log_x = math.log(-math.log((bound - p) / a))
            if u <= math.exp((a - 1.0) * log_x):
                return log_x


@compiled
def _fill_small_log_gamma(
    stream: np.ndarray, shape: np.ndarray, out: np.ndarray, scratch: np.ndarray
) -> None:
    """Fill `out` with logarithms of gamma variates of small shapes."""
    n = shape.size
    stream, shape, out = borrow(stream), borrow(shape), borrow(out)
    proposed, uniforms = borrow(scratch[0]), borrow(scratch[1])
    fill_uniform(stream, proposed[:n])
    fill_uniform(stream, uniforms[:n])
    # The first loop has no branches and is vectorized; few proposals need the second loop.
    for i in range(n):
        a = shape[i]
        p = (1.0 + a * INVERSE_E) * proposed[i]
        log_x = _log(p) / a
        inside = p <= 1.0 and uniforms[i] <= exponential(-exponential(log_x))
        proposed[i] = p
        out[i] = log_x if inside else 1.0
    for i in range(n):
        if out[i] <= 0.0:
            continue
        a, p = shape[i], proposed[i]
        if p > 1.0:
            log_x = math.log(-math.log((1.0 + a * INVERSE_E - p) / a))
            if uniforms[i] <= math.exp((a - 1.0) * log_x):
                out[i] = log_x
                continue
        out[i] = _small_log_gamma_again(stream, a)


@compiled
def _fill_large_log_gamma(
    stream: np.ndarray, shape: np.ndarray, out: np.ndarray, scratch: np.ndarray
) -> None:
    """Fill `out` with logarithms of gamma variates of shapes that are not small."""
    n = shape.size
    stream, shape, out = borrow(stream), borrow(shape), borrow(out)
    normals, uniforms = borrow(scratch[0]), borrow(scratch[1])
    fill_normal(stream, normals[:n])
    fill_uniform(stream, uniforms[:n])
    any_boost = False
    for i in range(n):
        any_boost |= shape[i] < 1.0
    # As above: a vectorized loop, and a second loop for rejected proposals.
    for i in range(n):
        a = shape[i]
        d = a - 1.0 / 3.0 if a >= 1.0 else a + 2.0 / 3.0
        x = normals[i]
        base = 1.0 + x / math.sqrt(9.0 * d)
        square = x * x
        inside = base > 0.0 and uniforms[i] < 1.0 - 0.0331 * square * square
        uniforms[i] = ACCEPTED if inside else uniforms[i]
        base = base if inside else 1.0
        out[i] = _log(d * base * base * base)
    for i in range(n):
        if uniforms[i] == ACCEPTED:
            continue
        a = shape[i]
        d = a - 1.0 / 3.0 if a >= 1.0 else a + 2.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        x = normals[i]
        base = 1.0 + c * x
        if base > 0.0 and math.log(uniforms[i]) < 0.5 * x * x + d * (
            1.0 - base * base * base + 3.0 * math.log(base)
        ):
            out[i] = math.log(d) + 3.0 * math.log(base)
        else:
            out[i] = _log_gamma_again(stream, d, c)
    if any_boost:
        fill_uniform(stream, uniforms[:n])
        for i in range(n):
            boost = _log(uniforms[i]) / shape[i]
            out[i] += boost if shape[i] < 1.0 else 0.0


@compiled
def fill_log_gamma(stream: np.ndarray, shape: np.ndarray, out: np.ndarray) -> None:
    r"""Fill `out` with logarithms of independent Gamma(shape, 1) variates.

    Parameters
    ----------
    stream : array of uint64, shape (2,)
        Advanced.
    shape : array of float64, shape (n,)
        a > 0, of any size.
    out : array of float64, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.streams import new_stream
    >>> from pymc_geodesic.runtime.variates import fill_log_gamma
    >>> draws = np.empty(100_000)
    >>> fill_log_gamma(new_stream(np.random.default_rng(1)), np.full(draws.size, 1e-3), draws)
    >>> bool(np.isfinite(draws).all() and abs(draws.mean() + 1000.6) < 10)  # ψ(0.001)
    True
    """
    stream, shape, out = borrow(stream), borrow(shape), borrow(out)
    size = shape.size
    length = min(CHUNK, size)
    scratch = np.empty((2, length))
    shapes, draws = np.empty(length), np.empty(length)
    indices = np.empty(length + 1, dtype=np.int64)
    for start in range(0, size, CHUNK):
        n = min(CHUNK, size - start)
        own, found = shape[start : start + n], out[start : start + n]
        n_small = partition(own, SMALL_SHAPE, indices)
        if n_small == n:
            _fill_small_log_gamma(stream, own, found, scratch)
        elif n_small == 0:
            _fill_large_log_gamma(stream, own, found, scratch)
        else:
            for i in range(n):
                shapes[i] = own[indices[i]]
            _fill_small_log_gamma(stream, shapes[:n_small], draws[:n_small], scratch)
            _fill_large_log_gamma(stream, shapes[n_small:n], draws[n_small:n], scratch)
            for i in range(n):
                found[indices[i]] = draws[i]


@compiled
def log_gamma(stream: Stream, shape: float) -> float:
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
    >>> from pymc_geodesic.runtime.streams import new_stream
    >>> from pymc_geodesic.runtime.variates import log_gamma
    >>> bool(np.isfinite(log_gamma(new_stream(np.random.default_rng(1)), 1e-9)))
    True
    """
    d = shape - 1.0 / 3.0 if shape >= 1.0 else shape + 2.0 / 3.0
    value = _log_gamma_again(stream, d, 1.0 / math.sqrt(9.0 * d))
    if shape < 1.0:
        value += math.log(uniform(stream)) / shape
    return value


LARGE_RATE = 10.0
"""Minimum rate of transformed rejection, whose constants are not valid for smaller rates."""

HUGE_RATE = 1e15
"""Rate above which a rounded normal variate is drawn."""
STIRLING_FROM = 16.0
"""Minimum count for which the log-probability uses Stirling's series."""


@compiled
def _log_poisson(k: float, rate: float) -> float:
    """Compute the log-probability of k of a Poisson distribution, accurate at every rate."""
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
    """Compute the proposal of the transformed rejection, its edge distance and acceptance."""
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    edge = 0.5 - abs(u)
    count = np.floor((2.0 * a / edge + b) * u + rate + 0.43)
    return count, edge, 0.9277 - 3.6224 / (b - 2.0)


@compiled
def _large_poisson(stream: np.ndarray, rate: float, u: float, v: float) -> float:
    """Draw a Poisson variate of rate at least 10, by rejection that starts with `u` and `v`."""
    if not rate < HUGE_RATE:  # NaN is propagated
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
def _fill_small_poisson(
    stream: np.ndarray, rate: np.ndarray, out: np.ndarray, scratch: np.ndarray
) -> None:
    """Fill `out` with Poisson variates of rates below 10, by products of uniform variates."""
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
        λ ≥ 0. For rates of at least 10¹⁵, whose skewness is below the floating-point resolution,
        rounded normal variates are drawn.
    out : array of float64, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.streams import new_stream
    >>> from pymc_geodesic.runtime.variates import fill_poisson
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
    indices = np.empty(length + 1, dtype=np.int64)
    for start in range(0, size, CHUNK):
        n = min(CHUNK, size - start)
        own, found = rate[start : start + n], out[start : start + n]
        n_small = partition(own, LARGE_RATE, indices)
        if n_small == n:
            _fill_small_poisson(stream, own, found, scratch)
        else:
            for i in range(n):
                rates[i] = own[indices[i]]
            _fill_small_poisson(stream, rates[:n_small], draws[:n_small], scratch)
            _fill_large_poisson(stream, rates[n_small:n], draws[n_small:n], scratch)
            for i in range(n):
                found[indices[i]] = draws[i]
