"""Power spherical and spherical Cauchy distributions: densities, draws, model integration."""

from functools import cache

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from pymc.testing import assert_support_point_is_expected
from scipy import special, stats

from pymc_geodesic import PowerSpherical, SphericalCauchy, UniformSphere, WrappedCauchy
from pymc_geodesic.transforms import unit_vector
from tests.distributions.directional_checks import (
    angle_distribution,
    central_differences,
    compiled_draws,
    evaluate,
    log_density,
    numpy_draws,
    p_values_around,
    pole,
    unit_vectors,
)
from tests.grids import cross, slow


def power_logp(x, mu, kappa):
    """Equations 4 and 5 of De Cao and Aziz."""
    a, b = (mu.shape[-1] - 1) / 2 + kappa, (mu.shape[-1] - 1) / 2
    constant = (a + b) * np.log(2) + b * np.log(np.pi) + special.gammaln(a)
    return special.gammaln(a + b) - constant + kappa * np.log1p(np.sum(x * mu, axis=-1))


def cauchy_logp(x, mu, rho):
    """Equation 2 of Kato and McCullagh."""
    d = mu.shape[-1]
    area = np.log(2) + d / 2 * np.log(np.pi) - special.gammaln(d / 2)
    denominator = 1 + rho**2 - 2 * rho * np.sum(x * mu, axis=-1)
    return (d - 1) * np.log((1 - rho**2) / denominator) - area


def power_mean(d, kappa):
    return kappa / (kappa + d - 1)


def cauchy_mean(d, rho):
    return 2 * (d - 1) / d * rho * special.hyp2f1(1, 1 - d / 2, 1 + d / 2, rho**2)


