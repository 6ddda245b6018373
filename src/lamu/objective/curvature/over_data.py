r"""The Gauss–Newton matrix of all the data by its products: a pass forwards and one backwards over every row."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.products import gauss_newton_product
from lamu.objective.curvature.rows import without_padding
from lamu.objective.objective import Objective
from lamu.objective.space import NetworkParameters
from lamu.record import record
from lamu.typing import Params, RandomKey

__all__ = ["OverData"]


@record
class OverData:
    r"""\(H = \frac1N \sum_i w_i p\, J_i^\top \Lambda_i J_i\) at one point, with the data that it is of."""

    objective: Objective  # the loss of a network in evaluation mode, without a state
    params: Params  # the point, all parameters
    batches: Any  # the rows, as many batches of one shape, leaves `[batches, rows, ...]`

    def matvec(self, v: Params) -> Params:
        """Returns H v."""

        def of(loss: BatchLoss, share: Any, key: RandomKey) -> Params:
            theta = self.params["network"]
            return tree.scale(gauss_newton_product(loss, theta)(v), share)

        return self._summed(of, jax.random.key(0))

    def noise(self, key: RandomKey, like: Params) -> Params:
        r"""Returns a draw from N(0, H), \(\sum_i \sqrt{r_i} J_i^\top \Lambda_i^{1/2} \varepsilon_i\)."""

        def of(loss: BatchLoss, share: Any, key: RandomKey) -> Params:
            theta = self.params["network"]
            f, pull = jax.vjp(loss.outputs, theta)
            likelihood = self.objective.model.likelihood
            root = likelihood.information_root(self.params["likelihood"], f)
            factor = self.objective.row_factor(loss.batch)
            counts = likelihood.counted(self.params["likelihood"], f, loss.batch.y, factor)
            weights = jnp.sqrt(counts * share).astype(f.dtype)
            noise = jax.random.normal(key, (root.shape[0], root.shape[2]), f.dtype)
            return pull(jnp.einsum("bkr,br->bk", root, noise) * weights[:, None])[0]

        return self._summed(of, key)

    def _summed(self, of: Any, key: RandomKey) -> Params:
        """The sum over the batches, each by its share of the rows."""
        rows = jnp.sum(self.batches.mask)

        def add(carry: tuple[Params, Any], batch: Batch) -> tuple[tuple[Params, Any], None]:
            total, number = carry
            held = jax.lax.stop_gradient(self.params["likelihood"])
            loss = without_padding(BatchLoss(self.objective, batch, {}, NetworkParameters(), held, conjugate=True))
            part = of(loss, batch.count / rows, jax.random.fold_in(key, number))
            return (tree.add(total, part), number + 1), None

        first = (tree.zeros_like(self.params["network"]), jnp.zeros((), jnp.int32))
        return jax.lax.scan(add, first, self.batches)[0][0]
