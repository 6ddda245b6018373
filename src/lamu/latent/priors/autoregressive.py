"""Zeros and ones that depend on those before them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.graphs.bernoulli import refuse_other_than_events
from lamu.graphs.expressions import Environment, Expression, lifted
from lamu.graphs.learned_prior import LearnedPrior
from lamu.graphs.statistics import Bits
from lamu.record import record
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["AutoregressiveBernoulli"]


@record
@sized
class AutoregressiveBernoulli(LearnedPrior):
    r"""\(p(b) = \prod_j \mathrm{Ber}\big(b_j;\, \sigma(f_j + c_j + \sum_{k<j} W_{jk}\, b_k)\big)\), W and c learned.

    A fully visible sigmoid belief network: each entry depends on those before it, and on outputs f of a network, where
    they are given. It is the prior of binary latents, or the density of binary rows given latents.

    Attributes:
        latents: D, the number of entries.
        logits: f, `[D]`, for instance what a network makes of the latents above; None for none.

    Raises:
        ValueError: for no latent, or as many logits as there are no entries; for data other than zeros and ones.

    Source: Frey, Hinton & Dayan (1996); Gregor, Danihelka, Mnih, Blundell & Wierstra (2014), equations 3 and 4.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.latent import AutoregressiveBernoulli
        >>> def visible(m):
        ...     with m.rows():
        ...         m.sample("y", AutoregressiveBernoulli(3))
        >>> fit = lamu.fit(lamu.Graph(visible), {"y": jnp.eye(3)}, lamu.algorithms.adam(0.1), steps=5)
        >>> fit.posterior.mean["network"]["y.prior"]["kernel"].shape
        (3, 3)
    """

    logits: Any = None

    kind = Bits

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.logits is not None:
            object.__setattr__(self, "logits", lifted(self.logits))
            if self.logits.shape != (self.latents,):
                raise ValueError(
                    f"{self.latents} entries have logits of the shape {self.logits.shape}; give one an entry, for "
                    f"instance those of a network with outputs={self.latents}"
                )

    @property
    def arguments(self) -> dict[str, Expression]:
        return super().arguments | ({} if self.logits is None else {"logits": self.logits})

    def first(self, key: RandomKey, dtype: Any) -> Params:
        """Returns W = 0 and c = 0: independent coins."""
        return {"kernel": jnp.zeros((self.latents, self.latents), dtype), "bias": jnp.zeros(self.latents, dtype)}

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        """Returns log p(b) at zeros and ones, or between them."""
        return self.log_prob(at.statistics[self.weights.of.name], x.value, at)

    def log_prob(self, weights: Params, z: Array, at: Environment) -> Array:
        """Returns the sum of the log probabilities of the entries given those before them."""
        b = jnp.asarray(z, weights["bias"].dtype)
        logits = self._alone(weights, at) + jnp.tril(weights["kernel"], -1) @ b
        return jnp.sum(b * logits - jax.nn.softplus(logits))

    def draw(self, key: RandomKey, weights: Params, at: Environment) -> Array:
        """Returns a draw, one entry after the other."""
        alone, kernel = self._alone(weights, at), jnp.tril(weights["kernel"], -1)
        uniform = jax.random.uniform(key, alone.shape, alone.dtype)

        def step(b: Array, j: Array) -> tuple[Array, None]:
            chance = jax.nn.sigmoid(alone[j] + kernel[j] @ b)
            return b.at[j].set((uniform[j] < chance).astype(b.dtype)), None

        return jax.lax.scan(step, jnp.zeros_like(alone), jnp.arange(self.latents))[0]

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        """Raises a ValueError for anything but zeros and ones."""
        refuse_other_than_events(name, value, observed)

    def _alone(self, weights: Params, at: Environment) -> Array:
        """Returns f + c."""
        return weights["bias"] if self.logits is None else weights["bias"] + self.logits.first(at)
