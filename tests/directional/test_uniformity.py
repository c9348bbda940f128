"""Tests of uniformity: statistics by hand, published critical values, levels, power."""

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from pymc_geodesic.directional import uniformity_test
from pymc_geodesic.directional.uniformity import (
    _STATISTICS,
    BATCH_ENTRIES,
    _limit_distribution,
    _LimitDistribution,
    _survival_function,
    in_batches,
)
from pymc_geodesic.distributions.von_mises_fisher_draws import (
    draw_uniform_directions,
    draw_von_mises_fisher,
)

TESTS = ["rayleigh", "bingham", "gine", "gine_gn"]


def uniform(n, d, seed=1):
    return draw_uniform_directions(np.random.default_rng(seed), (*np.atleast_1d(n), d))


def test_statistics_by_their_formulas_on_the_sphere():
    """Mardia and Jupp (2000), equations 10.4.4, 10.4.6 and section 10.4.1, for d = 3."""
    x = uniform(12, 3)
    n = len(x)
    s = 3 * n * np.sum(x.mean(axis=0) ** 2)
    expected = (1 - 1 / (2 * n)) * s + s**2 / (10 * n)
    assert uniformity_test(x).statistic == pytest.approx(expected)
    pairs = np.triu_indices(n, 1)
    angle = np.arccos((x @ x.T)[pairs])
    g = n / 2 - 4 / (n * np.pi) * np.sin(angle).sum()
    f = 3 * n / 2 - 4 / (n * np.pi) * (angle + np.sin(angle)).sum()
    assert uniformity_test(x, "gine_gn").statistic == pytest.approx(g, rel=1e-6)
    assert uniformity_test(x, "gine").statistic == pytest.approx(f, rel=1e-6)


def test_limit_distribution_has_the_published_critical_value():
    """F on the sphere: 2.748 at 5 % (Keilson, Petrondas, Sumita and Wellner 1983)."""
    assert _survival_function(2.748, _limit_distribution(3, False)) == pytest.approx(0.05, abs=2e-4)


def test_weights_of_the_limit_distribution_in_closed_form():
    """Fourier series of the kernels on the circle; squares of integrals of sgn on spheres."""
    k = np.arange(1, 11)
    even, odd = 1 / (2 * (4 * k**2 - 1)), 4 / (np.pi * (2 * k - 1)) ** 2
    np.testing.assert_allclose(_limit_distribution(2, True).weights[:10], even, rtol=1e-4)
    both = np.ravel(np.column_stack([odd, even]))
    np.testing.assert_allclose(_limit_distribution(2, False).weights[:20], both, rtol=1e-4)
    for d in (3, 5, 8):
        limit = _limit_distribution(d, False)
        order = d / 2 - 1
        for degree in (1, 3, 5):
            half, _ = integrate.quad(
                lambda t, n=degree, a=order: (
                    special.eval_gegenbauer(n, a, t) * (1 - t * t) ** (a - 0.5)
                ),
                0.0,
                1.0,
            )
            sign = 2 * half / special.eval_gegenbauer(degree, order, 1.0)
            sign /= special.beta(0.5, order + 0.5)
            assert limit.weights[degree - 1] == pytest.approx(sign**2, rel=1e-9)
        assert limit.freedom[:3].tolist() == [d, d * (d + 1) / 2 - 1, d * (d - 1) * (d + 4) / 6]


def test_tail_against_gamma_distributions():
    """A single weight gives a shifted gamma distribution, checked far in both tails."""
    for freedom in (2.0, 9.0, 4000.0):
        limit = _LimitDistribution(np.array([0.3]), np.array([freedom]), 0.1)
        exact = stats.gamma(freedom / 2, loc=0.1, scale=0.6)
        # With two degrees of freedom the integrand dies away only on the parabola.
        for p in (0.3, 1e-3, 1e-9, 1e-60) if freedom == 2 else (1 - 1e-9, 0.6, 1e-3, 1e-9, 1e-60):
            assert _survival_function(exact.isf(p), limit) == pytest.approx(p, rel=1e-6)
        assert _survival_function(0.05, limit) == 1.0


LEVELS = np.array([0.05, 0.1, 0.3, 0.5, 0.7, 0.9])


@pytest.fixture(scope="module", params=[(2, 10), (3, 10), (5, 10), (3, 30)])
def samples(request):
    d, n = request.param
    return uniform((10_000, n), d, seed=7)


