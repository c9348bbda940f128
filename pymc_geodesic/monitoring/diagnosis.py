"""Warnings about the draws of a chain (`Diagnosis`), and the interface of their monitors."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.metric import Metric


@dataclass(frozen=True)
class DiagnosisSettings:
    """Settings for the text of a diagnosis.

    Attributes
    ----------
    max_names : int
        Maximum number of coordinates listed by name; the others are only counted. 20 names fit in a
        few lines.
    """

    max_names: int = 20


SETTINGS = DiagnosisSettings()


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """A quantity of the draws of a chain that differs from its expected value.

    Attributes
    ----------
    quantity : str
        Name of the quantity.
    value : float
        Its value in the chain.
    expected : float
        Its value in a chain that samples the posterior, or a bound on it.
    consequence : str
        Meaning for the draws; a clause without a period.
    remedy : str
        Sentences in the imperative. ``{minibatches}`` stands for a change of the minibatches.
    anchor : str
        Section of the page on failure modes.
    error : float, optional
        Standard error of the value.
    limit : {"", "at least ", "at most "}
        Whether ``expected`` is a bound.
    unit : str
        Unit of the value, of its error and of ``expected``.
    format_spec : str
        Format of the value and of ``expected``.
    condition : str
        Circumstances of the measurement, such as the step size.
    coordinates : tuple of str
        Coordinates or variables that differ, the worst first; empty if the
        diagnosis concerns the whole chain.
    n_coordinates : int
        Number of coordinates that were compared.

    Examples
    --------
    >>> from pymc_geodesic.monitoring.diagnosis import Diagnosis
    >>> diagnosis = Diagnosis(
    ...     quantity="configurational temperature",
    ...     value=1.4,
    ...     error=0.03,
    ...     expected=1.0,
    ...     coordinates=("b[2]", "a"),
    ...     n_coordinates=9,
    ...     consequence="the variance of the draws is wrong",
    ...     remedy="Use {minibatches} or more tuning draws.",
    ...     anchor="stationarity",
    ... )
    >>> print(diagnosis.message("SGGMC[a, b]", "larger minibatches"))
    SGGMC[a, b]: The configurational temperature of 'b[2]' is 1.4 (standard error 0.03, expected 1):
    the variance of the draws is wrong. This concerns 2 of 9 coordinates: 'b[2]', 'a'.
    Use larger minibatches or more tuning draws. See ...
    """

    quantity: str
    value: float
    expected: float
    consequence: str
    remedy: str
    anchor: str
    error: float | None = None
    limit: Literal["", "at least ", "at most "] = ""
    unit: str = ""
    format_spec: str = ".3g"
    condition: str = ""
    coordinates: tuple[str, ...] = ()
    n_coordinates: int = 0

    @property
    def finding(self) -> str:
        """The quantity, its value and error, and what follows, as one or two sentences."""
        subject = f"The {self.quantity}"
        if self.coordinates:
            subject += f" of {self.coordinates[0]!r}"
        if self.condition:
            subject += f" {self.condition}"
        expected = f"expected {self.limit}{self.expected:{self.format_spec}}"
        if self.error is not None:
            expected = f"standard error {self.error:.2g}, {expected}"
        text = f"{subject} is {self.value:{self.format_spec}}{self.unit} ({expected})"
        return f"{text}: {self.consequence}.{self._list_coordinates()}"

    def _list_coordinates(self) -> str:
        n = len(self.coordinates)
        if n < 2:
            return ""
        listed = ", ".join(map(repr, self.coordinates[: SETTINGS.max_names]))
        more = f" and {n - SETTINGS.max_names} more" if n > SETTINGS.max_names else ""
        return f" This concerns {n} of {self.n_coordinates} coordinates: {listed}{more}."

    def message(self, source: str, minibatches: str) -> str:
        """Text of the warning: the finding, and on a second line the remedy.

        Parameters
        ----------
        source : str
            Step method, with the variables that it samples.
        minibatches : str
            Change of the minibatches that reduces gradient noise.
        """
        remedy = self.remedy.replace("{minibatches}", minibatches)
        return see(f"{source}: {self.finding}\n{remedy}", self.anchor)


Diagnose = Callable[[Sequence[str]], Diagnosis | None]
"""Function of the coordinate names that returns a diagnosis, or None."""


class DrawMonitor(ABC):
    """Sums over the draws after the warm-up, and a diagnosis from them.

    Attributes
    ----------
    sums : dataclass
        Sums over the draws so far.
    """

    sums: Any

    @abstractmethod
    def initialize(self, n_draws: int) -> None:
        """Begin a chain of ``n_draws`` draws after the warm-up."""

    @abstractmethod
    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Add a draw and its sample stats to the sums."""

    @abstractmethod
    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Diagnose the draws so far, given a name for each coordinate."""

    @property
    def state(self) -> dict[str, Any]:
        """The sums by name."""
        return asdict(self.sums)

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.sums = type(self.sums)(**copy.deepcopy(state))


def coordinate_names(coordinates: Iterable[int], names: Sequence[str]) -> tuple[str, ...]:
    """Names of coordinates in their order, each coordinate once."""
    return tuple(names[coordinate] for coordinate in dict.fromkeys(coordinates))


def dominant_coordinate(metric: Metric, whitened: int) -> int:
    """Coordinate of the model with the largest correlation with a whitened coordinate.

    Parameters
    ----------
    metric : Metric
    whitened : int
        Index of the whitened coordinate.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.gradients.metric import Metric
    >>> from pymc_geodesic.monitoring.diagnosis import dominant_coordinate
    >>> dominant_coordinate(Metric(np.zeros(2), np.array([[0.1, 1.0], [5.0, 0.0]])), 0)
    1
    """
    if whitened >= metric.center.size or not metric.is_dense:
        return whitened
    factor = np.asarray(metric.factor)
    return int(np.argmax(np.abs(factor[:, whitened]) / np.sqrt(np.sum(factor**2, axis=1))))
