"""Sampling with shards: posterior of all rows, any number of workers, lost workers."""

import functools
import sys
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_geodesic as pg
from pymc_geodesic.adaptation import gradient_noise
from pymc_geodesic.distributed.shards import set_rows, step_spec
from pymc_geodesic.distributed.workers import LostWorkerError
from tests.distributed.inline import InlineClient
from tests.distributed.problems import SIZES, shards_of, sorted_regression
from tests.grids import slow

INTERPRETED = {"mode": "FAST_COMPILE"}
QUIET = {"progressbar": False, "compute_convergence_checks": False}


KEPT = {}
"""Compiled shards, shared by tests that do not depend on compilation."""


def step_of(kind=pg.SGGMC, **arguments):
    arguments = {"batch_size": 20, "minibatch": ["x", "y"]} | arguments
    return functools.partial(kind, **arguments, compile_kwargs=INTERPRETED)


def drawn(client, step=None, **arguments):
    model, shards, *_ = sorted_regression()
    arguments = {"draws": 30, "tune": 60, "chains": 2, "random_seed": 5} | arguments
    with pytest.MonkeyPatch.context() as patch:
        few_pairs = replace(gradient_noise.SETTINGS, max_pairs=24)  # irrelevant for these tests
        patch.setattr(gradient_noise, "SETTINGS", few_pairs)
        return pg.distributed.sample(
            model, step or step_of(), client, shards=shards, **arguments, **QUIET
        )


@pytest.fixture(scope="module")
def undisturbed():
    return drawn(InlineClient(kept=KEPT))


def errors(idata, mean, covariance):
    """Errors of means in posterior sds, and ratios of sds."""
    beta = idata.posterior["beta"]
    sd = np.sqrt(np.diag(covariance))
    return (beta.mean(("chain", "draw")) - mean) / sd, beta.std(("chain", "draw")) / sd


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pg.SGGMC, slow(pg.SGLD)])
def test_posterior_of_heterogeneous_shards_is_that_of_all_rows(kind):
    model, shards, mean, covariance = sorted_regression()
    step = functools.partial(kind, batch_size=20, minibatch=["x", "y"])
    idata = pg.distributed.sample(
        model, step, InlineClient(2), shards=shards, draws=1500, tune=500, random_seed=2, **QUIET
    )
    of_mean, of_sd = errors(idata, mean, covariance)
    assert np.abs(of_mean).max() < 0.1
    assert np.abs(of_sd - 1).max() < 0.05
    assert idata["shards"]["shift"].max() < 1e-6


@pytest.mark.slow
def test_heterogeneous_shards_without_conducive_gradients_warn(caplog):
    """The draws are biased, and a warning is issued."""
    *_, mean, covariance = sorted_regression()
    step = step_of(pg.SGLD, step_size=1e-4)
    idata = drawn(InlineClient(), step, draws=300, conducive=False)
    of_mean, of_sd = errors(idata, mean, covariance)
    assert np.abs(of_mean).max() > 0.5 or np.abs(of_sd - 1).max() > 0.5
    assert "The shards are too heterogeneous" in caplog.text
    assert idata["shards"]["shift"].max() > 5


@pytest.mark.slow
def test_draws_are_the_same_on_any_number_of_workers(undisturbed):
    other = drawn(InlineClient(3, kept=KEPT))
    np.testing.assert_array_equal(other.posterior["beta"], undisturbed.posterior["beta"])
    assert not np.array_equal(
        drawn(InlineClient(kept=KEPT), random_seed=6).posterior["beta"],
        undisturbed.posterior["beta"],
    )


@pytest.mark.parametrize("method", [slow("expand"), slow("configure"), "visit"])
def test_lost_workers_do_not_change_draws(undisturbed, method, caplog):
    """Their shards are loaded on other workers, and chains continue from their last states."""
    client = InlineClient(
        2, lose={("inline://0", method): 2 if method == "visit" else 1}, kept=KEPT
    )
    idata = drawn(client)
    assert client.workers == ["inline://1"]
    assert idata["shards"]["reloads"].sum() >= 1
    assert "lost its worker" in caplog.text
    np.testing.assert_array_equal(idata.posterior["beta"], undisturbed.posterior["beta"])


def test_repeatedly_lost_workers_raise():
    class Cursed(InlineClient):
        def take(self, address, method):
            if method == "visit":
                self.workers[:] = [f"inline://{len(self.calls)}"]
            super().take(address, method)

    with pytest.raises(LostWorkerError, match=r"shard . lost its worker 5 times in a row in visit"):
        drawn(Cursed(kept=KEPT))


