"""Dask clusters: thread workers, and processes one of which is killed."""

import functools
import gc
import os
import threading
from dataclasses import replace

import numpy as np
import pytest
from distributed import Client, LocalCluster

import pymc_geodesic as pg
from pymc_geodesic.adaptation import gradient_noise
from tests.distributed.inline import InlineClient
from tests.distributed.problems import sorted_regression

KILLED_AFTER = 4.0
"""Seconds; on a slow machine the worker may still be compiling."""

STEP = functools.partial(
    pg.SGGMC, batch_size=20, minibatch=["x", "y"], compile_kwargs={"mode": "FAST_COMPILE"}
)
QUIET = {"progressbar": False, "compute_convergence_checks": False}


def draws_of(client, **arguments):
    model, shards, *_ = sorted_regression()
    arguments = {"draws": 20, "tune": 40, "chains": 2, "random_seed": 5} | arguments
    return pg.distributed.sample(model, STEP, client, shards=shards, **arguments, **QUIET)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed", "ignore::ResourceWarning")
@pytest.mark.slow
def test_thread_workers_have_the_draws_of_one_process(monkeypatch):
    few_pairs = replace(gradient_noise.SETTINGS, max_pairs=24)
    monkeypatch.setattr(gradient_noise, "SETTINGS", few_pairs)
    with (
        LocalCluster(processes=False, n_workers=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        idata = draws_of(client)
    gc.collect()  # closes sockets of Dask here, where their warnings are not errors
    alone = draws_of(InlineClient())
    np.testing.assert_array_equal(idata.posterior["beta"], alone.posterior["beta"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed", "ignore::ResourceWarning")
def test_killed_worker_does_not_change_draws(tmp_path):
    """Its process ends during a visit; another worker loads its shard."""
    model, shards, *_ = sorted_regression()
    flag = tmp_path / "killed"

    def rows():
        if not flag.exists():
            flag.touch()
            threading.Timer(KILLED_AFTER, os._exit, [1]).start()
        return shards[0]

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        idata = pg.distributed.sample(
            model, STEP, client, shards=[rows, *shards[1:]], draws=20, tune=40, chains=2,
            random_seed=5, **QUIET,
        )  # fmt: skip
    assert idata["shards"]["reloads"].sum() >= 1
    alone = draws_of(InlineClient())
    np.testing.assert_array_equal(idata.posterior["beta"], alone.posterior["beta"])
