"""A mixture of Gaussians from several runs of one algorithm: an ensemble as one density."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from lamu.algorithms.ensembles.deep_ensemble import DeepEnsemble, deep_ensemble
from lamu.base.arguments import require_whole_field, whole_number
from lamu.data.batch import Batch
from lamu.families import Gaussian, Mixture, Point, Product
from lamu.families.products import factor_of
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.protocol import Algorithm, Choices, Traits, recipe
from lamu.record import record, static
from lamu.typing import Array, Belief, Data, Params, PyTree, RandomKey, State, Trace

__all__ = ["EqualWeights", "EvidenceWeights", "Mixed", "mixture"]


@record
class EqualWeights:
    """Equal weights of all components.

    Examples:
        >>> from lamu.algorithms.ensembles.mixture import EqualWeights
        >>> EqualWeights().departure
        'weights held equal'
    """

    departure = "weights held equal"

    def logits(self, key: RandomKey, posteriors: list[Posterior], objective: Objective, data: Data) -> Array:
        """Returns zeros."""
        return jnp.zeros(len(posteriors))


@record
class EvidenceWeights:
    r"""Weights by each component's evidence, or its lower bound: the rule's fixed point if components do not overlap.

    \[ \log \pi_k = E_{q_k}[-\ell(\theta)/T - \log q_k(\theta)] + \text{const} \]

    by samples, with one pass over the data for all of them; by the evidence itself if the algorithm computes
    it (Laplace). Bounds of different runs often differ by many nats, and then one component has all the weight.

    Attributes:
        samples: number of samples a component.

    Raises:
        ValueError: for fewer than one sample.

    Examples:
        >>> from lamu.algorithms.ensembles.mixture import EvidenceWeights
        >>> EvidenceWeights().samples
        8
    """

    samples: int = static(default=8)

    departure = ""

    def __post_init__(self) -> None:
        require_whole_field(self, "samples", problem="cannot be averaged")

    def logits(self, key: RandomKey, posteriors: list[Posterior], objective: Objective, data: Data) -> Array:
        """Returns every component's evidence or bound, in nats."""
        if all(posterior.evidence is not None for posterior in posteriors):
            return jnp.stack([jnp.asarray(posterior.evidence) for posterior in posteriors])
        keys = [jax.random.fold_in(key, k) for k in range(len(posteriors))]
        return jnp.stack([self._bound(k, p, objective, data) for k, p in zip(keys, posteriors, strict=True)])

    def _bound(self, key: RandomKey, posterior: Posterior, objective: Objective, data: Data) -> Array:
        draws = posterior.belief.draws(key, self.samples)
        total, count = jnp.zeros(self.samples), 0.0
        for number, batch in enumerate(data.batches(4096)):
            of_batch = jax.random.fold_in(key, number)
            losses = _negative_log_likelihoods(objective, draws, batch, posterior.network_state, of_batch)
            total, count = total + losses * batch.count, count + batch.count
        loss = total / count + jax.vmap(objective.negative_log_prior)(draws)
        gaussian: Belief = posterior.belief
        log_q = jax.vmap(gaussian.factors["network"].log_prob)(draws["network"])
        return jnp.mean(-objective.concentration * loss - log_q)


@jax.jit
def _negative_log_likelihoods(objective: Objective, draws: Params, batch: Batch, state: State, key: RandomKey) -> Array:
    keys = jax.random.split(key, jax.tree.leaves(draws)[0].shape[0])
    of_draw = lambda draw: objective.negative_log_likelihood(draw[0], batch, state, draw[1])[0]
    return jax.lax.map(of_draw, (draws, keys))


