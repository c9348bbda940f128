"""Time of one inner step with 10⁷ rows of data against that with 10⁵, for the same minibatch.

    python -m benchmarks.row_count [--rounds 21]

Needs about 8 GB of memory. A hundred thousand rows fit in the processor cache, ten million do not;
the time hardly increases because rows are read in order (`gradients.rows.ShuffledRows`).
"""

from benchmarks.timing import measure_alternately, ratio, use_one_core

use_one_core()

import argparse
from statistics import median

from benchmarks import problems
from benchmarks.inner_loop import ours
from benchmarks.models import make_step

FEW, MANY = 100_000, 10_000_000
BATCHES = {100: 5_000, 1000: 1_000}
"""Rows of a minibatch and steps per round."""


def main() -> list[str]:
    """Measure and return the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    lines = [
        f"| minibatch | µs per step, N = {FEW:,} | N = {MANY:,} | ratio |",
        "|---|---:|---:|---:|",
    ]
    for batch_size, total in BATCHES.items():
        times = measure_alternately(
            {
                str(n_rows): ours(make_step(problems.svm(n_rows, batch_size), 10), 10, total)
                for n_rows in (FEW, MANY)
            },
            rounds,
        )
        few, many = times[str(FEW)], times[str(MANY)]
        lines.append(
            f"| {batch_size} | {median(few):.2f} | {median(many):.2f} | {ratio(many, few):.2f} |"
        )
    print("\n".join(lines), flush=True)
    return lines


if __name__ == "__main__":
    main()