def test_result_is_like_that_of_pymc(undisturbed):
    posterior, stats = undisturbed.posterior, undisturbed.sample_stats
    assert dict(posterior.sizes) == {"chain": 2, "draw": 30, "beta_dim_0": 2}
    for name in ("step_size", "temperature", "diverging", "n_grad", "phase", "shard"):
        assert stats[name].shape == (2, 30)
    assert (stats["phase"] == "sample").all()
    # each shard as often as any other, and the chains in different ones
    assert (np.bincount(stats["shard"].values.ravel()) == 20).all()
    assert (stats["shard"][0] != stats["shard"][1]).all()
    assert undisturbed["shards"]["n_rows"].values.tolist() == [300, 500, 450]
    assert 0 < undisturbed["shards"].attrs["bytes_per_draw"] < 20_000


def test_warmup_draws_can_be_kept():
    idata = drawn(InlineClient(kept=KEPT), discard_tuned_samples=False)
    assert idata.warmup_posterior["beta"].shape == (2, 60, 2)


def test_variables_that_depend_on_rows_are_omitted():
    with pm.Model(coords={"row": range(2)}) as model:
        rows = pm.Data("rows", np.zeros(2), dims="row")
        mu = pm.Normal("mu")
        pm.Deterministic("twice", 2 * mu)
        pm.Deterministic("residual", rows - mu, dims="row")
        pm.Normal("y", mu, observed=rows, dims="row")
    step = step_of(pg.SGLD, minibatch="rows", step_size=1e-3)
    shards = [{"rows": np.ones(40)}, {"rows": np.zeros(40)}]
    idata = pg.distributed.sample(
        model, step, InlineClient(), shards=shards, draws=8, tune=0, chains=1, **QUIET
    )
    assert set(idata.posterior.data_vars) == {"mu", "twice"}
    np.testing.assert_allclose(idata.posterior["twice"], 2 * idata.posterior["mu"])


def sorted_counts():
    """Labels and counts with exposures, all sorted: model, shards and exact posteriors."""
    rng = np.random.default_rng(3)
    n = sum(SIZES)
    labels, times = np.sort(rng.choice(3, size=n, p=[0.24, 0.4, 0.36])), rng.gamma(2.0, size=n)
    numbers = np.sort(rng.poisson(2.0 * times))
    with pm.Model() as model:
        rows = [pm.Data(k, v[:3]) for k, v in (("z", labels), ("t", times), ("y", numbers))]
        w, rate = pm.Dirichlet("w", np.full(3, 0.5)), pm.Gamma("rate", 2.0, 1.0)
        pm.Categorical("label", w, observed=rows[0])
        pm.Poisson("number", rate * rows[1], observed=rows[2])
    exact = {
        "w": stats.dirichlet(0.5 + np.bincount(labels)),
        "rate": stats.gamma(2.0 + numbers.sum(), scale=1.0 / (1.0 + times.sum())),
    }
    return model, shards_of(z=labels, t=times, y=numbers), exact


@pytest.mark.slow
def test_counts_of_heterogeneous_shards_have_the_posterior_of_all_rows():
    """For labels and Poisson counts the surrogates are exact."""
    model, shards, exact = sorted_counts()
    step = step_of(pg.SCIR, minibatch=["z", "t", "y"], n_steps=1, control_variates=True)
    arguments = {"shards": shards, "chains": 2, "tune": 60, "draws": 1000, "random_seed": 2}
    with pytest.raises(ValueError, match=r"leave conducive= out, or control_variates="):
        pg.distributed.sample(model, step, InlineClient(), **arguments, **QUIET, conducive=False)
    idata = pg.distributed.sample(model, step, InlineClient(2), **arguments, **QUIET)
    for name, posterior in exact.items():
        draws, sd = idata.posterior[name], np.sqrt(posterior.var())
        assert np.abs((draws.mean(("chain", "draw")) - posterior.mean()) / sd).max() < 0.1
        assert np.abs(draws.std(("chain", "draw")) / sd - 1).max() < 0.05
    assert idata["shards"]["shift"].max() < 1e-6


