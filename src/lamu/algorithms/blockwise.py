"""An algorithm made of algorithms, one for each part of the parameters."""

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
    """Returns the number of the part of every leaf, a tree like the coordinates."""
    numbers = {pattern: number for number, pattern in enumerate(patterns)}
    found = tree.by_pattern(numbers, coordinates)
    for pattern, number in numbers.items():
        if number not in jax.tree.leaves(found) and not any(tree.matches(path, pattern) for path in held):
            tree.require_matches((pattern,), coordinates)
            raise ValueError(f"every leaf of the block {pattern!r} belongs to a block before it; put {pattern!r} first")
    return found


def rest_of(owner: PyTree, number: int, coordinates: Params) -> Params:
    """Returns the leaves of all other parts, with None at those of one."""
    return jax.tree.map(lambda k, leaf: None if k == number else leaf, owner, coordinates)


# \[ q(\theta) = \prod_k q_k(\theta_k), \qquad
#    q_k \leftarrow \mathrm{step}_k\big(q_k;\; E_{q_{-k}}[\ell(\theta_k, \theta_{-k})]\big) \]
#
# The rule for a product of families is one step for each factor, of the loss in expectation over the others: exact
# messages take it at the others' μ, and gradients at one draw of them.


_DRAWS = 1 << 16  # the keys of draws of the others lie beyond those of the parts


