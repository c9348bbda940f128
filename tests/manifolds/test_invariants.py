"""Invariants of geodesics and projections, for all `MANIFOLDS` and a product of them."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.manifolds import (
    MANIFOLDS,
    Euclidean,
    FlatSimplex,
    HalfLine,
    Manifold,
    Product,
    Simplex,
    Sphere,
    Stiefel,
)
from pymc_geodesic.runtime.streams import new_stream

SHAPES = {
    Euclidean: [(1,), (28,)],
    HalfLine: [(1,), (5,)],
    Sphere: [(2,), (3,), (50,)],
    Simplex: [(2,), (3,), (50,)],
    FlatSimplex: [(2,), (3,), (20,)],
    Stiefel: [(3, 1), (2, 2), (5, 2), (4, 4), (12, 3)],
}
SINGLE = [kind(*shape) for kind in MANIFOLDS for shape in SHAPES[kind]]
MIXED = Product([(kind.__name__, kind(*SHAPES[kind][1]), 2) for kind in MANIFOLDS])
ALL = [*SINGLE, MIXED]
TIMES = [0.05, 1.0, -0.7]


@pytest.fixture(params=ALL, ids=lambda manifold: "Product" if manifold is MIXED else repr(manifold))
def manifold(request):
    return request.param


def points(manifold, batch=(), seed=1):
    """Coordinates of random points and tangent vectors there."""
    rng = np.random.default_rng(seed)
    x = manifold.to_coordinates(manifold.random_point(rng, batch))
    return x, manifold.project(x, rng.normal(size=x.shape))


def speed(manifold, v):
    axes = tuple(range(-len(manifold.shape), 0))
    return np.sqrt(np.sum(v * v, axis=axes))


def projector(manifold, x):
    """Matrix of the projection at one point, in flattened ambient coordinates."""
    basis = np.eye(manifold.size).reshape(manifold.size, *manifold.shape)
    return manifold.project(x, basis).reshape(manifold.size, manifold.size).T


def test_size_is_product_of_shape(manifold):
    x, v = points(manifold)
    assert x.shape == v.shape == manifold.shape
    assert x.size == manifold.size


@pytest.mark.parametrize("manifold", SINGLE, ids=repr)
def test_traits_describe_geodesics(manifold):
    """Samplers depend on these attributes, not on the class or name of a manifold."""
    x, v = points(manifold, batch=(200,))
    vectors = np.random.default_rng(2).normal(size=x.shape)
    assert manifold.is_constrained == (np.abs(manifold.project(x, vectors) - vectors).max() > 0.1)
    far, _ = manifold.geodesic(x, v, 20.0)
    assert manifold.is_compact == (np.abs(far).max() < 10.0)
    assert manifold.is_flat == bool(np.allclose(far, x + 20.0 * v))
    assert not (manifold.is_flat and (manifold.has_edge or manifold.is_constrained))


def test_codes_are_distinct():
    assert len({kind.code for kind in MANIFOLDS}) == len(MANIFOLDS)


@pytest.mark.parametrize("size", [(), 4, (2, 3)])
def test_random_points_are_on_the_manifold(manifold, size):
    batch = (size,) if isinstance(size, int) else size
    value = manifold.random_point(np.random.default_rng(2), size)
    assert value.shape == batch + manifold.shape
    assert manifold.contains(value, 1e-12).shape == batch
    assert manifold.contains(value, 1e-12).all()
    manifold.check("x", value)


def test_symbolic_projection_is_that_of_numbers(manifold):
    x, _ = points(manifold, (2,))
    v = np.random.default_rng(3).normal(size=(4, 2, *manifold.shape))
    expected = manifold.project(x, v)
    symbolic = manifold.project(pt.constant(x), pt.constant(v), xp=pt)
    np.testing.assert_allclose(symbolic.eval(mode="FAST_COMPILE"), expected, atol=1e-12)
    np.testing.assert_allclose(manifold.projected(x, v, np), expected, atol=1e-12)


def test_diagonal_of_the_normal_projector(manifold):
    x, _ = points(manifold, (2,))
    expected = np.stack([1.0 - np.diag(projector(manifold, each)) for each in x])
    expected = expected.reshape(x.shape)
    for diagonal in (
        manifold.normal_diagonal(x),
        manifold.normal_diagonal(pt.constant(x), xp=pt).eval(mode="FAST_COMPILE"),
        Manifold.normal_diagonal(manifold, x),
        Manifold.normal_diagonal(manifold, pt.constant(x), xp=pt).eval(mode="FAST_COMPILE"),
    ):
        np.testing.assert_allclose(diagonal, expected, atol=1e-12)


def test_projection_is_an_orthogonal_projection_of_rank_dim(manifold):
    matrix = projector(manifold, points(manifold)[0])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-14)
    np.testing.assert_allclose(matrix @ matrix, matrix, atol=1e-14)
    assert np.linalg.matrix_rank(matrix, tol=1e-8) == manifold.dim
    assert np.trace(matrix) == pytest.approx(manifold.dim, abs=1e-12)


@pytest.mark.parametrize("time", TIMES)
def test_geodesic_stays_on_the_manifold_at_constant_speed(manifold, time):
    x, v = points(manifold, (20,))
    end, velocity = manifold.geodesic(x, v, time)
    assert manifold.contains(manifold.from_coordinates(end), 1e-12).all()
    np.testing.assert_allclose(manifold.project(end, velocity), velocity, atol=1e-12)
    np.testing.assert_allclose(speed(manifold, velocity), speed(manifold, v), rtol=1e-12)


@pytest.mark.parametrize("time", TIMES)
def test_geodesic_is_a_flow(manifold, time):
    x, v = points(manifold, (20,))
    end, velocity = manifold.geodesic(x, v, time)
    between = manifold.geodesic(x, v, 0.4 * time)
    end_again, velocity_again = manifold.geodesic(*between, 0.6 * time)
    np.testing.assert_allclose(end_again, end, atol=1e-12)
    np.testing.assert_allclose(velocity_again, velocity, atol=1e-12)


@pytest.mark.parametrize("time", TIMES)
def test_geodesic_is_reversible(manifold, time):
    x, v = points(manifold, (20,))
    end, velocity = manifold.geodesic(x, v, time)
    for back, sign in (
        (manifold.geodesic(end, -velocity, time), -1),
        (manifold.geodesic(end, velocity, -time), 1),
    ):
        np.testing.assert_allclose(back[0], x, atol=1e-12)
        np.testing.assert_allclose(sign * back[1], v, atol=1e-12)


def test_geodesic_leaves_with_its_velocity(manifold):
    x, v = points(manifold, (5,))
    step = 1e-5
    ahead, behind = (manifold.geodesic(x, v, time)[0] for time in (step, -step))
    np.testing.assert_allclose((ahead - behind) / (2 * step), v, atol=1e-7)


def test_geodesic_does_not_accelerate_within_the_manifold(manifold):
    x, v = points(manifold, (5,))
    step = 1e-4
    ahead, behind = (manifold.geodesic(x, v, time)[0] for time in (step, -step))
    acceleration = manifold.project(x, (ahead - 2 * x + behind) / step**2)
    np.testing.assert_allclose(acceleration, 0, atol=1e-6)


def test_a_point_at_rest_stays(manifold):
    x, v = points(manifold, (3,))
    end, velocity = manifold.geodesic(x, 0 * v, 0.7)
    np.testing.assert_allclose(end, x, atol=1e-15)
    assert not velocity.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["x", "v"])
def test_nonfinite_numbers_are_propagated(manifold, bad, where):
    x, v = points(manifold)
    (x if where == "x" else v).flat[0] = bad
    end, velocity = manifold.geodesic(x, v, 0.1)
    assert not (np.isfinite(end).all() and np.isfinite(velocity).all())


def test_velocities_have_the_projector_as_covariance(manifold):
    x, _ = points(manifold)
    product = manifold if manifold is MIXED else Product([("x", manifold, 1)])
    n, stream = 20_000, new_stream(np.random.default_rng(3))
    noise = np.empty((n, manifold.size))
    for v in noise:
        refresh_velocity(product.blocks, x.ravel(), v, stream)
    expected = projector(manifold, x)
    variances = np.diagonal(expected)
    error = np.sqrt((np.outer(variances, variances) + expected**2) / n)
    assert (np.abs(noise.T @ noise / n - expected) <= 5 * error + 1e-12).all()
    assert (np.abs(noise.mean(axis=0)) <= 5 * np.sqrt(variances / n) + 1e-12).all()


def test_batch_axes_are_a_loop(manifold):
    x, v = points(manifold, (2, 3))
    ends, velocities = manifold.geodesic(x, v, 0.3)
    projected = manifold.project(x, x + v)
    for index in np.ndindex(2, 3):
        end, velocity = manifold.geodesic(x[index], v[index], 0.3)
        np.testing.assert_array_equal(ends[index], end)
        np.testing.assert_array_equal(velocities[index], velocity)
        np.testing.assert_array_equal(
            projected[index], manifold.project(x[index], x[index] + v[index])
        )


def test_one_point_broadcasts_against_many_vectors(manifold):
    x, _ = points(manifold)
    _, v = points(manifold, (4,))
    for i in range(4):
        np.testing.assert_array_equal(manifold.project(x, v)[i], manifold.project(x, v[i]))


def test_arguments_are_not_modified(manifold):
    x, v = points(manifold, (2,))
    kept = x.copy(), v.copy()
    manifold.geodesic(x, v, 0.3)
    manifold.project(x, v)
    np.testing.assert_array_equal((x, v), kept)


def test_coordinates_are_inverse_to_values(manifold):
    value = manifold.random_point(np.random.default_rng(5), (3,))
    coordinates = manifold.to_coordinates(value)
    np.testing.assert_allclose(manifold.from_coordinates(coordinates), value, atol=1e-15)
    assert manifold.log_volume(coordinates).shape == (3,)


def test_check_names_variable_and_remedy(manifold):
    value = manifold.random_point(np.random.default_rng(6))
    with pytest.raises(ValueError, match=r"weights has shape .*"):
        manifold.check("weights", np.zeros((*manifold.shape, manifold.shape[-1] + 1)))
    with pytest.raises(ValueError, match=r"weights.* (NaN|infinite).* finite initial value"):
        manifold.check("weights", np.full_like(value, np.nan))


@pytest.mark.parametrize("manifold", SINGLE, ids=repr)
def test_check_rejects_points_off_the_manifold(manifold):
    if isinstance(manifold, Euclidean):
        return
    value = manifold.random_point(np.random.default_rng(6), 3)
    value[1] = -2.0
    assert manifold.contains(value).tolist() == [True, False, True]
    with pytest.raises(ValueError, match=r"1 of the 3 points of weights are not on .*") as caught:
        manifold.check("weights", value)
    assert str(caught.value).endswith(manifold.remedy)


@pytest.mark.parametrize("manifold", SINGLE, ids=repr)
def test_equal_manifolds_are_equal_and_hashable(manifold):
    assert len({manifold, type(manifold)(*manifold.shape)}) == 1


def test_mismatched_vectors_raise(manifold):
    too_long = np.zeros((*manifold.shape[:-1], manifold.shape[-1] + 1))
    with pytest.raises(ValueError, match="trailing axes of shape"):
        manifold.project(too_long, too_long)


@pytest.mark.parametrize("kind", MANIFOLDS)
@pytest.mark.parametrize("bad", [0, -1, 2.5])
def test_impossible_shapes_raise(kind, bad):
    with pytest.raises(ValueError, match="n must be an integer of at least 1"):
        kind(bad, *SHAPES[kind][0][1:])


@pytest.mark.parametrize("kind", [Sphere, Simplex, FlatSimplex])
def test_a_single_coordinate_cannot_move(kind):
    with pytest.raises(ValueError, match="n must be at least 2"):
        kind(1)


@pytest.mark.parametrize(("n", "p"), [(2, 3), (1, 1)])
def test_frames_must_fit_in_their_space(n, p):
    with pytest.raises(ValueError, match="p ≤ n"):
        Stiefel(n, p)
