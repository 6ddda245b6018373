"""Block updates: one algorithm for each block of the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.variational.online_newton import ivon
from lamu.data.batch import Batch
from lamu.families import Parts, Point, Product
from lamu.families.location_scale import transformed
from lamu.families.products import united
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.protocol import Algorithm, Choices, Info, Runnable, Traits, recipe, require_part, runnable
from lamu.record import record, static
from lamu.typing import Belief, Data, Params, PyTree, RandomKey, State, Trace

__all__ = ["Blocks", "blocks", "owners", "rest_of"]


def owners(patterns: tuple[str, ...], coordinates: Params, held: tuple[str, ...] = ()) -> PyTree:
    """Returns a tree like the coordinates with each leaf's block number."""
    numbers = {pattern: number for number, pattern in enumerate(patterns)}
    numbered = tree.by_pattern(numbers, coordinates)
    for pattern, number in numbers.items():
        if number not in jax.tree.leaves(numbered) and not any(tree.matches(path, pattern) for path in held):
            tree.require_matches((pattern,), coordinates)
            raise ValueError(f"every leaf of the block {pattern!r} belongs to a block before it; put {pattern!r} first")
    return numbered


def rest_of(owner: PyTree, number: int, coordinates: Params) -> Params:
    """Returns the leaves of all other blocks, with None at those of this block."""
    return jax.tree.map(lambda k, leaf: None if k == number else leaf, owner, coordinates)


# \[ q(\theta) = \prod_k q_k(\theta_k), \qquad
#    q_k \leftarrow \mathrm{step}_k\big(q_k;\; E_{q_{-k}}[\ell(\theta_k, \theta_{-k})]\big) \]
#
# For a product of families the rule takes one step for each factor, on the expectation of the loss over the others:
# exact messages take it at the others' μ, gradients at one sample of them.


_DRAWS = 1 << 16  # keys for samples of the other blocks start beyond those of the blocks


