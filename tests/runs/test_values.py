"""Values of the variables of a run at a point are those that PyMC computes."""

import numpy as np
import pymc as pm
import pytest

from pymc_geodesic.runs.values import ValuesAt


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        a = pm.Normal("a", shape=2)
        s = pm.HalfNormal("s")
        pm.Deterministic("product", a * s)
        pm.Normal("b", a.sum(), s)
    return model


def variables(model, names):
    """What `pymc.sample` gives a trace: values, not random variables."""
    by_name = {v.name: v for v in model.unobserved_value_vars}
    return [by_name[name] for name in names]


@pytest.mark.parametrize(
    "names",
    [["a", "s", "product", "b"], ["b", "a"], ["product", "b", "s"], ["s"]],
    ids=" ".join,
)
def test_in_the_order_that_was_asked_for(model, names):
    point = {"a": np.array([1.0, 2.0]), "s_log__": np.array(np.log(3.0)), "b": np.array(-4.0)}
    expected = {
        "a": np.array([1.0, 2.0]), "s": 3.0, "product": np.array([3.0, 6.0]), "b": -4.0,
    }  # fmt: skip
    values_at = ValuesAt(model, variables(model, names))
    for name, value in zip(names, values_at(point), strict=True):
        np.testing.assert_allclose(value, expected[name], rtol=1e-14, err_msg=name)


def test_nothing_is_compiled_for_entries_of_the_point(model, monkeypatch):
    monkeypatch.setattr(pm.Model, "compile_fn", None)
    b, a = np.array(1.0), np.zeros(2)
    values_at = ValuesAt(model, variables(model, ["b", "a"]))
    found = values_at({"a": a, "s_log__": np.array(0.0), "b": b})
    assert found[0] is b
    assert found[1] is a
