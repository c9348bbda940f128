r"""Log-likelihood of sparse counts of words under mixtures of topics.

.. math:: \ell_i = \sum_{k \in \text{row } i} \mathrm{values}_k
          \log\Bigl(\sum_t \theta_{it}\, \varphi_{t\,\mathrm{columns}_k}\Bigr)

Only the non-zero counts are looked at, and no matrix of documents by words is ever formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.sparse.data import SparseData
from pymc_geodesic.sparse.order import positions_of

__all__ = [
    "AdmixtureLogLikelihood",
    "AdmixtureThetaGradient",
    "AdmixtureTopicsGradient",
    "admixture_log_likelihood",
]

_PIECE = 2**20
"""Numbers that are gathered at a time where NumPy does the work."""


@cache
def _register_with_numba() -> None:
    """Give the Ops their loops; not on import, because Numba's dispatch is slow to load."""
    import pymc_geodesic.sparse.admixture_numba  # noqa: F401  # imported for its effect


class _AdmixtureOp(Op):
    """Base: inputs values, columns, rows, theta (n, K) and the topics by word (V, K)."""

    __props__ = ()

    def __init__(self) -> None:
        _register_with_numba()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled Op."""
        _register_with_numba()
        self.__dict__.update(state)

    @staticmethod
    def _checked(*inputs: Any) -> list[TensorVariable]:
        tensors = [pt.as_tensor(entry) for entry in inputs]
        theta, by_word = tensors[3:5]
        if theta.type.ndim != 2 or by_word.type.ndim != 2:
            raise ValueError(
                f"theta and topics must be matrices, but have {theta.type.ndim} and "
                f"{by_word.type.ndim} axes"
            )
        counts = theta.type.shape[1], by_word.type.shape[1]
        if None not in counts and counts[0] != counts[1]:
            raise ValueError(f"theta has {counts[0]} topics on its last axis, topics {counts[1]}")
        documents = theta.type.shape[0], tensors[2].type.shape[0]
        if None not in documents and documents[0] != documents[1]:
            raise ValueError(
                f"the proportions have {documents[0]} rows for {documents[1]} documents; with "
                "minibatches of documents give the step their name as local="
            )
        return tensors

    @staticmethod
    def _dtype(tensors: Sequence[TensorVariable]) -> str:
        return str(np.result_type(tensors[0].type.dtype, *[t.type.dtype for t in tensors[3:]]))

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that positions are no numbers to differentiate by."""
        return [[i not in (1, 2)] for i in range(len(node.inputs))]


