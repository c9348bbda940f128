"""Resumed runs have bit-identical draws."""

import functools

import numpy as np
import pymc as pm
import pytest
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.runs.identity import first_difference
from tests.grids import by_default, slow
from tests.runs.stopped import (
    QUIET,
    assert_same_trees,
    checkpoint_every,
    checkpoints,
    interpreted_runs,
    stopped,
)
from tests.steps.runs import INTERPRETED, assert_same_draws, sample

KWARGS = {"draws": 25, "tune": 20, "chains": 2, "random_seed": 3}
ROWS = np.random.default_rng(1).normal(size=(60, 2))


@pytest.fixture(autouse=True)
def interpreted():
    with interpreted_runs():
        yield


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        x = pm.Data("x", ROWS)
        pm.Normal("a", 3.0, 0.5)
        b = pm.Normal("b", [-2.0, 5.0], 1.0)
        pg.VonMisesFisher("mu", [0.0, 0.0, 1.0], 20.0)
        pm.HalfNormal("s", 1.0)
        pm.Normal("seen", b, 1.0, observed=x)
        pm.Deterministic("c", b[0] ** 2)
    return model


@pytest.fixture(scope="module")
def counts():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("n", 30, p, observed=[[3, 10, 17], [2, 20, 8]])
    return model


def with_nuts(model):
    with model:
        return [pg.gSGNHT(["mu", "b"], compile_kwargs=INTERPRETED), pm.NUTS([model["a"]])]


def plain(step_class, **kwargs):
    return lambda model: step_class(model=model, compile_kwargs=INTERPRETED, **kwargs)


MINIBATCHES = {"minibatch": ["x"], "batch_size": 10}
STEPS = {
    "GMC": plain(pg.GMC),
    "SubgradientHMC": plain(pg.SubgradientHMC),
    "SGGMC": plain(pg.SGGMC, **MINIBATCHES),
    "SGGMC, fixed schedule": plain(pg.SGGMC, step_size=pg.PolynomialDecay(0.01, 10.0, 0.3)),
    "gSGNHT": plain(pg.gSGNHT, **MINIBATCHES),
    "SGLD": plain(pg.SGLD, **MINIBATCHES),
    "SSGNHT": plain(pg.SSGNHT, **MINIBATCHES),
    "random rows": plain(pg.SGGMC, minibatch_order="random", **MINIBATCHES),
    "with NUTS": with_nuts,
}
COUNTS = {"SCIR": plain(pg.SCIR), "SGRLD": plain(pg.SGRLD), "SSGLD": plain(pg.SSGLD)}


@functools.cache
def undisturbed(model, make):
    return sample(model, make(model), **KWARGS)


def check(model, make, path, at, every, monkeypatch):
    expected = undisturbed(model, make)
    with monkeypatch.context() as patch:
        checkpoint_every(patch, every)
        stopped(model, make(model), path, at, every, **KWARGS)
    assert_same_trees(expected, pg.resume(path, model, **QUIET))
    assert_same_trees(expected, pg.open_run(path))


@pytest.mark.parametrize("at", [38, *map(slow, (13, 60, 88))])
@pytest.mark.parametrize("name", by_default(["GMC", "gSGNHT"], of=STEPS))
def test_resumed_draws_are_identical(model, name, at, tmp_path, monkeypatch):
    """Stopped during tuning and sampling of the first chain, and of the second."""
    check(model, STEPS[name], tmp_path / "run", at, 4, monkeypatch)


@pytest.mark.parametrize("name", ["GMC", "SGGMC"])
def test_chains_start_independently_of_earlier_chains(model, name):
    """The state of a step is reset between tuned chains."""
    step = STEPS[name](model)

    def begin():
        step.setup_chain(np.random.default_rng(5), 15, 10)
        return step.sampling_state

    before = begin()
    sample(model, step, tune=15, draws=5)
    assert first_difference(before, begin(), "step") == ""


@pytest.mark.slow
def test_a_step_that_has_sampled_before(model, tmp_path):
    """`NUTS` keeps its adaptation, which a new step must restore."""

    def used():
        step = with_nuts(model)
        sample(model, step, tune=15, draws=5)
        return step

    expected = sample(model, used(), **KWARGS)
    stopped(model, used(), tmp_path / "run", 38, 0.0, **KWARGS)
    assert_same_trees(expected, pg.resume(tmp_path / "run", model, **QUIET))


