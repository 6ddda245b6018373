"""Beliefs about binary variables: binary weights, and dropped units."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.optimisers import adam
from lamu.data.batch import Batch, with_offset
from lamu.families import Binary, PartialBelief, Point, Product
from lamu.geometry import Accumulation
from lamu.natural_rule import Flips, LatentStart, NaturalRule, NetworkWeights, SignStart, ZeroTemperature
from lamu.networks.normalisation import draws_noise
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import MixturePredictive, PredictiveRule, Prepared, Sampled
from lamu.predictives.sampled import DrawnOutputs
from lamu.protocol import Algorithm, Choices, Wrapper, recipe, require_part
from lamu.rate import Annealed, RateLike, decay, rate
from lamu.record import record
from lamu.supports import Support
from lamu.target import Target
from lamu.typing import Array, Belief, Data, Params, PyTree, RandomKey, Rows, State, Trace
from lamu.update_rules import HeavyBall, MovingAverage, NoMomentum

__all__ = ["Masked", "NoisyUnits", "PlugInMean", "PlugInMode", "bayesbinn", "dropout", "mc_dropout", "straight_through"]


@record
class PlugInMean(PredictiveRule):
    r"""Predicts with the network at the belief's mean, for ±1 at \(\mu = \tanh\lambda\).

    Examples:
        >>> from lamu.algorithms.discrete import PlugInMean
        >>> PlugInMean()
        PlugInMean()
    """

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns the mean, as a point."""
        return Sampled().prepare(model, Point(belief.mean), network_state, 1, key)


