"""The example files in CONTRIBUTING.md work unchanged."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_geodesic
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.gradients.fisher import tangential_variance
from pymc_geodesic.gradients.minibatch_gradient import MinibatchGradient
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.minibatches.from_arguments import MINIBATCH_ORDERS
from pymc_geodesic.minibatches.resident_rows import ShuffledRows
from pymc_geodesic.runtime.gradient_functions import evaluate

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


@pytest.mark.parametrize("name", SKELETONS)
def test_skeletons_pass_the_linter(name):
    pytest.importorskip("ruff")
    command = [sys.executable, "-m", "ruff", "check", f"--stdin-filename=pymc_geodesic/{name}.py"]
    done = subprocess.run(
        [*command, "-"], input=SKELETONS[name], cwd=ROOT.parent, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_manifold(install):
    manifold = install("manifolds/zero_sum").ZeroSum(4)
    rng = np.random.default_rng(1)
    x = manifold.random_point(rng, 5)
    v = manifold.project(x, rng.normal(size=x.shape))
    assert manifold.contains(x).all()
    np.testing.assert_allclose(manifold.project(x, v), v, atol=1e-14)
    there, velocity = manifold.geodesic(x, v, 0.7)
    assert manifold.contains(there).all()
    back, _ = manifold.geodesic(there, -velocity, 0.7)
    np.testing.assert_allclose(back, x, atol=1e-14)


def test_manifold_and_gradient_noise(install):
    """Offsets of rows are orthogonal to vectors of sum zero, and are not noise."""
    ZeroSum = install("manifolds/zero_sum").ZeroSum
    rng = np.random.default_rng(1)
    n_rows, batch_size = 40, 8
    y = rng.normal(size=(n_rows, 4)) + 100.0 * rng.normal(size=(n_rows, 1))
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=4)
        pm.Normal("y_obs", x, 1.0, observed=pm.Data("y", y))
    variables = manifold_variables(model, [x], {"x": ZeroSum})
    density = RowDensity(model, variables, ShuffledRows({"y": y}, batch_size))
    estimator = MinibatchGradient(density, compile_kwargs={"mode": "FAST_COMPILE"})
    noise = estimator.compile_noise()
    variance = np.empty(4)
    evaluate(noise.address, np.zeros(4), 0, noise.context, variance)
    rows = y[estimator.source.row_indices(0)]
    tangential = np.var(rows - rows.mean(axis=1, keepdims=True), axis=0, ddof=1)
    tangential *= n_rows**2 / batch_size * (1.0 - batch_size / n_rows)
    # the variance removed from the normal direction is divided among the three tangent directions
    np.testing.assert_allclose(variance, tangential + tangential.sum() / 3 / 4, rtol=1e-9)


def test_manifold_without_a_symbolic_projection_raises(install):
    zero_sum = install("manifolds/zero_sum").ZeroSum
    Incomplete = type("Incomplete", (zero_sum,), {"projected": Manifold.projected})
    with pytest.raises(NotImplementedError, match=r"Incomplete cannot project symbolic vectors"):
        tangential_variance(Incomplete(4), pt.zeros(4), pt.zeros((3, 4)))


def test_manifold_without_its_branches_raises(install):
    """Points of a manifold without compiled functions would not move."""
    zero_sum = install("manifolds/zero_sum").ZeroSum
    with pm.Model():
        x = pm.Normal("x", 0.0, 1.0, shape=4)
        with pytest.raises(ValueError, match=r"'x' is on ZeroSum\(n=4\), .* Add its branches"):
            pymc_geodesic.SGGMC([x], manifolds={"x": zero_sum})


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
            step=step_class(step_size=0.3, n_steps=20),
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


def test_order_of_minibatches(install):
    """Minibatches cover the range of the rows with equal weights, and a saved state resumes."""
    SystematicRows = install("minibatches/systematic_rows").SystematicRows
    n_rows, batch_size = 12, 4
    rows = np.arange(n_rows)
    source = SystematicRows({"y": rows}, batch_size)
    source.reset(3)
    starts = source.next_starts(200)
    seen = np.array([source.arrays["y"][start : start + batch_size] for start in starts])
    np.testing.assert_array_equal(seen, [source.row_indices(start) for start in starts])
    np.testing.assert_array_equal(np.diff(seen, axis=1), n_rows // batch_size)
    np.testing.assert_array_equal(np.unique(seen), rows)
    state = source.state
    expected = source.next_starts(20)
    source.reset(4)
    source.state = state
    np.testing.assert_array_equal(source.next_starts(20), expected)
    arrays, n = next(source.all_rows())
    np.testing.assert_array_equal(np.sort(arrays["y"][:n]), rows)
    with pytest.raises(ValueError, match="does not divide the 12 rows"):
        SystematicRows({"y": rows}, 5)


def test_order_of_minibatches_is_an_argument_of_every_step(install, monkeypatch):
    """The mean gradient over its minibatches is that of all rows, also of data set later."""
    source_class = install("minibatches/systematic_rows").SystematicRows
    monkeypatch.setitem(MINIBATCH_ORDERS, "systematic", source_class)
    y = np.random.default_rng(1).normal(size=20)
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y_obs", x, 1.0, observed=pm.Data("y", y))
        step = pymc_geodesic.SGLD(
            step_size=0.1,
            batch_size=5,
            minibatch=["y"],
            minibatch_order="systematic",
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
        pm.set_data({"y": y + 1.0})
    assert type(step.estimator.source) is source_class
    step.setup_chain(np.random.default_rng(1), 10, 10)
    gradients = [step.estimator.gradient_at(np.array([0.3]), start) for start in (0, 5, 10, 15)]
    np.testing.assert_allclose(np.mean(gradients), np.sum(y + 1.0 - 0.3) - 0.3, rtol=1e-12)
    assert np.std(gradients) > 0.1
    point, _ = step.step(model.initial_point())
    assert np.isfinite(point["x"])


def test_adaptation_rule(install, monkeypatch):
    """Each coordinate has the friction of the noisiest one, and the draws their variance."""
    rule = install("adaptation/equal_friction").EqualFrictionRule
    monkeypatch.setattr("pymc_geodesic.steps.langevin_composition.UnderdampedRule", rule)
    rng = np.random.default_rng(1)
    features = rng.normal(size=(2000, 2)) * [1.0, 10.0]
    outcomes = features @ [1.0, 0.1] + rng.normal(size=2000)
    with pm.Model():
        X, y = pm.Data("X", features), pm.Data("y", outcomes)
        b = pm.Normal("b", 0.0, 1.0, shape=2)
        pm.Normal("outcome", X @ b, 1.0, observed=y)
        interpreted = {"mode": "FAST_COMPILE"}
        step = pymc_geodesic.SGGMC(
            batch_size=10,
            minibatch=["X", "y"],
            control_variates=1,
            compile_kwargs=interpreted,
        )
        idata = pm.sample(
            draws=1000, tune=400, chains=1, cores=1, step=step, random_seed=1, progressbar=False,
            compute_convergence_checks=False, compile_kwargs=interpreted,
        )  # fmt: skip
    friction = step.sampler.parameters.friction
    assert friction[0] == friction[1] > 1.0
    covariance = np.linalg.inv(features.T @ features + np.eye(2))
    sds = np.sqrt(np.diag(covariance))
    standard = (idata.posterior["b"].values[0] - covariance @ features.T @ outcomes) / sds
    np.testing.assert_allclose(standard.mean(axis=0), 0.0, atol=0.2)
    np.testing.assert_allclose(standard.std(axis=0), 1.0, rtol=0.12)
