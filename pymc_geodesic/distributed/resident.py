"""The rows of one shard on their machine, their compiled gradient, and the visits of chains."""

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
from pymc_geodesic.distributed.document_counts import DocumentCounts, TopicPushes
from pymc_geodesic.distributed.expansion import Expansion, Expansions
from pymc_geodesic.distributed.recipe import StepRecipe
from pymc_geodesic.distributed.row_counts import RowCounts
from pymc_geodesic.distributed.shard_model import ConduciveTerm, place_rows
from pymc_geodesic.distributed.shards import Shard, load_rows
from pymc_geodesic.distributed.surrogates import Quadratic
from pymc_geodesic.kernels.counts import CountsAt
from pymc_geodesic.steps.scir import SCIR
from pymc_geodesic.steps.sgrld import SGRLD

_TURN = threading.RLock()
"""Workers that are threads of one process take turns: PyTensor compiles one model at a time."""

Point = dict[str, np.ndarray]
Walks = dict[int, dict[str, Any]]


def _in_turn[**P, T](method: Callable[P, T]) -> Callable[P, T]:
    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with _TURN:
            return method(*args, **kwargs)

    return call


class Job(NamedTuple):
    """What all shards have in common.

    Attributes
    ----------
    model : pymc.Model
    recipe : StepRecipe
    expands : bool
        Whether log-likelihoods can be expanded, so that the model of each shard gets a term for
        what the others say.
    counts : bool
        Whether the rows of each shard can be counted, so that all shards count together.
    """

    model: pm.Model
    recipe: StepRecipe
    expands: bool
    counts: bool = False


class VisitDraws(NamedTuple):
    """What a chain brings home from a visit.

    Attributes
    ----------
    values : dict of str to ndarray
        By name of the value variable, shape (draw, ...).
    stats : dict of str to ndarray
    warnings : list
        Warnings of the step.
    """

    values: dict[str, np.ndarray]
    stats: dict[str, np.ndarray]
    warnings: list[Any]


