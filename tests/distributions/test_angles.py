"""Distributions of angles, the torus, links and rotations."""

import warnings
from functools import cache

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import circular
from pymc.exceptions import ImputationWarning
from pymc.logprob.utils import ParameterValueError
from pymc.testing import assert_support_point_is_expected
from scipy import integrate, special, stats

from pymc_geodesic import (
    PeriodicVonMises,
    SineBivariateVonMises,
    VonMisesFisher,
    WrappedCauchy,
    circular_link,
    rotation_to,
)
from pymc_geodesic.distributions.circular import (
    periodic_von_mises,
    torus,
    wrap_angles,
    wrapped_cauchy,
)
from pymc_geodesic.distributions.sine_bivariate_von_mises import (
    _first_angles,
    log_sine_normalizer,
    sine_bivariate_von_mises,
)
from tests.distributions.directional_checks import (
    central_differences,
    compiled_draws,
    evaluate,
    log_density,
    numpy_draws,
    unit_vectors,
)

GRID = np.linspace(-np.pi, np.pi, 8001)[:-1]
PAIRS = [(0.0, 0.0, 0.0), (1.0, 2.0, 0.0), (1.0, 2.0, 1.2), (2.0, 3.0, -9.0), (0.0, 0.0, 30.0),
         (400.0, 5.0, 60.0), (300.0, 300.0, 300.0)]  # fmt: skip

LAWS = {
    "von Mises": (
        PeriodicVonMises,
        periodic_von_mises,
        lambda a, k: k * np.cos(a) - np.log(2 * np.pi * special.i0e(k)) - k,
        lambda k: special.ive(1, k) / special.ive(0, k),
        [0.0, 0.8, 50.0],
    ),
    "wrapped Cauchy": (
        WrappedCauchy,
        wrapped_cauchy,
        lambda a, r: np.log((1 - r**2) / (1 + r**2 - 2 * r * np.cos(a)) / (2 * np.pi)),
        lambda r: r,
        [0.0, 0.4, 0.95],
    ),
}


@pytest.fixture(params=LAWS)
def law(request):
    return LAWS[request.param]


