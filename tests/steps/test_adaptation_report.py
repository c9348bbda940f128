"""Reports of the adaptation of a step, with reasons and remedies: `step.adaptation` and logs."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.adaptation import eligibility


def effects(batch_size: int, sampler: type = pg.SGGMC, n: int = 10_005, **kwargs):
    """Step for effects of 12,000 rows."""
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        group = pm.Data("group", np.arange(12_000) % n)
        effect = pm.Normal("effect", shape=n)
        observed = pm.Data("observed", rng.normal(size=12_000))
        pm.Normal("y", effect[group], 1.0, observed=observed)
    rows = {"minibatch": ["group", "observed"], "batch_size": batch_size}
    return sampler(model=model, compile_kwargs={"mode": "FAST_COMPILE"}, **rows, **kwargs)


def warnings_of(caplog) -> list[str]:
    """Warnings other than the recommendation of all rows, which are cheaper here."""
    messages = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    all_rows = "Use GMC, which evaluates all rows", "Use GMC, for which sufficient statistics"
    return [each for each in messages if not any(text in each for text in all_rows)]


@pytest.fixture
def little_memory(monkeypatch):
    """Limits of 20,000 numbers and 10,004 coordinates in memory."""
    limits = replace(eligibility.SETTINGS, max_values=20_000, max_coordinates=10_004)
    monkeypatch.setattr(eligibility, "SETTINGS", limits)


@pytest.mark.parametrize(("n", "batch_size"), [(10_005, 1_000), (22_000, 500)])
def test_many_coordinates_adapt(n, batch_size, caplog):
    step = effects(batch_size, n=n)
    assert warnings_of(caplog) == []
    assert step.adaptation.whitens
    expected = "adapts metric='auto', control_variates='auto', step size"
    assert repr(step.adaptation).startswith(expected)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("sampler", [pg.SGGMC, pg.SGLD])
def test_adaptation_that_is_off_is_reported_with_the_remedy(sampler, caplog):
    step = effects(1_001, sampler, n=100)
    (message,) = warnings_of(caplog)
    assert message.startswith(f"{sampler.__name__}[effect] adapts ")
    for text in (message, repr(step.adaptation)):
        assert "without a metric and without control variates" in text
        assert "10010 rows (10 minibatches of batch_size=1001) of 2 values exceed 20000" in text
        assert "Use batch_size <= 1000" in text
    assert not step.adaptation.whitens
    caplog.clear()
    step = effects(1_000, sampler, n=100)
    assert warnings_of(caplog) == []
    assert step.adaptation.whitens


@pytest.mark.usefixtures("little_memory")
def test_too_many_coordinates_are_reported(caplog):
    step = effects(500)
    (message,) = warnings_of(caplog)
    for text in (message, repr(step.adaptation)):
        assert "10005 coordinates (limit: 10004)" in text
        assert "Use GMC" in text
    remedy = eligibility.minibatch_remedy(step.adaptation.ineligibility)
    assert "GMC" in remedy
    assert "larger minibatches" not in remedy


def test_fixed_parameters_are_not_warned_about(caplog):
    step = effects(1_000, step_size=0.01, friction=1.0)
    assert warnings_of(caplog) == []
    assert repr(step.adaptation) == "adapts nothing: step size and friction are user-specified."
    step = effects(1_000, step_size=0.01)
    assert warnings_of(caplog) == []
    assert "adapts friction in the coordinates of the model" in repr(step.adaptation)
    assert "user-specified" in repr(step.adaptation)


@pytest.mark.usefixtures("little_memory")
def test_warnings_recommend_the_batch_size_that_adapts():
    """For a chain that is too short, and one whose temperature is above 1."""
    step = effects(1_001, n=100)
    step.setup_chain(np.random.default_rng(1), 1, 2_000)
    rng, x = np.random.default_rng(2), np.zeros(100)
    temperature, size = step.monitors
    stats = {"temperature": 50.0, "n_steps": 10, "step_size": 1e-4, "friction": 1.0}
    names = [f"effect[{i}]" for i in range(100)]
    for _ in range(2_000):
        x = 0.9999 * x + 0.01 * rng.normal()
        temperature.observe(x, stats)
        size.observe(x, stats)
    for monitor, text in ((temperature, "kinetic temperature"), (size, "effective")):
        diagnosis = monitor.diagnosis(names)
        message = diagnosis.message(
            "SGGMC", eligibility.minibatch_remedy(step.adaptation.ineligibility)
        )
        assert text in message
        assert "batch_size <= 1000" in message
        assert "larger minibatches" not in message


def regression() -> pm.Model:
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        slope = pm.Normal("slope", shape=2)
        pm.Normal("y", rng.normal(size=(1000, 2)) @ slope, 1.0, observed=rng.normal(size=1000))
    return model


def with_sphere() -> pm.Model:
    model = regression()
    with model:
        pg.UniformSphere("direction", shape=3)
    return model


def groups() -> pm.Model:
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, pm.HalfNormal("sd"), shape=20)
        pm.Normal("y", level[np.arange(200) % 20], 1.0, observed=rng.normal(size=200))
    return model


SPARSE = "metric='sparse' with partial centering"
REPORTS = [
    (pg.GMC, {}, "adapts metric='auto', step size and length of trajectories."),
    (
        pg.GMC,
        {"n_steps": 5},
        "adapts metric='auto' and step size; n_steps=5 is user-specified.",
    ),
    (
        pg.GMC,
        {"metric": np.eye(2), "n_steps": 5},
        "adapts step size; metric= and n_steps=5 are user-specified.",
    ),
    (pg.SGGMC, {}, "adapts metric='auto', step size and n_steps."),
    (
        pg.SGGMC,
        {"batch_size": 2, "n_steps": 7},
        "adapts metric='auto', control_variates='auto', step size and friction; n_steps=7 is "
        "user-specified.",
    ),
    (
        pg.SGGMC,
        {"batch_size": 2, "control_variates": 1},
        "adapts metric='auto', step size, friction and n_steps; control_variates=1 is "
        "user-specified.",
    ),
    (
        pg.SGLD,
        {"batch_size": 2},
        "adapts metric='auto', control_variates='auto', step size and n_steps.",
    ),
]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("sampler", "arguments", "report"), REPORTS)
def test_report_lists_what_is_adapted(sampler, arguments, report):
    adaptation = sampler(model=regression(), **arguments).adaptation
    assert repr(adaptation).startswith(report)


@pytest.mark.usefixtures("interpreted")
def test_report_of_scales_and_sparse_metrics():
    step = pg.GMC(model=with_sphere(), metric=np.ones(2))
    expected = "scale of 'direction', step size and length of trajectories; metric= is user-specif"
    assert repr(step.adaptation) == f"adapts {expected}ied."
    step = pg.GMC(model=groups(), n_steps=5)
    assert repr(step.adaptation) == f"adapts {SPARSE} and step size; n_steps=5 is user-specified."
    step = pg.GMC(model=groups())
    assert repr(step.adaptation) == f"adapts {SPARSE}, step size and length of trajectories."


def drawn_tables() -> tuple[pm.Model, dict]:
    with pm.Model() as model:
        mean = pm.Normal("mean")
        for name in "uv":
            rows = pm.Minibatch(np.linspace(-1.0, 1.0, 40), batch_size=4)
            pm.Normal(name, mean, 1.0, observed=rows, total_size=40)
    return model, {}


def sparse_blocks() -> tuple[pm.Model, dict]:
    X, y = sparse.eye_array(40, 3, format="csr"), np.zeros(40)
    with pm.Model() as model:
        rows, observed = pg.SparseData("X", X[:1]), pm.Data("rows", y[:1])
        pm.Normal("y", rows @ pm.Normal("w", shape=3), 1.0, observed=observed)
    arguments = {"minibatch": ["X", "rows"], "batches": [(X, y)], "batch_size": 4}
    return model, arguments | {"total_size": 40}


def generator() -> tuple[pm.Model, dict]:
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mean"), 1.0, observed=pm.Data("rows", np.zeros(1)))
    blocks = (np.zeros(40) for _ in range(3))
    return model, {"minibatch": "rows", "batches": blocks, "batch_size": 4, "total_size": 120}


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (drawn_tables, "the rows come from several pm.Minibatch that are drawn independently."),
        (sparse_blocks, "the blocks of batches= contain sparse matrices."),
        (
            generator,
            "the rows cannot be read more than once. Use batches= that can be iterated over "
            "repeatedly, such as a list or a DataLoader.",
        ),
    ],
)
def test_reason_without_a_gradient_over_all_rows(make, reason):
    model, arguments = make()
    step = pg.SGGMC(model=model, **arguments)
    assert repr(step.adaptation).endswith(f"without control variates: {reason}")


@pytest.mark.parametrize("sampler", [pg.GMC, pg.SGGMC])
def test_report_of_what_the_warm_up_chose(sampler):
    with pm.Model():
        pm.Normal("x", shape=2)
        step = sampler()
        before = repr(step.adaptation)
        pm.sample(1, tune=1_000, step=step, chains=1, progressbar=False, random_seed=1)
    assert "chose" not in before
    after = repr(step.adaptation)
    assert after.startswith(f"{before} The last warm-up chose step size ")
    assert after.endswith("and the split Hamiltonian.")


def test_data_changed_since_the_warm_up(caplog):
    """A warning for the data that changed, in each chain of each run."""
    with pm.Model() as model:
        x, y = pm.Data("x", np.ones(50)), pm.Data("y", np.zeros(50))
        b = pm.Normal("b")
        pm.Normal("rows", b * x, observed=y)
        step = pg.GMC()
        arguments = {"step": step, "cores": 1, "progressbar": False, "random_seed": 1}
        tuned = pm.sample(5, tune=100, chains=1, **arguments)
        arguments |= {"tune": 0, "initvals": [{"b": tuned.posterior["b"].values[0, -1]}] * 2}
        messages = []
        for value in (None, 0.1, None):
            if value is not None:
                pm.set_data({"y": np.full(50, value)}, model=model)
            caplog.clear()
            pm.sample(5, chains=2, **arguments)
            found = [each.getMessage() for each in caplog.records]
            messages.append([each for each in found if "tune=0 keeps" in each])
    assert [len(each) for each in messages] == [0, 2, 2]
    assert "GMC has tuned with other data: 'y' changed" in messages[1][0]
