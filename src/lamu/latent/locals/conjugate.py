"""Recognition networks whose outputs are conjugate messages to a latent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import Gaussian
from lamu.graphs.elimination import Eliminated, ExactElimination, Proposal, Rest
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, log_joint, shape_of
from lamu.graphs.network import applications
from lamu.graphs.program import GraphSite
from lamu.graphs.statistics import Categories, Numbers, Series, Vectors
from lamu.latent.locals.amortised import Amortised, MeanField
from lamu.latent.locals.encoder import EncoderLocal, encoded, first_encoder, latent_site, natural
from lamu.operators import Diagonal
from lamu.record import record
from lamu.typing import Array, DTypeLike, Params, RandomKey, State

__all__ = ["Conjugate", "Ladder"]


@record
class Conjugate(EncoderLocal):
    r"""A latent x below a network, with a Gaussian message from a recognition network of the row.

    \[ q(x, z) \propto p(x, z)\, e^{\langle\lambda(y), T(x)\rangle}, \qquad
       \log p(y) \ge \log Z(\lambda) + E_q\big[\log p(y \mid x) - \langle\lambda, T(x)\rangle\big], \qquad
       Z = \sum_z \int p(x, z)\, e^{\langle\lambda, T(x)\rangle}\, dx \]

    The message replaces the likelihood of a decoder, and all else is as in the conjugate model: categories z
    on which x depends are summed out, x given z has the exact Gaussian under the message, and the messages to shared
    variables are those of the conjugate model. The expectation of \(\log p(y \mid x)\) takes one sample of x for each
    value of z. Its gradient trains the networks and treats q as fixed in the shared variables, so that beliefs about
    these stay proper: the natural gradient of the paper without its second term.

    The outputs of the network are the means of the message, a Gaussian in x, and, through a softplus, its precisions;
    for a series (`graphs.GaussianChain`) those of each step (`EachStep`).

    Attributes:
        network: the recognition network.

    Raises:
        TypeError: for a latent that is not Gaussian, or that meets another one that is not a category.

    Source: Johnson, Duvenaud, Wiltschko, Datta & Adams (2016), section 4; Lin, Hubacher & Khan (2018) for the messages.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu import graphs, latent
        >>> from lamu.families import Dirichlet, NormalWishart
        >>> from lamu.networks import MLP
        >>> def structured(m):
        ...     decode = m.network("decode", MLP((8,)), outputs=2)
        ...     weight = m.sample("weight", Dirichlet(jnp.ones(3)))
        ...     part = m.sample("part", NormalWishart(jnp.zeros(2), 1.0, 4.0, jnp.eye(2)), plate=3)
        ...     with m.rows():
        ...         z = m.sample("z", graphs.Categorical(weight))
        ...         x = m.sample("x", graphs.MultivariateNormal(part[z]))
        ...         m.sample("y", lamu.likelihoods.Gaussian(scale=0.1)(decode(x)))
        >>> graph = lamu.Graph(structured, local={"x": latent.Conjugate(MLP((8,)))})
        >>> networks = lamu.algorithms.adam(0.01)
        >>> algorithm = lamu.algorithms.blocks({"decode/*": networks, "local/*": networks, "*": lamu.algorithms.svi()})
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(2)}, algorithm, steps=10).posterior
        >>> posterior.local({"y": jnp.eye(2)})["z"].mean.shape
        (2, 3)
    """

    network: Any

    random: ClassVar[bool] = True

    def init(self, key: RandomKey, name: str, row: Row, environment: Environment) -> Params:
        """Returns initial weights of the recognition network."""
        site = latent_site(name, row)
        if not issubclass(site.kind, Numbers | Vectors | Series):
            raise TypeError(
                f"the latent {name!r} is {site.kind.words}, and the message of a Conjugate local is a Gaussian; use "
                "Enumerated(network) for a category"
            )
        return first_encoder(self.network, key, name, (), row, 2 * math.prod(shape_of(site)))

    def importance_weighted(self) -> Conjugate:
        """Returns the local with one sample of z and x, whose value is the log of an importance weight."""
        return _WeighedMessage(self.network)

    def message(self, name: str, own: Params, row: Row, environment: Environment) -> Any:
        """Returns λ(y), natural parameters as the statistics of x.

        Args:
            name: the latent.
            own: the local's parameters.
            row: the row.
            environment: the statistics of shared variables.
        """
        site = latent_site(name, row)
        outputs = encoded(self.network, own, name, (), row, environment)
        # For a series the means and precisions of each step are adjacent.
        steps = shape_of(site)[0] if issubclass(site.kind, Series) else 1
        mean, precision = (jnp.ravel(part) for part in jnp.split(jnp.reshape(outputs, (steps, -1)), 2, axis=1))
        # Not an exponential: a precision of 1e8 at the initial weights would leave no digits for differences of λ.
        return natural(site, mean, jax.nn.softplus(precision))

    def proposal(self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest) -> Proposal:
        """Returns q(x, z): the categories that x meets, and x given them."""
        under = _UnderMessage(name, self.message(name, own, row, environment), row)
        return _Mixed(under, *under.log_normalisers(environment))

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the bound, and λ of all latents: of x and of others at the most likely z."""
        under = _UnderMessage(name, self.message(name, own, row, environment), row)
        fixed = jax.lax.stop_gradient(environment)
        log_Z = under.log_normalisers(environment)[0]
        log_parts, beliefs = under.log_normalisers(fixed)
        log_q = jax.nn.log_softmax(log_parts)
        of_draws, of_rest = (jax.random.split(k, log_q.size) for k in jax.random.split(key))
        draws = jax.vmap(lambda belief, k: belief.belief().sample(k))(beliefs, of_draws)
        numbers = jnp.arange(log_q.size)
        gains, others = jax.vmap(lambda number, x, k: under.gain(number, x, environment, k, rest))(
            numbers, draws, of_rest
        )
        likeliest = jax.tree.map(lambda leaf: leaf[jnp.argmax(log_q)], {**others, name: beliefs})
        bound = jax.nn.logsumexp(log_Z) + jnp.sum(jnp.exp(log_q) * gains)
        return bound, {**likeliest, **under.categories_of(log_q)}


