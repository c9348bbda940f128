"""Gradients of all rows, control variates and coordinates, against the full gradient."""

import inspect
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numba import njit

import pymc_geodesic as pg
from pymc_geodesic.gradients import control_variates
from pymc_geodesic.gradients.total_gradient import CHUNK
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.tuning.metric import Metric

WIDTH = 4


class Case(NamedTuple):
    """How a model meets its rows."""

    n_rows: int
    batch_size: int
    in_model: str = "nothing"  # or "minibatch", "total_size"
    total_size: int | None = None
    dtype: str = "float64"
    order: str = "shuffled"
    mode: str | None = None
    mixed: bool = False


CASES = {
    "several manifolds": Case(101, 30, mixed=True),
    "one row": Case(101, 1),
    "several chunks": Case(2 * CHUNK + 77, 30),
    "pm.Minibatch": Case(101, 30, in_model="minibatch"),
    "total_size of the likelihood": Case(101, 30, in_model="total_size"),
    "total_size of the step": Case(101, 30, total_size=303),
    "float32": Case(101, 30, dtype="float32"),
    "random": Case(101, 30, order="random"),
    "another backend": Case(101, 30, mode="FAST_COMPILE"),
}

CASE = Case(101, 30)


def rows_of(case: Case, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(case.n_rows, WIDTH)) * [0.1, 1.0, 3.0, 0.5]
    y = x @ [2.0, 0.3, 0.2, -1.0] + rng.normal(size=case.n_rows)
    return x.astype(case.dtype), y.astype(case.dtype)


def parameters(case: Case):
    """Variables, on a Stiefel manifold too if wanted, and the mean of the rows."""
    log_sd = pm.Normal("log_sd", 0.0, 0.5)
    direction = pg.UniformSphere("direction", shape=3)
    b = pm.Normal("b", 0.5, 2.0, shape=WIDTH)
    pm.Potential("pull", -0.1 * pt.sum(b**4) + b[0] * direction[1])
    if not case.mixed:
        return (lambda x: x @ b + x[:, :3] @ direction), log_sd
    frame = pg.UniformStiefel("frame", shape=(3, 2))

    def mean(x):
        along = x[:, :3] @ (direction + frame @ np.array([1.0, -0.5]))
        return x @ b + along

    return mean, log_sd


def model_of(case: Case) -> pm.Model:
    x, y = rows_of(case)
    with pm.Model() as model:
        mean, log_sd = parameters(case)
        n_rows = None
        if case.in_model == "minibatch":
            rows, observed = pm.Minibatch(x, y, batch_size=case.batch_size)
        else:
            rows, observed = pm.Data("x", x), pm.Data("t", y)
        if case.in_model != "nothing":
            n_rows = case.n_rows
        pm.Normal("y", mean(rows), pt.exp(log_sd), observed=observed, total_size=n_rows)
    return model


def full_model(case: Case, x: np.ndarray, y: np.ndarray) -> pm.Model:
    """The density of all rows, written without minibatches."""
    with pm.Model() as model:
        mean, log_sd = parameters(case)
        weight = (case.total_size or case.n_rows) / case.n_rows
        law = pm.Normal.dist(mean(pt.as_tensor(x)), pt.exp(log_sd))
        pm.Potential("y", weight * pt.sum(pm.logp(law, pt.as_tensor(y))))
    return model


