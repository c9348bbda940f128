"""Angular central Gaussian and ESAG: densities, draws, models."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from pymc.testing import assert_support_point_is_expected
from scipy import stats

from pymc_geodesic import ESAG, AngularCentralGaussian, ProjectedNormal
from tests.distributions.directional_checks import (
    central_differences,
    compiled_draws,
    evaluate,
    log_density,
    numpy_draws,
    sphere,
    unit_vectors,
)
from tests.grids import cross, slow

COV = np.array([[4.0, 1.5, 0.0], [1.5, 1.0, 0.2], [0.0, 0.2, 0.3]])
FAMILY = {
    "acg": lambda **kw: AngularCentralGaussian.dist(COV, **kw),
}


@pytest.mark.parametrize("name", FAMILY)
def test_density_integrates_to_one(name):
    x, weight = sphere()
    density = np.exp(evaluate(pm.logp(FAMILY[name](), x)))
    assert density @ weight == pytest.approx(1.0, abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("mode", [slow("FAST_COMPILE"), None])
def test_draws_have_the_moments_of_the_density(name, mode):
    """The density has a closed form, the draws are normal vectors: independent implementations."""
    draws = pm.draw(FAMILY[name](size=40_000), random_seed=7, mode=mode)
    np.testing.assert_allclose(np.linalg.norm(draws, axis=-1), 1.0, rtol=1e-13)
    x, weight = sphere()
    mass = np.exp(evaluate(pm.logp(FAMILY[name](), x))) * weight
    rows, columns = np.triu_indices(3)
    for statistic in (lambda v: v, lambda v: v[:, rows] * v[:, columns], lambda v: v**3):
        found = statistic(draws)
        error = found.std(axis=0) / len(draws) ** 0.5
        assert np.max(np.abs(found.mean(axis=0) - mass @ statistic(x)) / error) < 5


def test_angle_of_a_circular_angular_central_gaussian():
    """2θ is wrapped Cauchy (Mardia and Jupp, section 3.5.7)."""
    case = AngularCentralGaussian.dist(np.diag([4.0, 1.0]), size=20_000)
    x = pm.draw(case, random_seed=7, mode="FAST_COMPILE")
    # tan θ = (standard Cauchy) / 2
    assert stats.kstest(2.0 * x[:, 1] / x[:, 0], stats.cauchy.cdf).pvalue > 1e-4


def test_angular_central_gaussian_against_its_formula():
    x = np.array([0.6, 0.0, 0.8])
    expected = -np.log(4 * np.pi) - 0.5 * np.log(np.linalg.det(COV))
    expected -= 1.5 * np.log(x @ np.linalg.solve(COV, x))
    for scale in (1.0, 1e-9, 1e9):
        found = evaluate(pm.logp(AngularCentralGaussian.dist(scale * COV), x))
        assert found == pytest.approx(expected, rel=1e-12)


def test_gradients_against_differences():
    root = pt.dmatrix("root")
    x = sphere(3)[0]
    total = pm.logp(AngularCentralGaussian.dist(root @ root.T + pt.eye(3)), x).sum()
    function = pytensor.function([root], [total, pt.grad(total, root)], mode="FAST_COMPILE")
    gradient = function(COV)[1]
    for index in np.ndindex(3, 3):
        values = []
        for sign in (1.0, -1.0):
            moved = COV.copy()
            moved[index] += sign * 1e-5
            values.append(function(moved)[0])
        assert gradient[index] == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-7)


def test_batches_and_shapes():
    x = sphere(2)[0][:6].reshape(2, 3, 3)
    covs = np.stack([COV, np.eye(3), 2 * COV + np.eye(3)])
    central = evaluate(pm.logp(AngularCentralGaussian.dist(covs), x))
    for i, j in np.ndindex(2, 3):
        own = evaluate(pm.logp(AngularCentralGaussian.dist(covs[j]), x[i, j]))
        assert central[i, j] == pytest.approx(float(own), rel=1e-12)
    assert evaluate(AngularCentralGaussian.dist(covs, size=(4, 3))).shape == (4, 3, 3)


def test_a_model_starts_on_the_sphere():
    with pm.Model() as model:
        AngularCentralGaussian("a", COV, shape=(2, 3))
    point = model.initial_point()
    np.testing.assert_allclose(np.linalg.norm(point["a_unitvector__"], axis=-1), 1.0)
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(point))


@pytest.mark.parametrize("cov", [np.diag([1.0, 0.0]), np.diag([1.0, -1.0]), [[1.0, 0.5], [0, 1.0]]])
def test_invalid_covariances_raise(cov):
    x = AngularCentralGaussian.dist(cov)
    with pytest.raises(ParameterValueError, match="cov is symmetric and positive definite"):
        evaluate(pm.logp(x, [1.0, 0.0]))
    with pytest.raises(ValueError, match="cov must be"):
        pm.draw(x, mode="FAST_COMPILE")


def test_vector_as_covariance_raises():
    with pytest.raises(ValueError, match="cov of AngularCentralGaussian must be a square"):
        AngularCentralGaussian.dist(np.ones(3))


MU = np.array([1.0, -2.0, 1.5])
GAMMA = np.array([-0.7, 1.2])


def covariance(mu, gamma):
    """V by the formulas of Paine, Preston, Tsagris and Wood."""
    radius = np.hypot(mu[1], mu[2])
    xi1 = np.array([-(radius**2), mu[0] * mu[1], mu[0] * mu[2]]) / radius / np.linalg.norm(mu)
    xi2 = np.array([0.0, -mu[2], mu[1]]) / radius
    plane = np.outer(xi1, xi1) + np.outer(xi2, xi2)
    inverse = np.eye(3) + (np.sqrt(1.0 + gamma @ gamma) - 1.0) * plane
    inverse += gamma[0] * (np.outer(xi1, xi1) - np.outer(xi2, xi2))
    inverse += gamma[1] * (np.outer(xi1, xi2) + np.outer(xi2, xi1))
    return np.linalg.inv(inverse)


@pytest.mark.parametrize(("length", "eccentricity"), cross([1.0, 0.01, 20.0], [1.0, 0.0, 10.0]))
def test_esag_is_a_projected_normal_distribution(length, eccentricity):
    x, mu, gamma = unit_vectors(50, 3), length * MU, eccentricity * GAMMA
    found = log_density(ESAG.dist(mu, gamma), x)
    expected = log_density(ProjectedNormal.dist(mu, covariance(mu, gamma)), x)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "mu", [MU, np.zeros(3), [3.0, 0.0, 0.0], slow([-3.0, 0.0, 0.0]), slow(-2.0 * MU)]
)
def test_total_mass(mu):
    x, weight = sphere()
    density = np.exp(log_density(ESAG.dist(mu, GAMMA), x))
    assert density @ weight == pytest.approx(1.0, abs=1e-9)


def test_accuracy_at_extreme_parameters():
    """Near the mean it is normal in the tangent plane, with variance V / ‖μ‖² there."""
    mu, gamma = np.array([0.0, 0.0, 1e6]), np.array([1e4, 0.0])
    sizes = np.array([0.3e-8, -0.5e-4])  # along ξ₁ = −e₁ and ξ₂ = −e₂
    x = np.array([-sizes[0], -sizes[1], np.sqrt(1.0 - sizes @ sizes)])
    wide = 1e4 + np.sqrt(1e8 + 1.0)
    scaled = 1e6 * np.tan(np.arcsin(sizes)) * np.array([np.sqrt(wide), 1.0 / np.sqrt(wide)])
    expected = np.log(1e12 / (2.0 * np.pi)) - 0.5 * scaled @ scaled
    assert log_density(ESAG.dist(mu, gamma), x) == pytest.approx(expected, rel=1e-6)
    exact = log_density(ESAG.dist(mu, gamma), mu / 1e6)
    assert exact == pytest.approx(np.log(1e12 / (2.0 * np.pi)), rel=1e-11)


@pytest.mark.parametrize("mu", [MU, slow(-3.0 * MU), np.zeros(3)])
def test_gradients(mu):
    mean, shape, x = pt.dvector("mean"), pt.dvector("shape"), unit_vectors(6, 3)
    total = pm.logp(ESAG.dist(mean, shape), x).sum()
    outputs = [total, *pt.grad(total, [mean, shape])]
    function = pytensor.function([mean, shape], outputs, mode="FAST_COMPILE")
    _, in_mean, in_shape = function(mu, GAMMA)
    slopes = central_differences(lambda v: function(mu, v)[0], GAMMA)
    np.testing.assert_allclose(in_shape, slopes, rtol=1e-6, atol=1e-6)
    assert np.isfinite(in_mean).all()
    if mu.any():  # at zero the axes depend on the direction of the limit
        slopes = central_differences(lambda v: function(v, GAMMA)[0], mu)
        np.testing.assert_allclose(in_mean, slopes, rtol=1e-6, atol=1e-6)


def test_gradients_are_finite_on_the_axes():
    """At the mean, opposite to it, and with the mean at the pole of the axes."""
    mean, shape = pt.dvector("mean"), pt.dvector("shape")
    x = pt.dvector("x")
    function = pytensor.function(
        [x, mean, shape],
        pt.grad(pm.logp(ESAG.dist(mean, shape), x), [x, mean, shape]),
        mode="FAST_COMPILE",
    )
    for pole in np.eye(3):
        for gamma in (GAMMA, np.zeros(2)):
            for gradient in (*function(pole, 3.0 * pole, gamma), *function(-pole, pole, gamma)):
                assert np.isfinite(gradient).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "mu"), cross(["numba", "numpy"], [MU, np.array([-1.5, 0.0, 0.0])])
)
def test_esag_draws_have_the_moments_of_the_density(backend, mu):
    if backend == "numpy":
        draw = numpy_draws(ESAG.rv_op)
    else:
        draw = compiled_draws(ESAG, pt.dvector("mu"), pt.dvector("gamma"))
    x, weight = sphere()
    rows, columns = np.triu_indices(3)

    def statistic(v):
        return np.concatenate([v, v[:, rows] * v[:, columns], v**3], axis=1)

    def largest_z(gamma):
        mass = np.exp(log_density(ESAG.dist(mu, gamma), x)) * weight
        found = statistic(draws)
        error = found.std(axis=0) / len(draws) ** 0.5
        return np.max(np.abs(found.mean(axis=0) - mass @ statistic(x)) / error)

    draws = draw(7, 40_000, mu, GAMMA)
    np.testing.assert_allclose(np.linalg.norm(draws, axis=-1), 1.0, rtol=1e-13)
    assert largest_z(GAMMA) < 5
    assert largest_z(GAMMA * [1.0, -1.0]) > 10
    assert largest_z(1.1 * GAMMA) > 5


def test_batches_equal_a_loop():
    mu, gamma = 2.0 * unit_vectors(4, 1, 3), np.array([GAMMA, [0.5, 0.0]])
    x = unit_vectors(4, 2, 3, seed=2)
    found = log_density(ESAG.dist(mu, gamma), x)
    m, g, v = pt.dvector("m"), pt.dvector("g"), pt.dvector("v")
    one = pytensor.function([m, g, v], pm.logp(ESAG.dist(m, g), v), mode="FAST_COMPILE")
    looped = [[one(mu[i, 0], gamma[j], x[i, j]) for j in range(2)] for i in range(4)]
    np.testing.assert_allclose(found, looped, rtol=1e-12)
    assert evaluate(ESAG.dist(mu, gamma)).shape == (4, 2, 3)
    assert evaluate(ESAG.dist(MU, GAMMA, size=(5,))).shape == (5, 3)


def test_support_point_is_the_direction_of_the_mean():
    with pm.Model() as model:
        ESAG("x", [[0.0, 0.0, 0.0], [0.0, 3.0, 4.0]], GAMMA, size=(2, 2))
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        assert_support_point_is_expected(model, [[[1, 0, 0], [0, 0.6, 0.8]]] * 2)


def test_invalid_parameters_raise():
    x = np.array([0.6, 0.8, 0.0])
    with pytest.raises(ParameterValueError, match="mu and gamma of ESAG are finite"):
        log_density(ESAG.dist([np.inf, 0.0, 0.0], GAMMA), x)
    with pytest.raises(ParameterValueError, match="mu and gamma of ESAG are finite"):
        log_density(ESAG.dist(MU, [np.nan, 0.0]), x)
    with pytest.raises(ValueError, match="mu and gamma must be finite"):
        evaluate(ESAG.dist([np.inf, 0.0, 0.0], GAMMA))
    with pytest.raises(ValueError, match="mu of ESAG must have 3 coordinates"):
        ESAG.dist([1.0, 0.0], GAMMA)
    with pytest.raises(ValueError, match="gamma of ESAG must have 2 coordinates"):
        ESAG.dist(MU, 1.0)
    assert log_density(ESAG.dist(MU, GAMMA), 1.01 * x) == -np.inf


def test_integer_values_and_single_precision():
    assert log_density(ESAG.dist(MU, GAMMA), np.eye(3, dtype=int)).dtype == "float64"
    with pytensor.config.change_flags(floatX="float32"):
        x = ESAG.dist(MU.astype("float32"), GAMMA.astype("float32"))
        assert x.dtype == pm.logp(x, np.eye(3, dtype="float32")).dtype == "float32"