@pytest.mark.parametrize("at", [60, *map(slow, (13, 38))])
@pytest.mark.parametrize("name", by_default(["SCIR"], of=COUNTS))
def test_resumed_draws_of_proportions_are_identical(counts, name, at, tmp_path, monkeypatch):
    check(counts, COUNTS[name], tmp_path / "run", at, 4, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("at", [20, slow(65)])
def test_at_the_end_of_tuning(model, at, tmp_path, monkeypatch):
    """The checkpoint is from tuning, and PyMC ends tuning afterwards."""
    check(model, STEPS["with NUTS"], tmp_path / "run", at, 0, monkeypatch)


@pytest.mark.slow
def test_blocks_of_rows(model, tmp_path):
    """The position in an iterable is part of the state; the iterable is an argument of resume."""

    def make():
        blocks = [(ROWS[i : i + 20],) for i in range(0, 60, 20)]
        return pg.SGGMC(
            model=model, batches=blocks, total_size=60, compile_kwargs=INTERPRETED, **MINIBATCHES
        )

    expected = sample(model, make(), **KWARGS)
    stopped(model, make(), tmp_path / "run", 60, 0.0, **KWARGS)
    assert_same_trees(expected, pg.resume(tmp_path / "run", model, step=make(), **QUIET))


@pytest.mark.slow
def test_automatically_assigned_nuts(model, tmp_path):
    kwargs = {"nuts_sampler": "pymc", "step": None, **KWARGS}
    expected = sample(model, **kwargs)
    stopped(model, path=tmp_path / "run", at=30, every=0.0, **kwargs)
    again = pg.resume(tmp_path / "run", model, compile_kwargs=INTERPRETED, **QUIET)
    assert_same_trees(expected, again)


@pytest.mark.slow
def test_run_stopped_twice_and_extended(model, tmp_path):
    make = STEPS["SGGMC"]
    expected = sample(model, make(model), **(KWARGS | {"draws": 40}))
    stopped(model, make(model), tmp_path / "run", 15, 0.0, **KWARGS)
    first = pg.resume(tmp_path / "run", model, **QUIET)
    assert first.posterior.sizes["draw"] == KWARGS["draws"]
    again = pg.resume(tmp_path / "run", model, draws=40, **QUIET)
    # Some sample stats depend on the planned length of the run.
    assert_same_draws(expected, again)
    with pytest.raises(ValueError, match="has 40 already"):
        pg.resume(tmp_path / "run", model, draws=30)


@pytest.mark.slow
def test_complete_run_is_read(model, tmp_path):
    expected = sample(model, STEPS["SGGMC"](model), trace=checkpoints(tmp_path / "run"), **KWARGS)
    assert_same_trees(expected, pg.resume(tmp_path / "run", model))
    assert_same_trees(expected, sample(model, STEPS["SGGMC"](model), **KWARGS))


def test_attributes_are_those_of_pymc(model, tmp_path):
    step, path = STEPS["SGGMC"](model), tmp_path / "run"
    in_memory = sample(model, step, **KWARGS).posterior.attrs
    on_disk = sample(model, step, trace=checkpoints(path), **KWARGS).posterior.attrs
    assert set(on_disk) == set(in_memory)
    for name in ("inference_library", "inference_library_version", "tuning_steps"):
        assert on_disk[name] == in_memory[name] == pg.open_run(path).posterior.attrs[name]


def with_local_variables():
    with pm.Model() as model:
        x = pm.Data("x", ROWS[:, 0])
        level = pm.Normal("level")
        each = pm.Normal("each", shape=len(ROWS))
        pm.Normal("seen", each + level, 1.0, observed=x)
    return model, {"local": [each], "local_tune": 2, "local_draws": 2, "local_steps": 2}


def with_sparse_rows():
    with pm.Model() as model:
        x = pg.SparseData("x", sparse.csr_array(np.where(ROWS > 0.0, ROWS, 0.0)))
        w = pm.Normal("w", shape=2)
        pm.Potential("fit", -0.5 * (x @ w - 1.0) ** 2)
    return model, {}


@pytest.mark.slow
@pytest.mark.parametrize("make_model", [with_local_variables, with_sparse_rows])
def test_local_variables_and_sparse_rows(make_model, tmp_path):
    model, arguments = make_model()
    make = plain(pg.SGGMC, **MINIBATCHES, **arguments)
    expected = sample(model, make(model), **KWARGS)
    stopped(model, make(model), tmp_path / "run", 38, 0.0, **KWARGS)
    assert_same_trees(expected, pg.resume(tmp_path / "run", model, **QUIET))
