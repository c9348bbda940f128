"""Benchmarks load, and their numerical functions are correct on small problems."""

import os
import subprocess
import sys
from itertools import product

import numpy as np
import pymc as pm
import pytensor
import pytest

from tests.examples.scripts import ROOT, script_paths

LIBRARIES = ("OPENBLAS", "OMP", "MKL")
PEERS = {"blackjax_sgnht", "inner_loop", "row_count"}
"""Scripts that need BlackJAX."""

BENCHMARKS = [path.stem for path in script_paths("benchmarks")]


@pytest.fixture(autouse=True)
def contained(monkeypatch):
    """Prevent benchmarks from binding this process to one core and its libraries to one thread."""
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    for library in LIBRARIES:
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


def benchmark(name):
    return pytest.importorskip(f"benchmarks.{name}")


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in PEERS])
def test_loads(name):
    if name == "unit_vector_transform":
        pytest.importorskip("nutpie")
    assert benchmark(name).__doc__


def test_benchmarks_with_other_libraries_load():
    """In a subprocess, because they set up JAX."""
    pytest.importorskip("blackjax")
    code = "; ".join(f"import benchmarks.{name}" for name in sorted(PEERS))
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, check=True)


def test_quadrature_of_the_regression():
    """Five nodes around the mode agree with a fine grid."""
    known = benchmark("known_posteriors")
    X, y = known.regression_rows(400, 2)
    mean, covariance = known.moments_by_quadrature(X, y)
    mode, about = known.mode_and_covariance(X, y)
    axis = np.linspace(-7.0, 7.0, 141)
    grid = np.array(list(product(axis, axis))) @ np.linalg.cholesky(about).T + mode
    logs = known.log_density_at(X, y, grid)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    exact = weights @ grid
    scale = np.sqrt(np.diag(about))
    np.testing.assert_allclose((mean - exact) / scale, 0.0, atol=1e-3)
    exact_covariance = (grid - exact).T @ ((grid - exact) * weights[:, None])
    np.testing.assert_allclose(covariance / exact_covariance, 1.0, rtol=0.02)


def test_directions_are_standardized():
    """Exact draws of the posterior have mean zero and covariance one."""
    known = benchmark("known_posteriors")
    posterior = known.directional(200, 4)
    from pymc_geodesic.distributions.von_mises_fisher_draws import draw_von_mises_fisher

    kappa = 1.0 / posterior.scale**2
    rng = np.random.default_rng(1)
    z = posterior.standardize(draw_von_mises_fisher(rng, posterior.mode, kappa, (20_000,)))
    assert z.shape == (20_000, 3)
    assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(20_000)
    assert np.abs(np.cov(z.T) - np.eye(3)).max() < 0.05


