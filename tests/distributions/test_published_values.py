"""Densities against published values and SciPy."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, ive

from pymc_geodesic import Kent, PeriodicVonMises, ProjectedNormal, VonMisesFisher, WrappedCauchy
from tests.distributions.directional_checks import log_density, unit_vectors

NEAR, FAR = [np.sqrt(0.98), np.sqrt(0.02)], [0.0, 1.0]


@pytest.mark.parametrize(
    ("d", "mu", "kappa", "density"),
    [
        (3, [1.0], 1e-4, 0.0795854295583605),
        (3, FAR, 1e-4, 0.07957747141331854),
        (3, [1.0], 100, 15.915494309189533),
        (3, FAR, 100, 5.920684802611232e-43),
        (3, NEAR, 2000, 5.930499050746588e-07),
        (3, [1.0], 2000, 318.3098861837907),
        (5, [1.0], 2000, 101371.86957712633),
        (5, NEAR, 2000, 0.00018886808182653578),
    ],
)
def test_von_mises_fisher_at_the_first_axis(d, mu, kappa, density):
    """The table in SciPy's tests of `vonmises_fisher`, made with 50 digits of mpmath."""
    mean = np.pad(mu, (0, d - len(mu)))
    found = np.exp(log_density(VonMisesFisher.dist(mean, kappa), np.eye(d)[0]))
    assert found == pytest.approx(density, rel=5e-13)


def test_von_mises_by_wolfram_alpha():
    """PDF[VonMisesDistribution[0, 2], 1/4], as quoted in W. Weckesser's mpsci."""
    found = np.exp(log_density(PeriodicVonMises.dist(0.0, 2.0), 0.25))
    assert found == pytest.approx(0.48478694924138416374, rel=1e-14)


@pytest.mark.parametrize("kappa", [1e-8, 2.0, 1e3])
def test_von_mises_against_scipy(kappa):
    angles = np.linspace(-3.0, 3.0, 13)
    found = log_density(PeriodicVonMises.dist(0.7, kappa), angles)
    np.testing.assert_allclose(found, stats.vonmises(kappa, 0.7).logpdf(angles), rtol=1e-12)


@pytest.mark.parametrize("rho", [1e-8, 0.3, 0.999])
def test_wrapped_cauchy_against_scipy(rho):
    angles = np.linspace(-3.0, 3.0, 13)
    found = log_density(WrappedCauchy.dist(0.7, rho), angles)
    expected = stats.wrapcauchy(rho).logpdf((angles - 0.7) % (2.0 * np.pi))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_directions_of_normal_vectors_against_scipy():
    """Without a mean, the tangent of the angle has a Cauchy distribution."""
    x = unit_vectors(5, 2)
    found = np.exp(log_density(ProjectedNormal.dist([0.0, 0.0], np.diag([4.0, 1.0])), x))
    tangent = x[:, 1] / x[:, 0]  # half of a standard Cauchy variable
    slope = 1.0 / x[:, 0] ** 2
    np.testing.assert_allclose(found, 0.5 * slope * stats.cauchy(scale=0.5).pdf(tangent))


def test_kent_constant_by_its_series():
    """Kent (1982), section 2: 2π Σ Γ(j + ½) / Γ(j + 1) β²ʲ (κ / 2)^(−2j − ½) I_{2j + ½}(κ)."""
    kappa, beta, j = 10.0, 2.0, np.arange(60)
    terms = np.exp(gammaln(j + 0.5) - gammaln(j + 1.0) + 2 * j * np.log(beta))
    terms *= (kappa / 2.0) ** (-2 * j - 0.5) * ive(2 * j + 0.5, kappa)
    expected = -np.log(2.0 * np.pi * terms.sum())  # without the e^κ of ive and of the pole
    pole, major = np.eye(3)[2], np.eye(3)[0]
    assert log_density(Kent.dist(pole, major, kappa, beta), pole) == pytest.approx(expected)
