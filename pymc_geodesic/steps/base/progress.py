"""What the progress bar shows of a step."""

from __future__ import annotations

from collections.abc import Callable

from rich.progress import TextColumn
from rich.table import Column

__all__ = ["ProgressColumns"]


class ProgressColumns:
    """A step whose sample stats are columns of the progress bar."""

    _progress_stats: tuple[tuple[str, str, str], ...] = ()
    """(stat, format, column title) of the progress bar."""

    @classmethod
    def _progressbar_config(cls, n_chains: int = 1) -> tuple[list, dict[str, list]]:
        columns = [
            TextColumn(
                "{task.fields[" + name + "]:" + template + "}",
                table_column=Column(title, ratio=1),
            )
            for name, template, title in cls._progress_stats
        ]
        first = {
            name: "" if template.endswith("s") else 0.0 for name, template, _ in cls._progress_stats
        }
        return columns, {name: [value] * n_chains for name, value in first.items()}

    @classmethod
    def _make_progressbar_update_functions(cls) -> tuple[Callable[[dict], dict]]:
        names = [name for name, _, _ in cls._progress_stats]

        def update_stats(stats: dict) -> dict:
            return {name: stats[name] for name in names}

        return (update_stats,)
