"""Dask actor of one shard: its rows, its step method, and the visits of chains."""

from __future__ import annotations

import functools
import pickle
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pymc as pm

from pymc_geodesic.adaptation.whitened import WhitenedAdaptation
from pymc_geodesic.distributed.shard_counts import DocumentCounts, Point, RowCounts, TopicDrift
from pymc_geodesic.distributed.shards import Shard, StepSpec, load_rows, set_rows
from pymc_geodesic.distributed.surrogates import ConduciveTerm, Expansion, Quadratic, ShardDensity
from pymc_geodesic.distributed.visits import VisitDraws
from pymc_geodesic.kernels.counts import CountsAt
from pymc_geodesic.steps.scir import SCIR
from pymc_geodesic.steps.sgrld import SGRLD

_LOCK = threading.RLock()
"""Serializes workers that are threads of one process: PyTensor is not safe for threads."""

MinibatchOrders = dict[int, dict[str, Any]]
"""State of the minibatch order of a chain in each shard."""


def _serialized[**P, T](method: Callable[P, T]) -> Callable[P, T]:
    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with _LOCK:
            return method(*args, **kwargs)

    return call


class Job(NamedTuple):
    """Model and step that all shards share.

    Attributes
    ----------
    model : pymc.Model
    step : StepSpec
    expands : bool
        Whether log-likelihoods can be expanded, so that the model of each shard has a conducive
        term.
    counts : bool
        Whether the likelihood of each shard is given by counts of its rows.
    """

    model: pm.Model
    step: StepSpec
    expands: bool
    counts: bool = False


