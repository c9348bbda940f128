"""Warnings that `pymc.sample` logs."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

GENERAL_ADVICE = "We recommend running at least 4 chains"
"""Beginning of the message that PyMC logs for fewer chains."""


class SamplingWarnings(logging.Handler):
    """Collects the warnings of `pymc.sample`, each message once.

    Attributes
    ----------
    messages : list of str
    """

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.level_before = logging.NOTSET

    def emit(self, record: logging.LogRecord) -> None:
        """Append a message, unless it is a duplicate."""
        if (message := record.getMessage()) not in self.messages:
            self.messages.append(message)

    def __enter__(self) -> Self:
        logger = logging.getLogger("pymc.stats.convergence")
        self.level_before = logger.level
        logger.setLevel(logging.WARNING)  # also if the logger "pymc" is silenced
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
