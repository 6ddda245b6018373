"""Laws of graphs: the gradient of one function is the update that textbooks write out for each model.

A row's subject is how messages are taken, `Gradients()`, so that twins can take them wrongly. Its extras: `graph`;
`data`, the arrays; `beliefs` about the shared variables; `update`, the natural parameters after an update of each of
them, written out in NumPy for data, statistics and a temperature; and `mute`, the variables of which a row without
any entry says nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import digamma, gammaln, logsumexp

import lamu
from lamu import graphs
from lamu.algorithms.closed_form.message_passing import bound, messages
from lamu.families import Dirichlet, Gamma, Gaussian, MultivariateNormal, NormalGamma, NormalWishart
from lamu.graphs.normal_factors import NormalFactor
from lamu.objective import Objective
from lamu.operators import Diagonal
from lamu.record import record
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("graphs", "holes coupled")

rng = np.random.default_rng(8)
N = 6
taken = jax.jit(messages, static_argnums=2)
bounded = jax.jit(bound)


class Gradients:
    """The messages of the library: the gradient of F in the statistics of each variable, by name."""

    def of(self, graph: Any, data: Any, size: int, T: float, statistics: Any, names: tuple[str, ...]) -> Any:
        objective = Objective(self.graph(graph), size, temperature=T)
        return taken(objective, statistics, names, graph.read(data).full())[1]

    def graph(self, graph: Any) -> Any:
        """The graph whose gradients are taken."""
        return graph


# A mixture of Gaussians.

MIXED = rng.normal(size=(N, 2)) + 2.0 * rng.integers(0, 2, (N, 1))
WEIGHT, PART = Dirichlet(jnp.array([1.5, 0.7])), NormalWishart(jnp.zeros(2), 1.5, 4.0, 2.0 * jnp.eye(2))


def mixture(m: Any) -> None:
    weight, part = m.sample("weight", WEIGHT), m.sample("part", PART, plate=2)
    with m.rows():
        z = m.sample("z", graphs.Categorical(weight))
        m.sample("y", graphs.MultivariateNormal(part[z]))


def of_mixture(data: Any, mu: Any, T: float) -> Any:
    """Bishop (2006), equations 10.46 to 10.63."""
    y, part = data["y"], jax.tree.map(np.asarray, mu["part"])
    square = np.einsum("ni,kij,nj->nk", y, part.precision, y) - 2.0 * y @ part.first.T + part.second
    energy = np.asarray(mu["weight"].log) + (part.logdet - 2.0 * np.log(2.0 * np.pi) - square) / 2.0
    r = np.exp(energy / T - logsumexp(energy / T, axis=1, keepdims=True))
    terms = (r.sum(0) / 2, -np.einsum("nk,ni,nj->kij", r, y, y) / 2, r.T @ y, -r.sum(0) / 2)
    before = jax.tree.leaves(PART.to_natural())
    return {
        "weight": [(np.asarray(WEIGHT.concentration) - 1 + r.sum(0)) / T],
        "part": [(np.asarray(b) + t) / T for b, t in zip(before, terms, strict=True)],
    }


# Factors, of which some entries are missing.

NOISE, LOADING = Gamma(2.0, 1.5), MultivariateNormal(jnp.zeros(2), jnp.eye(2))
TABLE = rng.normal(size=(N, 3))
TABLE[rng.uniform(size=TABLE.shape) < 0.3] = np.nan


def factors(m: Any) -> None:
    noise, W = m.sample("noise", NOISE, plate=3), m.sample("W", LOADING, plate=3)
    with m.rows():
        z = m.sample("z", graphs.MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
        m.sample("y", graphs.Normal(W @ z, precision=noise))


def of_factors(data: Any, mu: Any, T: float) -> Any:
    """Bishop (1999), "Variational principal components", with a sum over what is there."""
    seen, tau = ~np.isnan(data["y"]), np.asarray(mu["noise"].value)
    w, ww, y = np.asarray(mu["W"].first), np.asarray(mu["W"].outer), np.where(seen, data["y"], 0.0)
    precision = np.eye(2) + np.einsum("nd,d,dij->nij", seen, tau, ww)
    z = np.linalg.solve(precision, ((seen * tau * y) @ w)[..., None])[..., 0]
    zz = T * np.linalg.inv(precision) + z[:, :, None] * z[:, None, :]
    error = seen * (y**2 - 2.0 * y * (z @ w.T) + np.einsum("dij,nij->nd", ww, zz))
    return {
        "noise": [(1.0 + seen.sum(0) / 2) / T, (-1.5 - error.sum(0) / 2) / T],
        "W": [
            np.einsum("nd,d,ni->di", seen * y, tau, z) / T,
            (-np.eye(2) / 2 - np.einsum("nd,d,nij->dij", seen, tau, zz) / 2) / T,
        ],
    }


# A regression whose level, slope and noise are each their regime's, of which some targets are missing.

LEVEL_PRECISION, SLOPE = 0.5, MultivariateNormal(jnp.zeros(2), jnp.array([[2.0, 0.3], [0.3, 1.0]]))
own = np.random.default_rng(1)  # the rows below keep their numbers
AT = own.normal(size=(N, 2))
TARGET = AT @ np.array([1.0, -0.5]) + own.normal(size=N)
TARGET[3] = np.nan


def regimes(m: Any) -> None:
    weight = m.sample("weight", WEIGHT)
    height = m.sample("height", graphs.Normal(jnp.zeros(2), precision=LEVEL_PRECISION))
    slope, noise = m.sample("slope", SLOPE, plate=2), m.sample("noise", NOISE, plate=2)
    with m.rows():
        z = m.sample("z", graphs.Categorical(weight))
        m.sample("y", graphs.Normal(height[z] + m.data("x") @ slope[z], precision=noise[z]))


def of_regimes(data: Any, mu: Any, T: float) -> Any:
    """Bishop (2006), section 14.5.1, with a belief about every parameter and a noise for each regime."""
    seen, x, mu = ~np.isnan(data["y"])[:, None], data["x"], jax.tree.map(np.asarray, mu)
    y, tau = np.where(seen, data["y"][:, None], 0.0), mu["noise"].value
    c, line = mu["height"].first, x @ mu["slope"].first.T
    square = np.einsum("ni,kij,nj->nk", x, mu["slope"].outer, x) + 2.0 * c * line + mu["height"].second
    error = y**2 - 2.0 * y * (c + line) + square
    energy = mu["weight"].log + seen * (mu["noise"].log - np.log(2.0 * np.pi) - tau * error) / 2
    r = np.exp(energy / T - logsumexp(energy / T, axis=1, keepdims=True))
    s = r * seen
    return {
        "weight": [(np.asarray(WEIGHT.concentration) - 1 + r.sum(0)) / T],
        "height": [(s * tau * (y - line)).sum(0) / T, -(LEVEL_PRECISION + (s * tau).sum(0)) / 2 / T],
        "slope": [
            np.einsum("nk,ni->ki", s * tau * (y - c), x) / T,
            -(np.asarray(SLOPE.precision) + np.einsum("nk,ni,nj->kij", s * tau, x, x)) / 2 / T,
        ],
        "noise": [(1.0 + s.sum(0) / 2) / T, (-1.5 - (s * error).sum(0) / 2) / T],
    }


# A hidden Markov model, by the sum over all its paths.

STATE, LEVEL = Dirichlet(jnp.array([1.2, 0.8])), NormalGamma(0.0, 0.5, 2.0, 1.0)
SERIES = rng.normal(size=(N, 3))
PATHS = np.array(list(itertools.product(range(2), repeat=3)))


def markov(m: Any) -> None:
    start, move = m.sample("start", STATE), m.sample("move", STATE, plate=2)
    level = m.sample("level", LEVEL, plate=2)
    with m.rows():
        z = m.sample("z", graphs.Markov(3, start, move))
        m.sample("y", graphs.Normal(level[z]))


def of_markov(data: Any, mu: Any, T: float) -> Any:
    """Beal (2003), section 3.4, without the recursion."""
    y, level = data["y"], jax.tree.map(np.asarray, mu["level"])
    one_hot = np.eye(2)[PATHS]
    pairs = np.einsum("pti,ptj->pij", one_hot[:, :-1], one_hot[:, 1:])
    said = (level.log - np.log(2 * np.pi) - level.precision * y[..., None] ** 2 + 2 * level.first * y[..., None]) / 2
    energy = (
        np.asarray(mu["start"].log)[PATHS[:, 0]]
        + np.einsum("pij,ij->p", pairs, np.asarray(mu["move"].log))
        + np.einsum("ptk,ntk->np", one_hot, said - level.second / 2)
    )
    q = np.exp(energy / T - logsumexp(energy / T, axis=1, keepdims=True))
    r, before = np.einsum("np,ptk->ntk", q, one_hot), np.asarray(STATE.concentration) - 1
    terms = [r.sum((0, 1)) / 2, -np.einsum("ntk,nt->k", r, y**2) / 2, np.einsum("ntk,nt->k", r, y), -r.sum((0, 1)) / 2]
    prior = jax.tree.leaves(LEVEL.to_natural())
    return {
        "start": [(before + r[:, 0].sum(0)) / T],
        "move": [(before + np.einsum("np,pij->ij", q, pairs)) / T],
        "level": [(np.asarray(b) + t) / T for b, t in zip(prior, terms, strict=True)],
    }


# Topics, whose shares and words meet.

WORD, SHARE = Dirichlet(jnp.full(5, 0.6)), np.array([1.3, 0.9])
IDS, COUNTS = np.stack([rng.permutation(5)[:4] for _ in range(N)]), rng.integers(0, 4, (N, 4)) + np.array([1, 0, 0, 0])


def topics(m: Any) -> None:
    topic = m.sample("topic", WORD, plate=2)
    with m.rows():
        share = m.sample("share", graphs.Dirichlet(jnp.asarray(SHARE)))
        m.sample("words", graphs.Words(share, topic))


def of_documents(data: Any, mu: Any, T: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Blei, Ng & Jordan (2003), equations 6 and 7, a thousand times: shares γ, their E log θ, and φ of every word."""
    ids, counts = data["words"]
    word = np.asarray(mu["topic"].log).T[ids]
    gamma = np.tile(SHARE, (len(ids), 1))
    for _ in range(1000):
        log = digamma(gamma) - digamma(gamma.sum(1, keepdims=True))
        energy = (log[:, None] + word) / T
        phi = np.exp(energy - logsumexp(energy, axis=-1, keepdims=True))
        gamma = 1.0 + (SHARE - 1.0 + np.einsum("nw,nwk->nk", counts, phi)) / T
    return gamma, log, phi


