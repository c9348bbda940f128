"""Expected counts of words in topics, from collapsed Gibbs sampling of a minibatch of documents.

By Fisher's identity ω ∂ log p(batch | ω) of topics ω is the expectation of the counts of words in
topics, given ω and the documents, over the topics z of all their words. Here it is an average over
sweeps of a Gibbs sampler of z in which the proportions θ of the documents are integrated out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pymc.logprob.transforms import SimplexTransform
from pymc.model import Model

from pymc_geodesic.counts.admixture_model import Proportions, likelihood_node
from pymc_geodesic.counts.estimate import CountEstimate, CountKernels
from pymc_geodesic.counts.logarithms import LOG_SMALLEST, log_of_value
from pymc_geodesic.counts.word_counts import TopicCounts
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.kernels.topic_assignments import (
    Entries,
    Expectations,
    Sweeps,
    Topics,
    collect_words,
    sample_documents,
)
from pymc_geodesic.kernels.topic_updates import read_words
from pymc_geodesic.minibatches.block_rows import Memory
from pymc_geodesic.minibatches.documents import (
    Documents,
    ResidentDocuments,
    StreamedDocuments,
)
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments, minibatch_source
from pymc_geodesic.runtime.streams import split_stream
from pymc_geodesic.runtime.threads import Workers, parts_of
from pymc_geodesic.sparse import sparse_containers

__all__ = ["TopicCountEstimator"]

DOCUMENTS_OF_PART = 25
MOST_PARTS = 4
"""Parts of a minibatch; the sums depend on them to rounding, and so not on the number of cores.