@record
class Blocks(Runnable):
    """The algorithm that `blocks` makes; its state is a tuple of theirs."""

    algorithms: tuple[Algorithm, ...]  # one for each part
    patterns: tuple[str, ...] = static()  # the path patterns of the parts, the first that matches a leaf counting

    @property
    def traits(self) -> Traits:
        # Minibatches, as long as the caller says.
        return Traits(messages=any(algorithm.traits.messages for algorithm in self.algorithms))

    @property
    def choices(self) -> Choices:
        # The row of the table: what the parts choose, one after the other.
        rows = [algorithm.choices for algorithm in self.algorithms]
        told = lambda values: " × ".join(dict.fromkeys(values))
        departures = tuple(dict.fromkeys(name for row in rows for name in row.departures))
        return Choices(
            told(row.family for row in rows),
            told(row.expectation for row in rows),
            told(row.curvature for row in rows),
            told(row.geometry for row in rows),
            departures,
        )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> tuple[State, ...]:
        # Returns the states of the parts, each beside the others' first parameters.
        params, _ = objective.model.init(jax.random.clone(key), batch)
        owners(self.patterns, params["network"], tuple(tree.paths(objective.model.frozen)))
        states = []
        for number, algorithm in enumerate(self.algorithms):
            beside = self._beside(objective, number, params["network"], params["likelihood"], ())
            states.append(algorithm.init(jax.random.clone(key), beside, batch))
        return tuple(states)

    def step(
        self, key: RandomKey, state: tuple[State, ...], batch: Batch, objective: Objective
    ) -> tuple[tuple[State, ...], Info]:
        # Returns the states after a step of every part: gradients from where all stand, then messages in order.
        if len(state) == 1:
            alone, info = self.algorithms[0].step(key, state[0], batch, objective)
            return (alone,), info
        known = [self._posterior(jax.random.clone(key), k, one, objective) for k, one in enumerate(state)]
        new, infos = list(state), list[Any]([None] * len(state))
        for number in sorted(range(len(state)), key=lambda k: self.algorithms[k].traits.messages):
            algorithm = self.algorithms[number]
            own = jax.random.clone(key) if number == 0 else jax.random.fold_in(key, number)
            drawn = [
                self._drawn(jax.random.fold_in(own, _DRAWS + k), k, known[k], objective) for k in range(len(state))
            ]
            beliefs = tuple(_network(posterior.belief) for k, posterior in enumerate(known) if k != number)
            beside = self._beside(objective, number, united(drawn), _dispersions(known[self._first]), beliefs)
            new[number], infos[number] = algorithm.step(own, state[number], batch, beside)
            if algorithm.traits.messages:
                known[number] = self._posterior(jax.random.clone(key), number, new[number], objective)
            elif number == self._last_gradient:  # messages are of where the gradients have gone
                known = [self._posterior(jax.random.clone(key), k, one, objective) for k, one in enumerate(new)]
        squared = jnp.stack([jnp.square(jnp.asarray(info.residual, infos[0].loss.dtype)) for info in infos])
        return tuple(new), Info(loss=infos[self._first].loss, residual=jnp.sqrt(jnp.sum(squared)))

    def preview(self, key: RandomKey, state: tuple[State, ...], objective: Objective) -> Posterior:
        # Returns the product of what the parts' states stand for.
        keys = [jax.random.clone(key), *(jax.random.fold_in(key, k) for k in range(1, len(state)))]
        return self._joined(objective, [self._posterior(keys[k], k, one, objective) for k, one in enumerate(state)])

    def posterior(
        self, key: RandomKey, state: tuple[State, ...], objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns the product of the parts' beliefs, with the dispersions of the first part that has any.
        return self.preview(key, state, objective)

    def explain_divergence(self, state: tuple[State, ...]) -> str | None:
        # Returns the first explanation of a part.
        found = (runnable(one).explain_divergence(part) for one, part in zip(self.algorithms, state, strict=True))
        return next((reason for reason in found if reason is not None), None)

    @property
    def _last_gradient(self) -> int:
        """The number of the last part without messages; −1 where all take them."""
        return max((k for k, algorithm in enumerate(self.algorithms) if not algorithm.traits.messages), default=-1)

    @property
    def _first(self) -> int:
        """The number of the part that learns dispersions: the first without messages, where there is one."""
        return next((k for k, algorithm in enumerate(self.algorithms) if not algorithm.traits.messages), 0)

    def _beside(
        self,
        objective: Objective,
        number: int,
        whole: Params,
        dispersions: Params,
        beliefs: tuple[State, ...],
    ) -> Objective:
        """Returns the objective of one part, with the others held."""
        if len(self.algorithms) == 1:
            return objective
        frozen = objective.model.frozen
        held = rest_of(owners(self.patterns, whole, tuple(tree.paths(frozen))), number, whole)
        held = held if frozen is None else united([held, frozen])
        known = {} if number == self._first else dispersions
        model = objective.model.conditioned(held, known, beliefs)
        return replace(objective, model=model)

    def _posterior(self, key: RandomKey, number: int, state: State, objective: Objective) -> Posterior:
        return runnable(self.algorithms[number]).preview(key, state, objective)

    def _drawn(self, key: RandomKey, number: int, posterior: Posterior, objective: Objective) -> Params:
        """Returns the coordinates of a draw of one part."""
        drawn = _network(posterior.belief).sample(key)
        if not self.algorithms[number].traits.messages:
            return drawn
        return objective.model.unconstrained({"network": drawn, "likelihood": {}})["network"]

    def _joined(self, objective: Objective, posteriors: list[Posterior]) -> Posterior:
        first = posteriors[self._first]
        if len(posteriors) == 1:
            return first
        parts, model = [], objective.model
        about_theta = self.traits.messages and model.transforms
        for number, posterior in enumerate(posteriors):
            belief = _network(posterior.belief)
            constrained = any(
                tree.matches(path, pattern)
                for path in tree.paths(jax.eval_shape(belief.sample, jax.random.key(0)))
                for pattern, _ in (model.constraints.table if about_theta else ())
            )
            if constrained and not self.algorithms[number].traits.messages:
                mapped = transformed(Product({"network": belief, "likelihood": Point({})}), model.constraints)
                belief = mapped.factors["network"]
            parts.append(belief)
        belief = Product({"network": Parts(tuple(parts)), "likelihood": Point(_dispersions(first))})
        model = model.of_theta() if about_theta else model
        return Posterior(model, belief, first.network_state, first.rule, first.key, temperature=objective.temperature)


@recipe("Khan & Lin 2017, algorithm 1; Khan & Rue 2021, section 5.4")
def blocks(algorithms: Mapping[str, Any] | None = None) -> Blocks:
    r"""An algorithm for each part of the parameters, chosen by path: IVON for a decoder, Adam for its encoder.

    \[ q_k \leftarrow \mathrm{step}_k\big(q_k;\; E_{q_{-k}}[\ell]\big) \]

    A step takes a step of every part. Parts that move by gradients do so from where all stand, each at one draw of the
    others' beliefs. Parts that take exact messages (`svi()` on the variables of a `lamu.Graph`) follow in their order,
    at the others' μ where a factor is affine in it, and at a draw where a likelihood or a network stands between.
    Dispersions are learned by the first part that moves by gradients.

    Cost of a step: that of every part, a gradient or a message each, and a draw of each part for every other.

    Departures from the rule: those of the parts; one draw of the others in the place of the expectation over them.

    Args:
        algorithms: algorithms that step on minibatches, by path pattern below `network`, the first pattern that matches
            a leaf counting; `{"*": ivon()}` where None.

    Returns:
        The algorithm. Its posterior is the product of their beliefs.

    Raises:
        ValueError: for no algorithm, or one that needs all data or has runs side by side; when it runs, for a pattern
            without a leaf of its own, or a leaf without a pattern.
        TypeError: for something that is no algorithm.

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
                f"the algorithm of {pattern!r} is no step on a minibatch of one run; give for instance ivon(), adam() "
                "or svi()"
            )
    return Blocks(tuple(table.values()), tuple(table))


def _network(belief: Belief) -> Belief:
    """Returns a belief about the coordinates alone."""
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
