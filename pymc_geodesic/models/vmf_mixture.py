"""Mixtures of von Mises–Fisher distributions: clusters of directions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import sparse

from pymc_geodesic.distributions import UniformSphere, VonMisesFisher
from pymc_geodesic.distributions.starts import beginning_at
from pymc_geodesic.distributions.unit_points import unit_points
from pymc_geodesic.kernels.partitions.sticks import sticks_of_weights
from pymc_geodesic.models.vmf_mixture_em import vmf_mixture_em
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.runtime.convergence import ConvergenceWarning
from pymc_geodesic.sparse import SparseData

__all__ = ["vmf_mixture"]

STRONGEST_START, WEAKEST_START = 1e5, 1e-2
"""Bounds of concentrations to start from: those of single points have no maximum."""


def log_weights(sticks: Any) -> Any:
    r"""Logarithms of :math:`w_k = v_k \prod_{j<k} (1 - v_j)`, the last stick being what is left."""
    rest = pt.concatenate([[0.0], pt.cumsum(pt.log1p(-sticks))])
    return rest + pt.concatenate([pt.log(sticks), [0.0]])


def vmf_mixture(
    points: Any,
    n_components: int,
    *,
    alpha: float = 1.0,
    dirichlet_process: bool = False,
    shared_kappa: bool = False,
    kappa_median: float | None = None,
    kappa_spread: float = 1.5,
    start: Literal["em", "prior"] = "em",
    names: Sequence[Any] | None = None,
    random_seed: int | np.random.Generator | None = 0,
) -> pm.Model:
    r"""Cluster directions by a mixture of von Mises–Fisher distributions.

    .. math::

        w \sim \text{Dirichlet}(\alpha, \dots, \alpha), \quad
        \mu_k \sim \text{Uniform}(S^{d-1}), \quad
        \log \kappa_k \sim N(\log m, s^2), \quad
        x_i \sim \sum_k w_k\, \text{vMF}(\mu_k, \kappa_k)

    Which component a point belongs to is summed over; `component_probabilities` brings it back.
    The weights are made of sticks, :math:`w_k = v_k \prod_{j<k}(1 - v_j)` with
    :math:`v_k \sim \text{Beta}(\alpha, \alpha (K - k))`, k counting from 1: the same prior, in
    variables that every step method takes. With ``dirichlet_process=True`` they are those of a
    Dirichlet process cut at K components, :math:`v_k \sim \text{Beta}(1, a)` and
    :math:`a \sim \text{Gamma}(1, 1/\alpha)`, so that as many components have weight as the points
    ask for.

    Parameters
    ----------
    points : array_like, data frame or scipy.sparse matrix, shape (point, coordinate)
        Unit vectors in rows. A sparse matrix, such as tf-idf vectors of texts, stays sparse.
    n_components : int
        K, at least 2.
    alpha : float
        Concentration α of the weights; for a Dirichlet process the mean of its concentration.
    dirichlet_process : bool
        Whether K is only a bound of the number of components.
    shared_kappa : bool
        Whether all components have one concentration. With a concentration each, a wide component
        may gather the points that fit nowhere; with one for all, clusters are more like those of
        spherical k-means.
    kappa_median, kappa_spread : float, optional
        m, d by default, at which the mean resultant length is about 0.6 in any dimension; and s.
    start : {"em", "prior"}
        Where chains begin: at the maximum likelihood that `vmf_mixture_em` finds, or at the prior.
        With ``"em"`` all chains begin with the same labels of the components, and R-hat says
        whether they keep them, not whether there are other modes.
    names : sequence, optional
        Coordinates of the dimension ``coordinate``, such as words; columns of a data frame by
        default.
    random_seed : int or numpy.random.Generator, optional
        Of `vmf_mixture_em`.

    Returns
    -------
    pymc.Model
        With free variables ``mu`` (component, coordinate), ``kappa`` (component), or () if it is
        shared, ``sticks`` and, for a Dirichlet process, ``concentration``; the deterministic
        ``weights`` (component); data ``points`` (point, coordinate); and the observed variable
        ``direction`` of that shape, or for sparse points the potential ``direction`` (point).

    Raises
    ------
    ValueError
        If points are no unit vectors, or numbers are out of range.

    See Also
    --------
    pymc_geodesic.diagnostics.component_probabilities : soft and hard labels.
    pymc_geodesic.diagnostics.align_topics : one order of the components for all draws.

    Notes
    -----
    `GMC` samples some thousand points, ``SGGMC(batch_size=100, minibatch=["points"])`` many more.
    Where labels are all that is wanted, spherical k-means is a hundred times faster.

    References
    ----------
    K. Hornik, B. Grün (2014), movMF: An R Package for Fitting Mixtures of von Mises–Fisher
    Distributions, for the model; Ishwaran, James (2001), Gibbs Sampling Methods for Stick-Breaking
    Priors, for the sticks.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import make_vmf_mixture
    >>> from pymc_geodesic.models import vmf_mixture
    >>> points, _ = make_vmf_mixture(np.eye(3), 50.0, 300, random_seed=1)
    >>> model = vmf_mixture(points, 3)
    >>> model.free_RVs, model.named_vars_to_dims["mu"]
    ([mu, kappa, sticks], ('component', 'coordinate'))
    """
    names = getattr(points, "columns", None) if names is None else names
    points = unit_points(points)
    n_points, d = points.shape
    if int(n_components) != n_components or not 2 <= n_components <= n_points:
        raise ValueError(
            f"n_components must be an integer from 2 to the number of points, {n_points}, got "
            f"{n_components}"
        )
    n_components = int(n_components)
    median = float(d) if kappa_median is None else kappa_median
    for name, value in (
        ("alpha", alpha), ("kappa_median", median), ("kappa_spread", kappa_spread),
    ):  # fmt: skip
        if np.ndim(value) or not 0 < value < np.inf:
            raise ValueError(f"{name} must be a positive number, got {value}")
    if start not in ("em", "prior"):
        raise ValueError(f'start={start!r} is unknown; choose "em" or "prior"')
    if names is not None and len(names) != d:
        raise ValueError(f"points has {d} columns but there are {len(names)} names")

    mu_start = kappa_start = sticks_start = None
    if start == "em":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # any good place will do
            fit = vmf_mixture_em(
                points, n_components, shared_kappa=shared_kappa, random_seed=random_seed
            )
        mu_start, sticks_start = fit.mu, sticks_of_weights(fit.weights, 1e-3, 1.0 - 1e-3)
        kappa_start = np.clip(fit.kappa, WEAKEST_START, STRONGEST_START)
        kappa_start = kappa_start[0] if shared_kappa else kappa_start
    coords = {
        "component": np.arange(n_components),
        "stick": np.arange(n_components - 1),
        "coordinate": np.arange(d) if names is None else list(names),
    }
    dims = ("point", "coordinate")
    kappa_dims = None if shared_kappa else "component"
    with pm.Model(coords=coords) as model:
        is_sparse = sparse.issparse(points)
        data = (
            SparseData("points", points, dims=dims)
            if is_sparse
            else pm.Data("points", points, dims=dims)
        )
        mu = beginning_at(UniformSphere, mu_start)("mu", dims=("component", "coordinate"))
        kappa = beginning_at(pm.LogNormal, kappa_start)(
            "kappa", np.log(median), kappa_spread, dims=kappa_dims
        )
        if dirichlet_process:
            a = pm.Gamma("concentration", 1.0, 1.0 / alpha)
            first, second = 1.0, a
        else:
            first, second = alpha, alpha * np.arange(n_components - 1, 0, -1.0)
        sticks = beginning_at(pm.Beta, sticks_start)("sticks", first, second, dims="stick")
        log_w = log_weights(sticks)
        weights = pm.Deterministic("weights", pt.exp(log_w), dims="component")
        if is_sparse:
            density = log_w + log_vmf_normalizer(d, kappa) + kappa * (data @ mu.T)
            pm.Potential("direction", pt.logsumexp(density, axis=-1), dims="point")
        else:
            components = VonMisesFisher.dist(mu, kappa)
            pm.Mixture("direction", w=weights, comp_dists=components, observed=data, dims=dims)
    return model
