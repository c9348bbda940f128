"""Gradients over all rows, control variates and coordinates, against the full gradient."""

import inspect

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numba import njit

import pymc_geodesic as pg
from pymc_geodesic.gradients import control_variate_gradients
from pymc_geodesic.gradients.metric import LowRank, Metric
from tests.gradients.rows_of_models import (
    BY_DEFAULT,
    CASE,
    CASE_INTERPRETED,
    CASES,
    INTERPRETED,
    WIDTH,
    Setup,
    error,
    full_model,
    model_of,
    rows_of,
    tolerance,
    values,
)
from tests.grids import by_default


@pytest.fixture(scope="module", params=by_default(BY_DEFAULT, of=CASES), ids=str)
def setup(request):
    return Setup(CASES[request.param])


@pytest.fixture(scope="module")
def plain():
    return Setup(CASE)


def test_total_is_the_full_gradient(setup):
    for x in (setup.here, setup.there):
        found = setup.gradient.gradient_of_all_rows(x)
        assert error(found, setup.full(x)[:-1]) < tolerance(setup)


def test_value_of_all_rows_changes_as_the_log_density(setup):
    arrays, n_rows = next(iter(setup.source.all_rows()))
    setup.gradient.set_sample(arrays, n_rows, 1.0)
    size = setup.here.size + 1
    found = [values(setup.gradient._model_exact, x, size)[-1] for x in (setup.here, setup.there)]
    expected = [setup.full(x)[-1] for x in (setup.here, setup.there)]
    assert np.diff(found) == pytest.approx(np.diff(expected), rel=tolerance(setup))


def test_estimates_are_exact_at_the_center(setup):
    setup.center(setup.here)
    for estimate in setup.estimates(setup.here):
        assert error(estimate, setup.full(setup.here)[:-1]) < tolerance(setup)


def test_mean_over_all_minibatches_is_the_full_gradient(setup):
    if setup.case.order == "random":
        pytest.skip("rows with replacement have more minibatches than can be listed")
    setup.center(setup.here)
    estimates = setup.estimates(setup.there)
    assert error(estimates.mean(axis=0), setup.full(setup.there)[:-1]) < tolerance(setup)
    assert estimates.std(axis=0).max() > 1e-3
    setup.gradient.remove_control_variates()
    plain = setup.estimates(setup.there)
    assert error(plain.mean(axis=0), setup.full(setup.there)[:-1]) < tolerance(setup)


def test_sample_represents_all_rows(plain):
    n = 24
    arrays, _ = plain.source.example_rows(n)
    weight = plain.case.n_rows / n
    plain.gradient.set_sample(arrays, n, weight)
    found = plain.gradient.exact_gradient(plain.here)
    case = plain.case._replace(n_rows=n, total_size=plain.case.n_rows)
    reference = Setup.__new__(Setup)
    reference.case, reference.step = case, plain.step
    reference.take_full(arrays["x"], arrays["t"])
    assert error(found, reference.full(plain.here)[:-1]) < 1e-10


def test_strata_of_a_sample_have_their_own_weights(plain):
    arrays, _ = plain.source.example_rows(30)
    counts, weights = np.array([7, 0, 23]), np.array([1.0, 5.0, 4.2])
    parts = []
    for part in (slice(0, 7), slice(7, 30)):
        rows = {name: np.ascontiguousarray(array[part]) for name, array in arrays.items()}
        plain.gradient.set_sample(rows, part.stop - part.start, 1.0)
        parts.append(plain.gradient.exact_gradient(plain.here))
        plain.gradient.set_sample(rows, part.stop - part.start, 2.0)
        parts.append(plain.gradient.exact_gradient(plain.here) - parts[-1])  # without the prior
    prior = parts[0] - parts[1]
    plain.gradient.set_sample(arrays, counts, weights)
    found = plain.gradient.exact_gradient(plain.here)
    assert error(found, prior + 1.0 * parts[1] + 4.2 * parts[3]) < 1e-10


@pytest.mark.parametrize("kind", ["dense", "diagonal", "low rank"])
def test_coordinates_of_a_metric(plain, kind):
    rng = np.random.default_rng(4)
    d = plain.gradient.n_euclidean
    factor = whole = rng.normal(size=(d, d))
    if kind != "dense":
        factor, whole = np.exp(rng.normal(size=d)), None
        if kind == "low rank":
            directions, _ = np.linalg.qr(rng.normal(size=(d, 2)))
            factor = LowRank(factor, directions, np.array([0.2, 7.0]))
            whole = factor.dense()
        else:
            whole = np.diag(factor)
    lengths = np.array([0.3])
    plain.gradient.set_metric(Metric(rng.normal(size=d), factor, lengths))
    plain.center(plain.here)
    z = plain.gradient.whiten(plain.there)
    np.testing.assert_allclose(plain.gradient.to_position(z), plain.there, atol=1e-12)
    expected = plain.full(plain.there)[:-1]
    slices = list(plain.step.product.slices.values())[2:]
    assert slices[0].start == d
    for length, part in zip(lengths, slices, strict=True):
        expected[part] *= length
    expected[:d] = whole.T @ expected[:d]
    assert error(plain.estimates(z).mean(axis=0), expected) < 1e-10
    # against differences of the log-density along whitened coordinates
    arrays, n_rows = next(iter(plain.source.all_rows()))
    plain.gradient.set_sample(arrays, n_rows, 1.0)
    for i in range(d):
        step = 1e-6 * np.eye(z.size)[i]
        up, down = (values(plain.gradient.exact, z + s * step, z.size + 1)[-1] for s in (1, -1))
        assert (up - down) / 2e-6 == pytest.approx(expected[i], rel=1e-4, abs=1e-3)
    plain.gradient.set_metric(Metric(np.zeros(d), np.ones(d), np.ones(1)))


