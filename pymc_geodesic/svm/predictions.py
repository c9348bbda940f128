"""Scores, labels and label probabilities of new rows by the draws of a linear classifier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree
from numpy.typing import NDArray

from pymc_geodesic.diagnostics.posterior_draws import evenly_spaced, group_with
from pymc_geodesic.distributions.labels import label_probabilities, probability_of_plus_one
from pymc_geodesic.runtime.missing_values import check_missing

VAR_NAMES = ("weights", "intercept")
"""Names of the variables of `pymc_geodesic.svm.linear_svm`."""

_BLOCK_SIZE = 2**21
"""Maximum number of scores in memory at a time, 16 MB."""


def decision_function(
    idata: xr.DataTree,
    X: Any,
    *,
    average: bool = True,
    var_names: Sequence[str] = VAR_NAMES,
) -> xr.DataArray:
    """Scores of the labels of new rows, averaged over the draws.

    The score of a row x is x·w, plus the intercept if there is one. With the labels −1 and +1 the
    average is zero on the boundary of the posterior mean.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of `linear_svm`, or of any model with such variables.
    X : array_like or scipy.sparse matrix, shape (row, feature)
        Features, scaled as those of the model. A data frame needs the columns of the model, in
        the same order.
    average : bool
        Whether to average over all draws. If not, return the scores of each draw.
    var_names : sequence of str
        Names of the weights, with dimensions (chain, draw, feature) or (chain, draw, feature,
        class), and, optionally, of the intercept.

    Returns
    -------
    xarray.DataArray, shape (row,) or (row, class)
        Positive scores are those of the label +1; with a class dimension the largest score is
        that of the predicted class. ``average=False`` adds the dimensions ``chain`` and ``draw``
        in front.

    Raises
    ------
    ValueError
        If a variable is missing or has other dimensions, or X does not have the features of the
        model or contains NaN.

    See Also
    --------
    predict : the labels.
    predict_proba : probabilities of the labels.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.svm import decision_function
    >>> draws = np.random.default_rng(1).normal([1.0, -1.0], 0.2, size=(2, 100, 2))
    >>> idata = az.from_dict({"posterior": {"weights": draws}})
    >>> decision_function(idata, [[3.0, 0.0], [0.0, 1.0]]).values.round(1)
    array([ 2.9, -1. ])
    >>> decision_function(idata, [[3.0, 0.0], [0.0, 1.0]], average=False).dims
    ('chain', 'draw', 'row')
    """
    classifier = LinearDraws(idata, var_names)
    X = classifier.matrix(X)
    if average:
        scores = classifier.mean_scores(X)
    else:
        by_draw = np.moveaxis(classifier.scores(X), 1, 0)
        scores = by_draw.reshape(*classifier.sample_shape, *by_draw.shape[1:])
    dims = ("row",) if classifier.is_binary else ("row", "class")
    return xr.DataArray(
        scores,
        {} if classifier.is_binary else {"class": classifier.classes},
        dims=dims if average else ("chain", "draw", *dims),
        name="score",
    )


def predict(idata: xr.DataTree, X: Any, *, var_names: Sequence[str] = VAR_NAMES) -> xr.DataArray:
    """Labels of new rows: those of the mean scores, see `decision_function`.

    Parameters
    ----------
    idata, X, var_names
        See `decision_function`.

    Returns
    -------
    xarray.DataArray, shape (row,)
        −1 and +1, or coordinates of ``class``.

    Raises
    ------
    ValueError
        As `decision_function`.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.svm import predict
    >>> draws = np.random.default_rng(1).normal([1.0, -1.0], 0.2, size=(2, 100, 2))
    >>> idata = az.from_dict({"posterior": {"weights": draws}})
    >>> predict(idata, [[3.0, 0.0], [0.0, 1.0]]).values
    array([ 1, -1])
    """
    classifier = LinearDraws(idata, var_names)
    scores = classifier.mean_scores(classifier.matrix(X))
    return xr.DataArray(classifier.classes[classifier.choose(scores)], dims="row", name="label")


def predict_proba(
    idata: xr.DataTree,
    X: Any,
    *,
    kind: Literal["label", "votes"] = "label",
    n_draws: int | None = None,
    cost: float | None = None,
    margin: float | None = None,
    var_names: Sequence[str] = VAR_NAMES,
) -> xr.DataArray:
    r"""Probability of each label of new rows.

    .. math::

        P(y \mid x) = \frac{1}{M} \sum_{m=1}^M
        \frac{\psi(y \mid s^{(m)})}{\sum_k \psi(k \mid s^{(m)})}, \qquad s^{(m)} = xW^{(m)},

    the mean over the draws of the hinge pseudo-likelihood normalized over the labels, which is the
    distribution of `pymc.sample_posterior_predictive`.

    Parameters
    ----------
    idata, X, var_names
        See `decision_function`.
    kind : {"label", "votes"}
        The probability that a new observation has the label, or the fraction of the draws whose
        classifier predicts it (the distribution of the Gibbs classifier, a measure of the
        uncertainty of the boundary).
    n_draws : int, optional
        Number of posterior draws to use, evenly spaced over all chains; all by default.
    cost, margin : float, optional
        Parameters of the hinge loss; by default those in ``constant_data``, or 1 if they are not
        stored.

    Returns
    -------
    xarray.DataArray, shape (row, class)
        The coordinate ``class`` has the labels: −1 and +1, or the classes of the weights.

    Raises
    ------
    ValueError
        As `decision_function`, and if ``kind`` is unknown or ``n_draws`` exceeds the number of
        draws.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.svm import predict_proba
    >>> draws = np.random.default_rng(1).normal([1.0, -1.0], 0.2, size=(2, 100, 2))
    >>> idata = az.from_dict({"posterior": {"weights": draws}})
    >>> predict_proba(idata, [[3.0, 0.0], [0.0, 1.0]]).sel({"class": 1}).values.round(1)
    array([1. , 0.1])
    """
    classifier = LinearDraws(idata, var_names, n_draws, cost, margin)
    return xr.DataArray(
        classifier.probabilities(classifier.matrix(X), kind),
        {"class": classifier.classes},
        dims=("row", "class"),
        name="votes" if kind == "votes" else "probability",
    )


class LinearDraws:
    """Draws of a linear classifier: stacked weights and intercepts, labels and loss.

    Parameters
    ----------
    idata : xarray.DataTree
    var_names : sequence of str
        Names of the weights and, optionally, of the intercept.
    n_draws : int, optional
        Number of draws to use; all by default.
    cost, margin : float, optional
        Parameters of the hinge loss; by default those of the model.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.svm.predictions import LinearDraws
    >>> idata = az.from_dict({"posterior": {"weights": np.ones((1, 4, 2))}})
    >>> LinearDraws(idata).weights.shape
    (4, 2)
    """

    def __init__(
        self,
        idata: xr.DataTree,
        var_names: Sequence[str] = VAR_NAMES,
        n_draws: int | None = None,
        cost: float | None = None,
        margin: float | None = None,
    ) -> None:
        tree = convert_to_datatree(idata)
        group = group_with(tree, (), "Pass the draws of svm.linear_svm")
        names = [var_names] if isinstance(var_names, str) else list(var_names)
        weights = _find_weights(group, names[0])
        self.sample_shape = weights.shape[:2]
        self.weights = weights.values.reshape(-1, *weights.shape[2:])
        self.intercept = np.zeros((len(self.weights), *weights.shape[3:]))
        if len(names) > 1 and names[1] in group:
            self.intercept = group[names[1]].values.reshape(self.intercept.shape)
        elif len(names) > 1 and var_names is not VAR_NAMES:
            raise ValueError(f"The posterior holds no variable {names[1]!r}, the intercept.")
        if n_draws is not None:
            kept = evenly_spaced(n_draws, len(self.weights))
            self.weights, self.intercept = self.weights[kept], self.intercept[kept]
        self.feature_dim, *class_dim = map(str, weights.dims[2:])
        self.features = (
            weights[self.feature_dim].values if self.feature_dim in weights.coords else None
        )
        self.is_binary = not class_dim
        self.classes = weights[class_dim[0]].values if class_dim else np.array([-1, 1])
        stored = tree["constant_data"].to_dataset() if "constant_data" in tree.children else {}
        self.cost, self.margin = (
            float(stored.get(name, 1.0) if given is None else given)
            for name, given in (("cost", cost), ("margin", margin))
        )

    @property
    def n_features(self) -> int:
        """Return the number of features."""
        return self.weights.shape[1]

    @property
    def feature_names(self) -> list[str] | None:
        """Return the coordinates of the features if they are strings."""
        if self.features is None or self.features.dtype.kind not in "UOT":
            return None
        return list(map(str, self.features))

    def matrix(self, X: Any) -> Any:
        """Validate features of rows, a matrix or a sparse matrix.

        Raises
        ------
        ValueError
            If the columns are not the features, or X contains NaN.
        """
        check_missing("X", X)
        columns, names = getattr(X, "columns", None), self.feature_names
        if columns is not None and names is not None and list(columns) != names:
            missing = [name for name in names if name not in list(columns)]
            problem = (
                f"has no column {missing[0]!r}"
                if missing
                else "has other columns, or another order"
            )
            raise ValueError(
                f"X {problem}. Pass the columns of the model in their order, "
                f"X[idata.posterior[{self.feature_dim!r}].values]."
            )
        X = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X)
        if X.dtype.kind != "f":
            X = X.astype(float)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X must have the shape (rows, {self.n_features}), got {X.shape}.")
        return X

    def mean_scores(self, X: Any) -> NDArray[np.float64]:
        """Return the posterior mean of the scores, shape (row,) or (row, class)."""
        return np.asarray(X @ self.weights.mean(axis=0)) + self.intercept.mean(axis=0)

    def scores(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of each draw, shape (row, draw) or (row, draw, class)."""
        by_feature = np.moveaxis(self.weights, 1, 0).reshape(self.n_features, -1)
        return np.asarray(X @ by_feature).reshape(-1, *self.intercept.shape) + self.intercept

    def choose(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the index of the label of each score."""
        if self.is_binary:
            return (scores > 0).astype(int)
        return np.argmax(scores, axis=-1)

    def probabilities(self, X: Any, kind: Literal["label", "votes"]) -> NDArray[np.float64]:
        """Return the probability of each label, shape (row, class).

        Raises
        ------
        ValueError
            If the kind is unknown.
        """
        if kind not in ("label", "votes"):
            raise ValueError(f'kind={kind!r} is unknown; choose "label" or "votes"')
        result = np.empty((X.shape[0], len(self.classes)))
        for rows in self._row_blocks(X.shape[0]):
            scores = self.scores(X[rows])
            if kind == "votes":
                result[rows] = np.eye(len(self.classes))[self.choose(scores)].mean(axis=1)
            elif self.is_binary:
                plus = probability_of_plus_one(scores, self.cost, self.margin).mean(axis=1)
                result[rows] = np.stack([1.0 - plus, plus], axis=1)
            else:
                result[rows] = label_probabilities(scores, self.cost, self.margin).mean(axis=1)
        return result

    def _row_blocks(self, n_rows: int) -> Iterator[slice]:
        """Yield slices of rows whose scores fit in memory."""
        size = max(1, _BLOCK_SIZE // self.intercept.size)
        for start in range(0, n_rows, size):
            yield slice(start, min(start + size, n_rows))


def _find_weights(group: xr.Dataset, name: str) -> xr.DataArray:
    """Return the weights, or raise ValueError with the names of candidates."""
    if name not in group:
        vectors = [str(each) for each in group if group[each].ndim in (3, 4)]
        remedy = (
            f" Set var_names= to the names of the weights and of the intercept; candidates for the "
            f"weights are {', '.join(vectors)}."
            if vectors
            else " No variable has the dimensions (chain, draw, feature)."
        )
        raise ValueError(f"The posterior holds no variable {name!r}.{remedy}")
    weights = group[name]
    if weights.ndim not in (3, 4) or weights.dims[:2] != ("chain", "draw"):
        raise ValueError(
            f"{name!r} must have the dimensions (chain, draw, feature), or (chain, draw, feature, "
            f"class), got {weights.dims}."
        )
    return weights
