"""What a topic model must look like for its words to be assigned to topics by Gibbs sampling."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.logprob.utils import replace_rvs_by_values
from pymc.model import Model
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.counts.probed_points import probed_points
from pymc_geodesic.ops.admixture import AdmixtureLogLikelihood

__all__ = ["Proportions", "likelihood_node"]

_REMEDY = (
    "local= needs a likelihood made by sparse.admixture_log_likelihood(counts, theta, topics), as "
    "topics.lda has it, with Dirichlet priors of its own on theta and topics and no other use of "
    "them"
)


def _origin(variable: Variable) -> Variable:
    """Variable that another is a copy of."""
    while (
        variable.owner is not None
        and isinstance(variable.owner.op, Elemwise)
        and len(variable.owner.inputs) == 1
        and variable.owner.op.scalar_op.__class__.__name__ == "Identity"
    ):
        variable = variable.owner.inputs[0]
    return variable


def likelihood_node(model: Model, topics: TensorVariable, theta: TensorVariable) -> Apply:
    """Find the likelihood that connects topics and proportions, and check that nothing else does.

    Raises
    ------
    ValueError
        If there is none, or the variables occur elsewhere.
    """
    nodes = []
    for term in [*model.potentials, *model.basic_RVs]:
        if term in (topics, theta) or {topics, theta}.isdisjoint(ancestors([term])):
            continue
        node = _origin(term).owner
        if node is None or not isinstance(node.op, AdmixtureLogLikelihood):
            raise ValueError(
                f"{term.name!r} depends on {topics.name!r} or {theta.name!r} in a way that Gibbs "
                f"sampling of topics of words does not know. {_REMEDY}"
            )
        nodes.append(node)
    if len(nodes) != 1:
        raise ValueError(
            f"{len(nodes)} likelihoods connect {topics.name!r} and {theta.name!r}. {_REMEDY}"
        )
    by_word = nodes[0].inputs[4]
    transposed = by_word.owner is not None and isinstance(by_word.owner.op, DimShuffle)
    if nodes[0].inputs[3] is not theta or not transposed or by_word.owner.inputs[0] is not topics:
        raise ValueError(
            f"The likelihood is of other variables than {theta.name!r} and {topics.name!r}. "
            f"{_REMEDY}"
        )
    return nodes[0]


class Proportions:
    """Concentration α of the prior of the proportions, as a function of other variables.

    Parameters
    ----------
    model : pymc.Model
    theta, topics : TensorVariable

    Raises
    ------
    ValueError
        If it depends on the topics, or is not the same for all documents.
    """

    def __init__(self, model: Model, theta: TensorVariable, topics: TensorVariable) -> None:
        alpha = theta.owner.op.dist_params(theta.owner)[0]
        if topics in ancestors([alpha]):
            raise ValueError(f"the prior of {theta.name!r} must not depend on {topics.name!r}")
        graphs = [alpha] if alpha.type.ndim == 1 else [alpha[0], pt.all(pt.eq(alpha, alpha[0]))]
        graphs = replace_rvs_by_values(
            graphs, rvs_to_values=model.rvs_to_values, rvs_to_transforms=model.rvs_to_transforms
        )
        needed = set(ancestors(graphs))
        values = [value for value in model.value_vars if value in needed]
        self._names = [value.name for value in values]
        self._name = theta.name
        self._function = pytensor.function(values, graphs, mode="FAST_COMPILE")
        if len(graphs) > 1:  # where coefficients begin at zero all documents may look alike
            for point in probed_points(model, []):
                self._of_any_document(point)

    def _of_any_document(self, point: Mapping[str, np.ndarray]) -> np.ndarray:
        alpha, *same = self._function(*(point[name] for name in self._names))
        if not all(same):
            raise ValueError(
                f"the prior of {self._name!r} must be the same for all documents, but its "
                "concentration is not: sample proportions and topics with SGGMC, whose local= "
                "takes any prior, or with GMC or NUTS"
            )
        return np.asarray(alpha, dtype=float)

    def __call__(self, point: Mapping[str, np.ndarray]) -> np.ndarray:
        """Concentration at a point, shape (K,); ValueError if it is not positive, or not one."""
        alpha = self._of_any_document(point)
        if not np.all((alpha > 0.0) & np.isfinite(alpha)):
            raise ValueError(f"the proportions have a concentration that is not positive: {alpha}")
        return alpha