def _pieces(rows: np.ndarray, n_topics: int) -> list[slice]:
    """Ranges of rows that hold few enough non-zeros to be gathered at once."""
    ends = np.cumsum(rows[:, 1] - rows[:, 0])
    pieces, start, done = [], 0, 0
    while start < len(rows):
        stop = int(np.searchsorted(ends, done + max(_PIECE // n_topics, 1), side="right"))
        stop = max(stop, start + 1)
        pieces.append(slice(start, stop))
        done, start = int(ends[stop - 1]), stop
    return pieces


def _gathered(inputs: Sequence[np.ndarray]) -> Any:
    """Yield document, word, count and mixture probability of the non-zeros, piece by piece."""
    values, columns, rows, theta, by_word = inputs[:5]
    for piece in _pieces(rows, theta.shape[1]):
        positions = positions_of(rows[piece])
        document = np.repeat(np.arange(piece.start, piece.stop), np.diff(rows[piece])[:, 0])
        word = columns[positions]
        mixture = np.einsum("ik,ik->i", theta[document], by_word[word])
        yield document, word, values[positions], mixture


class AdmixtureLogLikelihood(_AdmixtureOp):
    """Log-likelihood of each row; see `admixture_log_likelihood`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.sparse.admixture import AdmixtureLogLikelihood
    >>> values, columns = np.array([2.0, 1.0]), np.array([0, 1], dtype="int32")
    >>> by_word = np.array([[0.5], [0.25], [0.25]])  # one topic, three words
    >>> counts = (values, columns, np.array([[0, 2]]))
    >>> log_likelihood = AdmixtureLogLikelihood()(*counts, np.ones((1, 1)), by_word)
    >>> log_likelihood.eval(mode="FAST_COMPILE").round(4)  # 2 log 0.5 + log 0.25
    array([-2.7726])
    """

    def make_node(self, values: Any, columns: Any, rows: Any, theta: Any, by_word: Any) -> Apply:
        """Build the node.

        Raises
        ------
        ValueError
            If ``theta`` or the topics are not matrices, or their numbers of topics or of
            documents differ.
        """
        tensors = self._checked(values, columns, rows, theta, by_word)
        length = tensors[2].type.shape[:1]
        return Apply(self, tensors, [pt.tensor(dtype=self._dtype(tensors), shape=length)])

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], gradients: Sequence[Variable]
    ) -> list[Variable]:
        """Gradient in the proportions and in the topics."""
        reason = "The counts are data; the log-likelihood is not differentiated by them"
        return [
            grad_not_implemented(self, 0, inputs[0], reason),
            DisconnectedType()(),
            DisconnectedType()(),
            AdmixtureThetaGradient()(*inputs, gradients[0]),
            AdmixtureTopicsGradient()(*inputs, gradients[0]),
        ]

    def infer_shape(self, node: Apply, shapes: list) -> list:
        """One number for each row."""
        return [(shapes[2][0],)]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Sum up in NumPy."""
        result = np.zeros(len(inputs[2]), node.outputs[0].type.dtype)
        with np.errstate(divide="ignore"):
            for document, _, count, mixture in _gathered(inputs):
                np.add.at(result, document, count * np.log(mixture))
        outputs[0][0] = result


class AdmixtureThetaGradient(_AdmixtureOp):
    """Gradient of the log-likelihood in the proportions θ, times a number for each row.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.sparse.admixture import AdmixtureThetaGradient
    >>> counts = np.array([2.0]), np.array([0], dtype="int32"), np.array([[0, 1]])
    >>> gradient = AdmixtureThetaGradient()(*counts, [[1.0]], [[0.5]], [1.0])
    >>> gradient.eval(mode="FAST_COMPILE")
    array([[2.]])
    """

    def make_node(self, *inputs: Any) -> Apply:
        """Build the node."""
        tensors = self._checked(*inputs)
        shape = tensors[3].type.shape
        return Apply(self, tensors, [pt.tensor(dtype=self._dtype(tensors), shape=shape)])

    def infer_shape(self, node: Apply, shapes: list) -> list:
        """Shape of θ."""
        return [shapes[3]]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Sum up in NumPy."""
        by_word, factor = inputs[4], inputs[5]
        result = np.zeros(inputs[3].shape, node.outputs[0].type.dtype)
        for document, word, count, mixture in _gathered(inputs):
            share = count / mixture * factor[document]
            np.add.at(result, document, share[:, None] * by_word[word])
        outputs[0][0] = result


class AdmixtureTopicsGradient(_AdmixtureOp):
    """Gradient of the log-likelihood in the topics by word, each row times a number of its own.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.sparse.admixture import AdmixtureTopicsGradient
    >>> counts = np.array([2.0]), np.array([0], dtype="int32"), np.array([[0, 1]])
    >>> gradient = AdmixtureTopicsGradient()(*counts, [[1.0]], [[0.5], [0.5]], [1.0])
    >>> gradient.eval(mode="FAST_COMPILE")
    array([[4.],
           [0.]])
    """

    def make_node(self, *inputs: Any) -> Apply:
        """Build the node."""
        tensors = self._checked(*inputs)
        shape = tensors[4].type.shape
        return Apply(self, tensors, [pt.tensor(dtype=self._dtype(tensors), shape=shape)])

    def infer_shape(self, node: Apply, shapes: list) -> list:
        """Shape of the topics by word."""
        return [shapes[4]]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Sum up in NumPy."""
        theta, factor = inputs[3], inputs[5]
        result = np.zeros(inputs[4].shape, node.outputs[0].type.dtype)
        for document, word, count, mixture in _gathered(inputs):
            share = count / mixture * factor[document]
            np.add.at(result, word, share[:, None] * theta[document])
        outputs[0][0] = result


@_vectorize_node.register(AdmixtureLogLikelihood)
def _with_draws_of_theta(op: Op, node: Apply, *batched: TensorVariable) -> list[TensorVariable]:
    """Take several draws of the proportions as so many more documents."""
    values, columns, rows, theta, by_word = batched
    if by_word.type.ndim > 2 or any(
        new.type.ndim > old.type.ndim for new, old in zip(batched[:3], node.inputs[:3], strict=True)
    ):
        raise NotImplementedError("Only the proportions may have leading axes, not the topics")
    if theta.type.ndim == 2:
        return [op(values, columns, rows, theta, by_word)]
    leading = theta.shape[:-2]
    repeated = pt.tile(rows, (pt.prod(leading), 1))
    flat = op(values, columns, repeated, theta.reshape((-1, theta.shape[-1])), by_word)
    result = flat.reshape((*[leading[i] for i in range(theta.type.ndim - 2)], rows.shape[0]))
    return [pt.specify_shape(result, theta.type.shape[:-1])]


def admixture_log_likelihood(counts: SparseData, theta: Any, topics: Any) -> TensorVariable:
    r"""Log-likelihood of documents whose words come from mixtures of topics.

    .. math:: \ell_d = \sum_w c_{dw} \log\Bigl(\sum_k \theta_{dk} \varphi_{kw}\Bigr)

    without the multinomial coefficient, which does not depend on θ or φ. The cost, also of the
    gradients, is in proportion to the non-zero counts times K.

    Parameters
    ----------
    counts : SparseData, shape (D, V)
        c, counts of words.
    theta : tensor_like, shape (D, K)
        Proportions of the topics in each document.
    topics : tensor_like, shape (K, V)
        φ, probabilities of the words in each topic.

    Returns
    -------
    TensorVariable, shape (D,)

    Raises
    ------
    ValueError
        If ``theta`` or ``topics`` is not a matrix, or their shapes do not fit.

    Notes
    -----
    Runs on the Numba and C backends of PyTensor, not on JAX. First derivatives only.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.sparse import SparseData, admixture_log_likelihood
    >>> from scipy import sparse
    >>> with pm.Model():
    ...     counts = SparseData("counts", sparse.csr_array([[1, 0, 2], [0, 3, 0]]))
    ...     topics = pm.Dirichlet("topics", np.ones(3), shape=(2, 3))
    ...     theta = pm.Dirichlet("theta", np.ones(2), shape=(2, 2))
    ...     words = pm.Potential("words", admixture_log_likelihood(counts, theta, topics))
    >>> words.eval({theta: np.full((2, 2), 0.5), topics: np.full((2, 3), 1 / 3)}).round(4)
    array([-3.2958, -3.2958])
    """
    topics = pt.as_tensor(topics)
    if topics.type.ndim == 2 and topics.type.shape[1] not in (None, counts.width):
        raise ValueError(
            f"topics have {topics.type.shape[1]} words, but {counts.name!r} has {counts.width} "
            "columns"
        )
    by_word = topics.mT if topics.type.ndim >= 2 else topics
    return AdmixtureLogLikelihood()(counts.values, counts.columns, counts.rows, theta, by_word)
