r"""Detection of funnels: variables whose scale depends on another variable.

Where x has the standard deviation e^v, its gradients have the standard deviation e^(−v), and no
step size fits all of the posterior: the logarithm of the mean square gradient of x decreases with
v. In the non-centered form x = e^v z, with informative data, that of z increases with v.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.arguments import listed
from pymc_geodesic.monitoring.diagnosis import Diagnosis

PARTIAL_CENTERING = (
    "Use GMC() with its default metric, which adapts the parametrization of group effects and of "
    "other vectors with a normal prior. The log lists the vectors that it does not adapt, with the "
    "reason: write these in the other parametrization, centered or non-centered."
)
"""Remedy for group effects without partial centering."""


@dataclass(frozen=True)
class FunnelSettings:
    """Constants of the detection.

    The slope is the change of the logarithm of the mean square gradient over one standard deviation
    of the scale; the correlation is that between this logarithm and the scale. The bounds separate
    the centered from the non-centered funnel in `benchmarks/hierarchies.py`, and the centered eight
    schools from the non-centered ones and from the regressions of posteriordb (`docs/scale.md`).

    Attributes
    ----------
    min_slope, min_correlation : float
        Slope and correlation beyond which a pair of variables is a funnel.
    min_draws : int
        Draws below which nothing is diagnosed. 0.5 is about three standard errors of the
        correlation of 40 independent draws.
    max_scale_size : int
        Largest number of coordinates of a scale. Of many coordinates, some are correlated with the
        gradients by chance.
    """

    min_slope: float = 1.0
    min_correlation: float = 0.5
    min_draws: int = 40
    max_scale_size: int = 10


SETTINGS = FunnelSettings()


@dataclass(frozen=True)
class Funnel:
    """A scale and the variable that depends on it.

    Attributes
    ----------
    scale, dependent : str
        Variables.
    slope : float
        Change of the logarithm of the mean square gradient of ``dependent`` over one standard
        deviation of ``scale``: negative where ``dependent`` is centered, positive where it is
        multiplied by the scale, or where ``scale`` is a precision.
    """

    scale: str
    dependent: str
    slope: float

    def diagnosis(
        self, in_model: Collection[tuple[str, str]], centered: Collection[str] = ()
    ) -> Diagnosis:
        """Describe the funnel, and the other parametrization.

        Parameters
        ----------
        in_model : collection of (scale, dependent)
            Pairs of which the first is a parameter of the second's distribution in the model: the
            dependent variable is centered. For other pairs the sign of the slope decides, unless
            the scale is that of other variables.
        centered : collection of str
            Variables that the sampler has centered, and the user's model has not.
        """
        scale, dependent = self.scale, self.dependent
        is_centered = self.slope < 0.0 or (scale, dependent) in in_model
        product = "a standard normal variable times"
        others = [each for of, each in in_model if of == scale]
        if self.slope < 0.0 and others and dependent not in others:
            remedy = (
                f"{scale!r} is the scale of {listed([repr(each) for each in others])}, from which "
                f"the data hardly distinguish {dependent!r}. Use a narrower prior of {scale!r}, or "
                "GMC or NUTS with a higher target_accept."
            )
        elif dependent in centered:
            remedy = PARTIAL_CENTERING
        elif not is_centered:
            remedy = (
                f"Write {dependent!r} centered; it appears to be non-centered, {product} its "
                "standard deviation."
            )
        elif self.slope > 0.0:
            remedy = (
                f"Write {dependent!r} non-centered, as {product} 1/sqrt({scale}); it appears to be "
                f"centered, with {scale!r} as its precision."
            )
        else:
            remedy = (
                f"Write {dependent!r} non-centered, as {product} its standard deviation; it "
                "appears to be centered."
            )
        return Diagnosis(
            quantity="ratio of the root mean square gradients",
            condition=f"at values of {scale!r} one standard deviation apart",
            value=float(np.exp(0.5 * abs(self.slope))),
            expected=1.0,
            format_spec=".1f",
            coordinates=(dependent,),
            consequence=(
                f"{scale!r} sets the scale of {dependent!r} (a funnel), no step size suits all of "
                f"the posterior, and the tails of {scale!r} may be missing"
            ),
            remedy=remedy,
            anchor="funnel",
        )


def find_funnel(
    positions: np.ndarray,
    gradients: np.ndarray,
    parts: Mapping[str, slice],
) -> Funnel | None:
    """Find the funnel with the largest correlation among the Euclidean variables of a posterior.

    Parameters
    ----------
    positions, gradients : ndarray, shape (n, size)
        Draws, and gradients of the log-density there.
    parts : mapping of str to slice
        Coordinates of each variable.

    Returns
    -------
    Funnel or None

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.monitoring.funnels import find_funnel
    >>> rng = np.random.default_rng(1)
    >>> v = rng.normal(size=200)
    >>> x = np.exp(v)[:, None] * rng.normal(size=(200, 5))
    >>> positions = np.column_stack([v, x])
    >>> gradients = np.column_stack([-v, -x * np.exp(-2.0 * v)[:, None]])
    >>> funnel = find_funnel(positions, gradients, {"v": slice(0, 1), "x": slice(1, 6)})
    >>> funnel.scale, funnel.dependent, bool(funnel.slope < -1.0)
    ('v', 'x', True)
    """
    n = len(positions)
    if n < SETTINGS.min_draws:
        return None
    found, largest = None, 0.0
    for dependent, part in parts.items():
        squares = np.mean(gradients[:, part] ** 2, axis=1)
        if not (squares > 0.0).all():
            continue
        logs = np.log(squares)
        logs -= logs.mean()
        for scale, coordinates in parts.items():
            if scale == dependent or coordinates.stop - coordinates.start > SETTINGS.max_scale_size:
                continue
            deviations = positions[:, coordinates] - positions[:, coordinates].mean(axis=0)
            sd = np.sqrt(np.mean(deviations**2, axis=0))
            slopes = logs @ deviations / n / np.where(sd > 0.0, sd, 1.0)
            slope = float(slopes[np.argmax(np.abs(slopes))])
            correlation = abs(slope) / max(float(np.sqrt(np.mean(logs**2))), 1e-300)
            if abs(slope) > SETTINGS.min_slope and correlation > max(
                SETTINGS.min_correlation, largest
            ):
                found, largest = Funnel(scale, dependent, slope), correlation
    return found