def test_density_period_and_mean(law):
    distribution, _, logp, length, numbers = law
    for number in numbers:
        x = distribution.dist(0.7, number)
        found = log_density(x, GRID)
        np.testing.assert_allclose(found, logp(GRID - 0.7, number), rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(log_density(x, GRID + 6 * np.pi), found, rtol=1e-9, atol=1e-9)
        mean = np.exp(found + 1j * GRID).mean() * 2 * np.pi
        assert mean == pytest.approx(length(number) * np.exp(0.7j), abs=1e-12)
        assert np.exp(found).mean() * 2 * np.pi == pytest.approx(1.0, rel=1e-12)


def test_the_periodic_law_is_that_of_pymc_within_its_bounds():
    here = log_density(PeriodicVonMises.dist(0.4, 3.0), GRID)
    np.testing.assert_allclose(here, log_density(pm.VonMises.dist(0.4, 3.0), GRID), rtol=1e-6)
    assert log_density(pm.VonMises.dist(0.4, 3.0), 4.0) == -np.inf


def test_tails_of_the_cauchy_law_keep_their_digits():
    away = 2e-10
    found = log_density(WrappedCauchy.dist(0.0, 1.0 - 1e-10), away)
    assert found == pytest.approx(np.log(2e-10 / (1e-20 + away**2) / (2 * np.pi)), rel=1e-7)


@pytest.mark.parametrize("mode", ["NUMBA", "FAST_COMPILE"])
def test_gradients(law, mode):
    distribution, _, logp, _, numbers = law
    mu, number, x = pt.dvector("mu"), pt.dscalar("number"), np.array([-2.0, 0.3, 9.0])
    density = pm.logp(distribution.dist(mu, number), x).sum()
    function = pytensor.function([mu, number], pt.grad(density, [mu, number]), mode=mode)
    m, k = np.array([0.1, 0.2, 3.0]), np.array(numbers[1])
    along_mu, along_number = function(m, k)
    slopes = central_differences(lambda v: logp(x - v, k).sum(), m)
    np.testing.assert_allclose(along_mu, slopes, rtol=1e-7, atol=1e-8)
    slope = central_differences(lambda v: logp(x - m, v).sum(), k)
    np.testing.assert_allclose(along_number, slope, rtol=1e-7)


@cache
def numba_draws(distribution):
    return compiled_draws(distribution, pt.dscalar("mu"), pt.dscalar("number"))


def angle_p_value(x, density):
    grid = np.linspace(-np.pi, np.pi, 20_001)
    cumulative = integrate.cumulative_simpson(density(grid), x=grid, initial=0.0)
    return stats.kstest(x, lambda a: np.interp(a, grid, cumulative / cumulative[-1])).pvalue


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_draws_have_the_law(law, backend):
    distribution, rv_op, logp, _, numbers = law
    draw = numpy_draws(rv_op) if backend == "numpy" else numba_draws(distribution)
    for number in numbers:
        x = draw(7, 20_000, 2.5, number)
        assert x.min() > -np.pi
        assert x.max() <= np.pi
        assert angle_p_value(x, lambda a, n=number: np.exp(logp(a - 2.5, n))) > 1e-4
    mutant = draw(7, 20_000, 2.6, numbers[2])
    assert angle_p_value(mutant, lambda a: np.exp(logp(a - 2.5, numbers[2]))) < 1e-6


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_draws_refuse_bad_parameters(law, backend):
    draw = numpy_draws(law[1]) if backend == "numpy" else numba_draws(law[0])
    with pytest.raises(ValueError, match="at least 0"):
        draw(1, 2, 0.0, -1.0)


def test_life_in_a_model(law):
    distribution, _, logp, _, _ = law
    x = np.array([0.3, 4.0, -7.0])
    with pm.Model(coords={"day": range(3)}) as model:
        mu = distribution("mu", 0.0, 0.2)
        slope = pm.Normal("slope")
        distribution("x", circular_link(slope * x, mu), 0.5, observed=x, dims="day")
        distribution("pair", [1.0, 2.0], 0.5, shape=(3, 2))
    assert model.rvs_to_transforms[mu] is circular
    model = cloudpickle.loads(cloudpickle.dumps(model))
    point = model.initial_point() | {"mu_circular__": np.array(8.0), "slope": np.array(0.6)}
    means = 8.0 + 2 * np.arctan(0.6 * x)
    expected = logp(8.0, 0.2) + stats.norm.logpdf(0.6) + logp(x - means, 0.5).sum()
    expected += 6 * logp(0.0, 0.5)
    found = model.compile_logp(mode="FAST_COMPILE")(point)
    assert found == pytest.approx(expected, rel=1e-9)


def test_support_point_is_the_mean(law):
    with pm.Model() as model:
        law[0]("x", [1.0, 7.0], 0.5, size=(2, 2))
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        assert_support_point_is_expected(model, [[1.0, 7.0 - 2 * np.pi]] * 2)


def test_bad_parameters_are_named(law):
    name = law[0].__name__
    for mu, number in ((np.nan, 0.5), (0.0, -0.1)):
        with pytest.raises(ParameterValueError, match=f"mu of {name} is finite"):
            log_density(law[0].dist(mu, number), 1.0)
    with pm.Model(), pytest.raises(ValueError, match="angles of 'wind' are not finite"):
        law[0]("wind", 0.0, 0.5, observed=[0.0, np.inf])


def test_wrapped_angles():
    angles = np.array([-np.pi, np.pi, 3 * np.pi, -0.5, 6.0])
    np.testing.assert_allclose(wrap_angles(angles), [np.pi, np.pi, np.pi, -0.5, 6.0 - 2 * np.pi])


# The torus ------------------------------------------------------------------------------------


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


def test_a_series_of_too_many_terms_is_no_number(constant):
    assert np.isnan(constant(np.ones(2), np.array(1e9))[0])


def test_jax_says_that_it_needs_the_number_of_terms():
    pytest.importorskip("jax")
    kappa, lam = pt.dvector("kappa"), pt.dscalar("lam")
    with pytest.raises(NotImplementedError, match="arange"):
        pytensor.function([kappa, lam], log_sine_normalizer(kappa, lam), mode="JAX")


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


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("pair", PAIRS)
def test_pairs_have_the_law(backend, pair):
    draw = numpy_draws(sine_bivariate_von_mises) if backend == "numpy" else numba_pairs()
    kappa, lam = np.array(pair[:2]), np.array(pair[2])
    x = draw(7, 10_000, np.array([3.0, -1.0]), kappa, lam)
    assert np.abs(x).max() <= np.pi
    assert min(pair_p_values(wrap_angles(x - [3.0, -1.0]), *pair)) > 1e-4


def test_mutants_of_pairs_are_found_out():
    """A sign of the interaction, and a first angle that knows nothing of it."""
    x = numpy_draws(sine_bivariate_von_mises)(7, 10_000, np.zeros(2), np.array([1, 2.0]), 3.0)
    assert min(pair_p_values(x, 1.0, 2.0, -3.0)) < 1e-6
    rng = np.random.default_rng(7)
    x[:, 0] = rng.vonmises(0.0, 1.0, len(x))
    assert min(pair_p_values(x, 1.0, 2.0, 3.0)) < 1e-6


@pytest.mark.parametrize("k1", [0.0, 1.0, 300.0, 1e5])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0, 1.1, 10.0])
def test_proposals_are_not_wasted(k1, ratio):
    """One of five is accepted, for every shape of the density."""
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


def test_bad_pairs_are_named():
    with pytest.raises(ParameterValueError, match="SineBivariateVonMises are finite, kappa >= 0"):
        log_density(SineBivariateVonMises.dist([0.0, 0.0], [1.0, -1.0], 0.0), np.zeros(2))
    with pytest.raises(ValueError, match="kappa of SineBivariateVonMises must be a pair"):
        SineBivariateVonMises.dist([0.0, 0.0], [1.0, 2.0, 3.0], 0.0)
    with pytest.raises(ValueError, match="the last axis holds the two angles"):
        SineBivariateVonMises.dist([0.0, 0.0], [1.0, 2.0], 0.0, shape=(4, 3))
    with pytest.raises(ValueError, match="at least 0"):
        numpy_draws(sine_bivariate_von_mises)(7, 2, np.zeros(2), np.array([1.0, -1.0]), 0.0)


