"""The average belief of an encoder at learned inputs as the prior of a latent."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.dtype_policy import lenient
from lamu.graphs.expressions import Environment
from lamu.graphs.learned_prior import LearnedPrior
from lamu.latent.locals import Amortised, Refined
from lamu.networks.interface import outputs
from lamu.record import record
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["VampPrior"]


@record
@sized
class VampPrior(LearnedPrior):
    r"""\(p(z) = \frac1K \sum_k q(z \mid u_k)\), the encoder's own beliefs at pseudo-inputs \(u_k\) that are learned.

    The prior that maximises the bound is the average belief of all rows; this is that average over K inputs. It is
    multimodal where the beliefs are, and has the encoder's weights in it, which learn from both sides. The paper keeps
    pseudo-inputs between zero and one; here they are any numbers.

    Attributes:
        latents: D.
        encoder: the `Amortised` that is the local of the same latent.
        inputs: the first pseudo-inputs, `[K, ...]` of the shape of a row's data, for instance some rows.

    Raises:
        TypeError: for an encoder that is no `Amortised`, or reads other latents; for a graph whose local of the latent
            has another network or family.
        ValueError: for no latent or no pseudo-input.

    Source: Tomczak & Welling (2018), equations 9 and 10.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu import graphs, latent
        >>> from lamu.networks import MLP
        >>> encoder = latent.Amortised(MLP((8,)))
        >>> def vae(m):
        ...     decode = m.network("decode", MLP((8,)), outputs=5)
        ...     with m.rows():
        ...         z = m.sample("z", latent.VampPrior(2, encoder, jnp.eye(5)[:3]))
        ...         m.sample("y", lamu.likelihoods.Bernoulli()(decode(z)))
        >>> graph = lamu.Graph(vae, local={"z": encoder})
        >>> fit = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=3)
        >>> fit.posterior.mean["network"]["z.prior"]["inputs"].shape
        (3, 5)
    """

    encoder: Any
    inputs: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.encoder, Amortised):
            raise TypeError(f"the encoder is {self.encoder!r}; give the Amortised that is the local of this latent")
        if self.encoder.given:
            raise TypeError(
                f"the encoder reads {', '.join(self.encoder.given)} beside the data, and pseudo-inputs are data alone; "
                "use MixturePrior for a latent below others"
            )
        shape = jnp.shape(self.inputs)
        if len(shape) < 2 or not shape[0]:
            raise ValueError(f"the pseudo-inputs have the shape {shape}; give [K, ...], for instance some rows of y")

    def require(self, local: Any) -> None:
        """Raises a TypeError unless the latent's local has this encoder's network and family: its weights are used."""
        encoder = local.local if isinstance(local, Refined) else local
        if local is None:
            return
        own = (self.encoder.network, self.encoder.family)
        if not isinstance(encoder, Amortised) or not _same((encoder.network, encoder.family), own):
            raise TypeError(
                f"the prior of {self.name!r} is an average of beliefs of {self.encoder!r}, and its local is "
                f"{local!r}; give both the same encoder"
            )

    def first(self, key: RandomKey, dtype: Any) -> Params:
        """Returns the pseudo-inputs to start from."""
        return {"inputs": jnp.asarray(self.inputs, dtype)}

    def log_prob(self, weights: Params, z: Array, at: Environment) -> Array:
        """Returns the log of the average over the pseudo-inputs."""
        log_parts = jax.vmap(lambda outputs: self._belief(outputs, at).log_prob(z))(self._encoded(weights, at))
        return jax.nn.logsumexp(log_parts) - jnp.log(jnp.asarray(log_parts.size, log_parts.dtype))

    def draw(self, key: RandomKey, weights: Params, at: Environment) -> Array:
        """Returns a draw of the belief at one pseudo-input."""
        of_input, of_belief = jax.random.split(key)
        outputs = self._encoded(weights, at)
        return self._belief(outputs[jax.random.randint(of_input, (), 0, len(outputs))], at).sample(of_belief)

    def _encoded(self, weights: Params, at: Environment) -> Array:
        own = at.statistics["local"][self.name]["network"]
        with lenient():
            return outputs(self.encoder.network, own, {}, weights["inputs"], None, False, None)[0]

    def _belief(self, outputs: Array, at: Environment) -> Any:
        return self.encoder.family.belief(at.statistics["local"][self.name]["family"], outputs)


def _same(one: Any, other: Any) -> bool:
    """Whether two records have one structure and equal arrays."""
    leaves, structure = jax.tree.flatten(one)
    others, of_other = jax.tree.flatten(other)
    return structure == of_other and all(np.array_equal(a, b) for a, b in zip(leaves, others, strict=True))
