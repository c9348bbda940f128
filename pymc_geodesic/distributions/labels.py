"""Class labels: probabilities under the hinge loss, and validation of observed labels, in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from pymc_geodesic.distributions.validation import is_minibatch, known_data
from pymc_geodesic.runtime.missing_values import missing_message


def probability_of_plus_one(
    score: ArrayLike, cost: ArrayLike = 1.0, margin: ArrayLike = 1.0
) -> NDArray[np.float64]:
    r"""Return the probability of the label +1 by the hinge loss normalized over both labels.

    .. math::

        \frac{\psi(+1)}{\psi(+1) + \psi(-1)}, \qquad
        \log\psi(y) = -\text{cost} \cdot \max(0, \text{margin} - y \cdot \text{score})

    Parameters
    ----------
    score : array_like, shape (...)
        Signed score.
    cost, margin : array_like, shape (...)
        Parameters of the hinge loss.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> from pymc_geodesic.distributions.labels import probability_of_plus_one
    >>> probability_of_plus_one([-3.0, 0.0, 0.5]).round(3)
    array([0.018, 0.5  , 0.731])
    """
    score, cost, margin = (np.asarray(value, dtype=float) for value in (score, cost, margin))
    return expit(cost * (np.maximum(0.0, margin + score) - np.maximum(0.0, margin - score)))


def largest_rival(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each class the largest score of the other classes, shape (..., L).

    Parameters
    ----------
    scores : ndarray, shape (..., L)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.labels import largest_rival
    >>> largest_rival(np.array([1.0, 5.0, 3.0]))
    array([5., 3., 5.])
    """
    two = np.partition(scores, -2, axis=-1)
    best = np.argmax(scores, axis=-1)[..., None]
    is_best = np.arange(scores.shape[-1]) == best
    return np.where(is_best, two[..., -2:-1], two[..., -1:])


def label_probabilities(
    scores: ArrayLike, cost: ArrayLike = 1.0, margin: ArrayLike = 1.0
) -> NDArray[np.float64]:
    r"""Return the probabilities of L labels by the hinge loss normalized over them.

    .. math::

        \frac{\psi(y)}{\sum_k \psi(k)}, \qquad \log\psi(y) =
        -\text{cost} \cdot \max(0, \text{margin} + \max_{k \ne y} s_k - s_y)

    Parameters
    ----------
    scores : array_like, shape (..., L)
        Score of each class, L at least 2.
    cost, margin : array_like, shape (...)
        Parameters of the hinge loss.

    Returns
    -------
    ndarray, shape (..., L)

    Examples
    --------
    >>> from pymc_geodesic.distributions.labels import label_probabilities
    >>> label_probabilities([2.0, 1.5, 0.0]).round(3)
    array([0.69 , 0.254, 0.057])
    """
    scores = np.asarray(scores, dtype=float)
    cost, margin = np.asarray(cost, dtype=float)[..., None], np.asarray(margin, float)[..., None]
    slack = margin + largest_rival(scores) - scores
    return softmax(-cost * np.maximum(0.0, slack), axis=-1)


def require_signs(name: str, observed: Any, shape: tuple[int, ...] | None = None) -> None:
    """Raise if observed labels that are known are not −1 or +1.

    Parameters
    ----------
    name : str
        Name of the random variable, for the message.
    observed : array_like or Variable, shape (...)
    shape : tuple of int, optional
        Shape of the scores, if it is known.

    Raises
    ------
    TypeError
        If the labels are a `pymc.Minibatch` of integers, which PyMC does not accept.
    ValueError
        If a label is missing or is neither −1 nor +1, or labels do not fit the scores.
    """
    labels = _known_labels(name, observed)
    if labels is None:
        return
    _require_one_of_each(name, observed, labels.shape, shape)
    wrong = np.abs(labels) != 1
    if wrong.any():
        hint = (
            "labels 0 and 1 become -1 and +1 by 2 * y - 1"
            if np.all((labels == 0) | (labels == 1))
            else "two classes become -1 and +1 by np.where(y == one_class, 1, -1)"
        )
        raise ValueError(
            f"the labels of {name!r} must be -1 or +1, but {_first(wrong)} is "
            f"{labels[wrong].flat[0]:g}; {hint}"
        )


