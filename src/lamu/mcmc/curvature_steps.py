"""The step size of a stochastic-gradient sampler that is given none: from the largest curvature of the mean loss."""

# On a quadratic mean loss with curvature h, a step of size ε makes the variance too large by a share of \(\epsilon h /
# (2(2 - \alpha))\), α being the friction, and the noise of the batches adds to that. For a well-specified model the
# gradient of one row has the variance h, so that a batch of B has \(h/B\); an epoch's batches are shuffled, so that
# their noise sums to zero over the \(n = N/B\) steps of it, and what remains is about \(\tfrac16 (\epsilon h\, n /
# \alpha)^2 / T\). Both errors are largest in the direction of the largest curvature \(h_{\max}\), and both are kept
# small there by
#
# \[ \frac1\epsilon = h_{\max} \Big( \frac{1}{c\,(2 - \alpha)} + \frac{N/B - 1}{c' \alpha \sqrt T} \Big). \]
#
# The time that a chain needs is that of the smallest curvature, \(\alpha / (\epsilon h_{\min})\) steps: what a run of a
# given length is right about is decided by the condition number \(h_{\max}/h_{\min}\) and the number of batches.

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.objective import Objective
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["CurvatureStepSize"]

_REST = 32  # steps at most, in which the chain waits for a first estimate
_PLAIN = 20.0  # steps after which the average begins to be one
_FORGETS = 0.05  # the least rate of the average
_FALLING = 10.0  # in how many parts of the warm-up an estimate that is too large is forgotten
_FALLS = (0.5, 0.9)  # the shares of the warm-up between which the step size falls to its last value


