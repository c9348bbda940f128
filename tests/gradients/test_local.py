"""Local latent variables: a hierarchy with a known marginal distribution, and spherical topics."""

import threading

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

import pymc_geodesic as pg
from pymc_geodesic.densities.graphs import split_at_frontier
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.gradients.local_gradient import LocalGradient
from pymc_geodesic.minibatches.resident_rows import ShuffledRows
from pymc_geodesic.runtime.gradient_functions import evaluate
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.runtime.threads import Workers
from pymc_geodesic.topics import spherical_admixture
from tests.grids import slow

N_ROWS, BATCH = 120, 30
INTERPRETED = {"mode": "FAST_COMPILE"}


class RecordedWorkers(Workers):
    """Record the threads that work; several threads must work at the same time."""

    def __init__(self, n_threads):
        super().__init__(n_threads)
        self.seen = set()
        self._together = threading.Barrier(n_threads, timeout=60)

    def run(self, work, n):
        def noted(i):
            self._together.wait()
            self.seen.add(threading.get_ident())
            return work(i)

        return super().run(noted, n)


@pytest.fixture(scope="module")
def hierarchy():
    """z_i ~ N(m, 1), y_i ~ N(z_i, 1), so that y_i ~ N(m, 2) without z."""
    y = np.random.default_rng(3).normal(0.7, np.sqrt(2.0), size=N_ROWS)
    with pm.Model() as model:
        data = pm.Data("y", y)
        m = pm.Normal("m", 0.0, 10.0)
        z = pm.Normal("z", m, 1.0, shape=N_ROWS)
        pm.Normal("x", z, 1.0, observed=data)
    return model, y


def make_estimator(hierarchy, batch_size=BATCH, **kwargs):
    model, y = hierarchy
    return LocalGradient(
        model,
        manifold_variables(model, [model["m"]]),
        manifold_variables(model, [model["z"]], by_row=True),
        source=ShuffledRows({"y": y}, batch_size),
        total_size=N_ROWS,
        **({"n_draws": 20, "n_discarded": 10, "n_steps": 5} | kwargs),
    )


@pytest.fixture(scope="module")
def estimator(hierarchy):
    return make_estimator(hierarchy)


def gradients(estimator, model, m, n, seed):
    """n estimates of the gradient at m, with the minibatches they come from."""
    estimator.source.reset(seed)
    estimator.read_local(model.initial_point())
    stream = new_stream(np.random.default_rng(seed))
    output, estimates, starts = np.empty(1), [], []
    for _ in range(n):
        estimator.next_minibatch()
        estimator.sample_local([np.array(m)], 0.6, stream)
        evaluate(estimator.logp_grad.address, np.array([m]), 0, estimator.logp_grad.context, output)
        estimates.append(output[0])
        starts.append(estimator._start)
    return np.array(estimates), starts


def test_average_gradient_is_that_of_the_marginal(hierarchy, estimator):
    model, y = hierarchy
    m = 0.2
    estimates, starts = gradients(estimator, model, m, 400, seed=1)
    expected = np.array(
        [
            N_ROWS / BATCH * np.sum(y[estimator.source.row_indices(start)] - m) / 2.0 - m / 100.0
            for start in starts
        ]
    )
    difference = estimates - expected
    z = difference.mean() / (difference.std() / np.sqrt(difference.size))
    assert abs(z) < 5
    # one in a hundred of the gradient would be seen
    assert difference.std() / np.sqrt(difference.size) < 0.01 * np.abs(expected).mean()


def test_a_draw_updates_only_the_rows_of_its_minibatch(hierarchy, estimator):
    model, _ = hierarchy
    estimator.source.reset(2)
    point = model.initial_point()
    before = point["z"].copy()
    estimator.read_local(point)
    estimator.next_minibatch()
    estimator.sample_local([np.array(0.0)], 0.6, new_stream(np.random.default_rng(2)))
    after: dict = {}
    estimator.write_local(after)
    moved = np.flatnonzero(after["z"] != before)
    assert np.array_equal(moved, np.sort(estimator.source.row_indices(estimator._start)))
    assert np.array_equal(point["z"], before)


def test_result_does_not_depend_on_the_number_of_cores(hierarchy, estimator):
    model, _ = hierarchy
    results = {}
    for n_threads in (1, 2):
        estimator.workers = RecordedWorkers(n_threads)
        results[n_threads] = gradients(estimator, model, 0.5, 5, seed=4)[0]
        assert len(estimator.workers.seen) == n_threads
    assert np.array_equal(results[1], results[2])


def test_interpreted_functions_run_in_one_thread(hierarchy, estimator):
    """A function of PyTensor may not be called again before it returns."""
    model, _ = hierarchy
    interpreted = make_estimator(hierarchy, compile_kwargs=INTERPRETED)
    interpreted.workers = RecordedWorkers(2)
    estimator.workers = RecordedWorkers(1)
    ours = gradients(interpreted, model, 0.5, 5, seed=4)[0]
    assert not interpreted.workers.seen
    np.testing.assert_allclose(ours, gradients(estimator, model, 0.5, 5, seed=4)[0], rtol=1e-9)


