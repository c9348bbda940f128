"""Expected counts of words in topics, from collapsed Gibbs sampling of a minibatch of documents.

By Fisher's identity ω ∂ log p(batch | ω) of topics ω is the expectation of the counts of words in
topics, given ω and the documents, over the topics z of all their words. Here it is an average over
sweeps of a Gibbs sampler of z in which the proportions θ of the documents are integrated out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pymc.logprob.transforms import SimplexTransform
from pymc.model import Model

from pymc_geodesic.counts.admixture_model import Proportions, likelihood_node
from pymc_geodesic.counts.logarithms import LOG_SMALLEST, log_of_value
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.kernels.topics.assignments import collect_words, sample_documents
from pymc_geodesic.kernels.topics.moves import read_words
from pymc_geodesic.minibatches.block_rows import Memory
from pymc_geodesic.minibatches.documents import StreamedDocuments, check_counts
from pymc_geodesic.minibatches.from_arguments import named_row_source
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.runtime.streams import split_stream
from pymc_geodesic.runtime.threads import Workers, parts_of
from pymc_geodesic.sparse import SparseContainers, sparse_containers

__all__ = ["TopicCountEstimator", "TopicCounts"]

DOCUMENTS_OF_PART = 25
MOST_PARTS = 4
"""Parts of a minibatch; the sums depend on them to rounding, and so not on the number of cores.