class ResidentShard:
    """One shard, for as long as its worker lives. Calls come one at a time.

    What travels is a state of a chain, as bytes that hold no row: the point, and the sampling state
    of the step. Its walk over the rows begins anew in each visit with the seed of the visit; that
    over documents goes on where the chain left it, and the places in all shards travel. Values that
    belong to rows begin anew. So the draws do not depend on where a shard lives, nor on who was
    there before.

    Parameters
    ----------
    job : bytes
        A pickled `Job`.
    shard : Shard
    probability : float
        f_s, the share of the visits that this shard has; the gradient of its rows is multiplied by
        its inverse.
    """

    def __init__(self, job: bytes, shard: Shard, probability: float) -> None:
        with _TURN:
            model, recipe, expands, counts = cloudpickle.loads(job)
            arrays = load_rows(shard)
            self.n_rows: int = next(iter(arrays.values())).shape[0]
            place_rows(model, arrays, recipe.row_names)
            variables = recipe.variables(model)
            values = [model.rvs_to_values[model[name]] for name in recipe.local_names]
            self._local = [value.name for value in values]
            self._walks_on = recipe.walks_on
            self._term = ConduciveTerm(model, variables) if expands else None
            counted = round(self.n_rows / probability)
            self._step = recipe.make(model, counted)
            share = self.n_rows / counted
            self._expansions = Expansions(self._step, share) if expands else None
            self._counts = None
            if counts:
                assert isinstance(self._step, SCIR)
                self._counts = RowCounts(self._step, share)
            self._documents = None
            if self._local:
                assert isinstance(self._step, SCIR | SGRLD)
                self._documents = DocumentCounts(self._step)
        self._known: dict[bytes, np.ndarray] = {}

    def count(self) -> int:
        """Rows of the shard."""
        return self.n_rows

    @_in_turn
    def expand(
        self, x: np.ndarray, n_rows: int | None, *, curvature: bool = True, far: bool = False
    ) -> Expansion:
        """Expand the log-likelihood of the rows around a place; see `Expansions.likelihood`."""
        assert self._expansions is not None
        return self._expansions.likelihood(x, n_rows, curvature=curvature, far=far)

    @_in_turn
    def expand_rest(self, x: np.ndarray, *, curvature: bool = True) -> Expansion:
        """Expand what is no row; see `Expansions.rest`."""
        assert self._expansions is not None
        return self._expansions.rest(x, curvature=curvature)

    @_in_turn
    def gradients(self, places: np.ndarray) -> np.ndarray:
        """Gradient of the log-density that chains see here, shape (place, size)."""
        assert self._expansions is not None
        return np.array([self._expansions.seen(x) for x in places])

    @_in_turn
    def values_of(self, point: Point) -> np.ndarray:
        """Proportions and positive numbers at a point; see `RowCounts.values_of`."""
        assert self._counts is not None
        return self._counts.values_of(point)

    @_in_turn
    def count_at(self, values: np.ndarray) -> CountsAt:
        """Count the rows; see `RowCounts.at`."""
        assert self._counts is not None
        return self._counts.at(values)

    @_in_turn
    def mean_given(self, found: CountsAt) -> np.ndarray:
        """Mean of the variables given counts; see `RowCounts.mean_given`."""
        assert self._counts is not None
        return self._counts.mean_given(found)

    @_in_turn
    def in_deviations(self, push: CountsAt, found: CountsAt) -> np.ndarray:
        """Say how far counts push; see `RowCounts.in_deviations`."""
        assert self._counts is not None
        return self._counts.in_deviations(push, found)

    @_in_turn
    def topic_pushes(self, point: Point, words: np.ndarray, seed: int) -> TopicPushes:
        """Say where documents push topics; see `DocumentCounts.pushes`."""
        assert self._documents is not None
        return self._documents.pushes(point, words, seed)

    @_in_turn
    def settle(
        self,
        term: Quadratic | CountsAt | None,
        covariance: np.ndarray | None,
        tune: int,
        draws: int,
    ) -> None:
        """Take over what all shards together say, and how long chains are to be."""
        if isinstance(term, CountsAt):
            assert isinstance(self._step, SCIR)
            assert self._step.sampler.control_variates is not None
            self._step.sampler.control_variates.fix_center(term)
        elif self._term is not None and term is not None:
            self._term.use(term)
        adaptation = getattr(self._step, "adaptation", None)
        if covariance is not None and isinstance(adaptation, WhitenedAdaptation):
            adaptation.use_covariance(covariance)
        self._known.clear()
        self._step.setup_chain(np.random.default_rng(0), tune, draws)
        self._tune, self._draws = tune, draws

    @_in_turn
    def begin(self, point: Point, seed: int) -> bytes:
        """Begin a chain, and return its state."""
        self._step.setup_chain(np.random.default_rng(seed), self._tune, self._draws)
        return self._packed(point, {})

    @_in_turn
    def visit(
        self, packed: bytes, n_draws: int, seed: int, *, number: int, ends_tuning: bool
    ) -> tuple[bytes, VisitDraws]:
        """Go on with a chain.

        Parameters
        ----------
        packed : bytes
            Its state.
        n_draws : int
        seed : int
            Of a walk over the rows that begins.
        number : int
            Of this shard, by which a walk that goes on is found.
        ends_tuning : bool
            Whether the tuning phase is over behind these draws.

        Returns
        -------
        bytes, VisitDraws
            The state to go on from, and the draws.
        """
        point, walks = self._unpack(packed, seed, number)
        points, stats = [], []
        for _ in range(n_draws):
            point, of_draw = self._step.step(point)
            points.append(self._travelling(point))
            stats.append(of_draw[0])
        if ends_tuning:
            self._step.stop_tuning()
        if self._walks_on:
            walks[number] = self._step.estimator.source.state
        return self._packed(point, walks), _gathered(points, stats)

    def _travelling(self, point: Point) -> Point:
        """Values of a point without those that belong to rows."""
        return {name: value for name, value in point.items() if name not in self._local}

    def _packed(self, point: Point, walks: Walks) -> bytes:
        state = self._step.sampling_state
        state.estimate_state.pop("rows", None)
        point = self._travelling(point)
        if self._local and self._step.sampler.position.size:
            point = {}  # topics are long, and the position says where they are
        return pickle.dumps((point, state, walks), pickle.HIGHEST_PROTOCOL)

    def _unpack(self, packed: bytes, seed: int, number: int) -> tuple[Point, Walks]:
        point, state, walks = pickle.loads(packed)
        self._step.estimator.source.reset(seed)
        state.estimate_state["rows"] = walks.get(number, self._step.estimator.source.state)
        self._step.sampling_state = state
        adaptation = getattr(self._step, "adaptation", None)
        if isinstance(adaptation, WhitenedAdaptation):
            adaptation.gradient.recompute_center(self._known)
        if isinstance(self._step, SCIR | SGRLD) and self._local:
            point = self._step.restart_local(point)
        return point, walks


def _gathered(points: list[Point], stats: list[dict[str, Any]]) -> VisitDraws:
    """Put draws one behind the other."""
    warnings = [each["warning"] for each in stats if each.get("warning") is not None]
    names = [name for name in stats[0] if name != "warning"]
    return VisitDraws(
        {name: np.stack([point[name] for point in points]) for name in points[0]},
        {name: np.array([each[name] for each in stats]) for name in names},
        warnings,
    )