CASES = {
    "power": (PowerSpherical, PowerSpherical.rv_op, power_logp, power_mean, [0.0, 0.7, 12.0, 3e3]),
    "cauchy": (
        SphericalCauchy,
        SphericalCauchy.rv_op,
        cauchy_logp,
        cauchy_mean,
        [0.0, 0.3, 0.9, 0.99],
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.mark.parametrize("d", [2, 3, 6])
def test_total_mass_and_mean(case, d):
    distribution, _, _, mean, numbers = case
    for number in numbers:
        mass, mean_cosine, _ = angle_distribution(distribution, pole(d), number)
        assert mass == pytest.approx(1.0, abs=1e-7)
        assert mean_cosine == pytest.approx(mean(d, number), abs=1e-7)


def test_mean_of_the_cauchy_distribution_on_the_sphere():
    """The closed form of the integral for d = 3."""
    rho = np.array([0.2, 0.7])
    log = np.log((1 + rho) / (1 - rho))
    expected = (1 + rho**2) / (2 * rho) - ((1 - rho**2) / (2 * rho)) ** 2 * log
    np.testing.assert_allclose(cauchy_mean(3, rho), expected, rtol=1e-12)


def test_density_and_batches(case):
    distribution, _, logp, _, numbers = case
    mu, x = unit_vectors(4, 1, 5), unit_vectors(4, 3, 5, seed=2)
    number = np.array(numbers[1:])
    found = log_density(distribution.dist(mu, number), x)
    np.testing.assert_allclose(found, logp(x, mu, number), rtol=1e-11)


def test_zero_is_uniform(case):
    x = unit_vectors(5, 4)
    uniform = log_density(UniformSphere.dist(shape=(5, 4)), x)
    np.testing.assert_allclose(log_density(case[0].dist(pole(4), 0.0), x), uniform, rtol=1e-13)


@pytest.mark.parametrize("mode", [slow("NUMBA"), "FAST_COMPILE"])
def test_gradients(case, mode):
    distribution, _, logp, _, numbers = case
    mu, number, x = pt.dvector("mu"), pt.dscalar("number"), unit_vectors(6, 4, seed=2)
    density = pm.logp(distribution.dist(mu, number), x).sum()
    outputs = [density, *pt.grad(density, [mu, number])]
    value, along_mu, along_number = pytensor.function([mu, number], outputs, mode=mode)(
        pole(4), numbers[1]
    )
    assert value == pytest.approx(logp(x, pole(4), numbers[1]).sum(), rel=1e-12)
    slope = central_differences(lambda n: logp(x, pole(4), n).sum(), np.array(numbers[1]))
    assert along_number == pytest.approx(float(slope), rel=1e-7)

    def turned(m):
        return logp(x, m / np.linalg.norm(m), numbers[1]).sum()

    # Only the tangential component is a derivative of the density.
    slopes = central_differences(turned, pole(4))
    np.testing.assert_allclose((along_mu - pole(4) * along_mu[-1]), slopes, rtol=1e-7, atol=1e-7)


def test_accuracy_near_the_mean():
    """1 + ρ² − 2ρ cos cancels here; the half-angle form does not."""
    rho, angle = 1.0 - 1e-9, 3e-9
    x = np.array([np.sin(angle), 0.0, 1.0])
    expected = 2 * np.log((1 - rho) * (1 + rho) / ((1 - rho) ** 2 + rho * angle**2))
    expected -= np.log(4 * np.pi)
    assert log_density(SphericalCauchy.dist(pole(3), rho), x) == pytest.approx(expected, rel=1e-12)


def test_on_the_circle_it_is_the_wrapped_cauchy_distribution():
    angles = np.linspace(-4.0, 9.0, 7)
    x = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    mu = np.array([np.cos(0.4), np.sin(0.4)])
    np.testing.assert_allclose(
        log_density(SphericalCauchy.dist(mu, 0.6), x),
        log_density(WrappedCauchy.dist(0.4, 0.6), angles),
        rtol=1e-12,
    )


def test_power_spherical_density_is_zero_opposite_to_the_mean():
    x = -np.eye(3)[2:]
    assert log_density(PowerSpherical.dist(pole(3), 1.5), x).tolist() == [-np.inf]
    assert np.isfinite(log_density(PowerSpherical.dist(pole(3), 0.0), x)).all()


# Random draws ---------------------------------------------------------------------------------


@cache
def numba_draws(distribution):
    return compiled_draws(distribution, pt.dvector("mu"), pt.dscalar("number"))


@pytest.mark.parametrize(("backend", "d"), cross(["numba", "numpy"], [2, 3, 5]))
def test_draws_have_the_distribution(case, backend, d):
    distribution, rv_op, _, _, numbers = case
    draw = numpy_draws(rv_op) if backend == "numpy" else numba_draws(distribution)
    for number in numbers[1:]:
        _, _, cdf = angle_distribution(distribution, pole(d), number)
        mu = unit_vectors(d)
        assert min(p_values_around(mu, draw(7, 20_000, mu, number), cdf)) > 1e-4


def test_mutants_of_draws_are_detected():
    """A concentration with an error of 10 %, a wrong Möbius map, and a missing rotation."""
    mu = unit_vectors(4)
    _, _, power = angle_distribution(PowerSpherical, pole(4), 12.0)
    _, _, cauchy = angle_distribution(SphericalCauchy, pole(4), 0.5)
    draw = numpy_draws(PowerSpherical.rv_op)
    assert p_values_around(mu, draw(7, 20_000, mu, 13.2), power)[0] < 1e-6
    uniform = unit_vectors(20_000, 4)
    unsquared = uniform + 0.5 * mu
    unsquared /= np.linalg.norm(unsquared, axis=-1, keepdims=True)
    assert p_values_around(mu, unsquared, cauchy)[0] < 1e-6
    skew = draw(7, 20_000, mu, 12.0)
    skew[:, 0] = np.abs(skew[:, 0])
    assert min(p_values_around(mu, skew, power)) < 1e-6


def test_each_row_has_its_own_parameters(case):
    distribution, rv_op, _, _, numbers = case
    n = 20_000
    mu, number = unit_vectors(n, 3), np.tile([numbers[1], numbers[-1]], n // 2)
    x = rv_op.rng_fn(np.random.default_rng(7), mu, number, None)
    for value in numbers[1], numbers[-1]:
        rows = number == value
        _, _, cdf = angle_distribution(distribution, pole(3), value)
        angle = 2.0 * np.arcsin(np.linalg.norm(x[rows] - mu[rows], axis=-1) / 2.0)
        assert stats.kstest(angle, cdf).pvalue > 1e-4


def test_shapes_of_draws(case):
    distribution, rv_op, _, _, numbers = case
    mu = unit_vectors(4, 1, 3)
    rng = np.random.default_rng(7)
    assert rv_op.rng_fn(rng, mu, np.array(numbers[1:3]), None).shape == (4, 2, 3)
    assert rv_op.rng_fn(rng, mu[0, 0], np.array(0.5), (0,)).shape == (0, 3)
    x = distribution.dist(mu, np.array(numbers[1:3]), size=(5, 4, 2))
    assert pm.draw(x, mode="FAST_COMPILE", random_seed=1).shape == (5, 4, 2, 3)


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_invalid_parameters_of_draws_raise(case, backend):
    draw = numpy_draws(case[1]) if backend == "numpy" else numba_draws(case[0])
    with pytest.raises(ValueError, match="at least 0"):
        draw(1, 2, pole(3), -1.0)
    with pytest.raises(ValueError, match="unit vectors"):
        draw(1, 2, np.ones(3), 0.5)


# Model integration ------------------------------------------------------------------------------


def test_model_integration(case):
    distribution, _, logp, _, numbers = case
    x = unit_vectors(6, 3)
    with pm.Model(coords={"axis": list("xyz"), "day": range(6)}) as model:
        mean = distribution("mean", pole(3), numbers[1], dims="axis")
        number = pm.Beta("number", 2.0, 2.0)
        distribution("x", mean, number, observed=x, dims=("day", "axis"))
    assert model.rvs_to_transforms[mean] is unit_vector
    assert f"mean ~ {distribution.__name__}" in model.str_repr()
    model = cloudpickle.loads(cloudpickle.dumps(model))
    density = model.compile_logp(jacobian=False, mode="FAST_COMPILE")
    point = {"mean_unitvector__": np.array([0.3, -1.1, 0.9]), "number_logodds__": np.array(0.2)}
    m = point["mean_unitvector__"] / np.linalg.norm(point["mean_unitvector__"])
    p = special.expit(0.2)
    expected = logp(m, pole(3), numbers[1]) + logp(x, m, p).sum() + np.log(6 * p * (1 - p))
    assert density(point) == pytest.approx(
        expected, rel=1e-8
    )  # PyMC's Beta is accurate to ten digits


def test_support_point_is_the_mean(case):
    with pm.Model() as model:
        case[0]("x", np.eye(3), 0.5, size=(2, 3))
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        assert_support_point_is_expected(model, [np.eye(3), np.eye(3)])


def test_invalid_parameters_raise(case):
    distribution = case[0]
    name = distribution.__name__
    for mu, number in (([0.6, 0.6], 0.5), ([0.6, 0.8], -0.1)):
        with pytest.raises(ParameterValueError, match=f"mu of {name} is a unit vector"):
            log_density(distribution.dist(np.array(mu), number), np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match=f"mu of {name} must be a unit vector"):
        distribution.dist(1.0, 0.5)
    with pm.Model(), pytest.raises(ValueError, match="'wind' must be unit vectors"):
        distribution("wind", pole(3), 0.5, observed=2.0 * np.eye(3))
    with pm.Model(), pytest.raises(ValueError, match="ends with 4, but mu has 3"):
        distribution("wind", pole(3), 0.5, observed=np.eye(4))


def test_a_cauchy_distribution_needs_rho_below_one():
    with pytest.raises(ParameterValueError, match="rho < 1"):
        log_density(SphericalCauchy.dist(pole(3), 1.0), pole(3))


def test_values_off_the_sphere_have_no_density(case):
    value = pt.dmatrix("value")
    density = pm.logp(case[0].dist(pole(2), 0.5), value)
    found = evaluate(density, {value: np.array([[0.6, 0.8], [0.6, 0.9]])})
    assert np.isfinite(found).tolist() == [True, False]


def test_integer_values_and_single_precision(case):
    assert log_density(case[0].dist(pole(3), 0.5), np.eye(3, dtype=int)).dtype == "float64"
    with pytensor.config.change_flags(floatX="float32"):
        x = case[0].dist(pole(3).astype("float32"), np.float32(0.5))
        density = pm.logp(x, pole(3).astype("float32"))
        assert x.dtype == density.dtype == "float32"
