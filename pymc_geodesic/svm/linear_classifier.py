"""Predictions of a Bayesian linear classifier from posterior draws."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree
from numpy.typing import ArrayLike, NDArray

from pymc_geodesic.distributions.labels import label_probabilities, probability_of_plus_one
from pymc_geodesic.runtime.missing_values import refuse_missing

_BLOCK_SIZE = 2**21
"""Scores held at once for one block of rows, 16 MB."""


class LinearClassifier:
    r"""The classifiers that posterior draws of a linear support vector machine make together.

    Each draw of the weights W is a classifier with scores :math:`s = xW` (+ intercept). Its label
    is the sign of the score, or the class with the largest. Three predictions come from all of
    them: that of the posterior mean :math:`\bar s`; that of the Gibbs classifier, which draws one
    of the classifiers at random for each row, so that label k has the share of the draws that
    vote for it as its probability; and the probability of the label,

    .. math::

        P(y \mid x) = \frac{1}{M} \sum_{m=1}^M
        \frac{\psi(y \mid s^{(m)})}{\sum_k \psi(k \mid s^{(m)})}, \qquad s^{(m)} = xW^{(m)},

    the mean over the draws of the hinge pseudo-likelihood normalised over the labels: what
    `pymc.sample_posterior_predictive` draws from.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of `pymc_geodesic.svm.linear_svm`, or of any model with such variables.
    draws : int, optional
        Use only this many posterior draws, evenly spaced over all chains.
    cost, margin : float, optional
        Parameters of the hinge loss; by default those in ``constant_data``, where the model keeps
        them, else 1.
    weights, intercept : str
        Names of the variables; an intercept need not exist.

    Attributes
    ----------
    classes : ndarray
        The labels: −1 and +1, or the coordinates of the last dimension of the weights.
    coef : ndarray, shape (feature,) or (feature, class)
        Posterior mean of the weights.
    intercept : float or ndarray, shape (class,)
        Posterior mean of the intercept, 0 if there is none.
    n_draws : int
        M.

    Raises
    ------
    ValueError
        If the variable is missing, has wrong dimensions, or there are fewer draws than asked for.

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
        draws: int | None = None,
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
        names = values.coords[values.dims[2]].values if values.dims[2] in values.coords else None
        self._features = None if names is None or names.dtype.kind not in "UOT" else names.tolist()
        self._weights = values.values.reshape(-1, *values.shape[2:])
        self._intercept = np.zeros((len(self._weights), *values.shape[3:]))
        if intercept in posterior:
            self._intercept = posterior[intercept].values.reshape(self._intercept.shape)
        if draws is not None:
            if not 1 <= draws <= len(self._weights):
                raise ValueError(
                    f"`draws` must be between 1 and the {len(self._weights)} draws, got {draws}."
                )
            kept = np.linspace(0, len(self._weights) - 1, draws).round().astype(int)
            self._weights, self._intercept = self._weights[kept], self._intercept[kept]
        if values.ndim == 3:
            self.classes = np.array([-1, 1])
        else:
            dim = values.dims[-1]
            self.classes = (
                values[dim].values if dim in values.coords else np.arange(values.shape[3])
            )
        stored = tree["constant_data"].to_dataset() if "constant_data" in tree.children else {}
        self._cost = _setting("cost", cost, stored)
        self._margin = _setting("margin", margin, stored)
        self.n_draws = len(self._weights)
        self.coef = self._weights.mean(axis=0)
        self.intercept = self._intercept.mean(axis=0)

    @property
    def is_binary(self) -> bool:
        """Whether there is one signed score instead of one score for each class."""
        return self._weights.ndim == 2

    def draw_scores(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of every draw.

        Parameters
        ----------
        X : array_like or scipy.sparse matrix, shape (row, feature)

        Returns
        -------
        ndarray, shape (row, draw) or (row, draw, class)

        Raises
        ------
        ValueError
            If X does not have one column for each feature, or holds NaN.
        """
        X = self._matrix(X)
        features = self._weights.shape[1]
        by_feature = np.moveaxis(self._weights, 1, 0).reshape(features, -1)
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
        return np.asarray(self._matrix(X) @ self.coef) + self.intercept

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
            The label by the posterior mean of the scores, or by the Gibbs classifier, which draws
            the weights anew for each row.
        random_seed : int or numpy.random.Generator, optional
            Seed of the Gibbs classifier.

        Returns
        -------
        ndarray, shape (row,)
            Entries of `classes`.

        Raises
        ------
        ValueError
            If the rule is unknown.
        """
        if rule == "mean":
            return self.classes[self._chosen(self.decision_function(X))]
        if rule != "gibbs":
            raise ValueError(f'rule={rule!r} is unknown; choose "mean" or "gibbs"')
        X = self._matrix(X)
        draw = np.random.default_rng(random_seed).integers(self.n_draws, size=X.shape[0])
        chosen = np.empty(X.shape[0], dtype=int)
        for rows, scores in self._blocks(X):
            chosen[rows] = self._chosen(scores[np.arange(len(scores)), draw[rows]])
        return self.classes[chosen]

    def predict_proba(
        self, X: Any, *, kind: Literal["label", "votes"] = "label"
    ) -> NDArray[np.float64]:
        """Return a probability of each label for each row.

        Parameters
        ----------
        X : array_like or scipy.sparse matrix, shape (row, feature)
        kind : {"label", "votes"}
            The probability that a new observation has the label (the normalised pseudo-likelihood
            averaged over the draws), or the share of the draws whose classifier chooses it (the
            law of the Gibbs classifier; it says how well the boundary is known).

        Returns
        -------
        ndarray, shape (row, class)
            In the order of `classes`.

        Raises
        ------
        ValueError
            If the kind is unknown.
        """
        if kind not in ("label", "votes"):
            raise ValueError(f'kind={kind!r} is unknown; choose "label" or "votes"')
        X = self._matrix(X)
        result = np.empty((X.shape[0], len(self.classes)))
        for rows, scores in self._blocks(X):
            if kind == "votes":
                result[rows] = np.eye(len(self.classes))[self._chosen(scores)].mean(axis=1)
            elif self.is_binary:
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
            True labels, entries of `classes`.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If there is not one label for each row, or a label is no entry of `classes`.
        """
        predicted = self.predict(X)
        return float(np.mean(predicted == self.checked_labels(y, len(predicted))))

    def checked_labels(self, y: ArrayLike, n_rows: int) -> NDArray[Any]:
        """Return labels, one for each row and all of them among `classes`, or raise ValueError.

        Parameters
        ----------
        y : array_like, shape (row,)
        n_rows : int

        Returns
        -------
        ndarray, shape (row,)

        Raises
        ------
        ValueError
            If there is not one label for each row, or a label is no entry of `classes`.
        """
        refuse_missing("y", y)
        labels = np.asarray(y)
        if labels.shape != (n_rows,):
            raise ValueError(
                f"y must hold one label for each of the {n_rows} rows of X, got shape "
                f"{labels.shape}"
            )
        unknown = ~np.isin(labels, self.classes)
        if unknown.any():
            raise ValueError(
                f"y holds the label {labels[unknown][0]!r}, which is not among the classes "
                f"{self.classes.tolist()}"
            )
        return labels

    def _matrix(self, X: Any) -> Any:
        refuse_missing("X", X)
        self._check_names(X)
        is_sparse = hasattr(X, "tocsr")
        X = X.tocsr() if is_sparse else np.asarray(X)
        if X.dtype.kind != "f":
            X = X.astype(float)
        features = self._weights.shape[1]
        if X.ndim != 2 or X.shape[1] != features:
            raise ValueError(
                f"X needs the shape (rows, {features}) of the features, got {X.shape}."
            )
        return X

    def _check_names(self, X: Any) -> None:
        """Refuse a data frame whose columns are not the features of the weights, in their order."""
        columns = getattr(X, "columns", None)
        if columns is None or self._features is None or list(columns) == self._features:
            return
        raise ValueError(
            f"X has the columns {list(columns)}, but the weights are of {self._features}, in this "
            f"order: pass X[{self._features}]"
        )

    def _chosen(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        if self.is_binary:
            return (scores > 0).astype(int)
        return np.argmax(scores, axis=-1)

    def _blocks(self, X: Any) -> Any:
        """Yield rows and their scores under every draw, a bounded number of them at a time."""
        block = max(1, _BLOCK_SIZE // self._intercept.size)
        for start in range(0, X.shape[0], block):
            rows = slice(start, min(start + block, X.shape[0]))
            yield rows, self.draw_scores(X[rows])


def _setting(name: str, given: float | None, stored: Any) -> float:
    """Return a parameter of the loss: the argument, what the model kept, or 1."""
    if given is not None:
        return float(given)
    return float(stored[name]) if name in stored else 1.0
