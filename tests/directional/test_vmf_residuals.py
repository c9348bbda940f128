"""Residual tests of von Mises–Fisher fits: published critical values, levels, power."""

import numpy as np
import pytest
from scipy import stats

from pymc_geodesic.directional import vmf_residual_test
from pymc_geodesic.directional.goodness_of_fit import (
    _colatitude_cdf,
    _fit,
    _reflect_to_pole,
    _statistics,
)
from pymc_geodesic.distributions.von_mises_fisher_draws import draw_von_mises_fisher
from pymc_geodesic.ops.bessel import mean_resultant_length
from tests.grids import slow

POLE = np.array([0.48, 0.6, 0.64])


def rotation_between_first_and_last(d):
    matrix = np.eye(d)
    matrix[0, 0] = matrix[-1, -1] = 0.6
    matrix[0, -1], matrix[-1, 0] = 0.8, -0.8
    return matrix


@pytest.fixture(scope="module")
def statistics():
    rng = np.random.default_rng(7)
    return _statistics(draw_von_mises_fisher(rng, POLE, 10.0, (10_000, 40)))


@pytest.mark.parametrize(("column", "critical"), [(0, 1.094), (1, 1.207), (2, 0.895)])
def test_published_critical_values(statistics, column, critical):
    """The 5 % points of table A8 of Fisher, Lewis and Embleton (1987)."""
    level = np.mean(statistics[:, column] > critical)
    assert abs(level - 0.05) < 0.02


def test_fit_solves_the_likelihood_equation():
    x = draw_von_mises_fisher(np.random.default_rng(7), np.eye(6)[0], 9.0, (50,))
    mu, kappa = _fit(x)
    np.testing.assert_allclose(
        mean_resultant_length(6, kappa) * mu, x.mean(axis=0), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("d", [3, 4, 8])
def test_distribution_of_the_colatitude(d):
    x = draw_von_mises_fisher(np.random.default_rng(7), np.eye(d)[0], 6.0, (20_000,))
    deficit = 1.0 - x[:, 0]
    assert stats.kstest(_colatitude_cdf(deficit, 6.0, d), stats.uniform.cdf).pvalue > 1e-4
    assert stats.kstest(_colatitude_cdf(deficit, 6.5, d), stats.uniform.cdf).pvalue < 1e-6


@pytest.mark.parametrize("d", [3, 5])
def test_statistics_are_rotation_invariant_and_independent_of_other_samples(d):
    """Rotations of the data and other samples of a batch do not change the statistics."""
    rng = np.random.default_rng(7)
    x = draw_von_mises_fisher(rng, np.eye(d)[0], 8.0, (3, 25))
    alone = np.array([_statistics(each) for each in x])
    np.testing.assert_allclose(_statistics(x), alone, rtol=1e-12)
    # A rotation that keeps the second axis, about which the two-variable test measures angles.
    turned = x @ rotation_between_first_and_last(d)
    np.testing.assert_allclose(_statistics(turned)[:, :2], alone[:, :2], rtol=1e-9)


@pytest.mark.parametrize("d", [3, 4, 5])
def test_the_mean_goes_to_the_last_axis(d):
    for mu in (*np.eye(d), *-np.eye(d)):
        x = draw_von_mises_fisher(np.random.default_rng(7), mu, 8.0, (9,))
        turned = _reflect_to_pole(x, mu)
        np.testing.assert_allclose(turned[:, -1], x @ mu, atol=1e-14)
        np.testing.assert_allclose(turned @ turned.T, x @ x.T, atol=1e-14)


@pytest.mark.parametrize("d", [3, slow(5)])
def test_levels(d):
    rng = np.random.default_rng(7)
    p_values = []
    for seed in range(80):
        x = draw_von_mises_fisher(rng, np.eye(d)[0], 8.0, (15,))
        result = vmf_residual_test(x, n_resamples=39, random_seed=seed)
        p_values.append(
            [result.colatitude.pvalue, result.longitude.pvalue, result.two_variable.pvalue]
        )
    for column in np.array(p_values).T:
        assert abs(column.mean() - 0.5125) < 5 * np.sqrt(1 / 12 / 80)


@pytest.mark.parametrize("d", [3, 5])
def test_power_against_an_elliptical_distribution(d):
    """Normal vectors around a pole, with three times the sd in one direction."""
    rng = np.random.default_rng(7)
    y = rng.normal(size=(150, d)) * 0.1
    y[:, 0] *= 4.0
    y[:, -1] += 1.0
    x = y / np.linalg.norm(y, axis=1, keepdims=True)
    result = vmf_residual_test(x, n_resamples=199, random_seed=1)
    assert result.longitude.pvalue == 1 / 200
    assert min(result.colatitude.pvalue, result.two_variable.pvalue) <= 0.02


def test_invalid_arguments_raise():
    x = draw_von_mises_fisher(np.random.default_rng(7), POLE, 5.0, (10,))
    with pytest.raises(ValueError, match="at least 5 points"):
        vmf_residual_test(x[:4])
    with pytest.raises(ValueError, match="at least 3 coordinates"):
        vmf_residual_test(np.tile([1.0, 0.0], (9, 1)))
    with pytest.raises(ValueError, match="all points of x are equal"):
        vmf_residual_test(np.tile(POLE, (9, 1)))
    with pytest.raises(ValueError, match="no unit vectors"):
        vmf_residual_test(2.0 * x)
