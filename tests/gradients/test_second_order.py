"""Second-order control variates: unbiasedness, and order of the noise."""

import copy
import inspect

import numpy as np
import pymc as pm
import pytest
from numba import njit

import pymc_geodesic as pg
from pymc_geodesic.densities.smoothness import has_kinks
from pymc_geodesic.gradients import control_variate_gradients
from pymc_geodesic.gradients.metric import Metric
from tests.gradients.rows_of_models import (
    BY_DEFAULT,
    CASE,
    CASE_INTERPRETED,
    CASES,
    Setup,
    error,
    rows_of,
    tolerance,
    values,
)
from tests.grids import by_default


@pytest.fixture(scope="module", params=by_default(BY_DEFAULT, of=CASES), ids=str)
def setup(request):
    setup = Setup(CASES[request.param])
    assert setup.gradient.compile_second_order()
    return setup


@pytest.fixture(scope="module")
def plain():
    setup = Setup(CASE)
    assert setup.gradient.compile_second_order()
    return setup


def use_second_order(setup: Setup) -> None:
    setup.center(setup.here)
    setup.gradient.use_second_order(*setup.gradient.second_order_sums())


def difference_hessian(setup: Setup, x: np.ndarray) -> np.ndarray:
    """Hessian of the terms of all rows, by differences of their gradient."""
    gradient = setup.gradient.gradient_of_rows
    steps = 1e-5 * np.eye(x.size)
    return np.array([gradient(x + e) - gradient(x - e) for e in steps]).T / 2e-5


def test_hessian_is_that_of_the_terms_of_all_rows(setup):
    setup.center(setup.here)
    setup.gradient.use_second_order(*setup.gradient.second_order_sums())
    found = setup.gradient.second_order.hessian.rows
    tolerance_of_differences = max(1e3 * tolerance(setup), 1e-7)
    assert error(found, difference_hessian(setup, setup.here)) < tolerance_of_differences
    assert error(found, found.T) < tolerance(setup)


def test_estimates_are_exact_at_the_center(setup):
    use_second_order(setup)
    for estimate in setup.estimates(setup.here):
        assert error(estimate, setup.full(setup.here)[:-1]) < tolerance(setup)


def test_mean_over_all_minibatches_is_the_full_gradient(setup):
    if setup.case.order == "random":
        pytest.skip("rows with replacement have more minibatches than can be listed")
    use_second_order(setup)
    estimates = setup.estimates(setup.there)
    assert error(estimates.mean(axis=0), setup.full(setup.there)[:-1]) < tolerance(setup)
    assert estimates.std(axis=0).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2])
def test_noise_decreases_with_the_order(plain, order):
    use_second_order(plain)
    plain.gradient.order = order
    direction = plain.there - plain.here
    noise = [
        np.sqrt(np.mean(plain.estimates(plain.here + length * direction).var(axis=0)))
        for length in (2e-3, 1e-3)
    ]
    assert noise[0] / noise[1] == pytest.approx(2.0**order, rel=0.05)


FAR = 8.0
"""Distance from the centering point, in coordinates of the model, here also those of the metric."""


