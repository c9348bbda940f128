"""Corpus of the docstrings of installed Python packages."""

import hashlib
import importlib
import inspect
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from types import ModuleType

import numpy as np

from pymc_geodesic.datasets.blocks import optional_module
from pymc_geodesic.datasets.corpora import Corpus, unit_tf_idf

WORD = "[a-z]{3,}"
"""Words of three Latin letters or more; digits, underscores and punctuation separate words."""


def docstring_corpus(
    packages: Sequence[str] = ("numpy", "scipy"),
    *,
    min_share: float = 0.0036,
    max_share: float = 0.1177,
    min_words: int = 20,
    test_fraction: float = 0.2,
    features: str = "tfidf",
) -> Corpus:
    """Collect the docstrings of installed packages as tf-idf unit vectors, or counts of words.

    A document is the docstring of a public module, function, class or method, without its code
    examples; equal texts count once. Every public module of the packages is imported. The
    vocabulary holds the words whose share of training documents is within bounds; the default
    bounds are those of the SGGMC paper's appendix F.3. Training and test documents are divided by
    a hash of their names, and so do not change from run to run. The weights of the test documents
    use the document frequencies of the training documents.

    Parameters
    ----------
    packages : sequence of str
        Names of importable packages.
    min_share, max_share : float
        Bounds on the document frequencies, as shares of the training documents.
    min_words : int
        Documents with fewer words of the vocabulary are dropped.
    test_fraction : float
        Share of documents that are held out.
    features : {"tfidf", "counts"}
        Unit vectors of tf-idf features, or raw term frequencies.

    Returns
    -------
    Corpus
        The titles are the qualified names.

    Raises
    ------
    ImportError
        If a package or scikit-learn is not installed:
        ``pip install 'pymc_geodesic[examples]'``.
    ValueError
        If the shares are not in order, no document or no word is left, or `features` is neither
        of the two.

    Examples
    --------
    >>> from pymc_geodesic.datasets import docstring_corpus
    >>> corpus = docstring_corpus(("json",), min_share=0.2, max_share=0.5, min_words=3)
    >>> corpus.train.shape[1] == len(corpus.vocabulary)
    True
    """
    if features not in ("tfidf", "counts"):
        raise ValueError(f"`features` must be 'tfidf' or 'counts', not {features!r}.")
    if not 0 <= min_share < max_share < 1:
        raise ValueError(
            "The bounds of document frequencies must satisfy 0 <= `min_share` < `max_share` < 1, "
            f"got {min_share} and {max_share}."
        )
    if not 0 < test_fraction < 1:
        raise ValueError(f"`test_fraction` must be between 0 and 1, got {test_fraction}.")
    text = optional_module("sklearn.feature_extraction.text", "examples", "docstring_corpus")
    documents = _texts(packages)
    titles = sorted(documents, key=lambda title: hashlib.sha256(title.encode()).digest())
    n_test = round(test_fraction * len(titles))
    test_titles, train_titles = sorted(titles[:n_test]), sorted(titles[n_test:])
    vectorizer = text.CountVectorizer(
        token_pattern=WORD, min_df=float(min_share), max_df=float(max_share), dtype=np.float64
    )
    try:
        train = vectorizer.fit_transform([documents[title] for title in train_titles])
        test = vectorizer.transform([documents[title] for title in test_titles])
    except ValueError as error:  # of scikit-learn, if no word or no document is left
        raise ValueError(
            f"The {len(titles)} docstrings of {', '.join(packages)} are too few for this "
            "vocabulary. Widen the bounds `min_share` and `max_share` or name more packages."
        ) from error
    train.sort_indices()
    frequency = train.getnnz(axis=0)
    parts = []
    for counts, names in ((train, train_titles), (test, test_titles)):
        kept = np.flatnonzero(np.asarray(counts.sum(axis=1)).ravel() >= min_words)
        rows = counts[kept]
        if features == "tfidf":
            rows = unit_tf_idf(rows, frequency, len(train_titles))
        parts.append((rows, np.array(names)[kept]))
    return Corpus(
        train=parts[0][0],
        test=parts[1][0],
        vocabulary=vectorizer.get_feature_names_out().astype(str),
        train_titles=parts[0][1],
        test_titles=parts[1][1],
    )


def _texts(packages: Sequence[str]) -> dict[str, str]:
    """Collect the distinct docstrings of some packages by qualified name."""
    texts: dict[str, str] = {}
    seen: set[str] = set()
    for package in packages:
        for title, docstring in _documented(package):
            prose = _prose(docstring)
            if prose and prose not in seen:
                seen.add(prose)
                texts[title] = prose
    return texts


def _documented(package: str) -> Iterator[tuple[str, str]]:
    """Yield names and docstrings of the public modules of a package and of their members."""
    queue = deque([importlib.import_module(package)])
    visited = {package}
    while queue:
        module = queue.popleft()
        yield module.__name__, inspect.getdoc(module) or ""
        for name, value in _public_members(module):
            if isinstance(value, ModuleType):
                inside = value.__name__.startswith(f"{package}.")
                if inside and "._" not in value.__name__ and value.__name__ not in visited:
                    visited.add(value.__name__)
                    queue.append(value)
            elif callable(value) and _belongs(value, package):
                yield f"{module.__name__}.{name}", inspect.getdoc(value) or ""
                if isinstance(value, type):
                    for method, function in _public_members(value):
                        if callable(function):
                            text = inspect.getdoc(function) or ""
                            yield f"{module.__name__}.{name}.{method}", text


def _public_members(holder: object) -> Iterator[tuple[str, object]]:
    """Yield the public attributes of a module or class that can be read without an error."""
    with warnings.catch_warnings():
        # Reading a deprecated attribute warns; its docstring is a document like others.
        warnings.simplefilter("ignore")
        for name in sorted(getattr(holder, "__all__", None) or dir(holder)):
            if name.startswith("_"):
                continue
            try:
                value = getattr(holder, name)
            except Exception:  # an attribute that cannot be read is not a document
                continue
            yield name, value


def _belongs(value: object, package: str) -> bool:
    """Return whether an object is defined in a package rather than imported into it."""
    home = getattr(value, "__module__", None) or type(value).__module__
    return home == package or home.startswith(f"{package}.")


def _prose(docstring: str) -> str:
    """Remove the lines of code examples and their output."""
    lines = []
    in_example = False
    for line in docstring.splitlines():
        if line.lstrip().startswith(">>>"):
            in_example = True
        elif not line.strip():
            in_example = False
        if not in_example:
            lines.append(line)
    return "\n".join(lines)