class Setup:
    """A step with minibatches, and the full gradient of the same model."""

    def __init__(self, case: Case) -> None:
        self.case = case
        model = model_of(case)
        inside = case.in_model == "minibatch"
        rows = {} if inside else {"minibatch": ["x", "t"], "batch_size": case.batch_size}
        if case.total_size is not None:
            rows["total_size"] = case.total_size
        mode = {} if case.mode is None else {"compile_kwargs": {"mode": case.mode}}
        self.model = model
        self.step = pg.SGGMC(model=model, minibatch_order=case.order, **rows, **mode)
        self.gradient = self.step._adapted.gradient
        self.source = self.step.estimator.source
        self.take_full(*rows_of(case))
        rng = np.random.default_rng(3)
        self.here, self.there = self.step.product.random_point(rng, 2) * 1.0

    def take_full(self, x: np.ndarray, y: np.ndarray) -> None:
        self._full = pg.SGGMC(model=full_model(self.case, x, y))
        assert self._full.product.names == self.step.product.names

    def full(self, x: np.ndarray) -> np.ndarray:
        """Gradient of all rows, and the log-density behind it."""
        return values(self._full.estimator.field, x, x.size + 1)

    def anchor(self, x: np.ndarray) -> None:
        self.gradient.anchor_at(x, self.gradient.gradient_of_all_rows(x))

    def estimates(self, x: np.ndarray) -> np.ndarray:
        """Of all the minibatches of consecutive rows there are, or of some random ones."""
        field = self.gradient.noisy
        if self.case.order == "random":
            starts = self.step.estimator.next_arguments(20)
        else:
            self.step.estimator.next_arguments(1)
            starts = np.arange(self.case.n_rows)
        return np.array([values(field, x, x.size, int(start)) for start in starts])


def values(field, x, size, argument=0):
    output = np.empty(size)
    evaluate(field.address, x, argument, field.context, output)
    field.raise_error()
    return output


def error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.fixture(scope="module", params=CASES, ids=str)
def setup(request):
    return Setup(CASES[request.param])


@pytest.fixture(scope="module")
def plain():
    return Setup(CASE)


def tolerance(setup):
    return 1e-10 if setup.case.dtype == "float64" else 2e-5


def test_total_is_the_full_gradient(setup):
    for x in (setup.here, setup.there):
        found = setup.gradient.gradient_of_all_rows(x)
        assert error(found, setup.full(x)[:-1]) < tolerance(setup)


def test_value_of_all_rows_changes_as_the_log_density(setup):
    arrays, n_rows = next(iter(setup.source.all_rows()))
    setup.gradient.use_sample(arrays, n_rows, 1.0)
    size = setup.here.size + 1
    found = [values(setup.gradient._inner_exact, x, size)[-1] for x in (setup.here, setup.there)]
    expected = [setup.full(x)[-1] for x in (setup.here, setup.there)]
    assert np.diff(found) == pytest.approx(np.diff(expected), rel=tolerance(setup))


def test_estimates_are_exact_at_the_anchor(setup):
    setup.anchor(setup.here)
    for estimate in setup.estimates(setup.here):
        assert error(estimate, setup.full(setup.here)[:-1]) < tolerance(setup)


def test_mean_over_all_minibatches_is_the_full_gradient(setup):
    if setup.case.order == "random":
        pytest.skip("rows with replacement have more minibatches than can be listed")
    setup.anchor(setup.here)
    estimates = setup.estimates(setup.there)
    assert error(estimates.mean(axis=0), setup.full(setup.there)[:-1]) < tolerance(setup)
    assert estimates.std(axis=0).max() > 1e-3
    setup.gradient.drop_anchor()
    plain = setup.estimates(setup.there)
    assert error(plain.mean(axis=0), setup.full(setup.there)[:-1]) < tolerance(setup)


def test_sample_stands_for_all_rows(plain):
    n = 24
    arrays, _ = plain.source.example_rows(n)
    weight = plain.case.n_rows / n
    plain.gradient.use_sample(arrays, n, weight)
    found = plain.gradient.exact_gradient(plain.here)
    case = plain.case._replace(n_rows=n, total_size=plain.case.n_rows)
    reference = Setup.__new__(Setup)
    reference.case, reference.step = case, plain.step
    reference.take_full(arrays["x"], arrays["t"])
    assert error(found, reference.full(plain.here)[:-1]) < 1e-10


