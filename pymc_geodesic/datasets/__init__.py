"""Data for examples, tests and benchmarks: loaders, generators, and text to practise on."""

from pymc_geodesic.datasets.blocks import RowBlocks, RowSlices, SparseRowSlices, row_blocks
from pymc_geodesic.datasets.completion import hold_out_words
from pymc_geodesic.datasets.corpus import Corpus
from pymc_geodesic.datasets.directional import Directional, load_directional
from pymc_geodesic.datasets.docstrings import docstring_corpus
from pymc_geodesic.datasets.household import Household, load_household
from pymc_geodesic.datasets.mixtures import make_shared_mean_mixture, make_vmf_mixture
from pymc_geodesic.datasets.newsgroups import build_20news_different, load_20news_different
from pymc_geodesic.datasets.paleomagnetic import McMurdo, load_mcmurdo
from pymc_geodesic.datasets.shuffle import shuffle_rows
from pymc_geodesic.datasets.tables import dask_blocks, parquet_blocks
from pymc_geodesic.datasets.text import count_words, document_frequency, tf_idf, tokenize
from pymc_geodesic.datasets.torsions import Torsions, build_torsions, load_torsions
from pymc_geodesic.datasets.wikipedia import CompletionCorpus, load_wikipedia

__all__ = [
    "CompletionCorpus",
    "Corpus",
    "Directional",
    "Household",
    "McMurdo",
    "RowBlocks",
    "RowSlices",
    "SparseRowSlices",
    "Torsions",
    "build_20news_different",
    "build_torsions",
    "count_words",
    "dask_blocks",
    "docstring_corpus",
    "document_frequency",
    "hold_out_words",
    "load_20news_different",
    "load_directional",
    "load_household",
    "load_mcmurdo",
    "load_torsions",
    "load_wikipedia",
    "make_shared_mean_mixture",
    "make_vmf_mixture",
    "parquet_blocks",
    "row_blocks",
    "shuffle_rows",
    "tf_idf",
    "tokenize",
]
