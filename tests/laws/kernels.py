"""Laws of the kernels that move chains: balance, on a grid and in moments, and how refusals fall with the step.

A row's subject is a kernel. Its target is the logarithm of a number with a Gamma law of shape 2, which is skewed to the
left, or, for a kernel that looks at rows, the mean of eight normal numbers; `order` is the power of the step with which
its refusals fall. Everything is seen from one transition of many chains that start at exact draws.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import lamu
from lamu.data import Batch
from lamu.density import nothing
from lamu.families import Gaussian
from lamu.mcmc import DelayedAcceptance, SequentialTest
from lamu.mcmc.chains import Chain, LogTarget, metropolis
from lamu.mcmc.hamiltonian import Hamiltonian, NoUTurn
from lamu.mcmc.metropolis import Langevin, RandomWalk
from lamu.mcmc.subsampling import Subsampled
from lamu.objective import Objective
from lamu.operators import Diagonal
from lamu.priors import Belief
from lamu.record import record, static
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("kernels", "refuses rows")

CHAINS, SHAPE, BINS = 100_000, 2.0, 8
DENSITY = lamu.LogDensity(lambda u: SHAPE * u - jnp.exp(u), 0.0)
SKEWED = LogTarget(Objective(DENSITY, 1.0), Batch.of(*nothing()), {})
NUMBERS = np.array([-1.0, 0.2, 0.4, 0.5, 0.9, 1.5, 2.2, 3.7])
MEAN = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(1.5), lamu.priors.Normal(2.0))
ROWS_OF_ONE = Batch.of(jnp.ones((8, 1)), jnp.asarray(NUMBERS))
OF_ROWS = LogTarget(Objective(MEAN, 8.0), ROWS_OF_ONE, {})
MASSES = np.array([0.3, 2.5])
PAIRS = np.random.default_rng(2).normal(size=(8, 2))
FEW = 64


def params(u: Any, of_rows: bool) -> Any:
    if of_rows:
        return {"network": {"layers": {0: {"kernel": u.reshape(1, 1)}}}, "likelihood": {}}
    return {"network": u.reshape(()), "likelihood": {}}


def exact(of_rows: bool) -> np.ndarray:
    generator = np.random.default_rng(0)
    if not of_rows:
        return np.log(generator.gamma(SHAPE, size=CHAINS))
    precision = len(NUMBERS) / 1.5**2 + 1 / 2.0**2
    return NUMBERS.sum() / 1.5**2 / precision + generator.normal(size=CHAINS) / precision**0.5


@cache
def moved(kernel: Any, of_rows: bool, step_size: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Where exact draws are before and after one transition, and the share that was refused."""
    target, start = OF_ROWS if of_rows else SKEWED, exact(of_rows)

    @jax.jit
    def many(step_size: Any) -> Any:
        def one(key: Any, u: Any) -> Any:
            chain = kernel.begin(params(u, of_rows), target)
            chain, statistics = kernel.move(key, chain, target, step_size, jnp.ones(1), False)
            return jax.tree.leaves(chain.position)[0].reshape(()), statistics["acceptance"]

        return jax.vmap(one)(jax.random.split(jax.random.key(1), CHAINS), jnp.asarray(start))

    with jax.debug_key_reuse(False):  # the checker takes a vmapped loop over keys for a second use of them
        end, acceptance = many(jnp.asarray(step_size))
    return start, np.asarray(end), 1.0 - float(np.mean(acceptance))


def seen(row: Row, step_size: float) -> tuple[np.ndarray, np.ndarray, float]:
    return moved(row.subject, "rows" in row.traits, step_size)


walk = row("kernels", "RandomWalk", RandomWalk(), "refuses", step=1.5, order=1)
langevin = row("kernels", "Langevin", Langevin(), "refuses", step=1.2, order=3)
hamiltonian = row("kernels", "Hamiltonian", Hamiltonian(path_length=1.5), "refuses", step=0.9, order=2)
delayed = row("kernels", "DelayedAcceptance", Subsampled(DelayedAcceptance(), rows=3), "rows", step=1.0)
row("kernels", "NoUTurn", NoUTurn(), "long", step=0.9)
row("kernels", "SequentialTest of all rows", Subsampled(SequentialTest(0.0), rows=3), "rows long", step=1.0)


@law("kernels")
def detailed_balance_on_a_grid(row: Row) -> None:
    """As many go from one cell to another as come back: 28 pairs of cells, a false alarm with probability 1e-6."""
    start, end, _ = seen(row, row.extras["step"])
    edges = np.quantile(start, np.linspace(0, 1, BINS + 1)[1:-1])
    flow = np.zeros((BINS, BINS))
    np.add.at(flow, (np.searchsorted(edges, start), np.searchsorted(edges, end)), 1)
    upper = np.triu_indices(BINS, 1)
    there, back = flow[upper], flow.T[upper]
    kept = there + back >= 20
    assert kept.sum() > BINS
    found = np.sum((there - back)[kept] ** 2 / (there + back)[kept])
    assert stats.chi2.sf(found, kept.sum()) > 1e-6, found


