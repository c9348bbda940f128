"""Bivariate von Mises distribution of the sine model: constant, draws, models."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from scipy import special, stats

from pymc_geodesic import PeriodicVonMises, SineBivariateVonMises
from pymc_geodesic.distributions.circular import torus, wrap_angles
from pymc_geodesic.distributions.sine_bivariate_von_mises import (
    _first_angles,
    log_sine_normalizer,
)
from tests.distributions.directional_checks import (
    angle_p_value,
    central_differences,
    compiled_draws,
    log_density,
    numpy_draws,
)
from tests.processes import in_its_own_process

PAIRS = [(0.0, 0.0, 0.0), (1.0, 2.0, 0.0), (1.0, 2.0, 1.2), (2.0, 3.0, -9.0), (0.0, 0.0, 30.0),
         (400.0, 5.0, 60.0), (300.0, 300.0, 300.0)]  # fmt: skip


GRID = np.linspace(-np.pi, np.pi, 8001)[:-1]


def log_constant_by_quadrature(k1, k2, lam):
    """Integrate the first angle, the second having a Bessel function."""
    r = np.hypot(k2, lam * np.sin(GRID))
    exponent = k1 * np.cos(GRID) + np.log(special.i0e(r)) + r
    return special.logsumexp(exponent) + np.log(4 * np.pi**2 / GRID.size)


@pytest.fixture(scope="module")
def constant():
    kappa, lam = pt.dvector("kappa"), pt.dscalar("lam")
    value = log_sine_normalizer(kappa, lam)
    return pytensor.function([kappa, lam], [value, *pt.grad(value, [kappa, lam])])


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_series_against_quadrature(constant, pair):
    kappa, lam = np.array(pair[:2]), np.array(pair[2])
    value, along_kappa, along_lam = constant(kappa, lam)
    assert value == pytest.approx(log_constant_by_quadrature(*kappa, lam), rel=1e-13, abs=1e-13)
    inside = np.maximum(kappa, 1e-4)  # no derivative is taken across zero
    slopes = central_differences(lambda k: log_constant_by_quadrature(*k, lam), inside, 1e-5)
    np.testing.assert_allclose(along_kappa, slopes, rtol=1e-6, atol=1e-4)
    slope = central_differences(lambda v: log_constant_by_quadrature(*kappa, v), lam, 1e-5)
    assert along_lam == pytest.approx(float(slope), rel=1e-6, abs=1e-9)


@pytest.mark.slow
def test_series_with_too_many_terms_is_nan(constant):
    assert np.isnan(constant(np.ones(2), np.array(1e9))[0])


def constant_by_jax(pairs):
    kappa, lam = pt.dvector("kappa"), pt.dscalar("lam")
    value = log_sine_normalizer(kappa, lam)
    found = pytensor.function([kappa, lam], [value, *pt.grad(value, [kappa, lam])], mode="JAX")
    return [
        [np.asarray(each) for each in found(np.array(pair[:2]), np.array(pair[2]))]
        for pair in pairs
    ]


@pytest.mark.slow
def test_jax_agrees(constant):
    """With a fixed number of terms; NaN if they do not suffice."""
    pytest.importorskip("jax")
    *found, too_few = in_its_own_process(constant_by_jax, [*PAIRS, (1e5, 1e5, 0.5)])
    for pair, by_jax in zip(PAIRS, found, strict=True):
        expected = constant(np.array(pair[:2]), np.array(pair[2]))
        for one, other in zip(by_jax, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)
    assert np.isnan(too_few[0])


def test_density_of_pairs_and_batches():
    mu, kappa = np.array([0.5, -2.0]), np.array([[1.0, 2.0], [3.0, 0.0]])
    lam, x = np.array([1.5, -4.0]), np.array([[[0.2, 0.3]], [[7.0, -9.0]]])
    found = log_density(SineBivariateVonMises.dist(mu, kappa, lam), x)
    a = x - mu
    expected = np.sum(kappa * np.cos(a), axis=-1) + lam * np.sin(a[..., 0]) * np.sin(a[..., 1])
    expected -= [log_constant_by_quadrature(*k, v) for k, v in zip(kappa, lam, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_independent_pairs_are_two_von_mises_angles():
    x = np.array([[0.2, 3.0], [7.0, -9.0]])
    pairs = log_density(SineBivariateVonMises.dist([0.5, -2.0], [1.0, 4.0], 0.0), x)
    each = log_density(PeriodicVonMises.dist([0.5, -2.0], [1.0, 4.0]), x)
    np.testing.assert_allclose(pairs, each.sum(axis=-1), rtol=1e-12)


@cache
def numba_pairs():
    return compiled_draws(
        SineBivariateVonMises, pt.dvector("mu"), pt.dvector("kappa"), pt.dscalar("lam")
    )


def pair_p_values(x, k1, k2, lam):
    """Test both margins and, by its angle given the first, the second one."""
    values = []
    for first, (a, b) in enumerate(((k1, k2), (k2, k1))):

        def margin(grid, a=a, b=b):
            r = np.hypot(b, lam * np.sin(grid))
            exponent = a * np.cos(grid) + np.log(special.i0e(r)) + r
            return np.exp(exponent - exponent.max())

        values.append(angle_p_value(x[:, first], margin))
    pull = lam * np.sin(x[:, 0])
    deviation = wrap_angles(x[:, 1] - np.arctan2(pull, k2))
    uniform = stats.vonmises(np.maximum(np.hypot(k2, pull), 1e-12)).cdf(deviation)
    return [*values, stats.kstest(uniform, stats.uniform.cdf).pvalue]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("pair", PAIRS)
def test_pairs_have_the_distribution(backend, pair):
    draw = numpy_draws(SineBivariateVonMises.rv_op) if backend == "numpy" else numba_pairs()
    kappa, lam = np.array(pair[:2]), np.array(pair[2])
    x = draw(7, 10_000, np.array([3.0, -1.0]), kappa, lam)
    assert np.abs(x).max() <= np.pi
    assert min(pair_p_values(wrap_angles(x - [3.0, -1.0]), *pair)) > 1e-4


def test_mutants_of_pairs_are_detected():
    """A wrong sign of the interaction, and a first angle independent of it."""
    x = numpy_draws(SineBivariateVonMises.rv_op)(7, 10_000, np.zeros(2), np.array([1, 2.0]), 3.0)
    assert min(pair_p_values(x, 1.0, 2.0, -3.0)) < 1e-6
    rng = np.random.default_rng(7)
    x[:, 0] = rng.vonmises(0.0, 1.0, len(x))
    assert min(pair_p_values(x, 1.0, 2.0, 3.0)) < 1e-6


@pytest.mark.parametrize("k1", [0.0, 1.0, 300.0, 1e5])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0, 1.1, 10.0])
def test_acceptance_rate_of_proposals(k1, ratio):
    """The acceptance rate is at least 20 % for every shape of the density."""
    k2 = max(4.0 * k1, 2.0)
    lam = ratio * max(np.sqrt(k1 * k2), 1.0)
    rng, n = np.random.default_rng(7), 2_000
    _, proposals = _first_angles(rng, np.full(n, k1), np.full(n, k2), np.full(n, lam))
    assert n / proposals > 0.2


def test_pairs_in_a_model():
    x = np.array([[0.2, 3.0], [7.0, -9.0]])
    with pm.Model() as model:
        mu = SineBivariateVonMises("mu", [0.0, 9.0], [0.0, 1.0], 0.5)
        kappa = pm.HalfNormal("kappa", shape=2)
        SineBivariateVonMises("x", mu, kappa, pm.Normal("lam"), observed=x)
    assert model.rvs_to_transforms[mu] is torus
    start = model.initial_point()
    np.testing.assert_allclose(start["mu_torus__"], [0.0, 9.0 - 2 * np.pi])
    logp = model.compile_logp(mode="FAST_COMPILE")
    turned = start | {"mu_torus__": start["mu_torus__"] + 4 * np.pi}
    assert logp(turned) == pytest.approx(logp(start), rel=1e-12)
    draws = SineBivariateVonMises.dist(np.zeros((4, 2)), [1.0, 2.0], 0.3)
    draws = pm.draw(draws, mode="FAST_COMPILE", random_seed=1)
    assert draws.shape == (4, 2)


def test_invalid_pairs_raise():
    with pytest.raises(ParameterValueError, match="SineBivariateVonMises are finite, kappa >= 0"):
        log_density(SineBivariateVonMises.dist([0.0, 0.0], [1.0, -1.0], 0.0), np.zeros(2))
    with pytest.raises(ValueError, match="kappa of SineBivariateVonMises must be a pair"):
        SineBivariateVonMises.dist([0.0, 0.0], [1.0, 2.0, 3.0], 0.0)
    with pytest.raises(ValueError, match="the last axis holds the two angles"):
        SineBivariateVonMises.dist([0.0, 0.0], [1.0, 2.0], 0.0, shape=(4, 3))
    with pytest.raises(ValueError, match="at least 0"):
        numpy_draws(SineBivariateVonMises.rv_op)(7, 2, np.zeros(2), np.array([1.0, -1.0]), 0.0)


def test_pairs_have_two_angles():
    pair = SineBivariateVonMises.dist([0.0, 1.0], [2.0, 3.0], 1.0)
    for value in (0.3, [0.3], [0.1, 0.2, 0.3]):
        with pytest.raises(ValueError, match="pairs of angles on the last axis"):
            pm.logp(pair, np.array(value))
    with pytest.raises(ValueError, match="ends with 4; the last axis holds the two angles"):
        SineBivariateVonMises.dist([0.0, 1.0], [2.0, 3.0], 1.0, shape=4)
