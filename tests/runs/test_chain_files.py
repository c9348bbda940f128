"""Files of a chain: values, sample stats and checkpoints round-trip."""

import numpy as np
import pymc as pm
import pytest
from pymc.stats.convergence import SamplerWarning, WarningType

from pymc_geodesic.runs.chain_files import ChainFiles, DrawBuffer
from pymc_geodesic.runs.chain_trace import PointEvaluator

KINDS = [
    {"size": np.dtype(float), "phase": np.dtype("<U7"), "diverging": np.dtype(bool)},
    {"size": np.dtype(float), "warning": np.dtype(object), "trees": np.dtype(object)},
]


def draw(i):
    """A draw whose values reuse the memory of the previous draw."""
    draw.memory[:] = i
    warning = SamplerWarning(WarningType.DIVERGENCE, f"at {i}", "warn") if i % 7 == 3 else None
    first = {"size": i / 3.0, "phase": "tune" if i < 5 else "sample"}
    if i % 2:
        first["diverging"] = True
    second = {"size": None, "warning": warning, "trees": np.array([i, i + 1])}
    return [draw.memory, np.float32(i)], [first, second]


draw.memory = np.zeros((2, 3))


@pytest.fixture
def files(tmp_path):
    return ChainFiles(tmp_path)


@pytest.mark.parametrize("lengths", [[1], [64], [65, 3], [5, 200, 1, 64]], ids=str)
def test_draws_round_trip(files, lengths):
    buffer, first = DrawBuffer(["x", "y"], KINDS), 0
    for n in lengths:
        for i in range(first, first + n):
            buffer.append(*draw(i))
        assert buffer.n == n
        files.write_draws(first, buffer.content())
        buffer.clear()
        first += n
    found = files.read()
    rows = np.arange(first)
    assert found.n == files.count() == first
    np.testing.assert_array_equal(found.values["x"], np.full((first, 2, 3), rows[:, None, None]))
    assert found.values["y"].dtype == np.float32
    one, other = found.stats
    np.testing.assert_array_equal(one["size"], rows / 3.0)
    np.testing.assert_array_equal(one["phase"], np.where(rows < 5, "tune", "sample"))
    np.testing.assert_array_equal(one["diverging"], rows % 2 == 1)
    np.testing.assert_array_equal(other["size"], np.zeros(first))
    np.testing.assert_array_equal(other["trees"], np.column_stack([rows, rows + 1]))
    assert len(other["warning"]) == first
    assert {i: w.message for i, w in enumerate(other["warning"]) if w is not None} == {
        i: f"at {i}" for i in range(first) if i % 7 == 3
    }


def test_draws_of_varying_shape_are_stored_in_a_list(files):
    buffer = DrawBuffer(["x"], [{"trees": np.dtype(object)}])
    trees = [np.zeros(2), np.zeros(3), None, np.ones(1)]
    for each in trees:
        buffer.append([np.zeros(1)], [{"trees": each}])
    files.write_draws(0, buffer.content())
    for was, now in zip(trees, files.read().stats[0]["trees"], strict=True):
        np.testing.assert_array_equal(was, now)


def test_unreadable_draws_are_not_counted(files):
    buffer = DrawBuffer(["x"], [])
    for first in range(3):
        buffer.append([np.zeros(1)], [])
        files.write_draws(first, buffer.content())
        buffer.clear()
    (files.folder / "draws-000000002.npz").write_bytes(b"nothing")
    assert files.count() == 2
    assert ChainFiles(files.folder / "nowhere").count() == 0


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        a = pm.Normal("a", shape=2)
        s = pm.HalfNormal("s")
        pm.Deterministic("product", a * s)
        pm.Normal("b", a.sum(), s)
    return model


def variables(model, names):
    """Points as `pymc.sample` passes them to a trace."""
    by_name = {v.name: v for v in model.unobserved_value_vars}
    return [by_name[name] for name in names]


@pytest.mark.parametrize(
    "names",
    [["a", "s", "product", "b"], ["b", "a"], ["product", "b", "s"], ["s"]],
    ids=" ".join,
)
def test_values_have_the_requested_order(model, names):
    point = {"a": np.array([1.0, 2.0]), "s_log__": np.array(np.log(3.0)), "b": np.array(-4.0)}
    expected = {
        "a": np.array([1.0, 2.0]), "s": 3.0, "product": np.array([3.0, 6.0]), "b": -4.0,
    }  # fmt: skip
    evaluate = PointEvaluator(model, variables(model, names))
    for name, value in zip(names, evaluate(point), strict=True):
        np.testing.assert_allclose(value, expected[name], rtol=1e-14, err_msg=name)


def test_entries_of_the_point_need_no_compilation(model, monkeypatch):
    monkeypatch.setattr(pm.Model, "compile_fn", None)
    b, a = np.array(1.0), np.zeros(2)
    evaluate = PointEvaluator(model, variables(model, ["b", "a"]))
    found = evaluate({"a": a, "s_log__": np.array(0.0), "b": b})
    assert found[0] is b
    assert found[1] is a
