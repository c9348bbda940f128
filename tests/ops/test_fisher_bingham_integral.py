"""Integral of exp(xᵀAx + b·x) over the sphere: special cases, quadrature, mutants, Ops."""

from types import FunctionType

import mpmath
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import special, stats

from pymc_geodesic.ops import fisher_bingham_integral
from pymc_geodesic.ops.bessel import log_vmf_normalizer
from pymc_geodesic.ops.fisher_bingham_integral import (
    contour,
    matrix_covariances,
    matrix_moments,
    spectral_covariances,
    spectral_moments,
)
from pymc_geodesic.ops.fisher_bingham_ops import matrix_integral, spectral_integral
from tests.grids import slow

SHAPES = {
    "uniform": (np.zeros((3, 3)), np.zeros(3)),
    "kent": (np.diag([0.0, 4.9, -4.9]), np.array([10.0, 0.0, 0.0])),
    "girdle": (np.diag([0.0, 0.0, -60.0]), np.array([3.0, 0.0, 1.0])),
    "two modes": (np.diag([30.0, 0.0, 0.0]), np.array([1e-3, 0.0, 25.0])),
    "opposed": (np.diag([0.0, -40.0, -2.0]), np.array([0.2, 76.0, 0.0])),
}


def turned(A, b, seed=1):
    rotation = stats.ortho_group.rvs(len(b), random_state=seed)
    return rotation @ A @ rotation.T, rotation @ b


def sphere(n=160):
    """Return nodes on S² and weights: Gauss–Legendre in height, equal angles around."""
    height, weight = np.polynomial.legendre.leggauss(n)
    angle = 2 * np.pi * np.arange(2 * n) / (2 * n)
    radius = np.sqrt(1 - height**2)[:, None]
    x = np.stack(
        [radius * np.cos(angle), radius * np.sin(angle), height[:, None] + 0 * angle], axis=-1
    )
    return x.reshape(-1, 3), np.repeat(weight * np.pi / n, 2 * n)


def circle(n=400_000):
    angle = 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1), np.full(n, 2 * np.pi / n)


def by_quadrature(A, b, x, weight):
    exponent = np.einsum("ni,ij,nj->n", x, A, x) + x @ b
    top = exponent.max()
    mass = weight * np.exp(exponent - top)
    total = mass.sum()
    mass /= total
    return top + np.log(total), mass @ x, np.einsum("n,ni,nj->ij", mass, x, x), mass


def assert_close(found, exact, tolerance=1e-13):
    assert abs(found - exact) <= tolerance * max(1.0, abs(exact))


# Special functions ----------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 3, 10, 1000])
@pytest.mark.parametrize("kappa", [0.0, 1e-3, 2.0, 70.0, 1e4, -1e-3, -2.0, -70.0, -1e4])
def test_watson_is_kummers_function(d, kappa):
    with mpmath.workdps(40):
        area = mpmath.log(2 * mpmath.pi ** (mpmath.mpf(d) / 2) / mpmath.gamma(mpmath.mpf(d) / 2))
        kummer = mpmath.hyp1f1(0.5, mpmath.mpf(d) / 2, kappa)
        slope = mpmath.hyp1f1(1.5, mpmath.mpf(d) / 2 + 1, kappa) / d / kummer
        exact = float(area + mpmath.log(kummer))
        slope = float(slope)
    values, counts = np.array([kappa, 0.0]), np.array([1.0, d - 1.0])
    log_integral, _, second = spectral_moments(values, counts, np.zeros(2))
    assert_close(log_integral, exact)
    assert second[0] == pytest.approx(slope, rel=1e-12)
    assert second.sum() == pytest.approx(1.0, rel=1e-13)


@pytest.mark.parametrize("d", [2, 3, 50, 5000])
@pytest.mark.parametrize("kappa", [0.0, 0.4, 30.0, 1e4, 1e8])
def test_without_a_matrix_it_is_von_mises_fisher(d, kappa):
    found = spectral_moments(np.zeros(1), np.array([float(d)]), np.array([kappa]))[0]
    assert_close(found, -float(log_vmf_normalizer(d, kappa)))


@pytest.mark.parametrize(("kappa", "beta"), [(10.0, 2.0), (1.0, 0.49), (100.0, 49.0), (300.0, 1.0)])
def test_kent_is_its_series(kappa, beta):
    """The series of Kent (1982), section 2; its first case is the example of R's Directional."""
    j = np.arange(400)
    log_terms = (
        special.gammaln(j + 0.5)
        - special.gammaln(j + 1)
        + 2 * j * np.log(beta)
        - (2 * j + 0.5) * np.log(kappa / 2)
    )
    with np.errstate(divide="ignore"):
        log_terms += np.log(special.ive(2 * j + 0.5, kappa)) + kappa
    exact = np.log(2 * np.pi) + special.logsumexp(log_terms)
    values, slopes = np.array([0.0, beta, -beta]), np.array([kappa, 0.0, 0.0])
    assert_close(spectral_moments(values, np.ones(3), slopes)[0], exact, 1e-12)


