"""What is said of a fit that ended before it had converged."""

from __future__ import annotations

import math
import warnings


class ConvergenceWarning(UserWarning):
    """A fit used up its passes before it had converged.

    `spherical_admixture_vi`, `vmf_mixture_em` and `pymc_geodesic.mixtures.spherical_kmeans`
    warn so, as the estimators of scikit-learn do. What they return is the best so far.

    Examples
    --------
    >>> import warnings
    >>> from pymc_geodesic.datasets import make_vmf_mixture
    >>> from pymc_geodesic.mixtures import vmf_mixture_em
    >>> from pymc_geodesic.topics import ConvergenceWarning
    >>> points, _ = make_vmf_mixture([[1.0, 0.0], [0.0, 1.0]], 2.0, 100, random_seed=1)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", ConvergenceWarning)
    ...     fit = vmf_mixture_em(points, 2, max_passes=2, random_seed=1)
    >>> fit.weights.shape
    (2,)
    """


def warn_of_last_pass(name: str, max_passes: int, gain: float, unit: str) -> None:
    """Warn the caller of a public function that its fit has not converged.

    Parameters
    ----------
    name : str
        The function.
    max_passes : int
    gain : float
        What the last pass still did, in a unit; infinite if there was no other.
    unit : str
    """
    last = f": the last pass still {unit.format(gain)}" if math.isfinite(gain) else ""
    warnings.warn(
        f"{name} ended after max_passes={max_passes} without having converged{last}. Give it more "
        "passes; what it returns is the best so far",
        ConvergenceWarning,
        stacklevel=3,
    )