@record
class _WeighedMessage(Conjugate):
    """One sample of z and x from q, and the log of its importance weight."""

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        # Returns the log weight, and λ of all latents at the sample of z.
        under = _UnderMessage(name, self.message(name, own, row, environment), row)
        log_parts, beliefs = under.log_normalisers(environment)
        of_z, of_x, of_rest = jax.random.split(key, 3)
        number = jax.random.categorical(of_z, log_parts)
        belief = jax.tree.map(lambda leaf: leaf[number], beliefs)
        gain, others = under.gain(number, belief.belief().sample(of_x), environment, of_rest, rest)
        categories = under.categories_of(jax.nn.log_softmax(log_parts))
        return jax.nn.logsumexp(log_parts) + gain, {**others, name: belief, **categories}


class _UnderMessage:
    r"""\(p(x, z)\, e^{\langle\lambda, T(x)\rangle}\) of a row by values of z, and the row's other factors."""

    def __init__(self, name: str, message: Any, row: Row) -> None:
        self.site, self.message, self.row = latent_site(name, row), message, row
        closed, self.categories = _closed_form_sites(name, row)
        evidence = {latent: part for latent, part in row.evidence.items() if latent in self._names}
        self.closed = replace(row, sites=closed, evidence={**evidence, name: message})
        names = {site.name for site in closed}
        self.open = tuple(site for site in row.sites if site.name not in names)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.categories)

    def log_normalisers(self, environment: Environment) -> tuple[Array, State]:
        """Returns log Z of every value of z, and λ of x given it."""

        def of_value(number: Array) -> tuple[Array, State]:
            value, latents = ExactElimination().marginalise(
                "", {}, self._given(self.closed, number), environment, None, _nothing_left
            )
            return value, latents[self.site.name]

        return jax.vmap(of_value)(jnp.arange(math.prod(self._sizes)))

    def gain(self, number: Array, x: Array, environment: Environment, key: RandomKey, rest: Rest) -> Eliminated:
        """Returns the other factors of the row at x minus the message, and λ of the latents there."""
        row = self._given(self.row, number).given(self.site.name, x)
        evidence = {name: part for name, part in row.evidence.items() if name not in self._names}
        value, others = rest(replace(row, sites=self.open, evidence=evidence), environment, key)
        return value - tree.dot(self.message, self.site.kind.of(x)), others

    def categories_of(self, log_q: Array) -> dict[str, Categories]:
        """Returns the logits of each category."""
        table = jnp.reshape(log_q, self._sizes)
        axes = range(len(self._sizes))
        return {
            site.name: Categories(jax.nn.logsumexp(table, axis=tuple(a for a in axes if a != axis)))
            for axis, site in enumerate(self.categories)
        }

    def values_of(self, number: Array, dtype: DTypeLike) -> dict[str, Array]:
        """Returns the value of z at an index, as one-hot vectors by name."""
        indices = jnp.unravel_index(number, self._sizes)
        return {
            site.name: jax.nn.one_hot(index, shape_of(site)[-1], dtype=dtype)
            for site, index in zip(self.categories, indices, strict=True)
        }

    def number_of(self, values: Mapping[str, Any]) -> Array:
        """Returns the index of a value of z."""
        number = jnp.zeros((), jnp.int32)
        for site, size in zip(self.categories, self._sizes, strict=True):
            number = number * size + jnp.argmax(values[site.name])
        return number

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(shape_of(site)[-1] for site in self.categories)

    def _given(self, row: Row, number: Array) -> Row:
        """Returns the row with the value of z at an index."""
        for name, value in self.values_of(number, dtype_of(self.message)).items():
            row = row.given(name, value)
        return row


