"""The Dask cluster that chains travel over: the one that is given, or one of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def working_client(client: Any, n_shards: int) -> Iterator[Any]:
    """Use a client, or start a cluster with a worker for each core, or shard if these are fewer.

    Raises
    ------
    ImportError
        If there is no dask.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise ImportError(
            "pymc_geodesic.distributed.sample needs dask.distributed; install it with "
            "pip install 'pymc_geodesic[distributed]'"
        ) from error
    if client is not None:
        yield client
        return
    cores = os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()
    n_workers = max(1, min(cores or 1, n_shards))
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as own,
    ):
        yield own
