"""Schedule of visits, Laplace approximation and heterogeneity of shards."""

import numpy as np
from scipy import stats

from pymc_geodesic.distributed.heterogeneity import gradient_shifts
from pymc_geodesic.distributed.laplace import laplace_approximation, tangent_covariance
from pymc_geodesic.distributed.surrogates import Expansion
from pymc_geodesic.distributed.visits import VisitSchedule
from pymc_geodesic.manifolds import Euclidean, Product, Sphere


def test_cycles_visit_every_shard_and_chains_are_offset():
    schedule = VisitSchedule(6, 3, tune=0, draws=120, visit=10, seed=1)
    visits = np.array([[visit.shard for visit in schedule.visits(chain)] for chain in range(3)])
    for cycle in (visits[:, :6], visits[:, 6:]):
        assert (np.sort(cycle, axis=1) == np.arange(6)).all()
        assert all(len(set(at_once)) == 3 for at_once in cycle.T)


def test_shards_are_drawn_with_their_probabilities():
    probabilities = np.array([0.1, 0.6, 0.3])
    schedule = VisitSchedule(3, 1, tune=0, draws=4000, visit=1, seed=1, probabilities=probabilities)
    counts = np.bincount([visit.shard for visit in schedule.visits(0)])
    assert stats.chisquare(counts, 4000 * probabilities).pvalue > 1e-3


def test_tuning_ends_at_the_right_draw():
    visits = VisitSchedule(3, 2, tune=55, draws=40, visit=7, seed=1).visits(1)
    ends = [i for i, visit in enumerate(visits) if visit.ends_tuning]
    assert len(ends) == 1
    assert sum(visit.n_draws for visit in visits[: ends[0] + 1]) == 55
    assert sum(visit.n_draws for visit in visits) == 95
    assert [visit.number for visit in visits] == list(range(len(visits)))


def test_hessian_includes_the_curvature_of_the_sphere():
    """A von Mises–Fisher density κ μ·x has precision κ in tangent directions."""
    product = Product([("mu", Sphere(3), 1)])
    pole, kappa = np.array([0.0, 0.6, 0.8]), 50.0
    expansion = Expansion(0.0, kappa * pole, np.zeros((3, 3)))
    expected = (np.eye(3) - np.outer(pole, pole)) / kappa
    np.testing.assert_allclose(tangent_covariance(product, pole, expansion), expected, atol=1e-12)


def test_mode_of_a_normal_density_and_a_direction_is_found():
    product = Product([("x", Euclidean(2), 1), ("mu", Sphere(3), 1)])
    precision = np.array([[4.0, 1.0], [1.0, 0.5]])
    mode, pole, kappa = np.array([30.0, -20.0]), np.array([0.0, 0.6, 0.8]), 300.0

    def expand(x, n_rows, curvature):
        away = x[:2] - mode
        hessian = np.zeros((5, 5))
        hessian[:2, :2] = -precision
        value = -0.5 * away @ precision @ away + kappa * pole @ x[2:]
        return Expansion(value, np.concatenate([-precision @ away, kappa * pole]), hessian)

    start = np.array([0.0, 0.0, 0.8, 0.0, -0.6])
    found = laplace_approximation(expand, product, start)
    assert found.decrement < 1e-2
    np.testing.assert_allclose(found.position[:2], mode, atol=1e-6)
    np.testing.assert_allclose(found.position[2:], pole, atol=0.1 / np.sqrt(kappa))
    np.testing.assert_allclose(found.covariance[:2, :2], np.linalg.inv(precision), rtol=1e-6)
    starts = found.draw_starts(product, 4, np.random.default_rng(1))
    np.testing.assert_allclose(np.linalg.norm(starts[:, 2:], axis=1), 1.0)


def test_shift_is_that_of_the_mean():
    """Two normal densities shifted by one sd of the posterior to the left and to the right."""
    covariance = np.array([[4.0, 0.0], [0.0, 0.25]])
    points = np.random.default_rng(1).normal(size=(5, 2))
    means = np.array([[2.0, 0.0], [-2.0, 0.0]])
    gradients = -(points - means[:, None]) @ np.linalg.inv(covariance)
    np.testing.assert_allclose(gradient_shifts(gradients, [0.5, 0.5], covariance), [1.0, 1.0])
