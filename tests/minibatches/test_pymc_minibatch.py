"""Models with `pymc.Minibatch`: observed values of all rows, and several tables."""

import copy

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.minibatches.resident_rows import GroupedRows, RandomRows, ShuffledRows
from pymc_geodesic.minibatches.row_inputs import check_observed_minibatches
from tests.densities.test_density import Gradient

N = 30
X, Y = np.random.default_rng(1).normal(size=(N, 2)), np.arange(float(N))


def regression(rows, batch_size):
    """Without a step: PyMC builds the model with any numbers of rows."""
    with pm.Model() as model:
        slopes = pm.Normal("slopes", shape=2)
        data = pm.Data("X", X) if rows == "container" else X
        drawn = pm.Minibatch(data, batch_size=batch_size)
        pm.Normal("y", drawn @ slopes, observed=Y, total_size=N)
    return model


@pytest.mark.parametrize("batch_size", [1, 2, 10, N])
@pytest.mark.parametrize("rows", ["array", "container"])
def test_observed_values_of_all_rows_raise(rows, batch_size):
    named = "'X'" if rows == "container" else "its data"
    message = (
        rf"'y' has all 30 observed values, but pm.Minibatch draws {batch_size} of the 30 rows of "
        rf"{named}. Draw them together, X_rows, y_rows = "
        rf"pm.Minibatch\(X, y, batch_size={batch_size}"
        r"\), and pass observed=y_rows"
    )
    with pytest.raises(ValueError, match=message):
        check_observed_minibatches(regression(rows, batch_size))


def test_steps_raise_before_pytensor():
    with pytest.raises(ValueError, match="'y' has all 30 observed values"):
        pg.SGGMC(model=regression("array", 10))


def test_observed_containers_of_all_rows_raise():
    with pm.Model() as model:
        slopes = pm.Normal("slopes", shape=2)
        pm.Normal("y", pm.Minibatch(X, batch_size=5) @ slopes, observed=pm.Data("all", Y))
    with pytest.raises(ValueError, match="'y' has all 30 observed values"):
        check_observed_minibatches(model)


def test_rows_that_are_drawn_together():
    with pm.Model() as model:
        slopes = pm.Normal("slopes", shape=2)
        X_rows, y_rows = pm.Minibatch(X, Y, batch_size=10)
        pm.Normal("y", X_rows @ slopes, observed=y_rows, total_size=N)
        pm.Normal("other", slopes[0], observed=Y)  # rows of another likelihood
        pm.Normal("mean", pm.Minibatch(X, batch_size=5).sum(), observed=0.0)
    check_observed_minibatches(model)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mean"), observed=Y)
    check_observed_minibatches(model)


AT = {"a": 0.3, "b": -0.4}


def two_tables(n, sizes):
    """Two means, of x and of (u, v), which must stay together."""
    rng = np.random.default_rng(1)
    x = rng.normal(1.0, 1.0, n[0])
    u = rng.normal(size=n[1])
    v = -2.0 * u + rng.normal(size=n[1])
    with pm.Model() as model:
        x_rows = pm.Minibatch(x, batch_size=sizes[0])
        u_rows, v_rows = pm.Minibatch(pm.Data("u", u), pm.Data("v", v), batch_size=sizes[1])
        a, b = pm.Normal("a", 0.0, 10.0), pm.Normal("b", 0.0, 10.0)
        pm.Normal("x", a, 1.0, observed=x_rows, total_size=n[0])
        pm.Normal("slope", b * u_rows, 1.0, observed=v_rows, total_size=n[1])
    exact = np.array(
        [np.sum(x - AT["a"]) - AT["a"] / 100.0, np.sum(u * (v - AT["b"] * u)) - AT["b"] / 100.0]
    )
    return model, exact


def gradients_of(gradient, n_draws, n_steps):
    return np.array(
        [
            [gradient(AT, start)[1][name][0] for name in "ab"]
            for _ in range(n_draws)
            for start in gradient.estimator.next_minibatches(n_steps)
        ]
    )


