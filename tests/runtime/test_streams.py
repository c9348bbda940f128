"""Random streams: published hash, distributions, independence and reproducibility."""

import numba
import numpy as np
import pytest
from scipy import stats

from pymc_geodesic.runtime import jit, streams
from pymc_geodesic.runtime.streams import (
    fill_normal,
    fill_uniform,
    new_stream,
    normal,
    split_stream,
    uniform,
)

MASK = 2**64 - 1
FLOOR = 1e-6
"""Smallest p-value; its limit with fixed seeds rejects a correct generator only by chance."""


def stream_of(seed=1):
    return new_stream(np.random.default_rng(seed))


def normals(n, stream=None):
    out = np.empty(n)
    fill_normal(stream_of() if stream is None else stream, out)
    return out


def swap_halves(x):
    return (x >> 32) | (x << 32) & MASK


def squares(key, counter):
    """The five rounds of Squares in integers of any size, straight from the paper."""
    y = x = counter * key & MASK
    z = (y + key) & MASK
    x = swap_halves((x * x + y) & MASK)
    x = swap_halves((x * x + z) & MASK)
    x = swap_halves((x * x + y) & MASK)
    t = x = (x * x + z) & MASK
    x = swap_halves(x)
    return t ^ ((x * x + y) & MASK) >> 32


def words_of(stream, n):
    key, counter = (int(number) for number in stream)
    return [squares(key, (counter + i) & MASK) for i in range(n)]


@pytest.mark.parametrize("counter", [0, 1, 2**40, MASK - 3])
def test_uniforms_are_the_published_hash(counter):
    stream = stream_of()
    stream[1] = counter
    expected = [((word >> 12) + 0.5) * 2.0**-52 for word in words_of(stream, 50)]
    out = np.empty(50)
    fill_uniform(stream, out)
    assert out.tolist() == expected
    assert int(stream[1]) == (counter + 50) & MASK


def test_normals_are_box_and_muller():
    stream = stream_of()
    n = 20_000
    first, second = np.array(words_of(stream, n), dtype=np.uint64).reshape(2, -1)
    radius = np.sqrt(-2 * np.log(((first >> np.uint64(12)) + 0.5) * 2.0**-52))
    angle = ((second >> np.uint64(12)) + 0.5) * 2.0**-52 - 0.5 + (second & np.uint64(1))
    expected = np.concatenate([radius * np.cos(np.pi * angle), radius * np.sin(np.pi * angle)])
    np.testing.assert_allclose(normals(n, stream), expected, rtol=0, atol=5e-15)


def test_extreme_words_stay_inside_the_unit_interval():
    @numba.njit
    def ends():
        return streams._open_unit(np.uint64(0)), streams._open_unit(~np.uint64(0))

    low, high = ends()
    assert low == 2.0**-53
    assert high == 1 - 2.0**-53