Each has counts of its own in memory.
"""

DOUBLE = np.dtype(float)


class TopicCountEstimator(CountEstimate):
    """Counts of words in topics, estimated from minibatches of documents.

    Parameters
    ----------
    model : pymc.Model
    topics : ManifoldVariable
        Dirichlet variable of shape (K, V).
    local : list of ManifoldVariable
        The proportions θ, a Dirichlet variable of shape (D, K).
    minibatches : MinibatchArguments
        Which name the counts. With ``batches`` the rows of θ are those of the present block.
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

    repeats = False

    def __init__(
        self,
        model: Model,
        topics: ManifoldVariable,
        local: Sequence[ManifoldVariable],
        *,
        minibatches: MinibatchArguments,
        n_kept: int,
        n_discarded: int,
    ) -> None:
        if len(local) != 1:
            raise ValueError(f"local= takes one variable, the proportions, got {len(local)}")
        (self._theta,) = local
        self._model = model
        self._sweeps = Sweeps(n_discarded, n_kept)
        node = likelihood_node(model, topics.rv, self._theta.rv)
        self._alpha_of = Proportions(model, self._theta.rv, topics.rv)
        self._n_topics, self._n_words = topics.shape[-2:]
        minibatch, batches = minibatches.minibatch, minibatches.batches
        names = [minibatch] if isinstance(minibatch, str) else list(minibatch or ())
        containers = sparse_containers(model, names[0]) if len(names) == 1 else None
        if containers is None or containers.rows is not node.inputs[2]:
            raise ValueError(
                "local= needs minibatch=[name] with the name of the counts of the likelihood, "
                f"got minibatch={minibatch!r}"
            )
        n_documents = self._theta.shape[0]
        self._documents: Documents
        if batches is None:
            source = minibatch_source(model, minibatches, n_rows=n_documents)
            if source.n_rows != n_documents:
                raise ValueError(
                    f"{self._theta.name!r} has {n_documents} rows, but {names[0]!r} has "
                    f"{source.n_rows} documents; a first dimension of {names[0]}.shape[0], or of "
                    "a name that both share, has as many as the data"
                )
            self.source = source
            self._documents = ResidentDocuments(names[0], source, containers)
            self._total = minibatches.total_size or source.n_rows
        else:
            total = minibatches.total_size or getattr(batches, "total_size", None)
            if total is None:
                raise ValueError(
                    "batches= does not say how many documents there are; pass total_size="
                )
            if minibatches.batch_size is not None:
                raise ValueError("batches= of documents are minibatches: leave out batch_size=")
            self._total = int(total)
            self.source = self._documents = StreamedDocuments(
                batches, names[0], self._n_words, n_documents, self._total
            )
        self._values = np.empty((0, 0))
        self._is_new = np.zeros(n_documents, dtype=bool)
        self._memory = Memory()  # new pages would cost as much as what is done with them
        self.refresh_data()

    def refresh_data(self) -> None:
        """Read the data containers, and how many cores there are."""
        self.workers = Workers()
        self._documents.check()

    @property
    def evaluations(self) -> int:
        """One: sweeps over the words of a minibatch stand for its gradient."""
        return 1

    def next_arguments(self, n: int) -> np.ndarray:
        """Arguments of `assign` for the next ``n`` minibatches."""
        return self.source.next_starts(n)

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Take over the values of variables that other steps sample."""
        self._alpha = self._alpha_of(point)

    def read_local(self, point: Mapping[str, np.ndarray]) -> None:
        """Take over the proportions of all documents."""
        self._values = np.array(point[self._theta.value_name], dtype=float)
        self._is_new[:] = False

    def forget_local(self) -> None:
        """Let the proportions of every document begin at the mean of their prior."""
        if self._values.shape != self._theta.value_shape:
            even = np.full(self._theta.shape, 1.0 / self._n_topics)
            self._values = self._theta.forward(even).reshape(self._theta.value_shape)
        self._is_new[:] = True  # the values stay as they are: there are many more of them

    def write_local(self, point: dict[str, np.ndarray]) -> None:
        """Put the proportions of all documents into a point."""
        point[self._theta.value_name] = self._values

    @property
    def _keeps_logarithms(self) -> bool:
        return isinstance(self._model.rvs_to_transforms[self._theta.rv], SimplexTransform)

    def _log_theta(self, documents: np.ndarray) -> np.ndarray:
        """Logarithms of the proportions of some documents, up to a constant."""
        found = log_of_value(self._theta, self._model, self._values[documents])
        found[self._is_new[documents]] = np.log(self._alpha)
        return found

    def _store(self, documents: np.ndarray, log_theta: np.ndarray) -> None:
        self._is_new[documents] = False
        log_theta = np.maximum(log_theta, LOG_SMALLEST)
        if self._keeps_logarithms:
            centred = log_theta - log_theta.mean(axis=-1, keepdims=True)
            self._values[documents] = centred[:, :-1]
        else:
            self._values[documents] = self._theta.forward(np.exp(log_theta))

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
        values, columns, rows, documents = self._documents.minibatch(int(argument))
        slots = np.full(self._n_words, -1, dtype=np.int32)
        words = collect_words(columns, rows, slots)
        shares = self._memory.take("topics", (len(words), self._n_topics), DOUBLE)
        read_words(log_state, log_totals, words, shares)
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
                Entries(values, columns, rows[part]),
                Topics(slots, shares),
                self._alpha,
                self._sweeps,
                streams[part],
                log_theta[part],
                Expectations(counts[i], means[part]),
            )

        self.workers.run(sample, len(parts))
        self._store(np.arange(n) if documents is None else documents, log_theta)
        scale = self._total / (n * self._sweeps.n_kept)
        return TopicCounts(words, slots, counts, scale, n / self.source.batch_size)

    def share(self, argument: int) -> float:
        """Documents of a minibatch, divided by those of the largest one."""
        return self._documents.share(argument)

    def advance(
        self, kernels: CountKernels, minibatches: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Move topics; see `CountEstimate.advance`."""
        return kernels.run_topic_kernel(self, minibatches, step_size)

    def estimate(
        self,
        values: np.ndarray,
        argument: int,
        stream: np.ndarray,
        counts: np.ndarray,
        exposures: np.ndarray,
    ) -> int:
        """Estimate the counts of all words, of which none is negative; see `CountEstimate`."""
        log_state = np.log(values).reshape(self._n_topics, self._n_words).T
        found = self.assign(
            np.ascontiguousarray(log_state), np.zeros(self._n_topics), argument, stream
        )
        counts[:] = exposures[:] = 0.0
        counts.reshape(self._n_topics, self._n_words)[:, found.words] = found.of_words().T
        return -1
