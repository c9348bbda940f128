"""Geodesic steps as PyMC steps: variables by name, several steps, seeds, state, stats."""

import copy
import ctypes
import inspect
import re
import sys

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.state import equal_dataclass_values

from pymc_geodesic import (
    GMC,
    SGGMC,
    SGLD,
    SSGNHT,
    SubgradientHMC,
    UniformSphere,
    VonMisesFisher,
    gSGNHT,
)
from pymc_geodesic.runtime.gradient_functions import python_function
from tests.grids import by_default, slow
from tests.steps.runs import INTERPRETED, assert_same_draws, run_steps, sample, start

NORTH = np.array([0.0, 0.0, 1.0])
STEPS = [GMC, SGGMC, gSGNHT, SubgradientHMC, SGLD, SSGNHT]
BASES = [GMC, gSGNHT, SGLD]
"""Steps with a Metropolis correction, with a thermostat and with neither."""


def every_step(chosen=STEPS):
    steps = by_default(chosen, of=STEPS)
    return pytest.mark.parametrize("step_class", steps, ids=lambda step: step.__name__)


@pytest.fixture(scope="module")
def model():
    """Independent variables of different shapes and scales, with a known distribution each."""
    with pm.Model() as model:
        pm.Normal("a", 3.0, 0.5)
        pm.Normal("b", [-2.0, 5.0], 0.1)
        VonMisesFisher("mu", NORTH, 20.0)
        pm.HalfNormal("s", 1.0)
        pm.Data("unused", np.zeros(3))
    return model


def make(model, step_class, vars=None, **kwargs):
    with model:
        chosen = None if vars is None else [model[name] for name in vars]
        return step_class(chosen, compile_kwargs=INTERPRETED, **kwargs)


def check_moments(posterior):
    """Check means and standard deviations, with tolerances for a short chain."""
    assert abs(float(posterior["a"].mean()) - 3.0) < 0.4
    assert np.abs(posterior["b"].mean(("chain", "draw")) - [-2.0, 5.0]).max() < 0.06
    assert np.abs(posterior["b"].std(("chain", "draw")) - 0.1).max() < 0.05
    cosine = posterior["mu"].values @ NORTH
    assert abs(cosine.mean() - (1.0 - 1.0 / 20.0)) < 0.04
    np.testing.assert_allclose(np.linalg.norm(posterior["mu"], axis=-1), 1.0, atol=1e-12)
    assert (posterior["s"] > 0.0).all()


@pytest.mark.parametrize(
    ("step_class", "order"),
    [
        (gSGNHT, ["a", "b", "mu", "s"]),
        (GMC, ["mu", "s", "b", "a"]),
        *(slow(step, ["mu", "s", "b", "a"]) for step in STEPS if step is not GMC),
        *(slow(step, ["a", "b", "mu", "s"]) for step in (GMC, SGGMC)),
    ],
)
def test_variables_in_any_order(model, step_class, order):
    idata = sample(model, make(model, step_class, order), draws=300, tune=200)
    check_moments(idata.posterior)


@every_step([SGGMC])
def test_all_variables_by_default(model, step_class):
    step = make(model, step_class)
    assert {v.name for v in step.vars} == {v.name for v in model.continuous_value_vars}


def test_variables_by_name(model):
    with model:
        step = SGGMC(["mu", "a"], compile_kwargs=INTERPRETED)
    assert set(step.product.names) == {"mu", "a"}


@pytest.mark.slow
def test_two_steps_in_one_model(model):
    steps = [make(model, gSGNHT, ["mu", "b"]), make(model, GMC, ["s", "a"])]
    idata = sample(model, steps, draws=400, tune=300)
    check_moments(idata.posterior)
    assert "acceptance_rate" in idata.sample_stats
    assert "thermostat" in idata.sample_stats