@pytest.mark.parametrize(
    ("n", "sizes"),
    [((400, 400), (50, 4)), ((400, 400), (4, 50)), ((400, 300), (10, 10)), ((60, 400), (60, 1))],
    ids=["first larger", "first smaller", "different data", "all rows and single rows"],
)
def test_an_epoch_adds_up_to_the_gradient_of_all_rows(n, sizes):
    """Of both tables, whose epochs have different numbers of minibatches."""
    model, exact = two_tables(n, sizes)
    gradient = Gradient(model)
    gradient.estimator.source.reset(2)
    epoch = int(np.lcm(n[0] // sizes[0], n[1] // sizes[1]))
    found = gradients_of(gradient, epoch // 4 or 1, min(epoch, 4))
    np.testing.assert_allclose(found.mean(axis=0), exact, rtol=1e-9)


@pytest.mark.parametrize("order", ["independent", "random"])
def test_random_orders(order):
    model, exact = two_tables((400, 300), (50, 5))
    gradient = Gradient(model, minibatch_order=order)
    gradient.estimator.source.reset(2)
    found = gradients_of(gradient, 400, 4)
    error = found.std(axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0) - exact) < 4.0 * error)
    assert abs(np.corrcoef(found.T)[0, 1]) < 0.1  # tables are drawn apart


def test_the_same_data_drawn_twice():
    """Different rows, and different numbers of rows, each time."""
    values = np.random.default_rng(1).normal(size=200)
    with pm.Model() as model:
        data = pm.Data("data", values)
        for name, size in (("a", 20), ("b", 5)):
            mean = pm.Normal(name, 0.0, 10.0)
            rows = pm.Minibatch(data, batch_size=size)
            pm.Normal(f"{name}_obs", mean, 1.0, observed=rows, total_size=200)
    gradient = Gradient(model)
    gradient.estimator.source.reset(1)
    found = gradients_of(gradient, 10, 4)
    exact = [np.sum(values - AT[name]) - AT[name] / 100.0 for name in "ab"]
    np.testing.assert_allclose(found.mean(axis=0), exact, rtol=1e-9)


def test_data_that_are_exchanged():
    model, _ = two_tables((40, 40), (40, 5))
    gradient = Gradient(model)
    with model:
        pm.set_data({"v": np.zeros(40)})
    gradient.estimator.source.refresh()
    found = gradients_of(gradient, 2, 4)
    u = model["u"].get_value()
    expected = -AT["b"] * (u @ u) - AT["b"] / 100.0
    assert found[:, 1].mean() == pytest.approx(expected, rel=1e-9)


def test_state_continues_and_chains_differ():
    tables = [{"x": np.arange(30.0)}, {"y": np.arange(50.0)}]
    source, restored = (
        GroupedRows([ShuffledRows(tables[0], 7), RandomRows(tables[1], 3)]) for _ in range(2)
    )
    source.reset(4)
    source.next_starts(5)
    state = copy.deepcopy(source.state)
    expected = [(source.next_starts(6), {k: v.copy() for k, v in source.arrays.items()})]
    restored.reset(5)
    restored.next_starts(6)
    other = restored.arrays["x"].copy()
    restored.state = state
    np.testing.assert_array_equal(restored.next_starts(6), expected[0][0])
    for name, array in expected[0][1].items():
        rows = array.reshape(6, 7)[:, : 7 if name == "x" else 3]
        again = restored.arrays[name].reshape(6, 7)[:, : rows.shape[1]]
        np.testing.assert_array_equal(again, rows)
    assert not np.array_equal(other, expected[0][1]["x"])


def test_noise_of_rows_that_are_drawn_apart():
    model, _ = two_tables((40, 40), (10, 5))
    with pytest.raises(ValueError, match=r'"fisher" needs rows that are drawn together.*\'u\''):
        Gradient(model).estimator.compile_noise()
