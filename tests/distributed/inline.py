"""Client with workers in this process, which can be lost at a given call."""

import threading
from collections import Counter

import cloudpickle
import numpy as np

from pymc_geodesic.distributed.surrogates import Quadratic


class Done:
    """A completed future."""

    def __init__(self, value):
        self._value = value

    def result(self, timeout=None):
        return self._value


class Actor:
    def __init__(self, client, address, held):
        self._client, self._address, self._held = client, address, held

    def __getattr__(self, method):
        def call(*args, **kwargs):
            with self._client.lock:
                self._client.take(self._address, method)
                return Done(getattr(self._held, method)(*args, **kwargs))

        return call


class InlineClient:
    """Subset of `distributed.Client` that `WorkerPool` uses.

    Parameters
    ----------
    workers : int
    lose : mapping of (address, method) to int
        Number of the call in which a worker is lost, counted from 1.
    kept : dict, optional
        Shards of runs before, with two coordinates, which need not be compiled again.
    """

    def __init__(self, workers=1, lose=(), kept=None):
        self.workers = [f"inline://{i}" for i in range(workers)]
        self.calls = Counter()
        self._lose = dict(lose)
        self._kept = {} if kept is None else kept
        self.lock = threading.RLock()
        self._delay = 0

    def nthreads(self):
        if self._delay:
            self._delay -= 1
            return dict.fromkeys(self._before, 1)
        return dict.fromkeys(self.workers, 1)

    def take(self, address, method):
        self.calls[address, method] += 1
        if self.calls[address, method] == self._lose.get((address, method)):
            self._before = list(self.workers)
            self.workers.remove(address)
            self._delay = 3  # calls of nthreads() that still list it
        if address not in self.workers:
            raise OSError("Unable to contact Actor's worker")

    def submit(self, kind, *args, actor, workers, pure):
        assert actor
        assert not pure
        job, shard, probability = args
        spec = cloudpickle.loads(job).step
        key = spec.step_class, repr(spec.arguments), tuple(shard), probability
        key += tuple(cloudpickle.dumps(rows) for rows in shard.values())
        with self.lock:
            if key not in self._kept:
                self._kept[key] = kind(*args)
            else:
                none = Quadratic(np.zeros(2), np.zeros(2), np.zeros((2, 2)))
                self._kept[key].configure(none, None, 0, 1)
            return Done(Actor(self, workers[0], self._kept[key]))
