"""Learned priors of latents."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.arguments import sized
from lamu.base.compile_once import lenient
from lamu.families import Gaussian
from lamu.graphs.expressions import Environment, lifted
from lamu.graphs.program import LearnedPrior
from lamu.graphs.statistics import Bits
from lamu.latent.flows import Flow, init_flows
from lamu.latent.locals import Amortised, Refined
from lamu.latent.locals.encoder import soft_clipped
from lamu.networks import MLP
from lamu.networks.interface import adapted, outputs
from lamu.operators import Diagonal
from lamu.record import record, static
from lamu.supports import TwoClasses
from lamu.typing import Array, DTypeLike, Inputs, Params, RandomKey

__all__ = ["AutoregressiveBernoulli", "FlowPrior", "MixturePrior", "TransitionPrior", "VampPrior"]


@record
@sized
class AutoregressiveBernoulli(LearnedPrior):
    r"""\(p(b) = \prod_j \mathrm{Ber}\big(b_j;\, \sigma(f_j + c_j + \sum_{k<j} W_{jk}\, b_k)\big)\), W and c learned.

    A fully visible sigmoid belief network: each entry depends on the previous ones, and optionally on outputs f of a
    network. It is the prior of binary latents, or the density of binary rows given latents.

    Attributes:
        latents: D, the number of entries.
        logits: f, `[D]`, for instance a network's outputs for the latents above; None for none.

    Raises:
        ValueError: for no latent, or another number of logits than of entries; for data other than zeros and ones.

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
    support = TwoClasses()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.logits is not None:
            object.__setattr__(self, "logits", lifted(self.logits))
            if self.logits.shape != (self.latents,):
                raise ValueError(
                    f"{self.latents} entries have logits of the shape {self.logits.shape}; give one an entry, for "
                    f"instance those of a network with outputs={self.latents}"
                )

    def first(self, key: RandomKey, dtype: DTypeLike) -> Params:
        """Returns W = 0 and c = 0: independent entries."""
        return {"kernel": jnp.zeros((self.latents, self.latents), dtype), "bias": jnp.zeros(self.latents, dtype)}

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        """Returns log p(b) at zeros and ones, or between them."""
        return self.log_prob(environment.statistics[self.weights.of.name], x.value, environment)

    def log_prob(self, weights: Params, z: Array, environment: Environment) -> Array:
        """Returns the sum of the log probabilities of the entries given the previous ones."""
        b = jnp.asarray(z, weights["bias"].dtype)
        logits = self._logits(weights, environment) + jnp.tril(weights["kernel"], -1) @ b
        return jnp.sum(b * logits - jax.nn.softplus(logits))

    def draw(self, key: RandomKey, weights: Params, environment: Environment) -> Array:
        """Returns a sample, one entry after the other."""
        base_logits, kernel = self._logits(weights, environment), jnp.tril(weights["kernel"], -1)
        uniform = jax.random.uniform(key, base_logits.shape, base_logits.dtype)

        def step(b: Array, j: Array) -> tuple[Array, None]:
            chance = jax.nn.sigmoid(base_logits[j] + kernel[j] @ b)
            return b.at[j].set((uniform[j] < chance).astype(b.dtype)), None

        return jax.lax.scan(step, jnp.zeros_like(base_logits), jnp.arange(self.latents))[0]

    def _logits(self, weights: Params, environment: Environment) -> Array:
        """Returns f + c."""
        return weights["bias"] if self.logits is None else weights["bias"] + self.logits.first(environment)