def of_topics(data: Any, mu: Any, T: float) -> Any:
    ids, counts = data["words"]
    _, _, phi = of_documents(data, mu, T)
    held = np.zeros((2, 5))
    np.add.at(held.T, ids, counts[..., None] * phi)
    return {"topic": [(np.asarray(WORD.concentration) - 1.0 + held) / T]}


# A random walk with noise, of which some entries are missing, by dense linear algebra.

STEP = Gamma(1.5, 0.8)
WALKS = np.cumsum(rng.normal(size=(N, 4)), axis=1)
WALKS[rng.uniform(size=WALKS.shape) < 0.25] = np.nan


def chain(m: Any) -> None:
    step, noise = m.sample("step", STEP), m.sample("noise", NOISE)
    with m.rows():
        x = m.sample("x", graphs.GaussianChain(4, jnp.eye(1), precision=step, first_precision=0.5))
        m.sample("y", graphs.Normal(x[:, 0], precision=noise))


def of_chain(data: Any, mu: Any, T: float) -> Any:
    """Durbin & Koopman (2012), section 4.3, as one Gaussian of all times."""
    seen, tau, q = ~np.isnan(data["y"]), float(mu["noise"].value), float(mu["step"].value)
    y, difference = np.where(seen, data["y"], 0.0), np.diff(np.eye(4), axis=0)
    precision = q * difference.T @ difference + np.diag([0.5, 0, 0, 0]) + tau * seen[:, :, None] * np.eye(4)
    x = np.linalg.solve(precision, (tau * y)[..., None])[..., 0]
    xx = T * np.linalg.inv(precision) + x[:, :, None] * x[:, None, :]
    error = seen * (y**2 - 2 * y * x + np.einsum("ntt->nt", xx))
    moved = np.einsum("st,ntu,su->", difference, xx, difference)
    return {
        "step": [(0.5 + 3 * len(y) / 2) / T, (-0.8 - moved / 2) / T],
        "noise": [(1.0 + seen.sum() / 2) / T, (-1.5 - error.sum() / 2) / T],
    }


