"""₀F₁ and ₀F₀ of matrix argument: special cases, series, limits, importance sampling."""

from functools import cache

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import special

from pymc_geodesic.distributions.matrix_von_mises_fisher import _propose
from pymc_geodesic.ops import matrix_hypergeometric
from pymc_geodesic.ops.bessel import log_vmf_normalizer
from pymc_geodesic.ops.fisher_bingham_integral import matrix_moments
from pymc_geodesic.ops.matrix_hypergeometric import log_hyp0f0, log_hyp0f1
from tests.grids import cross


@pytest.fixture(scope="module")
def integral():
    """The logarithm for any number of rows and columns, compiled once."""
    n, d = pt.lscalar("n"), pt.dvector("d")
    function = pytensor.function([n, d], log_hyp0f1(n, d, None))
    return lambda rows, values: float(function(rows, np.asarray(values, dtype=float)))


@pytest.fixture(scope="module")
def of_two():
    """Value and gradient for two columns."""
    n, d = pt.lscalar("n"), pt.tensor("d", shape=(2,))
    value = log_hyp0f1(n, d, 2)
    return pytensor.function([n, d], [value, pt.grad(value, d)])


def log_one(n, d):
    return float(log_vmf_normalizer(n, 0.0) - log_vmf_normalizer(n, d))


def orthogonal_matrices(d):
    """Rotations in R³ are axes in R⁴ (Prentice 1986); reflections change the sign of one d."""
    parts = []
    for last in (d[2], -d[2]):
        values = [d[0] + d[1] + last, d[0] - d[1] - last, last - d[0] - d[1] + 2 * d[1], 0.0]
        values[2], values[3] = -d[0] + d[1] - last, -d[0] - d[1] + last
        parts.append(float(matrix_moments(np.diag(values), np.zeros(4))[0]))
    return np.logaddexp(*parts) - np.log(2.0) - np.log(2.0 * np.pi**2)


def series_of_two(n, d, terms=200):
    """Muirhead's single series of functions of the trace, for the matrix of eigenvalues d² / 4."""
    product, trace = (d[0] * d[1] / 4.0) ** 2, (d[0] ** 2 + d[1] ** 2) / 4.0
    k, c = np.arange(terms), 0.5 * n
    of_trace = np.array([log_one(int(n + 4 * each), 2.0 * np.sqrt(trace)) for each in k])
    log_terms = (
        k * np.log(product)
        - (special.gammaln(c - 0.5 + k) - special.gammaln(c - 0.5))
        - (special.gammaln(c + 2 * k) - special.gammaln(c))
        - special.gammaln(k + 1.0)
        + of_trace
    )
    return special.logsumexp(log_terms)


def by_importance(n, d, size=40_000, seed=1):
    """Logarithm and its standard error, by importance sampling with Hoff's proposals."""
    columns = np.zeros((n, len(d)))
    columns[range(len(d)), range(len(d))] = d
    _, log_weight = _propose(
        np.random.default_rng(seed), np.broadcast_to(columns, (size, n, len(d)))
    )
    weight = np.exp(log_weight)
    spheres = [
        log_one(n - i, value) if n - i > 1 else np.log(np.cosh(value)) for i, value in enumerate(d)
    ]
    return sum(spheres) + np.log(weight.mean()), weight.std() / weight.mean() / np.sqrt(size)


@pytest.mark.slow
@pytest.mark.parametrize("d", [(0.0, 0.0), (1.0, 1.0), (9.0, 2.0), (40.0, 40.0), (500.0, 3.0)])
def test_orthogonal_matrices_of_two_dimensions(of_two, d):
    d = np.array(d)
    total, difference = d.sum(), d[0] - d[1]
    exact = np.logaddexp(
        np.log(special.i0e(total)) + total, np.log(special.i0e(difference)) + difference
    ) - np.log(2.0)
    assert of_two(2, d)[0] == pytest.approx(exact, rel=1e-12, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 4, 7, 50])