@pytest.mark.slow
def test_steps_see_each_others_draws():
    """a | b and b | a by different steps: the correlation is that of the joint distribution."""
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("b", 0.9 * a, np.sqrt(1.0 - 0.81))
    with model:
        steps = [
            GMC([model["a"]], compile_kwargs=INTERPRETED),
            SGGMC([model["b"]], compile_kwargs=INTERPRETED),
        ]
    posterior = sample(model, steps, draws=1000, tune=200).posterior
    correlation = np.corrcoef(posterior["a"].values[0], posterior["b"].values[0])[0, 1]
    assert abs(correlation - 0.9) < 0.06


@every_step(BASES)
def test_points_changed_by_other_steps_are_read(model, step_class):
    step = make(model, step_class, step_size=1e-6)
    point = run_steps(step, start(model, step, tune=2, draws=2), 2)[0][-1]
    moved = {**point, "a": np.array(7.0)}
    (there,), _ = run_steps(step, moved, 1)
    assert there["a"] == pytest.approx(7.0, abs=1e-3)
    np.testing.assert_allclose(there["b"], point["b"], atol=1e-3)


def interpreted_nuts(variable):
    return pm.NUTS([variable], compile_kwargs=INTERPRETED)


@pytest.mark.slow
def test_with_nuts():
    """NUTS samples κ, a geodesic step the mean direction."""
    dist = VonMisesFisher.dist(NORTH, 30.0, size=200)
    x = pm.draw(dist, random_seed=1, mode="FAST_COMPILE")
    with pm.Model() as model:
        mu = VonMisesFisher("mu", NORTH, 0.1)
        kappa = pm.Gamma("kappa", 2.0, 0.1)
        VonMisesFisher("x", mu, kappa, observed=x)
        steps = [SGGMC([mu], compile_kwargs=INTERPRETED), interpreted_nuts(kappa)]
    posterior = sample(model, steps, draws=200, tune=200).posterior
    length = np.linalg.norm(x.mean(axis=0))
    mean = posterior["mu"].mean(("chain", "draw")).values
    assert np.abs(mean - x.mean(axis=0) / length).max() < 0.02
    # on S² the concentration is close to 1 / (1 − length), with an sd of κ / sqrt(n)
    assert abs(float(posterior["kappa"].mean()) * (1.0 - length) - 1.0) < 0.1


def test_with_a_variable_that_has_dims():
    """The length of a dimension is not in the type of the other variable."""
    x = pm.draw(VonMisesFisher.dist(np.eye(3), 30.0), random_seed=1, mode="FAST_COMPILE")
    with pm.Model(coords={"group": range(3)}) as model:
        mu = UniformSphere("mu", shape=(3, 3))
        kappa = pm.Gamma("kappa", 2.0, 0.1, dims="group")
        VonMisesFisher("x", mu, kappa, observed=x)
        steps = [SGGMC([mu], compile_kwargs=INTERPRETED), interpreted_nuts(kappa)]
    assert sample(model, steps, draws=5, tune=5).posterior["kappa"].shape == (1, 5, 3)


@every_step(BASES)
def test_same_seed_same_draws(model, step_class):
    step = make(model, step_class)
    one, two, other = (
        sample(model, step, draws=30, tune=30, random_seed=seed) for seed in (1, 1, 2)
    )
    assert_same_draws(one, two)
    assert not np.array_equal(one.posterior["a"].values, other.posterior["a"].values)


@every_step([GMC, gSGNHT])
def test_one_process_and_two(model, step_class):
    step = make(model, step_class)
    kwargs = {"draws": 30, "tune": 30, "chains": 2}
    alone = sample(model, step, cores=1, **kwargs)
    together = sample(model, step, cores=2, mp_ctx="fork", **kwargs)
    assert_same_draws(alone, together)
    assert not np.array_equal(alone.posterior["a"][0], alone.posterior["a"][1])


@pytest.mark.slow
@every_step()
def test_spawned_processes(model, step_class):
    step = make(model, step_class)
    kwargs = {"draws": 20, "tune": 20, "chains": 2}
    alone = sample(model, step, cores=1, **kwargs)
    assert_same_draws(alone, sample(model, step, cores=2, mp_ctx="spawn", **kwargs))