@record
class PlugInMode(PredictiveRule):
    """Predicts with the most probable network: the signs of binary weights, and the mean of all others.

    Examples:
        >>> from lamu.algorithms.discrete import PlugInMode
        >>> PlugInMode()
        PlugInMode()
    """

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns the mode, as a point."""
        return Sampled().prepare(model, Point(_mode(belief)), network_state, 1, key)


def _mode(belief: Belief) -> Params:
    if isinstance(belief, Product):
        return {name: _mode(factor) for name, factor in belief.factors.items()}
    if isinstance(belief, PartialBelief):
        return tree.merged(_mode(belief.belief), belief.point)
    return belief.mode if isinstance(belief, Binary) else belief.mean


@recipe("Meng et al. 2020, section 3")
def bayesbinn(
    learning_rate: RateLike = Annealed(0.01),
    expectation: Any = None,
    init_half_logit: float = 3.0,
    rest_rate: RateLike = Annealed(0.1),
    momentum: float = 0.0,
    leaves: tuple[str, ...] = ("*kernel",),
) -> NaturalRule:
    r"""BayesBiNN: the rule for a Bernoulli belief about every binary weight.

    With \(\theta \sim q\) and \(\bar\ell\) the mean negative log likelihood of a minibatch,

    \[ \lambda_i \leftarrow (1-\rho)\,\lambda_i - \rho\,\Big(\tfrac{\kappa}{2}
       \big(\bar\ell(\theta_{-i}, +1) - \bar\ell(\theta_{-i}, -1)\big) - \lambda_0/T\Big) \]

    λ₀ is the prior's, zero for a symmetric prior. The differences are `lamu.natural_rule.Flips`: D losses and a
    gradient a step up to 256 binary weights; beyond, one gradient and one product with the Hessian, which is the
    difference to second order in the one weight.
    A network has many more weights than the data determine: at T = 1 the belief is wide, and `fit(temperature=0.01)`
    predicts better.

    The paper takes relaxed samples, \(\theta_r = \tanh((\lambda + \delta)/\tau)\) with
    \(\delta = \tfrac12\log\frac{\epsilon}{1-\epsilon}\) and ε uniform, and one gradient there instead of the
    difference, \(s \odot \hat g(\theta_r)\) with \(s = \frac{1 - \theta_r^2 + \epsilon_s}{\tau\,(1 - \tanh^2\lambda +
    \epsilon_s)}\): that is `expectation=lamu.expectations.Relaxed(0.5, floor=0.1)`. It costs one gradient and is biased
    for τ > 0: a belief about six signs had a mean of .29 where the optimum has .73.

    Departures from the rule: the gradient is a minibatch's; beyond 256 binary weights the second-order difference;
    momentum with bias correction, if set.

    Args:
        learning_rate: ρ, the share of the old belief that a step forgets.
        expectation: how the gradient in μ is taken; `lamu.natural_rule.Flips()` where None,
            `lamu.expectations.Relaxed(0.5, floor=0.1)` for the paper's, whose floor bounds the slopes of weights that
            are nearly certain (the authors' program has 1e-10).
        init_half_logit: |λ| at the start, with the signs of the network's initial weights.
        rest_rate: the rate of the other weights and of dispersions.
        momentum: β in [0, 1), the decay of averaged gradients; zero for none.
        leaves: path patterns of the binary weights.

    Returns:
        The algorithm. Its posterior is the Bernoulli belief, with a point for the other weights: predictions average
        over sampled binary networks. `posterior.with_rule(PlugInMode())` predicts by the most probable one.

    Raises:
        ValueError: for a rate that is not positive, a momentum outside [0, 1), or a pattern that matches no leaf.

    Source: Meng, Bachmann & Khan (2020), section 3 and table 1; Titsias & Lázaro-Gredilla (2015) for the differences.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.discrete import bayesbinn
        >>> x, y = lamu.data.load("digits")
        >>> network = lamu.networks.MLP((64,), normalise=lamu.networks.BatchNorm())
        >>> model = lamu.Model(network, lamu.likelihoods.Categorical(10)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), bayesbinn(), epochs=10).posterior
        >>> lamu.scores.accuracy(posterior.predict(x), y) > 0.9
        True
    """
    return NaturalRule(
        subject=NetworkWeights(SignStart(init_half_logit), tuple(leaves)),
        expectation=Flips() if expectation is None else expectation,
        learning_rate=rate(learning_rate),
        rest_rate=rate(rest_rate, "rest_rate"),
        momentum=MovingAverage(decay(momentum, "momentum")) if momentum else NoMomentum(),
    )


@recipe("Meng et al. 2020, table 1")
def straight_through(
    learning_rate: RateLike = Annealed(1.0),
    rest_rate: RateLike = Annealed(0.1),
    momentum: float = 0.0,
    leaves: tuple[str, ...] = ("*kernel",),
) -> NaturalRule:
    r"""The straight-through estimator: trains a network of binary weights through latent real ones.

    \[ \Lambda \leftarrow \Lambda - \rho\, \nabla\bar\ell(\theta)\big|_{\theta = \mathrm{sign}\,\Lambda} \]

    The latent weights Λ = λ/κ are natural parameters, per row, of a Bernoulli belief on ±1 at zero temperature: its
    mean tanh κΛ is then the sign. They start as the network's initial weights. The other weights follow their
    gradient. One gradient a step.

    Departures from the rule: the expectation is taken at the sign; entropy and decay are dropped; momentum, if set.

    Args:
        learning_rate: ρ, a number, a schedule of steps, or `Annealed`.
        rest_rate: the rate of the other weights and of dispersions.
        momentum: β in [0, 1) of heavy-ball momentum; zero for none.
        leaves: path patterns of the binary weights.

    Returns:
        The algorithm. Its posterior is a point: the signs, and the other weights.

    Raises:
        ValueError: for a rate that is not positive, a momentum outside [0, 1), or a pattern that matches no leaf.

    Source: Bengio, Léonard & Courville (2013); Courbariaux, Bengio & David (2015); as the rule, Meng, Bachmann & Khan
        (2020), table 1.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.discrete import straight_through
        >>> x, y = lamu.data.load("digits")
        >>> network = lamu.networks.MLP((64,), normalise=lamu.networks.BatchNorm())
        >>> model = lamu.Model(network, lamu.likelihoods.Categorical(10)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), straight_through(), epochs=10).posterior
        >>> lamu.scores.accuracy(posterior.predict(x), y) > 0.9
        True
    """
    return NaturalRule(
        subject=NetworkWeights(LatentStart(), tuple(leaves)),
        expectation=ZeroTemperature(),
        geometry=Accumulation(),
        learning_rate=rate(learning_rate),
        rest_rate=rate(rest_rate, "rest_rate"),
        momentum=HeavyBall(decay(momentum, "momentum")) if momentum else NoMomentum(),
    )


@record
class Masked(PredictiveRule):
    """Averages over samples of the parameters and of the units' noise, with one noise per sample for all rows."""

    # \[ p(y^*) \approx \frac1S \sum_s p(y^* \mid f(\theta_s, z_s, x^*)), \qquad \theta_s \sim q,\; z_s \sim p(z) \]
    #
    # The network is otherwise in evaluation mode: batch statistics are used, not computed.
    #
    # Source: Gal & Ghahramani (2016), equation 6.

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        params_key, noise_key = jax.random.split(key)
        draws = _draws(belief, params_key, samples)
        keys = jax.vmap(lambda s: jax.random.fold_in(noise_key, s))(jnp.arange(samples))
        return _Noisy(DrawnOutputs(model, (network_state, draws, keys), draws["likelihood"], _outputs))


