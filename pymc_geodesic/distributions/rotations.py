"""Rotations and reflections that take the north pole to a direction."""

from typing import Any, Literal

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import floatX
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.draws import are_unit_vectors
from pymc_geodesic.distributions.unit_rows import known_data


def rotation_to(mu: Any, kind: Literal["rotation", "reflection"] = "rotation") -> TensorVariable:
    r"""Orthogonal matrix that takes the north pole to a direction, differentiable in it.

    With :math:`\mu = (u, c)`, c the last coordinate, the rotation along the great circle from the
    north pole :math:`n = (0, \dots, 0, 1)` to μ is

    .. math::

        R = \begin{pmatrix} I - u u^\top / (1 + c) & u \\ -u^\top & c \end{pmatrix},

    and the Householder reflection that exchanges them

    .. math::

        H = \begin{pmatrix} I - u u^\top / (1 - c) & u \\ u^\top & c \end{pmatrix}.

    In a regression of directions, coordinates around an overall mean direction μ are those around
    the pole, turned: the mean of row i is R m_i, with m_i near the pole.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., d)
        Unit vectors.
    kind : {"rotation", "reflection"}
        The rotation is the smooth choice for directions near the pole, the reflection, of
        determinant −1, for those near the south pole.

    Returns
    -------
    TensorVariable, shape (..., d, d)

    Raises
    ------
    ValueError
        If ``mu`` is a single number, or known and not of unit length, or ``kind`` is neither of
        them.

    Notes
    -----
    No such matrix is continuous on the whole sphere unless d is 2, 4 or 8: the rotation has a
    discontinuity at the south pole, where the half-turn in the plane of the first and the last
    axis stands in, the reflection at the north pole, where the one of the first axis does. For a
    sampler these are points of no probability, but directions that a posterior crosses should be
    far from them: turn the data first where they are not.

    References
    ----------
    Mardia and Jupp, *Directional Statistics* (2000), section 9.1, for coordinates around a pole.

    Examples
    --------
    Directions whose mean depends on a covariate z, through the tangent plane at an overall mean:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic import UniformSphere, VonMisesFisher, rotation_to
    >>> z = np.linspace(-1.0, 1.0, 3)
    >>> with pm.Model() as model:
    ...     overall = UniformSphere("overall", shape=3)
    ...     slope = pm.Normal("slope", 0.0, 1.0, shape=2)
    ...     chart = pt.concatenate([z[:, None] * slope, np.ones((3, 1))], axis=1)
    ...     near_pole = chart / pt.sqrt((chart**2).sum(axis=1, keepdims=True))
    ...     mean = near_pole @ rotation_to(overall).T
    ...     x = VonMisesFisher("x", mean, 20.0, observed=np.eye(3))
    >>> R = rotation_to(np.array([0.6, 0.0, 0.8])).eval()
    >>> (R @ [0.0, 0.0, 1.0]).round(12).tolist(), float(np.linalg.det(R).round(12))
    ([0.6, 0.0, 0.8], 1.0)
    """
    if kind not in ("rotation", "reflection"):
        raise ValueError(f'kind={kind!r} is unknown; choose "rotation" or "reflection"')
    mu = pt.as_tensor_variable(floatX(mu))
    if mu.type.ndim == 0 or mu.type.shape[-1] == 1:
        raise ValueError(
            "mu of rotation_to must be a unit vector of at least 2 coordinates (last axis), but "
            f"has the static shape {mu.type.shape}"
        )
    known = known_data(mu)
    if known is not None and not np.all(are_unit_vectors(known)):
        raise ValueError("mu of rotation_to must hold unit vectors; divide each by its length")
    sign = 1.0 if kind == "rotation" else -1.0
    u, c = mu[..., :-1], mu[..., -1]
    height = sign * c
    squared = pt.sum(u**2, axis=-1)
    singular = pt.eq(squared, 0.0) & (height < 0.0)
    # 1 + c where c is near −1, from the other coordinates: nothing cancels.
    below = pt.switch(height < 0.0, squared / (1.0 - height), 1.0 + height)
    first = pt.zeros_like(u)
    first = pt.set_subtensor(first[..., 0], 1.0)
    outer = u[..., :, None] * u[..., None, :] / pt.switch(singular, 1.0, below)[..., None, None]
    half_turn = 2.0 * first[..., :, None] * first[..., None, :]
    block = pt.eye(mu.shape[-1] - 1) - pt.switch(singular[..., None, None], half_turn, outer)
    top = pt.concatenate([block, u[..., :, None]], axis=-1)
    bottom = pt.concatenate([-sign * u, c[..., None]], axis=-1)[..., None, :]
    return pt.concatenate([top, bottom], axis=-2).astype(np.dtype(mu.dtype))
