"""Files of a run, and functions that read its draws and status, also during sampling."""

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
from pymc_geodesic.runs.chain_files import ChainFiles, Draws, concatenate
from pymc_geodesic.runs.chain_trace import Replay
from pymc_geodesic.runs.pymc_backend import find_constants, find_observations
from pymc_geodesic.runs.serialization import read_tree

FORMAT = 2
"""Version of the file format."""

_ARVIZ_NAMES = {
    "model_logp": "lp",
    "mean_tree_accept": "acceptance_rate",
    "depth": "tree_depth",
    "tree_size": "n_steps",
}
"""ArviZ names of sample stats of PyMC."""


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
        If it has another file format.
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
                f"{path} has file format {self.key['format']}, and this version reads {FORMAT}: "
                "install the version of pymc_geodesic that wrote it"
            )

    @property
    def total(self) -> int:
        """Requested draws of one chain, warm-up included."""
        return self.key["tune"] + self.key["draws"]

    def chain(self, chain: int) -> ChainFiles:
        """Files of one chain."""
        return ChainFiles(self.path / f"chain-{chain}")

    def replay(self, chain: int) -> Replay | None:
        """Draws of a chain up to its last checkpoint, and removal of later files.

        A single segment after the checkpoint stays on disk until as many draws have been drawn
        again. Several segments without checkpoints among them are left by damaged files and are
        removed, so that the chain does not continue for long without a checkpoint.
        """
        files = self.chain(chain)
        start = files.read_start()
        if start is None:
            return None
        segments = files.segments()
        checkpoint = files.last_checkpoint(sum(draws.n for _, draws in segments)) or start
        kept = [draws for first, draws in segments if first < checkpoint.n]
        later = [draws.n for first, draws in segments if first >= checkpoint.n]
        n_later = later[0] if len(later) == 1 else 0
        files.remove_after(checkpoint.n, keep_next=n_later > 0)
        return Replay(start, concatenate(kept), checkpoint, checkpoint.n + n_later)


def _choose_chains(lengths: list[int]) -> list[int]:
    """Choose the chains that maximize the number of draws if all are cut to the shortest."""
    order = sorted(range(len(lengths)), key=lambda chain: lengths[chain])
    totals = [lengths[chain] * (len(order) - i) for i, chain in enumerate(order)]
    if not totals or max(totals) == 0:
        return []
    return sorted(order[int(np.argmax(totals)) :])


def _stats(draws: Draws, part: slice, kinds: list[dict[str, str]]) -> dict[str, np.ndarray]:
    """Sample stats by name, with a last axis for those of several step methods."""
    found: dict[str, list[np.ndarray]] = {}
    for columns, kinds_of_step in zip(draws.stats, kinds, strict=False):
        for name, column in columns.items():
            kind = np.dtype(kinds_of_step[name])
            if isinstance(column, list) and not kind.hasobject:
                # As in PyMC, missing entries are zero.
                column = np.array([0 if entry is None else entry for entry in column], kind)
            # Warnings are objects, which ArviZ cannot write to a file.
            if name not in ("warning", "tune") and isinstance(column, np.ndarray):
                found.setdefault(name, []).append(column[part])
    return {
        _ARVIZ_NAMES.get(name, name): columns[0]
        if len(columns) == 1
        else np.stack(columns, axis=-1)
        for name, columns in found.items()
        if len({column.shape for column in columns}) == 1
    }


def _stack_common(parts: list[dict[str, np.ndarray]], n: int) -> dict[str, np.ndarray]:
    names = [
        name
        for name in parts[0]
        if all(name in part and part[name].shape[1:] == parts[0][name].shape[1:] for part in parts)
    ]
    return {name: np.stack([part[name][:n] for part in parts]) for name in names}


def data_tree(
    run: RunFiles, *, model: pm.Model | None = None, save_warmup: bool = True
) -> DataTree:
    """Draws of all chains, without those whose omission leaves more draws."""
    chains = [run.chain(chain).read() for chain in range(run.key["chains"])]
    tune = run.key["tune"]
    groups: dict[str, Mapping[str, np.ndarray]] = {}
    phases = {"": slice(tune, run.total)} | ({"warmup_": slice(0, tune)} if save_warmup else {})
    used: list[int] = []
    for prefix, part in phases.items():
        lengths = [len(range(*part.indices(draws.n))) for draws in chains]
        chosen = _choose_chains(lengths)
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
        groups[f"{prefix}posterior"] = _stack_common(values, n)
        groups[f"{prefix}sample_stats"] = _stack_common(
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
    version = run.key["identity"]["version of"]["pymc"]
    library = {"inference_library": "pymc", "inference_library_version": version}
    for group in groups:
        tree[group].attrs |= library | {"tuning_steps": tune}
    return tree


def open_run(path: str | Path) -> DataTree:
    """Read the draws of a run, also during sampling.

    Parameters
    ----------
    path : path-like
        Folder that `CheckpointTrace` writes to.

    Returns
    -------
    DataTree
        Groups ``posterior`` and ``sample_stats``, and ``warmup_posterior`` and
        ``warmup_sample_stats``, if they have draws. Chains are cut to the shortest. Chains so short
        that more draws are left without them are omitted, with a warning.

    Raises
    ------
    FileNotFoundError
        If there is no run.

    See Also
    --------
    resume : continues the run.

    Examples
    --------
    >>> import pymc_geodesic as pg
    >>> pg.open_run("nothing")
    Traceback (most recent call last):
    FileNotFoundError: nothing holds no run; ...
    """
    return data_tree(RunFiles(Path(path)))


def status(path: str | Path) -> str:
    """Status of a run, one line per chain."""
    run = RunFiles(Path(path))
    lines = [
        f"{run.path}: {run.key['chains']} chains, each {run.key['tune']} tuning draws and "
        f"{run.key['draws']} draws"
    ]
    for chain in range(run.key["chains"]):
        files = run.chain(chain)
        n, written = files.read().n, files.written_at()
        if written is None:
            lines.append(f"  chain {chain}: not started")
            continue
        phase = "tuning" if n < run.key["tune"] else "drawing" if n < run.total else "finished"
        tuned = min(n, run.key["tune"])
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(written))
        lines.append(
            f"  chain {chain}: {phase}, {tuned} tuning draws and {n - tuned} draws, "
            f"last written {when}"
        )
    return "\n".join(lines)