loading = MultivariateNormal(jnp.asarray(rng.normal(size=(3, 2))), jnp.stack([jnp.eye(2) * k for k in (2.0, 3.0, 5.0)]))
part = NormalWishart(
    jnp.asarray(rng.normal(size=(2, 2))), jnp.array([3.0, 4.0]), jnp.array([5.0, 6.0]), jnp.stack([jnp.eye(2)] * 2)
)
level = NormalGamma(jnp.array([-0.5, 0.7]), jnp.array([2.0, 3.0]), jnp.array([3.0, 2.0]), jnp.array([1.0, 2.0]))
TOPIC = Dirichlet(jnp.asarray(rng.uniform(0.5, 4.0, (2, 5))))
ROWS = {
    "mixture": row(
        "graphs",
        "mixture",
        Gradients(),
        graph=lamu.Graph(mixture),
        data={"y": MIXED},
        beliefs={"weight": Dirichlet(jnp.array([3.0, 2.0])), "part": part},
        update=of_mixture,
    ),
    "factors": row(
        "graphs",
        "factors",
        Gradients(),
        "holes",
        graph=lamu.Graph(factors),
        data={"y": TABLE},
        beliefs={"noise": Gamma(jnp.array([2.0, 3.0, 4.0]), jnp.array([2.0, 1.0, 3.0])), "W": loading},
        update=of_factors,
        mute=("noise", "W"),
    ),
    "regimes": row(
        "graphs",
        "regimes",
        Gradients(),
        "holes",
        graph=lamu.Graph(regimes),
        data={"x": AT, "y": TARGET},
        beliefs={
            "weight": Dirichlet(jnp.array([3.0, 2.0])),
            "height": Gaussian(jnp.array([0.4, -0.3]), Diagonal(jnp.array([2.0, 5.0]))),
            "slope": MultivariateNormal(
                jnp.array([[1.0, 0.2], [-0.5, 0.7]]), jnp.stack([2.0 * jnp.eye(2), jnp.eye(2)])
            ),
            "noise": Gamma(jnp.array([2.0, 3.0]), jnp.array([2.0, 1.0])),
        },
        update=of_regimes,
        mute=("height", "slope", "noise"),
    ),
    "markov": row(
        "graphs",
        "markov",
        Gradients(),
        graph=lamu.Graph(markov),
        data={"y": SERIES},
        beliefs={
            "start": Dirichlet(jnp.array([2.0, 3.0])),
            "move": Dirichlet(jnp.array([[4.0, 1.5], [1.0, 2.0]])),
            "level": level,
        },
        update=of_markov,
    ),
    "topics": row(
        "graphs",
        "topics",
        Gradients(),
        "coupled",
        graph=lamu.Graph(topics, local={"share": graphs.Coordinate(400, tolerance=1e-14)}),
        data={"words": (IDS, COUNTS)},
        beliefs={"topic": TOPIC},
        update=of_topics,
    ),
    "chain": row(
        "graphs",
        "chain",
        Gradients(),
        "holes",
        graph=lamu.Graph(chain),
        data={"y": WALKS},
        beliefs={"step": Gamma(2.0, 1.5), "noise": Gamma(3.0, 2.0)},
        update=of_chain,
        mute=("noise",),
    ),
}