def pickled(step):
    return cloudpickle.loads(cloudpickle.dumps(step))


@every_step(BASES)
@pytest.mark.parametrize("duplicate", [pickled, copy.copy, copy.deepcopy])
def test_a_copy_continues_as_the_original(model, step_class, duplicate):
    """By cloudpickle, as PyMC sends steps to its processes; no model pickles without it."""
    step = make(model, step_class)
    point = start(model, step, tune=10, draws=20)
    point = run_steps(step, point, 10)[0][-1]
    other = duplicate(step)
    expected, _ = run_steps(step, point, 5)
    again, _ = run_steps(other, point, 5)
    for one, two in zip(expected, again, strict=True):
        for name, value in one.items():
            np.testing.assert_array_equal(two[name], value)


@every_step([*BASES, SSGNHT])
@pytest.mark.parametrize("tuned", [5, 15], ids=["while tuning", "after tuning"])
def test_replay_from_a_saved_state(model, step_class, tuned):
    step = make(model, step_class)
    point = start(model, step, tune=10, draws=20)
    points, _ = run_steps(step, point, min(tuned, 10))
    if tuned > 10:
        step.stop_tuning()
        points, _ = run_steps(step, points[-1], tuned - 10)
    state = step.sampling_state
    expected, expected_stats = run_steps(step, points[-1], 8)
    end = step.sampling_state
    assert not equal_dataclass_values(state, end)

    fresh = make(model, step_class)
    start(model, fresh, tune=10, draws=20, seed=99)
    for restored in (step, fresh):
        restored._n_tune, restored._n_draws = 10, 20
        restored.sampling_state = state
        assert equal_dataclass_values(restored.sampling_state, state)
        again, stats = run_steps(restored, points[-1], 8)
        for one, two in zip(expected, again, strict=True):
            for name, value in one.items():
                np.testing.assert_array_equal(two[name], value)
        for one, two in zip(expected_stats, stats, strict=True):
            assert {k: v for k, v in one.items() if k != "warning"} == {
                k: v for k, v in two.items() if k != "warning"
            }
        assert equal_dataclass_values(restored.sampling_state, end)


def test_state_of_another_model_raises(model):
    with pm.Model() as other:
        pm.Normal("z", shape=4)
    state = make(other, SGGMC).sampling_state
    with pytest.raises(ValueError, match="same values for the frozen fields"):
        make(model, SGGMC).sampling_state = state


STATS = {
    GMC: {
        "step_size": np.float64,
        "acceptance_rate": np.float64,
        "diverging": np.bool_,
        "n_grad": np.int64,
    },
    SGGMC: {
        "step_size": np.float64,
        "temperature": np.float64,
        "diverging": np.bool_,
        "n_grad": np.int64,
    },
}
STATS[gSGNHT] = STATS[SSGNHT] = {**STATS[SGGMC], "thermostat": np.float64}
STATS[SubgradientHMC] = STATS[GMC]
STATS[SGLD] = {"step_size": np.float64, "diverging": np.bool_, "n_grad": np.int64}


@every_step([GMC, SGGMC, gSGNHT, SGLD])
def test_sample_stats(model, step_class):
    stats = sample(model, make(model, step_class), draws=20, tune=30).sample_stats
    for name, kind in STATS[step_class].items():
        assert stats[name].shape == (1, 20), name
        assert np.issubdtype(stats[name].dtype, kind), name
        assert np.isfinite(stats[name].values).all(), name
    declared = make(model, step_class).stats_dtypes_shapes
    assert set(STATS[step_class]) <= set(declared)
    assert all(shape in ([], None) for _, shape in declared.values())
    assert not stats["diverging"].any()


