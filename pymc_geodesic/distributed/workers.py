"""Workers of a Dask cluster that hold the shards: calls, replacement of lost workers, traffic."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

_log = logging.getLogger(__name__)

POLL_INTERVAL = 1.0
"""Seconds without an answer after which a call checks that its worker is still connected."""

HEARTBEAT_TIMEOUT = 20.0
"""Seconds within which the scheduler notices that a worker is unreachable."""

MAX_RELOADS = 5
"""Maximum number of consecutive worker losses in one call; more are attributed to the call."""

WORKER_TIMEOUT = 60.0
"""Seconds to wait for a worker if the cluster has none."""


@contextmanager
def working_client(client: Any, n_shards: int) -> Iterator[Any]:
    """Yield the client, or that of a new local cluster with one worker per core, or per shard.

    Raises
    ------
    ImportError
        If dask.distributed is not installed.
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


class LostWorkerError(RuntimeError):
    """The worker that held a shard left the cluster."""


class _ActorHandle:
    """An actor on a worker, created by the first call, and the future that keeps it alive."""

    def __init__(self, client: Any, address: str, actor_class: type, arguments: tuple) -> None:
        self.address, self._client = address, client
        self._class, self._arguments = actor_class, arguments
        self._future: Any = None
        self._actor: Any = None
        self._loading = threading.Lock()

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        try:
            with self._loading:
                if self._actor is None:
                    self._actor = self._load()
            return self._wait(getattr(self._actor, method)(*args, **kwargs))
        except (OSError, RuntimeError, ValueError) as error:
            # Dask has no exception class for a lost worker; an exception of the actor itself comes
            # from a worker that is still connected.
            if self.is_lost or (isinstance(error, OSError) and self._becomes_lost()):
                raise LostWorkerError(self.address) from error
            raise

    def _load(self) -> Any:
        self._future = self._client.submit(
            self._class, *self._arguments, actor=True, workers=[self.address], pure=False
        )
        return self._wait(self._future)

    def _wait(self, future: Any) -> Any:
        while True:
            try:
                return future.result(timeout=POLL_INTERVAL)
            except TimeoutError:
                if self.is_lost:
                    raise LostWorkerError(self.address) from None

    def _becomes_lost(self) -> bool:
        """Wait for the scheduler, which may notice a lost worker later than its callers do."""
        until = time.monotonic() + HEARTBEAT_TIMEOUT
        while not self.is_lost:
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    @property
    def is_lost(self) -> bool:
        return self.address not in self._client.nthreads()


class WorkerPool:
    """One Dask actor per shard, distributed over the workers and recreated when a worker is lost.

    Parameters
    ----------
    client : distributed.Client
    actor_class : type
        Class of the actors, with the methods ``count_rows`` and ``configure``.
    arguments : sequence of tuple
        Constructor arguments of the actor of each shard.

    Attributes
    ----------
    bytes_sent : Counter
        Bytes of arguments by method; those of return values under ``"answer of <method>"``.
    reloads : list of int
        How often each shard was loaded again after its worker was lost.
    """

    def __init__(self, client: Any, actor_class: type, arguments: Sequence[tuple]) -> None:
        self._client, self._class = client, actor_class
        self._arguments = list(arguments)
        self._configured: list[tuple | None] = [None] * self.n_shards
        self._locks = [threading.Lock() for _ in self._arguments]
        self._assigning = threading.Lock()
        self.bytes_sent: Counter[str] = Counter()
        self.reloads = [0] * self.n_shards
        self._handles: list[_ActorHandle] = []
        self._threads = ThreadPoolExecutor(self.n_shards)
        self._load_all()

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self._arguments)

    def call(self, shard: int, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of a shard and wait for the answer; reload the shard if need be.

        Raises
        ------
        LostWorkerError
            If `MAX_RELOADS` workers in a row are lost during this call.
        """
        for _ in range(MAX_RELOADS):
            handle = self._handles[shard]
            try:
                answer = handle.call(method, *args, **kwargs)
            except LostWorkerError:
                self._reload(shard, handle)
                continue
            self._count(method, args, answer)
            return answer
        raise LostWorkerError(
            f"shard {shard} lost its worker {MAX_RELOADS} times in a row in {method}; it may need "
            "more memory than a worker has"
        )

    def map(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of all shards concurrently."""
        return list(
            self._threads.map(
                lambda shard: self.call(shard, method, *args, **kwargs), range(self.n_shards)
            )
        )

    def configure_all(self, arguments: Sequence[tuple]) -> None:
        """Call ``configure`` of all shards, and again of each shard that is reloaded."""

        def configure(shard: int) -> None:
            self._configured[shard] = arguments[shard]
            self.call(shard, "configure", *arguments[shard])

        list(self._threads.map(configure, range(self.n_shards)))

    def close(self) -> None:
        """Release the actors."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._handles.clear()

    def _count(self, method: str, args: tuple, answer: Any) -> None:
        sizes = [len(each) for each in args if isinstance(each, bytes)]
        self.bytes_sent[method] += sum(sizes)
        if isinstance(answer, tuple) and isinstance(answer[0], bytes):
            state, draws = answer
            arrays = [*draws.values.values(), *draws.stats.values()]
            self.bytes_sent[f"answer of {method}"] += len(state) + sum(a.nbytes for a in arrays)

    def _load_all(self) -> None:
        """Load all shards; the first on each machine compiles, the others read its cache."""
        first: dict[str, int] = {}
        for shard in range(self.n_shards):
            self._handles.append(self._new_handle(shard))
            first.setdefault(_host(self._handles[shard].address), shard)
        for shards in (list(first.values()), range(self.n_shards)):
            list(self._threads.map(lambda shard: self.call(shard, "count_rows"), shards))

    def _new_handle(self, shard: int) -> _ActorHandle:
        """Assign a shard to the worker that holds the fewest."""
        with self._assigning:
            if not self._client.nthreads():
                self._client.wait_for_workers(1, timeout=WORKER_TIMEOUT)
            held = Counter(handle.address for handle in self._handles)
            address = min(sorted(self._client.nthreads()), key=lambda worker: held[worker])
            return _ActorHandle(self._client, address, self._class, self._arguments[shard])

    def _reload(self, shard: int, lost: _ActorHandle) -> None:
        """Load a shard on another worker, unless a concurrent call has done so."""
        with self._locks[shard]:
            if self._handles[shard] is not lost:
                return
            self.reloads[shard] += 1
            _log.warning("shard %d lost its worker and is loaded again on another", shard)
            handle = self._new_handle(shard)
            configured = self._configured[shard]
            if configured is not None:
                # if this worker is lost as well, the next call notices
                with suppress(LostWorkerError):
                    handle.call("configure", *configured)
            self._handles[shard] = handle


def _host(address: str) -> str:
    """Host name of a worker's address."""
    return address.partition("://")[2].partition(":")[0].partition("/")[0]
