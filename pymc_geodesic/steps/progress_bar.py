"""Columns of PyMC's progress bar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.progress import TextColumn
from rich.table import Column

type Progress = tuple[tuple[str, str, str], ...]
"""Sample stat, format of its value and title of the column; a format that ends with "s" is that of
a string."""

LANGEVIN_PROGRESS: Progress = (
    ("phase", "6s", "Phase"),
    ("step_size", ".2e", "Step size"),
    ("temperature", ".3f", "Temperature"),
)

TRAJECTORY_PROGRESS: Progress = (
    ("step_size", ".2e", "Step size"),
    ("acceptance_rate", ".2f", "Acceptance"),
)


def progress_columns(
    progress: Progress, n_chains: int
) -> tuple[list[TextColumn], dict[str, list[Any]]]:
    """Make the columns, and what they show of each chain before its first draw."""
    columns = [
        TextColumn(
            "{task.fields[" + stat + "]:" + template + "}", table_column=Column(title, ratio=1)
        )
        for stat, template, title in progress
    ]
    first = {stat: "" if template.endswith("s") else 0.0 for stat, template, _ in progress}
    return columns, {stat: [value] * n_chains for stat, value in first.items()}


def progress_updates(progress: Progress) -> tuple[Callable[[dict], dict]]:
    """Make the function that selects what is shown from the sample stats of a draw."""
    names = [stat for stat, _, _ in progress]
    return (lambda stats: {name: stats[name] for name in names},)
