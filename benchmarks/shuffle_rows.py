"""Ten million rows put in random order on disk: how long, in how much memory, what is seen of it.

    python -m benchmarks.shuffle_rows [--rows 10000000] [--memory 200000000] [--folder FOLDER]

The rows are those of HIGGS in the data folder with a little noise, sorted by label (29 numbers
in single precision, 1.2 GB for ten million, four times as much in the folder). Without the data
they are normal numbers. The ratio is to a plain copy of the file in pieces of 8 MB; both end when
all bytes are on the disk. Memory is the largest size of a process of its own, from `/proc`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from pymc_geodesic.datasets import row_blocks, shuffle_rows
from pymc_geodesic.datasets.folder import read_arrays

N_COLUMNS = 29
PIECE = 2**18
N_BLOCKS = 20
JITTER = 0.01


def known_rows() -> tuple[np.ndarray, np.ndarray]:
    """Return some rows and their labels, of HIGGS if it is there."""
    try:
        data = read_arrays("higgs_small.npz", data_home=None, origin="See docs/data.md.")
    except FileNotFoundError:
        rng = np.random.default_rng(1)
        rows = rng.standard_normal((10_000, N_COLUMNS - 1), dtype="float32")
        return rows, rows[:, 0] > 0.0
    return data["X_sas"], data["y_sas"] > 0


def write_sorted(path: Path, n_rows: int) -> None:
    """Write rows with their label in the last column, those of one label before the others."""
    rows, labels = known_rows()
    rng = np.random.default_rng(1)
    scale = JITTER * rows.std(axis=0)
    n_first = round(n_rows * float(np.mean(~labels)))
    of_label = [rows[~labels], rows[labels]]
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, N_COLUMNS)}
        np.lib.format.write_array_header_2_0(file, header)
        for start in range(0, n_rows, PIECE):
            n = min(PIECE, n_rows - start)
            is_second = np.arange(start, start + n) >= n_first
            piece = np.empty((n, N_COLUMNS), "float32")
            piece[:, -1] = np.where(is_second, 1.0, -1.0)
            for label, choice in enumerate(of_label):
                mine = is_second == bool(label)
                piece[mine, :-1] = choice[rng.integers(len(choice), size=int(mine.sum()))]
            noise = rng.standard_normal((n, N_COLUMNS - 1), dtype="float32")
            piece[:, :-1] += scale * noise
            piece.tofile(file)


def copied(source: Path, target: Path) -> None:
    with source.open("rb") as old, target.open("wb") as new:
        while part := old.read(2**23):
            new.write(part)
        new.flush()
        os.fsync(new.fileno())


def memory_of_process(of: str) -> int:
    """Present (``VmRSS``) or largest (``VmHWM``) size of this process in bytes."""
    found = re.search(rf"{of}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def shuffle_here(source: str, target: str, memory: str) -> None:
    """Be the process that shuffles; print seconds and by how many bytes the process grew."""
    tiny = Path(target).with_name("tiny" + Path(target).suffix)
    shuffle_rows(
        np.zeros((3, N_COLUMNS), "float32"), tiny, progressbar=False
    )  # loads what it needs
    Path("/proc/self/clear_refs").write_text("5")  # the largest size is the present one
    before, begin = memory_of_process("VmRSS"), time.perf_counter()
    shuffle_rows(source, target, random_seed=1, memory=int(memory), progressbar=False)
    print(time.perf_counter() - begin, memory_of_process("VmHWM") - before, before)


def shuffled(source: Path, target: Path, memory: int) -> tuple[float, float, float]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.shuffle_rows", "--as-process"]
    command += [str(source), str(target), str(memory)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds, growth, before = map(float, run.stdout.split())
    return seconds, growth, before


def what_is_said(path: Path) -> tuple[str, float]:
    """Warnings of a pass over all blocks, and its seconds over those of one that does not look."""
    # Not at the top: the process that shuffles is as small as one that needs no sampler.
    from pymc_geodesic.minibatches.block_format import BlockFormat
    from pymc_geodesic.minibatches.block_rows import DenseRows
    from pymc_geodesic.minibatches.streamed_rows import StreamedBlocks

    n_rows = np.load(path, mmap_mode="r").shape[0]

    def one_pass(*, looks: bool) -> tuple[list[str], float]:
        source = StreamedBlocks(
            row_blocks(path, block_size=-(-n_rows // N_BLOCKS)),
            BlockFormat([DenseRows("rows", "float64", (N_COLUMNS,))]),
            n_rows,
            batch_size=100,
            order="shuffled",
            draws_per_block=None,
        )
        source._means.is_done = not looks
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            begin = time.process_time()
            for _ in source.all_rows() or ():
                pass
            seconds = time.process_time() - begin
        return [str(each.message) for each in caught], seconds

    _, without = one_pass(looks=False)
    messages, with_looks = one_pass(looks=True)
    return (messages or ["nothing"])[0], with_looks - without


def main() -> list[str]:
    """Measure and return what is printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--memory", type=int, default=200_000_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    lines = [
        "| | seconds | ratio to a copy | memory, MB |",
        "|---|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        source, copy, target = (Path(folder, f"{n}.npy") for n in ("sorted", "copy", "shuffled"))
        write_sorted(source, options.rows)
        begin = time.perf_counter()
        copied(source, copy)
        of_copy = time.perf_counter() - begin
        copy.unlink()
        size = source.stat().st_size / 1e6
        lines.append(f"| a copy of {size:,.0f} MB | {of_copy:.1f} | 1 | |")
        seconds, growth, before = shuffled(source, target, options.memory)
        lines.append(
            f"| `shuffle_rows(memory={options.memory:_})` | {seconds:.1f} "
            f"| {seconds / of_copy:.1f} | {growth / 1e6:.0f} beyond {before / 1e6:.0f} |"
        )
        for name, path in (("sorted", source), ("shuffled", target)):
            said, extra = what_is_said(path)
            lines += ["", f"Of the {name} file is said ({extra:.1f} s more for the pass): {said}"]
    print("\n".join(lines), flush=True)
    return lines


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-process"]:
        shuffle_here(*sys.argv[2:])
    else:
        main()