def found(row: Row, data: Any = None, size: int = N, T: float = 1.0) -> Any:
    """The messages to all shared variables, each as the leaves of its natural parameters."""
    extras = row.extras
    statistics, data = extras["graph"].moments(extras["beliefs"]), extras["data"] if data is None else data
    natural = row.subject.of(extras["graph"], data, size, T, statistics, tuple(extras["beliefs"]))
    return {name: jax.tree.leaves(part) for name, part in natural.items()}


def close(one: Any, other: Any, rtol: float = 1e-8) -> None:
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        mine, theirs = np.asarray(mine), np.asarray(theirs)
        if mine.ndim > 1 and mine.shape[-1] == mine.shape[-2]:  # what a gradient left in one half of a square
            mine, theirs = mine + np.swapaxes(mine, -1, -2), theirs + np.swapaxes(theirs, -1, -2)
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=1e-9)


@law("graphs")
def a_message_is_the_update_by_hand(row: Row) -> None:
    extras = row.extras
    close(found(row), extras["update"](extras["data"], extras["graph"].moments(extras["beliefs"]), 1.0))


@law("graphs")
def a_temperature_leaves_the_entropy_of_latents(row: Row) -> None:
    """T divides log p and not the entropy of q(z): latents are smoother, and not the same ones divided by T."""
    extras = row.extras
    close(found(row, T=2.0), extras["update"](extras["data"], extras["graph"].moments(extras["beliefs"]), 2.0))


