"""Chains over rows that stay on many machines, and draws of shards put together afterwards.

`sample` needs dask, which the extra ``pymc_geodesic[distributed]`` brings; it is imported when it
is used. The functions that merge draws need nothing.
"""

from pymc_geodesic.distributed.merging import merge_directions, merge_proportions
from pymc_geodesic.distributed.sampling import sample

__all__ = ["merge_directions", "merge_proportions", "sample"]
