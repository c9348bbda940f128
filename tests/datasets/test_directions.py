import numpy as np
import pytest
from scipy.special import iv

from pymc_geodesic.datasets import (
    load_directional,
    make_shared_mean_mixture,
    make_vmf_mixture,
)


def test_moments_of_a_mixture_on_the_sphere():
    means = np.array([[0.0, 0.6, 0.8], [1.0, 0.0, 0.0]])
    kappa, weights, n = np.array([4.0, 30.0]), np.array([0.7, 0.3]), 40_000
    points, component = make_vmf_mixture(means, kappa, n, weights=weights, random_seed=3)
    # E[x] = A(kappa) mu with A = coth(kappa) - 1/kappa on the sphere in three dimensions.
    length = 1 / np.tanh(kappa) - 1 / kappa
    expected = weights @ (length[:, None] * means)
    error = (points.mean(axis=0) - expected) / (points.std(axis=0) / np.sqrt(n))
    assert np.abs(error).max() < 4
    assert abs((component == 0).mean() - 0.7) < 4 * np.sqrt(0.21 / n)


def test_the_same_seed_gives_the_same_points():
    one, two = (make_shared_mean_mixture(20, random_seed=7) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_the_paper_s_data_has_its_two_modes():
    n = 40_000
    points = make_shared_mean_mixture(n, random_seed=5)
    v1, middle = -np.pi / 24, (-np.pi / 24 + np.pi / 8) / 2
    length = iv(1, 20.0) / iv(0, 20.0)
    expected = length * np.array(
        [(np.cos(v1) + np.cos(middle)) / 2, (np.sin(v1) + np.sin(middle)) / 2]
    )
    error = (points.mean(axis=0) - expected) / (points.std(axis=0) / np.sqrt(n))
    assert np.abs(error).max() < 4


def test_means_must_be_unit_vectors():
    with pytest.raises(ValueError, match="`means` must contain unit vectors"):
        make_vmf_mixture(2 * np.eye(2), 1.0, 3)


def test_directional(data_home):
    data = load_directional(data_home)
    assert data.comets.shape == (3798, 3)
    assert data.planets.shape == (9, 3)
    assert data.wind.shape == (310, 2)
    for points in (data.comets, data.planets, data.wind):
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1.0, rtol=1e-14)
    # Mercury's orbit: inclination 7.005 degrees, ascending node at 48.33 degrees.
    i, node = np.deg2rad([7.005, 48.33])
    mercury = np.array([np.sin(i) * np.sin(node), -np.sin(i) * np.cos(node), np.cos(i)])
    np.testing.assert_allclose(data.planets[0], mercury, atol=1e-4)
