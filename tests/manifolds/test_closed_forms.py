"""Geodesics of each manifold against independent closed forms."""

import numba
import numpy as np
import pytest
from scipy import stats
from scipy.linalg import expm

from pymc_geodesic.manifolds import (
    Euclidean,
    FlatSimplex,
    HalfLine,
    Simplex,
    Sphere,
    Stiefel,
    flat_simplex,
    sphere,
    stiefel,
)
from pymc_geodesic.manifolds.stiefel import matrix_exponential


def start(manifold, batch=(), seed=1):
    rng = np.random.default_rng(seed)
    x = manifold.to_coordinates(manifold.random_point(rng, batch))
    return x, manifold.project(x, rng.normal(size=x.shape))


def test_euclidean_lines_are_straight():
    x, v = start(Euclidean(5), (4,))
    end, velocity = Euclidean(5).geodesic(x, v, 0.3)
    np.testing.assert_allclose(end, x + 0.3 * v, rtol=1e-15)
    np.testing.assert_array_equal(velocity, v)


def test_half_line_is_the_fold_of_a_line():
    x, v = start(HalfLine(200), (5,))
    end, velocity = HalfLine(200).geodesic(x, v, 2.0)
    np.testing.assert_allclose(end, np.abs(x + 2 * v), rtol=1e-15)
    np.testing.assert_array_equal(velocity, np.sign(x + 2 * v) * v)


@pytest.mark.parametrize("n", [2, 3, 1000])
def test_great_circle(n):
    x, v = start(Sphere(n), (4,))
    speed = np.linalg.norm(v, axis=-1, keepdims=True)
    end, velocity = Sphere(n).geodesic(x, v, 0.8)
    angle = 0.8 * speed
    np.testing.assert_allclose(end, x * np.cos(angle) + v / speed * np.sin(angle), atol=1e-13)
    np.testing.assert_allclose(velocity, v * np.cos(angle) - x * speed * np.sin(angle), atol=1e-12)


def test_sphere_corrects_errors_of_the_start():
    """After one step, a start with errors of 1e-6 in length and direction is on the manifold."""
    x, v = start(Sphere(50), (4,))
    end, velocity = Sphere(50).geodesic(x * (1 + 1e-6), v + 1e-6 * x, 0.1)
    assert Sphere(50).contains(end, 1e-14).all()
    np.testing.assert_allclose((end * velocity).sum(axis=-1), 0, atol=1e-13)


@pytest.mark.slow
def test_a_million_steps_on_a_sphere_leave_no_drift():
    @numba.njit
    def iterate(x, v, n_steps):
        for _ in range(n_steps):
            sphere.geodesic(x, v, 0.02)

    x, v = (array.reshape(1, -1) for array in start(Sphere(5000)))
    speed = np.linalg.norm(v)
    iterate(x, v, 1_000_000)
    assert abs(np.linalg.norm(x) - 1) < 1e-14
    assert abs((x @ v.T).item()) / np.linalg.norm(v) < 1e-14
    assert np.linalg.norm(v) == pytest.approx(speed, rel=1e-9)


@pytest.mark.slow
def test_many_steps_on_frames_leave_no_drift():
    @numba.njit
    def iterate(x, v, n_steps):
        for _ in range(n_steps):
            stiefel.geodesic(x, v, 0.3, 5, 2)

    frames = Stiefel(5, 2)
    x, v = start(frames)
    speed = np.linalg.norm(v)
    iterate(x.reshape(1, -1), v.reshape(1, -1), 100_000)
    assert frames.contains(x, 1e-14)
    np.testing.assert_allclose(frames.project(x, v), v, atol=1e-14)
    assert np.linalg.norm(v) == pytest.approx(speed, rel=1e-10)


@pytest.mark.parametrize(("n", "p"), [(2, 2), (6, 3), (5, 5)])
@pytest.mark.parametrize("time", [0.01, 0.7, 5.0])
def test_frames_against_a_library_exponential(n, p, time):
    x, v = start(Stiefel(n, p))
    spin, gram, identity, zero = x.T @ v, v.T @ v, np.eye(p), np.zeros((p, p))
    turn = expm(-time * spin)
    both = (
        np.hstack([x, v])
        @ expm(time * np.block([[spin, -gram], [identity, spin]]))
        @ np.block([[turn, zero], [zero, turn]])
    )
    end, velocity = Stiefel(n, p).geodesic(x, v, time)
    np.testing.assert_allclose(end, both[:, :p], atol=1e-12)
    np.testing.assert_allclose(velocity, both[:, p:], atol=1e-12)


def test_geodesics_of_the_orthogonal_group_are_one_parameter_groups():
    x, v = start(Stiefel(4, 4))
    end, _ = Stiefel(4, 4).geodesic(x, v, 0.9)
    np.testing.assert_allclose(end, x @ expm(0.9 * x.T @ v), atol=1e-13)


