"""Memory of a process that samples minibatches from rows on disk; run by a test.

``python measure_memory.py rows|sparse|sampling N BLOCK FOLDER`` prints by how many bytes the memory
grew at most once everything was imported and compiled, and the largest size of the process.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytensor
from scipy import sparse

from pymc_geodesic.datasets import RowBlocks, row_blocks
from pymc_geodesic.minibatches.block_format import BlockFormat
from pymc_geodesic.minibatches.block_rows import ContainerRows, DenseRows, SparseRows
from pymc_geodesic.minibatches.streamed_rows import StreamedBlocks
from pymc_geodesic.sparse import SparseContainers

N_COLUMNS, BATCH, N_STEPS = 28, 100, 100


def write_rows(path: Path, n_rows: int) -> np.memmap:
    """Write rows of noise with a label in the last column, in chunks."""
    rng = np.random.default_rng(1)
    piece = 100_000
    with path.open("wb") as file:
        for _ in range(n_rows // piece):
            rows = rng.standard_normal((piece, N_COLUMNS + 1), dtype="float32")
            rows[:, -1] = np.where(rows[:, 0] > 0.0, 1.0, -1.0)
            rows.tofile(file)
    return np.memmap(path, "float32", mode="r", shape=(n_rows, N_COLUMNS + 1))


def memory(of: str) -> int:
    """Present (``VmRSS``) or largest (``VmHWM``) size of this process in bytes."""
    found = re.search(rf"{of}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def forget_peak() -> int:
    """Reset the peak size to the present one."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def take_minibatches(
    batches: RowBlocks, container: ContainerRows, n_rows: int, block_size: int
) -> int:
    """Take minibatches until every block has been in memory."""
    source = StreamedBlocks(
        batches,
        BlockFormat([container]),
        n_rows,
        batch_size=BATCH,
        order="shuffled",
        draws_per_block=5,
    )
    source.reset(1)
    source.next_starts(N_STEPS)  # compiles what it needs
    held = sum(array.nbytes for array in (source.arrays | source.whole).values())
    source.reset(1)
    before = forget_peak() - held  # which the first draw left behind
    for _ in range(5 * n_rows // block_size + 5):
        source.next_starts(N_STEPS)
    return before


def take_rows(rows: np.memmap, block_size: int) -> int:
    """Take minibatches of dense rows."""
    container = DenseRows("rows", "float32", rows.shape[1:])
    return take_minibatches(
        row_blocks(rows, block_size=block_size), container, len(rows), block_size
    )


def take_sparse_rows(rows: np.memmap, block_size: int) -> int:
    """Take minibatches of the same numbers as a sparse matrix."""
    n, folder = len(rows), Path(rows.filename).parent
    length = N_COLUMNS + 1
    for first in range(0, n, 100_000):
        with (folder / "columns.bin").open("ab") as file:
            np.tile(np.arange(length, dtype="int32"), min(100_000, n - first)).tofile(file)
    (np.arange(n + 1, dtype="int32") * length).tofile(folder / "starts.bin")
    matrix = sparse.csr_array(
        (
            np.memmap(rows.filename, "float32", mode="r", shape=(n * length,)),
            np.memmap(folder / "columns.bin", "int32", mode="r", shape=(n * length,)),
            np.memmap(folder / "starts.bin", "int32", mode="r", shape=(n + 1,)),
        ),
        shape=(n, length),
    )
    values, columns, bounds = (
        pytensor.shared(np.zeros(shape, dtype), name)
        for name, shape, dtype in (
            ("values", 1, "float32"),
            ("columns", 1, "int32"),
            ("rows", (1, 2), "int64"),
        )
    )
    containers = SparseContainers(values, columns, bounds, length)
    return take_minibatches(
        row_blocks(matrix, block_size=block_size), SparseRows("rows", containers), n, block_size
    )


def sample(rows: np.memmap, block_size: int) -> int:
    """Sample a classifier until every block has been in memory."""
    import pymc as pm
    import pytensor.tensor as pt

    import pymc_geodesic as pg

    with pm.Model() as model:
        table = pm.Data("rows", np.zeros((1, N_COLUMNS + 1), "float32"))
        w = pm.Normal("w", shape=N_COLUMNS)
        pm.Potential("hinge", -pt.maximum(0.0, 1.0 - table[:, -1] * (table[:, :-1] @ w)))
        step = pg.gSGNHT(
            minibatch="rows",
            batches=row_blocks(rows, block_size=block_size),
            batch_size=BATCH,
            n_steps=N_STEPS,
            step_size=1e-4,
            friction=1000.0,
            draws_per_block=5,
        )
        point = model.initial_point()
    step.setup_chain(np.random.default_rng(1), tune=0, draws=10**6)
    point, _ = step.step(point)
    held = step.estimator.source.arrays["rows"].nbytes
    step.setup_chain(np.random.default_rng(1), tune=0, draws=10**6)
    before = forget_peak() - held  # which the first draw left behind
    for _ in range(5 * len(rows) // block_size + 5):
        point, _ = step.step(point)
    assert np.isfinite(point["w"]).all()
    return before


if __name__ == "__main__":
    what, n_rows, block_size, folder = sys.argv[1:]
    table = write_rows(Path(folder) / "rows.bin", int(n_rows))
    before = {"rows": take_rows, "sparse": take_sparse_rows, "sampling": sample}[what](
        table, int(block_size)
    )
    print(memory("VmHWM") - before, memory("VmHWM"))
