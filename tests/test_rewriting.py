"""A graph that is rewritten as one before it becomes what it would by itself."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile import FunctionMaker
from pytensor.graph.basic import equal_computations

from tests.rewriting import rewrite_once

INTERPRETED = "FAST_COMPILE"


@pytest.fixture
def counted(monkeypatch):
    """How often a graph was rewritten, with nothing known at first."""
    prepare, calls = FunctionMaker.prepare_fgraph, []

    def count(*args):
        calls.append(args)
        prepare(*args)

    monkeypatch.setattr(FunctionMaker, "prepare_fgraph", staticmethod(count))
    rewrite_once(monkeypatch)
    return calls


def softmax_of(factor=2.0, shift=0.0, exponent=2):
    """A function whose gradient is rewritten, of a vector and of shared values."""
    x, shared = pt.dvector("x"), pytensor.shared(np.full(3, factor))
    z = shared * x + shift
    total = (pt.log1p(pt.exp(z)) ** exponent).sum()
    return pytensor.function([x], [total, pt.grad(total, x)], mode=INTERPRETED), shared


def test_it_is_rewritten_once(counted):
    first, _ = softmax_of()
    again, shared = softmax_of(3.0)
    assert len(counted) == 1
    graphs = first.maker.fgraph, again.maker.fgraph
    assert equal_computations(graphs[0].outputs, graphs[1].outputs, *(g.inputs for g in graphs))
    assert not set(graphs[0].apply_nodes) & set(graphs[1].apply_nodes)
    x = np.arange(3.0)
    before = first(x)
    shared.set_value(np.ones(3))
    other, _ = softmax_of(1.0)
    for one, two in zip(again(x), other(x), strict=True):
        np.testing.assert_array_equal(one, two)
    for one, two in zip(first(x), before, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("other", [{"shift": 1.0}, {"exponent": 4}])
def test_other_values_are_another_graph(counted, other):
    (first, _), (second, _) = softmax_of(), softmax_of(**other)
    assert len(counted) == 2
    assert first(np.arange(3.0))[0] != second(np.arange(3.0))[0]


def test_other_types_and_modes_are_others(counted):
    for variable in (pt.dvector("x"), pt.fvector("x"), pt.tensor("x", shape=(3,))):
        pytensor.function([variable], variable + 1.0, mode=INTERPRETED)
    assert len(counted) == 3
    x = pt.dvector("x")
    mode = pytensor.compile.get_mode(INTERPRETED)
    pytensor.function([x], x + 1.0, mode=mode.excluding("canonicalize"))
    pytensor.function([x], x + 1.0, mode=mode.excluding("canonicalize"))
    assert len(counted) == 4


def test_outputs_that_are_inputs_are_copied(counted):
    x = pt.dvector("x")
    for _ in range(2):
        f = pytensor.function([x], [x, x * 1.0, x], mode=INTERPRETED)
        given = np.ones(2)
        for value in f(given):
            assert not np.shares_memory(value, given)
    assert len(counted) == 1
    for _ in range(2):
        pytensor.function([x], pytensor.Out(x + 1.0, borrow=True), mode=INTERPRETED)
        pytensor.function([x], x + 1.0, mode=INTERPRETED)
    assert len(counted) == 3


def test_shared_values_are_updated(counted):
    for _ in range(2):
        count = pytensor.shared(0.0)
        step = pytensor.function([], count, updates={count: count + 1.0}, mode=INTERPRETED)
        assert [step() for _ in range(3)] == [0.0, 1.0, 2.0]
        assert count.get_value() == 3.0
    assert len(counted) == 1


def test_random_numbers_are_each_their_own(counted):
    """They are drawn in place, of generators that both functions update."""
    laws = [pm.Normal.dist(pm.Normal.dist()) + pm.Gamma.dist(2.0, 1.0) for _ in range(3)]
    functions = [
        pm.compile([], law, random_seed=seed, mode=INTERPRETED)
        for law, seed in zip(laws, (1, 2, 1), strict=True)
    ]
    assert all(hasattr(f.maker.fgraph, "has_destroyers") for f in functions)
    first, second, again = ([float(f()) for _ in range(3)] for f in functions)
    assert len(counted) == 1
    assert len({*first, *second}) == 6
    assert first == again


def test_what_is_read_is_not_overwritten_before(counted):
    x = pt.dvector("x")
    for _ in range(2):
        y = x * 2.0
        f = pytensor.function(
            [x],
            [pt.inc_subtensor(y[0], 5.0, inplace=True), y.sum()],
            mode=INTERPRETED,
            accept_inplace=True,
        )
        changed, total = f(np.ones(2))
        assert total == 4.0
        np.testing.assert_array_equal(changed, [7.0, 2.0])
    assert len(counted) == 1


def test_bounds_are_checked_where_they_are_asked_for(counted):
    sigma = pt.dscalar("sigma")
    density = pm.logp(pm.Normal.dist(0.0, sigma), 0.0)
    assert pm.compile([sigma], density, mode=INTERPRETED)(-1.0) == -np.inf
    with pm.Model(check_bounds=False), np.errstate(invalid="ignore"):
        assert np.isnan(pm.compile([sigma], density, mode=INTERPRETED)(-1.0))
    assert len(counted) == 2