@pytest.mark.parametrize("d", [(0.5, 0.5), (6.5, 6.5), (10.0, 3.0), (60.0, 20.0)])
def test_two_columns_are_the_series_of_muirhead(of_two, n, d):
    assert of_two(n, np.array(d))[0] == pytest.approx(series_of_two(n, d), rel=1e-12, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("d", [(5.0, 2.0, 0.0), (50.0, 50.0, 0.0), (1e5, 1.0, 0.0)])
def test_two_columns_of_three_rows_are_rotations(of_two, d):
    found = of_two(3, np.array(d[:2]))[0]
    assert found == pytest.approx(orthogonal_matrices(d), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "d", [(2, 2, 2), (10, 3, 1), (10, 10, 1), (100, 100, 100), (1e4, 100, 1), (1e6, 1e6, 1e6)]
)
def test_three_columns_of_three_rows_are_orthogonal_matrices(integral, d):
    assert integral(3, d) == pytest.approx(orthogonal_matrices(d), rel=1e-6, abs=1e-6)


@pytest.mark.slow
def test_result_depends_on_the_node_weights(integral, monkeypatch):
    """A mutant that halves the weight of a node is detected."""
    nodes = matrix_hypergeometric.line_nodes

    def wrong(power, coefficient, density):
        log_sech, log_weight = nodes(power, coefficient, density)
        return log_sech, log_weight - np.log(2.0) * (np.arange(density[0]) == 0)

    monkeypatch.setattr(matrix_hypergeometric, "line_nodes", wrong)
    d = pt.as_tensor([10.0, 3.0])
    found = log_hyp0f1(3, d, 2).eval(mode="FAST_COMPILE")
    assert abs(found - orthogonal_matrices((10.0, 3.0, 0.0))) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4, 9])
def test_columns_without_concentration_have_no_effect(integral, n):
    """The same for two of three columns: the function is that of fewer columns."""
    assert integral(n, [7.0, 0.0]) == pytest.approx(log_one(n, 7.0), rel=1e-12)
    assert integral(n, [7.0, 4.0, 0.0]) == pytest.approx(integral(n, [7.0, 4.0]), abs=1e-6)
    assert integral(n, [7.0, 0.0, 0.0]) == pytest.approx(log_one(n, 7.0), abs=1e-6)
    assert integral(n, [0.0, 0.0, 0.0]) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "d", "error"),
    [
        (5, (6.0, 6.0, 2.0), 0.0),
        (9, (30.0, 10.0, 3.0), 0.0),
        (4, (10.0, 10.0, 10.0, 10.0), 0.08),
        (5, (20.0, 10.0, 5.0, 2.0), 0.03),
        (8, (10.0, 10.0, 10.0, 10.0), 0.01),
        (8, (500.0, 500.0, 500.0, 500.0), 0.005),
    ],
)
def test_importance_draws_agree(integral, n, d, error):
    """For more than three columns up to the documented error."""
    exact, standard_error = by_importance(n, d)
    assert abs(integral(n, d) - exact) < error + 4.0 * standard_error


@pytest.mark.slow
def test_remainder_improves_the_approximation(integral, monkeypatch):
    exact, _ = by_importance(4, (100.0, 100.0, 100.0, 100.0))
    found = integral(4, [100.0] * 4)
    monkeypatch.setattr(matrix_hypergeometric, "_remainder_ratio", lambda n, p: 0.0)
    n, d = pt.lscalar("n"), pt.dvector("d")
    function = pytensor.function([n, d], log_hyp0f1(n, d, None), mode="FAST_COMPILE")
    assert abs(function(4, np.full(4, 100.0)) - exact) > 0.15
    assert abs(found - exact) < 0.02


@pytest.mark.parametrize("d", [(3.0, 3.0), (8.0, 0.0), (20.0, 19.0), (0.0, 0.0)])
def test_derivatives_of_two_columns(of_two, d):
    """Against finite differences, also at equal singular values and at zero."""
    d, step = np.array(d), 1e-5
    _, slope = of_two(4, d)
    for i, along in enumerate(step * np.eye(2)):
        up, down = of_two(4, np.abs(d + along)), of_two(4, np.abs(d - along))
        at_zero = d[i] == 0.0  # the function is even: the slope changes sign
        expected = 0.0 if at_zero else (up[0] - down[0]) / (2.0 * step)
        assert slope[i] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e4, 1e9])
def test_singular_values_of_any_size_are_finite(of_two, scale):
    value, slope = of_two(6, scale * np.array([1.0, 0.6]))
    assert np.isfinite(value)
    assert np.all((slope >= 0.0) & (slope < 1.0 + 1e-12))


def test_jax_agrees(of_two):
    pytest.importorskip("jax")
    d = pt.tensor("d", shape=(2,))
    value = log_hyp0f1(4, d, 2)
    found = pytensor.function([d], [value, pt.grad(value, d)], mode="JAX")(np.array([8.0, 3.0]))
    for here, there in zip(found, of_two(4, np.array([8.0, 3.0])), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-12)


@pytest.mark.slow
def test_second_derivatives_are_covariances_at_zero():
    """log E exp tr FᵀX = |d|² / 2n + …, also where all singular values are zero."""
    d = pt.tensor("d", shape=(2,))
    slope = pt.grad(log_hyp0f1(5, d, 2), d)
    found = pt.grad(slope[0], d).eval({d: np.zeros(2)}, mode="FAST_COMPILE")
    np.testing.assert_allclose(found, [0.2, 0.0], atol=1e-10)