@pytest.mark.slow
def test_bias_table(monkeypatch, tmp_path):
    module = benchmark("bias_table")
    monkeypatch.setattr(module, "STEP_SIZES", (0.3,))
    monkeypatch.setattr(module, "BATCH_SIZES", (20,))
    monkeypatch.setattr(module, "N_STEPS", 2)
    monkeypatch.setattr(module, "MIN_ESS", 2.0)
    lines = list(module.by_step_size(200, 0.3))
    assert len(lines) == 2 + len(module.STOCHASTIC) + 1
    assert all(line.count("|") == 4 for line in lines)
    assert "%" in lines[2]
    assert module.errors(np.full((10, 3), 2.0)) == (2.0, 1.0)
    curves = {("a", "NUTS"): (np.arange(1.0, 4.0), np.ones((3, 2)))}
    module.draw_curves(curves, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()


def test_start_of_the_inner_loop():
    from benchmarks.problems import circle

    step = benchmark("models").make_step(circle(), 3)
    assert step.sampler.position @ step.sampler.position == pytest.approx(1.0)


@pytest.mark.slow
def test_simplex():
    module = benchmark("simplex")
    from pymc_geodesic.manifolds import FlatSimplex

    figures = module.measure(np.full(3, 2.0), FlatSimplex, 20, 1)
    assert np.all(np.isfinite(figures))


def test_draws_of_directions(capsys):
    module = benchmark("von_mises_fisher_draws")
    rng = np.random.default_rng(1)
    draws = module.compiled(1, 2, 7)(rng, np.array([0.6, 0.8]))
    np.testing.assert_allclose(np.linalg.norm(draws, axis=-1), 1.0)
    module.report("nothing", *[lambda: None] * 3)
    assert capsys.readouterr().out.startswith("nothing")


def adapted_results():
    return [
        {
            "posterior": "p", "sampler": sampler, "rhat": 1.0, "ess": 500.0, "mean_error": 0.05,
            "sd_ratio": 0.98, "n_grad": 4.0, "ess_per_1000_gradients": size, "seconds": 3.0,
        }
        for sampler, size in (("NUTS", 20.0), ("GMC", 50.0), ("SGGMC, minibatches", 90.0))
    ]  # fmt: skip


def test_effective_draws_per_gradient_are_those_of_all_rows_over_nuts():
    adaptation = benchmark("adaptation")
    _, _, line = adaptation.ratios(adapted_results())
    assert line == "| p | 2.50 | nan | nan | NUTS |"
    dense = {**adapted_results()[0], "sampler": "NUTS, dense", "ess_per_1000_gradients": 40.0}
    line = adaptation.ratios([*adapted_results(), dense])[-1]
    assert line == "| p | 1.25 | nan | nan | NUTS, dense |"
    assert adaptation.ratios(adapted_results()[1:])[2:] == []  # nothing to compare with


def test_errors_of_a_reference_relative_to_the_exact_posterior():
    """Draws of (beta, sigma) given flat priors: sigma^-2 is gamma distributed."""
    adaptation = benchmark("adaptation")
    database = benchmark("posteriordb")
    rng = np.random.default_rng(1)
    design, n_draws = np.column_stack([np.ones(12), np.arange(12.0)]), 200_000
    y = rng.normal(size=12)
    with pm.Model() as model:
        pm.Data("X", design), pm.Data("y", y)
    mean, residuals, *_ = np.linalg.lstsq(design, y)
    sigma = np.sqrt(residuals / 2 / rng.gamma(9 / 2, size=n_draws))  # density sigma^(2 - 12)
    factor = np.linalg.cholesky(np.linalg.inv(design.T @ design))
    beta = mean[:, None] + sigma * (factor @ rng.normal(size=(2, n_draws)))
    reference = {"beta[1]": beta[0], "beta[2]": 1.1 * (beta[1] - mean[1]) + mean[1]}
    error, ratio = adaptation.reference_errors(
        database.Posterior("p", model, ["X", "y"], 12, reference)
    )
    assert error < 0.01
    assert abs(ratio - 1.1) < 0.01


def test_adaptation_is_measured_on_the_worst_parameter():
    """Two parameters of one variable, of which the second mixes badly and is too wide."""
    adaptation = benchmark("adaptation")
    database = benchmark("posteriordb")
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        pm.Normal("b", 0.0, [1.0, 0.5], shape=2)
    reference = {"b[1]": rng.normal(size=2500), "b[2]": 0.25 * rng.normal(size=2500)}
    posterior = database.Posterior("p", model, [], 0, reference)
    result = adaptation.measure(posterior, "GMC", draws=300, tune=100, cores=1)
    assert 1.8 < result["sd_ratio"] < 2.2
    assert result["ess"] <= 4 * 300 * 3
    assert result["ess_per_1000_gradients"] == 1000 * result["ess"] / (1200 * result["n_grad"])


def test_minibatches_are_for_rows_enough():
    adaptation = benchmark("adaptation")
    database = benchmark("posteriordb")
    few, many = (database.Posterior("p", None, ["y"], n, {}) for n in (499, 500))
    assert [adaptation.applies("SGGMC, minibatches", one) for one in (few, many)] == [False, True]
    assert adaptation.applies("NUTS", few)
