"""Log-density and gradient of every distribution, with inferred parameters, by three back ends."""

from functools import cache

import numpy as np
import pytest

import pymc_geodesic
from benchmarks.every_distribution import CASES, ROWS, TRANSFORMS, model_of
from tests.grids import by_default, slow
from tests.processes import in_its_own_process

BY_DEFAULT = ("Watson", "Kent", "FisherBingham", "MatrixAngularCentralGaussian")
"""Distributions with JAX functions of their own, or for which JAX needs static shapes."""

NO_DISTRIBUTIONS = {"rotation_to", "circular_link"}


def values(name, mode):
    """Return log-density and gradient near the initial point."""
    model = model_of(name)
    rng = np.random.default_rng(1)
    point = {
        variable: value + 0.1 * rng.standard_normal(value.shape)
        for variable, value in model.initial_point().items()
    }
    outputs = [model.logp(), model.dlogp()]
    compiled = model.compile_fn(
        outputs, inputs=model.value_vars, mode=mode, on_unused_input="ignore"
    )
    return np.concatenate([np.ravel(each) for each in compiled(point)])


def of_each(names, mode):
    return {name: values(name, mode) for name in names}


@cache
def by_jax(names):
    return in_its_own_process(of_each, names, "JAX")


@cache
def expected(name):
    return values(name, "FAST_COMPILE")


def assert_same(name, found):
    exact = expected(name)
    assert np.isfinite(exact).all()
    np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-10)


def test_every_distribution_has_a_case():
    public = set(pymc_geodesic.distributions.__all__) - NO_DISTRIBUTIONS
    assert public == set(CASES)
    assert set(pymc_geodesic.transforms.__all__) == set(TRANSFORMS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Skipping Check")  # JAX cannot raise while it computes
@pytest.mark.parametrize("name", by_default(BY_DEFAULT, of=ROWS))
def test_jax(name):
    pytest.importorskip("jax")
    names = BY_DEFAULT if name in BY_DEFAULT else (name,)
    assert_same(name, by_jax(names)[name])


@pytest.mark.parametrize("mode", [slow("NUMBA"), slow("CVM")])
@pytest.mark.parametrize("name", ROWS)
def test_numba_and_c(name, mode):
    assert_same(name, values(name, mode))