# Quadrature -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_moments_on_the_sphere(name):
    A, b = turned(*SHAPES[name])
    exact, mean, second, _ = by_quadrature(A, b, *sphere())
    found = matrix_moments(A, b)
    assert_close(found[0], exact, 1e-12)
    np.testing.assert_allclose(found[1], mean, atol=1e-12)
    np.testing.assert_allclose(found[2], second, atol=1e-12)


@pytest.mark.parametrize(
    ("values", "slopes"),
    [((0.0, 0.0), (0.1, 0.0)), ((0.0, -1e4), (0.0, 1.9e4)), ((0.0, -1e6), (1e-3, 1.99e6)),
     ((3e3, 0.0), (0.0, 1e6)), ((0.0, -1e8), (1e3, 0.0)), ((1e6, 0.0), (1e-6, 1e5))],
)  # fmt: skip
def test_moments_on_the_circle_where_scales_differ(values, slopes):
    """Saddle points near one eigenvalue, far from all, and near an opposed linear term."""
    A, b = np.diag(values), np.array(slopes)
    exact, mean, second, _ = by_quadrature(A, b, *circle())
    found = matrix_moments(A, b)
    # Exponents of 1e6 are known to 1e-10 only, in the quadrature too.
    assert_close(found[0], exact)
    np.testing.assert_allclose(found[1], mean, atol=2e-10)
    np.testing.assert_allclose(found[2], second, atol=2e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_covariances_on_the_sphere(name):
    A, b = turned(*SHAPES[name], seed=2)
    rng = np.random.default_rng(3)
    linear, quadratic = rng.standard_normal(3), rng.standard_normal((3, 3))
    x, weight = sphere()
    *_, mass = by_quadrature(A, b, x, weight)
    statistic = x @ linear + np.einsum("ni,ij,nj->n", x, quadratic, x)
    statistic -= mass @ statistic
    with_mean, with_second = matrix_covariances(A, b, linear, quadratic)
    np.testing.assert_allclose(with_mean, (mass * statistic) @ x, atol=1e-12)
    expected = np.einsum("n,ni,nj->ij", mass * statistic, x, x)
    np.testing.assert_allclose(with_second, expected, atol=1e-12)


# Identities -----------------------------------------------------------------------------------


def random_case(rng, k):
    values = -(10 ** rng.uniform(-3, 6, k)) * (rng.random(k) < 0.7)
    gaps = values.max() - values
    near = rng.random(k) < 0.5
    slopes = np.where(near, 2 * gaps * rng.uniform(0, 1.5, k), 10 ** rng.uniform(-3, 5, k))
    return values, slopes * (rng.random(k) < 0.6)


@pytest.mark.parametrize("seed", range(20))
def test_identities_for_parameters_of_all_scales(seed):
    rng = np.random.default_rng(seed)
    values, slopes = random_case(rng, 6)
    log_integral, first, second = spectral_moments(values, np.ones(6), slopes)
    assert second.sum() == pytest.approx(1.0, rel=1e-11)
    assert np.all(second > 0)
    assert np.all(first**2 <= second * (1 + 1e-9))
    shifted = spectral_moments(values + 7.0, np.ones(6), slopes)[0]
    assert shifted - 7.0 == pytest.approx(log_integral, rel=1e-12, abs=1e-10)
    # Equal eigenvalues are one eigenvalue with a multiplicity.
    twice = spectral_moments(np.repeat(values, 2), np.ones(12), np.repeat(slopes, 2) / 2**0.5)
    counted = spectral_moments(values, np.full(6, 2.0), slopes)
    assert_close(twice[0], counted[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_matrix_form_agrees_with_spectral_form(seed):
    rng = np.random.default_rng(seed)
    values, slopes = 20 * rng.standard_normal(4), 9 * rng.standard_normal(4)
    linear, quadratic = rng.standard_normal((2, 4))
    A, b = np.diag(values), slopes
    spectral, matrix = spectral_moments(values, np.ones(4), slopes), matrix_moments(A, b)
    assert_close(matrix[0], spectral[0])
    np.testing.assert_allclose(matrix[1], spectral[1], atol=1e-13)
    np.testing.assert_allclose(np.diag(matrix[2]), spectral[2], atol=1e-13)
    one = spectral_covariances(values, np.ones(4), slopes, linear, quadratic)
    other = matrix_covariances(A, b, linear, np.diag(quadratic))
    np.testing.assert_allclose(other[0], one[0], atol=1e-13)
    np.testing.assert_allclose(np.diag(other[1]), one[1], atol=1e-13)


def test_nonfinite_parameters_give_nan():
    assert np.isnan(matrix_moments(np.full((3, 3), np.nan), np.ones(3))[0])
    assert np.isnan(spectral_moments(np.array([1.0, np.inf]), np.ones(2), np.ones(2))[0])


# Mutants --------------------------------------------------------------------------------------


def worst_error(rule):
    errors = []
    for A, b in SHAPES.values():
        exact = by_quadrature(A, b, *sphere())[0]
        errors.append(abs(rule(np.diag(A).copy(), np.ones(3), b).log_integral - exact))
    return max(errors)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # overflow on a wrong contour
@pytest.mark.parametrize("mutant", [{"STEP": 0.3}, {"ANGLE": 1.4}, {"NEGLIGIBLE": 1e-4}])
def test_mutants_of_the_contour_are_detected(mutant):
    def with_globals(**changed):
        return FunctionType(contour.py_func.__code__, vars(fisher_bingham_integral) | changed)

    assert worst_error(with_globals()) < 1e-12
    assert not worst_error(with_globals(**mutant)) < 1e-8


# Ops ------------------------------------------------------------------------------------------


def numerical_gradient(function, x, step=1e-5):
    x = np.asarray(x, dtype=float)
    gradient = np.empty_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        gradient[i] = (function(up) - function(down)) / (2 * step)
    return gradient


@pytest.mark.slow
@pytest.mark.parametrize("mode", [slow("NUMBA"), "FAST_COMPILE"])
def test_derivatives_of_the_matrix_form_through_pytensor(mode):
    """First and second derivatives against differences, each matrix of a batch with its own.

    Machine code is made for one matrix; batches take twice as long to compile.
    """
    batched = mode != "NUMBA"
    A, b = pt.tensor("A", shape=(None, 3, 3)[not batched :]), pt.tensor("b", shape=(3,))
    log_integral, mean, second = matrix_integral(A, b)
    first = pt.grad(log_integral.sum(), [A, b])
    statistic = pt.sum(mean[..., 0] * 2.0 + second[..., 0, 1] - second[..., 2, 2])
    found = pytensor.function([A, b], [*first, *pt.grad(statistic, [A, b])], mode=mode)
    cases = np.stack([turned(*SHAPES[name])[0] for name in ("kent", "girdle")])
    cases = cases if batched else cases[0]
    vector = np.array([1.0, -3.0, 2.0])

    def total(matrices, vector):
        return sum(matrix_moments(matrix, vector)[0] for matrix in np.atleast_3d(matrices.T).T)

    def of_moments(matrices, vector):
        each = np.atleast_3d(matrices.T).T
        moments = [matrix_moments(matrix, vector)[1:] for matrix in each]
        return sum(2 * mean[0] + second[0, 1] - second[2, 2] for mean, second in moments)

    expected = [
        numerical_gradient(lambda m: total(m, vector), cases),
        numerical_gradient(lambda v: total(cases, v), vector),
        numerical_gradient(lambda m: of_moments(m, vector), cases),
        numerical_gradient(lambda v: of_moments(cases, v), vector),
    ]
    for gradient, differences in zip(found(cases, vector), expected, strict=True):
        np.testing.assert_allclose(gradient, differences, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["NUMBA", "FAST_COMPILE"])
def test_derivatives_of_the_spectral_form_through_pytensor(mode):
    values, slopes = pt.tensor("a", shape=(2,)), pt.tensor("g", shape=(2,))
    counts = np.array([1.0, 4.0])
    log_integral = spectral_integral(values, counts, slopes)[0]
    gradient = pt.grad(log_integral, [values, slopes])
    curvature = pt.grad(gradient[0][0] + 2.0 * gradient[1][1], [values, slopes])
    found = pytensor.function([values, slopes], [*gradient, *curvature], mode=mode)
    a, g = np.array([4.0, -1.0]), np.array([2.0, 0.5])

    def statistic(a, g):
        _, first, second = spectral_moments(a, counts, g)
        return second[0] + 2.0 * first[1]

    expected = [
        numerical_gradient(lambda v: spectral_moments(v, counts, g)[0], a),
        numerical_gradient(lambda v: spectral_moments(a, counts, v)[0], g),
        numerical_gradient(lambda v: statistic(v, g), a),
        numerical_gradient(lambda v: statistic(a, v), g),
    ]
    for one, other in zip(found(a, g), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)