def count_calls(gradient, calls):
    """Make a compiled function append to a list at every call."""
    signature = ctypes.CFUNCTYPE(
        ctypes.c_double,
        ctypes.POINTER(ctypes.c_double),
        ctypes.c_int64,
        ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(ctypes.c_double),
    )
    inner = gradient.function
    call = signature(inner.address)

    def forward(position, argument, context, output):
        calls.append(inner)  # which also keeps the original alive
        return call(position, argument, context, output)

    gradient.function = python_function(forward)
    gradient.callback = gradient.callback._replace(address=gradient.function.address)


@every_step(BASES)
def test_gradient_evaluations_are_counted(model, step_class, monkeypatch):
    composed_in = "pymc_geodesic.steps.langevin_composition"
    module = sys.modules[composed_in if step_class in (SGGMC, gSGNHT) else step_class.__module__]
    estimator_of, calls = module.gradient_estimator, []

    def counted(*args, **kwargs):
        estimator = estimator_of(*args, **kwargs)
        count_calls(estimator.logp_grad, calls)
        return estimator

    monkeypatch.setattr(module, "gradient_estimator", counted)
    step = make(model, step_class, n_steps=7)
    point = start(model, step, tune=3, draws=3)
    for draw in range(6):
        if draw == 3:
            step.stop_tuning()
        before = len(calls)
        point, (stat,) = step.step(point)
        assert stat["n_grad"] == len(calls) - before
    assert stat["n_grad"] == 7


def test_discarded_tuning(model):
    """Only draws after tuning are kept, and they all have the tuned step size."""
    step = make(model, SGGMC)
    idata = sample(model, step, draws=40, tune=60)
    assert idata.posterior.sizes["draw"] == 40
    sizes = idata.sample_stats["step_size"].values
    assert len(np.unique(sizes)) == 1
    kept = sample(model, step, draws=40, tune=60, discard_tuned_samples=False)
    assert kept.warmup_posterior.sizes["draw"] == 60
    assert len(np.unique(kept.warmup_sample_stats["step_size"].values)) > 10
    assert_same_draws(idata, kept)


@every_step([*BASES, SubgradientHMC])
def test_progress_bar(model, step_class):
    columns, stats = step_class._progressbar_config(2)
    assert [column._table_column.header for column in columns] == {
        GMC: ["Step size", "Accept."],
        SubgradientHMC: ["Step size", "Accept."],
        SGLD: ["Step size"],
    }.get(step_class, ["Step size", "Temp."])
    assert all(values == [0.0, 0.0] for values in stats.values())
    (update,) = step_class._make_progressbar_update_functions()
    step = make(model, step_class)
    _, (stat,) = step.step(start(model, step, tune=2, draws=2))
    shown = update(stat)
    assert set(shown) == set(stats)
    fields = type("Task", (), {"fields": shown})
    assert all(column.text_format.format(task=fields) for column in columns)


@every_step([SGGMC])
def test_progress_bar_of_80_columns(model, step_class, capsys, monkeypatch):
    """Step size, and temperature or acceptance rate, are not cut."""
    monkeypatch.setenv("COLUMNS", "80")
    sample(model, make(model, step_class), draws=5, tune=5, progressbar=True, quiet=False)
    shown = capsys.readouterr().out
    second = {GMC: r"Accept\.", SubgradientHMC: r"Accept\.", SGLD: ""}.get(step_class, r"Temp\.")
    assert re.search(rf"Draw +Step size +{second} ", shown)
    number = r"\d+\.\d\d " if second else ""
    assert re.search(rf" \d\.\de[+-]\d\d +{number}", shown)


def test_no_side_effects_on_pymc():
    """Without a geodesic step, PyMC's choice of steps is unchanged."""
    with pm.Model() as model:
        pm.Normal("a")
    assert all(step.__module__.startswith("pymc.") for step in STEP_METHODS)
    with model:
        assert sample(model, None, draws=5, tune=5).sample_stats["acceptance_rate"].size == 5


@every_step()
def test_signature_is_that_of_the_constructor(step_class):
    """For help() and editors, although PyMC's `__new__` accepts any arguments."""
    names = list(inspect.signature(step_class).parameters)
    assert names[0] == "vars"
    assert "step_size" in names
    assert "self" not in names
