"""What a user is told of a run: the warnings of `pymc.sample`."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

GENERAL_ADVICE = "We recommend running at least 4 chains"
"""Begins what PyMC says whenever there are fewer."""


class Complaints(logging.Handler):
    """Collects what `pymc.sample` warns of, each message once.

    Attributes
    ----------
    messages : list of str
    """

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.level_before = logging.NOTSET

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message, once."""
        if (message := record.getMessage()) not in self.messages:
            self.messages.append(message)

    def __enter__(self) -> Self:
        logger = logging.getLogger("pymc.stats.convergence")
        self.level_before = logger.level
        logger.setLevel(logging.WARNING)  # heard where "pymc" itself is silenced
        logger.addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        logger = logging.getLogger("pymc.stats.convergence")
        logger.removeHandler(self)
        logger.setLevel(self.level_before)