def test_acceptance_is_that_of_single_rows(hierarchy, estimator):
    model, _ = hierarchy
    gradients(estimator, model, 0.5, 5, seed=5)
    # thirty rows that had to accept together would accept far less at this step size
    assert 0.8 < estimator.acceptance_rate < 1.0


SET = {"step_size": 0.03, "friction": 5.0, "n_steps": 10}


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["gibbs", slow("sggmc"), slow("gsgnht")])
def test_posterior_of_the_global_variable(hierarchy, sampler):
    """With all rows, and more draws of the local variables than necessary."""
    model, y = hierarchy
    precision = 1 / 100 + N_ROWS / 2
    mean, sd = np.sum(y) / 2 / precision, 1 / np.sqrt(precision)
    local = {"local": [model["z"]], "minibatch": ["y"], "local_tune": 5, "model": model}
    if sampler == "gibbs":
        step = pg.GMC([model["m"]], **local)
    elif sampler == "sggmc":
        step = pg.SGGMC([model["m"]], local_draws=20, **local, **SET)
    else:
        step = pg.gSGNHT([model["m"]], local_draws=20, **local, **SET)
    with model:
        idata = pm.sample(
            6000, tune=500, chains=1, step=step, random_seed=3, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    draws = idata.posterior["m"].values.ravel()
    ess = float(pm.stats.ess(idata, var_names=["m"])["m"])
    assert ess > 1000
    assert abs(draws.mean() - mean) < 0.15 * sd
    assert abs(draws.std() / sd - 1) < 0.08
    z = idata.posterior["z"].values.reshape(6000, N_ROWS)
    # given y alone: (y + m) / 2 of variance 1/2, and a quarter of the variance of m
    assert np.abs(z.mean(axis=0) - (y + mean) / 2).max() < 0.08
    assert abs(np.mean(z.var(axis=0)) / (0.5 + sd**2 / 4) - 1) < 0.03
    assert "acceptance_rate" in idata.sample_stats


@pytest.mark.slow
def test_noise_of_a_minibatch_in_all_inner_steps_is_named(hierarchy, caplog):
    """It inflates the variance by up to 5 % at a kinetic temperature of 1.02; all rows do not."""
    model, y = hierarchy
    local = {"local": [model["z"]], "minibatch": ["y"], "local_tune": 5, "tune_temperature": 1.1}
    for batch_size, warned in ((N_ROWS // 2, True), (N_ROWS, False)):
        step = pg.SGGMC([model["m"]], batch_size=batch_size, model=model, **local)
        caplog.clear()
        with model, caplog.at_level("WARNING", "pymc"):
            pm.sample(
                3000, tune=200, chains=1, step=step, random_seed=3, progressbar=False,
                initvals={"m": np.mean(y)}, compute_convergence_checks=False,
            )  # fmt: skip
        assert ("use the same minibatch" in caplog.text) == warned


def test_frontier_separates_fixed_from_varying_values():
    beta, data, theta = pt.matrix("beta", shape=(3, 7)), pt.matrix("data", shape=(None, 7)), None
    theta = pt.matrix("theta", shape=(None, 3))
    output = pt.sum((data @ beta.T) * theta, axis=1) / pt.sqrt(
        pt.sum((theta @ (beta @ beta.T)) * theta, axis=1)
    )
    split = split_at_frontier([output], [theta], [data])
    moving = set(ancestors(split.outputs))
    assert beta not in moving
    assert data not in moving
    rng = np.random.default_rng(0)
    values = {
        beta: rng.normal(size=(3, 7)),
        data: rng.normal(size=(5, 7)),
        theta: rng.random((5, 3)),
    }
    interpreted = {**INTERPRETED, "on_unused_input": "ignore"}
    fixed = [variable.eval(values, **interpreted) for variable in split.fixed]
    assert sum(array.size for array in fixed) <= 3 * 3 + 5 * 3
    joined = split.outputs[0].eval(
        {theta: values[theta], **dict(zip(split.inputs, fixed, strict=True))}, **interpreted
    )
    np.testing.assert_allclose(joined, output.eval(values, **interpreted), rtol=1e-12)


@pytest.mark.parametrize("batch_size", [4, 50])
def test_lengths_determined_by_data_are_not_numbers_of_rows(batch_size):
    """For numbers that a container selects, of global variables, also with local variables."""
    rng = np.random.default_rng(4)
    picked, W = np.array([False, True, True, False, True, True]), rng.normal(size=(6, 3))
    y = rng.normal(size=(60, 3))
    found = []
    for by_data in (False, True):
        with pm.Model() as model:
            rows, mask = pm.Data("y", y), pm.Data("picked", picked)
            weights = pm.Normal("W", shape=(6, 3))
            indices = mask.nonzero()[0] if by_data else np.flatnonzero(picked)
            chosen = weights[indices]
            pm.Potential("penalty", -pt.sum(chosen**4))
            z = pm.Normal("z", shape=(60, 4))
            pm.Normal("seen", z @ chosen, 1.0, observed=rows)
        estimator = LocalGradient(
            model,
            manifold_variables(model, [weights]),
            manifold_variables(model, [z], by_row=True),
            source=ShuffledRows({"y": y}, batch_size),
            total_size=60,
            n_draws=2,
            n_discarded=3,
            n_steps=4,
            compile_kwargs=INTERPRETED,
        )
        estimator.read_local(model.initial_point(random_seed=1))
        estimator.begin_draw(W.ravel(), 1, new_stream(np.random.default_rng(1)), tune=True)
        gradient = np.empty(W.size)
        evaluate(estimator.logp_grad.address, W.ravel(), 0, estimator.logp_grad.context, gradient)
        estimator.logp_grad.raise_error()
        found.append((estimator.acceptance_rate, *gradient))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


def test_data_of_another_shape_raise():
    with pm.Model() as model:
        rows, centres = pm.Data("y", np.zeros(8)), pm.Data("centres", np.zeros(3))
        m = pm.Normal("m", centres.sum(), 1.0)
        z = pm.Normal("z", m, pt.exp(centres).sum(), shape=8)
        pm.Normal("x", z, 1.0, observed=rows)
    step = pg.SGGMC(["m"], local=["z"], minibatch=["y"], model=model, compile_kwargs=INTERPRETED)
    with model:
        pm.set_data({"centres": np.zeros(2)})
    with pytest.raises(ValueError, match=r"'centres' had shape \(3,\) .* has \(2,\) now"):
        step.setup_chain(np.random.default_rng(1), 2, 2)


def test_topic_gradient_uses_the_documents_twice():
    """Averaged over draws, the documents enter by one forward and one backward product."""
    V = np.abs(np.random.default_rng(0).normal(size=(40, 11)))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    model = spherical_admixture(V, 3, kappa=50, sigma=10, kappa0=10)
    estimator = LocalGradient(
        model,
        manifold_variables(model, [model["beta"]]),
        manifold_variables(model, [model["theta"]], by_row=True),
        source=ShuffledRows({"V": V}, 20),
        total_size=40,
        n_draws=6,
        n_discarded=3,
        n_steps=4,
        compile_kwargs=INTERPRETED,
    )
    estimator.read_local(model.initial_point(random_seed=1))
    estimator.next_minibatch()
    beta = model.initial_point(random_seed=1)["beta_unitvector__"]
    estimator.sample_local([beta], None, new_stream(np.random.default_rng(1)))
    gradient = np.empty(beta.size)
    evaluate(estimator.logp_grad.address, beta.ravel(), 0, estimator.logp_grad.context, gradient)
    passed = [array for array in estimator.logp_grad._arrays if array is not None]
    documents = [array for array in passed if array.shape == (20, 11)]
    assert len(documents) == 1
    # nothing of the size of draws × documents × words is passed
    assert max(array.size for array in passed) <= 6 * 20 * 3 + 20 * 11


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"local": ["m"], "minibatch": ["y"], "batch_size": 10}, "'m' is a scalar"),
        ({"local": ["z"], "minibatch": ["y"], "batch_size": 10, "local_draws": 0}, "local_draws"),
        ({"local": ["z"], "minibatch": ["y"], "batches": []}, "batches"),
        (
            {"local": ["z"], "minibatch": ["y"], "batch_size": 10, "gradient_noise": "fisher"},
            "fisher",
        ),
        ({"local": ["nothing"], "minibatch": ["y"], "batch_size": 10}, "nothing"),
    ],
)
def test_errors_name_the_argument(hierarchy, arguments, message):
    with hierarchy[0], pytest.raises(ValueError, match=message):
        pg.SGGMC(**arguments)


