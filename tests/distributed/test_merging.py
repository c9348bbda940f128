"""Merged draws from the posteriors of shards have the distribution of the product."""

import warnings

import numpy as np
import pytest

from pymc_geodesic.distributed import merge_directions, merge_proportions
from pymc_geodesic.distributions.von_mises_fisher_draws import draw_von_mises_fisher


def moments(x):
    """Errors of moments: mean and square of each coordinate."""
    return np.stack([x, x**2]).mean(axis=1)


def z_scores(draws, exact):
    """Errors of the moments of draws against those of others, in standard errors."""
    error = np.sqrt(sum(np.stack([x, x**2]).var(axis=1) / len(x) for x in (draws, exact)))
    return np.abs(moments(draws) - moments(exact)) / error


DIRECTIONS = ((np.array([1.0, 0.0, 0.0]), 40.0), (np.array([0.0, 0.6, 0.8]), 25.0))


def directions_of(n=20_000):
    rng = np.random.default_rng(1)
    return [draw_von_mises_fisher(rng, mu, kappa, (n,)) for mu, kappa in DIRECTIONS]


def exact_directions(parameter, n=20_000):
    kappa = np.linalg.norm(parameter)
    return draw_von_mises_fisher(np.random.default_rng(2), parameter / kappa, kappa, (n,))


def test_directions_merge_to_the_product():
    """∏ vMF(μ_s, κ_s) is vMF with κμ = Σ κ_s μ_s."""
    merged = merge_directions(directions_of(200_000), 20_000, random_seed=3)
    np.testing.assert_allclose(np.linalg.norm(merged, axis=1), 1.0)
    product = sum(kappa * mu for mu, kappa in DIRECTIONS)
    assert z_scores(merged, exact_directions(product)).max() < 5
    # averaged draws do not have the distribution of the product
    assert z_scores(merged, exact_directions(1.3 * product)).max() > 5


def test_directions_are_merged_independently():
    one, other = directions_of(2000)
    merged = merge_directions([np.stack([one, one], axis=1), np.stack([other, one], axis=1)])
    assert merged.shape == (2000, 2, 3)
    assert merged[:, 1, 0].mean() > 0.98 > 0.9 > merged[:, 0, 0].mean()


def directions_with_sds(first, second, n=2000):
    """Draws around the first axis with these sds along the two others."""
    tangent = np.random.default_rng(1).normal(size=(n, 2)) * [first, second]
    draws = np.column_stack([np.ones(n), tangent])
    return draws / np.linalg.norm(draws, axis=1, keepdims=True)


def test_anisotropic_shards_warn():
    """Merged draws have sd .062 where the product has .033: a warning is issued."""
    shards = [directions_with_sds(0.12, 0.0345), directions_with_sds(0.0345, 0.12)]
    with pytest.warns(UserWarning, match=r"shard \d have an sd 3\.5 times as large .* too wide"):
        merged = merge_directions(shards, 20_000, random_seed=1)
    exact = (1 / 0.12**2 + 1 / 0.0345**2) ** -0.5
    assert (merged[:, 1:].std(axis=0) > 1.8 * exact).all()
    several = [np.stack([directions_with_sds(0.1, 0.1), shard], axis=1) for shard in shards]
    with pytest.warns(UserWarning, match=r"shard \d, variable \(1,\) have an sd 3\.5 times"):
        merge_directions(several)


@pytest.mark.parametrize(("d", "n"), [(3, 20), (3, 2000), (50, 200), (50, 40)])
def test_isotropic_shards_are_merged_without_a_warning(d, n):
    rng = np.random.default_rng(1)
    mu = np.eye(d)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kappa in (2.0, 400.0):
            merge_directions([draw_von_mises_fisher(rng, mu, kappa, (n,)) for _ in range(10)])


PROPORTIONS = (np.array([30.0, 12.0, 8.0]), np.array([9.0, 25.0, 3.0]))


def test_proportions_merge_to_the_product():
    """∏ Dir(a_s) is Dir(1 + Σ (a_s − 1))."""
    rng = np.random.default_rng(1)
    shards = [rng.dirichlet(a, 200_000) for a in PROPORTIONS]
    merged = merge_proportions(shards, 20_000, random_seed=3)
    np.testing.assert_allclose(merged.sum(axis=1), 1.0)
    exact = rng.dirichlet(1 + sum(PROPORTIONS) - 2, 20_000)
    assert z_scores(merged, exact).max() < 5
    assert z_scores(merged, rng.dirichlet(sum(PROPORTIONS), 20_000)).max() > 5


@pytest.mark.parametrize(
    ("merge", "draws", "message"),
    [
        (merge_directions, [], "no shards"),
        (merge_directions, [np.eye(3), np.eye(2)], "one shape"),
        (merge_directions, [2 * np.eye(3)], "shard 0 are not unit vectors"),
        (merge_proportions, [np.eye(3)], "not inside the simplex"),
        (merge_proportions, [np.full((1, 2), 0.5)], "one shape"),
        (merge_directions, np.eye(3), r"one array for each shard, .* got arrays of shape \(3,\)"),
    ],
)
def test_invalid_draws_raise(merge, draws, message):
    with pytest.raises(ValueError, match=message):
        merge(draws)


@pytest.mark.parametrize("n_draws", [0, 2.5])
def test_invalid_numbers_of_merged_draws_raise(n_draws):
    with pytest.raises(ValueError, match="n_draws must be a positive integer"):
        merge_directions([np.eye(3)], n_draws)