def test_a_frame_of_one_vector_moves_on_the_sphere():
    x, v = start(Sphere(6), (3,))
    on_sphere = Sphere(6).geodesic(x, v, 1.1)
    as_frame = Stiefel(6, 1).geodesic(x[..., np.newaxis], v[..., np.newaxis], 1.1)
    np.testing.assert_allclose(np.squeeze(as_frame, -1), on_sphere, atol=1e-13)


def test_uniform_frames_have_uncorrelated_entries():
    n_draws = 20_000
    draws = Stiefel(4, 2).random_point(np.random.default_rng(1), n_draws).reshape(n_draws, -1)
    assert (np.abs(draws.mean(axis=0)) < 5 * np.sqrt(0.25 / n_draws)).all()
    np.testing.assert_allclose(
        np.cov(draws.T, bias=True), np.eye(8) / 4, atol=5 * 0.25 * np.sqrt(2 / n_draws)
    )


@pytest.mark.parametrize("norm", [0.0, 1e-9, 0.2, 3.0, 40.0])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_matrix_exponential(norm, n):
    rng = np.random.default_rng(1)
    matrix = norm / n * rng.standard_normal((n, n))
    out, *room = np.empty((4, n, n))
    expected = expm(matrix)
    matrix_exponential(matrix.copy(), out, *room)
    np.testing.assert_allclose(out, expected, atol=1e-13 * max(1, norm) * np.abs(expected).max())


def test_simplex_chart_maps_a_dirichlet_to_the_sphere():
    """Uniform points of the sphere, weighted by the chart, give the moments of a Dirichlet."""
    concentration = np.array([2.0, 3.0, 1.5])
    simplex = Simplex(3)
    q = Sphere(3).random_point(np.random.default_rng(1), 400_000)
    theta = simplex.from_coordinates(q)
    log_density = stats.dirichlet(concentration).logpdf
    # −log 2 is the constant the chart leaves out, log 4π the area of the sphere.
    weight = np.exp(log_density(theta.T) + simplex.log_volume(q) - np.log(2) + np.log(4 * np.pi))
    error = weight.std() / np.sqrt(len(q))
    assert abs(weight.mean() - 1) < 5 * error
    np.testing.assert_allclose(
        (weight[:, np.newaxis] * theta).mean(axis=0),
        concentration / concentration.sum(),
        atol=5 * error,
    )


def test_billiard_in_a_segment_is_a_triangle_wave():
    """On the simplex of length two, the first entry oscillates between 0 and 1."""
    x, v = start(FlatSimplex(2), (100,))
    end, _ = FlatSimplex(2).geodesic(x, v, 7.0)
    unfolded = np.mod(x[:, 0] + 7.0 * v[:, 0], 2.0)
    np.testing.assert_allclose(end[:, 0], np.minimum(unfolded, 2 - unfolded), atol=1e-13)


def test_reflection_at_a_wall_of_the_simplex():
    """A path of small steps reaches one wall; the angle of reflection is that of incidence."""
    x, v = np.array([0.1, 0.4, 0.5]), np.array([-1.0, 0.7, 0.3])
    end, velocity = FlatSimplex(3).geodesic(x, v, 0.2)
    wall = np.array([1.0, -0.5, -0.5]) / np.sqrt(1.5)
    np.testing.assert_allclose(velocity, v - 2 * (v @ wall) * wall, atol=1e-15)
    np.testing.assert_allclose(end, x + 0.1 * v + 0.1 * velocity, atol=1e-15)


@pytest.mark.parametrize("n", [3, 4, 30])
@pytest.mark.parametrize("gap", [0.0, 1e-300, 1e-17, 1e-9])
def test_reflections_in_corners_stay_inside(n, gap):
    """Paths into a corner that reach all walls but one within `gap`."""
    simplex = FlatSimplex(n)
    rng = np.random.default_rng(1)
    x = np.full((50, n), 0.1 / n)
    x[:, 1:] += gap * rng.random((50, n - 1))
    x[:, 0] = 1 - x[:, 1:].sum(axis=1)
    v = np.full((50, n), -1.0)
    v[:, 0] = n - 1
    end, velocity = simplex.geodesic(x, v, 2.0)
    assert simplex.contains(end, 1e-12).all()
    assert (end >= 0).all()
    np.testing.assert_allclose(
        np.linalg.norm(velocity, axis=1), np.linalg.norm(v, axis=1), rtol=1e-10
    )


def test_start_at_a_wall():
    x, v = np.array([0.0, 0.4, 0.6]), np.array([-1.0, 0.5, 0.5])
    end, velocity = FlatSimplex(3).geodesic(x, v, 0.1)
    np.testing.assert_allclose(velocity, [1.0, -0.5, -0.5], atol=1e-15)
    np.testing.assert_allclose(end, [0.1, 0.35, 0.55], atol=1e-15)


def test_too_many_reflections_give_nan():
    x, v = np.full((2, 3), 1 / 3), np.array([[1e9, -1e9, 0.0], [1.0, -1.0, 0.0]])
    end, _ = FlatSimplex(3).geodesic(x, v, 1.0)
    assert np.isnan(end[0]).all()
    assert np.isfinite(end[1]).all()
    assert flat_simplex.REFLECTIONS_PER_COORDINATE * 3 < 1e9
