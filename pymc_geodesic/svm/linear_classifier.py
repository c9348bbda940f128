"""Predictions of a Bayesian linear classifier from posterior draws."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree
from numpy.typing import ArrayLike, NDArray

from pymc_geodesic.distributions.labels import label_probabilities, probability_of_plus_one
from pymc_geodesic.runtime.missing_values import check_missing

_BLOCK_SIZE = 2**21
"""Maximum number of scores in memory at a time, 16 MB."""


class LinearClassifier:
    r"""Posterior predictions of a linear support vector machine, as a scikit-learn classifier.

    Each draw of the weights W is a classifier with scores :math:`s = xW` (+ intercept), whose label
    is the sign of the score or the class with the largest score. There are three predictions: the
    label by the posterior mean :math:`\bar s`; the label by the Gibbs classifier, which uses a
    random draw for each row, so that the probability of a label is the fraction of the draws that
    vote for it; and the probability of the label,

    .. math::

        P(y \mid x) = \frac{1}{M} \sum_{m=1}^M
        \frac{\psi(y \mid s^{(m)})}{\sum_k \psi(k \mid s^{(m)})}, \qquad s^{(m)} = xW^{(m)},

    the mean over the draws of the hinge pseudo-likelihood normalized over the labels, which is the
    distribution of `pymc.sample_posterior_predictive`.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of `pymc_geodesic.svm.linear_svm`, or of any model with such variables.
    n_draws : int, optional
        Number of posterior draws to use, evenly spaced over all chains; all by default.
    cost, margin : float, optional
        Parameters of the hinge loss; by default those in ``constant_data``, or 1 if they are not
        stored.
    weights, intercept : str
        Names of the variables; the intercept is optional.

    Attributes
    ----------
    classes_ : ndarray
        The labels: −1 and +1, or the coordinates of the last dimension of the weights.
    coef_ : ndarray, shape (1, feature) or (class, feature)
        Posterior mean of the weights.
    intercept_ : ndarray, shape (1,) or (class,)
        Posterior mean of the intercept, 0 without an intercept.
    n_features_in_ : int
    feature_names_in_ : ndarray
        Coordinates of the features; only if they are strings.

    Raises
    ------
    ValueError
        If the variable is missing or has wrong dimensions, or ``n_draws`` exceeds the number of
        draws.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.svm import LinearClassifier
    >>> draws = np.random.default_rng(1).normal([1.0, -1.0], 0.2, size=(2, 100, 2))
    >>> classifier = LinearClassifier(az.from_dict({"posterior": {"weights": draws}}))
    >>> X = np.array([[3.0, 0.0], [0.0, 1.0], [0.1, 0.1]])
    >>> classifier.predict(X)[:2]
    array([ 1, -1])
    >>> classifier.predict_proba(X).round(1)
    array([[0. , 1. ],
           [0.9, 0.1],
           [0.5, 0.5]])
    """

    def __init__(
        self,
        idata: xr.DataTree,
        *,
        n_draws: int | None = None,
        cost: float | None = None,
        margin: float | None = None,
        weights: str = "weights",
        intercept: str = "intercept",
    ) -> None:
        tree = convert_to_datatree(idata)
        posterior = tree["posterior"].to_dataset() if "posterior" in tree.children else xr.Dataset()
        if weights not in posterior:
            vectors = [str(name) for name in posterior if posterior[name].ndim in (3, 4)]
            remedy = (
                f" Name the coefficients with weights=; candidates are {', '.join(vectors)}."
                if vectors
                else " No variable has the dimensions (chain, draw, feature)."
            )
            raise ValueError(f"The posterior holds no variable {weights!r}.{remedy}")
        values = posterior[weights]
        if values.ndim not in (3, 4):
            raise ValueError(
                f"{weights!r} must have the dimensions (chain, draw, feature), or (chain, draw, "
                f"feature, class), got {values.dims}."
            )
        if values.dims[2] in values.coords:
            names = values.coords[values.dims[2]].values
            if names.dtype.kind in "UOT":
                self.feature_names_in_ = names.astype(object)
        self._weights = values.values.reshape(-1, *values.shape[2:])
        self._intercept = np.zeros((len(self._weights), *values.shape[3:]))
        if intercept in posterior:
            self._intercept = posterior[intercept].values.reshape(self._intercept.shape)
        if n_draws is not None:
            if not 1 <= n_draws <= len(self._weights):
                raise ValueError(
                    f"n_draws must be between 1 and the {len(self._weights)} draws, got {n_draws}."
                )
            kept = np.linspace(0, len(self._weights) - 1, n_draws).round().astype(int)
            self._weights, self._intercept = self._weights[kept], self._intercept[kept]
        if values.ndim == 3:
            self.classes_ = np.array([-1, 1])
        else:
            dim = values.dims[-1]
            self.classes_ = (
                values[dim].values if dim in values.coords else np.arange(values.shape[3])
            )
        stored = tree["constant_data"].to_dataset() if "constant_data" in tree.children else {}
        self._cost = _setting("cost", cost, stored)
        self._margin = _setting("margin", margin, stored)
        self.n_features_in_ = self._weights.shape[1]
        self.coef_ = np.atleast_2d(self._weights.mean(axis=0).T)
        self.intercept_ = np.atleast_1d(self._intercept.mean(axis=0))
        self._has_one_score = values.ndim == 3

    def draw_scores(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of each draw.

        Parameters
        ----------
        X : array_like or scipy.sparse matrix, shape (row, feature)

        Returns
        -------
        ndarray, shape (row, draw) or (row, draw, class)

        Raises
        ------
        ValueError
            If X does not have one column for each feature, or contains NaN.
        """
        X = self._matrix(X)
        by_feature = np.moveaxis(self._weights, 1, 0).reshape(self.n_features_in_, -1)
        scores = np.asarray(X @ by_feature).reshape(X.shape[0], *self._intercept.shape)
        return scores + self._intercept

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the posterior mean of the scores.

        Parameters
        ----------
        X : array_like or scipy.sparse matrix, shape (row, feature)

        Returns
        -------
        ndarray, shape (row,) or (row, class)
        """
        scores = np.asarray(self._matrix(X) @ self.coef_.T) + self.intercept_
        return scores[:, 0] if self._has_one_score else scores

    def predict(
        self,
        X: Any,
        *,
        rule: Literal["mean", "gibbs"] = "mean",
        random_seed: int | np.random.Generator | None = None,
    ) -> NDArray[Any]:
        """Return a label for each row.

        Parameters
        ----------
        X : array_like or scipy.sparse matrix, shape (row, feature)
        rule : {"mean", "gibbs"}
            The label by the posterior mean of the scores, or by the Gibbs classifier, which uses
            a random draw of the weights for each row.
        random_seed : int or numpy.random.Generator, optional
            Seed of the Gibbs classifier.

        Returns
        -------
        ndarray, shape (row,)
            Entries of ``classes_``.

        Raises
        ------
        ValueError
            If the rule is unknown.
        """
        if rule == "mean":
            return self.classes_[self._chosen(self.decision_function(X))]
        if rule != "gibbs":
            raise ValueError(f'rule={rule!r} is unknown; choose "mean" or "gibbs"')
        X = self._matrix(X)
        draw = np.random.default_rng(random_seed).integers(len(self._weights), size=X.shape[0])
        chosen = np.empty(X.shape[0], dtype=int)
        for rows, scores in self._blocks(X):
            chosen[rows] = self._chosen(scores[np.arange(len(scores)), draw[rows]])
        return self.classes_[chosen]

    def predict_proba(
        self, X: Any, *, kind: Literal["label", "votes"] = "label"
    ) -> NDArray[np.float64]:
        """Return a probability of each label for each row.

        Parameters
        ----------
        X : array_like or scipy.sparse matrix, shape (row, feature)
        kind : {"label", "votes"}
            The probability that a new observation has the label (the normalized pseudo-likelihood
            averaged over the draws), or the fraction of the draws whose classifier predicts it
            (the distribution of the Gibbs classifier, a measure of the uncertainty of the
            boundary).

        Returns
        -------
        ndarray, shape (row, class)
            In the order of ``classes_``.

        Raises
        ------
        ValueError
            If the kind is unknown.
        """
        if kind not in ("label", "votes"):
            raise ValueError(f'kind={kind!r} is unknown; choose "label" or "votes"')
        X = self._matrix(X)
        result = np.empty((X.shape[0], len(self.classes_)))
        for rows, scores in self._blocks(X):
            if kind == "votes":
                result[rows] = np.eye(len(self.classes_))[self._chosen(scores)].mean(axis=1)
            elif self._has_one_score:
                plus = probability_of_plus_one(scores, self._cost, self._margin).mean(axis=1)
                result[rows] = np.stack([1.0 - plus, plus], axis=1)
            else:
                result[rows] = label_probabilities(scores, self._cost, self._margin).mean(axis=1)
        return result

    def score(self, X: Any, y: ArrayLike) -> float:
        """Return the accuracy of the posterior-mean classifier.

        Parameters
        ----------
        X : array_like or scipy.sparse matrix, shape (row, feature)
        y : array_like, shape (row,)
            True labels, entries of ``classes_``.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If there is not one label for each row, or a label is not in ``classes_``.
        """
        predicted = self.predict(X)
        return float(np.mean(predicted == validate_labels(y, self.classes_, len(predicted))))

    def _matrix(self, X: Any) -> Any:
        check_missing("X", X)
        self._check_names(X)
        is_sparse = hasattr(X, "tocsr")
        X = X.tocsr() if is_sparse else np.asarray(X)
        if X.dtype.kind != "f":
            X = X.astype(float)
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise ValueError(f"X must have the shape (rows, {self.n_features_in_}), got {X.shape}.")
        return X

    def _check_names(self, X: Any) -> None:
        """Raise ValueError if the columns of a data frame differ from the features, or in order."""
        columns, names = getattr(X, "columns", None), getattr(self, "feature_names_in_", None)
        if columns is None or names is None or list(columns) == names.tolist():
            return
        raise ValueError(
            f"X has the columns {list(columns)}, but the features of the weights are "
            f"{names.tolist()}, in this order. Pass X[{names.tolist()}]."
        )

    def _chosen(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        if self._has_one_score:
            return (scores > 0).astype(int)
        return np.argmax(scores, axis=-1)

    def _blocks(self, X: Any) -> Any:
        """Yield slices of rows with their scores under each draw, in bounded memory."""
        block = max(1, _BLOCK_SIZE // self._intercept.size)
        for start in range(0, X.shape[0], block):
            rows = slice(start, min(start + block, X.shape[0]))
            yield rows, self.draw_scores(X[rows])


def validate_labels(y: ArrayLike, classes: NDArray[Any], n_rows: int) -> NDArray[Any]:
    """Validate labels, one for each row and all of them classes.

    Parameters
    ----------
    y : array_like, shape (row,)
    classes : ndarray, shape (class,)
    n_rows : int

    Returns
    -------
    ndarray, shape (row,)

    Raises
    ------
    ValueError
        If there is not one label for each row, or a label is not a class.
    """
    check_missing("y", y)
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise ValueError(
            f"y must contain one label for each of the {n_rows} rows of X, got shape {labels.shape}"
        )
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        raise ValueError(
            f"y contains the label {labels[unknown][0]!r}, which is not among the classes "
            f"{classes.tolist()}"
        )
    return labels


def _setting(name: str, given: float | None, stored: Any) -> float:
    """Return a parameter of the loss: the argument, the stored value, or 1."""
    if given is not None:
        return float(given)
    return float(stored[name]) if name in stored else 1.0
