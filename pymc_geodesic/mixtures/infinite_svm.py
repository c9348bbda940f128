"""The infinite support vector machine: a Dirichlet-process mixture of large-margin experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_geodesic.mixtures.experts import sample_experts
from pymc_geodesic.mixtures.gaussian_experts import HINGE


def infinite_svm(
    X: ArrayLike,
    y: ArrayLike,
    cost: float = 1.0,
    margin: float = 1.0,
    *,
    alpha: float = 1.0,
    prior_scale: float = 1.0,
    strength: float = 0.01,
    scatter: float = 1.0,
    intercept: bool = True,
    method: Literal["ssgnht", "augmentation"] = "ssgnht",
    batch_size: int | None = None,
    n_steps: int = 100,
    draws: int = 200,
    tune: int = 200,
    chains: int = 1,
    max_experts: int = 50,
    n_classes: int | None = None,
    classes: Sequence[Any] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Sample an infinite support vector machine.

    Each row belongs to an expert, which has a normal law of the features and a linear classifier.
    There are as many experts as the rows ask for:

    .. math::

        z \sim \text{CRP}(\alpha), \quad
        x_d \mid z_d \sim N(\mu_{z_d}, \Sigma_{z_d}), \quad
        (\mu_k, \Sigma_k) \sim \text{NIW}(m_0, \kappa_0, p + 2, \Psi_0), \quad
        \eta_k \sim N(0, \tau^2 I),

    .. math::

        \psi(y_d \mid x_d, \eta_{z_d}) = \exp\bigl(-c \max(0, \ell +
        \max_{y \ne y_d} \eta_{z_d y} \cdot x_d - \eta_{z_d y_d} \cdot x_d)\bigr)

    with m₀ the mean of the features and Ψ₀ ``scatter`` times their covariance. Means and
    covariances are integrated out; every sweep draws all assignments, and then the weights.

    Parameters
    ----------
    X : array_like, shape (row, feature)
        Features. Scale them: one prior serves all weights.
    y : array_like, shape (row,)
        Labels 0 … L − 1, or −1 and 1.
    cost, margin : float
        c and ℓ.
    alpha : float
        Concentration of the Dirichlet process.
    prior_scale : float
        τ.
    strength, scatter : float
        κ₀, and the multiple of the covariance of all rows that an expert's is expected to be.
    intercept : bool
        Whether scores have an intercept.
    method : {"ssgnht", "augmentation"}
        Of drawing the weights: stochastic subgradient thermostats on minibatches, or data
        augmentation, exact and with a matrix to factor for each expert and class.
    batch_size : int, optional
        Rows of a minibatch; a tenth of them by default, from 50 to 500.
    n_steps : int
        Steps of the thermostats in each sweep.
    draws, tune : int
        Sweeps that are kept, and sweeps before the first.
    chains : int
        Independent runs, one after the other.
    max_experts : int
        Room for experts; a chain that needs more raises an error.
    n_classes : int, optional
        L, where it is not one more than the largest label.
    classes : sequence, optional
        Coordinates of the dimension ``class``; the labels by default.
    random_seed : int or numpy.random.Generator, optional
    progressbar : bool

    Returns
    -------
    xarray.DataTree
        ``posterior`` with ``sizes`` (expert), ``weights`` (expert, class, weight), ``mean``
        (expert, feature) and ``lower`` (expert, feature, feature_2), the Cholesky factor of Ψ,
        the largest expert first and zero beyond the last; ``sample_stats`` with ``n_experts``,
        ``loss``, ``accuracy`` (of the training rows, by the experts they belong to), and the
        seconds ``weights_time`` and ``perf_counter_diff``; ``constant_data`` with the prior.

    Raises
    ------
    ValueError
        If labels, shapes or numbers are not as described, or X holds NaN.
    RuntimeError
        If experts find no room.

    See Also
    --------
    pymc_geodesic.mixtures.expert_votes : predictions from the draws.

    Notes
    -----
    With ``method="augmentation"`` draws are those of the posterior in the limit of many sweeps;
    thermostats have an error of their step size, and of noise that is not the same everywhere.

    References
    ----------
    Hu, Zhu, Zhang (2015), Fast Sampling Methods for Bayesian Max-Margin Models, section 4.2 and
    algorithm 2; Zhu, Chen, Xing (2011), Infinite SVM.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import expert_votes
    >>> from pymc_geodesic.mixtures import infinite_svm
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 2)) + 4 * rng.integers(2, size=(200, 1))
    >>> y = (X[:, 0] > 2) ^ (X[:, 1] > X[:, 0])  # no line tells them apart
    >>> idata = infinite_svm(X, y, 5.0, draws=50, tune=50, random_seed=1, progressbar=False)
    >>> votes = expert_votes(idata, X)
    >>> bool(np.mean(votes.argmax("class") == y) > 0.9)
    True
    """
    if method not in ("ssgnht", "augmentation"):
        raise ValueError(f'method={method!r} is unknown; choose "ssgnht" or "augmentation"')
    return sample_experts(
        X, y, loss=HINGE, cost=cost, margin=margin, alpha=alpha, prior_scale=prior_scale,
        strength=strength, scatter=scatter, intercept=intercept, method=method,
        batch_size=batch_size, n_steps=n_steps, draws=draws, tune=tune, chains=chains,
        max_experts=max_experts, n_classes=n_classes, classes=classes, random_seed=random_seed,
        progressbar=progressbar,
    )  # fmt: skip
