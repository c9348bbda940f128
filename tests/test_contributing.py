"""The skeletons in CONTRIBUTING.md work as they stand."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic

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


def test_sampler(install):
    install("kernels/geodesic_langevin")
    step_class = install("steps/geodesic_langevin").GeodesicLangevin
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
