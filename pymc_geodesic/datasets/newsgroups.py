"""The three newsgroups on which the SGGMC paper compares its samplers."""

import os
from pathlib import Path

import numpy as np
from scipy import sparse

from pymc_geodesic.datasets.corpus import Corpus
from pymc_geodesic.datasets.folder import read_arrays, sparse_arrays, sparse_rows
from pymc_geodesic.datasets.text import document_frequency, tf_idf

# The authors number the groups 1, 2, 3 in this order; the values are the labels in the archive.
GROUPS = {"rec.sport.baseball": 10, "sci.space": 15, "alt.atheism": 1}
FILENAME = "20news_different_{features}.npz"
N_WORDS = 5000
# The band of the paper is 0.36% to 11.77% of the 2,774 documents. The upper end is a cut;
# the lower end is where the 5,000 most frequent words run out.
LARGEST_DOCUMENT_SHARE = 0.1177

ORIGIN = (
    "'20News-different' is rec.sport.baseball, sci.space and alt.atheism out of 20 Newsgroups, "
    "as prepared by the authors of the SGGMC paper "
    "(http://ml.cs.tsinghua.edu.cn/~changliu/sggmcmc-sam/). To build it, unpack the Matlab/Octave "
    "archive '20news-bydate-matlab.tgz' and the word list 'vocabulary.txt' of "
    "http://qwone.com/~jason/20Newsgroups/ into one folder and call "
    "`pymc_geodesic.datasets.build_20news_different(that_folder, data_home)`."
)


def load_20news_different(
    data_home: str | os.PathLike | None = None, *, features: str = "tfidf"
) -> Corpus:
    """Load 20News-different, the small data set of the SGGMC paper's section 5.3.

    1,666 training and 1,107 test documents over 5,000 words. The tf-idf weights of each part
    use the document frequencies of that part, as the authors did.

    Parameters
    ----------
    data_home : path-like, optional
        Folder that holds ``20news_different_tfidf.npz`` or ``20news_different_counts.npz``;
        by default the one named by the environment variable ``PYMC_GEODESIC_DATA``.
    features : {"tfidf", "counts"}
        Unit vectors of tf-idf features, or raw term frequencies.

    Returns
    -------
    Corpus
        The titles are the names of the newsgroups.

    Raises
    ------
    FileNotFoundError
        If the file is missing; the message says where the data comes from and how to build it.
    ValueError
        If `features` is neither of the two.

    References
    ----------
    .. [1] C. Liu, J. Zhu, Y. Song. "Stochastic Gradient Geodesic MCMC Methods", NeurIPS 2016,
       section 5.3 and appendix F.3.

    Examples
    --------
    >>> from pymc_geodesic.datasets import load_20news_different
    >>> load_20news_different("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: There is no file '20news_different_tfidf.npz' in the data folder ...
    """
    if features not in ("tfidf", "counts"):
        raise ValueError(f"`features` must be 'tfidf' or 'counts', not {features!r}.")
    arrays = read_arrays(FILENAME.format(features=features), data_home=data_home, origin=ORIGIN)
    train, test = sparse_rows(arrays, "Xtr"), sparse_rows(arrays, "Xte")
    if features == "tfidf":
        # The file is in single precision; models check unit length in double precision.
        train, test = _unit_rows(train), _unit_rows(test)
    names = np.array(list(GROUPS))
    return Corpus(
        train=train,
        test=test,
        vocabulary=arrays["vocab"],
        train_titles=names[arrays["ytr"].astype(int) - 1],
        test_titles=names[arrays["yte"].astype(int) - 1],
    )


def build_20news_different(source: str | os.PathLike, data_home: str | os.PathLike) -> None:
    """Build 20News-different from the Matlab/Octave version of 20 Newsgroups.

    Words in more than 11.77% of the documents are dropped, the 5,000 most frequent of the
    rest (by number of documents, ties in the order of the word list) are kept, and so are the
    documents that hold any of them.

    Parameters
    ----------
    source : path-like
        Folder with ``train.data``, ``train.label``, ``test.data``, ``test.label`` (lines of
        document, word and count, all counted from 1) and ``vocabulary.txt``.
    data_home : path-like
        Folder to write ``20news_different_counts.npz`` and ``20news_different_tfidf.npz`` to.

    Raises
    ------
    FileNotFoundError
        If one of the five files is missing.

    Examples
    --------
    >>> from pymc_geodesic.datasets import build_20news_different
    >>> build_20news_different("nowhere", "nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: There is no file 'train.data' in the folder 'nowhere'. ...
    """
    folder = Path(source)
    for name in ("train.data", "train.label", "test.data", "test.label", "vocabulary.txt"):
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"There is no file {name!r} in the folder {os.fspath(source)!r}. {ORIGIN}"
            )
    words = np.array((folder / "vocabulary.txt").read_text().split())
    train, train_group, train_size = _read_groups(folder, "train", len(words))
    test, test_group, test_size = _read_groups(folder, "test", len(words))

    frequency = document_frequency(sparse.csr_matrix(sparse.vstack([train, test])))
    rare_enough = np.flatnonzero(frequency <= LARGEST_DOCUMENT_SHARE * (train_size + test_size))
    by_frequency = rare_enough[np.argsort(-frequency[rare_enough], kind="stable")]
    kept = np.sort(by_frequency[:N_WORDS])

    counts: dict[str, np.ndarray] = {}
    features: dict[str, np.ndarray] = {}
    labels: dict[str, np.ndarray] = {}
    for prefix, part, group, size in (
        ("tr", train, train_group, train_size),
        ("te", test, test_group, test_size),
    ):
        part = sparse.csr_matrix(part[:, kept])
        filled = np.diff(part.indptr) > 0
        part = sparse.csr_matrix(part[filled])
        counts |= sparse_arrays(part, f"X{prefix}")
        # The authors' D counts the documents before empty ones are dropped.
        features |= sparse_arrays(tf_idf(part, n_documents=size), f"X{prefix}")
        labels[f"y{prefix}"] = group[filled]

    target = Path(data_home)
    target.mkdir(parents=True, exist_ok=True)
    for name, arrays in (("counts", counts | labels), ("tfidf", features | labels)):
        np.savez_compressed(
            target / FILENAME.format(features=name), allow_pickle=False, vocab=words[kept], **arrays
        )


def _read_groups(
    folder: Path, part: str, n_words: int
) -> tuple[sparse.csr_matrix, np.ndarray, int]:
    """Read the documents of the three groups, their group (1, 2, 3) and their number."""
    document, word, count = np.loadtxt(folder / f"{part}.data", dtype=np.int64, unpack=True)
    label = np.loadtxt(folder / f"{part}.label", dtype=np.int64)
    counts = sparse.csr_matrix(
        (count.astype(np.float64), (document - 1, word - 1)), shape=(len(label), n_words)
    )
    number = {archive_label: 1 + index for index, archive_label in enumerate(GROUPS.values())}
    group = np.array([number.get(archive_label, 0) for archive_label in label])
    chosen = group > 0
    return sparse.csr_matrix(counts[chosen]), group[chosen], int(chosen.sum())


def _unit_rows(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    """Scale every row to unit length."""
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    return sparse.csr_matrix(sparse.diags(1.0 / length) @ rows)