@law("kernels")
def the_target_stays(row: Row) -> None:
    """By Kolmogorov and Smirnov, after one transition: a false alarm with probability 1e-6."""
    start, end, _ = seen(row, row.extras["step"])
    assert np.mean(start != end) > 0.2
    if "rows" in row.traits:
        precision = len(NUMBERS) / 1.5**2 + 1 / 2.0**2
        law = stats.norm(NUMBERS.sum() / 1.5**2 / precision, precision**-0.5)
    else:
        law = stats.loggamma(SHAPE)
    assert stats.kstest(end, law.cdf).pvalue > 1e-6


@law("kernels", when="refuses")
def refusals_fall_with_the_step(row: Row) -> None:
    """By 2 to its order when the step is halved, within a sixth of that."""
    coarse, fine = (seen(row, step)[2] for step in (0.2, 0.1))
    assert 5 / 6 < coarse / fine / 2 ** row.extras["order"] < 7 / 6, coarse / fine


def two(u: Any) -> Any:
    return {"network": {"layers": {0: {"kernel": jnp.reshape(u, (2, 1))}}}, "likelihood": {}}


def in_units(units: np.ndarray) -> LogTarget:
    """A regression with two weights, of which each is so many of its units."""
    prior = Belief(Gaussian(two(jnp.zeros(2))["network"], Diagonal(two(jnp.asarray(units**2 / 4.0))["network"])))
    model = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(1.5), prior)
    return LogTarget(Objective(model, 8.0), Batch.of(jnp.asarray(PAIRS * units), jnp.asarray(NUMBERS)), {})


@law("kernels")
def a_mass_is_a_choice_of_units(row: Row) -> None:
    r"""With the inverse mass c a chain moves as \(\theta / \sqrt c\) does with masses of one: draw by draw."""
    starts = np.random.default_rng(3).normal(size=(FEW, 2))

    @jax.jit
    def end(starts: Any, target: LogTarget, inverse_mass: Any) -> Any:
        def one(key: Any, u: Any) -> Any:
            chain = row.subject.begin(two(u), target)
            chain, _ = row.subject.move(key, chain, target, jnp.asarray(0.3), inverse_mass, False)
            return jnp.ravel(jax.tree.leaves(chain.position)[0])

        return jax.vmap(one)(jax.random.split(jax.random.key(4), FEW), starts)

    units = np.sqrt(MASSES)
    with jax.debug_key_reuse(False):  # as above
        with_masses = end(jnp.asarray(starts), in_units(np.ones(2)), jnp.asarray(MASSES))
        with_ones = end(jnp.asarray(starts / units), in_units(units), jnp.ones(2))
    assert np.mean(np.any(np.asarray(with_masses) != starts, axis=1)) > 0.2
    np.testing.assert_allclose(with_masses, np.asarray(with_ones) * units, rtol=1e-7, atol=1e-9)


@record
class Remassed:
    """A kernel that takes another mass than it is given."""

    of: Any
    mass: Any = static()

    def begin(self, position: Any, target: Any) -> Any:
        return self.of.begin(position, target)

    def move(self, key: Any, chain: Any, target: Any, step_size: Any, inverse_mass: Any, warming: Any) -> Any:
        return self.of.move(key, chain, target, step_size, self.mass(inverse_mass), warming)


@record
class Greedy(RandomWalk):
    """Tests against the square of the ratio."""

    def move(self, key: Any, chain: Any, target: Any, step_size: Any, inverse_mass: Any, warming: Any) -> Any:
        noise_key, accept_key = jax.random.split(key)
        u = jax.tree.leaves(chain.position)[0]
        there = params(u + step_size * jax.random.normal(noise_key, u.shape, u.dtype), False)
        proposal = Chain(there, target(there))
        chain, p = metropolis(accept_key, 2 * (proposal.log_density - chain.log_density), proposal, chain)
        return chain, {"acceptance": p}


@record
class Drifting(RandomWalk):
    """Proposes to the right, and forgets to say so."""

    def move(self, key: Any, chain: Any, target: Any, step_size: Any, inverse_mass: Any, warming: Any) -> Any:
        noise_key, accept_key = jax.random.split(key)
        u = jax.tree.leaves(chain.position)[0]
        there = params(u + step_size * (0.3 + jax.random.normal(noise_key, u.shape, u.dtype)), False)
        proposal = Chain(there, target(there))
        chain, p = metropolis(accept_key, proposal.log_density - chain.log_density, proposal, chain)
        return chain, {"acceptance": p}


both = "detailed_balance_on_a_grid the_target_stays"
twin(walk, "the ratio squared", both, Greedy())
twin(walk, "a drift that is not corrected", "detailed_balance_on_a_grid", Drifting())
twin(langevin, "without a test", both, Langevin(adjusted=False))
twin(delayed, "a test that is sure too soon", both, Subsampled(SequentialTest(0.2), rows=3))
twin(langevin, "refuses as a random walk does", "refusals_fall_with_the_step", RandomWalk())
twin(hamiltonian, "one step, and none of the error of a path", "refusals_fall_with_the_step", Langevin())
for of in (walk, langevin, hamiltonian, delayed):
    twin(of, "an inverted mass", "a_mass_is_a_choice_of_units", Remassed(of.subject, jnp.reciprocal))
twin(walk, "a mass that is ignored", "a_mass_is_a_choice_of_units", Remassed(walk.subject, jnp.ones_like))
twin(hamiltonian, "a mass for its root", "a_mass_is_a_choice_of_units", Remassed(hamiltonian.subject, jnp.square))
twin(walk, "masses exchanged", "a_mass_is_a_choice_of_units", Remassed(walk.subject, jnp.flip))
