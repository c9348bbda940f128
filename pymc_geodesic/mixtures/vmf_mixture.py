"""Mixtures of von Mises–Fisher distributions for unit vectors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from scipy import sparse
from scipy.special import logsumexp

from pymc_geodesic.diagnostics.posterior_draws import evenly_spaced, group_with
from pymc_geodesic.distributions import UniformSphere, VonMisesFisher
from pymc_geodesic.distributions.initial_values import with_initial_value
from pymc_geodesic.distributions.validation import unit_points
from pymc_geodesic.kernels.stick_breaking import stick_proportions
from pymc_geodesic.mixtures.spherical_clustering import vmf_mixture_em
from pymc_geodesic.ops import bessel
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.runtime.iterations import ConvergenceWarning
from pymc_geodesic.sparse import SparseData

MIN_KAPPA, MAX_KAPPA = 1e-2, 1e5
"""Bounds on initial concentrations; the likelihood of a single point is unbounded in κ."""


def log_weights(sticks: Any) -> Any:
    r"""Return the logarithms of :math:`w_k = v_k \prod_{j<k} (1 - v_j)`, with :math:`v_K = 1`."""
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
    r"""Mixture of von Mises–Fisher distributions, finite or a truncated Dirichlet process.

    .. math::

        w \sim \text{Dirichlet}(\alpha, \dots, \alpha), \quad
        \mu_k \sim \text{Uniform}(S^{d-1}), \quad
        \log \kappa_k \sim N(\log m, s^2), \quad
        x_i \sim \sum_k w_k\, \text{vMF}(\mu_k, \kappa_k)

    The assignments of the points are marginalized; `component_probabilities` recovers them. The
    weights have a stick-breaking representation, :math:`w_k = v_k \prod_{j<k}(1 - v_j)` with
    :math:`v_k \sim \text{Beta}(\alpha, \alpha (K - k))`, k = 1, …, K − 1, which gives the same
    Dirichlet prior. With ``dirichlet_process=True`` they are those of a Dirichlet process truncated
    at K components,
    :math:`v_k \sim \text{Beta}(1, a)` and :math:`a \sim \text{Gamma}(1, 1/\alpha)`.

    Parameters
    ----------
    points : array_like, data frame or scipy.sparse matrix, shape (point, coordinate)
        Unit vectors in rows. A sparse matrix, such as tf-idf vectors of texts, stays sparse.
    n_components : int
        K, at least 2.
    alpha : float
        Concentration α of the weights; for a Dirichlet process the prior mean of its concentration.
    dirichlet_process : bool
        Whether the weights have a Dirichlet-process prior truncated at K components.
    shared_kappa : bool
        Whether all components have the same concentration. Otherwise a component of small κ may
        collect the outliers; with a shared κ the clusters are similar to those of spherical
        k-means.
    kappa_median, kappa_spread : float, optional
        m and s of the prior of κ. The default m = d corresponds to a mean resultant length of about
        0.6 in any dimension.
    start : {"em", "prior"}
        Initial point: the maximum-likelihood fit of `vmf_mixture_em`, or the prior. With
        ``"em"`` all chains start in the same mode, so that R-hat does not detect other modes.
    names : sequence, optional
        Coordinates of the dimension ``coordinate``, such as words; by default the columns of a data
        frame.
    random_seed : int or numpy.random.Generator, optional
        Seed of `vmf_mixture_em`.

    Returns
    -------
    pymc.Model
        With free variables ``mu`` (component, coordinate), ``kappa`` (component), or () if shared,
        ``sticks`` (stick) and, for a Dirichlet process, ``concentration``; the deterministic
        ``weights`` (component); data ``points`` (point, coordinate); and the observed variable
        ``direction`` (point, coordinate), or for sparse points the potential ``direction`` (point).

    Raises
    ------
    ValueError
        If points are not unit vectors, or an argument is out of range.

    See Also
    --------
    pymc_geodesic.mixtures.component_probabilities : probabilities of the assignments.
    pymc_geodesic.topics.align_topics : resolves label switching.

    Notes
    -----
    Sample a few thousand points by `GMC`, and more by
    ``SGGMC(batch_size=100, minibatch=["points"])``. If only labels are needed, `spherical_kmeans`
    is about a hundred times faster.

    References
    ----------
    K. Hornik, B. Grün (2014), movMF: An R Package for Fitting Mixtures of von Mises–Fisher
    Distributions, for the model; Ishwaran, James (2001), Gibbs Sampling Methods for Stick-Breaking
    Priors, for the sticks.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import make_vmf_mixture
    >>> from pymc_geodesic.mixtures import vmf_mixture
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
            warnings.simplefilter("ignore", ConvergenceWarning)  # an initial point suffices
            fit = vmf_mixture_em(
                points, n_components, shared_kappa=shared_kappa, random_seed=random_seed
            )
        mu_start, sticks_start = fit.mu, stick_proportions(fit.weights, 1e-3, 1.0 - 1e-3)
        kappa_start = np.clip(fit.kappa, MIN_KAPPA, MAX_KAPPA)
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
        mu = with_initial_value(UniformSphere, mu_start)("mu", dims=("component", "coordinate"))
        kappa = with_initial_value(pm.LogNormal, kappa_start)(
            "kappa", np.log(median), kappa_spread, dims=kappa_dims
        )
        if dirichlet_process:
            a = pm.Gamma("concentration", 1.0, 1.0 / alpha)
            first, second = 1.0, a
        else:
            first, second = alpha, alpha * np.arange(n_components - 1, 0, -1.0)
        sticks = with_initial_value(pm.Beta, sticks_start)("sticks", first, second, dims="stick")
        log_w = log_weights(sticks)
        weights = pm.Deterministic("weights", pt.exp(log_w), dims="component")
        if is_sparse:
            density = log_w + log_vmf_normalizer(d, kappa) + kappa * (data @ mu.T)
            pm.Potential("direction", pt.logsumexp(density, axis=-1), dims="point")
        else:
            components = VonMisesFisher.dist(mu, kappa)
            pm.Mixture("direction", w=weights, comp_dists=components, observed=data, dims=dims)
    return model