def require_classes(
    name: str, observed: Any, n_classes: int | None, shape: tuple[int, ...] | None = None
) -> None:
    """Raise if observed labels that are known are not integers from 0 to L − 1.

    Parameters
    ----------
    name : str
        Name of the random variable, for the message.
    observed : array_like or Variable, shape (...)
    n_classes : int or None
        L, if it is known.
    shape : tuple of int, optional
        Shape of the scores without their last axis, if it is known.

    Raises
    ------
    TypeError
        If the labels are a `pymc.Minibatch` of integers, which PyMC does not accept.
    ValueError
        If a label is missing, no integer, negative, or L and more, or labels do not fit the
        scores.
    """
    labels = _known_labels(name, observed)
    if labels is None:
        return
    if shape == () and labels.shape == (n_classes,):
        raise ValueError(
            f"the scores of {name!r} have the shape {labels.shape}, one number for each label, but "
            "each label needs a row with one score for each class: give X @ W a W with one column "
            "for each class; labels that share one row of scores take scores[None, :]"
        )
    one_hot = shape is not None and n_classes is not None and labels.shape == (*shape, n_classes)
    _require_one_of_each(
        name,
        observed,
        labels.shape,
        shape,
        "np.argmax(y, axis=-1) makes numbers of indicators" if one_hot else None,
    )
    wrong = (labels != np.floor(labels)) | (labels < 0)
    if n_classes is not None:
        wrong |= labels >= n_classes
    if wrong.any():
        last = "L - 1" if n_classes is None else n_classes - 1
        raise ValueError(
            f"the labels of {name!r} must be integers from 0 to {last}, one for each of the "
            f"{n_classes or 'L'} scores of a row, but {_first(wrong)} is "
            f"{labels[wrong].flat[0]:g}; number the classes by "
            "np.unique(y, return_inverse=True)[1]"
        )


def require_every_class(name: str, labels: NDArray[Any], argument: str) -> None:
    """Raise if a label below the largest one does not occur, as for labels that start at 1.

    Parameters
    ----------
    name : str
        Name of the labels, for the message.
    labels : ndarray of integers, at least 0
    argument : str
        Argument that sets the number of classes, for the message.

    Raises
    ------
    ValueError
        If there is such a label.
    """
    counts = np.bincount(np.asarray(labels).astype(int))
    if not counts.all():
        raise ValueError(
            f"no label of {name!r} is {int(np.argmin(counts))}, but the largest is "
            f"{counts.size - 1}: number the classes from 0 by "
            f"np.unique(y, return_inverse=True)[1], or give {argument}= if there are so many"
        )


def _require_one_of_each(
    name: str,
    observed: Any,
    labels: tuple[int, ...],
    scores: tuple[int, ...] | None,
    remedy: str | None = None,
) -> None:
    """Raise if PyMC would broadcast scores and labels against each other, or fail.

    Several labels may share a score. Rows of a minibatch are not compared.
    """
    if scores is None or is_minibatch(observed) or labels == ():
        return
    last = labels[max(len(labels) - len(scores), 0) :]
    if len(scores) == len(last) and all(
        of_score in (1, of_label) for of_score, of_label in zip(scores, last, strict=True)
    ):
        return
    if remedy is None:
        remedy = "a column of labels becomes a vector by np.ravel(y)"
        if len(scores) > len(labels):
            remedy = "a column of scores becomes a vector by scores[:, 0]"
        elif labels[-1] != 1:
            remedy = "check that the rows of both are the same observations"
    raise ValueError(
        f"the labels of {name!r} have the shape {labels}, but the scores {scores}; there must be "
        f"one label for each score: {remedy}"
    )


def _known_labels(name: str, observed: Any) -> NDArray[np.float64] | None:
    if is_minibatch(observed) and observed.type.dtype in ("int64", "int16", "int8", "bool"):
        raise TypeError(
            f"PyMC cannot observe a pm.Minibatch of {observed.type.dtype}; pass the labels of "
            f"{name!r} to it as y.astype(float)"
        )
    labels = known_data(observed)
    if labels is None:
        return None
    if labels.dtype.kind not in "biuf":
        raise ValueError(
            f"the labels of {name!r} must be numbers, got {labels.dtype}; number the classes by "
            "np.unique(y, return_inverse=True)[1]"
        )
    mask = np.ma.getmaskarray(labels) | np.isnan(np.ma.getdata(labels).astype(float))
    if mask.any():
        raise ValueError(missing_message(f"the labels of {name!r} have", f", {_first(mask)}"))
    return np.asarray(labels, dtype=float)


def _first(where: NDArray[np.bool_]) -> str:
    if where.ndim == 0:
        return "the label"
    position = ", ".join(str(i) for i in np.unravel_index(int(where.argmax()), where.shape))
    return f"the label of row {position}"
