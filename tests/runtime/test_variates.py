"""Gamma and Poisson variates against the distribution functions of SciPy."""

import math

import numpy as np
import pytest
from scipy import special, stats

from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.numerics import exponential
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.runtime.variates import fill_log_gamma, fill_poisson, log_gamma

N = 100_000
SHAPES = [1e-3, 0.03, 0.099, 0.1, 0.5, 0.999, 1.0, 1.5, 20.0, 1e4, 1e9]
RATES = [1e-300, 1e-12, 1e-3, 0.7, 4.0, 9.99, 10.0, 37.5, 1e3, 1e6, 1e9]


@compiled(cache=False)
def many_log_gammas(stream, shape, out):
    for i in range(out.size):
        out[i] = log_gamma(stream, shape)


def fill_same(stream, shape, out):
    fill_log_gamma(stream, np.full(out.size, shape), out)


def stream(seed=1):
    return new_stream(np.random.default_rng(seed))


def log_gamma_cdf(x, shape):
    """P(log G ≤ x); below the range of exp by the first term of the series."""
    leading = np.exp(shape * np.minimum(x, 0.0) - special.gammaln(shape + 1.0))
    return np.where(x < -600.0, leading, special.gammainc(shape, np.exp(np.maximum(x, -600.0))))


@pytest.mark.parametrize("draw", [fill_same, many_log_gammas])
@pytest.mark.parametrize("shape", SHAPES)
def test_log_gamma_distribution(draw, shape):
    draws = np.empty(N)
    draw(stream(), shape, draws)
    assert np.isfinite(draws).all()
    assert stats.kstest(draws, log_gamma_cdf, args=(shape,)).pvalue > 1e-4


@pytest.mark.parametrize("shape", [1e-9, 1e-3, 0.5, 3.0])
def test_moments_of_log_gamma_are_polygammas(shape):
    draws = np.empty(N)
    fill_same(stream(2), shape, draws)
    error = math.sqrt(special.polygamma(1, shape) / N)
    assert abs(draws.mean() - special.psi(shape)) < 5.0 * error


def test_shapes_that_change_within_a_block():
    shapes = np.tile([1e-3, 5.0, 0.4, 1e6], N // 4)
    draws = np.empty(N)
    fill_log_gamma(stream(), shapes, draws)
    uniforms = log_gamma_cdf(draws, shapes)
    assert stats.kstest(uniforms, "uniform").pvalue > 1e-4
    for start in range(4):
        assert stats.kstest(uniforms[start::4], "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(uniforms[:-1], uniforms[1:])[0, 1]) < 5.0 / math.sqrt(N)


def fill_same_rate(stream, rate, out):
    fill_poisson(stream, np.full(out.size, rate), out)


def test_exponential():
    x = np.concatenate([np.linspace(-699.0, 699.0, 9973), np.linspace(-1.0, 1.0, 101)])
    found = np.array([exponential(each) for each in x])
    assert np.abs(found / np.exp(x) - 1.0).max() < 2e-13
    near = np.abs(x) < 1.0
    assert np.abs(found[near] / np.exp(x[near]) - 1.0).max() < 4e-16
    assert exponential(-1e9) == pytest.approx(math.exp(-700.0))
    assert exponential(1e9) == pytest.approx(math.exp(700.0))


def test_rates_that_change_within_a_block():
    rates = np.tile([0.0, 2.0, 300.0, 9.0], N // 4)
    counts = np.empty(N)
    fill_poisson(stream(), rates, counts)
    assert (counts[::4] == 0.0).all()
    for start in (1, 2, 3):
        own, rate = counts[start::4], rates[start]
        assert abs(own.mean() - rate) < 5.0 * math.sqrt(rate / len(own))
        assert own.var() == pytest.approx(rate, rel=0.05)


@pytest.mark.parametrize("rate", RATES)
def test_poisson_distribution(rate):
    """χ² over cells of about equal probability."""
    counts = np.empty(N)
    fill_same_rate(stream(), rate, counts)
    assert np.array_equal(counts, np.floor(counts))
    if rate < 1e-6:
        assert counts.max() == 0.0
        return
    edges = np.unique(stats.poisson.ppf(np.linspace(0.0, 1.0, 41)[1:-1], rate))
    cumulative = np.concatenate([[0.0], stats.poisson.cdf(edges, rate), [1.0]])
    expected = N * np.diff(cumulative)
    observed = np.bincount(np.searchsorted(edges, counts), minlength=len(edges) + 1)
    kept = expected > 1.0
    scale = observed[kept].sum() / expected[kept].sum()
    assert stats.chisquare(observed[kept], expected[kept] * scale).pvalue > 1e-4


def test_poisson_of_huge_rates_is_normal():
    counts = np.empty(N)
    rate = 1e16
    fill_same_rate(stream(), rate, counts)
    assert stats.kstest((counts - rate) / math.sqrt(rate), "norm").pvalue > 1e-4


def test_a_copied_stream_repeats_the_variates():
    first = stream()
    second = first.copy()
    draws = np.empty((2, 1000))
    for one, row in zip((first, second), draws, strict=True):
        fill_same(one, 0.2, row)
        fill_same_rate(one, 12.0, np.empty(3))
    np.testing.assert_array_equal(draws[0], draws[1])
    np.testing.assert_array_equal(first, second)


def test_nan_is_propagated():
    """A rejection that compares with it would never end."""
    numbers = np.array([0.5, np.nan, 20.0, np.nan, 1e-3, np.inf])
    draws = np.empty(6)
    for fill in (fill_poisson, fill_log_gamma):
        fill(stream(), numbers, draws)
        assert np.isnan(draws[[1, 3]]).all()
        assert np.isfinite(draws[[0, 2, 4]]).all()