def test_large_concentrations_approach_the_normal_approximation(integral):
    """The remainder of the logarithm decreases as the inverse of the concentrations."""
    for p in (1, 2, 3):
        rests = []
        for size in (300.0, 600.0):
            d = size * np.linspace(2.0, 1.0, p)
            pairs = np.triu(np.log(d[:, None] + d), 1).sum()
            leading = d.sum() - 0.5 * (6 - p) * np.log(d).sum() - 0.5 * pairs
            limit = matrix_hypergeometric._log_limit(6, p).eval(mode="FAST_COMPILE")
            rests.append(integral(6, d) - leading - limit)
        assert abs(rests[0]) < 0.05
        assert rests[0] == pytest.approx(2.0 * rests[1], rel=0.05, abs=2e-6)


EIGENVALUES = {
    "apart": (3.0, 1.0, -2.0),
    "two above": (1.0, 1.0, 0.0),
    "two below": (1.0, 0.0, 0.0),
    "all equal": (2.0, 2.0, 2.0),
    "nearly equal": (300.0, 299.999, 0.0),
    "far apart": (1e6, 0.0, -1e6),
}


@cache
def compiled(n, p):
    A, b = pt.tensor("A", shape=(n, n)), pt.tensor("b", shape=(p,))
    return pytensor.function([A, b], log_hyp0f0(A, b, n, p), mode="FAST_COMPILE")


def log_mean(a, b):
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    return float(compiled(len(a), len(b))(np.diag(a), b))


def log_mean_of_axis(a):
    """For one column: the Bingham constant, by the contour integral."""
    return float(matrix_moments(np.diag(a), np.zeros(3))[0]) - np.log(4.0 * np.pi)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "size"), cross(EIGENVALUES, [7.0, 0.1, -3.0]))
def test_a_single_column_or_all_but_one_is_bingham(case, size):
    a = np.array(EIGENVALUES[case])
    exact = log_mean_of_axis(size * a)
    assert log_mean(a, [size]) == pytest.approx(exact, rel=1e-12, abs=1e-12)
    rest = size * a.sum() + log_mean_of_axis(-size * a)
    assert log_mean(a, [size, size]) == pytest.approx(rest, rel=1e-12, abs=1e-12)
    shifted = log_mean(a, [3.0 * size, 2.0 * size, 2.0 * size])
    assert shifted == pytest.approx(2.0 * size * a.sum() + exact, rel=1e-12, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("case", EIGENVALUES)
def test_symmetries_of_both_matrices(case):
    a, b = np.array(EIGENVALUES[case]), np.array([2.5, 0.3, -1.0])
    value = log_mean(a, b)
    for other in (log_mean(b, a), log_mean(-a, -b), log_mean(a[[2, 0, 1]], b[[1, 0, 2]])):
        assert other == pytest.approx(value, rel=1e-12, abs=1e-12)
    shifted = log_mean(a + 0.5, b - 0.25)
    constants = 0.5 * b.sum() - 0.25 * a.sum() - 3.0 * 0.5 * 0.25
    assert shifted == pytest.approx(value + constants, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("b", [(1.0, 0.2), (-1.0, 30.0), (-2.0, -2.0), (500.0, 0.0)])
def test_two_dimensions_are_an_angle(b):
    half, middle = 0.5 * (b[0] - b[1]), 0.5 * (b[0] + b[1])
    bessel = np.log(special.i0e(8.0 * half)) + abs(8.0 * half)
    exact = -middle * 2.0 + bessel  # eigenvalues 3 and −5
    assert log_mean([3.0, -5.0], b) == pytest.approx(exact, rel=1e-12, abs=1e-12)


@pytest.mark.slow
def test_well_separated_eigenvalues_approach_the_normal_approximation():
    a, b = np.array([3.0, 1.0, -2.0]), np.array([2.0, 0.7, -0.4])
    i, j = np.triu_indices(3, 1)
    gaps = (a[i] - a[j]) * (b[i] - b[j])
    rests = []
    for size in (1e3, 2e3):
        # Four modes of the rotations, whose volume is 8 π² in angles.
        leading = size * a @ b + 0.5 * np.log(np.pi / (size * gaps)).sum() - np.log(2.0 * np.pi**2)
        rests.append(log_mean(size * a, b) - leading)
    assert abs(rests[0]) < 5e-3
    assert rests[0] == pytest.approx(2.0 * rests[1], rel=1e-2)
