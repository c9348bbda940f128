"""Text corpora as sparse matrices of word counts and tf-idf features."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from pymc_geodesic.datasets.folder import read_arrays, sparse_arrays, sparse_rows

GROUPS = {"rec.sport.baseball": 10, "sci.space": 15, "alt.atheism": 1}
"""Labels in the archive of the groups that the authors of the SGGMC paper number 1, 2, 3."""

N_WORDS = 5000
"""Size of the vocabulary of 20News-different."""

MAX_DOCUMENT_FREQUENCY = 0.1177
"""Maximum share of documents with a word, from appendix F.3 of the SGGMC paper.

Its lower bound, 0.36 % of the 2,774 documents, is that of the 5,000 most frequent words.
"""

NEWSGROUPS_FILE = "20news_different_{features}.npz"
NEWSGROUPS = (
    "'20News-different' is rec.sport.baseball, sci.space and alt.atheism out of 20 Newsgroups, "
    "as prepared by the authors of the SGGMC paper "
    "(http://ml.cs.tsinghua.edu.cn/~changliu/sggmcmc-sam/). To build it, unpack the Matlab/Octave "
    "archive '20news-bydate-matlab.tgz' and the word list 'vocabulary.txt' of "
    "http://qwone.com/~jason/20Newsgroups/ into one folder and call "
    "`pymc_geodesic.datasets.build_20news_different(that_folder, data_home)`."
)

WIKIPEDIA_FILE = "wiki_bow_7702.npz"
WIKIPEDIA = (
    "It holds counts of words of English Wikipedia pages over the list of 7,702 words that "
    "Patterson and Teh (2013) took from Hoffman, Blei and Bach (2010): CSR matrices of shape "
    "(pages, words) as 'X_data', 'X_indices', 'X_indptr', 'X_shape' and 'H_data', 'H_indices', "
    "'H_indptr', where X has all words of a page that are in the list and H every tenth of them, "
    "and the words as 'vocab'. No ready-made file is published: count the words of pages of a "
    "dump (https://dumps.wikimedia.org) with scikit-learn's `CountVectorizer(vocabulary=...)`."
)


@dataclass(frozen=True)
class Corpus:
    """Training and test documents over one vocabulary.

    Parameters
    ----------
    train, test : scipy.sparse.csr_matrix of float64, shapes (D_train, V) and (D_test, V)
        One row per document. For tf-idf features every row has unit length;
        ``train.toarray()`` gives the dense rows that a model takes.
    vocabulary : numpy.ndarray of str, shape (V,)
        The word of each column.
    train_titles, test_titles : numpy.ndarray of str, shapes (D_train,) and (D_test,)
        Name of each document, or of the group it comes from.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from pymc_geodesic.datasets import Corpus
    >>> rows = sparse.csr_matrix(np.eye(2))
    >>> corpus = Corpus(rows, rows, np.array(["sun", "moon"]), np.array(["a", "b"]),
    ...                 np.array(["c", "d"]))
    >>> corpus
    Corpus(2 train and 2 test documents, 2 words)
    """

    train: sparse.csr_matrix
    test: sparse.csr_matrix
    vocabulary: np.ndarray
    train_titles: np.ndarray
    test_titles: np.ndarray

    def __repr__(self) -> str:
        return (
            f"Corpus({self.train.shape[0]} train and {self.test.shape[0]} test documents, "
            f"{len(self.vocabulary)} words)"
        )


@dataclass(frozen=True)
class CompletionCorpus:
    """Training documents, and test documents in two parts for document completion.

    Parameters
    ----------
    train : scipy.sparse.csr_matrix of float64, shape (D, V)
        Counts of words.
    observed, held_out : scipy.sparse.csr_matrix of float64, shape (D_test, V)
        Counts of the observed words of test documents, and of the held-out words to predict.
    vocabulary : numpy.ndarray of str, shape (V,)

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from pymc_geodesic.datasets import CompletionCorpus
    >>> rows = sparse.csr_matrix(np.eye(2))
    >>> CompletionCorpus(rows, rows, rows, np.array(["sun", "moon"]))
    CompletionCorpus(2 train and 2 test documents, 2 words)
    """

    train: sparse.csr_matrix
    observed: sparse.csr_matrix
    held_out: sparse.csr_matrix
    vocabulary: np.ndarray

    def __repr__(self) -> str:
        return (
            f"CompletionCorpus({self.train.shape[0]} train and {self.observed.shape[0]} test "
            f"documents, {len(self.vocabulary)} words)"
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
        If the file is missing; the message states where the data come from and how to build it.
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
    filename = NEWSGROUPS_FILE.format(features=features)
    arrays = read_arrays(filename, data_home=data_home, origin=NEWSGROUPS)
    train, test = sparse_rows(arrays, "Xtr"), sparse_rows(arrays, "Xte")
    if features == "tfidf":
        # The file is in single precision; models check unit length in double precision.
        train, test = unit_rows(train), unit_rows(test)
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
                f"There is no file {name!r} in the folder {os.fspath(source)!r}. {NEWSGROUPS}"
            )
    words = np.array((folder / "vocabulary.txt").read_text().split())
    train, train_group, train_size = _read_groups(folder, "train", len(words))
    test, test_group, test_size = _read_groups(folder, "test", len(words))

    frequency = sparse.vstack([train, test]).getnnz(axis=0)
    rare_enough = np.flatnonzero(frequency <= MAX_DOCUMENT_FREQUENCY * (train_size + test_size))
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
        features |= sparse_arrays(unit_tf_idf(part, part.getnnz(axis=0), size), f"X{prefix}")
        labels[f"y{prefix}"] = group[filled]

    target = Path(data_home)
    target.mkdir(parents=True, exist_ok=True)
    for name, arrays in (("counts", counts | labels), ("tfidf", features | labels)):
        path = target / NEWSGROUPS_FILE.format(features=name)
        np.savez_compressed(path, allow_pickle=False, vocab=words[kept], **arrays)


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


def unit_tf_idf(
    counts: sparse.csr_matrix, frequency: np.ndarray, n_documents: int
) -> sparse.csr_matrix:
    r"""Return unit vectors of the tf-idf features of appendix F.3 of the SGGMC paper.

    .. math:: x_{dv} \propto \mathrm{tf}(d, v) \log \frac{D}{1 + \mathrm{df}(v)},
              \qquad \lVert x_d \rVert = 1,

    with :math:`\mathrm{df}` the frequency and D the number of documents. scikit-learn's
    `TfidfTransformer` has no option for these weights: with either value of `smooth_idf` it adds
    1 to a logarithm, so that words in all documents keep a weight.
    """
    return unit_rows(counts @ sparse.diags(np.log(n_documents / (1.0 + frequency))))


def unit_rows(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    """Scale every row to unit length."""
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    return sparse.csr_matrix(sparse.diags(1.0 / length) @ rows)


def load_wikipedia(
    data_home: str | os.PathLike | None = None,
    *,
    n_test: int = 1000,
    least_words: int = 20,
    random_seed: int = 0,
) -> CompletionCorpus:
    """Load counts of words of Wikipedia pages, in random order.

    Parameters
    ----------
    data_home : path-like, optional
        Folder that holds ``wiki_bow_7702.npz``; by default the one named by the environment
        variable ``PYMC_GEODESIC_DATA``.
    n_test : int
        Number of test pages. Each has at least one held-out word.
    least_words : int
        Minimum number of words of the list in a page. Half of the pages are stubs.
    random_seed : int
        Seed of the order of the pages, and so of the choice of the test pages.

    Returns
    -------
    CompletionCorpus
        The training pages with all their words; of every test page one word in ten is held out.

    Raises
    ------
    FileNotFoundError
        If the file is missing; the message states what it must contain.
    ValueError
        If there are not that many pages, or the file holds out words that a page does not have.

    References
    ----------
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex, section 5.2.
    Hoffman, Blei, Bach (2010), Online Learning for Latent Dirichlet Allocation.

    Examples
    --------
    >>> from pymc_geodesic.datasets import load_wikipedia
    >>> load_wikipedia("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: There is no file 'wiki_bow_7702.npz' in the data folder 'nowhere'. ...
    """
    arrays = read_arrays(WIKIPEDIA_FILE, data_home=data_home, origin=WIKIPEDIA)
    arrays["H_shape"] = arrays["X_shape"]
    every, held_out = sparse_rows(arrays, "X"), sparse_rows(arrays, "H")
    lengths = np.asarray(every.sum(axis=1)).ravel()
    n_held_out = np.asarray(held_out.sum(axis=1)).ravel()
    pages = np.flatnonzero((lengths >= least_words) & (n_held_out > 0))
    if not 0 <= n_test < len(pages):
        raise ValueError(
            f"`n_test` must be between 0 and {len(pages) - 1}: there are {len(pages)} pages of "
            f"{least_words} words or more."
        )
    pages = np.random.default_rng(random_seed).permutation(pages)
    test, train = pages[:n_test], pages[n_test:]
    observed = sparse.csr_matrix(every[test] - held_out[test])
    if observed.nnz and observed.data.min() < 0:
        raise ValueError(f"{WIKIPEDIA_FILE!r} holds out words that its pages do not have.")
    observed.eliminate_zeros()
    return CompletionCorpus(
        train=sparse.csr_matrix(every[train]),
        observed=observed,
        held_out=sparse.csr_matrix(held_out[test]),
        vocabulary=arrays["vocab"],
    )


def hold_out_words(
    counts: Any, share: float = 0.5, *, random_seed: int | np.random.Generator | None = None
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Divide the words of every document at random into observed and held-out words.

    Input of the document-completion perplexity of topic models.

    Parameters
    ----------
    counts : array_like or scipy.sparse matrix, shape (D, V)
        Number of occurrences of each word in each document.
    share : float
        Probability that a word is held out.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    observed, held_out : scipy.sparse.csr_matrix of float64, shape (D, V)
        Counts that add up to ``counts``.

    Raises
    ------
    ValueError
        If counts are not non-negative integers, or `share` is not between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import hold_out_words
    >>> counts = np.array([[6, 0, 2], [0, 1, 4]])
    >>> observed, held_out = hold_out_words(counts, random_seed=1)
    >>> bool((observed.toarray() + held_out.toarray() == counts).all())
    True
    """
    rows = sparse.csr_matrix(counts, dtype=np.float64)
    if np.any(~(rows.data >= 0) | (rows.data != np.floor(rows.data))):
        raise ValueError("`counts` must contain non-negative integers.")
    if not 0 <= share <= 1:
        raise ValueError(f"`share` must be between 0 and 1, got {share}.")
    taken = np.random.default_rng(random_seed).binomial(rows.data.astype(np.int64), share)
    held_out = sparse.csr_matrix((taken.astype(np.float64), rows.indices, rows.indptr), rows.shape)
    observed = sparse.csr_matrix((rows.data - taken, rows.indices, rows.indptr), rows.shape)
    parts = observed.copy(), held_out.copy()
    for part in parts:
        part.eliminate_zeros()
    return parts