@law("graphs")
def a_minibatch_stands_for_all_rows(row: Row) -> None:
    """The mean of the messages of two halves of the rows is that of all."""
    halves = [jax.tree.map(lambda leaf, s=part: leaf[s], row.extras["data"]) for part in (slice(0, 3), slice(3, 6))]
    one, other = (found(row, half) for half in halves)
    close(jax.tree.map(lambda a, b: (a + b) / 2, one, other), found(row))


@law("graphs", when="holes")
def missing_entries_say_nothing(row: Row) -> None:
    """Rows without any entry change no message to what is said of entries."""
    beside = lambda name, part: np.full_like(part[:2], np.nan) if name == "y" else part[:2]
    data = {name: np.concatenate([part, beside(name, part)]) for name, part in row.extras["data"].items()}
    longer, names = found(row, data, N + 2), row.extras["mute"]
    close({name: longer[name] for name in names}, {name: found(row)[name] for name in names})


@law("graphs", when="coupled")
def latents_that_meet_are_settled(row: Row) -> None:
    """The bound of a row is that at the end of the iteration, Blei, Ng & Jordan (2003), equation 15."""
    extras = row.extras
    mu, (ids, counts) = extras["graph"].moments(extras["beliefs"]), extras["data"]["words"]
    gamma, log, _ = of_documents(extras["data"], mu, 1.0)
    words = logsumexp(log[:, None] + np.asarray(mu["topic"].log).T[ids], axis=-1)
    constant = lambda a: gammaln(a.sum(-1)) - gammaln(a).sum(-1)
    divergence = constant(gamma) - constant(SHARE) + np.sum((gamma - SHARE) * log, axis=-1)
    graph = row.subject.graph(extras["graph"])
    rows = graph.row_bounds(mu, graph.read(extras["data"]).full())
    np.testing.assert_allclose(rows, np.sum(counts * words, axis=-1) - divergence, rtol=1e-9)