class _Mixed(Proposal):
    """A category z by its log weights, and x given z."""

    def __init__(self, under: _UnderMessage, log_parts: Array, beliefs: Any) -> None:
        self.under, self.log_q, self.beliefs = under, jax.nn.log_softmax(log_parts), beliefs

    @property
    def names(self) -> tuple[str, ...]:
        return (self.under.site.name, *(site.name for site in self.under.categories))

    def draw(self, key: RandomKey) -> tuple[dict[str, Any], Array]:
        of_z, of_x = jax.random.split(key)
        number = jax.random.categorical(of_z, self.log_q)
        belief = self._given(number)
        x = belief.sample(of_x)
        values = {self.under.site.name: x, **self.under.values_of(number, self.log_q.dtype)}
        return values, self.log_q[number] + belief.log_prob(x)

    def log_prob(self, values: Mapping[str, Any]) -> Array:
        number = self.under.number_of(values)
        return self.log_q[number] + self._given(number).log_prob(values[self.under.site.name])

    def _given(self, number: Array) -> Any:
        return jax.tree.map(lambda leaf: leaf[number], self.beliefs).belief()


def _closed_form_sites(name: str, row: Row) -> tuple[tuple[GraphSite, ...], tuple[GraphSite, ...]]:
    """Returns the sites with closed forms in x, including those of the categories they meet, and these categories."""
    latents = {site.name: site for site in row.latent}
    meeting = lambda site: latents.keys() & {site.name, *site.factor.names}
    candidates = [site for site in row.sites if not _enters_through_a_network(name, site)]
    reached, before = {name}, set()
    while reached != before:
        before = set(reached)
        reached |= {other for site in candidates if meeting(site) & before for other in meeting(site)}
    closed = tuple(site for site in candidates if meeting(site) & reached)
    others = [latents[other] for other in latents if other in reached - {name}]
    for site in others:
        if site.kind is not Categories or len(shape_of(site)) != 1:
            raise TypeError(
                f"the latent {name!r} meets {site.name!r} in a factor, which is {site.kind.words}; a Conjugate local "
                f"marginalises only categories with its own latent: name a local that draws {site.name!r} before"
            )
    return closed, tuple(others)


