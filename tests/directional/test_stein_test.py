"""The Stein goodness-of-fit test: level, power and invalid arguments."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_geodesic as pg
from pymc_geodesic.directional import stein_test
from pymc_geodesic.directional.goodness_of_fit import METHODS, SteinTest
from pymc_geodesic.gradients.scores import ManifoldDistribution
from tests.grids import by_default, cross

MU, MAJOR = np.array([0.0, 0.6, 0.8]), np.array([1.0, 0.0, 0.0])
FRAME = np.array([[2.0, 0.0], [0.0, 1.5], [1.0, 0.0]])


def draws(distribution, n, seed=1):
    return ManifoldDistribution(distribution).draws(n, 1, np.random.default_rng(seed))[0]


DISTRIBUTIONS = {
    "uniform": lambda: pg.UniformSphere.dist(shape=3),
    "von Mises-Fisher": lambda: pg.VonMisesFisher.dist(MU, 8.0),
    "Kent": lambda: pg.Kent.dist(MU, MAJOR, 12.0, 4.0),
    "Watson in four dimensions": lambda: pg.Watson.dist(np.eye(4)[0], 3.0),
    "frames": lambda: pg.MatrixVonMisesFisher.dist(FRAME),
}


def p_values(distribution, n, method, n_resamples, repetitions=100):
    """Test samples of the distribution itself."""
    target, rng = ManifoldDistribution(distribution), np.random.default_rng(7)
    test, samples = SteinTest(target), target.draws(n, repetitions, rng)
    return np.array([test(x, method, "median", -0.5, n_resamples, rng).pvalue for x in samples])


@pytest.mark.parametrize("target", by_default(["uniform", "frames"], of=DISTRIBUTIONS))
def test_levels_under_the_null_are_nominal(target):
    """The number of rejections at each level is binomial; one fixed seed."""
    found = p_values(DISTRIBUTIONS[target](), 40, "bootstrap", 99)
    for level in (0.05, 0.2, 0.5):
        count = int(np.sum(found <= level))
        assert stats.binomtest(count, len(found), level).pvalue > 1e-3


@pytest.mark.slow
def test_levels_with_few_points_by_simulation():
    """Samples of the distribution itself make the p-values uniform for eight points too."""
    found = p_values(DISTRIBUTIONS["Kent"](), 8, "monte-carlo", 39, 60)
    assert stats.kstest(found, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("method", "data", "model"),
    cross(METHODS, [
        # a mean 17 degrees away, half the concentration, ellipses for circles
        (lambda: pg.VonMisesFisher.dist([0.0, 0.8, 0.6], 8.0), DISTRIBUTIONS["von Mises-Fisher"]),
        (lambda: pg.VonMisesFisher.dist(MU, 3.0), DISTRIBUTIONS["von Mises-Fisher"]),
        (lambda: pg.Kent.dist(MU, MAJOR, 12.0, 5.0), lambda: pg.VonMisesFisher.dist(MU, 12.0)),
        # axes have mean zero, as the uniform distribution
        (lambda: pg.Watson.dist(MU, 4.0), DISTRIBUTIONS["uniform"]),
        (lambda: pg.MatrixVonMisesFisher.dist(-FRAME), DISTRIBUTIONS["frames"]),
    ]),
)  # fmt: skip
def test_other_distributions_are_rejected(method, data, model):
    x = draws(data(), 150)
    assert stein_test(x, model(), method=method, n_resamples=99, random_seed=1).pvalue == 0.01


def test_statistic_of_the_uniform_distribution_in_closed_form():
    """Without a gradient k_p consists of derivatives of the kernel, here by finite differences."""
    x, n = draws(pg.UniformSphere.dist(shape=3), 6), 6
    length, beta = 0.7, -0.4
    h = 1e-4

    def kernel(u, v):
        return (1.0 + np.sum((u - v) ** 2) / length**2) ** beta

    def moved(u, a, step):
        """A point on the sphere, from u along the projection of the axis a."""
        y = u + step * (np.eye(3)[a] - u[a] * u)
        return y / np.linalg.norm(y)

    total = 0.0
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            u, v = x[i], x[j]
            for a in range(3):
                du = (kernel(moved(u, a, h), v) - kernel(moved(u, a, -h), v)) / (2 * h)
                dv = (kernel(u, moved(v, a, h)) - kernel(u, moved(v, a, -h))) / (2 * h)
                both = sum(
                    s * t * kernel(moved(u, a, s * h), moved(v, a, t * h))
                    for s in (1, -1)
                    for t in (1, -1)
                ) / (4 * h * h)
                # b = −H = −(d − 1) x
                total += 4 * u[a] * v[a] * kernel(u, v) - 2 * u[a] * dv - 2 * v[a] * du + both
    result = stein_test(x, pg.UniformSphere.dist(shape=3), bandwidth=length, beta=beta)
    assert result.statistic == pytest.approx(total / (n * (n - 1)), rel=1e-5)


def test_the_same_seed_gives_the_same_p_value():
    distribution = pg.VonMisesFisher.dist(MU, 8.0)
    x = draws(distribution, 30)
    assert stein_test(x, distribution, random_seed=3) == stein_test(x, distribution, random_seed=3)


def test_invalid_arguments_raise():
    target = pg.VonMisesFisher.dist(MU, 8.0)
    x = draws(target, 10)
    for points, message in (
        (2.0 * x, "no unit vectors"),
        (x[:3], "at least 5 points of shape"),
        (x[:, :2], "at least 5 points of shape"),
    ):
        with pytest.raises(ValueError, match=message):
            stein_test(points, target)
    with pytest.raises(ValueError, match="not orthonormal"):
        stein_test(np.ones((5, 3, 2)), pg.MatrixVonMisesFisher.dist(FRAME))
    for arguments, message in (
        ({"method": "exact"}, "method='exact' is unknown"),
        ({"beta": 0.5}, "beta must lie between -1 and 0"),
        ({"bandwidth": -1.0}, "bandwidth must be a positive number"),
    ):
        with pytest.raises(ValueError, match=message):
            stein_test(x, target, **arguments)
    with pytest.raises(ValueError, match="a distribution of one point"):
        stein_test(x, pg.VonMisesFisher.dist(MU, [8.0, 9.0]))
    for other in (pm.Normal.dist(shape=3), x, pg.PeriodicVonMises.dist(0.0, 1.0)):
        with pytest.raises(TypeError, match="must be one of unit vectors or frames"):
            stein_test(x, other)
    with pytest.raises(ValueError, match="parameters of the distribution are random"):
        stein_test(x, pg.VonMisesFisher.dist(MU, pm.HalfNormal.dist()))