def test_local_variable_must_have_a_point_for_each_row():
    with pm.Model():
        data = pm.Data("y", np.zeros(12))
        m = pm.Normal("m")
        z = pm.Normal("z", m, shape=11)
        pm.Normal("x", pt.concatenate([z, [0.0]]), observed=data)
        with pytest.raises(ValueError, match=r"'z' of shape \(11,\), but there are 12 rows"):
            pg.SGGMC(local=[z], minibatch=["y"], batch_size=3)


def test_a_new_step_continues_from_a_saved_state(hierarchy):
    """With the adapted step size of the local variables and the position in the order of rows."""
    model, _ = hierarchy

    def started(seed):
        with model:
            step = pg.SGGMC(
                step_size=0.05,
                friction=1.0,
                n_steps=3,
                batch_size=BATCH,
                minibatch=["y"],
                local=["z"],
                local_draws=2,
                local_tune=1,
                compile_kwargs=INTERPRETED,
            )
        step.setup_chain(np.random.default_rng(seed), 20, 5)
        return step

    step = started(1)
    point = model.initial_point(random_seed=1)
    for _ in range(4):
        point, _ = step.step(point)
    state = step.sampling_state
    other = started(2)
    other.sampling_state = state
    there = {name: value.copy() for name, value in point.items()}
    for _ in range(3):
        point, (stats,) = step.step(point)
        there, (again,) = other.step(there)
        assert stats["acceptance_rate"] == again["acceptance_rate"]
        for name, value in point.items():
            np.testing.assert_array_equal(there[name], value)
