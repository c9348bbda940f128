"""Random keys, the order of which is the new order of the rows, and buckets of keys."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["Buckets", "RandomKeys", "bucket_of", "order_of", "ranges"]

MOST_BUCKETS = 2**16
_SPREAD = 6.0
"""Standard deviations that the largest bucket may be above the mean."""


class RandomKeys:
    """One random number of 64 bits for each row, the same in every pass.

    Parameters
    ----------
    random_seed : None, int, sequence of int, or numpy.random.Generator

    Examples
    --------
    >>> from pymc_geodesic.datasets.shuffling.keys import RandomKeys
    >>> first, second = RandomKeys(1).generator(), RandomKeys(1).generator()
    >>> bool((first.random_raw(3) == second.random_raw(3)).all())
    True
    """

    def __init__(self, random_seed: object = None) -> None:
        if isinstance(random_seed, np.random.Generator):
            random_seed = random_seed.integers(2**63)
        self._seed = np.random.SeedSequence(random_seed)  # type: ignore[arg-type]

    def generator(self) -> np.random.PCG64:
        """Begin with the key of the first row; they do not depend on how many are taken at once."""
        return np.random.PCG64(self._seed)


def ranges(n_rows: int, longest: int) -> list[tuple[int, int]]:
    """Divide rows into ranges.

    Examples
    --------
    >>> from pymc_geodesic.datasets.shuffling.keys import ranges
    >>> ranges(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + longest, n_rows)) for start in range(0, n_rows, longest)]


def bucket_of(keys: np.ndarray, n_buckets: int) -> np.ndarray:
    """Bucket of each key: the first has the smallest keys.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets.shuffling.keys import bucket_of
    >>> bucket_of(np.array([0, 2**62, 2**64 - 1], dtype="u8"), 3)
    array([0, 0, 2], dtype=uint16)
    """
    high = keys >> np.uint64(32)
    return ((high * np.uint64(n_buckets)) >> np.uint64(32)).astype(np.uint16)


def order_of(keys: np.ndarray) -> np.ndarray:
    """Order of the rows of a bucket."""
    return np.argsort(keys, kind="stable")


class Buckets:
    """Into how many buckets the rows are scattered, and how many rows are read at a time.

    Parameters
    ----------
    n_rows : int
    row_bytes : int
        Bytes of a row in memory.
    memory : int
        Bytes that all arrays together may have.

    Attributes
    ----------
    number : int
    piece : int
        Rows that are read, or written, at a time.

    Raises
    ------
    ValueError
        If it cannot be done in so little memory.

    Examples
    --------
    >>> from pymc_geodesic.datasets.shuffling.keys import Buckets
    >>> buckets = Buckets(10_000_000, 116, 200_000_000)
    >>> buckets.number, buckets.piece
    (10, 67934)
    """

    def __init__(self, n_rows: int, row_bytes: int, memory: int) -> None:
        # A row is read, becomes a record with its key, and is put in the order of the buckets; or
        # is taken from its bucket, and waits for others to fill a chunk with it.
        self.piece = int(memory / 4 / (6 * row_bytes + 40))
        # With its key, a copy of that, its place in the new order, and what sorting needs.
        longest = 0.75 * memory / (row_bytes + 32)
        mean = (math.sqrt(longest + _SPREAD**2 / 4) - _SPREAD / 2) ** 2  # mean + 6 √mean = longest
        self.number = max(1, math.ceil(n_rows / mean)) if longest < n_rows else 1
        if self.piece < 1 or self.number > min(MOST_BUCKETS, max(n_rows, 1)):
            raise ValueError(
                f"memory={memory} is too little for {n_rows} rows of {row_bytes} bytes; give more"
            )

    def counts(self, keys: RandomKeys, parts: list[tuple[int, int]]) -> np.ndarray:
        """Rows of each bucket, by going through the keys once."""
        total = np.zeros(self.number, np.int64)
        generator = keys.generator()
        for start, stop in parts:
            part = generator.random_raw(stop - start)
            total += np.bincount(bucket_of(part, self.number), minlength=self.number)
        return total