class ShardActor:
    """One shard, for the lifetime of its worker. Calls are serialized.

    Chains move between shards as bytes that contain no rows: the point and the sampling state of
    the step. The minibatch order starts anew in each visit from the seed of the visit; that of
    documents continues, so that its state in all shards moves with the chain. Local variables are
    drawn anew. Draws therefore depend neither on the worker that holds the shard nor on earlier
    visits of other chains.

    Parameters
    ----------
    job : bytes
        A pickled `Job`.
    shard : Shard
    probability : float
        f_s, the probability with which this shard is visited; the gradient of its rows is divided
        by it.
    """

    def __init__(self, job: bytes, shard: Shard, probability: float) -> None:
        with _LOCK:
            model, spec, expands, counts = cloudpickle.loads(job)
            arrays = load_rows(shard)
            self.n_rows: int = next(iter(arrays.values())).shape[0]
            set_rows(model, arrays, spec.row_names)
            variables = spec.variables(model)
            values = [model.rvs_to_values[model[name]] for name in spec.local_names]
            self._local = [value.name for value in values]
            self._continues_order = spec.continues_minibatch_order
            self._term = ConduciveTerm(model, variables) if expands else None
            total_size = round(self.n_rows / probability)
            self._step = spec.build(model, total_size)
            share = self.n_rows / total_size
            self._density = ShardDensity(self._step, share) if expands else None
            self._counts = None
            if counts:
                assert isinstance(self._step, SCIR)
                self._counts = RowCounts(self._step, share)
            self._documents = None
            if self._local:
                assert isinstance(self._step, SCIR | SGRLD)
                self._documents = DocumentCounts(self._step)
        self._gradients_at_center: dict[bytes, np.ndarray] = {}

    def count_rows(self) -> int:
        """Return the number of rows of the shard."""
        return self.n_rows

    @_serialized
    def expand(
        self, x: np.ndarray, n_rows: int | None, *, curvature: bool = True, far: bool = False
    ) -> Expansion:
        """Expand the log-likelihood of the rows; see `ShardDensity.likelihood`."""
        assert self._density is not None
        return self._density.likelihood(x, n_rows, curvature=curvature, far=far)

    @_serialized
    def expand_prior(self, x: np.ndarray, *, curvature: bool = True) -> Expansion:
        """Expand the terms that do not depend on rows; see `ShardDensity.prior`."""
        assert self._density is not None
        return self._density.prior(x, curvature=curvature)

    @_serialized
    def gradients(self, positions: np.ndarray) -> np.ndarray:
        """Gradient of the log-density that chains target in this shard, shape (point, size)."""
        assert self._density is not None
        return np.array([self._density.gradient(x) for x in positions])

    @_serialized
    def values_of(self, point: Point) -> np.ndarray:
        """Proportions and positive numbers at a point; see `RowCounts.values_of`."""
        assert self._counts is not None
        return self._counts.values_of(point)

    @_serialized
    def count_at(self, values: np.ndarray) -> CountsAt:
        """Count the rows; see `RowCounts.at`."""
        assert self._counts is not None
        return self._counts.at(values)

    @_serialized
    def posterior_mean(self, found: CountsAt) -> np.ndarray:
        """Mean of the variables given counts; see `RowCounts.posterior_mean`."""
        assert self._counts is not None
        return self._counts.posterior_mean(found)

    @_serialized
    def standardize(self, change: CountsAt, found: CountsAt) -> np.ndarray:
        """Shift by a change of counts; see `RowCounts.standardize`."""
        assert self._counts is not None
        return self._counts.standardize(change, found)

    @_serialized
    def topic_drift(self, point: Point, words: np.ndarray, seed: int) -> TopicDrift:
        """Drift of topics due to the documents; see `DocumentCounts.drift`."""
        assert self._documents is not None
        return self._documents.drift(point, words, seed)

    @_serialized
    def configure(
        self,
        term: Quadratic | CountsAt | None,
        covariance: np.ndarray | None,
        tune: int,
        draws: int,
    ) -> None:
        """Set the conducive term or the counts of all shards, the mass matrix, and the lengths."""
        if isinstance(term, CountsAt):
            assert isinstance(self._step, SCIR)
            assert self._step.sampler.control_variates is not None
            self._step.sampler.control_variates.fix_center(term)
        elif self._term is not None and term is not None:
            self._term.set(term)
        adaptation = getattr(self._step, "adaptation", None)
        if covariance is not None and isinstance(adaptation, WhitenedAdaptation):
            adaptation.use_covariance(covariance)
        self._gradients_at_center.clear()
        self._step.setup_chain(np.random.default_rng(0), tune, draws)
        self._tune, self._draws = tune, draws

    @_serialized
    def start_chain(self, point: Point, seed: int) -> bytes:
        """Set up a chain, and return its state."""
        self._step.setup_chain(np.random.default_rng(seed), self._tune, self._draws)
        return self._packed(point, {})

    @_serialized
    def visit(
        self, packed: bytes, n_draws: int, seed: int, *, shard: int, ends_tuning: bool
    ) -> tuple[bytes, VisitDraws]:
        """Continue a chain.

        Parameters
        ----------
        packed : bytes
            State of the chain.
        n_draws : int
        seed : int
            Of a new minibatch order.
        shard : int
            Number of this shard, the key of its minibatch order in the state of the chain.
        ends_tuning : bool
            Whether warm-up ends with these draws.

        Returns
        -------
        bytes, VisitDraws
            The state after the visit, and the draws.
        """
        point, orders = self._unpack(packed, seed, shard)
        points, stats = [], []
        for _ in range(n_draws):
            point, stats_of_draw = self._step.step(point)
            points.append(self._without_local(point))
            stats.append(stats_of_draw[0])
        if ends_tuning:
            self._step.stop_tuning()
        if self._continues_order:
            orders[shard] = self._step.estimator.source.state
        return self._packed(point, orders), _stack(points, stats)

    def _without_local(self, point: Point) -> Point:
        return {name: value for name, value in point.items() if name not in self._local}

    def _packed(self, point: Point, orders: MinibatchOrders) -> bytes:
        state = self._step.sampling_state
        state.estimate_state.pop("rows", None)
        point = self._without_local(point)
        if self._local and self._step.sampler.position.size:
            point = {}  # topics are large, and the position in the state holds them
        return pickle.dumps((point, state, orders), pickle.HIGHEST_PROTOCOL)

    def _unpack(self, packed: bytes, seed: int, shard: int) -> tuple[Point, MinibatchOrders]:
        point, state, orders = pickle.loads(packed)
        self._step.estimator.source.reset(seed)
        state.estimate_state["rows"] = orders.get(shard, self._step.estimator.source.state)
        self._step.sampling_state = state
        adaptation = getattr(self._step, "adaptation", None)
        if isinstance(adaptation, WhitenedAdaptation):
            adaptation.gradient.recompute_center(self._gradients_at_center)
        if isinstance(self._step, SCIR | SGRLD) and self._local:
            point = self._step.restart_local(point)
        return point, orders


def _stack(points: list[Point], stats: list[dict[str, Any]]) -> VisitDraws:
    """Stack draws along a first axis."""
    warnings = [each["warning"] for each in stats if each.get("warning") is not None]
    names = [name for name in stats[0] if name != "warning"]
    return VisitDraws(
        {name: np.stack([point[name] for point in points]) for name in points[0]},
        {name: np.array([each[name] for each in stats]) for name in names},
        warnings,
    )
