"""Tests of uniformity: statistics by hand, published critical values, levels, power."""

import numpy as np
import pytest
from scipy import stats

from pymc_geodesic.diagnostics import uniformity_test
from pymc_geodesic.diagnostics.uniformity import _gine_tail
from pymc_geodesic.distributions.draws import draw_uniform_directions, draw_von_mises_fisher

TESTS = ["rayleigh", "bingham", "gine", "gine_gn"]


def uniform(n, d, seed=1):
    return draw_uniform_directions(np.random.default_rng(seed), (n, d))


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


def test_limit_law_has_the_published_critical_value():
    """F on the sphere: 2.748 at 5 % (Keilson, Petrondas, Sumita and Wellner 1983)."""
    assert _gine_tail(2.748, 3, antipodal=False) == pytest.approx(0.05, abs=2e-4)


@pytest.mark.parametrize("d", [2, 3, 6])
@pytest.mark.parametrize("test", TESTS)
def test_levels(test, d):
    """P-values of small uniform samples are uniform."""
    x = draw_uniform_directions(np.random.default_rng(7), (300, 20, d))
    p_values = [uniformity_test(each, test).pvalue for each in x]
    assert stats.kstest(p_values, stats.uniform.cdf).pvalue > 1e-3


def test_without_its_correction_bingham_has_another_level():
    """A mutant: the plain statistic of six points in four dimensions."""
    x = draw_uniform_directions(np.random.default_rng(7), (4000, 6, 4))
    corrected = [uniformity_test(each, "bingham").pvalue for each in x]
    scatter = np.swapaxes(x, 1, 2) @ x / 6
    plain = stats.chi2.sf(6 * 12 * (np.sum(scatter**2, axis=(1, 2)) - 0.25), 9)
    wrong = abs(np.mean(plain < 0.05) - 0.05)
    assert abs(np.mean(np.array(corrected) < 0.05) - 0.05) < wrong
    assert wrong > 5 * np.sqrt(0.05 * 0.95 / 4000)


def test_simulation_agrees_with_the_limit():
    x = uniform(30, 3)
    for test in TESTS:
        simulated = uniformity_test(x, test, method="monte-carlo", n_resamples=400, random_seed=1)
        p = uniformity_test(x, test).pvalue
        assert abs(simulated.pvalue - p) < 5 * np.sqrt(p * (1 - p) / 400) + 0.02


def test_power():
    """A mean direction is seen by Rayleigh and Giné's F, axes by Bingham and both of Giné."""
    rng = np.random.default_rng(7)
    mean = draw_von_mises_fisher(rng, [0.0, 0.0, 1.0], 1.0, (80,))
    axes = rng.normal(size=(150, 3)) * [1.0, 1.0, 3.0]
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    for test in ("rayleigh", "gine"):
        assert uniformity_test(mean, test).pvalue < 1e-3
    for test in ("bingham", "gine", "gine_gn"):
        assert uniformity_test(axes, test).pvalue < 1e-3
    assert uniformity_test(axes).pvalue > 1e-3


def test_bad_arguments_are_named():
    x = uniform(5, 3)
    with pytest.raises(ValueError, match="test='ajne' is unknown"):
        uniformity_test(x, "ajne")
    with pytest.raises(ValueError, match="method='exact' is unknown"):
        uniformity_test(x, method="exact")
    with pytest.raises(ValueError, match="no unit vectors"):
        uniformity_test(2 * x)
    with pytest.raises(ValueError, match="at least 2 points"):
        uniformity_test(x[:1])
