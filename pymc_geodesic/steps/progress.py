"""Columns of the progress bar of `pymc.sample`."""

from __future__ import annotations

from rich.progress import TextColumn
from rich.table import Column

type Progress = tuple[tuple[str, str, str], ...]
"""Columns of the progress bar: sample stat, format specification, and title."""

LANGEVIN_PROGRESS: Progress = (("step_size", ".1e", "Step size"), ("temperature", ".2f", "Temp."))

TRAJECTORY_PROGRESS: Progress = (
    ("step_size", ".1e", "Step size"),
    ("acceptance_rate", ".2f", "Accept."),
)


def progress_columns(
    progress: Progress, n_chains: int
) -> tuple[list[TextColumn], dict[str, list[float]]]:
    """Return the columns, as wide as their values, and initial values of the stats of each chain.

    Examples
    --------
    >>> from pymc_geodesic.steps.progress import TRAJECTORY_PROGRESS, progress_columns
    >>> columns, stats = progress_columns(TRAJECTORY_PROGRESS, 2)
    >>> len(columns), stats
    (2, {'step_size': [0.0, 0.0], 'acceptance_rate': [0.0, 0.0]})
    """
    columns = [
        TextColumn("{task.fields[" + stat + "]:" + template + "}", table_column=Column(title))
        for stat, template, title in progress
    ]
    return columns, {stat: [0.0] * n_chains for stat, _, _ in progress}
