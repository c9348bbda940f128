"""Geodesic flow preserves the uniform distribution of points and the normal one of velocities.

Independent exact draws follow the geodesic flow for some time; the marginal distributions of the
coordinates and of a component of the velocity are known in closed form and must be unchanged.
"""

import numpy as np
import pytest
from scipy import stats

from pymc_geodesic.manifolds import FlatSimplex, HalfLine, Simplex, Sphere, Stiefel

N_POINTS = 20_000
TIME = 1.3
FLOOR = 1e-6
"""Least p-value; with exact draws about one test in a million would fall below."""


def sphere_marginal(n):
    """CDF of one coordinate of a uniform unit vector or frame, with columns of length n > 2."""
    return stats.beta((n - 1) / 2, (n - 1) / 2, loc=-1, scale=2).cdf


CASES = [
    (Sphere(3), sphere_marginal(3)),
    (Sphere(10), sphere_marginal(10)),
    (Simplex(4), sphere_marginal(4)),
    (FlatSimplex(2), stats.uniform().cdf),
    (FlatSimplex(4), stats.beta(1, 3).cdf),
    (Stiefel(3, 2), sphere_marginal(3)),
    (Stiefel(4, 4), sphere_marginal(4)),
]


def uniform_coordinates(manifold, rng):
    """Draw points uniform with respect to the surface measure of the coordinates."""
    # The uniform distribution of a simplex is not uniform on the sphere of its square roots.
    uniform = Sphere(manifold.n) if isinstance(manifold, Simplex) else manifold
    return uniform.random_point(rng, N_POINTS)


def least_p_value(manifold, marginal, x, v):
    """Smallest p-value over the coordinates and one component of the velocity."""
    coordinates = x.reshape(N_POINTS, -1)
    direction = np.linspace(-1.0, 2.0, manifold.size).reshape(manifold.shape)
    tangent = manifold.project(x, direction).reshape(N_POINTS, -1)
    component = (tangent * v.reshape(N_POINTS, -1)).sum(axis=1) / np.linalg.norm(tangent, axis=1)
    tests = [stats.kstest(column, marginal) for column in coordinates.T]
    tests.append(stats.kstest(component, "norm"))
    return min(test.pvalue for test in tests)


def exact_draws(manifold):
    rng = np.random.default_rng(1)
    x = uniform_coordinates(manifold, rng)
    return x, manifold.project(x, rng.normal(size=x.shape))


@pytest.mark.parametrize(("manifold", "marginal"), CASES, ids=[repr(case[0]) for case in CASES])
def test_uniform_points_stay_uniform(manifold, marginal):
    x, v = exact_draws(manifold)
    assert least_p_value(manifold, marginal, x, v) > FLOOR
    assert least_p_value(manifold, marginal, *manifold.geodesic(x, v, TIME)) > FLOOR


def straight_step_and_normalise(x, v):
    """Mutant: retract to the sphere instead of following the geodesic."""
    end = x + TIME * v
    return end / np.linalg.norm(end, axis=-1, keepdims=True), v


def stop_at_walls(x, v):
    """Mutant: stop at the wall that the step would cross."""
    end = np.maximum(x + TIME * v, 0.0)
    return end / end.sum(axis=-1, keepdims=True), v


@pytest.mark.parametrize(
    ("manifold", "marginal", "flow"),
    [
        (*CASES[0], straight_step_and_normalise),
        (*CASES[4], stop_at_walls),
    ],
    ids=["retraction", "sticky walls"],
)
def test_wrong_flows_are_rejected(manifold, marginal, flow):
    end, velocity = flow(*exact_draws(manifold))
    assert least_p_value(manifold, marginal, end, manifold.project(end, velocity)) < FLOOR


def test_half_line_keeps_volume():
    """The Jacobian of (x, v) → (x', v') has determinant ±1 before and after the reflection."""
    line = HalfLine(1)
    for velocity in (0.4, -3.0):
        start = np.array([1.0, velocity])
        columns = [
            np.concatenate(line.geodesic(*np.split(start + 1e-6 * shift, 2), TIME))
            - np.concatenate(line.geodesic(*np.split(start - 1e-6 * shift, 2), TIME))
            for shift in np.eye(2)
        ]
        assert abs(np.linalg.det(np.array(columns) / 2e-6)) == pytest.approx(1, abs=1e-8)
