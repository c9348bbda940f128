"""Models in which group effects replace offsets."""

import logging

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_geodesic as pg
from pymc_geodesic.densities.centered_effects import with_centered_effects

N, GROUPS = 600, 6
RNG = np.random.default_rng(5)
GROUP = RNG.integers(GROUPS, size=N)
ITEM = RNG.integers(4, size=N)
X = RNG.normal(size=N)
Y = 0.5 * X + RNG.normal(size=GROUPS)[GROUP] + RNG.normal(size=N)


def crossed():
    with pm.Model() as model:
        scale, other = pm.HalfNormal("scale"), pm.Gamma("precision", 2.0, 2.0) ** -0.5
        a = (pm.Normal("a", shape=GROUPS) * scale)[GROUP]
        b = other * pm.Normal("b", 0.0, 2.0, shape=4)[ITEM]
        pm.Normal("y", pm.Normal("m") + a + b, pm.HalfNormal("sigma"), observed=Y)
    return model


def slopes():
    with pm.Model(coords={"group": range(GROUPS), "column": ["level", "slope"]}) as model:
        scale = pm.HalfNormal("scale", dims="column")
        z = pm.Normal("z", dims=("group", "column"))
        effects = pm.Deterministic("effects", z * scale, dims=("group", "column"))
        pm.Normal("y", effects[GROUP, 0] + effects[GROUP, 1] * X, 1.0, observed=Y)
    return model


def nested_scale():
    """The scale of one effect has offsets of its own."""
    with pm.Model() as model:
        z = pm.Normal("z", shape=GROUPS)
        noise = pm.math.exp((0.3 * pm.HalfNormal("by_item") * pm.Normal("u", shape=4))[ITEM])
        pm.Normal("y", (pm.HalfNormal("scale") * z)[GROUP], noise, observed=Y)
    return model


def scales_of_groups():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", shape=2)[np.arange(GROUPS) % 2]
        pm.Normal("y", (scale * pm.Normal("z", shape=GROUPS))[GROUP], 1.0, observed=Y)
    return model


def length_of_data():
    with pm.Model() as model:
        x = pm.Data("x", np.ones((N, 2)))
        weights = pm.HalfNormal("weights", shape=x.shape[1])
        z = pm.Normal("z", shape=GROUPS)
        pm.Normal("y", (pm.math.sqrt((weights**2).sum()) * z)[GROUP], 1.0, observed=Y)
    return model


