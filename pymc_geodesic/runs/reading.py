"""Reading a run, finished or still going."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_geodesic.failure_modes import see
from pymc_geodesic.runs.chain import Replay
from pymc_geodesic.runs.chain_files import ChainFiles, Draws, joined
from pymc_geodesic.runs.encoding import read_tree
from pymc_geodesic.runs.pymc_parts import find_constants, find_observations

FORMAT = 1
"""Number of the layout of the files."""

_OF_ARVIZ = {
    "model_logp": "lp",
    "mean_tree_accept": "acceptance_rate",
    "depth": "tree_depth",
    "tree_size": "n_steps",
}
"""Names of ArviZ for sample stats of PyMC."""


class RunFiles:
    """The files of a run.

    Parameters
    ----------
    path : Path
        Folder of the run.

    Raises
    ------
    FileNotFoundError
        If there is no run.
    ValueError
        If another version of the package wrote it in another layout.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / "run.npz").exists():
            raise FileNotFoundError(
                f"{path} holds no run; pymc.sample(trace=pymc_geodesic.CheckpointTrace(path)) "
                "writes one"
            )
        self.key: dict[str, Any] = read_tree(path / "run.npz")
        if self.key["format"] != FORMAT:
            raise ValueError(
                f"{path} is of layout {self.key['format']}, and this version reads {FORMAT}: "
                "install the version of pymc_geodesic that wrote it"
            )

    @property
    def total(self) -> int:
        """Draws of one chain that were asked for, with tuning."""
        return self.key["tune"] + self.key["draws"]

    def chain(self, chain: int) -> ChainFiles:
        """Files of one chain."""
        return ChainFiles(self.path / f"chain-{chain}")

    def replay(self, chain: int) -> Replay | None:
        """Take back what a chain has drawn, up to the last state.

        Draws behind it, which are drawn again, stay until as many are there. Those of several
        segments are forgotten: without states among them they are what damaged files have left, and
        a chain should not be without a record for so long.
        """
        files = self.chain(chain)
        start = files.read_start()
        if start is None:
            return None
        segments = files.segments()
        record = files.last_record(sum(draws.n for _, draws in segments)) or start
        kept = [draws for first, draws in segments if first < record.n]
        behind = [draws.n for first, draws in segments if first >= record.n]
        n_behind = behind[0] if len(behind) == 1 else 0
        files.forget_after(record.n, but_next=n_behind > 0)
        return Replay(start, joined(kept), record, record.n + n_behind)


def _chosen(lengths: list[int]) -> list[int]:
    """Choose chains so that the draws that all of them have are as many as can be."""
    order = sorted(range(len(lengths)), key=lambda chain: lengths[chain])
    totals = [lengths[chain] * (len(order) - i) for i, chain in enumerate(order)]
    if not totals or max(totals) == 0:
        return []
    return sorted(order[int(np.argmax(totals)) :])


def _stats(draws: Draws, part: slice, kinds: list[dict[str, str]]) -> dict[str, np.ndarray]:
    """Sample stats by name; those that several step methods have get a last axis."""
    found: dict[str, list[np.ndarray]] = {}
    for columns, kinds_of_step in zip(draws.stats, kinds, strict=False):
        for name, column in columns.items():
            kind = np.dtype(kinds_of_step[name])
            if isinstance(column, list) and not kind.hasobject:
                # PyMC leaves a zero where a draw has none.
                column = np.array([0 if entry is None else entry for entry in column], kind)
            # A warning is an object, and no file of ArviZ holds one.
            if name not in ("warning", "tune") and isinstance(column, np.ndarray):
                found.setdefault(name, []).append(column[part])
    return {
        _OF_ARVIZ.get(name, name): columns[0] if len(columns) == 1 else np.stack(columns, axis=-1)
        for name, columns in found.items()
        if len({column.shape for column in columns}) == 1
    }


def _in_common(parts: list[dict[str, np.ndarray]], n: int) -> dict[str, np.ndarray]:
    names = [
        name
        for name in parts[0]
        if all(name in part and part[name].shape[1:] == parts[0][name].shape[1:] for part in parts)
    ]
    return {name: np.stack([part[name][:n] for part in parts]) for name in names}


def tree_of(run: RunFiles, *, model: pm.Model | None = None, save_warmup: bool = True) -> DataTree:
    """Put the draws of all chains together; chains that are far behind the others are left out."""
    chains = [run.chain(chain).read() for chain in range(run.key["chains"])]
    tune = run.key["tune"]
    groups: dict[str, Mapping[str, np.ndarray]] = {}
    phases = {"": slice(tune, run.total)} | ({"warmup_": slice(0, tune)} if save_warmup else {})
    used: list[int] = []
    for prefix, part in phases.items():
        lengths = [len(range(*part.indices(draws.n))) for draws in chains]
        chosen = _chosen(lengths)
        if not chosen:
            continue
        n = min(lengths[chain] for chain in chosen)
        used = used or chosen
        if len(chosen) < len(chains) and not prefix:
            others = [chain for chain in range(len(chains)) if chain not in chosen]
            message = (
                f"chains {others} have fewer draws and are left out; each of the others has {n}"
            )
            warnings.warn(see(message, "unequal-chains"), stacklevel=3)
        values = [
            {name: array[part] for name, array in chains[chain].values.items()} for chain in chosen
        ]
        groups[f"{prefix}posterior"] = _in_common(values, n)
        groups[f"{prefix}sample_stats"] = _in_common(
            [_stats(chains[chain], part, run.key["stats"]) for chain in chosen], n
        )
    labels = run.key["labels"]
    if model is not None:
        for name, arrays in (
            ("observed_data", find_observations(model)),
            ("constant_data", find_constants(model)),
        ):
            dense = {k: np.asarray(v) for k, v in arrays.items() if not hasattr(v, "tocsr")}
            if dense:
                groups[name] = dense
    tree = az.from_dict(
        groups, coords=labels["coords"], dims=labels["dims"], save_warmup=save_warmup
    )
    for group in groups:
        tree[group].attrs["tuning_steps"] = tune
    return tree


def open_run(path: str | Path) -> DataTree:
    """Read the draws of a run, finished or still going.

    Parameters
    ----------
    path : path-like
        Folder that `CheckpointTrace` writes to.

    Returns
    -------
    DataTree
        Groups ``posterior`` and ``sample_stats``, and those of tuning with ``warmup_`` before their
        names, as far as there are draws. Chains are as long as the shortest; those so short that
        more draws are left without them are left out, with a warning.

    Raises
    ------
    FileNotFoundError
        If there is no run.

    See Also
    --------
    resume : goes on with the run.

    Examples
    --------
    >>> import pymc_geodesic as pg
    >>> pg.open_run("nothing")
    Traceback (most recent call last):
    FileNotFoundError: nothing holds no run; ...
    """
    return tree_of(RunFiles(Path(path)))


def status(path: str | Path) -> str:
    """Describe a run in a line for each chain."""
    run = RunFiles(Path(path))
    lines = [
        f"{run.path}: {run.key['chains']} chains, each {run.key['tune']} draws of tuning and "
        f"{run.key['draws']} to keep"
    ]
    for chain in range(run.key["chains"]):
        files = run.chain(chain)
        n, written = files.read().n, files.written_at()
        if written is None:
            lines.append(f"  chain {chain}: not begun")
            continue
        phase = "tuning" if n < run.key["tune"] else "drawing" if n < run.total else "finished"
        tuned = min(n, run.key["tune"])
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(written))
        lines.append(
            f"  chain {chain}: {phase}, {tuned} of tuning and {n - tuned} draws, last record {when}"
        )
    return "\n".join(lines)
