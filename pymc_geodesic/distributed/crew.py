"""The shards on the workers of a Dask cluster: calls, lost workers, bytes."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import cloudpickle

from pymc_geodesic.distributed.resident import Job, ResidentShard
from pymc_geodesic.distributed.shards import Shard

_log = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds after which an unanswered call looks whether its worker is still there."""

HEARD_OF = 20.0
"""Seconds after which the scheduler knows of a worker that cannot be reached."""

MOST_RELOADS = 5
"""Times in a row that one call may lose its worker: then it is the call that ends them."""

NO_WORKER = 60.0
"""Seconds to wait for a worker where there is none."""


class LostWorkerError(RuntimeError):
    """The worker that held a shard is gone."""


class _Place:
    """A shard on a worker: an actor, and the future that keeps it alive."""

    def __init__(self, client: Any, address: str, arguments: tuple) -> None:
        self.address, self._client, self._arguments = address, client, arguments
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
            # What Dask says of a lost worker has no class of its own; what an actor raises comes
            # from a worker that is there.
            if self.is_lost or (isinstance(error, OSError) and self._is_lost_soon()):
                raise LostWorkerError(self.address) from error
            raise

    def _load(self) -> Any:
        self._future = self._client.submit(
            ResidentShard, *self._arguments, actor=True, workers=[self.address], pure=False
        )
        return self._wait(self._future)

    def _wait(self, future: Any) -> Any:
        while True:
            try:
                return future.result(timeout=PATIENCE)
            except TimeoutError:
                if self.is_lost:
                    raise LostWorkerError(self.address) from None

    def _is_lost_soon(self) -> bool:
        """Wait for the scheduler, which may hear of a lost worker after those who call it."""
        until = time.monotonic() + HEARD_OF
        while not self.is_lost:
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    @property
    def is_lost(self) -> bool:
        return self.address not in self._client.nthreads()


class Crew:
    """Shards on workers, each of which loads its rows and compiles for itself.

    Parameters
    ----------
    client : distributed.Client
    job : Job
    shards : sequence of Shard
    probabilities : sequence of float

    Attributes
    ----------
    bytes_sent : Counter
        Bytes of arguments by method; those of answers behind ``"answer of "``.
    reloads : list of int
        How often each shard was loaded again because its worker was lost.
    """

    def __init__(
        self, client: Any, job: Job, shards: Sequence[Shard], probabilities: Sequence[float]
    ) -> None:
        self._client = client
        packed = cloudpickle.dumps(job)
        self._arguments = [(packed, s, f) for s, f in zip(shards, probabilities, strict=True)]
        self._settled: list[tuple | None] = [None] * len(shards)
        self._locks = [threading.Lock() for _ in shards]
        self._placing = threading.Lock()
        self.bytes_sent: Counter[str] = Counter()
        self.reloads = [0] * len(shards)
        self._places: list[_Place] = []
        self._threads = ThreadPoolExecutor(len(shards))
        self._place_all()

    @property
    def n_shards(self) -> int:
        """How many shards there are."""
        return len(self._arguments)

    def settle(self, shard: int, *arguments: Any) -> None:
        """Call `ResidentShard.settle`, and again wherever the shard is loaded again."""
        self._settled[shard] = arguments
        self.call(shard, "settle", *arguments)

    def call(self, shard: int, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of a shard and wait for the answer, wherever its rows have to be for it.

        Raises
        ------
        LostWorkerError
            If worker after worker is lost with this call.
        """
        for _ in range(MOST_RELOADS):
            place = self._places[shard]
            try:
                answer = place.call(method, *args, **kwargs)
            except LostWorkerError:
                self._reload(shard, place)
                continue
            self._count(method, args, answer)
            return answer
        raise LostWorkerError(
            f"shard {shard} lost its worker {MOST_RELOADS} times in a row in {method}; it may need "
            "more memory than a worker has"
        )

    def map(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of all shards at once."""
        return list(
            self._threads.map(
                lambda shard: self.call(shard, method, *args, **kwargs), range(self.n_shards)
            )
        )

    def settle_all(self, arguments: Sequence[tuple]) -> None:
        """Call `settle` of all shards at once."""
        list(self._threads.map(lambda s: self.settle(s, *arguments[s]), range(self.n_shards)))

    def close(self) -> None:
        """Let the workers forget the shards."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._places.clear()

    def _count(self, method: str, args: tuple, answer: Any) -> None:
        sizes = [len(each) for each in args if isinstance(each, bytes)]
        self.bytes_sent[method] += sum(sizes)
        if isinstance(answer, tuple) and isinstance(answer[0], bytes):
            state, draws = answer
            arrays = [*draws.values.values(), *draws.stats.values()]
            self.bytes_sent[f"answer of {method}"] += len(state) + sum(a.nbytes for a in arrays)

    def _place_all(self) -> None:
        """Load all shards; the first on each machine compiles, and the others find it on disk."""
        first: dict[str, int] = {}
        for shard in range(self.n_shards):
            self._places.append(self._new_place(shard))
            first.setdefault(_host(self._places[shard].address), shard)
        for shards in (list(first.values()), range(self.n_shards)):
            list(self._threads.map(lambda shard: self.call(shard, "count"), shards))

    def _new_place(self, shard: int) -> _Place:
        """Choose the worker that holds the fewest shards."""
        with self._placing:
            if not self._client.nthreads():
                self._client.wait_for_workers(1, timeout=NO_WORKER)
            held = Counter(place.address for place in self._places)
            address = min(sorted(self._client.nthreads()), key=lambda worker: held[worker])
            return _Place(self._client, address, self._arguments[shard])

    def _reload(self, shard: int, lost: _Place) -> None:
        """Load a shard again, unless another call has done so."""
        with self._locks[shard]:
            if self._places[shard] is not lost:
                return
            self.reloads[shard] += 1
            _log.warning("shard %d lost its worker and is loaded again on another", shard)
            place = self._new_place(shard)
            settled = self._settled[shard]
            if settled is not None:
                # a worker that is lost meanwhile is found out by the call itself
                with suppress(LostWorkerError):
                    place.call("settle", *settled)
            self._places[shard] = place


def _host(address: str) -> str:
    """Machine of a worker."""
    return address.partition("://")[2].partition(":")[0].partition("/")[0]