NAMES = ("weights", "mu", "kappa")
"""Names of the variables of the mixture."""


def component_probabilities(
    idata: xr.DataTree,
    points: Any,
    *,
    var_names: Sequence[str] = NAMES,
    n_draws: int | None = None,
) -> xr.DataArray:
    r"""Posterior probability of each component for each point.

    .. math::

        p_{ik} = \frac{1}{M} \sum_{m=1}^M
        \frac{w_k^{(m)}\, c_d(\kappa_k^{(m)})\, e^{\kappa_k^{(m)} \mu_k^{(m)} \cdot x_i}}
        {\sum_j w_j^{(m)}\, c_d(\kappa_j^{(m)})\, e^{\kappa_j^{(m)} \mu_j^{(m)} \cdot x_i}}

    averaged over the draws of all chains; ``.argmax("component")`` is the most probable component.
    The components must have the same order in all draws
    (`pymc_geodesic.topics.align_topics` with ``var_name="mu"``).

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of `pymc_geodesic.mixtures.vmf_mixture`.
    points : array_like or scipy.sparse matrix, shape (point, coordinate)
        Unit vectors, observed or new.
    var_names : list of str
        Names of weights, mean directions and concentrations.
    n_draws : int, optional
        Number of posterior draws to use, evenly spaced over all chains; all by default.

    Returns
    -------
    xarray.DataArray, shape (point, component)

    Raises
    ------
    ValueError
        If a variable is missing, ``n_draws`` exceeds the number of draws, or points are not unit
        vectors or have another dimension.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import component_probabilities
    >>> draws = {
    ...     "weights": np.full((1, 2, 2), 0.5),
    ...     "mu": np.tile(np.eye(2), (1, 2, 1, 1)),
    ...     "kappa": np.full((1, 2, 2), 3.0),
    ... }
    >>> idata = az.from_dict({"posterior": draws})
    >>> component_probabilities(idata, [[1.0, 0.0], [0.6, 0.8]]).values.round(3)
    array([[0.953, 0.047],
           [0.354, 0.646]])
    """
    takes = f"component_probabilities takes draws of the variables var_names={list(var_names)}"
    drawn = group_with(idata, var_names, takes)
    posterior = drawn[list(var_names)].stack(sample=("chain", "draw"))
    weights, mu, kappa = (posterior[name].transpose("sample", ...).values for name in var_names)
    points = unit_points(points if sparse.issparse(points) else np.atleast_2d(points))
    d = mu.shape[-1]
    kappa = np.broadcast_to(kappa.reshape(len(kappa), -1), weights.shape)
    if points.shape[1] != d:
        raise ValueError(f"points have {points.shape[1]} coordinates, but {var_names[1]!r} has {d}")
    chosen = evenly_spaced(n_draws, len(weights))
    total = np.zeros((points.shape[0], weights.shape[1]))
    for draw in chosen:
        with np.errstate(divide="ignore"):
            constant = np.log(weights[draw]) + bessel.log_vmf_normalizer(d, kappa[draw])
        logp = constant + kappa[draw] * np.asarray(points @ mu[draw].T)
        total += np.exp(logp - logsumexp(logp, axis=1, keepdims=True))
    component = str(idata["posterior"][var_names[0]].dims[-1])
    return xr.DataArray(
        total / len(chosen),
        dims=("point", component),
        coords={component: idata["posterior"][component]} if component in idata["posterior"].coords
        else None,
        name="probability",
    )  # fmt: skip
