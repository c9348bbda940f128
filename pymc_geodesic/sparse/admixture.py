"""Log-likelihood of sparse counts of words under mixtures of topics."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.ops.admixture_likelihood import AdmixtureLogLikelihood
from pymc_geodesic.sparse.data import SparseData


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
