"""Generated files with the names, arrays, types and sizes of the example data.

For machines without the data folder. The rows have the structure that the examples require (groups
of texts with words of their own, separable labels), in the order of the real files: texts and
labels are sorted by label.
"""

from pathlib import Path

import numpy as np
from numpy.random import Generator
from scipy import sparse

from pymc_geodesic.datasets.folder import sparse_arrays

SEED = 1


def text_counts(
    rng: Generator, labels: np.ndarray, n_words: int, mean_length: float
) -> sparse.csr_matrix:
    """Draw counts of words, with Zipf frequencies that differ between labels."""
    base = 1.0 / np.arange(1.0, n_words + 1.0)
    indices, lengths = [], []
    for label in np.unique(labels):
        chances = base * rng.gamma(0.5, size=n_words)
        length = 1 + rng.poisson(rng.gamma(1.0, mean_length, np.sum(labels == label)))
        cumulative = np.cumsum(chances) / chances.sum()
        indices.append(np.searchsorted(cumulative, rng.random(length.sum())))
        lengths.append(length)
    words, indptr = np.concatenate(indices), np.append(0, np.cumsum(np.concatenate(lengths)))
    rows = sparse.csr_matrix(
        (np.ones(len(words), dtype=np.int16), words, indptr), shape=(len(labels), n_words)
    )
    rows.sum_duplicates()
    return rows[np.argsort(np.argsort(labels, kind="stable"))]


def sorted_labels(n: int, labels: np.ndarray) -> np.ndarray:
    """Return n labels in groups of nearly equal size, one group after the other."""
    return np.sort(np.resize(labels, n))


def words(n: int) -> np.ndarray:
    """Return the words, the first of which is a stop word of scikit-learn."""
    return np.array(["the", *(f"word{i}" for i in range(1, n))])


def texts(rng: Generator, labels: np.ndarray, sizes: tuple[int, int], n_words: int) -> dict:
    """Return counts and labels of training and test texts."""
    ytr, yte = (sorted_labels(n, labels).astype(np.int8) for n in sizes)
    counts = text_counts(rng, np.concatenate([ytr, yte]), n_words, 200.0)
    train, test = counts[: len(ytr)], counts[len(ytr) :]
    return sparse_arrays(train, "Xtr") | sparse_arrays(test, "Xte") | {"ytr": ytr, "yte": yte}


def newsgroups(rng: Generator) -> dict[str, dict[str, np.ndarray]]:
    """Counts of all groups, of two of them, and of three with fewer words."""
    n_words = 61_188
    every = texts(rng, np.arange(1, 21), (11_269, 7_505), n_words)
    every |= {"vocab": words(n_words), "label_names": np.array([f"group{i}" for i in range(20)])}
    different = texts(rng, np.arange(1, 4), (1_666, 1_107), 5_000) | {"vocab": words(5_000)}
    weights = dict(different)
    for part in ("Xtr", "Xte"):
        rows = np.repeat(np.arange(weights[f"{part}_shape"][0]), np.diff(weights[f"{part}_indptr"]))
        values = np.sqrt(weights[f"{part}_data"])
        length = np.sqrt(np.bincount(rows, values**2))
        weights[f"{part}_data"] = (values / length[rows]).astype(np.float32)
    return {
        "20news_bow_61188": every,
        "medlda_binary": texts(rng, np.arange(2), (856, 569), n_words),
        "20news_different_counts": different,
        "20news_different_tfidf": weights,
    }


