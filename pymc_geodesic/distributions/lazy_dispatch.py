"""Registration of Numba implementations when they are first needed.

Importing PyTensor's Numba dispatch costs half a second, so the package does not do it at import.
"""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.random.op import RandomVariable


def register_numba_dispatch() -> None:
    """Tell PyTensor's Numba backend about the Ops of the distributions; later calls are free."""
    import pymc_geodesic.distributions.numba_dispatch  # noqa: F401  # imported for its effect


class CompiledRandomVariable(RandomVariable):
    """A `RandomVariable` with a Numba implementation in `numba_dispatch`.

    The registration happens when a graph is built, or arrives by pickle in a new process.
    """

    def make_node(self, *inputs: Any) -> Apply:
        """Build the node of a draw."""
        register_numba_dispatch()
        return super().make_node(*inputs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled Op."""
        register_numba_dispatch()
        self.__dict__.update(state)
