"""Ahead-of-time compilation: exactly the functions of chains are compiled before the fork."""

import numpy as np
import pymc as pm
import pytest
from numba.core import event

import pymc_geodesic as pg
from pymc_geodesic.counts.topic_run import TOPIC_KERNELS
from pymc_geodesic.kernels import gmc, gsgnht, probe, probe_minibatches, sggmc, ssgnht
from pymc_geodesic.kernels.ahead_of_time import SIGNATURES
from pymc_geodesic.kernels.scir import scir
from pymc_geodesic.kernels.sgrld import sgrld
from pymc_geodesic.kernels.topic_updates import scir_words, sgrld_words
from pymc_geodesic.manifolds import product_flows
from pymc_geodesic.runtime.jit import signature_of
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
KERNELS = (gmc, gsgnht, probe, probe_minibatches, sggmc, ssgnht)
OTHER_MANIFOLDS = (product_flows._move_on_stiefel, product_flows._move_on_flat_simplex)


class Compiled(event.Listener):
    """Names of the functions of the package that are compiled within the context."""

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
    """Kernels check the types of their arguments and compile again for unexpected types."""
    for kernel in KERNELS:
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


def test_functions_of_local_variables_are_compiled_for_their_argument_types(checked):
    """Chains call them with the types of arrays that they were compiled for ahead."""
    with pm.Model():
        y = pm.Data("y", np.random.default_rng(1).normal(size=60))
        m = pm.Normal("m", 0.0, 10.0)
        z = pm.Normal("z", m, 1.0, shape=60)
        pm.Normal("y_seen", z, 1.0, observed=y)
        step = pg.SGGMC(minibatch=["y"], batch_size=30, local=["z"], local_draws=2, local_tune=1)
        rows = step.estimator.rows
        given = [each.vm.jit_fn for each in (rows._fixed, step.estimator._gradient_fixed)]
        ahead = [each.signatures for each in given]
        compiled = Compiled()
        with event.install_listener("numba:compile", compiled):
            pm.sample(step=step, **(SETTINGS | {"tune": 5}))
    assert [len(each) for each in ahead] == [1, 1]
    assert [each.signatures for each in given] == ahead
    assert compiled.names == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "is_of_topics"),
    [(pg.SCIR, False), slow(pg.SCIR, True), slow(pg.SGRLD, False), (pg.SGRLD, True)],
    ids=["SCIR", "SCIR, topics", "SGRLD", "SGRLD, topics"],
)
def test_chains_of_counts_compile_nothing(step, is_of_topics, checked, monkeypatch):
    rng = np.random.default_rng(1)
    kernel, move = (scir, scir_words) if step is pg.SCIR else (sgrld, sgrld_words)
    used = (move, *TOPIC_KERNELS) if is_of_topics else (kernel,)
    monkeypatch.setattr(kernel, "call", kernel)
    if is_of_topics:
        model = pg.topics.lda(rng.poisson(0.5, size=(30, 8)) + 1, 2)
        options = {"local": ["theta"], "minibatch": ["counts"]}
    else:
        with pm.Model() as model:
            z = pm.Data("z", rng.integers(0, 3, size=200))
            pm.Categorical("z_seen", pm.Dirichlet("w", np.ones(3)), observed=z)
        options = {"minibatch": ["z"]}
    with model:
        method = step(batch_size=10, **options)
        ahead = [each.signatures for each in used]
        compiled = Compiled()
        with event.install_listener("numba:compile", compiled):
            pm.sample(step=method, **SETTINGS)
    assert all(ahead)
    assert [each.signatures for each in used] == ahead
    assert compiled.names == []


def test_kernels_are_called_with_their_compiled_types():
    """Another type would compile it a second time, in every chain."""
    expected = SIGNATURES | {kernel: signature_of(kernel) for kernel in KERNELS}
    several = {
        kernel.__name__: kernel.signatures
        for kernel, types in expected.items()
        if set(kernel.signatures) - {types}
    }
    assert not several
