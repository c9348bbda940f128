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
from scipy.sparse import issparse

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.distributions import SphericalAdmixture, VonMisesFisher
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.transforms.unit_vector import UnitVectorTransform

__all__ = ["spherical_admixture"]


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
        """Random topics, by way of a random corpus mean."""
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
        """Every topic at the mean direction."""
        return pt.broadcast_to(m[..., None, :], rv.shape)


def _document_vectors(V: Any) -> np.ndarray:
    dense = np.asarray(V.toarray() if issparse(V) else V, dtype=float)
    if dense.ndim != 2:
        raise ValueError(f"V must be a matrix (document, word), got shape {dense.shape}")
    if not np.all(np.isfinite(dense)):
        raise ValueError("V holds NaN or infinite numbers")
    lengths = np.linalg.norm(dense, axis=1)
    wrong = np.flatnonzero(np.abs(lengths - 1.0) > 1e-6)
    if wrong.size:
        raise ValueError(
            f"row {wrong[0]} of V has length {lengths[wrong[0]]:.4g}: documents must be unit "
            "vectors; drop empty documents and divide each row by its length"
        )
    return dense


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
    V : array_like or scipy.sparse matrix, shape (document, word)
        Documents as unit vectors, such as l2-normalised tf-idf.
    n_topics : int
        K.
    alpha : float
        Concentration of the topic proportions.
    kappa, sigma, kappa0 : float
        Concentrations of documents, topics and corpus mean.
    mean : array_like, shape (word,), optional
        m; the normalised mean of the documents by default.
    collapse_mean : bool
        Whether the corpus mean μ is integrated out (eq. 9) or kept as the variable ``mu``.
    documents, vocabulary : sequence, optional
        Coordinates of the dimensions.

    Returns
    -------
    pymc.Model
        With free variables ``beta`` (topic, word), ``theta`` (document, topic) and, unless it is
        collapsed, ``mu`` (word); observed ``v`` (document, word); and data ``V`` (document, word),
        ``mean`` (word), ``alpha``, ``kappa``, ``sigma`` and ``kappa0``.

    Raises
    ------
    ValueError
        If a document is not a unit vector, holds NaN, or a number is out of range.

    References
    ----------
    Reisinger, Waters, Silverthorn, Mooney (2010), Spherical Topic Models.
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.models import spherical_admixture
    >>> V = np.abs(np.random.default_rng(0).normal(size=(30, 8)))
    >>> V /= np.linalg.norm(V, axis=1, keepdims=True)
    >>> model = spherical_admixture(V, n_topics=3)
    >>> model.named_vars_to_dims["beta"], model.named_vars_to_dims["theta"]
    (('topic', 'word'), ('document', 'topic'))
    """
    vectors = _document_vectors(V)
    n_documents, n_words = vectors.shape
    check_integers(n_topics=(n_topics, 2))
    for name, value in (("alpha", alpha), ("kappa", kappa), ("sigma", sigma), ("kappa0", kappa0)):
        if not np.ndim(value) == 0 or not value > 0:
            raise ValueError(f"{name} must be a positive number, got {value}")
    centre = vectors.sum(axis=0) if mean is None else np.asarray(mean, dtype=float)
    if centre.shape != (n_words,) or not np.linalg.norm(centre) > 0:
        raise ValueError(f"mean must be a vector of {n_words} numbers that is not zero")
    coords = {
        "document": np.arange(n_documents) if documents is None else list(documents),
        "word": np.arange(n_words) if vocabulary is None else list(vocabulary),
        "topic": np.arange(int(n_topics)),
    }
    with pm.Model(coords=coords) as model:
        data = pm.Data("V", vectors, dims=("document", "word"))
        m = pm.Data("mean", centre / np.linalg.norm(centre), dims="word")
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
                initval="prior",
                dims=("topic", "word"),
            )
        else:
            mu = VonMisesFisher("mu", m, k0, dims="word")
            beta = VonMisesFisher("beta", mu, s, initval="prior", dims=("topic", "word"))
        theta = pm.Dirichlet("theta", a * np.ones(int(n_topics)), dims=("document", "topic"))
        SphericalAdmixture("v", theta, beta, k, observed=data, dims=("document", "word"))
    return model