def worst_errors(setup: Setup) -> tuple[float, float]:
    """At the centering point, and of the mean over all minibatches elsewhere."""
    at_center = max(error(g, setup.full(setup.here)[:-1]) for g in setup.estimates(setup.here))
    mean = setup.estimates(setup.there).mean(axis=0)
    return at_center, error(mean, setup.full(setup.there)[:-1])


def centered_with_another_minibatch(setup):
    source = inspect.getsource(control_variate_gradients._first_order_estimate.py_func)
    line = "evaluate(table[_INNER], center, minibatch,"
    assert source.count(line) == 1
    scope = dict(vars(control_variate_gradients))
    source = source[source.index("def ") :].replace(
        line, line.replace("minibatch", "minibatch + 1")
    )
    exec(source, scope)
    scope["_first_order_estimate"] = njit(scope["_first_order_estimate"])
    context = setup.gradient.control_variates.of_others.context
    variates = control_variate_gradients.ComposedFunction(
        scope["_first_order_estimate"],
        context,
        [setup.step.estimator.logp_grad],
        setup.gradient.control_variates,
    )
    coordinates = type(setup.gradient._by_order[0])(variates, setup.here.size, [3])
    setup.gradient._by_order[1] = coordinates


def stale_total(setup):
    setup.gradient.center_at(setup.here, setup.gradient.gradient_of_all_rows(setup.there))


def stale_center(setup):
    setup.gradient.center_at(setup.there, setup.gradient.gradient_of_all_rows(setup.here))


def wrong_number_of_rows(setup):
    arrays, n_rows = next(iter(setup.source.all_rows()))
    setup.gradient.set_sample(arrays, n_rows, 1.1)
    setup.gradient.center_at(setup.here, setup.gradient.exact_gradient(setup.here))


def lacks_the_last_rows(setup):
    arrays, n_rows = next(iter(setup.source.all_rows()))
    setup.gradient.set_sample(arrays, n_rows - n_rows % setup.case.batch_size, 1.0)
    setup.gradient.center_at(setup.here, setup.gradient.exact_gradient(setup.here))


@pytest.mark.parametrize(
    "fault",
    [
        stale_total,
        stale_center,
        wrong_number_of_rows,
        lacks_the_last_rows,
        centered_with_another_minibatch,
    ],
)
def test_mutants_are_rejected(plain, fault):
    plain.center(plain.here)
    assert max(worst_errors(plain)) < 1e-10
    coordinates = plain.gradient._by_order[1]
    fault(plain)
    assert max(worst_errors(plain)) > 1e-3
    plain.gradient._by_order[1] = coordinates


@pytest.mark.slow
def test_new_data_update_total_and_center():
    setup = Setup(CASE_INTERPRETED)
    x, y = rows_of(setup.case)
    setup.step.setup_chain(np.random.default_rng(1), 40, 2)
    point = setup.model.initial_point(random_seed=1)
    for _ in range(42):
        point, _ = setup.step.step(point)
        if setup.step.draw == 40:
            setup.step.stop_tuning()
    gradient = setup.step.adaptation.gradient
    assert gradient.is_centered
    center = gradient.control_variates.center.copy()
    with setup.model:
        pm.set_data({"x": 2.0 * x, "t": y - 1.0})
    setup.take_full(2.0 * x, y - 1.0)
    setup.step.setup_chain(np.random.default_rng(2), 0, 2)
    assert gradient.is_centered
    np.testing.assert_array_equal(gradient.control_variates.center, center)
    assert error(gradient.control_variates.total, setup.full(center)[:-1]) < 1e-10
    estimates = [
        values(gradient.control_variates.logp_grad, setup.there, center.size, s) for s in range(101)
    ]
    assert error(np.mean(estimates, axis=0), setup.full(setup.there)[:-1]) < 1e-10