@record
@sized
class FlowPrior(LearnedPrior):
    r"""The density of a z that flows map to noise, \(g_K \circ \dots \circ g_1(z) \sim N(0, I)\).

    \[ \log p(z) = \log N(z_K; 0, I) + \sum_k \log \Big| \det \frac{\partial g_k}{\partial z_{k-1}} \Big|,
       \qquad z_0 = z \]

    A density takes one pass through the flows, and a sample their inverses.

    Attributes:
        latents: D.
        flows: the flows, the first to be applied to z first.

    Raises:
        ValueError: for no latent or no flow.

    Source: Chen, Kingma, Salimans, Duan, Dhariwal, Schulman, Sutskever & Abbeel (2017), section 3.2.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> prior = lamu.latent.FlowPrior(2, (lamu.latent.Coupling((8,)), lamu.latent.Coupling((8,))))
        >>> model = lamu.latent.models.VAE(2, 5, prior=prior)
        >>> fit = lamu.fit(model, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=3)
        >>> sorted(fit.posterior.mean["network"]["z.prior"])
        [0, 1]
    """

    flows: tuple[Flow, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.flows:
            raise ValueError("FlowPrior without flows is N(0, I); give at least one flow, or graphs.Normal")

    def first(self, key: RandomKey, dtype: DTypeLike) -> Params:
        """Returns initial parameters of every flow by its number."""
        return init_flows(self.flows, key, self.latents, 0, dtype)

    def log_prob(self, weights: Params, z: Array, environment: Environment) -> Array:
        """Returns the log density of the noise plus the log determinants."""
        nothing, total = jnp.zeros(0, z.dtype), jnp.zeros((), z.dtype)
        for number, flow in enumerate(self.flows):
            z, log_det = flow.forward(weights[number], z, nothing)
            total = total + log_det
        return self._noise(z.dtype).log_prob(z) + total

    def draw(self, key: RandomKey, weights: Params, environment: Environment) -> Array:
        """Returns noise mapped by the inverse flows."""
        dtype = jax.tree.leaves(weights)[0].dtype
        z = self._noise(dtype).sample(key)
        for number in reversed(range(len(self.flows))):
            z = self.flows[number].inverse(weights[number], z, jnp.zeros(0, dtype))
        return z

    def _noise(self, dtype: DTypeLike) -> Gaussian:
        return Gaussian(jnp.zeros(self.latents, dtype), Diagonal(jnp.ones(self.latents, dtype)))


@record
@sized
class MixturePrior(LearnedPrior):
    r"""\(p(z) = \sum_k \pi_k\, N(z; m_k, \mathrm{diag}(s_k^2))\) with learned weights, means and scales.

    Attributes:
        latents: D.
        parts: K.

    Raises:
        ValueError: for no latent or no part.

    Source: Tomczak & Welling (2018), section 4.1, "MoG"; Dilokthanakul et al. (2016).

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> prior = lamu.latent.MixturePrior(2, parts=5)
        >>> model = lamu.latent.models.VAE(2, 5, prior=prior)
        >>> fit = lamu.fit(model, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=3)
        >>> fit.posterior.mean["network"]["z.prior"]["mean"].shape
        (5, 2)
    """

    parts: int = static()

    def first(self, key: RandomKey, dtype: DTypeLike) -> Params:
        """Returns equal weights, means sampled from N(0, I), and unit scales."""
        mean = jax.random.normal(key, (self.parts, self.latents), dtype)
        return {"logit": jnp.zeros(self.parts, dtype), "mean": mean, "log_scale": jnp.zeros_like(mean)}

    def log_prob(self, weights: Params, z: Array, environment: Environment) -> Array:
        """Returns the log of the sum over the parts."""
        log_parts = jax.vmap(lambda m, log_s: Gaussian(m, Diagonal(jnp.exp(-2 * log_s))).log_prob(z))
        return jax.nn.logsumexp(jax.nn.log_softmax(weights["logit"]) + log_parts(weights["mean"], weights["log_scale"]))

    def draw(self, key: RandomKey, weights: Params, environment: Environment) -> Array:
        """Returns a sample of a randomly chosen part."""
        of_part, of_noise = jax.random.split(key)
        part = jax.random.categorical(of_part, weights["logit"])
        mean, log_scale = weights["mean"][part], weights["log_scale"][part]
        return mean + jnp.exp(log_scale) * jax.random.normal(of_noise, mean.shape, mean.dtype)


_NETWORK = MLP((50,))


@record
@sized
class TransitionPrior(LearnedPrior):
    r"""A series of latents with transitions by a network.

    \[ z_1 \sim N(0, I), \qquad z_{t+1} \mid z_t \sim N\big(m(z_t), \mathrm{diag}(s(z_t)^2)\big) \]

    Attributes:
        latents: D, the dimension of z at one time.
        steps: T.
        network: network of m and log s, which is softly clipped beyond ±15, as in `MeanField`.

    Raises:
        ValueError: for no latent, or fewer than two steps.

    Source: Krishnan, Shalit & Sontag (2015), equation 4.

    Examples:
        >>> from lamu.latent import TransitionPrior
        >>> TransitionPrior(2, steps=5).shape
        (5, 2)
    """

    steps: int = static()
    network: Any = _NETWORK

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "network", adapted(self.network))
        if self.steps < 2:
            raise ValueError(f"steps={self.steps!r} are not a series; give a whole number from 2")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.steps, self.latents)

    def first(self, key: RandomKey, dtype: DTypeLike) -> Params:
        """Returns initial weights of the network."""
        return self.network.init(key, jnp.zeros((1, self.latents), dtype), 2 * self.latents)[0]

    def moved(self, weights: Params, z: Array) -> Gaussian:
        r"""Returns \(p(z_{t+1} \mid z_t)\).

        Args:
            weights: the weights.
            z: \(z_t\), `[D]`.
        """
        mean, log_scale = jnp.split(outputs(self.network, weights, {}, z[None], None, False, None)[0][0], 2)
        return Gaussian(mean, Diagonal(jnp.exp(-2 * soft_clipped(log_scale))))

    def log_prob(self, weights: Params, z: Array, environment: Environment) -> Array:
        """Returns the sum of the log densities of all steps."""
        steps = jax.vmap(lambda before, after: self.moved(weights, before).log_prob(after))(z[:-1], z[1:])
        return self._start(z).log_prob(z[0]) + jnp.sum(steps)

    def draw(self, key: RandomKey, weights: Params, environment: Environment) -> Array:
        """Returns a sample of the series, `[T, D]`."""
        of_first, *keys = jax.random.split(key, self.steps)
        zeros = jnp.zeros((1, self.latents), jax.tree.leaves(weights)[0].dtype)
        series = [self._start(zeros).sample(of_first)]
        for of_step in keys:
            series.append(self.moved(weights, series[-1]).sample(of_step))
        return jnp.stack(series)

    @staticmethod
    def _start(z: Array) -> Gaussian:
        return Gaussian(jnp.zeros_like(z[0]), Diagonal(jnp.ones_like(z[0])))