@pytest.mark.slow
def test_proportions_without_surrogates():
    counts = np.random.default_rng(1).multinomial(1, [0.5, 0.3, 0.2], size=(2, 200))
    with pm.Model() as model:
        rows = pm.Data("rows", counts[0, :20])
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("y", 1, p, observed=rows)
    shards = [{"rows": part} for part in counts]
    step = step_of(pg.SCIR, minibatch="rows", step_size=0.01)
    with pytest.raises(ValueError, match="pass control_variates=True to SCIR, or conducive=False"):
        pg.distributed.sample(model, step, InlineClient(), shards=shards, **QUIET)
    idata = pg.distributed.sample(
        model, step, InlineClient(), shards=shards, conducive=False, draws=400, tune=100,
        chains=2, random_seed=1, **QUIET,
    )  # fmt: skip
    exact = (1 + counts.sum(axis=(0, 1))) / (3 + 400)
    np.testing.assert_allclose(idata.posterior["p"].mean(("chain", "draw")), exact, atol=0.02)


def test_missing_dask_raises(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'pymc_geodesic\[distributed\]'"):
        drawn(None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shards": []}, "shards= is empty"),
        ({"shards": {"x": np.ones(3)}}, "a list with one entry for each shard"),
        ({"shards": [3]}, "shard 0 is int"),
        ({"shards": [{"z": np.ones(30)}]}, "a shard names 'z'"),
        ({"shards": [{"x": np.ones((30, 5)), "y": np.ones(30)}]}, r"shape \(5,\) in a shard"),
        ({"shards": [{"x": np.ones((30, 2)), "y": np.ones(29)}]}, "same positive number of rows"),
        # as many rows as the model has, which would stay there
        ({"shards": [{"x": np.ones((3, 2))}]}, r"no rows of \['y'\], which minibatch= names"),
        ({"step": pm.NUTS}, "not a step method of pymc_geodesic"),
        ({"step": functools.partial(pg.SGGMC)}, r"needs minibatch=\[...\]"),
        ({"probabilities": [1.0]}, "a positive number for each of the 3 shards"),
        ({"draws": 0}, "draws"),
        ({"visit": -1}, "visit"),
    ],
)
def test_invalid_arguments_raise(change, message):
    model, shards, *_ = sorted_regression()
    arguments = {"step": step_of(), "shards": shards} | change
    step = arguments.pop("step")
    with pytest.raises(ValueError, match=message):
        pg.distributed.sample(model, step, InlineClient(), **arguments, **QUIET)


def test_variables_left_to_other_steps_raise():
    model, shards, *_ = sorted_regression()
    with model:
        pm.Normal("other")
    with pytest.raises(ValueError, match=r"\['other'\] is left to another"):
        pg.distributed.sample(model, step_of(vars=["beta"]), InlineClient(), shards=shards, **QUIET)


def test_step_method_equals_its_class_with_arguments(undisturbed):
    """Constructed in the model, as for `pymc.sample`, with the rows of the model."""
    model = sorted_regression()[0]
    with model:
        step = step_of(batch_size=3)()
    spec = step_spec(step, model)
    assert spec.step_class is pg.SGGMC
    assert spec.arguments["batch_size"] == 3
    assert spec.row_names == ["x", "y"]


def test_total_size_in_the_model_raises():
    """It would apply to every shard."""
    _, shards, *_ = sorted_regression()
    with pm.Model() as model:
        x, y = pm.Data("x", shards[0]["x"]), pm.Data("y", shards[0]["y"])
        beta = pm.Normal("beta", shape=2)
        pm.Normal("outcome", x @ beta, observed=y, total_size=1250)
    with pytest.raises(ValueError, match=r"'outcome' has a total_size=, .* leave total_size= out"):
        pg.distributed.sample(model, step_of(), InlineClient(), shards=shards, **QUIET)


def test_rows_that_are_not_named_raise():
    """They would not be part of minibatches."""
    with pm.Model() as model:
        x, y = (pm.Data(name, np.zeros(3)) for name in "xy")
        pm.Normal("outcome", x * pm.Normal("beta"), observed=y)
    shards = [{"x": np.ones(30), "y": np.ones(30)}]
    with pytest.raises(ValueError, match=r"rows of \['y'\], which minibatch= does not name"):
        pg.distributed.sample(model, step_of(minibatch="x"), InlineClient(), shards=shards, **QUIET)


@pytest.mark.parametrize("rows", [np.full(30, 0.5), np.full(30, 2**40), np.full(30, np.nan)])
def test_values_that_a_container_cannot_represent_raise(rows):
    """Integer-valued floats are converted."""
    with pm.Model() as model:
        counts = pm.Data("counts", np.zeros(3, dtype="int32"))
        pm.Poisson("seen", pm.HalfNormal("rate"), observed=counts)
    set_rows(model, {"counts": np.full(30, 3.0)})
    assert (model["counts"].get_value() == 3).all()
    with pytest.raises(ValueError, match=f"{rows.dtype} rows of 'counts', .* cannot hold as int32"):
        set_rows(model, {"counts": rows})