def random_point(model):
    start = model.initial_point(0)
    return {name: value + 0.3 * RNG.normal(size=np.shape(value)) for name, value in start.items()}


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (crossed, "ab"),
        (slopes, "z"),
        (nested_scale, "zu"),
        (scales_of_groups, "z"),
        (length_of_data, "z"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_density_is_that_of_the_model_times_the_jacobian(make, names):
    model = make()
    copy, effects = with_centered_effects(model)
    assert sorted(effects.names) == sorted(names)
    point = random_point(model)
    moved = effects.to_effects(point)
    log_scales = sum(np.sum(np.log(moved[name] / point[name])) for name in names)
    expected = model.compile_logp()(point) - log_scales
    assert copy.compile_logp()(moved) == pytest.approx(expected, rel=1e-10)
    back = effects.to_offsets(moved)
    for name, value in point.items():
        np.testing.assert_allclose(back[name], value, rtol=1e-12)


def few_rows():
    group = np.arange(N) // 30
    with pm.Model() as model:
        z = pm.Normal("z", shape=N // 30)
        pm.Normal("y", (pm.HalfNormal("scale") * z)[group], 1.0, observed=Y)
    return model


def centered():
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, pm.HalfNormal("scale"), shape=GROUPS)
        pm.Normal("y", a[GROUP], 1.0, observed=Y)
    return model


def loading():
    """A factor that changes its sign is not a scale."""
    with pm.Model() as model:
        z = pm.Normal("z", shape=GROUPS)
        pm.Normal("y", (pm.Normal("loading") * z)[GROUP], 1.0, observed=Y)
    return model


def other_use():
    with pm.Model() as model:
        z = pm.Normal("z", shape=GROUPS)
        pm.Normal("y", (pm.HalfNormal("scale") * z)[GROUP] + z[GROUP], 1.0, observed=Y)
    return model


@pytest.mark.parametrize("make", [few_rows, centered, loading, other_use])
def test_other_models_are_unchanged(make):
    model = make()
    assert with_centered_effects(model) == (model, None)


def test_correlated_effects_have_a_message(caplog):
    with pm.Model() as model, caplog.at_level(logging.INFO, "pymc"):
        chol = pm.HalfNormal("scale") * np.array([[1.0, 0.0], [0.6, 0.8]])
        effects = pm.Normal("z", shape=(GROUPS, 2)) @ chol.T
        pm.Normal("y", effects[GROUP, 0] + effects[GROUP, 1] * X, 1.0, observed=Y)
        assert with_centered_effects(model) == (model, None)
    assert "'z' stay non-centered with minibatches. Write them as pm.MvNormal" in caplog.text


def test_number_of_rows_of_a_stream():
    model = few_rows()
    assert with_centered_effects(model, n_rows=50 * N)[1].names == ["z"]


@pytest.mark.slow
def test_draws_are_those_of_the_offsets():
    """A step that centers the effects returns offsets, whose products with the scale are right."""
    model = crossed()
    with model:
        idata = pm.sample(
            300, tune=300, chains=1, random_seed=2, progressbar=False,
            step=pg.SGGMC(batch_size=200), compute_convergence_checks=False,
        )  # fmt: skip
    draws = idata.posterior
    effect = (draws["m"] + draws["a"] * draws["scale"]).mean().item()
    assert effect + (draws["b"] * draws["precision"] ** -0.5).mean().item() == pytest.approx(
        Y.mean(), abs=0.2
    )
    assert draws["a"].std().item() == pytest.approx(1.0, abs=0.4)


def absolute_value():
    """A scale that is zero at the initial point."""
    with pm.Model() as model:
        z = pm.Normal("z", shape=GROUPS)
        pm.Normal("y", (abs(pm.Normal("t")) * z)[GROUP], 1.0, observed=Y)
    return model


def test_scale_that_cannot_be_divided_by():
    model = absolute_value()
    assert with_centered_effects(model) == (model, None)


@pytest.mark.slow
def test_only_minibatches_are_centered():
    assert pg.SGGMC(batch_size=100, model=slopes()).centered == ["z"]
    assert pg.SGGMC(model=slopes()).centered == []
    assert pg.SGGMC(batch_size=100, metric=None, model=slopes()).centered == []


@pytest.mark.parametrize(("n_rows", "centered"), [(50 * GROUPS, ["z"]), (50 * GROUPS - 1, [])])
def test_number_of_rows_of_minibatches_drawn_by_pymc(n_rows, centered):
    """The rows per group are those of the data, and not those of a minibatch."""
    with pm.Model() as model:
        group, y = pm.Minibatch(GROUP[:n_rows], Y[:n_rows], batch_size=20)
        z = pm.Normal("z", shape=GROUPS)
        effects = (pm.HalfNormal("scale") * z)[group]
        pm.Normal("y", effects, 1.0, observed=y, total_size=n_rows)
    step = pg.SGGMC(model=model, compile_kwargs={"mode": "FAST_COMPILE"})
    assert step.centered == centered


@pytest.mark.parametrize("is_drawn", [True, False])
def test_rows_of_other_tables_do_not_count(is_drawn):
    """The rows per group are those of the table whose rows have the effects."""
    n_rows, n_other = 10 * GROUPS, 100 * GROUPS
    with pm.Model() as model:
        x, other = pm.Minibatch(X[:n_other], Y[:n_other], batch_size=20)
        group, y = GROUP[:n_rows], Y[:n_rows]
        if is_drawn:
            group, y = pm.Minibatch(group, y, batch_size=10)
        z = pm.Normal("z", shape=GROUPS)
        pm.Normal("other", pm.Normal("slope") * x, 1.0, observed=other, total_size=n_other)
        effects = (pm.HalfNormal("scale") * z)[group]
        pm.Normal("y", effects, 1.0, observed=y, total_size=n_rows)
    assert pg.SGGMC(model=model, compile_kwargs={"mode": "FAST_COMPILE"}).centered == []


@pytest.mark.slow
def test_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        model = crossed()
        copy, effects = with_centered_effects(model)
        point = {k: v.astype("float32") for k, v in random_point(model).items()}
        assert copy.compile_logp()(effects.to_effects(point)).dtype == "float32"
