"""Evaluation of graphs in Python, without the C compiler, and splitting of graphs."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.inner_function import HasInnerFunction
from pytensor.compile.mode import Mode
from pytensor.link.c.op import COp

from pymc_geodesic.densities.graphs import (
    split_at_transcendental,
    unoptimized_function,
    without_c_compiler,
)


def make():
    """A vector, and its square within an Op with its own graph, which is compiled once."""
    x = pt.vector("x")
    return [x], OpFromGraph([x], [x**2])(x).sum()


@pytest.fixture
def requested(monkeypatch):
    """Ops for which C code is requested."""
    found = []

    def fail(op, *_):
        found.append(op)
        raise NotImplementedError

    monkeypatch.setattr(COp, "make_c_thunk", fail)
    # other tests change this
    monkeypatch.setattr(OpFromGraph, "link_mode", HasInnerFunction.link_mode)
    return found


def test_no_c_code_is_compiled_for_the_graph_within_an_op(requested):
    inputs, total = make()
    assert unoptimized_function(inputs, total)([1.0, 2.0]) == 5.0
    assert requested == []


MODES = [Mode(linker="py", optimizer=None), "FAST_COMPILE"]


@pytest.mark.parametrize("mode", MODES, ids=["unoptimized", "FAST_COMPILE"])
def test_pytensor_compiles_the_graph_within_an_op(requested, mode):
    """Otherwise `without_c_compiler` is not needed."""
    with without_c_compiler():
        pytensor.function(*make(), mode=mode)
    assert requested == []
    if pytensor.config.cxx:
        pytensor.function(*make(), mode=mode)
        assert requested


def test_configuration_is_restored():
    before = pytensor.config.cxx
    inputs, total = make()
    unoptimized_function(inputs, [total])
    assert pytensor.config.cxx == before


theta = pt.dscalar("theta")
y = pt.tensor("y", dtype="float64", shape=(200,))
counts = pt.tensor("counts", dtype="int64", shape=(200,))
resized = pt.tensor("resized", dtype="float64", shape=(None,))


@pytest.mark.parametrize(
    ("output", "sizes"),
    [
        (theta * pt.gammaln(counts + 1), [200]),
        (theta * (2.0 * pt.log(y) + 1.0), [200]),
        (theta * pt.sum(pt.log(y)), [1]),
        (theta * pt.log(y) + pt.exp(theta * y), [200]),
        (theta * pt.log(y)[counts > 1], [200]),  # of unknown length
        (pt.log(y), [200]),
        (theta * y**0.3, [200]),
        (theta * y**2 + counts.astype("float64") * (y > 0.0), []),
        (theta * pt.log(y[:50]), []),
        (theta * pt.log(resized), []),
        (pt.log(theta * y), []),
        (theta * pt.exp(y), [200]),
        (pt.exp(theta) * pt.exp(y), []),
    ],
    ids=str,
)
def test_transcendental_functions_of_data_are_split_off(output, sizes):
    split = split_at_transcendental([output], [theta, resized])
    assert [variable.type.shape for variable in split.inputs] == [
        variable.type.shape for variable in split.fixed
    ]
    data = {y: np.linspace(0.1, 3.0, 200), counts: np.arange(200), resized: np.arange(1.0, 5.0)}
    fixed = unoptimized_function(list(data), split.fixed)(*data.values())
    assert [array.size for array in fixed] == sizes
    values = {theta: 0.7} | data
    expected = unoptimized_function(list(values), output)(*values.values())
    inputs = [*values, *split.inputs]
    (found,) = unoptimized_function(inputs, split.outputs)(*values.values(), *fixed)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
