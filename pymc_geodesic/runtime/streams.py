"""Counter-based random streams for compiled kernels, with a state of 16 bytes.

A stream is a ``uint64`` array ``(key, counter)``. The n-th random word of a stream is a pure
function of key and counter, the five-round *Squares* hash of [1]_, so that streams can be copied,
stored, compared and split, and loops over counters have no dependence between iterations and are
vectorized by the compiler. Drawing advances the counter in place.

Normal variates come from the Box–Muller map [2]_ with polynomials for the logarithm, the sine and
the cosine (near-minimax, absolute error below 1e-17 before rounding).

A *tape* is a stream of predefined normal variates, which only `fill_normal` supports, for coupled
chains with common random numbers.

References
----------
.. [1] B. Widynski, "Squares: A Fast Counter-Based RNG", arXiv:2004.06278, 2020.
.. [2] G. E. P. Box and M. E. Muller, "A note on the generation of random normal deviates",
   Annals of Mathematical Statistics 29(2), 1958, eq. 1.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from pymc_geodesic.runtime.jit import Stream, borrow, compiled, define_intrinsic, part

ONE_BITS = np.uint64(0x3FF0000000000000)  # the bits of 1.0: an exponent of zero
SQRT_HALF_BITS = np.int64(0x3FE6A09E667F3BCD)
ALMOST_ONE = 1.0 - 2.0**-53
HALF_WORD = np.uint64(32)
DIGIT_BITS = np.uint64(4)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@define_intrinsic
def _float_of(_context: Any, bits: Any) -> tuple[Any, Callable[..., Any]]:
    """Convert bits to a float; ``view`` does the same, but takes longer to compile."""
    return types.float64(types.uint64), _reinterpret(ir.DoubleType())


@define_intrinsic
def _bits_of(_context: Any, number: Any) -> tuple[Any, Callable[..., Any]]:
    """Convert a float to its bits."""
    return types.uint64(types.float64), _reinterpret(ir.IntType(64))


def _reinterpret(kind: Any) -> Callable[..., Any]:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], kind)

    return generate


@part
def _word(key: np.uint64, counter: np.uint64) -> np.uint64:
    """Compute the 64-bit word number ``counter`` of stream ``key``: Squares, five rounds."""
    y = counter * key
    z = y + key
    x = y * y + y
    x = (x >> HALF_WORD) | (x << HALF_WORD)
    x = x * x + z
    x = (x >> HALF_WORD) | (x << HALF_WORD)
    x = x * x + y
    x = (x >> HALF_WORD) | (x << HALF_WORD)
    fourth = x * x + z
    x = (fourth >> HALF_WORD) | (fourth << HALF_WORD)
    return fourth ^ ((x * x + y) >> HALF_WORD)


@part
def _open_unit(word: np.uint64) -> float:
    """Convert a word to a uniform variate on the 2⁵² midpoints (k + ½)·2⁻⁵² of (0, 1)."""
    # All processors vectorize this integer-to-float conversion, which sets the exponent bits.
    return _float_of((word >> np.uint64(12)) | ONE_BITS) - ALMOST_ONE


@part
def _log(u: float) -> float:
    """Compute the logarithm of a positive number: u = 2ᵏ m, log m = 2 artanh((m − 1)/(m + 1))."""
    bits = np.int64(_bits_of(u))
    exponent = (bits - SQRT_HALF_BITS) >> 52
    fraction = _float_of(np.uint64(bits - (exponent << 52))) - 1.0
    ratio = fraction / (2.0 + fraction)
    z = ratio * ratio
    series = 0.153125281483583764 + z * 0.14809710360707973
    series = 0.222221970567260408 + z * (0.181836316802295854 + z * series)
    series = 0.399999999993023381 + z * (0.2857142876064168 + z * series)
    series = 2.0 + z * (0.666666666666676457 + z * series)
    return float(exponent) * 0.693147180559945309 + ratio * series


@part
def _normal_pair(key: np.uint64, first: np.uint64, second: np.uint64) -> tuple[float, float]:
    """Compute two independent standard normal variates from two words, by their counters."""
    radius = math.sqrt(-2.0 * _log(_open_unit(_word(key, first))))
    # The angle is π(y + b), with y uniform in (−½, ½) from the high bits. The lowest bit b rotates
    # the point by π, which changes both signs.
    word = _word(key, second)
    half_turn = (word & np.uint64(1)) << np.uint64(63)
    radius = _float_of(_bits_of(radius) ^ half_turn)
    y = _open_unit(word) - 0.5
    z = y * y
    cosine = -1.04566553387486738e-4 + z * 4.14956435394197994e-6
    cosine = -0.0258068887370022032 + z * (0.00192955627248171287 + z * cosine)
    cosine = -1.33526276884344709 + z * (0.235330630129532854 + z * cosine)
    cosine = -4.93480220054467677 + z * (4.058712126416497 + z * cosine)
    cosine = 1.0 + z * cosine
    sine = -2.19034970746259105e-5 + z * 7.6978267682231864e-7
    sine = -0.00737043050591694339 + z * (0.000466299816189839333 + z * sine)
    sine = -0.599264529318944681 + z * (0.082145886573102895 + z * sine)
    sine = -5.16771278004996961 + z * (2.55016403987730047 + z * sine)
    sine = y * (3.14159265358979324 + z * sine)
    return radius * cosine, radius * sine


@part
def _read_tape(tape: np.ndarray, out: np.ndarray) -> None:
    """Copy the next values of a tape; NaN beyond its end."""
    first = np.int64(tape[1])
    for i in range(out.size):
        position = 2 + first + i
        out[i] = _float_of(tape[position]) if position < tape.size else np.nan
    tape[1] = np.uint64(first + out.size)


@compiled
def fill_normal(stream: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` with independent standard normals and advance the stream.

    Parameters
    ----------
    stream : array of uint64, shape (2,)
        Advanced by ``out.size`` words, rounded up to an even number. Or a tape of `new_tape`.
    out : array of float64, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.streams import fill_normal, new_stream
    >>> draws = np.empty(100_000)
    >>> fill_normal(new_stream(np.random.default_rng(1)), draws)
    >>> bool(abs(draws.mean()) < 0.02 and abs(draws.std() - 1) < 0.02)
    True
    """
    if stream.size > 2:
        _read_tape(stream, out)
        return
    stream = borrow(stream)
    out = borrow(out)
    key = stream[0]
    counter = stream[1]
    whole = out.size // 2
    pairs = out.size - whole
    # The compiler can prove that two arrays that are filled from their beginnings are independent.
    cosines = out[:pairs]
    sines = out[pairs:]
    offset = counter + np.uint64(pairs)
    for pair in range(whole):
        cosine, sine = _normal_pair(key, counter + np.uint64(pair), offset + np.uint64(pair))
        cosines[pair] = cosine
        sines[pair] = sine
    if whole < pairs:
        last = np.uint64(whole)
        cosines[whole] = _normal_pair(key, counter + last, offset + last)[0]
    stream[1] = counter + np.uint64(2 * pairs)


