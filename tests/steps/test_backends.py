"""Equality of draws of all PyTensor backends for the same seed, up to rounding."""

import functools
import warnings

import numpy as np
import pymc as pm
import pytest

from pymc_geodesic import (
    GMC,
    SGGMC,
    SGLD,
    SSGNHT,
    SubgradientHMC,
    UniformSphere,
    VonMisesFisher,
    gSGNHT,
)
from tests.grids import by_default
from tests.processes import in_its_own_process
from tests.steps.runs import assert_same_draws, sample

ROUNDING = 1e-9
"""Rounding errors of 1e-16 that grow over twenty draws with steps set by hand."""

ROUNDING_IN_TUNING = 1e-3
"""Rounding errors in tuning, where each step size depends on all earlier draws."""


STEPS = [GMC, SGGMC, gSGNHT, SubgradientHMC, SGLD, SSGNHT]
every_step = pytest.mark.parametrize("step_class", STEPS, ids=lambda step: step.__name__)


def steps(*chosen):
    """Steps to test; the others call the same compiled functions and are slow."""
    marked = by_default(chosen, of=STEPS)
    return pytest.mark.parametrize("step_class", marked, ids=lambda step: step.__name__)


STRENGTH = {SGGMC: {"friction": 10.0}, gSGNHT: {"friction": 10.0}, SSGNHT: {"diffusion": 10.0}}


@pytest.fixture(scope="module")
def model():
    dist = VonMisesFisher.dist([0.0, 0.6, 0.8], 10.0, size=200)
    x = pm.draw(dist, random_seed=1, mode="FAST_COMPILE")
    with pm.Model() as model:
        mu = UniformSphere("mu", shape=3)
        kappa = pm.Gamma("kappa", 2.0, 0.1)
        VonMisesFisher("x_obs", mu, kappa, observed=pm.Data("x", x))
    return model


def draws(model, step_class, mode, tune=0):
    arguments = {} if tune else {"step_size": 0.01, "n_steps": 5}
    if step_class not in (GMC, SubgradientHMC):
        arguments |= {"minibatch": "x", "batch_size": 20}
        arguments |= {} if tune else STRENGTH.get(step_class, {})
    with model:
        step = step_class(compile_kwargs=None if mode is None else {"mode": mode}, **arguments)
    return sample(model, step, draws=20, tune=tune)


@pytest.fixture(scope="module")
def native(model):
    """Draws of a step in machine code, which run once."""
    return functools.cache(lambda step_class: draws(model, step_class, None))


@steps()
def test_c(model, native, step_class):
    """All rows with the value on the sphere, and minibatches in unconstrained space.

    By default `test_compilation.py` compares gradients of the back ends.
    """
    assert_same_draws(native(step_class), draws(model, step_class, "CVM"), rtol=ROUNDING)


@steps()
def test_c_with_tuning(model, step_class):
    """Functions that tuning compiles: minibatches on the sphere, and all rows."""
    runs = [draws(model, step_class, mode, tune=20) for mode in (None, "CVM")]
    assert_same_draws(*runs, rtol=ROUNDING_IN_TUNING)


@pytest.mark.slow
@every_step
def test_jax(model, native, step_class):
    pytest.importorskip("jax")
    jax = in_its_own_process(draws, model, step_class, "JAX")
    assert_same_draws(native(step_class), jax, rtol=100.0 * ROUNDING)


@pytest.mark.slow
def test_fisher_noise(model):
    """The second compiled function of a step, which `test_fisher.py` compares with NumPy."""
    runs = []
    for mode in (None, "CVM"):
        with model:
            step = SGGMC(
                minibatch="x", batch_size=20, gradient_noise="fisher",
                compile_kwargs=None if mode is None else {"mode": mode},
            )  # fmt: skip
        runs.append(sample(model, step, draws=20, tune=20))
    assert_same_draws(*runs, rtol=ROUNDING_IN_TUNING)


@pytest.mark.slow
def test_same_bits_in_every_process(model):
    """Compiled code that is forked with the process, and compiled again in it."""
    with model:
        step = SGGMC(minibatch="x", batch_size=20)
    runs = [
        sample(model, step, draws=10, tune=10, chains=2, cores=cores, mp_ctx="fork")
        for cores in (1, 2)
    ]
    assert_same_draws(*runs)
    np.testing.assert_array_equal(
        runs[0].sample_stats["step_size"], runs[1].sample_stats["step_size"]
    )


@pytest.mark.slow
def test_same_bits_in_spawned_processes(model):
    with model:
        step = gSGNHT(minibatch="x", batch_size=20)
    runs = [
        sample(model, step, draws=10, tune=10, chains=2, cores=cores, mp_ctx="spawn")
        for cores in (1, 2)
    ]
    assert_same_draws(*runs)


SHORT = {"draws": 4, "tune": 0, "chains": 2, "progressbar": False, "quiet": True}


def normal_step(mode=None):
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        options = {} if mode is None else {"compile_kwargs": {"mode": mode}}
        return model, SGGMC(step_size=0.1, friction=1.0, **options)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    "options", [{"backend": "c"}, {"compile_kwargs": {"mode": "CVM"}}], ids=["backend", "mode"]
)
def test_a_different_backend_of_sample_warns(cores, options):
    """Once in each call, in the main process."""
    model, step = normal_step()
    for _ in range(2):
        with model, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")  # of forks with threads
            warnings.simplefilter("always", UserWarning)
            pm.sample(step=step, cores=cores, compute_convergence_checks=False, **SHORT, **options)
        (warning,) = caught
        assert "has no effect on SGGMC" in str(warning.message)
        assert 'in mode "NUMBA", not "CVM"' in str(warning.message)
        assert 'Set compile_kwargs={"mode": "CVM"} in SGGMC(...)' in str(warning.message)
        assert warning.filename == __file__


@pytest.mark.parametrize(("mode", "backend"), [(None, "numba"), ("CVM", "c"), ("CVM", None)])
def test_the_backend_of_the_step_does_not_warn(mode, backend):
    model, step = normal_step(mode)
    with model:
        pm.sample(step=step, cores=1, compute_convergence_checks=False, backend=backend, **SHORT)


def test_every_step_of_a_compound_step_is_named():
    with pm.Model():
        x, y = pm.Normal("x"), pm.Normal("y")
        fixed = {"step_size": 0.1}
        steps = [SGGMC([x], friction=1.0, **fixed), SGLD([y], **fixed)]
        with pytest.warns(UserWarning, match="has no effect on") as caught:
            pm.sample(step=steps, cores=1, compute_convergence_checks=False, backend="c", **SHORT)
    assert [str(each.message).split()[5].strip(",") for each in caught] == ["SGGMC", "SGLD"]