@pytest.mark.parametrize("n", [*range(1, 40), 1000, 1001])
def test_fill_normal_for_every_length(n):
    """Odd and even lengths, shorter and longer than a vector register; state of the stream."""
    stream = stream_of()
    draws = normals(n, stream)
    assert np.isfinite(draws).all()
    assert len(set(draws)) == n
    assert stream[1] == 2 * ((n + 1) // 2)
    half = (n + 1) // 2
    longer = normals(2 * half)
    np.testing.assert_allclose(draws, longer[:n], rtol=1e-14)


def test_single_draws():
    stream, copy = stream_of(), stream_of()
    singles = [uniform(stream) for _ in range(5)]
    many = np.empty(5)
    fill_uniform(copy, many)
    assert singles == many.tolist()
    assert stream.tolist() == copy.tolist()
    assert normal(stream) == pytest.approx(normals(2, copy)[0], rel=1e-14)
    assert stream.tolist() == copy.tolist()


def test_same_stream_and_calls_give_same_numbers():
    stream = stream_of()
    normals(7, stream)
    copy = stream.copy()
    for n in (28, 1, 100):
        np.testing.assert_array_equal(normals(n, stream), normals(n, copy))
    assert normal(stream) == normal(copy)


def test_normal_distribution():
    draws = normals(10_000_000)
    n = draws.size
    assert stats.kstest(draws[: n // 5], "norm").pvalue > FLOOR
    assert abs(draws.mean()) < 5 / np.sqrt(n)
    assert abs((draws**2).mean() - 1) < 5 * np.sqrt(2 / n)
    assert abs((draws**3).mean()) < 5 * np.sqrt(15 / n)
    assert abs((draws**4).mean() - 3) < 5 * np.sqrt(96 / n)
    for threshold in (3.0, 4.0, 5.0):
        for tail in (draws > threshold, draws < -threshold):
            expected = n * stats.norm.sf(threshold)
            assert stats.poisson.cdf(tail.sum(), expected) > FLOOR
            assert stats.poisson.sf(tail.sum() - 1, expected) > FLOOR
    assert 4.6 < np.abs(draws).max() < 7.0


def test_uniform_distribution_and_every_bit():
    draws = np.empty(1_000_000)
    fill_uniform(stream_of(), draws)
    assert stats.kstest(draws, "uniform").pvalue > FLOOR
    integers = (draws * 2.0**52).astype(np.uint64)
    shares = [((integers >> np.uint64(bit)) & np.uint64(1)).mean() for bit in range(52)]
    assert np.abs(np.array(shares) - 0.5).max() < 5 * 0.5 / np.sqrt(draws.size)


def test_successive_numbers_are_independent():
    """Correlation at several lags, half the length among them, where a pair shares its radius."""
    n = 1_000_000
    draws = normals(n)
    for series in (draws, draws**2 - 1, np.abs(draws) - np.sqrt(2 / np.pi)):
        for lag in (1, 2, 3, 8, 16, 1000, n // 2):
            product = series[:-lag] * series[lag:]
            assert abs(product.mean()) < 5 * product.std() / np.sqrt(product.size), lag


def test_pairs_are_uniform_in_the_plane():
    """Chi-square of 16 × 16 equally likely cells of the two members of a Box–Muller pair."""
    draws = stats.norm.cdf(normals(1_000_000)).reshape(2, -1)
    cells, *_ = np.histogram2d(*draws, bins=16, range=[[0, 1], [0, 1]])
    assert stats.chisquare(cells.ravel()).pvalue > FLOOR


@pytest.mark.parametrize("origin", ["children", "seeds", "grandchildren"])
def test_streams_are_independent_of_each_other(origin):
    n_streams, n = 400, 2_500
    if origin == "children":
        family = split_stream(stream_of(), n_streams)
    elif origin == "seeds":
        family = np.array([stream_of(seed) for seed in range(n_streams)])
    else:
        family = np.array(
            [split_stream(split_stream(stream_of(), n_streams)[i], 2)[1] for i in range(n_streams)]
        )
    draws = np.array([normals(n, stream) for stream in family])
    # Correlation of the streams would inflate the variance of their sum at each position.
    total = draws.sum(axis=0) / np.sqrt(n_streams)
    assert stats.kstest(total, "norm").pvalue > FLOOR
    neighbours = (draws[:-1] * draws[1:]).mean(axis=1) * np.sqrt(n)
    assert stats.kstest(neighbours, "norm").pvalue > FLOOR
    correlation = np.corrcoef(draws)[np.triu_indices(n_streams, 1)] * np.sqrt(n)
    assert np.abs(correlation).max() < 6.5
    assert correlation.var() == pytest.approx(1, abs=5 * np.sqrt(2 / correlation.size))


def test_keys_have_irregular_digits():
    children = split_stream(stream_of(), 20_000)
    assert len(set(children[:, 0].tolist())) == len(children)
    assert not children[:, 1].any()
    for key in children[:, 0]:
        digits = f"{int(key):016x}"
        assert "0" not in digits
        assert len(set(digits[:8])) == len(set(digits[8:])) == 8
        assert int(key) % 2 == 1


def test_splitting_is_fixed_by_the_parent_and_advances_it():
    parent, copy = stream_of(), stream_of()
    first = split_stream(parent, 3)
    np.testing.assert_array_equal(first, split_stream(copy, 3))
    assert parent.tolist() == copy.tolist()
    assert parent[1] == 3
    assert not np.isin(split_stream(parent, 3), first[:, 0]).any()


def test_splitting_in_compiled_code():
    @numba.njit
    def total(stream):
        out = np.empty(4)
        sum_ = 0.0
        children = split_stream(stream, 3)
        for i in range(3):
            fill_normal(children[i], out)
            sum_ += out.sum()
        return sum_

    children = split_stream(stream_of(), 3)
    assert total(stream_of()) == pytest.approx(sum(normals(4, child).sum() for child in children))


@pytest.mark.parametrize("fill", [fill_normal, fill_uniform])
def test_the_loop_over_counters_is_vectorised(fill):
    fresh = numba.njit(error_model="numpy", fastmath=jit.FAST_MATH)(fill.py_func)
    fresh(stream_of(), np.empty(10))
    (code,) = fresh.inspect_llvm().values()
    assert " x double>" in code
    assert " x i64>" in code
