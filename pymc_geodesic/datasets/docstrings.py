"""Real text that every installation has: the docstrings of scientific Python."""

import contextlib
import hashlib
import importlib
import importlib.metadata
import inspect
import json
import os
import sys
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

from pymc_geodesic.datasets.corpus import Corpus
from pymc_geodesic.datasets.text import count_words, document_frequency, tf_idf, tokenize

# Raise when the collected texts change for the same packages, so that old caches are left aside.
CACHE_VERSION = 1


def docstring_corpus(
    packages: Sequence[str] = ("numpy", "scipy"),
    *,
    min_share: float = 0.0036,
    max_share: float = 0.1177,
    min_words: int = 20,
    test_fraction: float = 0.2,
    features: str = "tfidf",
    cache: bool = True,
) -> Corpus:
    """Collect the docstrings of installed packages as tf-idf unit vectors, or counts of words.

    A document is the docstring of a public module, function, class or method, without its code
    examples; equal texts count once. The vocabulary holds the words whose share of training
    documents lies in a band; the default band is the one of the SGGMC paper's appendix F.3.
    The split depends on the names of the documents alone, so it stays the same from run to run.
    The weights of the test documents use the document frequencies of the training documents.

    Parameters
    ----------
    packages : sequence of str
        Names of importable packages.
    min_share, max_share : float
        Band of document frequencies, as shares of the training documents.
    min_words : int
        Documents with fewer words of the vocabulary are left out.
    test_fraction : float
        Share of documents that are held out.
    features : {"tfidf", "counts"}
        Unit vectors of tf-idf features, or raw term frequencies.
    cache : bool
        Keep the texts in the user's cache folder (``XDG_CACHE_HOME`` or ``~/.cache``), one file
        per combination of package versions. Collecting them imports every public module of the
        packages, which takes some seconds.

    Returns
    -------
    Corpus
        The titles are the qualified names.

    Raises
    ------
    ModuleNotFoundError
        If a package is not installed.
    ValueError
        If the shares are not in order, no document or no word is left, or `features` is neither
        of the two.

    Examples
    --------
    >>> from pymc_geodesic.datasets import docstring_corpus
    >>> corpus = docstring_corpus(("json",), min_share=0.2, max_share=0.5, min_words=3, cache=False)
    >>> corpus.train.shape[1] == len(corpus.vocabulary)
    True
    """
    if features not in ("tfidf", "counts"):
        raise ValueError(f"`features` must be 'tfidf' or 'counts', not {features!r}.")
    if not 0 <= min_share < max_share < 1:
        raise ValueError(
            "The band of document frequencies needs 0 <= `min_share` < `max_share` < 1, got "
            f"{min_share} and {max_share}."
        )
    if not 0 < test_fraction < 1:
        raise ValueError(f"`test_fraction` must lie between 0 and 1, got {test_fraction}.")
    texts = _cached_texts(packages) if cache else _texts(packages)
    titles = sorted(texts, key=lambda title: hashlib.sha256(title.encode()).digest())
    n_test = round(test_fraction * len(titles))
    test_titles, train_titles = sorted(titles[:n_test]), sorted(titles[n_test:])
    train_words = [tokenize(texts[title]) for title in train_titles]
    test_words = [tokenize(texts[title]) for title in test_titles]

    share = Counter(word for words in train_words for word in set(words))
    vocabulary = sorted(
        word
        for word, number in share.items()
        if min_share * len(train_words) <= number <= max_share * len(train_words)
    )
    if not vocabulary or not test_words:
        raise ValueError(
            f"The docstrings of {', '.join(packages)} are too few for this vocabulary: "
            f"{len(titles)} documents and {len(vocabulary)} words are left. Widen the band "
            "`min_share` to `max_share` or name more packages."
        )
    train, test = count_words(train_words, vocabulary), count_words(test_words, vocabulary)
    train_kept = np.flatnonzero(np.asarray(train.sum(axis=1)).ravel() >= min_words)
    test_kept = np.flatnonzero(np.asarray(test.sum(axis=1)).ravel() >= min_words)
    kept = train[train_kept], test[test_kept]
    if features == "tfidf":
        frequency, n_documents = document_frequency(train), len(train_words)
        kept = (
            tf_idf(kept[0], frequency=frequency, n_documents=n_documents),
            tf_idf(kept[1], frequency=frequency, n_documents=n_documents),
        )
    return Corpus(
        train=kept[0],
        test=kept[1],
        vocabulary=np.array(vocabulary),
        train_titles=np.array(train_titles)[train_kept],
        test_titles=np.array(test_titles)[test_kept],
    )


def _cached_texts(packages: Sequence[str]) -> dict[str, str]:
    """Read the texts from the cache, or collect and store them."""
    key = json.dumps([CACHE_VERSION, *((name, _version(name)) for name in packages)])
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = base / "pymc_geodesic" / f"docstrings-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    texts = _texts(packages)
    # Without a writable cache folder the next call collects again. The file appears at once
    # and whole, so that a second process never reads half of it.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(texts), encoding="utf-8")
        part.replace(path.with_suffix(".json"))
    return texts


def _version(package: str) -> str:
    """Return the version of a package, or of Python for its standard library."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ".".join(map(str, sys.version_info[:3]))


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
    """Walk the public modules of a package and yield names and docstrings."""
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
        # Reading a deprecated attribute warns; its docstring is as good a text as any.
        warnings.simplefilter("ignore")
        for name in sorted(getattr(holder, "__all__", None) or dir(holder)):
            if name.startswith("_"):
                continue
            try:
                value = getattr(holder, name)
            except Exception:  # an attribute that cannot be read is no document, whatever it raises
                continue
            yield name, value


def _belongs(value: object, package: str) -> bool:
    """Tell whether an object was defined in a package rather than imported into it."""
    home = getattr(value, "__module__", None) or type(value).__module__
    return home == package or home.startswith(f"{package}.")


def _prose(docstring: str) -> str:
    """Drop the lines of code examples and their output."""
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
