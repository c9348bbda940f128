"""The projected normal distribution: density, gradients, exact draws, model integration."""

from functools import cache

import mpmath
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from pymc.testing import assert_support_point_is_expected
from scipy import integrate, special, stats

from pymc_geodesic import ProjectedNormal
from pymc_geodesic.distributions.projected_normal import (
    general_projected_normal,
    log_half_line_moment,
)
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

COV = {
    2: np.array([[2.0, -0.6], [-0.6, 0.5]]),
    3: np.array([[1.5, 0.3, -0.2], [0.3, 0.6, 0.1], [-0.2, 0.1, 1.0]]),
    5: np.diag([0.4, 1.0, 2.0, 0.7, 1.2]) + 0.1,
}


def logp_by_quadrature(x, mu, cov):
    """Integrate the normal density over the length of the vector."""
    normal = stats.multivariate_normal(mu, cov)
    reach = np.linalg.norm(mu) + 12.0 * np.sqrt(np.linalg.eigvalsh(cov)[-1])

    def along(r):
        return r ** (len(mu) - 1) * normal.pdf(r * x)

    points = [reach / 8, reach / 4, reach / 2]
    return np.log(integrate.quad(along, 0.0, reach, points=points, epsabs=0, epsrel=1e-11)[0])


# The integral ---------------------------------------------------------------------------------


def exact_moment(n, alpha):
    """Return the logarithm of M_n / exp(-min(alpha, 0)² / 2) and its slope."""
    with mpmath.workdps(60):
        a = mpmath.mpf(alpha)
        here = mpmath.factorial(n) * mpmath.pcfd(-n - 1, -a)
        above = mpmath.factorial(n + 1) * mpmath.pcfd(-n - 2, -a)
        log = mpmath.log(here) + a**2 / 4 - max(a, 0) ** 2 / 2
        return float(log), float(above / here - max(a, 0))