def wikipedia(rng: Generator) -> dict[str, np.ndarray]:
    """Counts of words of pages, and every tenth of these words."""
    n_pages, n_words = 259_048, 7_702
    counts = text_counts(rng, rng.integers(50, size=n_pages), n_words, 80.0)
    ends = np.append(0, np.cumsum(counts.data.astype(np.int64)))
    tenth = (ends[1:] // 10 - ends[:-1] // 10).astype(np.int16)
    held_out = sparse.csr_matrix((tenth, counts.indices, counts.indptr), shape=counts.shape)
    held_out = held_out.copy()
    held_out.eliminate_zeros()
    return sparse_arrays(counts, "X") | sparse_arrays(held_out, "H") | {"vocab": words(n_words)}


def visits(rng: Generator) -> dict[str, np.ndarray]:
    """Areas of a site that users visited, three on average."""
    parts = {}
    chances = rng.gamma(0.1, size=(20, 294)) + 1e-4
    for name, n in (("Xtr", 32_711), ("Xte", 5_000)):
        kind = rng.integers(20, size=n)
        keys = rng.gumbel(size=(n, 294)) + np.log(chances)[kind]
        n_visits = 1 + rng.poisson(2.0, size=n)
        rank = np.argsort(np.argsort(-keys, axis=1), axis=1)
        seen = sparse.csr_matrix((rank < n_visits[:, None]).astype(np.int8))
        parts |= sparse_arrays(seen, name)
    return parts | {"title": np.array([f"area {i}" for i in range(294)])}


def ijcnn1(rng: Generator) -> dict[str, np.ndarray]:
    """Rows of 22 features, 13 of them not zero, and a tenth of the labels +1."""
    parts, normal = {}, rng.normal(size=22)
    for name, n in (("tr", 49_990), ("te", 91_701)):
        rows = np.zeros((n, 22), dtype=np.float32)
        rows[np.arange(n), rng.integers(10, size=n)] = 1.0
        rows[:, 10:] = 0.3 * rng.normal(size=(n, 12))
        score = rows @ normal + 0.2 * rng.normal(size=n)
        parts |= sparse_arrays(sparse.csr_matrix(rows), f"X{name}")
        parts[f"y{name}"] = np.where(score > np.quantile(score, 0.9), 1, -1).astype(np.int8)
    return parts


def protein(rng: Generator) -> dict[str, np.ndarray]:
    """Percentages of 20 amino acids and the length, in 27 classes."""
    chances, parts = rng.gamma(2.0, size=(27, 20)), {}
    for name, n in (("tr", 311), ("te", 383)):
        label = sorted_labels(n, np.arange(1, 28)).astype(np.int8)
        length = rng.integers(50, 400, size=n)
        p = chances[label - 1] / chances[label - 1].sum(axis=1, keepdims=True)
        share = 100.0 * rng.multinomial(length, p) / length[:, None]
        parts[f"X{name}"] = np.column_stack([share, length]).astype(np.float32)
        parts[f"y{name}"] = label
    return parts


def higgs(rng: Generator) -> dict[str, np.ndarray]:
    """Rows of 28 features, and labels that a linear classifier predicts in two thirds of them."""
    parts, normal = {}, rng.normal(size=28) / np.sqrt(28.0)
    for name, n in (("sas", 10_984), ("h2o_train", 10_000), ("h2o_test", 5_000)):
        rows = rng.normal(size=(n, 28)).astype(np.float32)
        parts[f"X_{name}"] = rows
        parts[f"y_{name}"] = (rows @ normal + 2.0 * rng.logistic(size=n) > 0.0).astype(np.int8)
    return parts


def household(rng: Generator) -> dict[str, np.ndarray]:
    """Expenditures of 20 women and 20 men on four kinds of goods."""
    centers = np.repeat([[900.0, 130.0, 200.0, 170.0], [600.0, 500.0, 700.0, 500.0]], 20, axis=0)
    return {
        "X": centers * rng.gamma(20.0, 1.0 / 20.0, size=centers.shape),
        "gender": np.repeat(["female", "male"], 20),
        "cols": np.array(["housing", "food", "goods", "service"]),
    }


def write_data(folder: Path) -> Path:
    """Write all files into a folder; return it."""
    rng = np.random.default_rng(SEED)
    files = newsgroups(rng) | {
        "wiki_bow_7702": wikipedia(rng),
        "msweb": visits(rng),
        "ijcnn1": ijcnn1(rng),
        "protein_dd_comp_len": protein(rng),
        "higgs_small": higgs(rng),
        "household": household(rng),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, arrays in files.items():
        np.savez(folder / f"{name}.npz", allow_pickle=False, **arrays)
    return folder
