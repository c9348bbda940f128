"""A Dirichlet-process mixture of multinomial logit models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_geodesic.mixtures.experts import sample_experts
from pymc_geodesic.mixtures.gaussian_experts import LOGIT


def dp_multinomial_logit(
    X: ArrayLike,
    y: ArrayLike,
    *,
    alpha: float = 1.0,
    prior_scale: float = 1.0,
    strength: float = 0.01,
    scatter: float = 1.0,
    intercept: bool = True,
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
    r"""Sample a Dirichlet-process mixture of multinomial logit models (dpMNL).

    The mixture of `infinite_svm`, whose hinge loss a likelihood replaces: the labels of the rows of
    an expert have a multinomial logit model,

    .. math::

        P(y_d = y) = \frac{\exp(\eta_{z_d y} \cdot x_d)}
        {\sum_{y'} \exp(\eta_{z_d y'} \cdot x_d)}.

    Assignments are drawn given weights, and weights by stochastic gradient thermostats on
    minibatches.

    Parameters
    ----------
    X, y, alpha, prior_scale, strength, scatter, intercept, batch_size, n_steps, draws, tune
        See `infinite_svm`.
    chains, max_experts, n_classes, classes, random_seed, progressbar
        See `infinite_svm`.

    Returns
    -------
    xarray.DataTree
        As `infinite_svm`; ``loss`` is the sum of −log P(y_d).

    Raises
    ------
    ValueError
        As `infinite_svm`.
    RuntimeError
        If experts find no room.

    See Also
    --------
    pymc_geodesic.mixtures.expert_probabilities : probabilities of classes from the draws.

    Notes
    -----
    The authors' features are independent within an expert, and scales of weights have priors of
    their own; here covariances are full and τ is given.

    References
    ----------
    Shahbaba, Neal (2009), Nonlinear Models Using Dirichlet Process Mixtures, JMLR 10:1829,
    section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import expert_probabilities
    >>> from pymc_geodesic.mixtures import dp_multinomial_logit
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 2)) + 4 * rng.integers(2, size=(200, 1))
    >>> y = (X[:, 0] > 2) ^ (X[:, 1] > X[:, 0])  # no line tells them apart
    >>> idata = dp_multinomial_logit(
    ...     X, y, prior_scale=3.0, draws=50, tune=50, random_seed=1, progressbar=False
    ... )
    >>> probabilities = expert_probabilities(idata, X)
    >>> bool(np.mean(probabilities.argmax("class") == y) > 0.85)
    True
    """
    return sample_experts(
        X, y, loss=LOGIT, method="ssgnht", cost=1.0, margin=1.0, alpha=alpha,
        prior_scale=prior_scale, strength=strength, scatter=scatter, intercept=intercept,
        batch_size=batch_size, n_steps=n_steps, draws=draws, tune=tune, chains=chains,
        max_experts=max_experts, n_classes=n_classes, classes=classes, random_seed=random_seed,
        progressbar=progressbar,
    )  # fmt: skip
