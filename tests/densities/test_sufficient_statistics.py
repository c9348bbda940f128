"""Normal observations by sufficient statistics, compared with PyMC's log-density of the rows."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.densities.effect_detection import find_effects
from pymc_geodesic.runtime.gradient_functions import evaluate
from pymc_geodesic.sparse import SparseData

INTERPRETED = {"mode": "FAST_COMPILE"}
N, G, K = 3000, 12, 3
RNG = np.random.default_rng(1)
X, GROUP, OTHER = RNG.normal(size=(N, K)), RNG.integers(0, G, N), RNG.integers(0, 7, N)
GROUP[GROUP == 5] = 4  # a group without rows
Y = 1e4 + RNG.normal(size=N)
INTEGERS, FLAG = RNG.integers(0, 100, N).astype("uint8"), RNG.random(N) < 0.5


def evaluate_at(step, point):
    position = np.concatenate([np.ravel(point[v.value_name]) for v in step.variables])
    logp_grad, output = step.estimator.logp_grad, np.empty(position.size + 1)
    step.estimator.set_others(point)
    evaluate(logp_grad.address, position, 0, logp_grad.context, output)
    logp_grad.raise_error()
    return output[-1], output[:-1]


def random_point(model, seed=0):
    rng = np.random.default_rng(seed)
    start = model.initial_point(random_seed=0)
    return {name: value + rng.normal(size=value.shape) for name, value in start.items()}


def assert_agrees_with_pymc(model, step):
    for seed in range(2):
        point = random_point(model, seed)
        value, gradient = evaluate_at(step, point)
        variables = [model[v.name] for v in step.variables]
        expected = model.compile_dlogp(variables, **INTERPRETED)(point)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-11 * scale)
        assert value == pytest.approx(float(model.compile_logp(**INTERPRETED)(point)), rel=1e-11)


def regression(mean):
    """Normal observations with a mean of parameters by name."""
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 2.0)
        tau = pm.HalfNormal("tau", 2.0)
        parameters = {
            "a": pm.Normal("a"),
            "b": pm.Normal("b", shape=K),
            "e": pm.Normal("e", shape=G),
            "f": pm.Normal("f", shape=7),
            "m": pm.Normal("m", shape=(G, K)),
            "tau": tau,
        }
        pm.Normal("y", mean(**parameters), sd, observed=Y)
    return model


LINEAR = {
    "columns": lambda a, b, **_: a + X @ b,
    "groups": lambda a, e, **_: a + e[GROUP],
    "one_element": lambda b, **_: b[0] + b[2] * X[:, 1],
    "crossed": lambda a, e, f, **_: a + e[GROUP] - f[OTHER],
    "slopes": lambda e, f, **_: e[GROUP] * X[:, 0] + X[:, 1] * f[OTHER] / 3.0,
    "non_centered": lambda a, e, tau, **_: a + tau * e[GROUP],
    "ratio": lambda e, tau, **_: e[GROUP] / tau,
    "scaled_sum": lambda a, b, e, tau, **_: tau * (a + 2.0 + X @ b + e[GROUP]),
    "negative_index": lambda e, **_: e[GROUP - G],
    "matrix": lambda m, **_: m[GROUP, 1] + m[GROUP][:, 2] * X[:, 0],
    "transposed": lambda m, **_: m.T[0, GROUP],
    "sum_of_products": lambda m, **_: (m[GROUP] * X).sum(axis=1),
    "correlated": lambda m, b, **_: (m @ pt.diag(b))[GROUP, 0] + X[:, 0],
    "function_of_effects": lambda a, e, **_: (a + pt.exp(e))[GROUP],
    "dot": lambda b, **_: pm.math.dot(X, b) + pt.dot(X, 2.0 * b),
    "parents": lambda e, f, **_: (e + f[np.arange(G) % 7])[GROUP],
    "factors_of_columns": lambda b, tau, m, **_: (X @ m.T * (tau + b[0])).sum(axis=1),
    "vector_times_matrix": lambda b, **_: pt.dot(b, X.T),
    "integers": lambda a, e, **_: (a + INTEGERS) * INTEGERS + (e[GROUP] + 100) * 2,
    "small_indices": lambda e, f, **_: e[GROUP.astype("int8")] + f[OTHER.astype("uint8")],
    "flag": lambda a, b, **_: (a + FLAG) * FLAG + b[0] / (INTEGERS + 1),
    "matrix_of_one_row": lambda m, e, **_: ((X[:1] @ m.T) + X[:, :1]).sum(axis=1) + e[GROUP],
    "collinear": lambda a, b, e, f, **_: a + b.sum() + e[GROUP] + f[GROUP % 7] + b[0],
}


@pytest.mark.parametrize("mean", LINEAR)
def test_linear_means(mean):
    model = regression(LINEAR[mean])
    with model:
        step = pg.GMC(compile_kwargs=INTERPRETED)
    assert [each.name for each in step.estimator.statistics] == ["y"]
    assert_agrees_with_pymc(model, step)


OF_EFFECTS = ["groups", "crossed", "slopes", "non_centered", "matrix", "transposed", "parents"]


@pytest.mark.parametrize("mean", OF_EFFECTS)
def test_precision_of_effects_is_that_of_the_rows(mean):
    model = regression(LINEAR[mean])
    with model:
        step = pg.GMC(compile_kwargs=INTERPRETED)
    point = random_point(model)
    position = np.concatenate([np.ravel(point[v.value_name]) for v in step.variables])
    found, expected = (
        find_effects(model, step.variables, INTERPRETED, statistics).precision(position).toarray()
        for statistics in (step.estimator.statistics, [])
    )
    size = np.sqrt(np.diagonal(expected))
    np.testing.assert_allclose(
        found / np.outer(size, size), expected / np.outer(size, size), atol=1e-9
    )


NOT_LINEAR = {
    "exponential": lambda a, b, **_: pm.math.exp(a + X @ b),
    "square": lambda a, **_: a**2 * X[:, 0] + pm.math.sqr(a * X[:, 0]),
    "product_of_groups": lambda e, f, **_: e[GROUP] * f[OTHER],
    "index_of_variable": lambda e, a, **_: e[pt.switch(a > 0, GROUP, 0)],
    "denominator": lambda a, e, **_: X[:, 0] / (5.0 + e[GROUP]) + 1.0 / (5.0 + a * X[:, 1]),
    "one_row": lambda e, **_: pt.squeeze((e[GROUP] * X[:, 0])[None]),
}


@pytest.mark.parametrize("mean", NOT_LINEAR)
def test_other_means_use_the_rows(mean):
    model = regression(NOT_LINEAR[mean])
    with model:
        step = pg.GMC(compile_kwargs=INTERPRETED)
    assert [each.name for each in step.estimator.statistics] == []
    assert_agrees_with_pymc(model, step)


def test_other_observations_use_the_rows():
    with pm.Model() as model:
        a, sd = pm.Normal("a"), pm.HalfNormal("sd")
        pm.StudentT("t", 4.0, mu=a * X[:, 0], sigma=sd, observed=Y)
        pm.Normal("few", a * X[:100, 0], sd, observed=Y[:100])
        pm.Normal("by_row", a * X[:, 0], sd * np.abs(X[:, 1]), observed=Y)
        pm.Normal("wide", a * X, sd, observed=X)
        many = pm.Normal("many", shape=N)
        pm.Normal("own", many, sd, observed=Y)
        log = pm.distributions.transforms.log
        pm.Normal("transformed", a * X[:, 0], sd, observed=np.abs(X[:, 0]), transform=log)
        step = pg.GMC(compile_kwargs=INTERPRETED)
    assert [each.name for each in step.estimator.statistics] == []
    assert_agrees_with_pymc(model, step)


@pytest.mark.parametrize("sd", [12, np.int8(15), 300, {"tau": 3}])
def test_known_standard_deviation(sd):
    parameters = sd if isinstance(sd, dict) else {"sigma": sd}
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a", 0.0, pm.Data("c", 2.0)), **parameters, observed=Y)
        step = pg.GMC(compile_kwargs=INTERPRETED)
    assert [each.name for each in step.estimator.statistics] == ["y"]
    values, gradients = zip(
        *(evaluate_at(step, {"a": np.array(a)}) for a in (9e3, 1e4)), strict=True
    )
    logp = model.compile_logp(**INTERPRETED)
    expected = [logp({"a": np.array(a)}) for a in (9e3, 1e4)]
    # PyMC computes the logarithm of a small integer in single precision
    assert np.diff(values) == pytest.approx(np.diff(expected), rel=1e-9)
    for a, gradient in zip((9e3, 1e4), gradients, strict=True):
        np.testing.assert_allclose(gradient, model.compile_dlogp(**INTERPRETED)({"a": a}), 1e-9)


@pytest.mark.parametrize(
    "columns",
    [
        lambda x: x[:, np.newaxis] ** np.arange(7),
        lambda x: np.stack([np.ones(N), 2000.0 + x, (2000.0 + x) ** 2], axis=1),
        lambda x: np.stack([x, x, x**2, 1e6 * x, 1e-6 * np.sin(9.0 * x), 0.0 * x], axis=1),
    ],
    ids=["polynomial", "years", "scales"],
)
def test_columns_that_are_nearly_collinear(columns):
    """Errors of the log-density, near a least-squares solution, with small residuals."""
    rng = np.random.default_rng(0)
    design = columns(rng.random(N))
    coefficients = rng.normal(size=design.shape[1])
    y = design @ coefficients + 1e-4 * rng.normal(size=N)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1e3, shape=design.shape[1])
        pm.Normal("y", design @ b, 1e-4, observed=y)
        step = pg.GMC(compile_kwargs=INTERPRETED)
    assert [each.name for each in step.estimator.statistics] == ["y"]
    logp = model.compile_logp(**INTERPRETED)
    near = np.linalg.lstsq(design / np.abs(design).max(), y)[0] / np.abs(design).max()
    for b in (near, rng.normal(size=near.size)):
        value, _ = evaluate_at(step, {"b": b})
        assert value == pytest.approx(float(logp({"b": b})), rel=1e-11, abs=1e-3)


def test_crossed_effects_of_observations_far_from_zero():
    """The intercept is not attributed to the effects of groups, where terms would cancel."""
    y = 1e6 + RNG.normal(size=G)[GROUP] + RNG.normal(size=7)[OTHER] + RNG.normal(size=N)
    with pm.Model() as model:
        a, sd = pm.Normal("a", 1e6, 10.0), pm.HalfNormal("sd")
        e, f = pm.Normal("e", shape=G), pm.Normal("f", shape=7)
        pm.Normal("y", a + e[GROUP] + f[OTHER], sd, observed=y)
        step = pg.GMC(compile_kwargs=INTERPRETED)
    assert [each.name for each in step.estimator.statistics] == ["y"]
    logp = model.compile_logp(**INTERPRETED)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        point = {
            "a": 1e6 + rng.normal(), "e": rng.normal(size=G), "f": rng.normal(size=7),
            "sd_log__": np.array(0.1 * rng.normal()),
        }  # fmt: skip
        value, _ = evaluate_at(step, {name: np.array(each) for name, each in point.items()})
        assert value == pytest.approx(float(logp(point)), abs=1e-4)


def test_many_shared_terms_use_the_rows():
    with pm.Model():
        mean = pm.Normal("a") * X[:, 0]
        for _ in range(16):
            mean = mean + 0.1 * mean
        pm.Normal("y", mean, 1.0, observed=Y)
        step = pg.GMC(compile_kwargs=INTERPRETED)
    assert [each.name for each in step.estimator.statistics] == []


def test_variables_of_other_steps():
    with pm.Model() as model:
        a, tau, sd = pm.Normal("a"), pm.HalfNormal("tau"), pm.HalfNormal("sd")
        e = pm.Normal("e", shape=G)
        pm.Normal("y", a + tau * e[GROUP], sd, observed=Y)
        step = pg.GMC([a, e])
    assert [each.name for each in step.estimator.statistics] == ["y"]
    assert_agrees_with_pymc(model, step)


def test_unit_vectors():
    with pm.Model():
        direction = pg.VonMisesFisher("direction", mu=np.eye(K)[0], kappa=1.0)
        scale, sd = pm.Normal("scale"), pm.HalfNormal("sd")
        pm.Normal("y", X @ (scale * direction), sd, observed=Y)
        step = pg.GMC()
        draws = pm.sample(10, tune=10, step=step, chains=1, progressbar=False, random_seed=1)
    assert [each.name for each in step.estimator.statistics] == ["y"]
    assert np.isfinite(draws.sample_stats["lp"]).all()


def test_changed_data():
    with pm.Model(coords={"row": np.arange(N)}) as model:
        y, x = pm.Data("y_data", Y, dims="row"), pm.Data("x", X[:, 0], dims="row")
        group = pm.Data("group", GROUP, dims="row")
        a, e, sd = pm.Normal("a"), pm.Normal("e", shape=G), pm.HalfNormal("sd")
        pm.Normal("y", a * x + e[group], sd, observed=y, dims="row")
        step = pg.GMC()
        assert [each.name for each in step.estimator.statistics] == ["y"]
        # with as many rows, and other groups that occur together
        pm.set_data({"y_data": 2.0 * Y, "x": X[:, 1], "group": OTHER})
        step.estimator.refresh_data()
        assert_agrees_with_pymc(model, step)
        x.get_value(borrow=True)[:] = X[:, 2]  # in place
        step.estimator.refresh_data()
        assert_agrees_with_pymc(model, step)


def test_index_out_of_bounds():
    with pm.Model():
        e, sd = pm.Normal("e", shape=G), pm.HalfNormal("sd")
        pm.Normal("y", e[GROUP + 1], sd, observed=Y)
        with pytest.raises(ValueError, match=r"of 'array \d' gives the index 12 into 'e'"):
            pg.GMC()


def test_statistics_are_as_small_as_the_groups():
    """One number for each group, and for each pair of groups of the two classifications."""
    model = regression(lambda a, e, f, **_: a + e[GROUP] + f[OTHER])
    with model:
        logp_grad = pg.GMC(compile_kwargs=INTERPRETED).estimator.logp_grad
    names = [each.variable.name for each in logp_grad.inputs]
    n_entries = logp_grad.context[len(names) + names.index("entries")]
    assert n_entries <= (1 + G + 7) + (G + 7) + G * 7


def test_posterior_of_a_conjugate_model():
    """Normal mean and known variance: the posterior is normal."""
    with pm.Model():
        b = pm.Normal("b", 0.0, 10.0, shape=K)
        pm.Normal("y", X @ b, 1.0, observed=Y - 1e4)
        draws = pm.sample(
            2000, step=pg.GMC(), chains=2, progressbar=False, random_seed=1
        ).posterior["b"]
    precision = X.T @ X + np.eye(K) / 100.0
    mean, sd = np.linalg.solve(precision, X.T @ (Y - 1e4)), np.diag(np.linalg.inv(precision)) ** 0.5
    z = (draws.mean(("chain", "draw")) - mean) / sd
    assert np.abs(z).max() < 0.1
    np.testing.assert_allclose(draws.std(("chain", "draw")) / sd, 1.0, atol=0.06)


def test_minibatches_use_the_rows():
    with pm.Model():
        a, sd = pm.Normal("a"), pm.HalfNormal("sd")
        pm.Normal("y", a * X[:, 0], sd, observed=Y)
        step = pg.SGGMC(batch_size=100)
    assert [each.name for each in step.estimator.statistics] == []


def test_sparse_design():
    matrix = sparse.random_array((N, K), density=0.3, rng=RNG).tocsr()
    with pm.Model() as model:
        b, sd = pm.Normal("b", shape=K), pm.HalfNormal("sd")
        pm.Normal("y", SparseData("X", matrix) @ b, sd, observed=Y)
        step = pg.GMC(compile_kwargs=INTERPRETED)
    assert [each.name for each in step.estimator.statistics] == []
    assert_agrees_with_pymc(model, step)
