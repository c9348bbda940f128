"""Warnings that `pymc.sample` logs."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

GENERAL_ADVICE = "We recommend running at least 4 chains"
"""Beginning of the message that PyMC logs for fewer chains."""


class SamplingWarnings(logging.Handler):
    """Collects the warnings of `pymc.sample`, each message once.

    Parameters
    ----------
    logger : str
        Logger whose warnings are collected, with those of its descendants.

    Attributes
    ----------
    messages : list of str
    """

    def __init__(self, logger: str = "pymc.stats.convergence") -> None:
        super().__init__()
        self._logger = logging.getLogger(logger)
        self.messages: list[str] = []
        self.level_before = logging.NOTSET

    def emit(self, record: logging.LogRecord) -> None:
        """Append a message, unless it is a duplicate."""
        if record.levelno < logging.WARNING:
            return
        if (message := record.getMessage()) not in self.messages:
            self.messages.append(message)

    def __enter__(self) -> Self:
        self.level_before = self._logger.level
        self._logger.setLevel(logging.WARNING)  # also if the logger "pymc" is silenced
        self._logger.addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self.level_before)
