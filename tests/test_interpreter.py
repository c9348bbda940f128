"""The interpreter of the tests agrees with PyTensor's own."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.elemwise import Elemwise

from tests.interpreter import make_py_thunk

X, Y, K = pt.dmatrix("x"), pt.dvector("y"), pt.lvector("k")
VALUES = {
    X: np.array([[0.5, -2.0], [0.0, np.inf]]),
    Y: np.array([3.0, np.nan]),
    K: np.array([2, 0]),
}

GRAPHS = {
    "broadcast": X * Y + pt.exp(Y),
    "scalar": pt.sum(X) - pt.log(Y[0]),
    "sum of many": pt.add(X, Y, K, 1.0),
    "cast": K.astype("float32") / 3,
    "integers": K // 2 + K,
    "integers to float": pt.sqrt(K),
    "division by zero": 1.0 / X,
    "chosen": pt.where(X > 0.0, X, -Y),
    "booleans": pt.isnan(Y) | (K > 1),
    "without a function of NumPy": pt.softplus(X) + pt.gammaln(Y) + pt.switch(K, Y, 0),
    "gradient": pytensor.grad(pt.sum(pt.log1p(X**2) * pt.tanh(Y)), X),
}


def evaluate(graph, values=VALUES):
    inputs = [variable for variable in values if variable in pytensor.graph.graph_inputs([graph])]
    function = pytensor.function(inputs, graph, mode="FAST_COMPILE")
    return function(*(values[variable] for variable in inputs))


@pytest.fixture
def of_pytensor(monkeypatch):
    """Take the interpreter of the tests away."""
    assert Elemwise.make_py_thunk is make_py_thunk
    monkeypatch.delattr(Elemwise, "make_py_thunk")


@pytest.fixture(scope="module")
def ours():
    return {name: evaluate(graph) for name, graph in GRAPHS.items()}


@pytest.mark.parametrize("name", GRAPHS)
def test_numbers_and_types_are_those_of_pytensor(name, ours, of_pytensor):
    expected = evaluate(GRAPHS[name])
    assert type(ours[name]) is type(expected)
    assert ours[name].dtype == expected.dtype
    np.testing.assert_array_equal(ours[name], expected)


def test_a_length_of_one_that_was_none_before_is_refused():
    total = pytensor.function([X, Y], X + Y, mode="FAST_COMPILE")
    np.testing.assert_array_equal(total(np.ones((2, 2)), np.ones(2)), np.full((2, 2), 2.0))
    with pytest.raises(ValueError, match="Runtime broadcasting not allowed"):
        total(np.ones((2, 2)), np.ones(1))


def test_results_own_their_numbers():
    """NumPy views the real part, and a caller would change what another node reads."""
    z = pt.zvector("z")
    given = np.array([1.0 + 2.0j])
    real = pytensor.function([z], pt.real(z), mode="FAST_COMPILE")(given)
    assert not np.shares_memory(real, given)