def far_estimates(setup: Setup, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Estimates where the rows are uninformative about a scale, far from the centering point."""
    far = setup.here.copy()
    far[setup.step.product.slices["log_sd"]] += FAR
    setup.gradient.order = order
    return setup.estimates(far), setup.full(far)[:-1]


def noise_far_away(setup: Setup) -> float:
    """Noise of second order over that of first."""
    first, second = (far_estimates(setup, order)[0].std(axis=0).max() for order in (1, 2))
    return float(second / first)


def test_noise_far_away_is_bounded_by_clipping(plain):
    use_second_order(plain)
    plain.gradient.clipping_distance[:] = control_variate_gradients.SETTINGS.clipping_distance
    estimates, exact = far_estimates(plain, 2)
    assert error(estimates.mean(axis=0), exact) < tolerance(plain)
    # derivatives of a power exp(-2 s) at the centering point: 1, and 1 + 2 r with second order
    bound = 1.0 + 2.0 * control_variate_gradients.SETTINGS.clipping_distance
    assert noise_far_away(plain) < 1.1 * bound
    plain.gradient.clipping_distance[:] = np.inf
    assert noise_far_away(plain) > 2.0 * bound


@pytest.mark.parametrize(
    "clipping_distance",
    [np.full(3, 0.5), np.full(3, np.inf), np.array([np.inf, 0.1, 2.0])],
    ids=str,
)
def test_whitened_coordinates_are_clipped(clipping_distance):
    rng = np.random.default_rng(1)
    factor = rng.normal(size=(3, 3)) + 2.0 * np.eye(3)
    z = np.array([0.3, -1.0, 4.0])
    away = np.append(factor @ z, 7.0)
    control_variate_gradients.clip_in_coordinates(
        away, factor, np.linalg.inv(factor), clipping_distance, np.empty(3)
    )
    np.testing.assert_allclose(
        away[:3], factor @ np.clip(z, -clipping_distance, clipping_distance), atol=1e-12
    )
    assert away[3] == 7.0


def test_clipping_uses_the_metric():
    setup = Setup(CASE_INTERPRETED)
    assert setup.gradient.compile_second_order()
    use_second_order(setup)
    d = setup.gradient.n_euclidean
    setup.gradient.clipping_distance[:] = control_variate_gradients.SETTINGS.clipping_distance
    before = noise_far_away(setup)
    setup.gradient.set_metric(Metric(np.zeros(d), 10.0 * np.eye(d), np.ones(1)))
    assert noise_far_away(setup) > 2.0 * before  # the distance of 8 is less than one sd now


def worst_errors(setup: Setup) -> tuple[float, float]:
    """Errors at the centering point, and of the change of the mean over all minibatches."""
    known = setup.full(setup.here)[:-1]
    at_center = max(error(g, known) for g in setup.estimates(setup.here))
    mean, exact = setup.estimates(setup.there).mean(axis=0), setup.full(setup.there)[:-1]
    return at_center, float(np.abs((mean - exact) / (exact - known)).max())


def with_hessian(setup, hessian):
    setup.gradient.use_second_order(setup.gradient.second_order.total.copy(), hessian)


def hessian_of_some_rows(setup):
    arrays, n_rows = next(iter(setup.source.all_rows()))
    n_rows -= n_rows % setup.case.batch_size
    with_hessian(setup, setup.gradient.curvature.hessian(setup.here, [(arrays, n_rows)]))


def hessian_of_rows_and_other_terms(setup):
    hessian = copy.deepcopy(setup.gradient.second_order.hessian)
    hessian.rows[:] += np.diag(np.full(setup.here.size, -0.25))
    with_hessian(setup, hessian)


def total_of_rows_and_other_terms(setup):
    second = setup.gradient.second_order
    total = setup.gradient.gradient_of_all_rows(setup.here)
    setup.gradient.use_second_order(total, copy.deepcopy(second.hessian))


def hessian_by_half_of_the_rows_twice(setup):
    arrays, n_rows = next(iter(setup.source.all_rows()))
    half = [(arrays, n_rows // 2)] * 2
    with_hessian(setup, setup.gradient.curvature.hessian(setup.here, half))


def stale_hessian(setup):
    parts = setup.source.all_rows()
    with_hessian(setup, setup.gradient.curvature.hessian(setup.there, parts))


def stale_total(setup):
    second, gradient = setup.gradient.second_order, setup.gradient.gradient_of_all_rows
    total = second.total + gradient(setup.there) - gradient(setup.here)
    setup.gradient.use_second_order(total, copy.deepcopy(second.hessian))


def stale_center(setup):
    setup.gradient.second_order.center[:] = setup.there


def minibatch_counts_once(setup):
    setup.gradient.curvature.weights[2] = 1.0


def edited(setup, old, new):
    """Replace the estimate by a mutant."""
    source = inspect.getsource(control_variate_gradients._second_order_estimate.py_func)
    assert source.count(old) == 1
    scope = dict(vars(control_variate_gradients))
    exec(source[source.index("def ") :].replace(old, new), scope)
    second = setup.gradient.second_order
    function = control_variate_gradients.ComposedFunction(
        njit(scope["_second_order_estimate"]), second.of_others.context, [], second
    )
    coordinates = type(setup.gradient._by_order[0])(
        function, setup.here.size, setup.gradient.widths
    )
    setup.gradient._by_order[2] = coordinates


def curvature_of_another_minibatch(setup):
    edited(setup, "+ minibatch * blocks", "+ (minibatch + 1) * blocks")


def wrong_sign(setup):
    edited(setup, "- at_center[size + i]", "+ at_center[size + i]")


def curvature_along_the_position(setup):
    edited(setup, "x[i] - center[i]", "x[i]")


@pytest.mark.parametrize(
    "fault",
    [
        hessian_of_some_rows,
        hessian_of_rows_and_other_terms,
        total_of_rows_and_other_terms,
        hessian_by_half_of_the_rows_twice,
        stale_hessian,
        stale_total,
        stale_center,
        minibatch_counts_once,
        curvature_of_another_minibatch,
        wrong_sign,
        curvature_along_the_position,
    ],
)
def test_mutants_are_rejected(plain, fault):
    use_second_order(plain)
    assert max(worst_errors(plain)) < 1e-10
    coordinates, weights = plain.gradient._by_order[2], plain.gradient.curvature.weights.copy()
    fault(plain)
    assert max(worst_errors(plain)) > 1e-6
    plain.gradient._by_order[2] = coordinates
    plain.gradient.curvature.weights[:] = weights


def test_state_includes_the_hessian(plain):
    use_second_order(plain)
    plain.gradient.clipping_distance[:] = 0.5 + np.arange(plain.gradient.n_euclidean)
    state, expected = plain.gradient.state, plain.estimates(plain.there)
    plain.center(plain.there)
    plain.gradient.clipping_distance[:] = np.inf
    plain.gradient.state = state
    assert plain.gradient.order == 2
    np.testing.assert_array_equal(plain.estimates(plain.there), expected)
    plain.gradient.remove_control_variates()
    assert "hessian" not in plain.gradient.state


def test_new_data_update_the_hessian():
    setup = Setup(CASE_INTERPRETED)
    assert setup.gradient.compile_second_order()
    use_second_order(setup)
    x, y = rows_of(setup.case)
    with setup.model:
        pm.set_data({"x": 2.0 * x, "t": y - 1.0})
    setup.take_full(2.0 * x, y - 1.0)
    setup.step.setup_chain(np.random.default_rng(1), 0, 2)
    setup.gradient.order = 2
    setup.gradient.recompute_center()
    assert setup.gradient.order == 2
    assert max(worst_errors(setup)) < 1e-10


@pytest.mark.slow
def test_sparse_rows_have_second_derivatives():
    from scipy.sparse import random as random_sparse

    x = random_sparse(101, 6, density=0.4, random_state=1, format="csr")
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 2.0, shape=6)
        rows = pg.SparseData("x", x)
        observed = pm.Data("t", np.arange(101) % 2)
        pm.Bernoulli("y", logit_p=rows @ b, observed=observed)
        step = pg.SGGMC(minibatch=["x", "t"], batch_size=30, control_variates=2)
    gradient = step.adaptation.gradient
    here, there = np.random.default_rng(5).normal(size=(2, 6))
    gradient.center_at(here, gradient.gradient_of_all_rows(here))
    gradient.use_second_order(*gradient.second_order_sums())
    step.estimator.next_minibatches(1)
    estimates = [values(gradient.estimated, there, 6, start) for start in range(101)]
    assert error(np.mean(estimates, axis=0), gradient.gradient_of_all_rows(there)) < 1e-10
    odds = 1.0 / (1.0 + np.exp(-x @ here))
    hessian = -(x.toarray().T * (odds * (1.0 - odds))) @ x.toarray()
    assert error(gradient.second_order.hessian.rows, hessian) < 1e-10
    assert model is step.model


def kinked(name: str):
    with pm.Model() as model:
        x = pm.Data("x", np.ones((20, 2)))
        b = pm.Normal("b", 0.0, 1.0, shape=2)
        signs = np.where(np.arange(20) % 2, 1, -1)
        if name == "hinge":
            pg.Hinge("y", x @ b, observed=signs)
        elif name == "laplace":
            pm.Laplace("y", x @ b, 1.0, observed=signs)
        elif name == "logistic":
            pm.Bernoulli("y", logit_p=x @ b, observed=(signs + 1) // 2)
        elif name == "poisson":
            pm.Poisson("y", pm.math.exp(x @ b), observed=signs + 1)
        elif name == "student":
            pm.StudentT("y", nu=4, mu=x @ b, sigma=1.0, observed=signs)
    return model


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hinge", True),
        ("laplace", True),
        ("logistic", False),
        ("poisson", False),
        ("student", False),
    ],
)
def test_kinks(name, expected):
    model = kinked(name)
    assert has_kinks(model.logp(model.observed_RVs, sum=False), model.value_vars) == expected
