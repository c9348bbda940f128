"""What chains run is compiled before they fork, and nothing that a model does not use."""

import numpy as np
import pymc as pm
import pytest
from numba.core import event

import pymc_geodesic as pg
from pymc_geodesic.manifolds import blocks
from pymc_geodesic.steps.base.prepared import SIGNATURES
from tests.grids import slow

SETTINGS = {
    "draws": 4,
    "tune": 60,
    "chains": 1,
    "cores": 1,
    "random_seed": 1,
    "progressbar": False,
    "compute_convergence_checks": False,
}
OTHER_MANIFOLDS = (blocks._move_on_stiefel, blocks._move_on_flat_simplex)


class Compiled(event.Listener):
    """Names of the functions of the package that are compiled meanwhile."""

    def __init__(self):
        self.names = []

    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        if function.__module__.startswith("pymc_geodesic"):
            self.names.append(function.__name__)

    def on_end(self, event):
        pass


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    return rng.normal(size=(400, 3)), rng.normal(size=400)


@pytest.fixture
def checked(monkeypatch):
    """Kernels look at the types of their arguments, and compile for others than they expect."""
    for kernel in SIGNATURES:
        if hasattr(kernel, "call"):
            monkeypatch.setattr(kernel, "call", kernel)


@pytest.mark.parametrize(
    ("step", "options"),
    [
        (pg.SGGMC, {}),
        slow(pg.gSGNHT, {}),
        slow(pg.SGGMC, {"metric": None}),
        (pg.gSGNHT, {"metric": None}),
        slow(pg.SSGNHT, {}),
        (pg.GMC, None),
    ],
    ids=["SGGMC", "gSGNHT", "SGGMC, not adapted", "gSGNHT, not adapted", "SSGNHT", "GMC"],
)
def test_chains_compile_nothing(rows, step, options, checked):
    before = [each.is_compiled for each in OTHER_MANIFOLDS]
    with pm.Model():
        x, y = pm.Data("x", rows[0]), pm.Data("y", rows[1])
        w = pm.Normal("w", shape=3)
        pm.Normal("y_seen", x @ w, 1.0, observed=y)
        minibatches = {} if options is None else {"batch_size": 10, "minibatch": ["x", "y"]}
        method = step(**minibatches, **(options or {}))
        compiled = Compiled()
        with event.install_listener("numba:compile", compiled):
            pm.sample(step=method, **SETTINGS)
    assert compiled.names == []
    assert [each.is_compiled for each in OTHER_MANIFOLDS] == before


def test_a_kernel_has_the_types_that_it_is_called_with():
    """Another type would compile it a second time, in every chain."""
    several = {
        kernel.__name__: kernel.signatures
        for kernel, types in SIGNATURES.items()
        if set(kernel.signatures) - {types}
    }
    assert not several
