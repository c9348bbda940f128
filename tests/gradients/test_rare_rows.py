"""Gradient estimates that contain rare rows: unbiased, and without noise from these rows."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.runtime.gradient_functions import evaluate
from tests.gradients.rows_of_models import BY_DEFAULT, CASES, Setup, error, tolerance
from tests.grids import by_default

ORDERS = [0, 1, 2]


@pytest.fixture(scope="module", params=by_default(BY_DEFAULT, of=CASES), ids=str)
def setup(request):
    case = CASES[request.param]
    if case.order == "random":
        pytest.skip("minibatches are not consecutive rows")
    return Setup(case)


def use(setup: Setup, order: int, is_rare: np.ndarray) -> None:
    setup.gradient.remove_control_variates()
    setup.gradient.rare.set_rows(setup.source.arrays, is_rare, setup.case.batch_size)
    if order:
        setup.center(setup.here)
    if order == 2:
        assert setup.gradient.compile_second_order()
        setup.gradient.use_second_order(*setup.gradient.second_order_sums())


def some_rows(setup: Setup) -> np.ndarray:
    """Rows at both ends, of which the first ones are repeated at the end, and consecutive ones."""
    is_rare = np.zeros(setup.case.n_rows, dtype=bool)
    is_rare[[0, 5, 40, 41, 42, -1]] = True
    return is_rare


@pytest.mark.parametrize("order", ORDERS)
def test_mean_over_all_minibatches_is_the_full_gradient(setup, order):
    use(setup, order, some_rows(setup))
    estimates = setup.estimates(setup.there)
    assert error(estimates.mean(axis=0), setup.full(setup.there)[:-1]) < tolerance(setup)
    assert estimates.std(axis=0).max() > 1e-3


@pytest.mark.parametrize("order", ORDERS)
def test_no_noise_if_all_rows_are_rare(setup, order):
    use(setup, order, np.ones(setup.case.n_rows, dtype=bool))
    for estimate in setup.estimates(setup.there)[:: setup.case.batch_size]:
        assert error(estimate, setup.full(setup.there)[:-1]) < 10.0 * tolerance(setup)


@pytest.mark.parametrize("order", [1, 2])
def test_estimates_are_exact_at_the_center(setup, order):
    use(setup, order, some_rows(setup))
    for estimate in setup.estimates(setup.here):
        assert error(estimate, setup.full(setup.here)[:-1]) < tolerance(setup)


@pytest.mark.parametrize("order", [1, 2])
def test_state_contains_the_sums_over_all_rows(setup, order):
    """So that they are those of the rare rows where a chain is resumed."""
    use(setup, order, some_rows(setup))
    expected, state = setup.estimates(setup.there), setup.gradient.state
    use(setup, 0, np.zeros(setup.case.n_rows, dtype=bool))
    setup.gradient.rare.set_rows(setup.source.arrays, some_rows(setup), setup.case.batch_size)
    setup.gradient.state = state
    assert error(setup.estimates(setup.there), expected) < tolerance(setup)


def test_sums_over_streamed_rows_leave_the_rows_and_weights(setup):
    def interrupted():
        yield setup.source.arrays, 10
        raise EOFError

    total, output = setup.gradient.total, np.empty(setup.here.size + 1)
    total.set_rows(setup.source.arrays, 7)
    expected = total.sum_over(setup.here, [(setup.source.arrays, 7)])
    total.sum_over(setup.here, [(setup.source.arrays, 3)])
    with pytest.raises(EOFError):
        total.sum_over(setup.here, interrupted())
    evaluate(total.logp_grad.address, setup.here, 0, total.logp_grad.context, output)
    np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("order", ["C", "F"])
def test_data_without_rows_may_be_replaced(order):
    """Data in another order than that of C are copied whenever they are read."""
    rng = np.random.default_rng(0)
    x, matrix = rng.normal(size=(40, 3)), np.array(rng.normal(size=(3, 3)), order=order)
    with pm.Model() as model:
        rows, q = pm.Data("rows", x), pm.Data("q", matrix)
        b = pm.Normal("b", shape=3)
        pm.Normal("y", rows @ (q @ b), 1.0, observed=pm.Data("seen", x[:, 0]))
        step = pg.SGGMC(batch_size=10, minibatch=["rows", "seen"])
        source, at = step.estimator.source, np.ones(3)
        rare = step.sampler.adaptation.gradient.rare
        rare.set_rows(source.arrays, np.arange(40) < 7, 10)
        for factor in (1.0, 2.0):
            q_now = np.array(factor * matrix, order=order)
            model.set_data("q", q_now)
            step.estimator.refresh_data()
            taken, seen = (rare.arrays[name][:7] for name in ("rows", "seen"))
            expected = (taken @ q_now).T @ (seen - taken @ q_now @ at)
            np.testing.assert_allclose(rare.gradient(at), expected, rtol=1e-9)
