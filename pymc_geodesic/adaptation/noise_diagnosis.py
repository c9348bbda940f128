"""Diagnoses of poorly known gradient noise, and of coordinates with few informative rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pymc_geodesic.adaptation.langevin_parameters import LangevinParameters
from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.monitoring.diagnosis import Diagnosis, coordinate_names, dominant_coordinate


@dataclass(frozen=True)
class NoiseDiagnosisSettings:
    """Constants of the diagnoses.

    Attributes
    ----------
    rare_fraction : float
        Fraction of informative pairs of minibatches below which a coordinate counts as rare.
    reported_error : float
        Relative error of a variance, due to poorly known noise, above which a warning is issued; a
        convention.
    """

    rare_fraction: float = 0.2
    reported_error: float = 0.1


SETTINGS = NoiseDiagnosisSettings()


def name_rare_coordinates(
    diagnosis: Diagnosis, informative_fraction: np.ndarray, names: Sequence[str]
) -> Diagnosis:
    """Add all rare coordinates to a diagnosis that contains one of them.

    Parameters
    ----------
    diagnosis : Diagnosis
    informative_fraction : ndarray, shape (size,)
        See `pymc_geodesic.adaptation.gradient_noise.NoiseState`.
    names : list of str
        Name of each coordinate of the model.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.noise_diagnosis import name_rare_coordinates
    >>> from pymc_geodesic.monitoring.diagnosis import Diagnosis
    >>> diagnosis = Diagnosis(
    ...     quantity="configurational temperature", value=0.45, expected=1.0, coordinates=("w[1]",),
    ...     n_coordinates=4, consequence="the variance of its draws is wrong", remedy="",
    ...     anchor="stationarity",
    ... )
    >>> names = ["a", "w[0]", "w[1]", "w[2]"]
    >>> name_rare_coordinates(diagnosis, np.array([1.0, 0.1, 0.02, 0.9]), names).coordinates
    ('w[1]', 'w[0]')
    """
    rare = [
        int(i)
        for i in np.argsort(informative_fraction)
        if informative_fraction[i] < SETTINGS.rare_fraction
    ]
    rare_names = [names[i] for i in rare]
    if len(rare) < 2 or not set(diagnosis.coordinates) & set(rare_names):
        return diagnosis
    return replace(
        diagnosis,
        coordinates=tuple(dict.fromkeys([*diagnosis.coordinates, *rare_names])),
        consequence=(
            f"{diagnosis.consequence}, and so may be those of all {len(rare)} coordinates for "
            "which few minibatches are informative"
        ),
        remedy=(
            "Use all rows (GMC, SubgradientHMC or NUTS) or a larger batch_size. With control "
            'variates, and without batches= and minibatch_order="random", every gradient contains '
            "up to 500 rows of such coordinates."
        ),
    )


def diagnose_noise(
    parameters: LangevinParameters, error: np.ndarray, metric: Metric, names: Sequence[str]
) -> Diagnosis | None:
    """Diagnose subtracted gradient noise with a poorly known variance.

    Parameters
    ----------
    parameters : LangevinParameters
    error : ndarray, shape (size,)
        Standard error of the variance of the noise in the coordinates of the metric.
    metric : Metric
    names : list of str
        Name of each coordinate of the model.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.noise_diagnosis import diagnose_noise
    >>> from pymc_geodesic.gradients.metric import Metric
    >>> from pymc_geodesic.adaptation.langevin_parameters import underdamped_parameters
    >>> noise, metric = np.array([9.0, 9.0]), Metric(np.zeros(2), np.ones(2))
    >>> parameters = underdamped_parameters(noise)
    >>> diagnose_noise(parameters, 0.1 * noise, metric, ["a", "b"]) is None
    True
    >>> diagnose_noise(parameters, np.array([0.9, 6.0]), metric, ["a", "b"]).finding
    "The possible error of the variance of 'b' is 40% (expected at most 10%): the relative standard
    error of its gradient noise variance is 67%, because few minibatches contribute most of the
    noise, such as those that contain one of a few rows."
    """
    errors = parameters.temperature_error(error)
    worst = int(np.argmax(errors))
    if not errors[worst] > SETTINGS.reported_error:
        return None
    concerned = sorted(np.flatnonzero(errors > SETTINGS.reported_error), key=lambda i: -errors[i])
    return Diagnosis(
        quantity="possible error of the variance",
        value=float(errors[worst]),
        expected=SETTINGS.reported_error,
        limit="at most ",
        format_spec=".0%",
        coordinates=coordinate_names(
            (dominant_coordinate(metric, int(i)) for i in concerned), names
        ),
        n_coordinates=len(names),
        consequence=(
            "the relative standard error of its gradient noise variance is "
            f"{error[worst] / parameters.noise[worst]:.0%}, because few minibatches contribute "
            "most of the noise, such as those that contain one of a few rows"
        ),
        remedy="Use all rows (GMC, SubgradientHMC or NUTS), or a larger batch_size.",
        anchor="stationarity",
    )
