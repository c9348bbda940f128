import cloudpickle
import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln
from scipy.stats import kstest

from pymc_geodesic.distributions import UniformStiefel
from pymc_geodesic.distributions.frames import log_stiefel_volume
from pymc_geodesic.transforms import stiefel


def log_sphere_area(dim):
    return np.log(2) + dim / 2 * np.log(np.pi) - gammaln(dim / 2)


@pytest.mark.parametrize(("n", "p"), [(1, 1), (2, 1), (2, 2), (3, 3), (5, 2), (40, 1), (100, 20)])
def test_the_volume_is_a_product_of_spheres(n, p):
    """A product over columns on spheres; each rotation of two columns has a factor √2."""
    expected = sum(log_sphere_area(n - r) for r in range(p)) + p * (p - 1) / 4 * np.log(2)
    volume = log_stiefel_volume(n, p).eval(mode="FAST_COMPILE")
    assert volume == pytest.approx(expected, rel=1e-13)


@pytest.fixture(scope="module")
def draws():
    """Frames of 4 × 3, and orthogonal 3 × 3 matrices."""
    sizes = ((4, 3), (3, 3))
    frames = [UniformStiefel.dist(shape=(20_000, *size)) for size in sizes]
    return pm.draw(frames, random_seed=1, mode="FAST_COMPILE")


def test_compiled_draws_agree_with_numpy():
    """Including square matrices, whose last column is determined by the others."""
    frames = [UniformStiefel.dist(shape=(200, *size)) for size in ((4, 3), (6, 6))]
    modes = ("NUMBA", "FAST_COMPILE")
    for compiled, interpreted in zip(
        *(pm.draw(frames, random_seed=1, mode=mode) for mode in modes), strict=True
    ):
        gram = compiled.mT @ compiled
        np.testing.assert_allclose(
            gram, np.broadcast_to(np.eye(gram.shape[-1]), gram.shape), atol=1e-14
        )
        np.testing.assert_allclose(compiled, interpreted, atol=1e-10)


def z_scores(sample, expected):
    """Deviation of the mean over the first axis, in standard errors."""
    return (sample.mean(axis=0) - expected) / (sample.std(axis=0) / np.sqrt(len(sample)))


def test_draws_are_orthonormal(draws):
    for sample in draws:
        gram = sample.mT @ sample
        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(3), gram.shape), atol=1e-12)


def test_draws_have_the_moments_and_marginals_of_the_invariant_measure(draws):
    for sample in draws:
        n = sample.shape[1]
        assert np.abs(z_scores(sample, 0)).max() < 5
        assert np.abs(z_scores(sample**2, 1 / n)).max() < 5
        for entry in np.moveaxis(sample, 0, -1).reshape(3 * n, -1):
            # The square of a coordinate of a uniform direction is Beta(1/2, (n-1)/2).
            assert kstest(entry**2, "beta", args=(0.5, (n - 1) / 2)).pvalue > 1e-6
    determinants = np.linalg.det(draws[1])
    assert abs(z_scores(determinants, 0)) < 5


def test_draws_do_not_change_under_rotation(draws):
    tall = draws[0]
    rng = np.random.default_rng(2)
    left, right = (np.linalg.qr(rng.standard_normal((k, k))).Q for k in (4, 3))
    rotated = left @ tall @ right
    assert np.abs(z_scores(rotated, 0)).max() < 5
    products = rotated[:, :, :, None] * rotated[:, :, None, :]
    expected = np.broadcast_to(np.eye(3) / 4, (4, 3, 3))
    assert np.abs(z_scores(products, expected)).max() < 5


def test_moments_detect_a_factor_without_the_sign_correction():
    gaussian = np.random.default_rng(3).standard_normal((20_000, 4, 3))
    assert np.abs(z_scores(np.linalg.qr(gaussian).Q, 0)).max() > 20


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"group": range(3), "row": list("abcde"), "column": range(2)}) as model:
        UniformStiefel("X", dims=("group", "row", "column"))
        UniformStiefel("Q", shape=(2, 2))
    return model


def test_the_model_prints_plots_and_starts_on_the_manifold(model):
    assert model.str_repr() == "X ~ UniformStiefel(5, 2)\nQ ~ UniformStiefel(2, 2)"
    assert "group (3) x row (5) x column (2)" in pm.model_to_mermaid(model)
    assert [model.rvs_to_transforms[rv] for rv in model.free_RVs] == [stiefel, stiefel]
    point = model.initial_point()
    np.testing.assert_array_equal(point["X_stiefel__"], np.broadcast_to(np.eye(5, 2), (3, 5, 2)))
    np.testing.assert_array_equal(point["Q_stiefel__"], np.eye(2))


def test_the_density_is_one_over_the_volume_for_each_matrix(model):
    log_density = model.compile_logp(jacobian=False, sum=False, mode="FAST_COMPILE")
    of_x, of_q = log_density(model.initial_point())
    volumes = [log_stiefel_volume(n, 2).eval(mode="FAST_COMPILE") for n in (5, 2)]
    np.testing.assert_allclose(of_x, np.full(3, -volumes[0]))
    np.testing.assert_allclose(of_q, -volumes[1])


def test_model_can_be_pickled(model):
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    point = model.initial_point()
    log_densities = [m.compile_logp(mode="FAST_COMPILE")(point) for m in (model, copy)]
    assert log_densities[0] == log_densities[1]


def test_off_the_manifold_the_density_is_zero():
    log_density = pm.logp(UniformStiefel.dist(shape=(3, 2)), 1.01 * np.eye(3, 2))
    assert log_density.eval(mode="FAST_COMPILE") == -np.inf


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [
        ((2, 3), ValueError, "3 columns in 2 dimensions cannot be orthonormal"),
        ((3,), ValueError, "must end in the rows and columns"),
        (None, TypeError, "needs the shape of its matrices"),
    ],
)
def test_invalid_shapes_raise(shape, error, message):
    with pytest.raises(error, match=message):
        UniformStiefel.dist(shape=shape)


def test_observed_matrices_must_be_orthonormal():
    with pm.Model():
        UniformStiefel("good", observed=np.eye(3)[None, :, :2])
        with pytest.raises(ValueError, match=r"'bad' must be matrices with orthonormal columns"):
            UniformStiefel("bad", observed=np.ones((3, 2)))