def test_variables_of_other_steps_are_updated():
    case = CASE
    x, y = rows_of(case)
    model = model_of(case)
    variables = ["b", "direction"]
    rows = {"minibatch": ["x", "t"], "batch_size": 30}
    step = pg.SGGMC(variables, model=model, compile_kwargs=INTERPRETED, **rows)
    gradient = step.adaptation.gradient
    assert gradient.control_variates is None
    reference = pg.SGGMC(variables, model=full_model(case, x, y), compile_kwargs=INTERPRETED)
    for seed in (1, 2):
        point = model.initial_point(random_seed=seed)
        for name in point:  # the initial point has no scatter
            if name == "log_sd":
                point[name] = np.array(0.3 * seed)
        step.estimator.set_others(point)
        reference.estimator.set_others(point)
        here = step.product.random_point(np.random.default_rng(seed))
        found = gradient.gradient_of_all_rows(here)
        expected = values(reference.estimator.logp_grad, here, here.size + 1)[:-1]
        assert error(found, expected) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [True, False])
def test_functions_of_a_row_with_a_graph_of_their_own(drawn):
    """A softmax and a sum of exponentials are built for the number of rows of a minibatch."""
    x, y = rows_of(CASE)

    def model_with(rows, observed, n_rows=None):
        b = pm.Normal("b", 0.0, 2.0, shape=(WIDTH, 3))
        means = pm.math.softmax(rows @ b, axis=-1) @ np.arange(3.0)
        pm.NormalMixture("y", [0.3, 0.7], pt.stack([means, -means], -1), 0.5, observed=observed,
                         total_size=n_rows)  # fmt: skip

    with pm.Model() as model:
        if drawn:
            model_with(*pm.Minibatch(x, y, batch_size=30), n_rows=len(y))
        else:
            model_with(pm.Data("x", x), pm.Data("t", y))
    rows = {} if drawn else {"minibatch": ["x", "t"], "batch_size": 30}
    step = pg.SGGMC(model=model, compile_kwargs=INTERPRETED, **rows)
    with pm.Model() as full:
        model_with(pt.as_tensor(x), y)
    reference = pg.SGGMC(model=full, compile_kwargs=INTERPRETED)
    here = np.random.default_rng(6).normal(size=3 * WIDTH)
    expected = values(reference.estimator.logp_grad, here, here.size + 1)[:-1]
    assert error(step.adaptation.gradient.gradient_of_all_rows(here), expected) < 1e-10


@pytest.mark.slow
def test_sparse_rows():
    from scipy.sparse import random as random_sparse

    x = random_sparse(101, 6, density=0.4, random_state=1, format="csr")
    y = np.random.default_rng(2).normal(size=101)

    def model_with(sparse):
        with pm.Model() as model:
            b = pm.Normal("b", 0.0, 2.0, shape=6)
            if sparse:
                rows, observed = pg.SparseData("x", x), pm.Data("t", y)
                pm.Normal("y", rows @ b, 0.7, observed=observed)
            else:
                pm.Normal("y", pt.as_tensor(x.toarray()) @ b, 0.7, observed=y)
        return model

    step = pg.SGGMC(model=model_with(True), minibatch=["x", "t"], batch_size=30)
    reference = pg.SGGMC(model=model_with(False), compile_kwargs=INTERPRETED)
    gradient = step.adaptation.gradient
    rng = np.random.default_rng(5)
    here, there = rng.normal(size=(2, 6))
    total = gradient.gradient_of_all_rows(here)
    assert error(total, values(reference.estimator.logp_grad, here, 7)[:-1]) < 1e-10
    gradient.center_at(here, total)
    found = [values(gradient.estimated, there, 6, start) for start in range(101)]
    assert (
        error(np.mean(found, axis=0), values(reference.estimator.logp_grad, there, 7)[:-1]) < 1e-10
    )
    at_center = [values(gradient.estimated, here, 6, start) for start in range(101)]
    assert max(error(g, total) for g in at_center) < 1e-10


def test_minibatch_of_all_rows_provides_a_log_density():
    # the rows belong to another step's part of the model
    x, y = rows_of(CASE)
    with pm.Model() as model:
        scale = pm.Normal("scale", 0.0, 1.0)
        b = pm.Normal("b", 0.0, pt.exp(scale), shape=WIDTH)
        rows, observed = pm.Minibatch(x, y, batch_size=20)
        pm.Normal("y", rows @ b, 1.0, observed=observed, total_size=101)
        step = pg.SGGMC(["scale"], compile_kwargs=INTERPRETED)
    point = model.initial_point(random_seed=1)
    point["b"] = np.array([1.0, -2.0, 0.5, 3.0])
    step.setup_chain(np.random.default_rng(1), 50, 1)  # which chooses the sample of the rows
    step.estimator.set_others(point)
    function = step.adaptation.gradient.exact

    def log_density(s):
        return values(function, np.array([s]), 2)[-1]

    def expected(s):
        return -0.5 * s**2 - 4.0 * s - 0.5 * np.exp(-2.0 * s) * np.sum(point["b"] ** 2)

    assert log_density(0.7) - log_density(-0.2) == pytest.approx(expected(0.7) - expected(-0.2))