@record
@sized
class VampPrior(LearnedPrior):
    r"""\(p(z) = \frac1K \sum_k q(z \mid u_k)\), the average of the encoder's beliefs at learned pseudo-inputs \(u_k\).

    The prior that maximises the bound is the average belief of all rows; this is that average over K inputs. It is
    multimodal if the beliefs differ, and contains the encoder's weights, which get gradients from both. The paper keeps
    pseudo-inputs between zero and one; here they are unconstrained.

    Attributes:
        latents: D.
        encoder: the `Amortised` local of the same latent.
        inputs: the initial pseudo-inputs, `[K, ...]` in the shape of a row's data, for instance some rows.

    Raises:
        TypeError: for an encoder that is not an `Amortised`, or reads other latents; for a graph whose local of the
            latent has another network or family.
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
        required = (self.encoder.network, self.encoder.family)
        if not isinstance(encoder, Amortised) or not _same((encoder.network, encoder.family), required):
            raise TypeError(
                f"the prior of {self.name!r} is an average of beliefs of {self.encoder!r}, and its local is "
                f"{local!r}; give both the same encoder"
            )

    def first(self, key: RandomKey, dtype: DTypeLike) -> Params:
        """Returns the initial pseudo-inputs."""
        return {"inputs": jnp.asarray(self.inputs, dtype)}

    def log_prob(self, weights: Params, z: Array, environment: Environment) -> Array:
        """Returns the log of the average over the pseudo-inputs."""
        log_parts = jax.vmap(lambda outputs: self._belief(outputs, environment).log_prob(z))(
            self._encoded(weights, environment)
        )
        return jax.nn.logsumexp(log_parts) - jnp.log(jnp.asarray(log_parts.size, log_parts.dtype))

    def draw(self, key: RandomKey, weights: Params, environment: Environment) -> Array:
        """Returns a sample of the belief at one pseudo-input."""
        of_input, of_belief = jax.random.split(key)
        outputs = self._encoded(weights, environment)
        return self._belief(outputs[jax.random.randint(of_input, (), 0, len(outputs))], environment).sample(of_belief)

    def _encoded(self, weights: Params, environment: Environment) -> Array:
        own = environment.statistics["local"][self.name]["network"]
        with lenient():
            return outputs(self.encoder.network, own, {}, weights["inputs"], None, False, None)[0]

    def _belief(self, outputs: Array, environment: Environment) -> Any:
        return self.encoder.family.belief(environment.statistics["local"][self.name]["family"], outputs)


def _same(first: Any, second: Any) -> bool:
    """Returns whether two records have the same structure and equal arrays."""
    leaves, structure = jax.tree.flatten(first)
    others, of_other = jax.tree.flatten(second)
    return structure == of_other and all(np.array_equal(a, b) for a, b in zip(leaves, others, strict=True))
