r"""Log-likelihood of sparse word counts under mixtures of topics, and its gradients.

.. math:: \ell_i = \sum_{k \in \text{row } i} \mathrm{values}_k
          \log\Bigl(\sum_t \theta_{it}\, \varphi_{t\,\mathrm{columns}_k}\Bigr)

Only the non-zero counts are read, and no matrix of documents by words is formed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.ops.numba_backend import LoopOp
from pymc_geodesic.ops.sparse_dot import nonzero_positions

_PIECE = 2**20
"""Entries gathered at a time in the NumPy implementation."""


class _AdmixtureOp(LoopOp, Op):
    """Base class: inputs values, columns, rows, theta (n, K) and the topics by word (V, K)."""

    __props__ = ()

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
        """Return that the output is not connected to the positions."""
        return [[i not in (1, 2)] for i in range(len(node.inputs))]


def _pieces(rows: np.ndarray, n_topics: int) -> list[slice]:
    """Return ranges of rows with a bounded number of non-zeros."""
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
        positions = nonzero_positions(rows[piece])
        document = np.repeat(np.arange(piece.start, piece.stop), np.diff(rows[piece])[:, 0])
        word = columns[positions]
        mixture = np.einsum("ik,ik->i", theta[document], by_word[word])
        yield document, word, values[positions], mixture


class AdmixtureLogLikelihood(_AdmixtureOp):
    """Log-likelihood of each row; see the module docstring.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.ops.admixture_likelihood import AdmixtureLogLikelihood
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
        """Return the shape: one value for each row."""
        return [(shapes[2][0],)]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute the sum in NumPy."""
        result = np.zeros(len(inputs[2]), node.outputs[0].type.dtype)
        with np.errstate(divide="ignore"):
            for document, _, count, mixture in _gathered(inputs):
                np.add.at(result, document, count * np.log(mixture))
        outputs[0][0] = result

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the loop over the rows."""
        dtype = node.outputs[0].type.numpy_dtype

        @njit
        def loop(values, columns, rows, theta, by_word):  # type: ignore[no-untyped-def]
            n, n_topics = rows.shape[0], theta.shape[1]
            if theta.shape[0] != n or by_word.shape[1] != n_topics:
                raise ValueError("theta does not fit the documents or the topics")
            result = np.empty(n, dtype)
            for i in range(n):
                total = dtype.type(0)
                for position in range(rows[i, 0], rows[i, 1]):
                    weights = by_word[np.uintp(columns[position])]
                    mixture = dtype.type(0)
                    for k in range(n_topics):
                        mixture += theta[i, k] * weights[k]
                    total += values[position] * np.log(mixture)
                result[i] = total
            return result

        return loop


class AdmixtureThetaGradient(_AdmixtureOp):
    """Gradient of the log-likelihood in the proportions θ, times a factor for each row.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.ops.admixture_likelihood import AdmixtureThetaGradient
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
        """Return the shape of θ."""
        return [shapes[3]]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute the sum in NumPy."""
        by_word, factor = inputs[4], inputs[5]
        result = np.zeros(inputs[3].shape, node.outputs[0].type.dtype)
        for document, word, count, mixture in _gathered(inputs):
            share = count / mixture * factor[document]
            np.add.at(result, document, share[:, None] * by_word[word])
        outputs[0][0] = result

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the loop over the rows."""
        dtype = node.outputs[0].type.numpy_dtype

        @njit
        def loop(values, columns, rows, theta, by_word, factor):  # type: ignore[no-untyped-def]
            n, n_topics = rows.shape[0], theta.shape[1]
            if theta.shape[0] != n or by_word.shape[1] != n_topics:
                raise ValueError("theta does not fit the documents or the topics")
            result = np.zeros((n, n_topics), dtype)
            for i in range(n):
                gradient = result[i]
                for position in range(rows[i, 0], rows[i, 1]):
                    weights = by_word[np.uintp(columns[position])]
                    mixture = dtype.type(0)
                    for k in range(n_topics):
                        mixture += theta[i, k] * weights[k]
                    share = factor[i] * values[position] / mixture
                    for k in range(n_topics):
                        gradient[k] += share * weights[k]
            return result

        return loop


class AdmixtureTopicsGradient(_AdmixtureOp):
    """Gradient of the log-likelihood in the topics by word, with a factor for each document.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.ops.admixture_likelihood import AdmixtureTopicsGradient
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
        """Return the shape of the topics by word."""
        return [shapes[4]]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute the sum in NumPy."""
        theta, factor = inputs[3], inputs[5]
        result = np.zeros(inputs[4].shape, node.outputs[0].type.dtype)
        for document, word, count, mixture in _gathered(inputs):
            share = count / mixture * factor[document]
            np.add.at(result, word, share[:, None] * theta[document])
        outputs[0][0] = result

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the loop over the rows."""
        dtype = node.outputs[0].type.numpy_dtype

        @njit
        def loop(values, columns, rows, theta, by_word, factor):  # type: ignore[no-untyped-def]
            n, n_topics = rows.shape[0], theta.shape[1]
            if theta.shape[0] != n or by_word.shape[1] != n_topics:
                raise ValueError("theta does not fit the documents or the topics")
            result = np.zeros((by_word.shape[0], n_topics), dtype)
            for i in range(n):
                for position in range(rows[i, 0], rows[i, 1]):
                    word = np.uintp(columns[position])
                    weights, gradient = by_word[word], result[word]
                    mixture = dtype.type(0)
                    for k in range(n_topics):
                        mixture += theta[i, k] * weights[k]
                    share = factor[i] * values[position] / mixture
                    for k in range(n_topics):
                        gradient[k] += share * theta[i, k]
            return result

        return loop


@_vectorize_node.register(AdmixtureLogLikelihood)
def _with_draws_of_theta(op: Op, node: Apply, *batched: TensorVariable) -> list[TensorVariable]:
    """Vectorize over draws of the proportions by repeating the documents."""
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
