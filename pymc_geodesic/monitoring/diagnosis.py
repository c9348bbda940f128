"""What a monitor finds wrong with the draws of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Diagnosis:
    """A finding about the draws of a chain, and what to do.

    Attributes
    ----------
    message : str
        What is wrong, of which variable, and the remedy.
    anchor : str
        Section of the page on failure modes.
    """

    message: str
    anchor: str


class DrawMonitor(Protocol):
    """Observes the draws after the warm-up.

    Attributes
    ----------
    state : dict
        Sums over the draws so far.
    """

    state: dict[str, Any]

    def initialize(self, n_draws: int) -> None:
        """Begin a chain of so many draws after the warm-up."""

    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Take a draw and its sample stats into account."""

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Return what is wrong, given a name for each coordinate; None if nothing is."""
