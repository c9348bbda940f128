r"""What distributions that are symmetric around a mean direction have in common.

A draw is :math:`x = (1 - t)\,\mu + \sqrt{t (2 - t)}\,\xi` with :math:`\xi` uniform on the unit
sphere of the tangent space at :math:`\mu` and the scalar :math:`t = 1 - \mu \cdot x` of a law of
its own.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import floatX
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.directional import Directional
from pymc_geodesic.distributions.draws import _reflect_pole, are_unit_vectors

Array = NDArray[np.float64]


class AroundMean(Directional):
    """Base class of distributions with a mean direction, or axis, and one number besides."""

    @classmethod
    def around(cls, mu: Any, number: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model, as `dist` of the class has it."""
        mu, number = pt.as_tensor_variable(floatX(mu)), pt.as_tensor_variable(floatX(number))
        if mu.type.ndim == 0 or mu.type.shape[-1] == 1:
            raise ValueError(
                f"mu of {cls.__name__} must be a unit vector of at least 2 coordinates (last "
                f"axis), but has the static shape {mu.type.shape}"
            )
        cls.require_last_axis(kwargs.get("shape"), mu.type.shape[-1], "mu")
        return super().dist([mu, number], **kwargs)


def mean_direction(
    size: TensorVariable, mu: TensorVariable, number: TensorVariable
) -> TensorVariable:
    """Return the mean direction in the shape of the variable."""
    point = pt.broadcast_arrays(mu, number[..., None])[0]
    if not rv_size_is_none(size):
        point = pt.full(pt.concatenate([size, [mu.shape[-1]]]), point)
    return point


def draw_around_mean(
    rng: np.random.Generator,
    mu: ArrayLike,
    number: ArrayLike,
    size: tuple[int, ...] | None,
    deficits: Callable[[Array, int], Array],
) -> Array:
    """Draw directions around means, all at once.

    Parameters
    ----------
    rng : numpy.random.Generator
    mu : array_like of float, shape (..., d)
    number : array_like of float, shape (...)
    size : tuple of int or None
    deficits : callable
        Draws t = 1 − μ·x for the numbers of n draws, shape (n,).

    Returns
    -------
    ndarray, shape (*size, d)

    Raises
    ------
    ValueError
        If ``mu`` is not of unit length.
    """
    means, numbers = np.asarray(mu, dtype=float), np.asarray(number, dtype=float)
    if not np.all(are_unit_vectors(means)):
        raise ValueError("mu must hold unit vectors; divide each by its length")
    d = means.shape[-1]
    if size is None:
        size = np.broadcast_shapes(means.shape[:-1], numbers.shape)
    means = np.broadcast_to(means, (*size, d)).reshape(-1, d)
    t = deficits(np.broadcast_to(numbers, size).reshape(-1), len(means))
    draws = np.empty((len(means), d))
    tangents = rng.standard_normal((len(means), d - 1))
    scale = np.sqrt(t * (2.0 - t) / np.einsum("ij,ij->i", tangents, tangents))
    draws[:, :-1] = scale[:, None] * tangents
    draws[:, -1] = 1.0 - t
    if len(draws):
        _reflect_pole(draws, means)
    return draws.reshape(*size, d)
