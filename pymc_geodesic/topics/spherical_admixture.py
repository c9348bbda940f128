"""The spherical admixture model, a topic model of unit vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.tensor import TensorVariable
from scipy import sparse

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.distributions import SphericalAdmixture, VonMisesFisher
from pymc_geodesic.distributions.initial_values import VonMisesFisherFromDraw
from pymc_geodesic.distributions.rotationally_symmetric import log_density_of_cosine
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.inner_products import gram_matrix, squared_length
from pymc_geodesic.runtime.missing_values import check_missing
from pymc_geodesic.sparse import SparseData
from pymc_geodesic.topics.lda import document_coords
from pymc_geodesic.transforms.unit_vector import UnitVectorTransform


class JointUnitVectors(UnitVectorTransform):
    """Unit vectors with one joint density: rows of a matrix of directions."""

    ndim_supp = 2

    def log_jac_det(self, value: TensorVariable, *inputs: Any) -> TensorVariable:
        """Sum of the log-densities of the lengths."""
        return pt.sum(super().log_jac_det(value, *inputs), axis=-1)

    def __reduce__(self) -> str:
        """Pickle by name: there is one object."""
        return "joint_unit_vectors"


joint_unit_vectors = JointUnitVectors()


@dataclass(frozen=True)
class CollapsedTopics:
    r"""Joint distribution of topics scattered around a corpus mean that is integrated out.

    .. math::

        \log p(\beta) = \log c_V(\kappa_0) + K \log c_V(\sigma)
        - \log c_V(\| \kappa_0 m + \sigma \textstyle\sum_k \beta_k \|)

    Parameters
    ----------
    n_topics, n_words : int
        K and V.

    References
    ----------
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, eq. 9.
    """

    n_topics: int
    n_words: int

    def logp(
        self,
        beta: TensorVariable,
        m: TensorVariable,
        kappa0: TensorVariable,
        sigma: TensorVariable,
    ) -> TensorVariable:
        """Log-density of topics ``beta``, shape (K, V)."""
        total = kappa0 * m + sigma * pt.sum(beta, axis=-2)
        length = pt.sqrt(pt.sum(total**2, axis=-1))
        return (
            log_vmf_normalizer(self.n_words, kappa0)
            + self.n_topics * log_vmf_normalizer(self.n_words, sigma)
            - log_vmf_normalizer(self.n_words, length)
        )

    def dist(
        self,
        m: TensorVariable,
        kappa0: TensorVariable,
        sigma: TensorVariable,
        size: TensorVariable,
    ) -> TensorVariable:
        """Random topics given a random corpus mean."""
        mu = VonMisesFisher.dist(m, kappa0, size=size)
        batch = [mu.shape[axis] for axis in range(mu.type.ndim - 1)]
        return VonMisesFisher.dist(mu[..., None, :], sigma, size=[*batch, self.n_topics])

    def support_point(
        self,
        rv: TensorVariable,
        size: TensorVariable,
        m: TensorVariable,
        kappa0: TensorVariable,
        sigma: TensorVariable,
    ) -> TensorVariable:
        """Return a draw from the prior: topics that start at the same point separate slowly.

        ``initval="prior"`` is equivalent, but PyMC cannot copy a model with initial values, which
        `pymc.compute_log_likelihood`, `pymc.do` and `pymc.observe` do.
        """
        return rv


def document_vectors(V: Any) -> np.ndarray | sparse.csr_array:
    """Validate documents, unit vectors in rows, dense or sparse."""
    check_missing("V", V)
    rows = sparse.csr_array(V, dtype=float) if sparse.issparse(V) else np.asarray(V, dtype=float)
    if rows.ndim != 2:
        raise ValueError(f"V must be a matrix (document, word), got shape {rows.shape}")
    squares = rows.power(2) if isinstance(rows, sparse.csr_array) else rows**2
    lengths = np.sqrt(np.asarray(squares.sum(axis=1)))
    wrong = np.flatnonzero(np.abs(lengths - 1.0) > 1e-6)
    if wrong.size:
        raise ValueError(
            f"row {wrong[0]} of V has length {lengths[wrong[0]]:.4g}: documents must be unit "
            "vectors; drop empty documents and divide each row by its length"
        )
    return rows


def mean_direction(vectors: np.ndarray | sparse.csr_array, mean: ArrayLike | None) -> np.ndarray:
    """Return m; by default the mean direction of the documents."""
    n_words = vectors.shape[1]
    centre = np.asarray(vectors.sum(axis=0) if mean is None else mean, dtype=float)
    if centre.shape != (n_words,) or not np.linalg.norm(centre) > 0:
        raise ValueError(f"mean must be a nonzero vector of length {n_words}")
    return centre / np.linalg.norm(centre)


def check_settings(n_topics: int, alpha: float, kappa: float, sigma: float, kappa0: float) -> None:
    """Validate the number of topics and the concentrations."""
    check_integers(n_topics=(n_topics, 2))
    for name, value in (("alpha", alpha), ("kappa", kappa), ("sigma", sigma), ("kappa0", kappa0)):
        if not np.ndim(value) == 0 or not value > 0:
            raise ValueError(f"{name} must be a positive number, got {value}")


def sparse_log_density(
    documents: SparseData, theta: TensorVariable, beta: TensorVariable, kappa: TensorVariable
) -> TensorVariable:
    """Log-density of `SphericalAdmixture` for each document, from the non-zeros of sparse rows."""
    projections = pt.sum(theta * (documents @ beta.mT), axis=-1)
    cosine = projections / pt.sqrt(squared_length(theta, gram_matrix(beta)))
    return log_density_of_cosine(cosine, kappa, documents.width)


def spherical_admixture(
    V: ArrayLike,
    n_topics: int,
    alpha: float = 10.0,
    kappa: float = 3e4,
    sigma: float = 1e4,
    kappa0: float = 1e4,
    *,
    mean: ArrayLike | None = None,
    collapse_mean: bool = True,
    documents: Sequence[Any] | None = None,
    vocabulary: Sequence[Any] | None = None,
) -> pm.Model:
    r"""Spherical admixture model (SAM) of documents on the unit sphere.

    .. math::

        \mu \sim \text{vMF}(m, \kappa_0), \quad
        \beta_k \sim \text{vMF}(\mu, \sigma), \quad
        \theta_d \sim \text{Dirichlet}(\alpha), \quad
        v_d \sim \text{vMF}(\bar v_d, \kappa), \quad
        \bar v_d = \beta^\top \theta_d / \| \beta^\top \theta_d \|

    Parameters
    ----------
    V : array_like, data frame or scipy.sparse matrix, shape (document, word)
        Documents as unit vectors, such as l2-normalized tf-idf. A sparse matrix is not converted:
        memory and the time of a minibatch are proportional to its non-zeros.
    n_topics : int
        K.
    alpha : float
        Concentration of the topic proportions.
    kappa, sigma, kappa0 : float
        Concentrations of documents, topics and corpus mean.
    mean : array_like, shape (word,), optional
        m; by default the normalized mean of the documents.
    collapse_mean : bool
        Whether the corpus mean μ is integrated out (eq. 9) or kept as the variable ``mu``.
    documents, vocabulary : sequence, optional
        Coordinates of the dimensions; index and columns of a data frame by default.

    Returns
    -------
    pymc.Model
        With free variables ``beta`` (topic, word), ``theta`` (document, topic) and, unless it is
        collapsed, ``mu`` (word); data ``V`` (document, word), ``mean`` (word), ``alpha``,
        ``kappa``, ``sigma`` and ``kappa0``; and the observed variable ``v`` (document, word), or
        for a sparse ``V``, stored as `SparseData`, the potential ``v`` (document) with the same
        log-density. Posterior predictive draws need the observed variable: pass ``V.toarray()``.

    Raises
    ------
    ValueError
        If a document is not a unit vector or holds NaN, a parameter is out of range, or the number
        of names does not match.

    References
    ----------
    Reisinger, Waters, Silverthorn, Mooney (2010), Spherical Topic Models.
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import spherical_admixture
    >>> V = np.abs(np.random.default_rng(0).normal(size=(30, 8)))
    >>> V /= np.linalg.norm(V, axis=1, keepdims=True)
    >>> model = spherical_admixture(V, n_topics=3)
    >>> model.named_vars_to_dims["beta"], model.named_vars_to_dims["theta"]
    (('topic', 'word'), ('document', 'topic'))
    """
    vectors = document_vectors(V)
    n_words = vectors.shape[1]
    check_settings(n_topics, alpha, kappa, sigma, kappa0)
    centre = mean_direction(vectors, mean)
    coords = document_coords(V, vectors.shape, documents, vocabulary, of="V")
    coords["topic"] = np.arange(int(n_topics))
    with pm.Model(coords=coords) as model:
        is_sparse = sparse.issparse(vectors)
        data = (SparseData if is_sparse else pm.Data)("V", vectors, dims=("document", "word"))
        m = pm.Data("mean", centre, dims="word")
        a = pm.Data("alpha", float(alpha))
        k = pm.Data("kappa", float(kappa))
        s = pm.Data("sigma", float(sigma))
        k0 = pm.Data("kappa0", float(kappa0))
        if collapse_mean:
            topics = CollapsedTopics(int(n_topics), n_words)
            beta = pm.CustomDist(
                "beta",
                m,
                k0,
                s,
                logp=topics.logp,
                dist=topics.dist,
                support_point=topics.support_point,
                signature="(v),(),()->(k,v)",
                default_transform=joint_unit_vectors,
                dims=("topic", "word"),
            )
        else:
            mu = VonMisesFisher("mu", m, k0, dims="word")
            beta = VonMisesFisherFromDraw("beta", mu, s, dims=("topic", "word"))
        theta = pm.Dirichlet("theta", a * np.ones(int(n_topics)), dims=("document", "topic"))
        if is_sparse:
            pm.Potential("v", sparse_log_density(data, theta, beta, k), dims="document")
        else:
            SphericalAdmixture("v", theta, beta, k, observed=data, dims=("document", "word"))
    return model