Each has counts of its own in memory.
"""

DOUBLE = np.dtype(float)


@dataclass(frozen=True)
class TopicCounts:
    """Counts of the words of a minibatch in topics.

    Attributes
    ----------
    words : ndarray of int32, shape (n_words,)
        The words of the minibatch.
    slots : ndarray of int32, shape (V,)
        Place of every word in ``words``, or −1.
    parts : ndarray, shape (n_parts, n_words, K)
        Counts in the parts of the minibatch, to be added.
    scale : float
        What turns them into counts of all documents.
    share : float
        Documents of the minibatch, divided by those of the largest one. An estimate is followed
        for this part of a step, so that every document counts the same.
    """

    words: np.ndarray
    slots: np.ndarray
    parts: np.ndarray
    scale: float
    share: float = 1.0

    def of_words(self) -> np.ndarray:
        """Estimated counts of all documents in the words of the minibatch, shape (n_words, K)."""
        return self.scale * self.parts.sum(axis=0)

    @cached_property
    def totals(self) -> np.ndarray:
        """Estimated counts of all documents in each topic, shape (K,)."""
        return self.scale * self.parts.sum(axis=(0, 1))


class TopicCountEstimator:
    """Counts of words in topics, estimated from minibatches of documents.

    Parameters
    ----------
    model : pymc.Model
    topics : ManifoldVariable
        Dirichlet variable of shape (K, V).
    local : list of ManifoldVariable
        The proportions θ, a Dirichlet variable of shape (D, K).
    batch_size, minibatch, batches, total_size, minibatch_order
        See `pymc_geodesic.SCIR`. With ``batches`` the rows of θ are those of the present block.
    n_kept, n_discarded : int
        Sweeps over a document that are averaged over, and sweeps before them.

    Attributes
    ----------
    source : RowSource

    Raises
    ------
    ValueError
        If the model has another likelihood, or the minibatch arguments do not name its counts.
    """

    evaluations = 1
    """Gradient evaluations that one estimate stands for."""

    def __init__(
        self,
        model: Model,
        topics: ManifoldVariable,
        local: Sequence[ManifoldVariable],
        *,
        batch_size: int | None,
        minibatch: Sequence[str] | str | None,
        batches: Iterable[Any] | None,
        total_size: int | None,
        minibatch_order: str,
        n_kept: int,
        n_discarded: int,
    ) -> None:
        if len(local) != 1:
            raise ValueError(f"local= takes one variable, the proportions, got {len(local)}")
        (self._theta,) = local
        self._model = model
        self._n_kept, self._n_discarded = n_kept, n_discarded
        node = likelihood_node(model, topics.rv, self._theta.rv)
        self._alpha_of = Proportions(model, self._theta.rv, topics.rv)
        self._n_topics, self._n_words = topics.shape[-2:]
        names = [minibatch] if isinstance(minibatch, str) else list(minibatch or ())
        containers = sparse_containers(model, names[0]) if len(names) == 1 else None
        if containers is None or containers.rows is not node.inputs[2]:
            raise ValueError(
                "local= needs minibatch=[name] with the name of the counts of the likelihood, "
                f"got minibatch={minibatch!r}"
            )
        self._name, self._containers = names[0], containers
        n_documents = self._theta.shape[0]
        self.source: RowSource
        if batches is None:
            source = named_row_source(
                model,
                batch_size=n_documents if batch_size is None else batch_size,
                minibatch=names,
                batches=None,
                total_size=total_size,
                minibatch_order=minibatch_order,
            )
            assert source is not None
            if source.n_rows != n_documents:
                raise ValueError(
                    f"{self._theta.name!r} has {n_documents} rows, but {self._name!r} has "
                    f"{source.n_rows} documents"
                )
            self.source = source
            self._total = total_size or source.n_rows
        else:
            total = getattr(batches, "total_size", None) if total_size is None else total_size
            if total is None:
                raise ValueError(
                    "batches= does not say how many documents there are; pass total_size="
                )
            if batch_size is not None:
                raise ValueError("batches= of documents are minibatches: leave out batch_size=")
            self._total = int(total)
            self.source = StreamedDocuments(
                batches, self._name, self._n_words, n_documents, self._total
            )
        self._values = np.empty((0, 0))
        self._memory = Memory()  # new pages would cost as much as what is done with them
        self.refresh_data()

    def refresh_data(self) -> None:
        """Read the data containers, and how many cores there are."""
        self.workers = Workers()
        if not isinstance(self.source, StreamedDocuments):
            check_counts(self._name, self._array(self._containers, "values"))

    def _array(self, containers: SparseContainers, part: str) -> np.ndarray:
        return self.source.whole_array(getattr(containers, part))

    def next_arguments(self, n: int) -> np.ndarray:
        """Arguments of `assign` for the next ``n`` minibatches."""
        return self.source.next_starts(n)

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Take over the values of variables that other steps sample."""
        self._alpha = self._alpha_of(point)

    def read_local(self, point: Mapping[str, np.ndarray]) -> None:
        """Take over the proportions of all documents."""
        self._values = np.array(point[self._theta.value_name], dtype=float)

    def write_local(self, point: dict[str, np.ndarray]) -> None:
        """Put the proportions of all documents into a point."""
        point[self._theta.value_name] = self._values

    @property
    def _keeps_logarithms(self) -> bool:
        return isinstance(self._model.rvs_to_transforms[self._theta.rv], SimplexTransform)

    def _log_theta(self, documents: np.ndarray) -> np.ndarray:
        """Logarithms of the proportions of some documents, up to a constant."""
        return log_of_value(self._theta, self._model, self._values[documents])

    def _store(self, documents: np.ndarray, log_theta: np.ndarray) -> None:
        log_theta = np.maximum(log_theta, LOG_SMALLEST)
        if self._keeps_logarithms:
            centred = log_theta - log_theta.mean(axis=-1, keepdims=True)
            self._values[documents] = centred[:, :-1]
        else:
            self._values[documents] = self._theta.forward(np.exp(log_theta))

    def _minibatch(
        self, argument: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Find counts, words and rows of a minibatch, and which documents they are."""
        if isinstance(self.source, StreamedDocuments):
            block = self.source.blocks[argument]
            bounds = np.column_stack([block.indptr[:-1], block.indptr[1:]]).astype(np.int64)
            return block.data, block.indices, bounds, None
        rows = self.source.arrays[f"{self._name}_rows"]
        return (
            self._array(self._containers, "values"),
            self._array(self._containers, "columns"),
            rows[argument : argument + self.source.batch_size],
            self.source.row_indices(argument),
        )

    def assign(
        self, log_state: np.ndarray, log_totals: np.ndarray, argument: int, stream: np.ndarray
    ) -> TopicCounts:
        """Sample the topics of the words of a minibatch, and the proportions of its documents.

        Parameters
        ----------
        log_state : ndarray, shape (V, K)
            log θ, where ω = θ / Σθ.
        log_totals : ndarray, shape (K,)
            log Σθ.
        argument : int
            Which minibatch.
        stream : ndarray of uint64, shape (2,)
            Random stream, advanced.

        Returns
        -------
        TopicCounts
            Its ``parts`` hold until the next call.
        """
        values, columns, rows, documents = self._minibatch(int(argument))
        slots = np.full(self._n_words, -1, dtype=np.int32)
        words = collect_words(columns, rows, slots)
        topics = self._memory.take("topics", (len(words), self._n_topics), DOUBLE)
        read_words(log_state, log_totals, words, topics)
        n = len(rows)
        log_theta = (
            np.zeros((n, self._n_topics)) if documents is None else self._log_theta(documents)
        )
        parts = parts_of(n, min(-(-n // DOCUMENTS_OF_PART), MOST_PARTS))
        counts = self._memory.take("counts", (len(parts), len(words), self._n_topics), DOUBLE)
        means = np.empty((n, self._n_topics))
        streams = split_stream(stream, n)

        def sample(i: int) -> None:
            part = parts[i]
            counts[i] = 0.0
            sample_documents(
                values,
                columns,
                rows[part],
                slots,
                topics,
                self._alpha,
                self._n_discarded,
                self._n_kept,
                streams[part],
                log_theta[part],
                counts[i],
                means[part],
            )

        self.workers.run(sample, len(parts))
        self._store(np.arange(n) if documents is None else documents, log_theta)
        scale = self._total / (n * self._n_kept)
        return TopicCounts(words, slots, counts, scale, n / self.source.batch_size)

    def share(self, argument: int) -> float:
        """Documents of a minibatch, divided by those of the largest one."""
        if isinstance(self.source, StreamedDocuments):
            return self.source.blocks[argument].shape[0] / self.source.batch_size
        return 1.0

    def estimate(
        self,
        values: np.ndarray,
        argument: int,
        stream: np.ndarray,
        counts: np.ndarray,
        exposures: np.ndarray,
    ) -> int:
        """Estimate the counts of all words.

        Parameters
        ----------
        values : ndarray, shape (K * V,)
            ω.
        argument : int
            Which minibatch.
        stream : ndarray of uint64, shape (2,)
            Random stream, advanced.
        counts, exposures : ndarray, shape (K * V,)
            Receive N / n times the expected counts of the minibatch, and zero.

        Returns
        -------
        int
            −1: no count is negative.
        """
        log_state = np.log(values).reshape(self._n_topics, self._n_words).T
        found = self.assign(
            np.ascontiguousarray(log_state), np.zeros(self._n_topics), argument, stream
        )
        counts[:] = exposures[:] = 0.0
        counts.reshape(self._n_topics, self._n_words)[:, found.words] = found.of_words().T
        return -1
