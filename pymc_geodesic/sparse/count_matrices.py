"""Matrices of word counts: validation, coordinates, and the likelihood of mixed topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_geodesic.ops.admixture_likelihood import AdmixtureLogLikelihood
from pymc_geodesic.runtime.missing_values import check_missing
from pymc_geodesic.sparse.data import SparseData


def axis_coords(
    data: Any,
    shape: tuple[int, ...],
    *,
    of: str = "counts",
    **axes: tuple[str, Sequence[Any] | None],
) -> dict[str, Sequence[Any] | np.ndarray]:
    """Return coordinates of rows and columns: given names, those of a data frame, or numbers.

    Parameters
    ----------
    data : Any
        Argument of the user.
    shape : tuple of int
        Numbers of rows and columns.
    of : str
        Name of the argument.
    **axes : tuple of (str, sequence or None)
        Dimension of rows, and of columns, each with the name and the value of the argument that may
        name its entries.

    Raises
    ------
    ValueError
        If the number of names is not that of rows or columns.

    Examples
    --------
    >>> import pandas as pd
    >>> from pymc_geodesic.sparse.count_matrices import axis_coords
    >>> counts = pd.DataFrame({"sun": [1, 0], "rain": [0, 2]}, index=["mon", "tue"])
    >>> axis_coords(counts, (2, 2), day=("days", None), sky=("skies", ["dry", "wet"]))
    {'day': ['mon', 'tue'], 'sky': ['dry', 'wet']}
    """
    coords: dict[str, Sequence[Any] | np.ndarray] = {}
    for (dim, (argument, names)), length, axis in zip(
        axes.items(), shape, ("rows", "columns"), strict=True
    ):
        if names is not None and len(names) != length:
            raise ValueError(
                f"{argument} must name the {length} {axis} of {of}, but has {len(names)} names"
            )
        found = _names_in(data, axis) if names is None else names
        coords[dim] = np.arange(length) if found is None else list(found)
    return coords


def _names_in(data: Any, axis: str) -> Any:
    """Names along an axis of a data frame, unless it has a MultiIndex."""
    if not hasattr(data, "columns"):  # lists have an index, too
        return None
    names = data.columns if axis == "columns" else getattr(data, "index", None)
    return None if getattr(names, "nlevels", 1) > 1 else names


def word_counts(
    counts: Any, n_words: int | None = None, *, name: str = "counts"
) -> sparse.csr_array:
    """Validate counts and convert them to a sparse matrix of floats in canonical format.

    Parameters
    ----------
    counts : array_like or scipy.sparse matrix, shape (document, word)
    n_words : int, optional
        Number of columns of new documents: the words of the draws.
    name : str
        Name of the argument, for messages.

    Raises
    ------
    ValueError
        If there are no counts, or not those of the words of the draws.
    """
    if not sparse.issparse(counts) and (kind := np.asarray(counts).dtype).kind in "USO":
        raise ValueError(
            f"{name} must be a matrix of numbers (document, word), got {kind}. Count the words of "
            "texts with sklearn.feature_extraction.text.CountVectorizer."
        )
    check_missing(name, counts)
    matrix = sparse.csr_array(counts if sparse.issparse(counts) else np.atleast_2d(counts))
    if matrix.ndim != 2 or (n_words is None and 0 in matrix.shape):
        raise ValueError(f"{name} must be a matrix (document, word), got shape {matrix.shape}")
    if n_words not in (None, matrix.shape[1]):
        raise ValueError(
            f"{name} must have the {n_words} columns of the draws, got shape {matrix.shape}. "
            "Count new documents with the vocabulary of the fit: vectorizer.transform(texts)."
        )
    data = matrix.data
    if np.any(data < 0) or np.any(data != np.floor(data)):
        raise ValueError(
            f"{name} must be whole numbers of at least 0: the model is one of counts, not of "
            "tf-idf features (see pymc_geodesic.topics.spherical_admixture for those)"
        )
    matrix = matrix.astype(np.float64)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def concentration(name: str, value: ArrayLike, length: int) -> np.ndarray:
    """Convert concentrations to a vector, or raise ValueError if they are invalid."""
    array = np.asarray(value, dtype=float)
    if array.shape not in ((), (length,)) or not np.all((array > 0) & np.isfinite(array)):
        raise ValueError(
            f"{name} must be one positive number or {length} of them, got {np.array2string(array)}"
        )
    return np.broadcast_to(array, (length,)).copy()


def admixture_log_likelihood(counts: SparseData, theta: Any, topics: Any) -> TensorVariable:
    r"""Log-likelihood of documents whose words come from mixtures of topics.

    .. math:: \ell_d = \sum_w c_{dw} \log\Bigl(\sum_k \theta_{dk} \varphi_{kw}\Bigr)

    without the multinomial coefficient, which does not depend on θ or φ. The time, also of the
    gradients, is proportional to the number of non-zero counts times K.

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
