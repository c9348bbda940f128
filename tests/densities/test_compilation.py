"""Equality of compiled gradient functions of all backends."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_geodesic.densities.compilation import FixedArray, RowBlock, compile_gradient
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.distributions import UniformSphere, VonMisesFisher
from pymc_geodesic.gradients.minibatch_gradient import MinibatchGradient
from pymc_geodesic.minibatches.resident_rows import ShuffledRows
from pymc_geodesic.minibatches.source import AllRows
from pymc_geodesic.runtime.gradient_functions import evaluate
from tests.grids import slow
from tests.processes import in_its_own_process

POSITION = np.array([0.6, 0.0, 0.8, 0.3, -0.2])


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(1)
    x = rng.normal([2.0, 0.0, 1.0], 1.0, size=(30, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    with pm.Model() as model:
        scale = pm.Data("scale", np.array(2.0))
        mu = UniformSphere("mu", shape=3)
        b = pm.Normal("b", 0.0, scale, shape=2)
        VonMisesFisher("x_obs", mu, pm.math.exp(b.sum()), observed=pm.Data("x", x))
    return model


def output_of(model, mode):
    """Gradients of three minibatches; the gradient of all rows, and behind it the value."""
    minibatches = ShuffledRows({"x": model["x"].get_value()}, 7)
    results = []
    for source, starts, size in ((minibatches, (0, 4, 29), 5), (AllRows(), (0,), 6)):
        estimator = MinibatchGradient(
            RowDensity(model, manifold_variables(model, ["mu", "b"]), source),
            with_value=size > POSITION.size,
            compile_kwargs=None if mode is None else {"mode": mode},
        )
        assert estimator.has_value == (size > POSITION.size)
        for start in starts:
            logp_grad, output = estimator.logp_grad, np.full(size, np.nan)
            evaluate(logp_grad.address, POSITION, start, logp_grad.context, output)
            logp_grad.raise_error()
            assert np.isfinite(output).all()
            results.append(output)
    return np.concatenate(results)


@pytest.mark.parametrize("mode", [None, slow("CVM")])
def test_gradient_and_value_do_not_depend_on_the_backend(model, mode):
    np.testing.assert_allclose(
        output_of(model, mode), output_of(model, "FAST_COMPILE"), rtol=1e-9, atol=1e-9
    )


@pytest.mark.slow
def test_jax(model):
    pytest.importorskip("jax")
    np.testing.assert_allclose(
        in_its_own_process(output_of, model, "JAX"),
        output_of(model, "FAST_COMPILE"),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("mode", [None, "FAST_COMPILE"])
def test_inputs_of_every_kind(mode):
    """Scalars, integers, fixed arrays and blocks of rows, and outputs that are not contiguous."""
    q = pt.matrix("q", shape=(2, 3))
    s = pt.scalar("s")
    scale = pt.tensor("scale", dtype="float64", shape=())
    shift = pt.matrix("shift", shape=(3, 2))
    counts = pt.tensor("counts", dtype="int64", shape=(4,))
    inputs = [
        FixedArray(scale, ()),
        FixedArray(shift, (3, 2)),
        RowBlock(counts, (4,)),
    ]
    gradients = [scale * (q.T + shift).T * counts.sum(), s * counts[0]]
    logp_grad = compile_gradient(
        [q, s], inputs, gradients, pt.atleast_1d(q.sum() + s), {"mode": mode} if mode else None
    )
    rng = np.random.default_rng(1)
    shifts, all_counts = rng.normal(size=(3, 2)), np.arange(20)
    for i, array in enumerate((np.array(2.5), shifts, all_counts)):
        logp_grad.point_at(i, array)
    position, output = rng.normal(size=7), np.empty(8)
    evaluate(logp_grad.address, position, 6, logp_grad.context, output)
    logp_grad.raise_error()
    rows = position[:6].reshape(2, 3)
    np.testing.assert_allclose(
        output[:6].reshape(2, 3), 2.5 * (rows + shifts.T) * (6 + 7 + 8 + 9), rtol=1e-13
    )
    assert output[6] == pytest.approx(6.0 * position[6])
    assert output[7] == pytest.approx(position.sum())


@pytest.mark.parametrize("mode", [None, "FAST_COMPILE"])
def test_number_of_rows_as_the_argument(mode):
    """Coordinates and data with the first rows; the argument is their number."""
    q = pt.matrix("q", shape=(None, 2))
    data = pt.matrix("data", shape=(None, 2))
    logp_grad = compile_gradient(
        [q],
        [RowBlock(data, (None, 2))],
        [data - q],
        -0.5 * ((q - data) ** 2).sum(axis=1),
        {"mode": mode} if mode else None,
    )
    rows = np.arange(10.0).reshape(5, 2)
    logp_grad.point_at(0, rows)
    for n in (1, 3, 5):
        position, output = np.ones(2 * n), np.empty(3 * n)
        evaluate(logp_grad.address, position, n, logp_grad.context, output)
        logp_grad.raise_error()
        np.testing.assert_allclose(output[: 2 * n].reshape(n, 2), rows[:n] - 1.0)
        np.testing.assert_allclose(output[2 * n :], -0.5 * ((rows[:n] - 1.0) ** 2).sum(axis=1))


def test_error_of_an_interpreted_gradient_is_raised():
    q = pt.vector("q", shape=(2,))
    data = pt.vector("data", shape=(3,))
    logp_grad = compile_gradient(
        [q],
        [FixedArray(data, (3,))],
        [pt.specify_shape(q * data[: (data[0] > 0).astype(int) + 1], (2,))],
        None,
        {"mode": "FAST_COMPILE"},
    )
    output = np.empty(2)
    logp_grad.point_at(0, np.array([1.0, 1.0, 1.0]))
    evaluate(logp_grad.address, np.ones(2), 0, logp_grad.context, output)
    logp_grad.raise_error()
    logp_grad.point_at(0, np.array([-1.0, 1.0, 1.0]))
    evaluate(logp_grad.address, np.ones(2), 0, logp_grad.context, output)
    assert np.isnan(output[0])
    with pytest.raises((ValueError, AssertionError)):
        logp_grad.raise_error()
    logp_grad.raise_error()  # once


class Halved(Op):
    """An Op that Numba runs in Python, and that can be made to fail."""

    fails = False

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        if self.fails:
            raise RuntimeError("the simulator broke")
        outputs[0][0] = 0.5 * inputs[0]


def test_python_error_in_compiled_code_is_raised():
    x, halved = pt.dvector("x", shape=(2,)), Halved()
    with pytest.warns(UserWarning, match="Numba will use object mode"):
        logp_grad = compile_gradient([x], [], [halved(x)])
    assert logp_grad.interpreted
    output = np.full(2, np.nan)
    evaluate(logp_grad.address, np.array([2.0, 4.0]), 0, logp_grad.context, output)
    logp_grad.raise_error()
    np.testing.assert_array_equal(output, [1.0, 2.0])
    halved.fails = True
    evaluate(logp_grad.address, np.array([2.0, 4.0]), 0, logp_grad.context, output)
    with pytest.raises(RuntimeError, match="the simulator broke"):
        logp_grad.raise_error()
