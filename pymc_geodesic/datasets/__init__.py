"""Row blocks of data on disk, loaders and generators of data for examples and benchmarks."""

from pymc_geodesic.datasets.blocks import RowBlocks, RowSlices, row_blocks
from pymc_geodesic.datasets.corpora import (
    CompletionCorpus,
    Corpus,
    build_20news_different,
    hold_out_words,
    load_20news_different,
    load_wikipedia,
)
from pymc_geodesic.datasets.directions import (
    Directional,
    load_directional,
    make_shared_mean_mixture,
    make_vmf_mixture,
)
from pymc_geodesic.datasets.docstrings import docstring_corpus
from pymc_geodesic.datasets.parquet import parquet_blocks
from pymc_geodesic.datasets.shuffle import shuffle_rows
from pymc_geodesic.datasets.table_blocks import TableBlocks, table_blocks

__all__ = [
    "CompletionCorpus",
    "Corpus",
    "Directional",
    "RowBlocks",
    "RowSlices",
    "TableBlocks",
    "build_20news_different",
    "docstring_corpus",
    "hold_out_words",
    "load_20news_different",
    "load_directional",
    "load_wikipedia",
    "make_shared_mean_mixture",
    "make_vmf_mixture",
    "parquet_blocks",
    "row_blocks",
    "shuffle_rows",
    "table_blocks",
]
