"""Local variables: known conditional distributions, and models without independent rows."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.densities.row_dependence import local_total_size
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.distributions import VonMisesFisher
from pymc_geodesic.gradients.local_gradient import LocalGradient
from pymc_geodesic.minibatches.resident_rows import IndependentRows, RandomRows, ShuffledRows
from pymc_geodesic.runtime.gradient_functions import evaluate
from pymc_geodesic.runtime.streams import new_stream
from tests.grids import cross, slow

INTERPRETED = {"mode": "FAST_COMPILE"}


def normal_rows(y, likelihood):
    """m ~ N(0, 10), z_i ~ N(m, 1), y_i ~ N(z_i, 1), the last with the given likelihood."""
    with pm.Model() as model:
        data = pm.Data("y", y)
        m = pm.Normal("m", 0.0, 10.0)
        z = pm.Normal("z", m, 1.0, shape=y.size)
        likelihood(z, data)
    return model


def observed(total_size=None):
    return lambda z, data: pm.Normal("x", z, 1.0, observed=data, total_size=total_size)


def potential(z, data):
    pm.Potential("x", -0.5 * (data - z) ** 2)


@pytest.mark.parametrize(
    ("likelihood", "total_size", "n_total"),
    [
        slow(observed(400), None, 400),
        (observed(900), None, 900),
        (observed(400), 400, 400),
        (observed(), 900, 900),
        slow(observed(), None, 400),
        (potential, 900, 900),
        slow(potential, None, 400),
    ],
    ids=["observed", "larger", "both", "step", "neither", "potential-step", "potential"],
)
def test_gradients_are_scaled_once_and_conditionals_are_not(likelihood, total_size, n_total):
    n_rows, batch_size, m = 400, 50, 3.0
    y = np.random.default_rng(3).normal(0.7, np.sqrt(2.0), size=n_rows)
    model = normal_rows(y, likelihood)
    source = ShuffledRows({"y": y}, batch_size)
    local = manifold_variables(model, [model["z"]], by_row=True)
    estimator = LocalGradient(
        model,
        manifold_variables(model, [model["m"]]),
        local,
        source=source,
        total_size=local_total_size(model, local, source, total_size),
        n_draws=40,
        n_discarded=10,
        n_steps=5,
        compile_kwargs=INTERPRETED,
    )
    estimator.read_local(model.initial_point())
    stream = new_stream(np.random.default_rng(1))
    position, gradient = np.array([m]), np.empty(1)
    deviations, ratios = [], []
    for _ in range(8):
        estimator.next_minibatch()
        estimator.sample_local([np.array(m)], 0.4, stream)
        evaluate(estimator.logp_grad.address, position, 0, estimator.logp_grad.context, gradient)
        rows = estimator.source.row_indices(estimator._start)
        expected = n_total / batch_size * np.sum(y[rows] - m) / 2.0 - m / 100.0
        ratios.append(gradient[0] / expected)
        after = {}
        estimator.write_local(after)
        deviations.extend(after["z"][rows] - (y[rows] + m) / 2.0)
    # of 40 draws of 50 rows, as far from their means as they are wide, half of them independent
    assert abs(np.mean(ratios) - 1.0) < 0.02
    assert np.std(ratios) < 0.04
    # 400 draws: five standard errors
    assert abs(np.std(deviations) / np.sqrt(0.5) - 1.0) < 5 / np.sqrt(2 * 400)


def test_different_total_sizes_raise():
    model = normal_rows(np.zeros(40), observed(400))
    with model, pytest.raises(ValueError, match="900 for the step, 400 for 'x'"):
        pg.SGGMC(local=["z"], minibatch=["y"], batch_size=10, total_size=900)


def test_total_size_of_another_axis_raises():
    with pm.Model():
        data = pm.Data("y", np.zeros((40, 2)))
        z = pm.Normal("z", 0.0, 1.0, shape=(40, 2))
        pm.Normal("m")
        pm.Normal("x", z, 1.0, observed=data, total_size=(40, 20))
        with pytest.raises(ValueError, match="'x' refers to another axis"):
            pg.SGGMC(local=["z"], minibatch=["y"], batch_size=10)


def test_metropolis_correction_needs_each_row_once():
    message = "of GMC needs each row exactly once, but .* total_size=400 for 120 rows"
    with normal_rows(np.zeros(120), observed(400)), pytest.raises(ValueError, match=message):
        pg.GMC(local=["z"], minibatch=["y"], compile_kwargs=INTERPRETED)


def _constant_data(m, data):
    z = pm.Normal("z", m, 1.0, shape=40)
    pm.Normal("weighed", z, pm.math.exp(0.0 * data), observed=np.arange(40.0))


def _summed_potential(m, data):
    z = pm.Normal("z", m, 1.0, shape=40)
    pm.Potential("summed", -0.5 * pm.math.sum((data - z) ** 2))


def _centred(m, data):
    z = pm.Normal("z", m, 1.0, shape=40)
    pm.Normal("centred", z - z.mean(), 1.0, observed=data)


def _random_walk(m, data):
    z = pm.GaussianRandomWalk("z", mu=m, sigma=1.0, init_dist=pm.Normal.dist(), shape=40)
    pm.Normal("x", z, 1.0, observed=data)


def _mean_of_rows(m, data):
    z = pm.Normal("z", m, 1.0, shape=40)
    pm.Normal("x", z, 1.0, observed=data)
    pm.Potential("mean", -((m - data) ** 2).mean())


def _other_rows(m, data):
    z = pm.Normal("z", m, 1.0, shape=40)
    other = pm.Normal("other", 0.0, 1.0, shape=40)
    pm.Normal("x", z + other, 1.0, observed=data)


@pytest.mark.parametrize(
    ("batch_size", "rows", "message"),
    cross([10, 1, None], [
        (_constant_data, "containers"),
        (_summed_potential, "'summed' does not have one value per row"),
        (_centred, "'centred' does not have one value per row"),
        (_random_walk, "for a subset of its rows"),
        (_mean_of_rows, "'mean' does not have one value per row"),
        (_other_rows, "local="),
    ]),
)  # fmt: skip
def test_dependent_rows_raise(rows, message, batch_size):
    """Also with all rows in one minibatch, since their order differs from that of the model."""
    with pm.Model():
        data = pm.Data("y", np.random.default_rng(1).normal(size=40))
        m = pm.Normal("m", 0.0, 10.0)
        rows(m, data)
        with pytest.raises(ValueError, match=message):
            pg.SGGMC(["m"], local=["z"], minibatch=["y"], batch_size=batch_size)


N_ROWS, BATCH = 70, 30
KAPPA, DATA_KAPPA = 2.0, 3.0


@pytest.fixture(scope="module")
def conjugate():
    """Four local variables, one with two points per row, each with a conjugate likelihood."""
    rng = np.random.default_rng(5)
    arrays = {
        "y": rng.normal(0.5, 1.4, size=N_ROWS),
        "counts": rng.poisson(3.0, size=N_ROWS),
        "directions": rng.normal(size=(N_ROWS, 2, 3)),
        "labels": rng.multinomial(6, [0.5, 0.3, 0.2], size=N_ROWS),
    }
    arrays["directions"] /= np.linalg.norm(arrays["directions"], axis=-1, keepdims=True)
    with pm.Model() as model:
        data = {name: pm.Data(name, array) for name, array in arrays.items()}
        m = pm.Normal("m", 0.0, 10.0)
        z = pm.Normal("z", m, 1.0, shape=N_ROWS)
        rate = pm.Gamma("rate", 2.0, pm.math.exp(m), shape=N_ROWS)
        u = VonMisesFisher("u", [0.0, 0.0, 1.0], KAPPA, shape=(N_ROWS, 2, 3))
        share = pm.Dirichlet("share", np.ones(3), shape=(N_ROWS, 3))
        pm.Normal("y_obs", z, 1.0, observed=data["y"])
        pm.Poisson("counts_obs", rate, observed=data["counts"])
        VonMisesFisher("directions_obs", u, DATA_KAPPA, observed=data["directions"])
        pm.Multinomial("labels_obs", n=6, p=share, observed=data["labels"])
    local = manifold_variables(model, [z, rate, u, share], by_row=True)
    estimator = LocalGradient(
        model,
        manifold_variables(model, [m]),
        local,
        source=ShuffledRows(arrays, BATCH),
        total_size=N_ROWS,
        n_draws=1,
        n_discarded=30,
        n_steps=8,
    )
    return model, arrays, estimator


def known_moments(arrays, m):
    """Mean and variance of each local variable given the data and m."""
    counts, labels = arrays["counts"], arrays["labels"]
    shape, rate = 2.0 + counts, np.exp(m) + 1.0
    alpha = 1.0 + labels
    total = alpha.sum(axis=1, keepdims=True)
    share = alpha / total
    pull = DATA_KAPPA * arrays["directions"] + KAPPA * np.array([0.0, 0.0, 1.0])
    kappa = np.linalg.norm(pull, axis=-1, keepdims=True)
    length = 1.0 / np.tanh(kappa) - 1.0 / kappa
    axis = pull / kappa
    across = length / kappa
    along = 1.0 - 2.0 * across - length**2
    return {
        "z": ((arrays["y"] + m) / 2.0, np.full(N_ROWS, 0.5)),
        "rate": (shape / rate, shape / rate**2),
        "u": (length * axis, along * axis**2 + across * (1.0 - axis**2)),
        "share": (share, share * (1.0 - share) / (total + 1.0)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("source", [ShuffledRows, slow(IndependentRows), slow(RandomRows)])
def test_conditional_distributions(conjugate, source):
    """Batch sizes that do not divide N, repeated rows, several variables and points."""
    model, arrays, estimator = conjugate
    m = 0.3
    estimator.source = source(arrays, BATCH)
    estimator.source.reset(1)
    estimator.read_local(model.initial_point())
    stream = new_stream(np.random.default_rng(2))
    found = {name: [] for name in ("z", "rate", "u", "share")}
    for draw in range(410):
        estimator.next_minibatch()
        estimator.sample_local([np.array(m)], 0.2, stream)
        if draw < 10:
            continue
        rows = np.unique(estimator.source.row_indices(estimator._start))
        point = {}
        estimator.write_local(point)
        for variable in estimator.local:
            values = variable.backward(point[variable.value_name])
            values = np.exp(values) if variable.name == "rate" else values
            mean, variance = (each[rows] for each in known_moments(arrays, m)[variable.name])
            found[variable.name].append(((values[rows] - mean) / np.sqrt(variance)).reshape(-1))
    for name, deviations in found.items():
        standard = np.concatenate(deviations)
        assert abs(standard.mean()) < 0.04, name
        assert abs(standard.std() - 1.0) < 0.04, name


@pytest.mark.slow
def test_gradient_of_several_local_variables(conjugate):
    """The gradient in m, with the local variables integrated out."""
    model, arrays, estimator = conjugate
    m = 0.3
    estimator.source = ShuffledRows(arrays, BATCH)
    estimator.read_local(model.initial_point())
    stream = new_stream(np.random.default_rng(3))
    position, gradient, errors, expected = np.array([m]), np.empty(1), [], []
    for draw in range(610):
        estimator.next_minibatch()
        estimator.sample_local([np.array(m)], 0.2, stream)
        evaluate(estimator.logp_grad.address, position, 0, estimator.logp_grad.context, gradient)
        rows = estimator.source.row_indices(estimator._start)
        of_rows = (arrays["y"][rows] - m) / 2.0
        of_rows += 2.0 - np.exp(m) * (2.0 + arrays["counts"][rows]) / (np.exp(m) + 1.0)
        if draw >= 10:
            expected.append(N_ROWS / BATCH * of_rows.sum() - m / 100.0)
            errors.append(gradient[0] - expected[-1])
    standard_error = np.std(errors) / np.sqrt(len(errors))
    assert abs(np.mean(errors)) < 5 * standard_error
    # one in ten of the gradient would be seen
    assert standard_error < 0.02 * np.abs(np.mean(expected))
