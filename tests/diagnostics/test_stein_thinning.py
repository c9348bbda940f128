"""Stein thinning selects draws that represent the posterior."""

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.diagnostics import stein_thinning
from pymc_geodesic.diagnostics.stein_kernel import stein_sample
from pymc_geodesic.diagnostics.thinning import _positive_curvature
from pymc_geodesic.gradients.scores import PosteriorScore

MU = np.array([0.48, 0.6, 0.64])


@pytest.fixture(scope="module")
def normal():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    return model


def idata_of(**draws):
    return az.from_dict({"posterior": draws})


@pytest.fixture(scope="module")
def biased():
    """Two chains with warm-up draws, the second with a shift of 0.5 and 1.3 times the sd."""
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(2, 600, 2))
    draws[1] = 0.5 + 1.3 * draws[1]
    draws[:, :60] += np.linspace(8.0, 0.0, 60)[:, np.newaxis]
    return idata_of(x=draws)


def test_biased_and_warm_up_draws_are_excluded(normal, biased):
    few = stein_thinning(biased, normal, size=80, metric=None)
    chosen = few.posterior["x"].values.reshape(-1, 2)
    everything = biased.posterior["x"].values.reshape(-1, 2)
    assert np.abs(everything.mean(axis=0)).min() > 0.3
    assert np.abs(chosen.mean(axis=0)).max() < 0.06
    assert np.all(np.abs(np.cov(chosen, rowvar=False) - np.eye(2)) < 0.25)
    origin = few.sample_stats.to_dataset()
    assert origin["source_draw"].min() > 40


def test_selected_draws_are_draws_of_the_sample(normal, biased):
    few = stein_thinning(biased, normal, size=5, max_draws=400)
    stats = few.sample_stats.to_dataset()
    assert few.posterior["x"].dims == ("chain", "draw", "x_dim_0")
    for draw in range(5):
        source = biased.posterior["x"].sel(
            chain=int(stats["source_chain"][0, draw]), draw=int(stats["source_draw"][0, draw])
        )
        np.testing.assert_array_equal(few.posterior["x"][0, draw], source)
    assert np.all(stats["source_draw"] % 3 == 0)
    assert az.summary(few)["mean"].size == 2


def test_selection_against_direct_greedy_search(normal, biased):
    """Against the criterion with the full kernel matrix."""
    size = 6
    few = stein_thinning(biased, normal, size=size, max_draws=200, laplacian=False, entropy=0.3)
    sample = stein_sample(
        biased, PosteriorScore(normal), metric="auto", bandwidth="median", beta=-0.5, max_draws=200
    )
    kernel = sample.kernel_rows(0, len(sample))
    chosen = []
    for t in range(size):
        cost = np.diagonal(kernel) - 0.3 * (t + 1) * sample.log_density
        chosen.append(int(np.argmin(cost + 2.0 * kernel[chosen].sum(axis=0))))
    stats = few.sample_stats.to_dataset()
    np.testing.assert_array_equal(stats["source_chain"][0], sample.chains[chosen])
    np.testing.assert_array_equal(stats["source_draw"][0], sample.draws[chosen])


def test_minima_of_the_density_are_avoided():
    """Between two modes the gradient is zero, so that the kernel alone would select draws there."""
    with pm.Model() as model:
        pm.NormalMixture("x", w=[0.5, 0.5], mu=[-3.0, 3.0], sigma=[1.0, 1.0])
    rng = np.random.default_rng(1)
    draws = np.concatenate([rng.normal([-3.0, 3.0], 1.0, size=(150, 2)).ravel(), np.zeros(60)])
    idata = idata_of(x=draws[np.newaxis])
    plain = stein_thinning(idata, model, 30, entropy=0.0, laplacian=False).posterior["x"]
    regular = stein_thinning(idata, model, 30).posterior["x"]
    assert np.count_nonzero(np.abs(plain) < 0.5) >= 3
    assert np.count_nonzero(np.abs(regular) < 0.5) == 0


def test_positive_second_derivatives_on_a_sphere():
    """For κ μ·x they are −κ μ·x |v|², so that Δ⁺ is positive beyond the equator only."""
    with pm.Model() as model:
        pg.VonMisesFisher("u", mu=MU, kappa=3.0)
    directions = pg.manifolds.Sphere(3).random_point(np.random.default_rng(1), (1, 50))
    score = PosteriorScore(model)
    sample = stein_sample(
        idata_of(u=directions), score, metric=None, bandwidth=1.0, beta=-0.5, max_draws=None
    )
    # the squared lengths of the three projected coordinates sum to the dimension
    expected = np.maximum(-3.0 * 2.0 * directions[0] @ MU, 0.0)
    np.testing.assert_allclose(_positive_curvature(sample, score), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be"),
        ({"size": 1201}, "exceeds the 1200 candidate draws"),
        ({"entropy": -1.0}, "entropy must be a finite number"),
    ],
)
def test_invalid_arguments_raise(normal, biased, arguments, message):
    with pytest.raises(ValueError, match=message):
        stein_thinning(biased, normal, **arguments)


def test_groups_without_these_draws_are_unchanged(normal, biased):
    rng = np.random.default_rng(2)
    full = biased.copy()
    groups = {"posterior_predictive": (2, 600), "prior": (1, 500), "warmup_sample_stats": (2, 600)}
    for name, shape in groups.items():
        full[name] = az.from_dict({"posterior": {"y": rng.normal(size=shape)}})["posterior"]
    few = stein_thinning(full, normal, size=5, laplacian=False)
    origin = few.sample_stats.to_dataset().isel(chain=0)
    predicted = full["posterior_predictive"]["y"]
    expected = predicted.sel(chain=origin["source_chain"], draw=origin["source_draw"])
    np.testing.assert_array_equal(few["posterior_predictive"]["y"].values[0], expected)
    for name in ("prior", "warmup_sample_stats"):
        np.testing.assert_array_equal(few[name]["y"], full[name]["y"])
