"""The Bayesian linear support vector machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.distributions import Hinge, MulticlassHinge
from pymc_geodesic.distributions.labels import (
    require_classes,
    require_every_class,
    require_signs,
)
from pymc_geodesic.runtime.missing_values import check_missing
from pymc_geodesic.sparse import SparseData


def _design_matrix(X: Any) -> Any:
    check_missing("X", X)
    if issparse(X):
        X = X.tocsr()
    else:
        X = np.asarray(X)
        X = X if X.dtype.kind == "f" else X.astype(float)
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix (row, feature), got shape {X.shape}")
    return X


def _labels(y: ArrayLike, n_rows: int, n_classes: int | None) -> tuple[np.ndarray, int | None]:
    """Validate the labels; return them as floats, with L, or None for the labels −1 and +1."""
    check_missing("y", y)
    y = np.asarray(y)
    if y.shape != (n_rows,):
        raise ValueError(
            f"y must contain one label for each of the {n_rows} rows of X, got shape {y.shape}"
        )
    if n_rows == 0:
        raise ValueError("X has no rows")
    if n_classes is None and y.dtype.kind in "iuf" and np.any(y == -1):
        require_signs("y", y)
        return y.astype(float), None
    if n_classes is None and y.dtype.kind in "biuf" and y.max() <= 1:
        if y.min() == 1:
            return y.astype(float), None
        raise ValueError(
            "y contains the labels 0 and 1. Pass 2 * y - 1 for one signed score, or n_classes=2 "
            "for one score per class."
        )
    require_classes("y", y, n_classes)
    if n_classes is None:
        require_every_class("y", y, "n_classes")
    return y.astype(float), int(y.max()) + 1 if n_classes is None else n_classes


def linear_svm(
    X: Any,
    y: ArrayLike,
    cost: float = 1.0,
    margin: float = 1.0,
    *,
    intercept: bool = False,
    prior_scale: ArrayLike = 1.0,
    intercept_scale: float = 10.0,
    n_classes: int | None = None,
    features: Sequence[Any] | None = None,
    classes: Sequence[Any] | None = None,
) -> pm.Model:
    r"""Bayesian linear support vector machine, with two classes or more.

    .. math::

        w \sim N(0, \tau^2 I), \qquad
        \psi(y_i \mid x_i, w) = \exp\bigl(-c \max(0, \ell - y_i\, w \cdot x_i)\bigr)
        \quad\text{for } y_i \in \{-1, +1\},

    and with labels 0 … L − 1 one vector of weights for each class and the loss
    :math:`\max(0, \ell + \max_{k \ne y_i} w_k \cdot x_i - w_{y_i} \cdot x_i)`. ψ is a
    pseudo-likelihood (see `Hinge`): the posterior is a Gibbs posterior whose mode is the support
    vector machine with C = c τ² (scikit-learn's ``LinearSVC(C, loss="hinge",
    fit_intercept=False)``).

    Parameters
    ----------
    X : array_like or scipy.sparse matrix, shape (row, feature)
        Features. Scale them: all weights have the same step size and prior scale. A sparse matrix
        stays sparse. The columns of a data frame are the names of the features.
    y : array_like, shape (row,)
        Labels −1 and +1, or 0 … L − 1.
    cost, margin : float
        c and ℓ, at least 0.
    intercept : bool
        Whether each score has an intercept.
    prior_scale : float or array_like, shape (feature,)
        τ, the prior standard deviation of the weights.
    intercept_scale : float
        Prior standard deviation of the intercept.
    n_classes : int, optional
        L; by default one more than the largest label. ``n_classes=2`` gives the classes 0 and 1
        one score each.
    features, classes : sequence, optional
        Coordinates of the dimensions ``feature`` and, with labels 0 … L − 1, ``class``.

    Returns
    -------
    pymc.Model
        With free variables ``weights`` (feature), or (feature, class), and ``intercept`` (), or
        (class), with ``intercept=True``; observed ``label`` (row); and data ``X`` (row, feature),
        ``y`` (row), ``cost`` and ``margin``. A sparse X is a `SparseData`, whose rows
        ``SparseData.find("X", model=model).set_value(rows)`` replaces.

    Raises
    ------
    ValueError
        If labels, shapes or arguments are not as described, or X contains NaN.

    See Also
    --------
    pymc_geodesic.svm.predict : labels of new rows.
    pymc_geodesic.svm.predict_proba : their probabilities.

    References
    ----------
    N. G. Polson, S. L. Scott (2011), Data Augmentation for Support Vector Machines.
    W. Hu, J. Zhu, B. Zhang, Fast Sampling Methods for Bayesian Max-margin Models, section 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.svm import linear_svm
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(100, 2))
    >>> model = linear_svm(X, np.sign(X[:, 0]), cost=1.0, features=["height", "width"])
    >>> model.free_RVs, model.named_vars_to_dims["weights"]
    ([weights], ('feature',))
    >>> three = linear_svm(X, rng.integers(3, size=100), classes=["low", "middle", "high"])
    >>> three.named_vars_to_dims["weights"]
    ('feature', 'class')
    """
    if features is None and hasattr(X, "columns"):
        features = list(X.columns)
    X = _design_matrix(X)
    n_rows, n_features = X.shape
    if classes is not None:
        if n_classes not in (None, len(classes)):
            raise ValueError(f"there are {len(classes)} classes but n_classes={n_classes}")
        n_classes = len(classes)
    check_integers(n_classes=(2 if n_classes is None else n_classes, 2))
    labels, n_classes = _labels(y, n_rows, n_classes)
    for name, value in (("cost", cost), ("margin", margin)):
        if np.ndim(value) or not 0 <= value < np.inf:
            raise ValueError(f"{name} must be a finite number of at least 0, got {value}")
    scale = np.asarray(prior_scale, dtype=float)
    if scale.shape not in ((), (n_features,)) or not np.all(scale > 0):
        raise ValueError(
            f"prior_scale must be positive, one number or one for each of the {n_features} features"
        )
    if not intercept_scale > 0:
        raise ValueError(f"intercept_scale must be positive, got {intercept_scale}")
    if features is not None and len(features) != n_features:
        raise ValueError(f"X has {n_features} columns but there are {len(features)} features")

    coords = {"feature": np.arange(n_features) if features is None else list(features)}
    class_dims: tuple[str, ...] = ()
    if n_classes is not None:
        coords["class"] = np.arange(n_classes) if classes is None else list(classes)
        class_dims = ("class",)
    with pm.Model(coords=coords) as model:
        dims = ("row", "feature")
        data = SparseData("X", X, dims=dims) if issparse(X) else pm.Data("X", X, dims=dims)
        observed = pm.Data("y", labels, dims="row")
        c = pm.Data("cost", float(cost))
        m = pm.Data("margin", float(margin))
        if class_dims:
            scale = scale[..., None]
        weights = pm.Normal("weights", 0.0, scale, dims=("feature", *class_dims))
        scores = data @ weights
        if intercept:
            sd = np.float64(intercept_scale)
            scores = scores + pm.Normal("intercept", 0.0, sd, dims=class_dims or None)
        loss = MulticlassHinge if class_dims else Hinge
        loss("label", scores, c, m, observed=observed, dims="row")
    return model