@pytest.mark.parametrize("dense", [True, False])
def test_coordinates_of_a_metric(plain, dense):
    rng = np.random.default_rng(4)
    d = plain.gradient.n_euclidean
    factor = rng.normal(size=(d, d)) if dense else np.exp(rng.normal(size=d))
    lengths = np.array([0.3])
    plain.gradient.use(Metric(rng.normal(size=d), factor, lengths))
    plain.anchor(plain.here)
    z = plain.gradient.from_position(plain.there)
    np.testing.assert_allclose(plain.gradient.to_position(z), plain.there, atol=1e-12)
    expected = plain.full(plain.there)[:-1]
    slices = list(plain.step.product.slices.values())[2:]
    assert slices[0].start == d
    for length, part in zip(lengths, slices, strict=True):
        expected[part] *= length
    whole = factor if dense else np.diag(factor)
    expected[:d] = whole.T @ expected[:d]
    assert error(plain.estimates(z).mean(axis=0), expected) < 1e-10
    # against differences of the log-density along whitened coordinates
    arrays, n_rows = next(iter(plain.source.all_rows()))
    plain.gradient.use_sample(arrays, n_rows, 1.0)
    for i in range(d):
        step = 1e-6 * np.eye(z.size)[i]
        up, down = (values(plain.gradient.exact, z + s * step, z.size + 1)[-1] for s in (1, -1))
        assert (up - down) / 2e-6 == pytest.approx(expected[i], rel=1e-4, abs=1e-3)
    plain.gradient.use(Metric(np.zeros(d), np.ones(d), np.ones(1)))


def worst_errors(setup: Setup) -> tuple[float, float]:
    """At the anchor, and of the mean over all minibatches elsewhere."""
    at_anchor = max(error(g, setup.full(setup.here)[:-1]) for g in setup.estimates(setup.here))
    mean = setup.estimates(setup.there).mean(axis=0)
    return at_anchor, error(mean, setup.full(setup.there)[:-1])


def anchored_at_another_minibatch(setup):
    source = inspect.getsource(control_variates._difference.py_func)
    line = "evaluate(table[0], anchor, argument,"
    assert source.count(line) == 1
    scope = dict(vars(control_variates))
    source = source[source.index("def ") :].replace(line, line.replace("argument", "argument + 1"))
    exec(source, scope)
    scope["_difference"] = njit(scope["_difference"])
    context = setup.gradient.variates.field.context
    variates = control_variates.ComposedField(
        scope["_difference"], context, [setup.step.estimator.field], setup.gradient.variates
    )
    coordinates = type(setup.gradient._plain)(variates, setup.here.size, [3])
    setup.gradient._anchored = coordinates


def stale_total(setup):
    setup.gradient.anchor_at(setup.here, setup.gradient.gradient_of_all_rows(setup.there))


def stale_anchor(setup):
    setup.gradient.anchor_at(setup.there, setup.gradient.gradient_of_all_rows(setup.here))


def wrong_number_of_rows(setup):
    arrays, n_rows = next(iter(setup.source.all_rows()))
    setup.gradient.use_sample(arrays, n_rows, 1.1)
    setup.gradient.anchor_at(setup.here, setup.gradient.exact_gradient(setup.here))


def lacks_the_last_rows(setup):
    arrays, n_rows = next(iter(setup.source.all_rows()))
    setup.gradient.use_sample(arrays, n_rows - n_rows % setup.case.batch_size, 1.0)
    setup.gradient.anchor_at(setup.here, setup.gradient.exact_gradient(setup.here))


@pytest.mark.parametrize(
    "fault",
    [
        stale_total,
        stale_anchor,
        wrong_number_of_rows,
        lacks_the_last_rows,
        anchored_at_another_minibatch,
    ],
)
def test_faults_are_noticed(plain, fault):
    plain.anchor(plain.here)
    assert max(worst_errors(plain)) < 1e-10
    coordinates = plain.gradient._anchored
    fault(plain)
    assert max(worst_errors(plain)) > 1e-3
    plain.gradient._anchored = coordinates


