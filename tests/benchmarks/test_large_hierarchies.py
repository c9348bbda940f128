"""The benchmark of large hierarchies: models, references and measurements."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pymc as pm
import pytensor
import pytest

from benchmarks.crossed_gibbs import sample_crossed
from benchmarks.large_hierarchies import add_rates, compare, extrapolated, line, methods_of, ratios
from benchmarks.large_hierarchy_models import CASES, CrossedData, group_codes
from benchmarks.large_hierarchy_runs import GRADIENTS, squared_error, summarize
from tests.examples.scripts import ROOT

SIMULATED = [name for name in CASES if name != "insteval"]  # that reads a file


@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
@pytest.mark.parametrize("name", SIMULATED)
def test_models_have_a_finite_log_density(name):
    case = CASES[name]
    problem = case.build(case.n_quick_rows)
    point = problem.model.initial_point()
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        logp = problem.model.compile_logp()
    assert np.isfinite(logp(point))
    if problem.crossed is not None:
        names = {f"{key}_effect" for key in problem.crossed.codes}
        assert names <= set(problem.model.named_vars)


def test_groups_have_unequal_sizes_and_a_row_each():
    sizes = np.bincount(group_codes(np.random.default_rng(1), 5_000, 100))
    assert len(sizes) == 100
    assert sizes.min() >= 1
    assert sizes.max() > 3 * np.median(sizes)


def exact_moments(data, n_grid=24):
    """Means of scales by quadrature, with all normal variables integrated out."""
    indicators = [np.eye(code.max() + 1)[code] for code in data.codes.values()]
    base = data.intercept[1] ** 2 + data.slope_sd**2 * data.X @ data.X.T
    grid = (np.arange(n_grid) + 0.5) * 4.0 * data.scale_sd / n_grid
    points = np.array(list(itertools.product(grid, repeat=len(indicators) + 1)))
    logs = []
    for point in points:
        covariance = base + point[-1] ** 2 * np.eye(data.y.size)
        for scale, columns in zip(point, indicators, strict=False):
            covariance = covariance + scale**2 * columns @ columns.T
        residual = data.y - data.intercept[0]
        _, log_determinant = np.linalg.slogdet(covariance)
        logs.append(-0.5 * (log_determinant + residual @ np.linalg.solve(covariance, residual)))
    logs = np.array(logs) - 0.5 * np.sum(points**2, axis=1) / data.scale_sd**2
    weights = np.exp(logs - logs.max())
    return weights / weights.sum() @ points


@pytest.mark.slow
def test_gibbs_sampler_has_the_posterior_of_scales():
    rng = np.random.default_rng(3)
    codes = {"a": np.tile(np.arange(4), 4), "b": np.repeat(np.arange(4), 4)}
    x = rng.normal(size=(16, 1))
    y = 1.0 + 0.5 * x[:, 0] + rng.normal(size=16) + rng.normal(size=4)[codes["a"]]
    data = CrossedData(y, x, codes, (0.0, 2.0), 1.0, 0.7)
    draws = sample_crossed(data, draws=40_000, burn_in=100, seed=4)
    scales = np.column_stack([draws["a_sd"], draws["b_sd"], draws["residual_sd"]])
    blocks = scales.reshape(40, 1_000, 3).mean(axis=1)
    error = blocks.std(axis=0) / np.sqrt(40)
    assert np.all(np.abs(scales.mean(axis=0) - exact_moments(data)) < 5.0 * error + 1e-3)
    assert draws["a_effect"].shape == (40_000, 4)


def test_summary_has_logarithms_of_scales_and_correlations():
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        pm.HalfNormal("scale", 1.0)
        pm.Normal("effect", 0.0, 1.0, shape=(3, 2))
        pm.LKJCholeskyCov("cov", n=2, eta=1.0, sd_dist=pm.HalfNormal.dist(1.0))
    correlation = rng.uniform(-0.5, 0.5, size=(2, 50))
    draws = {
        "scale": np.exp(rng.normal(size=(2, 50))),
        "effect": rng.normal(size=(2, 50, 3, 2)),
        "cov": rng.normal(size=(2, 50, 3)),
        "cov_stds": np.exp(rng.normal(size=(2, 50, 2))),
        "cov_corr": np.stack([np.ones_like(correlation), correlation], axis=-1)[
            ..., [[0, 1], [1, 0]]
        ],
    }
    summary = summarize(model, draws)
    names = [str(name) for name in summary["name"]]
    assert names[:2] == ["log scale", "effect[0, 0]"]
    assert names[-3:] == ["log cov_stds[0]", "log cov_stds[1]", "atanh cov_corr[0]"]
    np.testing.assert_allclose(summary["mean"][0], np.log(draws["scale"]).mean())
    np.testing.assert_allclose(summary["mean"][-1], np.arctanh(correlation).mean())


def test_squared_error_is_one_for_the_posterior():
    """For 10,000 effects whose posterior is N(m, s²); not if sds are 10 % too small."""
    rng = np.random.default_rng(2)
    mean, sd = rng.normal(size=(5_000, 2)), rng.uniform(0.5, 2.0, size=(5_000, 2))
    effects = {"a": mean + sd * rng.normal(size=sd.shape), "b": np.zeros(0)}
    noise = rng.normal(size=(4, 100, 5_000, 2))
    empty = np.zeros((4, 100, 0))
    right = squared_error(effects, {"a": mean + sd * noise, "b": empty})
    narrow = squared_error(effects, {"a": mean + 0.9 * sd * noise, "b": empty})
    assert right == pytest.approx(1.0, abs=0.05)
    assert narrow == pytest.approx(1.0 / 0.81, abs=0.06)
    assert np.isnan(squared_error({}, {}))


def summary_of(mean, sd, size):
    n = len(mean)
    return {
        "name": np.array([f"x[{i}]" for i in range(n)]), "is_effect": np.arange(n) > 0,
        "mean": np.array(mean), "sd": np.array(sd), "rhat": np.full(n, 1.01),
        **{key: np.full(n, size) for key in ("bulk", "tail", "of_sd")},
    }  # fmt: skip


def test_errors_beyond_those_of_monte_carlo():
    reference = summary_of([0.0, 0.0], [1.0, 2.0], 1e4)
    same = compare(reference, reference)
    assert (same["mean"], same["sd"], same["mean_beyond"], same["sd_beyond"]) == (0.0, 1.0, 0, 0)
    wrong = compare(summary_of([0.1, -1.0], [1.0, 1.0], 1e4), reference)
    assert wrong["mean"] == -0.5
    assert wrong["worst_mean"] == "x[1]"
    assert wrong["sd"] == pytest.approx(0.5)
    assert 0.4 < wrong["mean_beyond"] < 0.5
    assert wrong["mean_of_others"] == pytest.approx(0.1)


def result_of(method, n_rows, **given):
    result = {
        "model": "poisson", "rows": n_rows, "method": method, "seed": 1, "chains": 2, "draws": 100,
        "tune": 100, "coordinates": 3, "compilation_s": 10.0, "construction_s": 0.0,
        "warm_up_s": 1.0, "draws_s": 4.0, "warm_up_gradients": 1_000.0, "gradients": 4_000.0,
        "memory_mb": 1.0, "memory_of_model_mb": 1.0, "warnings": [],
    }  # fmt: skip
    return result | given


def test_rates_and_extrapolation():
    small = result_of("nutpie diagonal", 100_000)
    add_rates(small, summary_of([0.0], [1.0], 50.0), 400)
    # four times the draws: 200 effective ones in 1 + 4 * 4 seconds
    assert small["ess_per_s"] == pytest.approx(200.0 / 17.0)
    assert small["ess_per_s_with_compilation"] == pytest.approx(200.0 / 27.0)
    assert small["gradients_per_draw"] == 20.0
    timing = result_of(GRADIENTS, 1_000_000, gradient_s=0.01)
    large = extrapolated(small, timing, 400)
    assert large["ess_per_s"] == pytest.approx(200.0 / (10.0 + 160.0))
    assert "extrapolated from 100,000 rows" in line(large)
    ours = result_of("GMC", 1_000_000)
    add_rates(ours, summary_of([0.0], [1.0], 50.0), 100)
    (text,) = ratios([ours, large])
    assert text.startswith("GMC over the better nutpie: 8.5 effective draws per second")
    assert line(ours).count("|") == line(large).count("|")


def test_samplers_of_a_model():
    every = ["GMC", "SGGMC", "nutpie diagonal", "nutpie low_rank", "Gibbs"]
    assert methods_of("insteval", 73_421, every) == [each for each in every if each != "SGGMC"]
    assert methods_of("logistic", 1_000_000, every) == ["GMC", "SGGMC", GRADIENTS]
    assert methods_of("radon", 919, ["GMC"]) == ["GMC"]


@pytest.mark.slow
def test_quick_mode(tmp_path):
    pytest.importorskip("nutpie")
    path = tmp_path / "results.json"
    lengths = ["--draws", "60", "--tune", "100", "--nutpie-draws", "60"]
    command = [sys.executable, "-m", "benchmarks.large_hierarchies", "--quick", *lengths]
    models = ["--model", "logistic", "crossed-normal", "--results", str(path)]
    done = subprocess.run([*command, *models], cwd=ROOT, capture_output=True, text=True, check=True)
    results = json.loads(path.read_text())
    assert [each["method"] for each in results] == [
        "GMC", "SGGMC", "nutpie diagonal", "nutpie low_rank",
        "GMC", "nutpie diagonal", "nutpie low_rank", "Gibbs",
    ]  # fmt: skip
    assert not any("error" in each for each in results), done.stdout
    assert all(each["ess_per_s"] > each["ess_per_s_with_compilation"] > 0 for each in results)
    assert all(each["memory_mb"] > each["memory_of_model_mb"] > 0 for each in results)
    assert "over the better nutpie" in done.stdout
