"""A line for each chain while it is on its way."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pymc_geodesic.distributed.resident import VisitDraws
from pymc_geodesic.distributed.schedule import Visit


class Lines:
    """Progress bars, one for each chain.

    Parameters
    ----------
    n_chains, n_draws : int
        Chains, and draws of each with tuning.
    shown : bool
    """

    def __init__(self, n_chains: int, n_draws: int, *, shown: bool) -> None:
        self._bars = Progress(
            TextColumn("chain {task.fields[chain]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("shard {task.fields[shard]}"),
            TextColumn("step size {task.fields[step_size]}"),
            TimeRemainingColumn(),
            disable=not shown,
        )
        self._tasks = [
            self._bars.add_task("", total=n_draws, chain=chain, shard="", step_size="")
            for chain in range(n_chains)
        ]

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def advance(self, chain: int, visit: Visit, draws: VisitDraws) -> None:
        """Show that a visit is over."""
        sizes = draws.stats.get("step_size")
        shown = "" if sizes is None else f"{float(sizes[-1]):.2e}"
        self._bars.update(
            self._tasks[chain], advance=visit.n_draws, shard=visit.shard, step_size=shown
        )