@record
class _Noisy:
    """Samples of the parameters, each with the key of its noise, for a network with random units."""

    drawn: DrawnOutputs

    @property
    def support(self) -> Support:
        return self.drawn.support

    def at(self, x: Rows, offset: Rows | None) -> MixturePredictive:
        model, (network_state, draws, _) = self.drawn.model, self.drawn.draws
        weights = model.complete(jax.tree.map(lambda leaf: _shape(leaf, leaf.shape[1:]), draws["network"]))
        if not draws_noise(model.network, weights, network_state, _shape(x, (1, *x.shape[1:]))):
            raise TypeError(f"Masked() draws the noise of a network, and {model.network.name} has none")
        return self.drawn.at(x, offset)


def _shape(leaf: Any, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(leaf.dtype))


@partial(jax.jit, static_argnums=2)
def _draws(belief: Belief, key: RandomKey, samples: int) -> Params:
    drawn = belief.draws(key, samples)
    count = max(leaf.shape[0] for leaf in jax.tree.leaves(drawn))
    # A point belief has one draw: it is repeated, because the noise differs.
    return jax.tree.map(lambda leaf: leaf[jnp.arange(samples) * count // samples], drawn)


@jax.jit
def _outputs(model: Target, network_state: State, draws: Params, keys: Array, x: Array, offset: Array | None) -> Array:
    def at_draw(draw: tuple[Params, PyTree]) -> Array:
        params, key = draw
        # Rows one at a time with the same key: noise depends on a row's number, and each row is then number zero.
        row = lambda x: model.outputs(params, network_state, x[None], key)[0][0]
        return with_offset(jax.vmap(row)(x), offset)

    return jnp.asarray(jax.lax.map(at_draw, (draws, jax.random.clone(keys))))


@record
class NoisyUnits(Wrapper):
    """Algorithm of `dropout` and `mc_dropout`: an optimiser on a network with noise on its units."""

    base: Algorithm  # the optimiser
    rule: PredictiveRule  # how the trained network predicts

    @property
    def choices(self) -> Choices:
        return Choices(
            family="mixture of two Gaussians a unit, one at zero, fixed rate and covariances",
            expectation="Delta",
            curvature="none",
            departures=("responsibilities are draws of the rate", *self.base.choices.departures),
        )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> State:
        model = objective.model
        params, network_state = jax.eval_shape(model.init, key, batch)
        network, weights = model.network, model.complete(params["network"])
        if not draws_noise(network, weights, network_state, batch.x, train=True):
            raise ValueError(
                f"the network {network.name} drops no units; give it dropout, for instance "
                "MLP((64, 64), dropout=Dropout(0.1))"
            )
        if isinstance(self.rule, Masked) and not draws_noise(network, weights, network_state, batch.x):
            raise ValueError(
                f"the network {network.name} drops units in training alone, and predictions by its masks "
                "are made with its statistics held; tell the two apart, in a Linen module by the arguments "
                "deterministic and use_running_average, or use dropout()"
            )
        return self.base.init(key, objective, batch)

    def preview(self, key: RandomKey, state: State, objective: Objective) -> Posterior:
        # Returns the optimiser's preview, with this algorithm's predictive rule.
        return replace(super().preview(key, state, objective), rule=self.rule)

    def posterior(self, key: RandomKey, state: State, objective: Objective, data: Data, trace: Trace) -> Posterior:
        # Returns the optimiser's posterior, with this algorithm's predictive rule.
        return replace(self.base.posterior(key, state, objective, data, trace), rule=self.rule)


@recipe("Khan & Rue 2021, section 4.3; Srivastava et al. 2014")
def dropout(optimizer: Algorithm | None = None) -> NoisyUnits:
    r"""Training with dropout: the rule for a mixture of two Gaussians a unit.

    Unit j's outgoing weights have the belief \(q_j = (1 - p)\, N(m_j, \cdot) + p\, N(0, \cdot)\), one component at
    zero, with the rate p and both covariances fixed. The delta method at the component chosen by a draw of the rate,
    with that draw instead of the responsibilities, gives the gradient of a network some of whose units are
    dropped:

    \[ m \leftarrow m - \rho\, \nabla \bar\ell\big(m \odot z\big), \qquad
       z_j \sim \mathrm{Bernoulli}(1 - p) / (1 - p) \]

    One gradient a step. The rate is set in the network, `MLP(..., dropout=Dropout(p))` or `GaussianDropout(p)`.

    Departures from the rule: the responsibilities are replaced by draws of the rate; the gradient is a minibatch's; the
    optimiser's own. Predictions are those of the mean network, without noise.

    Args:
        optimizer: the optimiser; `adam(Annealed(1e-2))` where None.

    Returns:
        The algorithm. Its posterior is the optimiser's, a point.

    Raises:
        ValueError: in `init`, for a network without noise on its units.
        TypeError: if `optimizer` is not an algorithm.

    Source: Khan & Rue (2021), section 4.3; Srivastava et al. (2014).

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.discrete import dropout
        >>> from lamu.networks.normalisation import Dropout
        >>> x, y = lamu.data.load("digits")
        >>> model = lamu.Model(lamu.networks.MLP((32,), dropout=Dropout(0.2)), lamu.likelihoods.Categorical(10))
        >>> fit = lamu.fit(model, (x, y), dropout(), epochs=5)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.9
        True
    """
    return NoisyUnits(_optimiser(optimizer), Sampled())


@recipe("Gal & Ghahramani 2016")
def mc_dropout(optimizer: Algorithm | None = None) -> NoisyUnits:
    r"""Monte Carlo dropout: dropout in training and in prediction.

    \[ p(y^* \mid x^*) \approx \frac1S \sum_s p\big(y^* \mid f(m \odot z_s, x^*)\big) \]

    with one mask \(z_s\) for all rows, so that each sample is a function: sample s depends only on the key and s. One
    gradient a step; S passes a prediction.

    Departures from the rule: those of `dropout`; the belief's spread is not learned: it is the rate's.

    Args:
        optimizer: the optimiser; `adam(Annealed(1e-2))` where None.

    Returns:
        The algorithm. Its posterior is the optimiser's point with the predictive rule `Masked`.

    Raises:
        ValueError: in `init`, for a network without noise on its units.
        TypeError: if `optimizer` is not an algorithm.

    Source: Gal & Ghahramani (2016), equation 6.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.discrete import mc_dropout
        >>> from lamu.networks.normalisation import Dropout
        >>> x, y = lamu.data.load("digits")
        >>> model = lamu.Model(lamu.networks.MLP((32,), dropout=Dropout(0.2)), lamu.likelihoods.Categorical(10))
        >>> posterior = lamu.fit(model, (x, y), mc_dropout(), epochs=5).posterior
        >>> bool((posterior.predict(x).epistemic > 0.0).all())
        True
    """
    return NoisyUnits(_optimiser(optimizer), Masked())


def _optimiser(optimizer: Algorithm | None) -> Algorithm:
    return adam(Annealed(1e-2)) if optimizer is None else require_part(optimizer, "optimizer")
