import numpy as np
import pytest
from scipy import sparse

from pymc_geodesic.datasets import make_vmf_mixture
from pymc_geodesic.mixtures import ConvergenceWarning, spherical_kmeans


@pytest.fixture
def mixture():
    return make_vmf_mixture(np.eye(4), 20.0, 400, random_seed=1)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_finds_separated_components(mixture, form):
    points, component = mixture
    centers, cluster = spherical_kmeans(form(points), 4, random_seed=1)
    np.testing.assert_allclose(np.linalg.norm(centers, axis=1), 1.0)
    order = centers.argmax(axis=1)
    assert (order[cluster] == component).mean() > 0.97


def test_the_result_is_a_fixed_point(mixture):
    points, _ = mixture
    centers, cluster = spherical_kmeans(points, 6, random_seed=2)
    np.testing.assert_array_equal((points @ centers.T).argmax(axis=1), cluster)
    for k in range(6):
        mean = points[cluster == k].mean(axis=0)
        np.testing.assert_allclose(centers[k], mean / np.linalg.norm(mean))


def test_as_many_clusters_as_points():
    points = np.eye(5)
    centers, cluster = spherical_kmeans(points, 5, random_seed=3)
    assert sorted(cluster) == list(range(5))
    np.testing.assert_array_equal(centers[cluster], points)


def test_copies_of_one_point_still_give_clusters():
    centers, _ = spherical_kmeans(np.tile([0.6, 0.8], (6, 1)), 3, random_seed=4)
    np.testing.assert_allclose(centers, np.tile([0.6, 0.8], (3, 1)))


def test_too_few_points_raise():
    with pytest.raises(ValueError, match="n_clusters=3 exceeds the 2 points"):
        spherical_kmeans(np.eye(2), 3)


def test_invalid_directions_raise():
    points = np.array([[1.0, 0.0], [0.0, 3.0], [0.6, 0.8]])
    with pytest.raises(ValueError, match=r"the first of them points\[1\]: divide each row"):
        spherical_kmeans(points, 2)
    with pytest.raises(ValueError, match="n_clusters must be an integer of at least 1"):
        spherical_kmeans(np.eye(2), 0)
    centers, _ = spherical_kmeans(np.eye(2).tolist(), 1, random_seed=1)
    np.testing.assert_allclose(centers, [[0.5**0.5, 0.5**0.5]])


def test_unconverged_clusters_warn():
    points = np.random.default_rng(1).normal(size=(200, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    options = {"n_restarts": 1, "random_seed": 1}
    words = r"max_passes=2 .*: the last pass still changed the cluster of \d+ points"
    with pytest.warns(ConvergenceWarning, match=words) as caught:
        spherical_kmeans(points, 6, max_passes=2, **options)
    assert caught[0].filename == __file__
    spherical_kmeans(points, 6, max_passes=500, **options)  # warnings are errors
    with pytest.raises(ValueError, match="max_passes must be an integer of at least 1"):
        spherical_kmeans(points, 6, max_passes=0)