@record
class CurvatureStepSize:
    r"""A step size that follows the largest curvature, learned in the warm-up by power iteration on its batches.

    With H the Hessian of a batch's mean loss where the chain is, and G the preconditioner, each step of the warm-up
    takes one product

    \[ u \leftarrow (1 - \rho_t)\, u + \rho_t\, G^{1/2} H G^{1/2} \frac{u}{\lVert u \rVert}, \qquad
       h_{\max} \approx \lVert u \rVert, \]

    whose average over batches is nearer to the product with the Hessian of all the data. The chain rests for the first
    quarter of the warm-up, and for no more than 32 steps, until there is an estimate. Until half of the warm-up it then
    takes the steps of a noiseless gradient, to find where the posterior is; they fall geometrically to the ε of the
    module's equation, and that is held, with the estimate, while draws are kept. The estimate rises at once and falls
    over a tenth of the warm-up: a curvature that varies along the chain counts with its larger values.

    A batch with fewer rows than others (an epoch's last) takes a step that is shorter in proportion: with the whole
    one, the gradient of its few rows would count as much as that of all the rows of another, and heat the chain. Where
    a loss has no curvature at all, like the logarithm of a Laplace density, nothing can be learned and the chain rests.

    Attributes:
        bias: c, about twice the share by which a variance may be too large without the noise of batches.
        noise: c', which bounds the share that is due to that noise by about \(c'^2/6\).

    Raises:
        ValueError: for a number that is not positive.

    Source: Welling & Teh (2011) for both errors; LeCun, Simard & Pearlmutter (1993) for power iteration on batches.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.mcmc.curvature_steps import CurvatureStepSize
        >>> memory = {"product": {"w": jnp.zeros(2)}, "largest": jnp.array(4.0), "rows": jnp.array(50.0)}
        >>> whole, half = (CurvatureStepSize().last(memory, rows, 1.0, 1.0) for rows in (50.0, 100.0))
        >>> round(float(whole), 4), round(float(half), 4)
        (0.025, 0.0208)
    """

    bias: Number = 0.1
    noise: Number = 0.5

    def __post_init__(self) -> None:
        for name in ("bias", "noise"):
            value = getattr(self, name)
            if isinstance(value, int | float) and not 0 < value < math.inf:
                raise ValueError(f"{name}={value!r} leaves no step size; give a positive number")

    def init(self, key: RandomKey, position: Params) -> Any:
        """Returns a random direction of length one, and no estimate: infinite curvature, for which a chain rests."""
        direction = tree.normal(key, position)
        length = _norm(direction)
        return {
            "product": tree.scale(direction, 1.0 / length),
            "largest": jnp.full_like(length, jnp.inf),
            "rows": jnp.zeros_like(length),
        }

    def learn(
        self,
        memory: Any,
        product: Callable[[Params], Params],
        rows: Array,
        root: Params | None,
        count: Any,
        warmup: int,
    ) -> Any:
        """Returns the memory after another product with the Hessian of a batch.

        Args:
            memory: the memory so far.
            product: the Hessian of the batch's mean loss times a vector.
            rows: the number of rows in the batch.
            root: the diagonal of the root of the preconditioner; None for the identity.
            count: the number of the step.
            warmup: how many steps the warm-up has.
        """
        scaled = lambda v: v if root is None else jax.tree.map(jnp.multiply, v, root)
        old, length = memory["product"], _norm(memory["product"])
        direction = tree.scale(old, 1.0 / jnp.maximum(length, jnp.finfo(length.dtype).tiny))
        image = scaled(product(scaled(direction)))
        t = jnp.asarray(count, length.dtype)
        rate = jnp.maximum(1.0 / (1.0 + t / _PLAIN), _FORGETS)
        new = tree.add(tree.scale(old, 1.0 - rate), image, rate)
        size = _norm(new)
        # Where a batch has no curvature at all, or none that is a number, the last estimate stands.
        usable = jnp.isfinite(size) & (_norm(image) > 0)
        known, slow = memory["largest"], min(_FALLING / warmup, 1.0)
        largest = jnp.where(jnp.isfinite(known), jnp.maximum(size, (1.0 - slow) * known + slow * size), size)
        return {
            "product": jax.tree.map(lambda a, b: jnp.where(usable, a, b), new, old),
            "largest": jnp.where(usable & (t + 1 >= min(_REST, math.ceil(warmup / 4))), largest, known),
            "rows": jnp.maximum(memory["rows"], rows.astype(length.dtype)),
        }

    def size(self, memory: Any, objective: Objective, friction: Any, rows: Array, count: Any, warmup: int) -> Array:
        """Returns ε at this step.

        Args:
            memory: what was learned.
            objective: the loss, for N and T.
            friction: α.
            rows: the number of rows in the batch.
            count: the number of the step.
            warmup: how many steps the warm-up has.
        """
        # The power of the likelihood is in the curvature; what it does to the noise of batches is a temperature's work.
        temperature = objective.temperature / objective.likelihood_power
        last = self.last(memory, objective.data_size, temperature, friction)
        first = self.bias * (2.0 - friction) / memory["largest"]
        begin, end = (share * warmup for share in _FALLS)
        done = jnp.clip((jnp.asarray(count, last.dtype) - begin) / max(end - begin, 1.0), 0.0, 1.0)
        share = jnp.minimum(rows.astype(last.dtype) / jnp.maximum(memory["rows"], 1.0), 1.0)
        now = share * first * (last / jnp.where(first > 0, first, 1.0)) ** done
        return now.astype(jnp.result_type(float))

    def last(self, memory: Any, data_size: Any, temperature: Any, friction: Any) -> Array:
        r"""Returns ε of the draws.

        Args:
            memory: what was learned.
            data_size: N.
            temperature: T, over the power of the likelihood; at zero, where there is no spread to keep, as at one.
            friction: α.
        """
        largest = memory["largest"]
        T = jnp.asarray(temperature, largest.dtype)
        T = jnp.where(T > 0, T, 1.0)
        batches = jnp.asarray(data_size, largest.dtype) / jnp.maximum(memory["rows"], 1.0)
        noise = jnp.maximum(batches - 1.0, 0.0) / (self.noise * friction * jnp.sqrt(T))
        return 1.0 / (largest * (1.0 / (self.bias * (2.0 - friction)) + noise))


def _norm(vector: Params) -> Array:
    return jnp.sqrt(tree.dot(vector, vector))
