"""Long runs: checkpoints during sampling, and continuation after an interruption."""

from pymc_geodesic.runs.reading import open_run
from pymc_geodesic.runs.resume import resume
from pymc_geodesic.runs.trace import CheckpointTrace

__all__ = ["CheckpointTrace", "open_run", "resume"]
