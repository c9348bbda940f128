r"""Logarithms of gamma variates from the counter streams.

A gamma variate of small shape is smaller than any floating-point number more often than not:
at shape 10⁻³ one in two lies below 10⁻³²⁴. So what is drawn is its logarithm, by the squeeze of
[1]_ for shapes of at least one, and below by

.. math:: \log G(a) = \log G(a + 1) + \log(U) / a,

which never underflows.

References
----------
.. [1] G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", ACM
   Transactions on Mathematical Software 26(3), 2000.
"""

import math

import numpy as np

from pymc_geodesic.runtime.branchless import CHUNK, divide, exponential
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.kernel import Stream
from pymc_geodesic.runtime.streams import _log, fill_normal, fill_uniform, normal, uniform

INVERSE_E = math.exp(-1.0)
ACCEPTED = 2.0
"""Written over a uniform number that has accepted its proposal."""
SMALL_SHAPE = 0.1
"""Shape below which gamma variates are proposed by a power of a uniform number."""


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
def _small_log_gamma_again(stream: np.ndarray, a: float) -> float:
    """Log of a gamma variate of small shape a, after a rejected proposal."""
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
    # The first loop has no branch, so that it runs on vectors; few proposals need the second.
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
    # As above: a first loop for vectors, a second one for what it rejects.
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
        a > 0, however small.
    out : array of float64, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.streams import new_stream
    >>> from pymc_geodesic.runtime.log_gamma import fill_log_gamma
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
    places = np.empty(length + 1, dtype=np.int64)
    for start in range(0, size, CHUNK):
        n = min(CHUNK, size - start)
        own, found = shape[start : start + n], out[start : start + n]
        n_small = divide(own, SMALL_SHAPE, places)
        if n_small == n:
            _fill_small_log_gamma(stream, own, found, scratch)
        elif n_small == 0:
            _fill_large_log_gamma(stream, own, found, scratch)
        else:
            for i in range(n):
                shapes[i] = own[places[i]]
            _fill_small_log_gamma(stream, shapes[:n_small], draws[:n_small], scratch)
            _fill_large_log_gamma(stream, shapes[n_small:n], draws[n_small:n], scratch)
            for i in range(n):
                found[places[i]] = draws[i]


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
    >>> from pymc_geodesic.runtime.log_gamma import log_gamma
    >>> bool(np.isfinite(log_gamma(new_stream(np.random.default_rng(1)), 1e-9)))
    True
    """
    d = shape - 1.0 / 3.0 if shape >= 1.0 else shape + 2.0 / 3.0
    value = _log_gamma_again(stream, d, 1.0 / math.sqrt(9.0 * d))
    if shape < 1.0:
        value += math.log(uniform(stream)) / shape
    return value
