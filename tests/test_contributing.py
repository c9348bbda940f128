"""The skeletons in CONTRIBUTING.md work as they stand."""

import importlib
import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_geodesic
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.gradients.fisher import tangential_variance
from pymc_geodesic.gradients.minibatch_gradient import GradientEstimator
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.minibatches.orders import MINIBATCH_ORDERS
from pymc_geodesic.minibatches.shuffled_rows import ShuffledRows
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.steps.step import GeodesicStep

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
    variables = manifold_variables(model, [x], {"x": ZeroSum})
    density = RowDensity(model, variables, ShuffledRows({"y": y}, batch_size))
    estimator = GradientEstimator(density, compile_kwargs={"mode": "FAST_COMPILE"})
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


def test_samplers_override_nothing(install):
    """Skeleton and package: `GeodesicStep` is the only base, and a constructor all there is."""
    install("kernels/forgetful_langevin")
    skeleton = install("steps/forgetful_langevin").ForgetfulLangevin
    for step_class in (skeleton, pymc_geodesic.SGGMC, pymc_geodesic.SGLD, pymc_geodesic.GMC):
        assert step_class.__bases__ == (GeodesicStep,)
        methods = {name for name, value in vars(step_class).items() if inspect.isfunction(value)}
        assert methods == {"__init__"}


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


def test_data_source(install):
    """Minibatches are spread over the rows, all count the same, and a saved state goes on."""
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


def test_data_source_is_an_argument_of_every_step(install, monkeypatch):
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


def test_scheme_for_local_variables(install):
    """Draws of z given m and the data, whose law is known, and the gradient that they give."""
    module = install("gradients/random_walk_gradient")
    n_rows, n_draws, m = 60, 2000, 0.4
    y = np.random.default_rng(2).normal(0.7, np.sqrt(2.0), size=n_rows)
    with pm.Model() as model:
        mean = pm.Normal("m", 0.0, 10.0)
        z = pm.Normal("z", mean, 1.0, shape=n_rows)
        pm.Normal("x", z, 1.0, observed=pm.Data("y", y))
    estimate = module.RandomWalkGradient(
        model,
        manifold_variables(model, [mean]),
        manifold_variables(model, [z], by_row=True),
        source=ShuffledRows({"y": y}, n_rows),
        total_size=None,
        n_draws=n_draws,
        n_discarded=50,
        n_steps=1,
    )
    estimate.read_local(model.initial_point())
    stream = new_stream(np.random.default_rng(1))
    arguments, n_grad = estimate.prepare(np.array([m]), 3, stream, tune=True)
    assert n_grad == n_draws + 51
    gradient = np.empty(1)
    evaluate(estimate.field.address, np.array([m]), arguments[0], estimate.field.context, gradient)
    expected = np.sum(y - m) / 2.0 - m / 100.0
    # some 20 draws of a row, whose variance is 1/2, say as much as one that is independent
    assert abs(gradient[0] - expected) < 5 * np.sqrt(n_rows * 10 / n_draws)
    assert 0.5 < estimate.stats()["acceptance_rate"] < 0.95
    seen = []
    for _ in range(40):
        estimate.prepare(np.array([m]), 3, stream, tune=False)
        estimate.write_local(point := {})
        seen.append((point["z"] - (y + m) / 2.0) * np.sqrt(2.0))
    score = stats.kstest(np.ravel(seen), "norm")
    assert score.pvalue > 1e-4
