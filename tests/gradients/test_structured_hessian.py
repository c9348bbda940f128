"""Second-order control variates of models with groups: structure of the Hessian, unbiasedness."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.gradients.metric import LowRank, Metric, unit_metric
from pymc_geodesic.gradients.structured_hessian import HessianStructure, StructuredHessian
from tests.gradients.rows_of_models import INTERPRETED, error, values

N, G, BATCH_SIZE = 300, 40, 30


def step_of(kind: str, control_variates="auto"):
    """Poisson regression with effects of 40 groups, of more than 64 coordinates."""
    rng = np.random.default_rng(1)
    group, other, x = rng.integers(G, size=N), rng.integers(G, size=N), rng.normal(size=N)
    with pm.Model() as model:
        rows, index = pm.Data("x", x), pm.Data("group", group)
        intercept, slope = pm.Normal("intercept", 0.0, 1.0), pm.Normal("slope", 0.0, 1.0)
        sd = pm.HalfNormal("sd", 1.0)
        if kind == "matrix":
            chol = sd * np.array([[1.0, 0.0], [0.5, 0.8]])
            both = pm.MvNormal("both", 0.0, chol=chol, shape=(G, 2))
            first, second = both[:, 0], both[:, 1]
        else:
            first = pm.Normal("first", 0.0, sd, shape=G)
        if kind == "correlated":
            second = pm.Normal("second", 0.5 * first, 0.3, shape=G)
        elif kind == "zero-sum":
            second = pm.ZeroSumNormal("second", shape=G + 1)[:G]
        elif kind != "matrix":
            second = pm.Normal("second", 0.0, 1.0, shape=G)
        if kind == "crossed":
            log_rate = intercept + slope * rows + first[index] + second[pm.Data("other", other)]
        elif kind == "non-centered":
            log_rate = intercept + slope * rows + sd * second[index] + first[index]
        else:
            log_rate = intercept + first[index] + (slope + second[index]) * rows
        pm.Poisson("y", pm.math.exp(0.3 * log_rate), observed=pm.Data("t", rng.poisson(1.0, N)))
        return pg.SGGMC(
            model=model,
            batch_size=BATCH_SIZE,
            control_variates=control_variates,
            compile_kwargs=INTERPRETED,
        )


def centered(step):
    """Gradient with second order at a random point, and another point."""
    gradient = step.adaptation.gradient
    gradient.set_metric(unit_metric(gradient.size))
    here, there = 0.5 * np.random.default_rng(2).normal(size=(2, gradient.size))
    gradient.center_at(here, gradient.gradient_of_all_rows(here))
    assert gradient.compile_second_order()
    gradient.use_second_order(*gradient.second_order_sums())
    return gradient, here, there


def estimates(step, x):
    step.estimator.next_minibatches(1)
    function = step.adaptation.gradient.estimated
    return np.array([values(function, x, x.size, start) for start in range(N)])


def difference_hessian(gradient, x):
    steps = 1e-5 * np.eye(x.size)
    columns = [gradient(x + each) - gradient(x - each) for each in steps]
    return np.array(columns) / 2e-5


@pytest.fixture(scope="module", params=["independent", "correlated", "matrix", "non-centered"])
def step(request):
    return step_of(request.param)


def test_few_products_determine_the_hessian(step):
    gradient, here, _ = centered(step)
    hessian = gradient.second_order.hessian
    assert hessian.structure.n_products == 5
    expected = difference_hessian(gradient.gradient_of_rows, here)
    found = np.array([hessian.times(each) for each in np.eye(gradient.size)])
    assert error(found, expected) < 1e-7


def low_rank_metric(size):
    rng = np.random.default_rng(4)
    directions = np.linalg.qr(rng.normal(size=(size, 2)))[0]
    return Metric(np.zeros(size), LowRank(rng.uniform(0.1, 0.3, size), directions, np.ones(2) * 3))


@pytest.mark.parametrize("clipping_distance", [np.inf, 0.5])
def test_mean_over_all_minibatches_is_the_full_gradient(step, clipping_distance):
    gradient, here, there = centered(step)
    gradient.second_order.set_metric(low_rank_metric(gradient.size))
    gradient.clipping_distance[:] = clipping_distance
    found = estimates(step, there)
    assert found.std(axis=0).max() > 1e-3
    assert error(found.mean(axis=0), gradient.gradient_of_all_rows(there)) < 1e-10
    assert error(estimates(step, here), gradient.gradient_of_all_rows(here)[np.newaxis]) < 1e-10


@pytest.mark.parametrize("kind", ["crossed", "zero-sum"])
def test_coupled_groups_have_no_second_order(kind):
    assert not step_of(kind).adaptation.gradient.compile_second_order()


@pytest.mark.parametrize("pair", [(0, 1), (3, 7), (17, 39)])
@pytest.mark.parametrize("unit", [1.0, 1e-9])
def test_every_pair_of_coupled_groups_is_found(pair, unit):
    """Also next to another variable whose gradients are 10¹⁸ times as large."""
    structure = HessianStructure.by_group([(), (G,), (G,)])

    def gradient(x):
        found = -x.copy()
        found[1 : G + 1] /= unit**2
        found[1 + G + pair[0]] -= 0.1 * x[1 + G + pair[1]]
        found[1 + G + pair[1]] -= 0.1 * x[1 + G + pair[0]]
        return found

    points = np.random.default_rng(1).normal(size=(2, 2 * G + 1))
    assert structure.coupling(gradient, *points) > 1.0
    assert structure.coupling(lambda x: -x, *points) == 0.0


def test_variables_on_a_sphere_have_no_groups():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 80))
    with pm.Model() as model:
        u = pg.UniformSphere("u", shape=80)
        pm.Bernoulli("y", logit_p=pm.Data("x", x) @ u, observed=rng.integers(0, 2, 200))
        step = pg.SGGMC(model=model, batch_size=20, compile_kwargs=INTERPRETED)
    assert not step.adaptation.gradient.compile_second_order()


def test_data_that_couple_groups_later_raise():
    rng = np.random.default_rng(1)
    group = rng.integers(G, size=N)
    with pm.Model() as model:
        weight = pm.Data("weight", np.zeros(N))
        a, b = (pm.Normal(name, shape=G) for name in "ab")
        mean = a[group] + b[group] + weight * a[(group + 1) % G]
        pm.Poisson("y", pm.math.exp(0.3 * mean), observed=rng.poisson(1.0, N))
        step = pg.SGGMC(
            model=model, batch_size=BATCH_SIZE, control_variates=2, compile_kwargs=INTERPRETED
        )
        centered(step)
        pm.set_data({"weight": np.ones(N)})
    step.setup_chain(np.random.default_rng(1), 0, 10)
    with pytest.raises(ValueError, match="Construct the step again"):
        centered(step)


def test_dense_hessian_of_coupled_groups_on_request():
    step = step_of("crossed", control_variates=2)
    gradient, _, there = centered(step)
    assert gradient.second_order.hessian.structure.n_products == gradient.size
    exact = gradient.gradient_of_all_rows(there)
    assert error(estimates(step, there).mean(axis=0), exact) < 1e-10


def test_state_includes_the_hessian(step):
    gradient, _, there = centered(step)
    state, expected = gradient.state, estimates(step, there)
    gradient.remove_control_variates()
    gradient.state = state
    np.testing.assert_array_equal(estimates(step, there), expected)


@pytest.mark.parametrize(
    "shapes", [[(3,)], [(), (4,), (2,), (4,)], [(4,), (4,)], [(2,), (4, 3), (2, 4)]]
)
def test_product_with_a_dense_matrix(shapes):
    structure = HessianStructure.by_group(shapes)
    rng = np.random.default_rng(1)
    dense = rng.normal(size=(structure.size, structure.size))
    dense += dense.T
    group = np.full(structure.size, -1)
    for vector in structure.vectors:
        group[vector] = np.arange(structure.n_groups)
    is_coupled = (group == group[:, np.newaxis]) | (group < 0) | (group < 0)[:, np.newaxis]
    dense[~is_coupled] = 0.0
    products = structure.directions() @ dense
    hessian = StructuredHessian.from_products(structure, products)
    v = rng.normal(size=structure.size)
    np.testing.assert_allclose(hessian.times(v), dense @ v)


def metrics():
    rng = np.random.default_rng(5)
    dense = Metric(np.zeros(4), rng.normal(size=(4, 4)) + 3.0 * np.eye(4))
    return [low_rank_metric(4), dense, Metric(np.zeros(4), rng.uniform(1.0, 2.0, 4))]


def covariance_of(metric):
    factor = metric.to_direction(np.eye(4)).T
    return factor @ factor.T


@pytest.mark.parametrize("metric", metrics(), ids=["low rank", "dense", "diagonal"])
def test_standard_deviations_and_precision_of_a_metric(metric):
    covariance = covariance_of(metric)
    np.testing.assert_allclose(metric.sd**2, np.diag(covariance))
    np.testing.assert_allclose(metric.precision, np.diag(np.linalg.inv(covariance)))


@pytest.mark.parametrize("metric", metrics(), ids=["low rank", "dense", "diagonal"])
def test_rescaled_metric(metric):
    ratio = np.array([1.0, 2.0, 0.5, 1.2])
    expected = np.outer(ratio, ratio) * covariance_of(metric)
    if isinstance(metric.factor, LowRank):  # only its diagonal part is rescaled
        scale = metric.factor.scale
        expected = covariance_of(metric) + np.diag((ratio**2 - 1.0) * scale**2)
    np.testing.assert_allclose(covariance_of(metric.rescaled(ratio)), expected, atol=1e-12)
