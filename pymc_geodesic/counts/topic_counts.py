"""Expected counts of words in topics, from collapsed Gibbs sampling of minibatches of documents.

By Fisher's identity, ω ∂ log p(minibatch | ω) for topics ω is the conditional expectation, given ω
and the documents, of the counts of words in topics. It is estimated by the average over sweeps of a
Gibbs sampler of the topic assignments z of all words, with the proportions θ integrated out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.logprob.transforms import SimplexTransform
from pymc.logprob.utils import replace_rvs_by_values
from pymc.model import Model
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.counts.count_estimator import CountAllRows, CountEstimator
from pymc_geodesic.counts.layout import LOG_SMALLEST, family_of, log_of_value
from pymc_geodesic.counts.model_checks import initial_and_jittered_points
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
from pymc_geodesic.minibatches.block_rows import Buffers
from pymc_geodesic.minibatches.documents import (
    Documents,
    ResidentDocuments,
    StreamedDocuments,
)
from pymc_geodesic.minibatches.from_arguments import (
    MinibatchArguments,
    check_streamed_order,
    minibatch_source,
)
from pymc_geodesic.ops.admixture_likelihood import AdmixtureLogLikelihood
from pymc_geodesic.runtime.streams import split_stream
from pymc_geodesic.runtime.threads import Workers, parts_of
from pymc_geodesic.sparse import sparse_containers


@dataclass(frozen=True)
class TopicCountSettings:
    """Constants of the estimate.

    Attributes
    ----------
    documents_per_part : int
        Number of documents per part of a minibatch.
    max_parts : int
        Maximum number of parts of a minibatch, which run in parallel and have separate counts. The
        rounding of sums depends on the parts, which are therefore independent of the number of
        cores.
    """

    documents_per_part: int = 25
    max_parts: int = 4


SETTINGS = TopicCountSettings()

_DOUBLE = np.dtype(float)

# --- model --------------------------------------------------------------------------------------

_REMEDY = (
    "local= needs a likelihood made by sparse.admixture_log_likelihood(counts, theta, topics), as "
    "in topics.lda, with separate Dirichlet priors on theta and topics and no other use of them"
)


def _without_copies(variable: Variable) -> Variable:
    """Remove identity operations from a variable."""
    while (
        variable.owner is not None
        and isinstance(variable.owner.op, Elemwise)
        and len(variable.owner.inputs) == 1
        and variable.owner.op.scalar_op.__class__.__name__ == "Identity"
    ):
        variable = variable.owner.inputs[0]
    return variable


def likelihood_node(model: Model, topics: TensorVariable, theta: TensorVariable) -> Apply:
    """Find the likelihood of topics and proportions, and check that no other term contains them.

    Parameters
    ----------
    model : pymc.Model
    topics, theta : TensorVariable
        Topics of shape (K, V) and proportions of shape (D, K).

    Raises
    ------
    ValueError
        If there is not exactly one such likelihood, or the variables occur in other terms.
    """
    nodes = []
    for term in [*model.potentials, *model.basic_RVs]:
        if term in (topics, theta) or {topics, theta}.isdisjoint(ancestors([term])):
            continue
        node = _without_copies(term).owner
        if node is None or not isinstance(node.op, AdmixtureLogLikelihood):
            raise ValueError(
                f"{term.name!r} depends on {topics.name!r} or {theta.name!r} in a way that Gibbs "
                f"sampling of topic assignments does not support. {_REMEDY}"
            )
        nodes.append(node)
    if len(nodes) != 1:
        raise ValueError(
            f"{len(nodes)} likelihoods connect {topics.name!r} and {theta.name!r}. {_REMEDY}"
        )
    by_word = nodes[0].inputs[4]
    transposed = by_word.owner is not None and isinstance(by_word.owner.op, DimShuffle)
    if nodes[0].inputs[3] is not theta or not transposed or by_word.owner.inputs[0] is not topics:
        raise ValueError(
            f"The likelihood depends on other variables than {theta.name!r} and {topics.name!r}. "
            f"{_REMEDY}"
        )
    return nodes[0]


class Concentration:
    """Concentration α of the prior of the proportions, as a function of other variables.

    Parameters
    ----------
    model : pymc.Model
    theta, topics : TensorVariable

    Raises
    ------
    ValueError
        If it depends on the topics, or differs between documents.
    """

    def __init__(self, model: Model, theta: TensorVariable, topics: TensorVariable) -> None:
        alpha = theta.owner.op.dist_params(theta.owner)[0]
        if topics in ancestors([alpha]):
            raise ValueError(
                f"the prior of {theta.name!r} depends on {topics.name!r}. Use a prior that does not"
            )
        graphs = [alpha] if alpha.type.ndim == 1 else [alpha[0], pt.all(pt.eq(alpha, alpha[0]))]
        graphs = replace_rvs_by_values(
            graphs, rvs_to_values=model.rvs_to_values, rvs_to_transforms=model.rvs_to_transforms
        )
        needed = set(ancestors(graphs))
        values = [value for value in model.value_vars if value in needed]
        self._names = [value.name for value in values]
        self._name = theta.name
        self._function = pytensor.function(values, graphs, mode="FAST_COMPILE")
        if len(graphs) > 1:  # with coefficients of zero all documents may have the same prior
            for point in initial_and_jittered_points(model, []):
                self._of_any_document(point)

    def _of_any_document(self, point: Mapping[str, np.ndarray]) -> np.ndarray:
        alpha, *same = self._function(*(point[name] for name in self._names))
        if not all(same):
            raise ValueError(
                f"the prior of {self._name!r} differs between documents. Use the same "
                "concentration for all documents, or sample proportions and topics with SGGMC, "
                "whose local= supports any prior, or with GMC or NUTS"
            )
        return np.asarray(alpha, dtype=float)

    def __call__(self, point: Mapping[str, np.ndarray]) -> np.ndarray:
        """Compute the concentration at a point, shape (K,).

        Raises
        ------
        ValueError
            If it is not positive, or differs between documents.
        """
        alpha = self._of_any_document(point)
        if not np.all((alpha > 0.0) & np.isfinite(alpha)):
            raise ValueError(f"the proportions have a concentration that is not positive: {alpha}")
        return alpha


# --- counts -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TopicCounts:
    """Counts of the words of a minibatch in topics.

    Attributes
    ----------
    words : ndarray of int32, shape (n_words,)
        Distinct words of the minibatch.
    slots : ndarray of int32, shape (V,)
        Index of every word of the vocabulary in ``words``, or −1.
    parts : ndarray, shape (n_parts, n_words, K)
        Counts in the parts of the minibatch, to be summed.
    scale : float
        Factor that scales them to estimates for all documents.
    share : float
        Number of documents, divided by that of the largest minibatch. The duration of a step is
        multiplied by this fraction, so that every document has the same weight.
    """

    words: np.ndarray
    slots: np.ndarray
    parts: np.ndarray
    scale: float
    share: float = 1.0

    def of_words(self) -> np.ndarray:
        """Estimated counts of the words of the minibatch in all documents, shape (n_words, K)."""
        return self.scale * self.parts.sum(axis=0)

    @cached_property
    def totals(self) -> np.ndarray:
        """Estimated counts of all words in all documents by topic, shape (K,)."""
        return self.scale * self.parts.sum(axis=(0, 1))


class TopicCountEstimator(CountEstimator):
    """Counts of words in topics, estimated from minibatches of documents.

    Parameters
    ----------
    model : pymc.Model
    variables : sequence of ManifoldVariable
        One Dirichlet variable of shape (K, V), the topics.
    local : sequence of ManifoldVariable
        One Dirichlet variable of shape (D, K), the proportions θ.
    minibatches : MinibatchArguments
        Arguments with the name of the counts. With ``batches`` the rows of θ are those of the
        current block.
    n_kept, n_discarded : int
        Number of sweeps over a document to average over, and number to discard before them.

    Attributes
    ----------
    source : RowSource
        Source of the minibatches.
    workers : Workers
        Pool of threads.

    Raises
    ------
    ValueError
        If there are other variables or likelihoods, or the minibatch arguments do not name the
        counts.
    """

    is_deterministic = False

    def __init__(
        self,
        model: Model,
        variables: Sequence[ManifoldVariable],
        local: Sequence[ManifoldVariable],
        *,
        minibatches: MinibatchArguments,
        n_kept: int,
        n_discarded: int,
    ) -> None:
        topics = variables[0]
        is_dirichlet = len(topics.shape) == 2 and family_of(topics.rv) == "Dirichlet"
        if len(variables) > 1 or not is_dirichlet:
            raise ValueError(
                "local= needs one global variable, a Dirichlet variable of topics with shape "
                f"(topic, word), not {[variable.name for variable in variables]}. Sample the "
                "others with another step method"
            )
        if len(local) != 1:
            raise ValueError(
                f"local= names {len(local)} variables. Name one variable, the proportions"
            )
        (self._theta,) = local
        self._model = model
        self._sweeps = Sweeps(n_discarded, n_kept)
        node = likelihood_node(model, topics.rv, self._theta.rv)
        self._concentration = Concentration(model, self._theta.rv, topics.rv)
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
            source = minibatch_source(model, minibatches, default_batch_size=n_documents)
            if source.n_rows != n_documents:
                raise ValueError(
                    f"{self._theta.name!r} has {n_documents} rows, but {names[0]!r} has "
                    f"{source.n_rows} documents. Use {names[0]}.shape[0] or a common dimension "
                    "name for the first dimension"
                )
            self.source = source
            self._documents = ResidentDocuments(names[0], source, containers)
            self._total = minibatches.total_size or source.n_rows
        else:
            total = minibatches.total_size or getattr(batches, "total_size", None)
            if total is None:
                raise ValueError(
                    "batches= has no total_size. Pass the number of documents as total_size="
                )
            if minibatches.batch_size is not None:
                raise ValueError(
                    "each block of batches= is a minibatch of documents. Omit batch_size="
                )
            check_streamed_order(minibatches)
            self._total = int(total)
            self.source = self._documents = StreamedDocuments(
                batches, names[0], self._n_words, n_documents, self._total
            )
        self._values = np.empty((0, 0))
        self._is_new = np.zeros(n_documents, dtype=bool)
        self._memory = Buffers()  # allocation takes as long as the computation
        self.refresh_data()

    def refresh_data(self) -> None:
        """Read the current values of the data containers, and the number of cores."""
        self.workers = Workers()
        self._documents.check()

    @property
    def evaluations(self) -> int:
        """One: the sweeps over the words of a minibatch count as one gradient."""
        return 1

    def next_minibatches(self, n: int) -> np.ndarray:
        """Arguments of `assign` for the next ``n`` minibatches, shape (n,)."""
        return self.source.next_starts(n)

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Set the values of variables that other steps sample."""
        self._alpha = self._concentration(point)

    def read_local(self, point: Mapping[str, np.ndarray]) -> None:
        """Set the proportions of all documents from a point."""
        self._values = np.array(point[self._theta.value_name], dtype=float)
        self._is_new[:] = False

    def forget_local(self) -> None:
        """Reset the proportions of every document to the mean of their prior."""
        if self._values.shape != self._theta.value_shape:
            even = np.full(self._theta.shape, 1.0 / self._n_topics)
            self._values = self._theta.forward(even).reshape(self._theta.value_shape)
        self._is_new[:] = True  # a flag, since writing all values takes time

    def write_local(self, point: dict[str, np.ndarray]) -> None:
        """Write the proportions of all documents to a point."""
        point[self._theta.value_name] = self._values

    @property
    def _is_logarithmic(self) -> bool:
        return isinstance(self._model.rvs_to_transforms[self._theta.rv], SimplexTransform)

    def _log_theta(self, documents: np.ndarray) -> np.ndarray:
        """Logarithms of the proportions of some documents, up to a constant."""
        log_theta = log_of_value(self._theta, self._model, self._values[documents])
        log_theta[self._is_new[documents]] = np.log(self._alpha)
        return log_theta

    def _store(self, documents: np.ndarray, log_theta: np.ndarray) -> None:
        self._is_new[documents] = False
        log_theta = np.maximum(log_theta, LOG_SMALLEST)
        if self._is_logarithmic:
            centered = log_theta - log_theta.mean(axis=-1, keepdims=True)
            self._values[documents] = centered[:, :-1]
        else:
            self._values[documents] = self._theta.forward(np.exp(log_theta))

    def assign(
        self, log_state: np.ndarray, log_totals: np.ndarray, minibatch: int, stream: np.ndarray
    ) -> TopicCounts:
        """Sample the topics of the words of a minibatch, and the proportions of its documents.

        Parameters
        ----------
        log_state : ndarray, shape (V, K)
            log θ, where ω = θ / Σθ.
        log_totals : ndarray, shape (K,)
            log Σθ.
        minibatch : int
            Element of `next_minibatches`.
        stream : ndarray of uint64, shape (2,)
            Random stream, advanced.

        Returns
        -------
        TopicCounts
            Counts, whose ``parts`` are overwritten by the next call.
        """
        values, columns, rows, documents = self._documents.minibatch(int(minibatch))
        slots = np.full(self._n_words, -1, dtype=np.int32)
        words = collect_words(columns, rows, slots)
        shares = self._memory.take("topics", (len(words), self._n_topics), _DOUBLE)
        read_words(log_state, log_totals, words, shares)
        n = len(rows)
        log_theta = (
            np.zeros((n, self._n_topics)) if documents is None else self._log_theta(documents)
        )
        n_parts = min(-(-n // SETTINGS.documents_per_part), SETTINGS.max_parts)
        parts = parts_of(n, n_parts)
        counts = self._memory.take("counts", (len(parts), len(words), self._n_topics), _DOUBLE)
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

    def share(self, minibatch: int) -> float:
        """Return the number of documents of a minibatch, divided by that of the largest."""
        return self._documents.share(minibatch)

    def compile_all_rows(self) -> CountAllRows:
        """Raise ValueError: counts of sampled topic assignments have no control variates."""
        raise ValueError(
            "control_variates= is not available with local=, which samples topic assignments. Omit "
            "control_variates="
        )

    def estimate(
        self,
        values: np.ndarray,
        minibatch: int,
        stream: np.ndarray,
        counts: np.ndarray,
        exposures: np.ndarray,
    ) -> int:
        """Estimate the counts of all words, none negative; see `CountEstimator.estimate`."""
        log_state = np.log(values).reshape(self._n_topics, self._n_words).T
        assigned = self.assign(
            np.ascontiguousarray(log_state), np.zeros(self._n_topics), minibatch, stream
        )
        counts[:] = exposures[:] = 0.0
        counts.reshape(self._n_topics, self._n_words)[:, assigned.words] = assigned.of_words().T
        return -1