@record
class Blocks(Runnable):
    """Algorithm of `blocks`; its state is the tuple of the blocks' states."""

    algorithms: tuple[Algorithm, ...]  # one for each block
    patterns: tuple[str, ...] = static()  # the path patterns of the blocks; a leaf belongs to the first that matches

    @property
    def traits(self) -> Traits:
        # Minibatches, for as long as the caller says.
        return Traits(messages=any(algorithm.traits.messages for algorithm in self.algorithms))

    @property
    def choices(self) -> Choices:
        # The row of the table: the blocks' choices in order.
        rows = [algorithm.choices for algorithm in self.algorithms]
        joined = lambda values: " × ".join(dict.fromkeys(values))
        departures = tuple(dict.fromkeys(name for row in rows for name in row.departures))
        return Choices(
            joined(row.family for row in rows),
            joined(row.expectation for row in rows),
            joined(row.curvature for row in rows),
            joined(row.geometry for row in rows),
            departures,
        )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> tuple[State, ...]:
        # Returns the states of the blocks, each with the others at their initial parameters.
        params, _ = objective.model.init(jax.random.clone(key), batch)
        owners(self.patterns, params["network"], tuple(tree.paths(objective.model.frozen)))
        states = []
        for number, algorithm in enumerate(self.algorithms):
            target = self._conditional(objective, number, params["network"], params["likelihood"], ())
            states.append(algorithm.init(jax.random.clone(key), target, batch))
        return tuple(states)

    def step(
        self, key: RandomKey, state: tuple[State, ...], batch: Batch, objective: Objective
    ) -> tuple[tuple[State, ...], Info]:
        # Returns the states after a step of every block: gradient steps from the same state, then messages in order.
        if len(state) == 1:
            only_state, info = self.algorithms[0].step(key, state[0], batch, objective)
            return (only_state,), info
        posteriors = [self._posterior(jax.random.clone(key), k, part, objective) for k, part in enumerate(state)]
        new, infos = list(state), list[Any]([None] * len(state))
        for number in sorted(range(len(state)), key=lambda k: self.algorithms[k].traits.messages):
            algorithm = self.algorithms[number]
            own = jax.random.clone(key) if number == 0 else jax.random.fold_in(key, number)
            draws = [
                self._sample(jax.random.fold_in(own, _DRAWS + k), k, posteriors[k], objective)
                for k in range(len(state))
            ]
            beliefs = tuple(_network(posterior.belief) for k, posterior in enumerate(posteriors) if k != number)
            target = self._conditional(objective, number, united(draws), _dispersions(posteriors[self._first]), beliefs)
            new[number], infos[number] = algorithm.step(own, state[number], batch, target)
            if algorithm.traits.messages:
                posteriors[number] = self._posterior(jax.random.clone(key), number, new[number], objective)
            elif number == self._last_gradient:  # messages use the beliefs after the gradient steps
                posteriors = [self._posterior(jax.random.clone(key), k, part, objective) for k, part in enumerate(new)]
        squared = jnp.stack([jnp.square(jnp.asarray(info.residual, infos[0].loss.dtype)) for info in infos])
        return tuple(new), Info(loss=infos[self._first].loss, residual=jnp.sqrt(jnp.sum(squared)))

    def preview(self, key: RandomKey, state: tuple[State, ...], objective: Objective) -> Posterior:
        # Returns the product of the blocks' current posteriors.
        keys = [jax.random.clone(key), *(jax.random.fold_in(key, k) for k in range(1, len(state)))]
        return self._joined(objective, [self._posterior(keys[k], k, part, objective) for k, part in enumerate(state)])

    def posterior(
        self, key: RandomKey, state: tuple[State, ...], objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns the product of the blocks' beliefs, with the dispersions of the first block that has any.
        return self.preview(key, state, objective)

    def explain_divergence(self, state: tuple[State, ...]) -> str | None:
        # Returns the first block's explanation, if any.
        reasons = (runnable(base).explain_divergence(part) for base, part in zip(self.algorithms, state, strict=True))
        return next((reason for reason in reasons if reason is not None), None)

    @property
    def _last_gradient(self) -> int:
        """The number of the last block without messages; −1 where all use them."""
        return max((k for k, algorithm in enumerate(self.algorithms) if not algorithm.traits.messages), default=-1)

    @property
    def _first(self) -> int:
        """The number of the block that learns dispersions: the first without messages, else the first."""
        return next((k for k, algorithm in enumerate(self.algorithms) if not algorithm.traits.messages), 0)

    def _conditional(
        self,
        objective: Objective,
        number: int,
        coordinates: Params,
        dispersions: Params,
        beliefs: tuple[State, ...],
    ) -> Objective:
        """Returns the objective of one block, with the others fixed."""
        if len(self.algorithms) == 1:
            return objective
        frozen = objective.model.frozen
        fixed = rest_of(owners(self.patterns, coordinates, tuple(tree.paths(frozen))), number, coordinates)
        fixed = fixed if frozen is None else united([fixed, frozen])
        given_dispersions = {} if number == self._first else dispersions
        model = objective.model.conditioned(fixed, given_dispersions, beliefs)
        return replace(objective, model=model)

    def _posterior(self, key: RandomKey, number: int, state: State, objective: Objective) -> Posterior:
        return runnable(self.algorithms[number]).preview(key, state, objective)

    def _sample(self, key: RandomKey, number: int, posterior: Posterior, objective: Objective) -> Params:
        """Returns a sample of one block in unconstrained coordinates."""
        sample = _network(posterior.belief).sample(key)
        if not self.algorithms[number].traits.messages:
            return sample
        return objective.model.unconstrained({"network": sample, "likelihood": {}})["network"]

    def _joined(self, objective: Objective, posteriors: list[Posterior]) -> Posterior:
        first = posteriors[self._first]
        if len(posteriors) == 1:
            return first
        parts, model = [], objective.model
        constrained_space = self.traits.messages and model.transforms
        for number, posterior in enumerate(posteriors):
            belief = _network(posterior.belief)
            constrained = any(
                tree.matches(path, pattern)
                for path in tree.paths(jax.eval_shape(belief.sample, jax.random.key(0)))
                for pattern, _ in (model.constraints.table if constrained_space else ())
            )
            if constrained and not self.algorithms[number].traits.messages:
                mapped = transformed(Product({"network": belief, "likelihood": Point({})}), model.constraints)
                belief = mapped.factors["network"]
            parts.append(belief)
        belief = Product({"network": Parts(tuple(parts)), "likelihood": Point(_dispersions(first))})
        model = model.of_theta() if constrained_space else model
        return Posterior(model, belief, first.network_state, first.rule, first.key, temperature=objective.temperature)


@recipe("Khan & Lin 2017, algorithm 1; Khan & Rue 2021, section 5.4")
def blocks(algorithms: Mapping[str, Any] | None = None) -> Blocks:
    r"""Block updates with one algorithm for each path pattern: for instance IVON for a decoder, Adam for its encoder.

    \[ q_k \leftarrow \mathrm{step}_k\big(q_k;\; E_{q_{-k}}[\ell]\big) \]

    A step updates every block. Gradient-based blocks start from the same state, each at one sample of the
    others' beliefs. Blocks with exact messages (`svi()` on the variables of a `lamu.Graph`) follow in their order,
    at the others' μ if a factor is affine in it, and at a sample if a likelihood or a network comes between.
    Dispersions are learned by the first gradient-based block.

    Cost of a step: a gradient or a message for every block, and a sample of each block for every other.

    Departures from the rule: those of the blocks; one sample of the others instead of the expectation over them.

    Args:
        algorithms: algorithms that step on minibatches, by path pattern below `network`; a leaf belongs to the first
            pattern that matches it. `{"*": ivon()}` where None.

    Returns:
        The algorithm. Its posterior is the product of their beliefs.

    Raises:
        ValueError: if there is no algorithm, or one needs all the data or runs several chains; when it runs, if a
            pattern has no leaf of its own, or a leaf no pattern.
        TypeError: if a value is not an algorithm.

    Source: Khan & Rue (2021), section 5.4; Khan & Lin (2017), algorithm 1.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms import adam, blocks, ivon
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> last = blocks({"layers/1/*": ivon(), "*": adam(1e-3)})
        >>> posterior = lamu.fit(model, (x, y), last, epochs=2).posterior
        >>> type(posterior.belief.factors["network"]).__name__
        'Parts'
    """
    table = {"*": ivon()} if algorithms is None else dict(algorithms)
    if not table:
        raise ValueError("blocks({}) has no algorithm; give one by path pattern, for instance {'*': ivon()}")
    for pattern, algorithm in table.items():
        traits = require_part(algorithm, f"algorithms[{pattern!r}]").traits
        if traits.batching != "mini" or traits.length is not None or traits.runs != 1 or traits.streams != 1:
            raise ValueError(
                f"the algorithm of {pattern!r} is not a step on a minibatch of one run; give for instance ivon(), "
                "adam() or svi()"
            )
    return Blocks(tuple(table.values()), tuple(table))


def _network(belief: Belief) -> Belief:
    """Returns the belief about the network's coordinates."""
    if isinstance(belief, Product):
        return belief.factors["network"]
    if isinstance(belief, Point):
        return Point(belief.mean["network"])
    raise TypeError(
        f"a {type(belief).__name__} belief has no factor for the coordinates, so that it cannot be a part of blocks; "
        "give an algorithm of a Gaussian, a point, or a conjugate family"
    )


def _dispersions(posterior: Posterior) -> Params:
    return posterior.belief.mean["likelihood"]
