"""Time and memory of `shuffle_rows` for ten million rows, and warnings about sorted rows.

    python -m benchmarks.shuffle_rows [--rows 10000000] [--memory 200000000] [--folder FOLDER]

The rows are those of HIGGS in the data folder with jitter, sorted by label (29 columns in single
precision, 1.2 GB for ten million; the folder needs four times as much), or without the data normal
variates. The ratio is to a copy of the file in pieces of 8 MB; both times include flushing to disk.
Memory is the peak memory of a separate process, from `/proc`.
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
    """Return rows and labels, of HIGGS if the data folder has it."""
    try:
        data = read_arrays("higgs_small.npz", data_home=None, origin="See docs/data.md.")
    except FileNotFoundError:
        rng = np.random.default_rng(1)
        rows = rng.standard_normal((10_000, N_COLUMNS - 1), dtype="float32")
        return rows, rows[:, 0] > 0.0
    return data["X_sas"], data["y_sas"] > 0


def write_sorted(path: Path, n_rows: int) -> None:
    """Write rows with their label in the last column, sorted by label."""
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
    """Return the current (``VmRSS``) or peak (``VmHWM``) memory of this process in bytes."""
    found = re.search(rf"{of}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def shuffle_here(source: str, target: str, memory: str) -> None:
    """Shuffle in this process; print seconds and the increase of its memory."""
    tiny = Path(target).with_name("tiny" + Path(target).suffix)
    shuffle_rows(np.zeros((3, N_COLUMNS), "float32"), tiny, progressbar=False)  # loads libraries
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current size
    before, begin = memory_of_process("VmRSS"), time.perf_counter()
    shuffle_rows(source, target, random_seed=1, memory=int(memory), progressbar=False)
    print(time.perf_counter() - begin, memory_of_process("VmHWM") - before, before)


def shuffled(source: Path, target: Path, memory: int) -> tuple[float, float, float]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.shuffle_rows", "--as-process"]
    command += [str(source), str(target), str(memory)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds, growth, before = map(float, run.stdout.split())
    return seconds, growth, before


def order_warnings(path: Path) -> tuple[str, float]:
    """Return warnings of a pass over all blocks, and the seconds that the check adds."""
    # Imported here so that the shuffling process does not load samplers.
    from pymc_geodesic.minibatches.block_format import BlockFormat
    from pymc_geodesic.minibatches.block_rows import DenseRows
    from pymc_geodesic.minibatches.streamed_rows import StreamedBlocks

    n_rows = np.load(path, mmap_mode="r").shape[0]

    def one_pass(*, checks: bool) -> tuple[list[str], float]:
        source = StreamedBlocks(
            row_blocks(path, block_size=-(-n_rows // N_BLOCKS)),
            BlockFormat([DenseRows("rows", "float64", (N_COLUMNS,))]),
            n_rows,
            batch_size=100,
            order="shuffled",
            draws_per_block=None,
        )
        source._means.is_done = not checks
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            begin = time.process_time()
            for _ in source.all_rows() or ():
                pass
            seconds = time.process_time() - begin
        return [str(each.message) for each in caught], seconds

    _, without = one_pass(checks=False)
    messages, with_checks = one_pass(checks=True)
    return (messages or ["nothing"])[0], with_checks - without


def main() -> list[str]:
    """Measure and return the table."""
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
            warning, extra = order_warnings(path)
            lines += [
                "",
                f"Warning for the {name} file ({extra:.1f} s more for the pass): {warning}",
            ]
    print("\n".join(lines), flush=True)
    return lines


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-process"]:
        shuffle_here(*sys.argv[2:])
    else:
        main()
