"""Evaluation of graphs in Python, without the C compiler."""

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.inner_function import HasInnerFunction
from pytensor.compile.mode import Mode
from pytensor.link.c.op import COp

from pymc_geodesic.densities.graphs import unoptimized_function, without_c_compiler


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