def _enters_through_a_network(name: str, site: GraphSite) -> bool:
    """Returns whether a latent enters a site through a network or a likelihood."""
    called = frozenset().union(*(call.names for call in applications(site.factor)))
    return name in (called if site.factor.exact else site.factor.names)


def _nothing_left(row: Row, environment: Environment, key: Any) -> Eliminated:
    raise AssertionError("all latents of a closed row leave at once")


@record
class Ladder(Amortised):
    r"""A layer of a hierarchy whose belief combines the encoder's message with the prior from above.

    \[ q(z_l \mid z_{l+1}, y) = N\Big( \frac{\hat s^{-2} \hat m + s_p^{-2} m_p}{\hat s^{-2} + s_p^{-2}},\;
       \frac{1}{\hat s^{-2} + s_p^{-2}} \Big) \]

    with \(\hat m, \hat s\) the encoder's, which reads only the row, and \(m_p, s_p\) those of the prior
    \(p(z_l \mid z_{l+1})\) at the sample of the latents above. The encoder learns a likelihood, and the prior's
    networks are part of the belief too: deep layers stay in use where independent encoders let them collapse. It is
    exact if the layer has a Gaussian likelihood with independent coordinates.

    Attributes:
        network: the encoder, of \(\hat m\) and \(\log \hat s\).
        family: `MeanField()`.
        given: the latents above, which get their values first; the encoder does not read them.
        bound: one of `lamu.latent.bounds`.

    Raises:
        TypeError: for another family, or a prior that is not a Normal.
        ValueError: if the prior depends on a latent that is not given.

    Source: Sønderby, Raiko, Maaløe, Sønderby & Winther (2016), equations 17 to 19.

    Examples:
        >>> from lamu.latent import Ladder
        >>> from lamu.networks import MLP
        >>> Ladder(MLP((50,)), given=("z2",)).given
        ('z2',)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.family, MeanField):
            raise TypeError(f"a Ladder joins Gaussians, and the family is {self.family!r}; leave it out")

    def init(self, key: RandomKey, name: str, row: Row, environment: Environment) -> Params:
        """Returns initial weights of the encoder, which reads only the row."""
        site = latent_site(name, row)
        if site.kind is not Numbers or not site.factor.conjugate:
            raise TypeError(
                f"the prior of {name!r} is not a Normal, and a Ladder joins an encoder's Gaussian with one; use "
                "Amortised(network)"
            )
        lacking = sorted(site.factor.names & {other.name for other in row.latent} - set(self.given))
        if lacking:
            raise ValueError(
                f"the prior of {name!r} depends on {lacking[0]!r}, which has no value before it; give "
                f"Ladder(network, given=({lacking[0]!r},))"
            )
        return Amortised.init(replace(self, given=()), key, name, row, environment)

    def belief(self, name: str, own: Params, row: Row, environment: Environment) -> Gaussian:
        """Returns the product of the encoder's Gaussian and the prior's."""
        site = latent_site(name, row)
        message = self.family.belief(own["family"], encoded(self.network, own["network"], name, (), row, environment))
        zero = site.kind.zeros(shape_of(site), dtype_of(own))
        prior = jax.grad(lambda z: log_joint((site,), row.environment(environment, {name: z})))(zero)
        size = math.prod(shape_of(site))
        first, second = (jnp.reshape(part, size) / row.temperature for part in (prior.first, prior.second))
        precision = message.precision.values - 2 * second
        return Gaussian((message.precision.values * message.mean + first) / precision, Diagonal(precision))