@compiled
def normal(stream: np.ndarray) -> float:
    """Draw one standard normal; advances the stream by two words.

    Parameters
    ----------
    stream : array of uint64, shape (2,)

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.streams import new_stream, normal
    >>> isinstance(normal(new_stream(np.random.default_rng(1))), float)
    True
    """
    value = _normal_pair(stream[0], stream[1], stream[1] + np.uint64(1))[0]
    stream[1] += np.uint64(2)
    return value


@compiled
def uniform(stream: np.ndarray) -> float:
    """Draw one number uniform on the open interval (0, 1); advances the stream by one word.

    Parameters
    ----------
    stream : array of uint64, shape (2,)

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.streams import new_stream, uniform
    >>> 0 < uniform(new_stream(np.random.default_rng(1))) < 1
    True
    """
    value = _open_unit(_word(stream[0], stream[1]))
    stream[1] += np.uint64(1)
    return value


@compiled
def fill_uniform(stream: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` with numbers uniform on (0, 1); the same numbers as repeated `uniform`.

    Parameters
    ----------
    stream : array of uint64, shape (2,)
        Advanced by ``out.size`` words.
    out : array of float64, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.streams import fill_uniform, new_stream
    >>> draws = np.empty(1000)
    >>> fill_uniform(new_stream(np.random.default_rng(1)), draws)
    >>> bool(draws.min() > 0 and draws.max() < 1)
    True
    """
    key = stream[0]
    counter = stream[1]
    for i in range(out.size):
        out[i] = _open_unit(_word(key, counter + np.uint64(i)))
    stream[1] = counter + np.uint64(out.size)


def _key(seed: np.uint64) -> np.uint64:
    """Convert a 64-bit seed to a valid key of Squares.

    The hash needs a key with irregular bits (ref. [1], section on keys): the eight hexadecimal
    digits of each half are all different and nonzero, and the last digit is odd. There are about
    10¹⁷ such keys.
    """
    key = np.uint64(0)
    used = np.uint64(0)
    placed = 0
    while placed < 16:
        # SplitMix64 generates as many digits from the seed as the rejections below need.
        seed += GOLDEN
        mixed = (seed ^ (seed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        digit = (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(60)
        mark = np.uint64(1) << digit
        if digit == 0 or used & mark or (placed == 0 and digit % np.uint64(2) == 0):
            continue
        key |= digit << (DIGIT_BITS * np.uint64(placed))
        placed += 1
        used = np.uint64(0) if placed == 8 else used | mark
    return key


_compiled_key = compiled(_key)


@compiled
def split_stream(stream: Stream, n: int) -> np.ndarray:
    """Create `n` independent child streams from the state of the parent, and advance the parent.

    Parameters
    ----------
    stream : array of uint64, shape (2,)
        Advanced by `n` words.
    n : int

    Returns
    -------
    array of uint64, shape (n, 2)
        One stream per row, counters at zero.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.streams import new_stream, split_stream
    >>> split_stream(new_stream(np.random.default_rng(1)), 3).shape
    (3, 2)
    """
    children = np.zeros((n, 2), np.uint64)
    for child in range(n):
        children[child, 0] = _compiled_key(_word(stream[0], stream[1] + np.uint64(child)))
    stream[1] += np.uint64(n)
    return children


def new_stream(rng: np.random.Generator) -> np.ndarray:
    """Create a stream whose key is drawn from a NumPy generator.

    Parameters
    ----------
    rng : numpy.random.Generator
        Advanced by one 64-bit integer.

    Returns
    -------
    array of uint64, shape (2,)
        ``(key, counter)`` with the counter at zero.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.streams import new_stream
    >>> stream = new_stream(np.random.default_rng(1))
    >>> stream.dtype, stream.shape, int(stream[1])
    (dtype('uint64'), (2,), 0)
    """
    seed = rng.integers(np.iinfo(np.uint64).max, dtype=np.uint64, endpoint=True)
    with np.errstate(over="ignore"):  # for one key, interpretation is faster than compilation
        return np.array([_key(seed), 0], dtype=np.uint64)


def new_tape(numbers: np.ndarray) -> np.ndarray:
    """Create a tape that `fill_normal` reads instead of drawing.

    Parameters
    ----------
    numbers : array of float64
        Values in the order in which they are read.

    Returns
    -------
    array of uint64, shape ``(2 + numbers.size,)``
        ``(0, position)`` with position 0, followed by the bits of the values.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.streams import fill_normal, new_tape
    >>> first, second = np.empty(1), np.empty(3)
    >>> tape = new_tape(np.array([0.5, -1.0, 2.0]))
    >>> fill_normal(tape, first)
    >>> fill_normal(tape, second)
    >>> first, second
    (array([0.5]), array([-1.,  2., nan]))
    """
    numbers = np.ascontiguousarray(numbers, dtype=np.float64).ravel()
    return np.concatenate([np.zeros(2, dtype=np.uint64), numbers.view(np.uint64)])


_GROUP = 8


@compiled(inline="always")
def pick(weights: np.ndarray, left: float) -> int:
    """Find the index at which the cumulative sum of weights exceeds a number.

    Parameters
    ----------
    weights : ndarray, shape (n,)
        Nonnegative weights.
    left : float
        Number of at least 0 and below the sum of the weights. With a uniform variate times this sum
        an index is drawn with probability proportional to its weight.

    Returns
    -------
    int
    """
    size = weights.size
    start = 0
    # Groups are skipped by their sums, which use vector instructions.
    while start + _GROUP < size:
        group = 0.0
        for k in range(_GROUP):
            group += weights[start + k]
        if left < group:
            break
        left -= group
        start += _GROUP
    for k in range(start, size - 1):
        left -= weights[k]
        if left < 0.0:
            return k
    return size - 1