@pytest.mark.parametrize("n", [1, 2, 3, 9, 99])
def test_integral_against_parabolic_cylinder_functions(n):
    """DLMF 12.5.1 with sixty digits; also where the recurrence has no correct digit."""
    points = np.array([-1e4, -30.0, -8.6, -8.4, -5.0, -1.0, 0.0, 0.3, 4.0, 40.0, 1e3])
    alpha = pt.dvector("alpha")
    value = log_half_line_moment(n, alpha)
    function = pytensor.function([alpha], [value, pt.grad(value.sum(), alpha)], mode="FAST_COMPILE")
    found = np.array(function(points)).T
    expected = np.array([exact_moment(n, a) for a in points])
    np.testing.assert_allclose(found[:, 0], expected[:, 0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[:, 1], expected[:, 1], rtol=3e-11, atol=1e-13)


def test_recurrence_alone_is_inaccurate():
    """M_n = α M_{n−1} + (n − 1) M_{n−2} in double precision, for α = −9."""
    below, here = np.sqrt(np.pi / 2) * special.erfcx(9 / np.sqrt(2)), 1.0
    here -= 9.0 * below
    for n in range(2, 10):
        below, here = here, -9.0 * here + (n - 1) * below
    assert abs(here / np.exp(exact_moment(9, -9.0)[0]) - 1.0) > 1e-6


def test_second_derivative_of_the_integral():
    alpha = pt.dscalar("alpha")
    for n in (1, 6):
        slope = pt.grad(log_half_line_moment(n, alpha), alpha)
        curvature = evaluate(pt.grad(slope, alpha), {alpha: 1.3})
        h = 1e-5
        expected = (exact_moment(n, 1.3 + h)[1] - exact_moment(n, 1.3 - h)[1]) / (2 * h)
        assert curvature == pytest.approx(expected, rel=1e-8)


# The density ----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 3, 5])
def test_density_against_the_integral_over_lengths(d):
    x, mu = unit_vectors(4, d, seed=3), 1.5 * unit_vectors(d)
    plain = [logp_by_quadrature(v, mu, np.eye(d)) for v in x]
    np.testing.assert_allclose(log_density(ProjectedNormal.dist(mu), x), plain, rtol=1e-9)
    general = [logp_by_quadrature(v, mu, COV[d]) for v in x]
    found = log_density(ProjectedNormal.dist(mu, COV[d]), x)
    np.testing.assert_allclose(found, general, rtol=1e-9)


@pytest.mark.parametrize("d", [2, 3, 4, 9])
@pytest.mark.parametrize("length", [0.0, 1.0, 30.0])
def test_total_mass_and_mean_without_covariance(d, length):
    """The length of the mean against the docstring; on the circle, against Kendall (1974)."""
    mass, mean, _ = angle_distribution(ProjectedNormal, length * pole(d))
    assert mass == pytest.approx(1.0, abs=1e-9)
    ratio = np.exp(special.gammaln((d + 1) / 2) - special.gammaln(d / 2 + 1))
    confluent = special.hyp1f1(0.5, d / 2 + 1, -(length**2) / 2)
    assert mean == pytest.approx(ratio * length / np.sqrt(2) * confluent, abs=1e-9)
    if d == 2:
        z = length**2 / 4
        bessel = special.ive(0, z) + special.ive(1, z)
        assert mean == pytest.approx(np.sqrt(np.pi / 8) * length * bessel, abs=1e-9)


def test_total_mass_with_covariance():
    angles = np.linspace(-np.pi, np.pi, 4001)[:-1]
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    density = np.exp(log_density(ProjectedNormal.dist([0.4, -2.0], COV[2]), circle))
    assert density.mean() * 2 * np.pi == pytest.approx(1.0, rel=1e-12)


def test_scale_invariance():
    x, mu = unit_vectors(5, 3), np.array([0.5, 1.0, -0.3])
    plain = log_density(ProjectedNormal.dist(mu, COV[3]), x)
    scaled = log_density(ProjectedNormal.dist(3.0 * mu, 9.0 * COV[3]), x)
    np.testing.assert_allclose(scaled, plain, rtol=1e-12)


def test_batches_equal_a_loop():
    mu, x = unit_vectors(4, 1, 3), unit_vectors(4, 2, 3, seed=2)
    cov = np.stack([COV[3], np.eye(3)])
    found = log_density(ProjectedNormal.dist(mu, cov), x)
    m, c, v = pt.dvector("m"), pt.dmatrix("c"), pt.dvector("v")
    one = pytensor.function([m, c, v], pm.logp(ProjectedNormal.dist(m, c), v), mode="FAST_COMPILE")
    looped = [[one(mu[i, 0], cov[j], x[i, j]) for j in range(2)] for i in range(4)]
    np.testing.assert_allclose(found, looped, rtol=1e-12)
    np.testing.assert_allclose(
        log_density(ProjectedNormal.dist(mu), x)[:, 1], np.array(looped)[:, 1], rtol=1e-12
    )


def test_gradients():
    mu, factor, x = pt.dvector("mu"), pt.dmatrix("factor"), unit_vectors(6, 3)
    plain = pm.logp(ProjectedNormal.dist(mu), x).sum()
    general = pm.logp(ProjectedNormal.dist(mu, factor @ factor.T), x).sum()
    outputs = [plain, pt.grad(plain, mu), general, *pt.grad(general, [mu, factor])]
    function = pytensor.function([mu, factor], outputs, mode="FAST_COMPILE")
    m, f = np.array([0.5, 1.0, -3.0]), np.linalg.cholesky(COV[3])
    found = function(m, f)
    assert found[0] == pytest.approx(sum(logp_by_quadrature(v, m, np.eye(3)) for v in x))
    assert found[2] == pytest.approx(sum(logp_by_quadrature(v, m, COV[3]) for v in x))
    for gradient, slopes in (
        (found[1], central_differences(lambda v: function(v, f)[0], m)),
        (found[3], central_differences(lambda v: function(v, f)[2], m)),
        (found[4], central_differences(lambda v: function(m, v)[2], f)),
    ):
        np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Skipping Check")  # JAX cannot raise while it computes
@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
@pytest.mark.parametrize(("backend", "d"), [slow("JAX", 5), slow("NUMBA", 3), ("NUMBA", 5)])
def test_backends_agree(backend, d):
    """In closed form, and by quadrature in more than three dimensions."""
    if backend == "JAX":
        pytest.importorskip("jax")
    mu = pt.tensor("mu", shape=(d,))
    density = pm.logp(ProjectedNormal.dist(mu), unit_vectors(3, d)).sum()
    outputs = [density, pt.grad(density, mu)]
    there, here = (
        pytensor.function([mu], outputs, mode=mode)(2.0 * pole(d))
        for mode in (backend, "FAST_COMPILE")
    )
    for a, b in zip(there, here, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


# Random draws ---------------------------------------------------------------------------------


@cache
def numba_draws():
    return compiled_draws(ProjectedNormal, pt.dvector("mu"))


@pytest.mark.parametrize(("backend", "d"), cross(["numba", "numpy"], [2, 3, 6]))
def test_draws_have_the_distribution(backend, d):
    draw = numpy_draws(ProjectedNormal.rv_op) if backend == "numpy" else numba_draws()
    _, _, cdf = angle_distribution(ProjectedNormal, 2.0 * pole(d))
    mu = unit_vectors(d)
    assert min(p_values_around(mu, draw(7, 20_000, 2.0 * mu), cdf)) > 1e-4
    assert p_values_around(mu, draw(7, 20_000, 2.2 * mu), cdf)[0] < 1e-6


def circle_p_value(x, mu, cov):
    angles = np.linspace(-np.pi, np.pi, 20_001)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    density = np.exp(log_density(ProjectedNormal.dist(mu, cov), circle))
    cumulative = integrate.cumulative_simpson(density, x=angles, initial=0.0)
    found = np.arctan2(x[:, 1], x[:, 0])
    return stats.kstest(found, lambda a: np.interp(a, angles, cumulative)).pvalue


@pytest.mark.slow
@pytest.mark.parametrize("backend", [slow("numpy"), "numba"])
def test_draws_with_a_covariance_have_the_distribution(backend):
    mu = np.array([0.5, -0.7])
    if backend == "numpy":
        draw = numpy_draws(general_projected_normal)
    else:
        draw = compiled_draws(ProjectedNormal, pt.dvector("mu"), pt.dmatrix("cov"))
    assert circle_p_value(draw(7, 20_000, mu, COV[2]), mu, COV[2]) > 1e-4
    mutant = draw(7, 20_000, mu, np.diag(np.diag(COV[2])))
    assert circle_p_value(mutant, mu, COV[2]) < 1e-6


# Model integration ------------------------------------------------------------------------------


def test_regression_in_a_model():
    rng = np.random.default_rng(7)
    covariates = np.stack([np.ones(8), rng.normal(size=8)], axis=1)
    x = unit_vectors(8, 2)
    with pm.Model(coords={"axis": ["east", "north"], "row": range(8)}) as model:
        slopes = pm.Normal("slopes", shape=(2, 2))
        ProjectedNormal("x", pt.dot(covariates, slopes), observed=x, dims=("row", "axis"))
    point = {"slopes": np.array([[0.3, -0.5], [1.0, 2.0]])}
    expected = stats.norm.logpdf(point["slopes"]).sum() + sum(
        logp_by_quadrature(v, z @ point["slopes"], np.eye(2))
        for v, z in zip(x, covariates, strict=True)
    )
    assert model.compile_logp(mode="FAST_COMPILE")(point) == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("cov", [None, np.eye(3)])
def test_support_point_is_the_direction_of_the_mean(cov):
    with pm.Model() as model:
        ProjectedNormal("x", mu=[[0.0, 0.0, 0.0], [0.0, 3.0, 4.0]], cov=cov, size=(2, 2))
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        assert_support_point_is_expected(model, [[[0, 0, 1], [0, 0.6, 0.8]]] * 2)


def test_invalid_parameters_raise():
    x = np.array([0.6, 0.8])
    with pytest.raises(ParameterValueError, match="mu of ProjectedNormal is finite"):
        log_density(ProjectedNormal.dist([np.inf, 0.0]), x)
    for cov in ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.4], [0.0, 1.0]]):
        with pytest.raises(ParameterValueError, match="cov symmetric and positive definite"):
            log_density(ProjectedNormal.dist([1.0, 0.0], np.array(cov)), x)
    for cov in (np.ones(2), np.eye(3)):
        with pytest.raises(ValueError, match="cov of ProjectedNormal must be a matrix"):
            ProjectedNormal.dist([1.0, 0.0], cov)
    with pytest.raises(ValueError, match="at least 2 coordinates"):
        ProjectedNormal.dist(1.0)
    for cov in (None, np.eye(2)):
        with pm.Model(), pytest.raises(ValueError, match="'wind' must be unit vectors"):
            ProjectedNormal("wind", [1.0, 0.0], cov, observed=np.eye(2) * 2)


def test_integer_values_and_single_precision():
    assert log_density(ProjectedNormal.dist(pole(3)), np.eye(3, dtype=int)).dtype == "float64"
    with pytensor.config.change_flags(floatX="float32"):
        x = ProjectedNormal.dist(pole(5).astype("float32"))
        density = pm.logp(x, pole(5).astype("float32"))
        assert x.dtype == density.dtype == "float32"
