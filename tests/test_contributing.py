"""The skeletons in CONTRIBUTING.md work as they stand."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_geodesic
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.gradients.fisher import tangential_variance
from pymc_geodesic.gradients.minibatch_gradient import GradientEstimator
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.minibatches.shuffled_rows import ShuffledRows
from pymc_geodesic.runtime.fields import evaluate

ROOT = Path(pymc_geodesic.__file__).parent
TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
SKELETONS = dict(re.findall(r"```python\n# pymc_geodesic/(\w+/\w+)\.py\n(.*?)```", TEXT, re.DOTALL))


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that imports a skeleton as if its file were in the package."""

    def import_skeleton(name):
        package, module = name.split("/")
        folder = tmp_path / package
        folder.mkdir(exist_ok=True)
        (folder / f"{module}.py").write_text(SKELETONS[name])
        parent = importlib.import_module(f"pymc_geodesic.{package}")
        monkeypatch.setattr(parent, "__path__", [*parent.__path__, str(folder)])
        qualified = f"pymc_geodesic.{package}.{module}"
        imported = importlib.import_module(qualified)
        monkeypatch.delitem(sys.modules, qualified)
        monkeypatch.setitem(sys.modules, qualified, imported)
        return imported

    return import_skeleton


def test_manifold(install):
    manifold = install("manifolds/zero_sum").ZeroSum(4)
    rng = np.random.default_rng(1)
    x = manifold.random_point(rng, 5)
    v = manifold.tangent_noise(x, rng)
    assert manifold.contains(x).all()
    np.testing.assert_allclose(manifold.project(x, v), v, atol=1e-14)
    there, velocity = manifold.geodesic(x, v, 0.7)
    assert manifold.contains(there).all()
    back, _ = manifold.geodesic(there, -velocity, 0.7)
    np.testing.assert_allclose(back, x, atol=1e-14)


def test_manifold_and_gradient_noise(install):
    """Rows with offsets of their own, which no vector of sum zero feels, are not noise."""
    ZeroSum = install("manifolds/zero_sum").ZeroSum
    rng = np.random.default_rng(1)
    n_rows, batch_size = 40, 8
    y = rng.normal(size=(n_rows, 4)) + 100.0 * rng.normal(size=(n_rows, 1))
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=4)
        pm.Normal("y_obs", x, 1.0, observed=pm.Data("y", y))
    estimator = GradientEstimator(
        model,
        manifold_variables(model, [x], {"x": ZeroSum}),
        source=ShuffledRows({"y": y}, batch_size),
        compile_kwargs={"mode": "FAST_COMPILE"},
    )
    noise = estimator.compile_noise()
    variance = np.empty(4)
    evaluate(noise.address, np.zeros(4), 0, noise.context, variance)
    rows = y[estimator.source.row_indices(0)]
    tangential = np.var(rows - rows.mean(axis=1, keepdims=True), axis=0, ddof=1)
    tangential *= n_rows**2 / batch_size * (1.0 - batch_size / n_rows)
    # three directions of four share what the fourth, the normal one, has no noise of
    np.testing.assert_allclose(variance, tangential + tangential.sum() / 3 / 4, rtol=1e-9)


def test_manifold_without_a_symbolic_projection_is_refused(install):
    zero_sum = install("manifolds/zero_sum").ZeroSum
    Incomplete = type("Incomplete", (zero_sum,), {"projected": Manifold.projected})
    with pytest.raises(NotImplementedError, match=r"Incomplete .* no symbolic vectors"):
        tangential_variance(Incomplete(4), pt.zeros(4), pt.zeros((3, 4)))


def test_manifold_without_its_branches_is_refused(install):
    """Points that the compiled functions do not know would stand still."""
    zero_sum = install("manifolds/zero_sum").ZeroSum
    with pm.Model():
        x = pm.Normal("x", 0.0, 1.0, shape=4)
        with pytest.raises(ValueError, match=r"'x' is on ZeroSum\(n=4\), .* add its branches"):
            pymc_geodesic.SGGMC([x], manifolds={"x": zero_sum})


def test_no_skeleton_hides_a_file_of_the_package():
    for name in SKELETONS:
        assert not (ROOT / f"{name}.py").exists()


def test_sampler_runs_its_own_kernel_where_nothing_is_set(install):
    """And not the dynamics that a step adapts by default."""
    install("kernels/forgetful_langevin")
    step_class = install("steps/forgetful_langevin").ForgetfulLangevin
    with pm.Model():
        pm.Normal("z", 1.0, 1.0)
        step = step_class(compile_kwargs={"mode": "FAST_COMPILE"})
    step.setup_chain(np.random.default_rng(1), 10, 10)
    assert not step._adapts


def test_sampler(install):
    install("kernels/forgetful_langevin")
    step_class = install("steps/forgetful_langevin").ForgetfulLangevin
    with pm.Model():
        pm.Normal("z", 1.0, 1.0)
        pymc_geodesic.VonMisesFisher("mu", [0.0, 0.0, 1.0], 2.0)
        idata = pm.sample(
            draws=2000,
            tune=100,
            chains=1,
            cores=1,
            step=step_class(step_size=0.3, friction=1.0, n_steps=20),
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    z, mu = idata.posterior["z"].values, idata.posterior["mu"].values
    assert abs(z.mean() - 1.0) < 0.15
    assert abs(z.std() - 1.0) < 0.1
    # E[mu_z] = coth(kappa) - 1/kappa on the sphere in three dimensions.
    assert abs(mu[..., 2].mean() - (1 / np.tanh(2.0) - 0.5)) < 0.05
    assert abs(idata.sample_stats["temperature"].mean() - 1.0) < 0.05
