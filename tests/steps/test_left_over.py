"""Models with `pymc.Minibatch`, whose random log-density other step methods must not sample."""

import numpy as np
import pymc as pm
import pytest
from pymc.sampling.parallel import ParallelSamplingError

from pymc_geodesic import GMC, SGGMC, SGLD, gSGNHT
from pymc_geodesic.densities.row_dependence import variables_coupled_to_rows
from tests.grids import slow

N = 200
FIXED = {"step_size": 1e-3, "compile_kwargs": {"mode": "FAST_COMPILE"}}
UNDERDAMPED = {"friction": 1.0, **FIXED}


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 2))
    with pm.Model() as model:
        X_rows, y_rows = pm.Minibatch(X, X @ [1.0, 2.0] + rng.normal(size=N), batch_size=20)
        b = pm.Normal("b", shape=2)
        pm.Normal("y", X_rows @ b, pm.HalfNormal("s"), observed=y_rows, total_size=N)
    return model


def sample(model, step, **kwargs):
    """Take a few draws without tuning."""
    settings = {"draws": 4, "tune": 0, "chains": 2, "cores": 1, "random_seed": 1} | kwargs
    with model:
        return pm.sample(
            step=step, progressbar=False, quiet=True, compute_convergence_checks=False,
            compile_kwargs=FIXED["compile_kwargs"], **settings,
        )  # fmt: skip


LEFT_TO_ANOTHER_STEP = r"\['s'\] would be sampled by another step method.*pm\.Minibatch.*minibatch="


def test_nuts_for_a_variable_with_minibatches_raises(model):
    step = SGGMC(["b"], model=model, **UNDERDAMPED)
    with pytest.raises(ValueError, match=LEFT_TO_ANOTHER_STEP):
        sample(model, step)
    with pytest.raises(ParallelSamplingError, match=LEFT_TO_ANOTHER_STEP):
        sample(model, step, cores=2)
    unused = SGGMC(["s"], model=model, **UNDERDAMPED)
    with pytest.raises(ValueError, match=LEFT_TO_ANOTHER_STEP):
        sample(model, step)
    assert unused.draw == 0


@pytest.mark.parametrize("cores", [slow(1), 2])
def test_several_steps_for_all_variables(model, cores):
    steps = [
        SGGMC(["b"], model=model, **UNDERDAMPED),
        gSGNHT(["s"], model=model, **UNDERDAMPED),
    ]
    assert sample(model, steps, cores=cores).posterior.sizes["chain"] == 2
    with pytest.raises(ValueError, match=LEFT_TO_ANOTHER_STEP):
        sample(model, steps[0])


def test_one_step_for_all_variables(model):
    step = SGLD(model=model, **FIXED)
    assert sample(model, step).posterior.sizes["draw"] == 4


def test_a_model_of_all_rows_has_one_log_density():
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        b = pm.Normal("b")
        pm.Normal("y", b, pm.HalfNormal("s"), observed=pm.Data("rows", rng.normal(size=N)))
        step = SGGMC(["b"], minibatch="rows", batch_size=20, **UNDERDAMPED)
    assert "s" in sample(model, step, chains=1).posterior


STREAMED_OVER = r"\['b'\] would be sampled by another step method from the values of"


@pytest.fixture(scope="module")
def streaming():
    """Model with one row of zeros as a placeholder, and the blocks of its data."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=N), rng.normal(size=N)
    with pm.Model() as model:
        parent = pm.Normal("parent")
        a, b = pm.Normal("a", parent), pm.Normal("b")
        pm.Normal("y_obs", a + b * pm.Data("x", np.zeros(1)), observed=pm.Data("y", np.zeros(1)))
    rows = {"minibatch": ["x", "y"], "batches": [(x, y)], "total_size": N, "batch_size": 20}
    return model, rows | {"model": model, **FIXED}


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("other", [pm.NUTS, slow(GMC)])
def test_streamed_rows_and_a_variable_of_another_step(streaming, other):
    """Another step would use the row of zeros as the data."""
    model, rows = streaming
    with model:
        steps = [SGGMC(["a"], **rows), other([model["b"]])]
    with pytest.raises(ValueError, match=STREAMED_OVER):
        sample(model, steps, chains=1)


@pytest.mark.usefixtures("interpreted")
def test_streamed_rows_for_all_that_depend_on_them(streaming):
    """A variable of the prior may be another step's, and two steps may take the same rows."""
    model, rows = streaming
    assert "parent" in sample(model, SGGMC(["a", "b"], **rows), chains=1).posterior
    sample(model, [SGGMC(["a"], **rows), SGLD(["b"], **rows)], chains=1)
    assert {value.name for value in variables_coupled_to_rows(model, ["x"])} == {"a", "b"}
    assert variables_coupled_to_rows(model, ["z"]) == []
