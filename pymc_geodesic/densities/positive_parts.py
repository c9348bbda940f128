"""Positive parts of symmetric matrices, for curvature away from the mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, combinations_with_replacement

import numpy as np

_ROUNDING = 1e-9
"""Relative size of a negative principal minor that may be a rounding error."""


def positive_part(matrix: np.ndarray) -> np.ndarray:
    """Positive part of a symmetric matrix."""
    if not matrix.size:
        return matrix
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def positive_part_of_rows(second: Sequence[np.ndarray], n: int) -> list[np.ndarray]:
    """Positive part of the symmetric n × n matrix of each row, given by its upper triangle."""
    pairs = list(combinations_with_replacement(range(n), 2))
    if n == 0:  # rows without effects, such as the observed ones next to missing values
        return []
    if n == 1:
        return [np.maximum(second[0], 0.0)]
    entries = np.broadcast_arrays(*second[: len(pairs)])
    if _are_semidefinite(dict(zip(pairs, entries, strict=True)), n):
        return list(entries)
    matrices = np.empty((entries[0].size, n, n))
    for (k, m), entry in zip(pairs, entries, strict=True):
        matrices[:, k, m] = matrices[:, m, k] = entry
    values, vectors = np.linalg.eigh(matrices)
    matrices = (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return [matrices[:, k, m] for k, m in pairs]


def _are_semidefinite(entry: Mapping[tuple[int, int], np.ndarray], n: int) -> bool:
    """Whether all matrices of rows are positive semidefinite up to rounding.

    All principal minors of two or three columns are tested, and of more columns whether the
    matrices have rank one, as those of a function of one linear predictor.
    """
    diagonal = [entry[k, k] for k in range(n)]
    if any((each < 0.0).any() for each in diagonal):
        return False
    for k, m in combinations(range(n), 2):
        scale = diagonal[k] * diagonal[m]
        if (scale - entry[k, m] ** 2 < -_ROUNDING * scale).any():
            return False
    if n == 2:
        return True
    if n == 3:
        (a, b, c), d, e, f = diagonal, entry[0, 1], entry[0, 2], entry[1, 2]
        determinant = a * b * c + 2.0 * d * e * f - a * f**2 - b * e**2 - c * d**2
        return not (determinant < -_ROUNDING * a * b * c).any()
    for k, m in combinations_with_replacement(range(1, n), 2):
        remainder = np.abs(diagonal[0] * entry[k, m] - entry[0, k] * entry[0, m])
        if (remainder > _ROUNDING * diagonal[0] * np.sqrt(diagonal[k] * diagonal[m])).any():
            return False
    return bool(diagonal[0].all())
