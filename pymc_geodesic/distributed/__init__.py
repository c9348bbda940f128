"""Sampling with rows in shards on a Dask cluster, and merging of draws from separate shards.

`sample` needs dask.distributed, which the extra ``pymc_geodesic[distributed]`` installs; it is
imported when `sample` is called.
"""

from pymc_geodesic.distributed.merging import merge_directions, merge_proportions
from pymc_geodesic.distributed.sampling import sample

__all__ = ["merge_directions", "merge_proportions", "sample"]