def reached_levels(values, limit):
    """Return how many statistics exceed the critical values of each of `LEVELS`."""
    if isinstance(limit, _LimitDistribution):
        critical = [
            optimize.brentq(
                lambda v, p=p: _survival_function(v, limit) - p, limit.constant, 50.0, rtol=1e-6
            )
            for p in LEVELS
        ]
    else:
        critical = limit.isf(LEVELS)
    return np.mean(values > np.array(critical)[:, None], axis=1)


def limit_of(test, d):
    """Return the limit distribution of a statistic."""
    chi_squared = {"rayleigh": stats.chi2(d), "bingham": stats.chi2((d - 1) * (d + 2) / 2)}
    return chi_squared.get(test) or _limit_distribution(d, test == "gine_gn")


@pytest.mark.parametrize("test", TESTS)
def test_levels(test, samples):
    """Small uniform samples are rejected at the nominal level.

    For ten points the error is a few thousandths with Jupp's corrections, 0.02 for Giné's limit.
    """
    n, d = samples.shape[1:]
    found = reached_levels(_STATISTICS[test](samples), limit_of(test, d))
    bias = (0.05 if test in ("rayleigh", "bingham") else 0.2) / n
    allowed = bias + 4.5 * np.sqrt(LEVELS * (1 - LEVELS) / len(samples))
    assert np.all(np.abs(found - LEVELS) < allowed)
    # A mutant: the limit distribution of two more dimensions.
    wrong = reached_levels(_STATISTICS[test](samples), limit_of(test, d + 2))
    assert np.any(np.abs(wrong - LEVELS) > allowed)


def test_levels_without_jupps_corrections_are_wrong():
    """Mutants: the plain statistics of ten points in five dimensions."""
    x = uniform((40_000, 10), 5, seed=7)
    rayleigh = 5 / 10 * np.sum(x.sum(axis=1) ** 2, axis=1)
    scatter = np.swapaxes(x, 1, 2) @ x / 10
    bingham = 10 * 35 / 2 * (np.sum(scatter**2, axis=(1, 2)) - 0.2)
    error = np.sqrt(0.05 * 0.95 / len(x))
    for name, plain in (("rayleigh", rayleigh), ("bingham", bingham)):
        limit = limit_of(name, 5)
        wrong = abs(reached_levels(plain, limit)[0] - 0.05)
        assert wrong > 5 * error
        assert abs(reached_levels(_STATISTICS[name](x), limit)[0] - 0.05) < 0.5 * wrong


def test_samples_come_in_batches():
    assert list(in_batches(7, BATCH_ENTRIES // 3)) == [3, 3, 1]
    assert list(in_batches(2, 2 * BATCH_ENTRIES)) == [1, 1]


def test_simulation_agrees_with_the_limit():
    x = uniform(30, 3)
    for test in TESTS:
        simulated = uniformity_test(x, test, method="monte-carlo", n_resamples=400, random_seed=1)
        p = uniformity_test(x, test).pvalue
        assert abs(simulated.pvalue - p) < 5 * np.sqrt(p * (1 - p) / 400) + 0.02


def test_power():
    """Rayleigh and Giné's F detect a mean direction; Bingham and Giné's F and G detect axes."""
    rng = np.random.default_rng(7)
    mean = draw_von_mises_fisher(rng, [0.0, 0.0, 1.0], 1.0, (80,))
    axes = rng.normal(size=(150, 3)) * [1.0, 1.0, 3.0]
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    for test in ("rayleigh", "gine"):
        assert uniformity_test(mean, test).pvalue < 1e-3
    for test in ("bingham", "gine", "gine_gn"):
        assert uniformity_test(axes, test).pvalue < 1e-3
    assert uniformity_test(axes).pvalue > 1e-3


@pytest.mark.parametrize("n", [10, 4000])
def test_p_value_decreases_with_the_length_of_the_axis(n):
    """Jupp's correction beyond its range would make Bingham's statistic negative."""
    x = uniform(n, 3)
    found = []
    for length in (3.0, 6.0, 20.0, 100.0):
        axes = x * [1.0, 1.0, length]
        axes /= np.linalg.norm(axes, axis=1, keepdims=True)
        found.append(uniformity_test(axes, "bingham"))
    assert np.all(np.diff([result.statistic for result in found]) >= 0.0)
    assert found[-1].pvalue < 1e-4


def test_invalid_arguments_raise():
    x = uniform(5, 3)
    with pytest.raises(ValueError, match="test='ajne' is unknown"):
        uniformity_test(x, "ajne")
    with pytest.raises(ValueError, match="method='exact' is unknown"):
        uniformity_test(x, method="exact")
    with pytest.raises(ValueError, match="no unit vectors"):
        uniformity_test(2 * x)
    with pytest.raises(ValueError, match="at least 2 points"):
        uniformity_test(x[:1])
