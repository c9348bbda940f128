r"""Funnels: variables whose scale another variable sets, which no step size suits everywhere.

Where x has the standard deviation e^v, its gradients have the standard deviation e^(−v). Draws and
their gradients show it: the logarithm of the mean square of the gradients of x falls along v. Where
x = e^v z is written as a product, and data say much of x, those of z rise along v.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Funnel", "find_funnel"]

STEEP = 1.0
"""Change of the logarithm of a mean square over one standard deviation that is worth a word."""

CLEAR = 0.5
"""Correlation from which that change is not chance."""

STEEP_IN_MODEL, CLEAR_IN_MODEL = 0.3, 0.4
"""The same for samplers that use all rows, where the model says that one variable depends on the
other. Chains of `GMC` had slopes of 0.41 to 1.32 for the 21 plates of the seeds example of BUGS,
whose precision loses its upper tail, 0.3 to 1.0 for 8 to 40 groups whose scale loses its lower
tail, and at most 0.28 for groups with informative data, whose scale is right."""

FEWEST = 40
MOST_SCALES = 10
"""Numbers that a variable may have and be taken for scales of others."""

_TINY = 1e-300


@dataclass(frozen=True)
class Funnel:
    """A scale and what depends on it.

    Attributes
    ----------
    scale, dependent : str
        Variables.
    slope : float
        Change of the logarithm of the mean square gradient of ``dependent`` over one standard
        deviation of ``scale``: negative where ``dependent`` is written as it is, positive where it
        is multiplied by the scale or ``scale`` is a precision.
    is_centered : bool, optional
        Whether ``scale`` is a parameter of the distribution of ``dependent`` in the model; by
        default the sign of the slope decides.
    """

    scale: str
    dependent: str
    slope: float
    is_centered: bool | None = None

    @property
    def complaint(self) -> str:
        """What to tell users whose posterior it is."""
        change = np.exp(0.5 * abs(self.slope))
        is_centered = self.slope < 0.0 if self.is_centered is None else self.is_centered
        written, other = (
            ("as it is (centred)", "as a product with its scale (non-centred)")
            if is_centered
            else ("as a product with its scale (non-centred)", "as it is (centred)")
        )
        if is_centered and self.slope > 0.0:
            written = f"as it is (centred), with {self.scale!r} as its precision"
            other = f"as a product with its standard deviation, 1/sqrt({self.scale}) (non-centred)"
        return (
            f"{self.scale!r} sets the scale of {self.dependent!r}, whose gradients change by a "
            f"factor of {change:.1f} over one standard deviation of it: no step size suits such a "
            f"funnel everywhere, and the tails of {self.scale!r} may be missing. "
            f"{self.dependent!r} seems to be written {written}; write it {other}, or give "
            f"{self.scale!r} a narrower prior."
        )


def find_funnel(
    positions: np.ndarray,
    gradients: np.ndarray,
    parts: Mapping[str, slice],
    in_model: Collection[tuple[str, str]] = (),
) -> Funnel | None:
    """Find the clearest funnel among the Euclidean variables of a posterior.

    Parameters
    ----------
    positions, gradients : ndarray, shape (n, size)
        Draws, and gradients of the log-density there.
    parts : mapping of str to slice
        Place of each variable.
    in_model : collection of (scale, dependent)
        Pairs for which `STEEP_IN_MODEL` is the bound.

    Returns
    -------
    Funnel or None
        None where no scale changes by more than a factor of about 1.6 in the posterior.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.tuning.funnel import find_funnel
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
    if n < FEWEST:
        return None
    found, clearest = None, 0.0
    for dependent, part in parts.items():
        squares = np.mean(gradients[:, part] ** 2, axis=1)
        if not (squares > 0.0).all():
            continue
        logs = np.log(squares)
        logs -= logs.mean()
        for scale, place in parts.items():
            if scale == dependent or place.stop - place.start > MOST_SCALES:
                continue
            away = positions[:, place] - positions[:, place].mean(axis=0)
            spread = np.sqrt(np.mean(away**2, axis=0))
            slopes = logs @ away / n / np.where(spread > 0.0, spread, 1.0)
            slope = float(slopes[np.argmax(np.abs(slopes))])
            correlation = abs(slope) / max(float(np.sqrt(np.mean(logs**2))), _TINY)
            is_known = (scale, dependent) in in_model
            steep, clear = (STEEP_IN_MODEL, CLEAR_IN_MODEL) if is_known else (STEEP, CLEAR)
            if abs(slope) > steep and correlation > max(clear, clearest):
                found, clearest = Funnel(scale, dependent, slope), correlation
    return found