# Links and rotations --------------------------------------------------------------------------


def test_link_wraps_the_line_once():
    eta = np.array([-np.inf, -1.0, 0.0, 1.0, np.inf])
    expected = 0.3 + np.array([-np.pi, -np.pi / 2, 0.0, np.pi / 2, np.pi])
    np.testing.assert_allclose(evaluate(circular_link(eta, 0.3)), expected)


@pytest.mark.parametrize("kind", ["rotation", "reflection"])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_matrix_takes_the_pole_to_the_direction(kind, d):
    mu = np.concatenate([unit_vectors(6, d), np.eye(d)[-1:], -np.eye(d)[-1:]])
    near = np.eye(d)[[-1, -1]] * np.array([[1.0], [-1.0]]) + 1e-9 * np.eye(d)[0]
    mu = np.concatenate([mu, near])
    matrices = evaluate(rotation_to(mu, kind))
    np.testing.assert_allclose(matrices[..., -1], mu, atol=1e-15)
    identity = np.broadcast_to(np.eye(d), matrices.shape)
    np.testing.assert_allclose(matrices @ np.swapaxes(matrices, -1, -2), identity, atol=1e-12)
    sign = 1.0 if kind == "rotation" else -1.0
    np.testing.assert_allclose(np.linalg.det(matrices), sign, rtol=1e-12)


@pytest.mark.parametrize("kind", ["rotation", "reflection"])
def test_derivative_of_the_matrix(kind):
    mu, weights = pt.dvector("mu"), np.random.default_rng(1).normal(size=(4, 4))
    total = (weights * rotation_to(mu, kind)).sum()
    function = pytensor.function([mu], [total, pt.grad(total, mu)], mode="FAST_COMPILE")
    for point in unit_vectors(3, 4):
        # Turning along the sphere: what leaves it is no matter.
        tangents = np.linalg.svd(point[None])[2][1:]
        for tangent in tangents:
            up, down = (
                np.cos(1e-5) * point + side * np.sin(1e-5) * tangent for side in (1.0, -1.0)
            )
            slope = (function(up)[0] - function(down)[0]) / 2e-5
            assert function(point)[1] @ tangent == pytest.approx(float(slope), abs=1e-8)
    assert np.isfinite(function(np.eye(4)[3])[1]).all()
    assert np.isfinite(function(-np.eye(4)[3])[1]).all()


def test_a_density_turns_with_the_rotation():
    """As in a regression: the mean near the pole, turned to an overall mean."""
    local, overall, x = unit_vectors(3, seed=4), unit_vectors(3), unit_vectors(5, 3, seed=2)
    matrix = rotation_to(overall)
    turned = log_density(VonMisesFisher.dist(matrix @ local, 4.0), x)
    back = x @ evaluate(matrix)
    np.testing.assert_allclose(turned, log_density(VonMisesFisher.dist(local, 4.0), back))


def test_bad_arguments_of_rotations():
    with pytest.raises(ValueError, match="kind='turn' is unknown"):
        rotation_to([0.0, 1.0], "turn")
    with pytest.raises(ValueError, match="mu of rotation_to must be a unit vector"):
        rotation_to(1.0)
    with pytest.raises(ValueError, match="mu of rotation_to must hold unit vectors"):
        rotation_to([0.0, 0.0, 2.0])


def test_a_number_keeps_its_digits_in_the_link():
    assert evaluate(circular_link(0.5, 0.25)) == pytest.approx(
        0.25 + 2.0 * np.arctan(0.5), rel=1e-15
    )


@pytest.mark.parametrize("as_data", [False, True], ids=["array", "pm.Data"])
def test_degrees_are_noticed(as_data):
    degrees = np.array([10.0, 350.0, np.nan])[: 2 if as_data else 3]
    with pm.Model(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        with pytest.warns(UserWarning, match=r"angles of 'wind' go to 350.*np\.deg2rad"):
            WrappedCauchy("wind", 0.0, 0.5, observed=pm.Data("x", degrees) if as_data else degrees)
        PeriodicVonMises("calm", 0.0, 1.0, observed=np.deg2rad(degrees))
        PeriodicVonMises("none", 0.0, 1.0, observed=np.zeros(0))
        PeriodicVonMises("twice around", 0.0, 1.0, observed=np.deg2rad([-720.0, 719.0]))


def test_pairs_have_two_angles():
    pair = SineBivariateVonMises.dist([0.0, 1.0], [2.0, 3.0], 1.0)
    for value in (0.3, [0.3], [0.1, 0.2, 0.3]):
        with pytest.raises(ValueError, match="pairs of angles on the last axis"):
            pm.logp(pair, np.array(value))
    with pytest.raises(ValueError, match="ends with 4; the last axis holds the two angles"):
        SineBivariateVonMises.dist([0.0, 1.0], [2.0, 3.0], 1.0, shape=4)