@law("graphs")
def the_bound_never_falls(row: Row) -> None:
    """In two sweeps over the variables in turn, from where two sweeps of the library's lead."""
    graph, beliefs = row.extras["graph"], dict(row.extras["beliefs"])
    batch, objective = graph.read(row.extras["data"]).full(), Objective(graph, N)
    kinds, values = {site.name: site.kind for site in graph.shared}, []
    for number, names in enumerate(graph.blocks * 4):
        takes = Gradients() if number < 2 * len(graph.blocks) else row.subject
        natural = takes.of(graph, row.extras["data"], N, 1.0, graph.moments(beliefs), names)
        beliefs |= {name: kinds[name](*jax.tree.leaves(natural[name])).belief() for name in names}
        values.append(bounded(objective, beliefs, batch))
    assert np.all(np.diff(values) > -1e-9 * np.abs(values[0])), values


class Reversed(Gradients):
    def of(self, *args: Any) -> Any:
        return jax.tree.map(jnp.negative, super().of(*args))


class Doubled(Gradients):
    def of(self, graph: Any, data: Any, size: int, *args: Any) -> Any:
        return super().of(graph, data, 2 * size, *args)


class OfTheBatch(Gradients):
    def of(self, graph: Any, data: Any, size: int, *args: Any) -> Any:
        return super().of(graph, data, len(jax.tree.leaves(data)[0]), *args)


class FilledIn(Gradients):
    def of(self, graph: Any, data: Any, *args: Any) -> Any:
        return super().of(graph, jax.tree.map(np.nan_to_num, data), *args)


@record
class Apart(NormalFactor):
    """The statistics of each argument averaged over the category by itself, as if none picked in two of them."""

    def mixed_over(self, holes: bool = False) -> frozenset[str]:
        return frozenset()


class ArgumentsApart(Gradients):
    def graph(self, graph: Any) -> Any:
        apart = lambda factor: Apart(factor.mean, factor.precision) if isinstance(factor, NormalFactor) else factor
        return lamu.Graph(
            tuple(dataclasses.replace(site, factor=apart(site.factor)) for site in graph.sites), columns=graph.columns
        )


class Tempered(Gradients):
    def of(self, graph: Any, data: Any, size: int, T: float, *args: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf / T, super().of(graph, data, size, 1.0, *args))


class Once(Gradients):
    def graph(self, graph: Any) -> Any:
        return lamu.Graph(graph.sites, local={"share": graphs.Coordinate(1)})


hand = "a_message_is_the_update_by_hand"
twin(ROWS["mixture"], "messages of the other sign", hand, Reversed())
twin(ROWS["chain"], "messages of the other sign", hand, Reversed())
twin(ROWS["mixture"], "rows that count twice", hand, Doubled())
twin(ROWS["chain"], "rows that count twice", f"{hand} the_bound_never_falls", Doubled())
twin(ROWS["mixture"], "a batch stands for itself", "a_minibatch_stands_for_all_rows", OfTheBatch())
twin(ROWS["topics"], "a batch stands for itself", "a_minibatch_stands_for_all_rows", OfTheBatch())
twin(ROWS["factors"], "missing entries are zeros", f"{hand} missing_entries_say_nothing", FilledIn())
twin(ROWS["chain"], "missing entries are zeros", f"{hand} missing_entries_say_nothing", FilledIn())
twin(ROWS["regimes"], "missing entries are zeros", f"{hand} missing_entries_say_nothing", FilledIn())
twin(ROWS["regimes"], "arguments averaged apart", hand, ArgumentsApart())
for name in ("mixture", "markov", "topics", "regimes"):
    twin(ROWS[name], "a tempered entropy", "a_temperature_leaves_the_entropy_of_latents", Tempered())
twin(ROWS["topics"], "latents that iterate once", f"{hand} latents_that_meet_are_settled", Once())
