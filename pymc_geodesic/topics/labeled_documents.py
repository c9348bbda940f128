"""Labeled documents as arrays of tokens, their minibatches, and the chains of MedLDA samplers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import xarray as xr
from arviz_base import from_dict
from numpy.typing import ArrayLike

from pymc_geodesic.arguments import check_integers, check_positive_number
from pymc_geodesic.distributions.labels import (
    require_classes,
    require_every_class,
    require_signs,
)
from pymc_geodesic.runtime.iterations import draw_after, each_chain
from pymc_geodesic.runtime.missing_values import check_missing
from pymc_geodesic.sparse.count_matrices import concentration, word_counts
from pymc_geodesic.topics.lda import document_coords
from pymc_geodesic.topics.max_margin import MULTICLASS, ONE_VS_REST

VARIABLES = ("topics", "weights", "zbar")


@dataclass(frozen=True)
class Hinge:
    """Parameters of the hinge loss of labels and of the prior of the weights.

    Attributes
    ----------
    cost, margin, prior_scale : float
        c, ℓ and τ, positive.
    multiclass : bool
        Whether the loss is the multiclass hinge instead of one hinge per class.
    """

    cost: float
    margin: float
    prior_scale: float
    multiclass: bool = False

    def __post_init__(self) -> None:
        """Validate the numbers and convert them to floats."""
        for name in ("cost", "margin", "prior_scale"):
            check_positive_number(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def loss(self) -> int:
        """Code of the loss in the kernels."""
        return MULTICLASS if self.multiclass else ONE_VS_REST


@dataclass(frozen=True)
class LabeledCounts:
    """Validated counts and labels of documents.

    Attributes
    ----------
    starts : ndarray of int64, shape (D + 1,)
        Index of the first token of each document, and the number of tokens.
    words : ndarray of int32, shape (n_tokens,)
    signs : ndarray, shape (D, L)
        −1 or +1; one column for binary labels, otherwise one for each class.
    alpha, beta : ndarray, shape (K,) and (V,)
    coords : dict
        Coordinates of the dimensions ``document``, ``word``, ``topic`` and ``class``.
    """

    starts: np.ndarray
    words: np.ndarray
    signs: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    coords: dict[str, Any] = field(default_factory=dict)

    @property
    def n_documents(self) -> int:
        """Number of documents D."""
        return len(self.signs)

    @property
    def is_binary(self) -> bool:
        """Whether the labels are −1 and +1."""
        return self.signs.shape[1] == 1

    def mean_assignments(self, in_topics: np.ndarray) -> np.ndarray:
        """Divide counts of tokens in topics, shape (D, K), by document lengths; zero if empty."""
        return in_topics / np.maximum(np.diff(self.starts), 1)[:, None]

    def mean_loss(self, scores: np.ndarray, margin: float, *, multiclass: bool) -> float:
        """Mean over documents of the hinge loss of their scores, shape (D, L)."""
        if multiclass:
            own = np.where(self.signs > 0, scores, 0.0).sum(axis=1)
            runner_up = np.where(self.signs > 0, -np.inf, scores).max(axis=1)
            return float(np.maximum(0.0, margin + runner_up - own).mean())
        return float(np.maximum(0.0, margin - self.signs * scores).sum(axis=1).mean())

    def accuracy(self, scores: np.ndarray) -> float:
        """Fraction of documents whose label is predicted by their scores, shape (D, L)."""
        if self.is_binary:
            return float(np.mean((scores > 0) == (self.signs > 0)))
        return float(np.mean(scores.argmax(axis=1) == self.signs.argmax(axis=1)))


def labeled_counts(
    counts: Any,
    labels: ArrayLike,
    n_topics: int,
    alpha: ArrayLike,
    beta: ArrayLike,
    documents: Sequence[Any] | None,
    vocabulary: Sequence[Any] | None,
    classes: Sequence[Any] | None,
) -> LabeledCounts:
    """Validate counts and labels, and expand the counts to tokens.

    Raises
    ------
    ValueError
        If counts are negative or fractional, or labels neither −1 and +1 nor 0 … L − 1.
    """
    check_integers(n_topics=(n_topics, 2))
    matrix = word_counts(counts)
    coords = document_coords(counts, matrix.shape, documents, vocabulary)
    n_documents, n_words = matrix.shape
    check_missing("labels", labels)
    y = np.asarray(labels)
    if y.shape != (n_documents,):
        raise ValueError(
            f"labels must hold one label for each of the {n_documents} rows of counts, got shape "
            f"{y.shape}"
        )
    is_binary = y.dtype.kind in "iuf" and bool(np.any(y == -1))
    if classes is None and np.all(y == y[0]):
        raise ValueError(f"labels are all the same, {y[0]}: at least two classes are needed")
    if is_binary:
        require_signs("labels", y)
        if classes is not None:
            raise ValueError("classes= names the labels 0 … L - 1, but the labels are -1 and +1")
        signs = y.astype(float)[:, None]
    else:
        require_classes("labels", y, None if classes is None else len(classes))
        if classes is None:
            require_every_class("labels", y, "classes")
        n_classes = int(y.max()) + 1 if classes is None else len(classes)
        if n_classes < 2:
            raise ValueError("classes must name at least two classes")
        signs = 2.0 * np.eye(n_classes)[y.astype(int)] - 1.0
    lengths = np.asarray(matrix.sum(axis=1)).ravel().astype(np.int64)
    coords["topic"] = np.arange(int(n_topics))
    if not is_binary:
        coords["class"] = np.arange(signs.shape[1]) if classes is None else np.asarray(classes)
    return LabeledCounts(
        starts=np.concatenate([[0], np.cumsum(lengths)]),
        words=np.repeat(matrix.indices, matrix.data.astype(np.int64)).astype(np.int32),
        signs=np.ascontiguousarray(signs),
        alpha=concentration("alpha", alpha, int(n_topics)),
        beta=concentration("beta", beta, n_words),
        coords=coords,
    )


class Recorder:
    """Storage for the draws of all chains.

    Parameters
    ----------
    data : LabeledCounts
    chains, draws : int
    var_names : sequence of str or None
        Variables to store.
    """

    def __init__(
        self, data: LabeledCounts, chains: int, draws: int, var_names: Sequence[str] | None
    ) -> None:
        names = VARIABLES if var_names is None else tuple(var_names)
        unknown = [name for name in names if name not in VARIABLES]
        if unknown:
            raise ValueError(f"var_names must be among {', '.join(VARIABLES)}, got {unknown[0]!r}")
        self._data = data
        n_topics, n_words = len(data.alpha), len(data.beta)
        of_weights = () if data.is_binary else (data.signs.shape[1],)
        shapes = {
            "topics": (n_topics, n_words),
            "weights": (n_topics, *of_weights),
            "zbar": (data.n_documents, n_topics),
        }
        self.keeps_topics = "topics" in names
        self._values = {name: np.empty((chains, draws, *shapes[name])) for name in names}
        self._shape = (chains, draws)
        self._stats: dict[str, np.ndarray] = {}

    def keep(
        self,
        chain: int,
        draw: int,
        topics: np.ndarray | None,
        eta: np.ndarray,
        in_topics: np.ndarray,
        hinge: Hinge,
        **stats: float,
    ) -> None:
        """Store one draw, η of shape (L, K), with the accuracy and the mean hinge loss."""
        data = self._data
        zbar = data.mean_assignments(in_topics)
        weights = eta[0] if data.is_binary else eta.T
        for name, value in {"topics": topics, "weights": weights, "zbar": zbar}.items():
            if name in self._values and value is not None:
                self._values[name][chain, draw] = value
        scores = zbar @ eta.T
        loss = data.mean_loss(scores, hinge.margin, multiclass=hinge.multiclass)
        for name, number in {"accuracy": data.accuracy(scores), "loss": loss, **stats}.items():
            if name not in self._stats:
                self._stats[name] = np.empty(self._shape)
            self._stats[name][chain, draw] = number

    def to_datatree(self, attributes: dict[str, Any]) -> xr.DataTree:
        """Return the draws as a DataTree."""
        data = self._data
        dims = {
            "topics": ["topic", "word"],
            "weights": ["topic"] if data.is_binary else ["topic", "class"],
            "zbar": ["document", "topic"],
            "alpha": ["topic"],
            "beta": ["word"],
        }
        groups = {
            "posterior": self._values,
            "sample_stats": self._stats,
            "constant_data": {"alpha": data.alpha, "beta": data.beta},
        }
        tree = from_dict(groups, dims=dims, coords=data.coords)
        tree["posterior"].attrs.update(attributes)
        return tree


class LabeledChain(Protocol):
    """State of one chain.

    Attributes
    ----------
    in_topics : ndarray, shape (D, K)
        Counts of the tokens of each document in topics, when it was last visited.
    """

    in_topics: np.ndarray

    def advance(self, iteration: int) -> None:
        """Compute the next state."""

    def topics(self) -> np.ndarray:
        """Return a draw of φ, shape (K, V)."""

    def weights(self) -> np.ndarray:
        """Return a draw of η, shape (L, K)."""

    def stats(self) -> dict[str, float]:
        """Return sample stats of the last iteration, among them ``documents``."""


@dataclass(frozen=True)
class SamplingOptions:
    """Numbers of draws and chains, variables to store, seed and progress bar."""

    draws: int
    tune: int
    chains: int
    var_names: Sequence[str] | None
    random_seed: int | np.random.Generator | None
    progressbar: bool
    thin: int = 1

    def __post_init__(self) -> None:
        """Validate the numbers."""
        check_integers(
            draws=(self.draws, 1),
            tune=(self.tune, 0),
            thin=(self.thin, 1),
            chains=(self.chains, 1),
        )


def sample_chains(
    data: LabeledCounts,
    hinge: Hinge,
    options: SamplingOptions,
    begin: Callable[[np.random.Generator], LabeledChain],
) -> xr.DataTree:
    """Sample all chains in sequence; `begin` creates the state of one from its generator."""
    recorder = Recorder(data, options.chains, options.draws, options.var_names)
    iterations = options.tune + options.draws * options.thin
    for number, rng, seen in each_chain(
        options.random_seed, options.chains, iterations, progressbar=options.progressbar
    ):
        chain = begin(rng)
        began = time.perf_counter()
        for iteration in seen:
            chain.advance(iteration)
            draw = draw_after(iteration, options.tune, options.thin)
            if draw is None:
                continue
            ended = time.perf_counter()
            recorder.keep(
                number,
                draw,
                chain.topics() if recorder.keeps_topics else None,
                chain.weights(),
                chain.in_topics,
                hinge,
                perf_counter_diff=ended - began,
                **chain.stats(),
            )
            began = time.perf_counter()
    return recorder.to_datatree({"cost": hinge.cost, "margin": hinge.margin})


class Passes:
    """Minibatches of passes over the documents, each pass in a random order.

    Parameters
    ----------
    rng : numpy.random.Generator
    n_documents : int
    ends : ndarray of int, shape (n_minibatches + 1,)
        Zero, and the end of each minibatch in the order of a pass; documents after the last end
        are omitted.

    Attributes
    ----------
    n_minibatches : int
        Number of minibatches per pass.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics.labeled_documents import Passes
    >>> of_one_size = Passes.of_one_size(np.random.default_rng(1), 5, batch_size=2)
    >>> [len(of_one_size.next_rows()) for _ in range(2)]
    [2, 2]
    >>> of_all = Passes.of_all(np.random.default_rng(1), 5, batch_size=2)
    >>> [len(of_all.next_rows()) for _ in range(3)]
    [2, 1, 2]
    """

    def __init__(self, rng: np.random.Generator, n_documents: int, ends: np.ndarray) -> None:
        self._rng, self._ends = rng, ends
        self.n_minibatches = len(ends) - 1
        self._order = rng.permutation(n_documents)
        self._position = 0

    @classmethod
    def of_one_size(cls, rng: np.random.Generator, n_documents: int, batch_size: int) -> Passes:
        """Return passes of minibatches of equal size that omit the remaining documents."""
        size = min(batch_size, n_documents)
        return cls(rng, n_documents, size * np.arange(n_documents // size + 1))

    @classmethod
    def of_all(
        cls, rng: np.random.Generator, n_documents: int, batch_size: int, multiple: int = 1
    ) -> Passes:
        """Return passes over all documents, of minibatches of nearly equal size.

        Their number is a multiple of ``multiple`` if there are at least that many documents.
        """
        size = min(batch_size, n_documents)
        n_minibatches = min(-(-n_documents // (size * multiple)) * multiple, n_documents)
        ends = np.linspace(0, n_documents, n_minibatches + 1).round().astype(int)
        return cls(rng, n_documents, ends)

    def next_rows(self) -> np.ndarray:
        """Return the documents of the next minibatch."""
        if self._position == self.n_minibatches:
            self._order = self._rng.permutation(len(self._order))
            self._position = 0
        self._position += 1
        return self._order[self._ends[self._position - 1] : self._ends[self._position]]