def test_new_data_move_total_and_anchor():
    setup = Setup(CASE)
    x, y = rows_of(setup.case)
    setup.step.setup_chain(np.random.default_rng(1), 40, 2)
    point = setup.model.initial_point(random_seed=1)
    for _ in range(42):
        point, _ = setup.step.step(point)
        if setup.step.draw == 40:
            setup.step.stop_tuning()
    gradient = setup.step._adapted.gradient
    assert gradient.is_anchored
    anchor = gradient.variates.anchor.copy()
    with setup.model:
        pm.set_data({"x": 2.0 * x, "t": y - 1.0})
    setup.take_full(2.0 * x, y - 1.0)
    setup.step.setup_chain(np.random.default_rng(2), 0, 2)
    assert gradient.is_anchored
    np.testing.assert_array_equal(gradient.variates.anchor, anchor)
    assert error(gradient.variates.total, setup.full(anchor)[:-1]) < 1e-10
    estimates = [values(gradient.variates.field, setup.there, anchor.size, s) for s in range(101)]
    assert error(np.mean(estimates, axis=0), setup.full(setup.there)[:-1]) < 1e-10


def test_variables_of_other_steps_are_taken_over():
    case = CASE
    x, y = rows_of(case)
    model = model_of(case)
    step = pg.SGGMC(["b", "direction"], model=model, minibatch=["x", "t"], batch_size=30)
    gradient = step._adapted.gradient
    assert gradient.variates is None
    reference = pg.SGGMC(["b", "direction"], model=full_model(case, x, y))
    for seed in (1, 2):
        point = model.initial_point(random_seed=seed)
        for name in point:  # the initial point has no scatter
            if name == "log_sd":
                point[name] = np.array(0.3 * seed)
        step.estimator.set_others(point)
        reference.estimator.set_others(point)
        here = step.product.random_point(np.random.default_rng(seed))
        found = gradient.gradient_of_all_rows(here)
        expected = values(reference.estimator.field, here, here.size + 1)[:-1]
        assert error(found, expected) < 1e-10


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
    reference = pg.SGGMC(model=model_with(False))
    gradient = step._adapted.gradient
    rng = np.random.default_rng(5)
    here, there = rng.normal(size=(2, 6))
    total = gradient.gradient_of_all_rows(here)
    assert error(total, values(reference.estimator.field, here, 7)[:-1]) < 1e-10
    gradient.anchor_at(here, total)
    found = [values(gradient.noisy, there, 6, start) for start in range(101)]
    assert error(np.mean(found, axis=0), values(reference.estimator.field, there, 7)[:-1]) < 1e-10
    at_anchor = [values(gradient.noisy, here, 6, start) for start in range(101)]
    assert max(error(g, total) for g in at_anchor) < 1e-10


def test_step_above_the_rows_has_a_value_to_search_with():
    # the rows belong to another step's part of the model
    x, y = rows_of(CASE)
    with pm.Model() as model:
        scale = pm.Normal("scale", 0.0, 1.0)
        b = pm.Normal("b", 0.0, pt.exp(scale), shape=WIDTH)
        rows, observed = pm.Minibatch(x, y, batch_size=20)
        pm.Normal("y", rows @ b, 1.0, observed=observed, total_size=101)
        step = pg.SGGMC(["scale"])
    point = model.initial_point(random_seed=1)
    point["b"] = np.array([1.0, -2.0, 0.5, 3.0])
    step.setup_chain(np.random.default_rng(1), 50, 1)  # which chooses the rows to search with
    step.estimator.set_others(point)
    field = step._adapted.gradient.exact

    def log_density(s):
        return values(field, np.array([s]), 2)[-1]

    def expected(s):
        return -0.5 * s**2 - 4.0 * s - 0.5 * np.exp(-2.0 * s) * np.sum(point["b"] ** 2)

    assert log_density(0.7) - log_density(-0.2) == pytest.approx(expected(0.7) - expected(-0.2))
