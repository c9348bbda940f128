"""What distributions of angles have in common, and how angles depend on covariates."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.distributions.distribution import Continuous
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.distributions.transforms import _default_transform, circular
from pymc.logprob.transforms import Transform
from pymc.pytensorf import floatX
from pytensor.graph.op import Op
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.arguments import require_known_arguments
from pymc_geodesic.distributions.unit_rows import known_data
from pymc_geodesic.transforms.torus import torus

_PACKAGE = str(Path(__file__).parents[1])

LIKELY_DEGREES = 4.0 * np.pi
"""Beyond it an angle has been around twice, or was never in radians."""


class Angular(Continuous):
    """Base class of distributions of angles, in radians, whose density has the period 2π.

    Free variables get a circular transform: samplers that leave (−π, π] come back at the other end.

    Raises
    ------
    ValueError
        If observed angles are known and not finite.

    Warns
    -----
    UserWarning
        If observed angles are known and some are beyond 4π, as degrees are.
    """

    def __new__(cls, name: str, *args: Any, observed: Any = None, **kwargs: Any) -> TensorVariable:
        """Check the observed data and add the variable to the model."""
        data = None if observed is None else known_data(observed)
        if data is not None and not np.ma.isMaskedArray(data) and np.isinf(data).any():
            raise ValueError(f"the observed angles of {name!r} are not finite; drop those rows")
        if data is not None and data.size:
            _warn_of_degrees(name, np.abs(np.ma.masked_invalid(data)).max())
        return super().__new__(cls, name, *args, observed=observed, **kwargs)

    @classmethod
    def dist(cls, *parameters: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; an unknown argument raises ``TypeError``."""
        require_known_arguments(cls, kwargs)
        return super().dist(*parameters, **kwargs)


def _warn_of_degrees(name: str, largest: Any) -> None:
    """Warn where observed angles look as if they were in degrees; all missing ones do not."""
    if largest is not np.ma.masked and largest > LIKELY_DEGREES:
        warnings.warn(
            f"the observed angles of {name!r} go to {largest:.6g}, which is taken as radians: "
            "np.deg2rad converts degrees, and np.angle(np.exp(1j * x)) wraps angles that have gone "
            "around many times",
            UserWarning,
            skip_file_prefixes=(_PACKAGE,),
        )


@_default_transform.register(Angular)
def angular_default_transform(op: Op, rv: TensorVariable) -> Transform:
    """Return the transform that a free angle, or pair of angles, carries by default."""
    return circular if op.ndim_supp == 0 else torus


def wrapped(angles: ArrayLike) -> NDArray[np.float64]:
    """Return angles in (−π, π].

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.angular import wrapped
    >>> wrapped([0.5, 2.0 * np.pi + 0.5]).tolist()
    [0.5, 0.5]
    """
    return np.pi - np.mod(np.pi - np.asarray(angles, dtype=float), 2.0 * np.pi)


def angle_of_mean(
    size: TensorVariable, mu: TensorVariable, spread: TensorVariable
) -> TensorVariable:
    """Return the mean angle in the shape of the variable, in [−π, π]."""
    point = pt.broadcast_arrays(pt.arctan2(pt.sin(mu), pt.cos(mu)), spread)[0]
    return point if rv_size_is_none(size) else pt.full(size, point)


def squared_half_chord(angle: TensorVariable) -> TensorVariable:
    """Return sin²(a/2), which is (1 − cos a) / 2 without its cancellation."""
    return pt.sin(0.5 * angle) ** 2


def circular_link(eta: Any, mu: Any = 0.0) -> TensorVariable:
    r"""Angle of a linear predictor: the real line wrapped once around the circle.

    .. math:: \theta = \mu + 2 \arctan \eta

    It takes zero to μ, increases, and approaches the point opposite to μ from both sides as η goes
    to plus or minus infinity. With η = xᵀβ without an intercept, and μ a parameter, it is the
    regression of an angle on covariates of Fisher and Lee.

    Parameters
    ----------
    eta : tensor_like of float, shape (...)
        Linear predictor.
    mu : tensor_like of float, shape (...)
        Angle where it is zero, in radians.

    Returns
    -------
    TensorVariable, shape (...)
        Angles in radians, within π of μ; `PeriodicVonMises` and `WrappedCauchy` take them as they
        are.

    Notes
    -----
    The likelihood in β is flat far out, where all angles are opposite to μ, and may have several
    modes: give β a proper prior on the scale of the covariates. `ProjectedNormal` with a linear
    mean has no such trouble.

    References
    ----------
    Fisher and Lee (1992), Regression models for an angular response, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import PeriodicVonMises, circular_link
    >>> wind, hour = np.array([3.0, 3.3, -2.9]), np.array([-1.0, 0.0, 1.0])
    >>> with pm.Model() as model:
    ...     mean = PeriodicVonMises("mean", mu=0.0, kappa=0.0)
    ...     slope = pm.Normal("slope", 0.0, 1.0)
    ...     mu = circular_link(slope * hour, mean)
    ...     x = PeriodicVonMises("x", mu=mu, kappa=4.0, observed=wind)
    >>> circular_link(np.array([0.0, 1.0, 1e9]), np.pi).eval().round(3).tolist()
    [3.142, 4.712, 6.283]
    """
    eta, mu = (pt.as_tensor_variable(floatX(each)) for each in (eta, mu))
    return mu + 2.0 * pt.arctan(eta)