@record
class Mixed(DeepEnsemble):
    """Algorithm of `mixture`: the runs of an ensemble, combined into one mixture of Gaussians."""

    weights: EqualWeights | EvidenceWeights = EqualWeights()  # weights of the components

    @property
    def traits(self) -> Traits:
        # Those of the members' algorithm, with a data order for each, on a network without a state.
        return replace(super().traits, needs_data_pass=True)

    @property
    def choices(self) -> Choices:
        choices = super().choices
        departures = (*choices.departures, self.weights.departure)
        return replace(choices, departures=tuple(name for name in departures if name))

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> State:
        shapes: PyTree = jax.eval_shape(objective.model.init, key, batch)
        if jax.tree.leaves(shapes[1]):
            raise ValueError(
                "a mixture is one density over the weights of one network, and has no place for the batch statistics "
                "of several; give a network without a state, or use deep_ensemble"
            )
        return super().init(key, objective, batch)

    def preview(self, key: RandomKey, state: State, objective: Objective) -> Posterior:
        # Returns the posterior before any pass over the data: the components with equal weights.
        return replace(self, weights=EqualWeights()).posterior(key, state, objective, None, None)

    def posterior(self, key: RandomKey, state: State, objective: Objective, data: Data, trace: Trace) -> Posterior:
        # Returns the mixture of the runs' Gaussians; learned dispersions are averaged, unconstrained.
        keys = [jax.random.fold_in(key, k) for k in range(self.members)]
        runs = [jax.tree.map(lambda leaf, k=k: leaf[k], state) for k in range(self.members)]
        posteriors = [self.base.posterior(k, run, objective, data, None) for k, run in zip(keys, runs, strict=True)]
        logits = self.weights.logits(jax.random.fold_in(key, self.members), posteriors, objective, data)
        beliefs: list[Belief] = [posterior.belief for posterior in posteriors]
        for belief in beliefs:
            if not isinstance(factor_of(belief, "network"), Gaussian):
                raise TypeError(
                    f"{type(self.base).__name__} keeps no Gaussian about the weights to mix; give ivon(), "
                    "vogn() or laplace(), or use deep_ensemble"
                )
        stack = lambda *leaves: jnp.stack(leaves)
        components = jax.tree.map(stack, *[belief.factors["network"] for belief in beliefs])
        dtype = jax.tree.leaves(components)[0].dtype
        pi = jax.nn.softmax(logits)
        rest = jax.tree.map(
            lambda *leaves: jnp.tensordot(pi.astype(leaves[0].dtype), stack(*leaves), axes=1),
            *[belief.factors["likelihood"].mean for belief in beliefs],
        )
        belief = Product({"network": Mixture(logits.astype(dtype), components), "likelihood": Point(rest)})
        return Posterior.of(objective, belief, posteriors[0].network_state, key)


@recipe("Wilson & Izmailov 2020; Shen et al. 2024")
def mixture(
    base: Algorithm | None = None,
    components: int = 5,
    weights: EqualWeights | EvidenceWeights = EqualWeights(),  # noqa: B008  (a record never changes)
) -> Mixed:
    r"""A mixture of Gaussians whose components are the beliefs of separate runs.

    \[ q(\theta) = \sum_{k=1}^K \pi_k\, q_k(\theta) \]

    The runs are those of `deep_ensemble`, with different starts, noise and data orders: K gradients a step.
    The posterior differs: one density, with `log_prob`, responsibilities and samples. Such mixtures of
    variational Gaussians won the NeurIPS 2021 competition on approximate inference in Bayesian deep learning.

    Departures from the rule: the members' own; members are independent, without the responsibilities that the rule for
    a mixture would give (which vanish between modes that do not overlap); the weights are equal, or set at the end.

    Args:
        base: the algorithm of every run, with a Gaussian belief; `ivon()` where None.
        components: K.
        weights: `EqualWeights()`, or `EvidenceWeights()` by each run's evidence bound.

    Returns:
        The algorithm. Its posterior is the mixture, with the average of the learned dispersions.

    Raises:
        ValueError: for fewer than one component, members that see each row once or all rows always, or, in `init`,
            a network with a state.
        TypeError: if `base` is not an algorithm, or, in `posterior`, if its belief is not a Gaussian.

    Source: Wilson & Izmailov (2020), section 3.2 (multiple basins); Shen et al. (2024), section 4.3.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.ensembles.mixture import mixture
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), mixture(components=3), epochs=3).posterior
        >>> posterior.belief.factors["network"].count
        3
    """
    if base is None:
        from lamu.algorithms.variational.online_newton import ivon

        base = ivon()
    components = whole_number("components", components)
    # deep_ensemble checks and makes the runs.
    ensemble = deep_ensemble(base, components)
    return Mixed(base=ensemble.base, members=components, weights=weights)
