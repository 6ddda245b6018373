"""Dropout: noise on the units while training, none in prediction; and, with one choice changed, in prediction too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from lamu.algorithms.discrete.masked import Masked
from lamu.algorithms.optimisers.adam import adam
from lamu.data.batch import Batch
from lamu.networks.randomness import draws_noise
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import PredictiveRule, Sampled
from lamu.protocol import Algorithm, Choices, Wrapper, require_part
from lamu.rate import Annealed
from lamu.record import record
from lamu.typing import RandomKey

__all__ = ["NoisyUnits", "dropout", "mc_dropout"]


@record
class NoisyUnits(Wrapper):
    """The algorithm that `dropout` and `mc_dropout` make: an optimiser on a network with noise on its units."""

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

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> Any:
        model = objective.model
        params, network_state = jax.eval_shape(model.init, key, batch)
        network, weights = model.network, model.complete(params["network"])
        if not draws_noise(network, weights, network_state, batch.x, train=True):
            raise ValueError(
                f"the network {type(network).__name__} drops no units; give it dropout, for instance "
                "MLP((64, 64), dropout=Dropout(0.1))"
            )
        if isinstance(self.rule, Masked) and not draws_noise(network, weights, network_state, batch.x):
            raise ValueError(
                f"the network {type(network).__name__} drops units in training alone, and predictions by its masks "
                "are made with its statistics held; tell the two apart, in a Linen module by the arguments "
                "deterministic and use_running_average, or use dropout()"
            )
        return self.base.init(key, objective, batch)

    def preview(self, key: RandomKey, state: Any, objective: Objective) -> Posterior:
        # Returns the optimiser's preview, predicting by this algorithm's rule.
        return replace(super().preview(key, state, objective), rule=self.rule)

    def posterior(self, key: RandomKey, state: Any, objective: Objective, data: Any, trace: Any) -> Posterior:
        # Returns the optimiser's posterior, predicting by this algorithm's rule.
        return replace(self.base.posterior(key, state, objective, data, trace), rule=self.rule)


def dropout(optimizer: Algorithm | None = None) -> NoisyUnits:
    r"""Training with dropout: the rule for a mixture of two Gaussians a unit.

    Unit j's outgoing weights have the belief \(q_j = (1 - p)\, N(m_j, \cdot) + p\, N(0, \cdot)\), one component at
    zero, with the rate p and both covariances fixed. The delta method at the component that a draw of the rate chooses,
    with that draw in the place of the responsibilities, leaves the gradient of a network some of whose units are
    dropped:

    \[ m \leftarrow m - \rho\, \nabla \bar\ell\big(m \odot z\big), \qquad
       z_j \sim \mathrm{Bernoulli}(1 - p) / (1 - p) \]

    One gradient a step. The rate stands in the network, `MLP(..., dropout=Dropout(p))` or `GaussianDropout(p)`.

    Departures from the rule: the responsibilities are replaced by draws of the rate; the gradient is a minibatch's; the
    optimiser's own. Predictions are those of the mean network, without noise.

    Args:
        optimizer: the optimiser; `adam(Annealed(1e-2))` where none is given.

    Returns:
        The algorithm. Its posterior is the optimiser's, a point.

    Raises:
        ValueError: where the state is made, for a network without noise on its units.
        TypeError: for an `optimizer` that is no algorithm.

    Source: Khan & Rue (2021), section 4.3; Srivastava et al. (2014).

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.discrete.dropout import dropout
        >>> from lamu.networks.dropout import Dropout
        >>> x, y = lamu.data.load("digits")
        >>> model = lamu.Model(lamu.networks.MLP((32,), dropout=Dropout(0.2)), lamu.likelihoods.Categorical(10))
        >>> fit = lamu.fit(model, (x, y), dropout(), epochs=5)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.9
        True
    """
    return NoisyUnits(_optimiser(optimizer), Sampled())


def mc_dropout(optimizer: Algorithm | None = None) -> NoisyUnits:
    r"""Monte Carlo dropout: training with dropout, and prediction with it.

    \[ p(y^* \mid x^*) \approx \frac1S \sum_s p\big(y^* \mid f(m \odot z_s, x^*)\big) \]

    with one mask \(z_s\) for all rows, so that a draw is a function: draw s depends on the key and on s alone. One
    gradient a step; S passes a prediction.

    Departures from the rule: those of `dropout`; nothing is learned of the belief's width, which is the rate's.

    Args:
        optimizer: the optimiser; `adam(Annealed(1e-2))` where none is given.

    Returns:
        The algorithm. Its posterior is the optimiser's point with the predictive rule `Masked`.

    Raises:
        ValueError: where the state is made, for a network without noise on its units.
        TypeError: for an `optimizer` that is no algorithm.

    Source: Gal & Ghahramani (2016), equation 6.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.discrete.dropout import mc_dropout
        >>> from lamu.networks.dropout import Dropout
        >>> x, y = lamu.data.load("digits")
        >>> model = lamu.Model(lamu.networks.MLP((32,), dropout=Dropout(0.2)), lamu.likelihoods.Categorical(10))
        >>> posterior = lamu.fit(model, (x, y), mc_dropout(), epochs=5).posterior
        >>> bool((posterior.predict(x).epistemic > 0.0).all())
        True
    """
    return NoisyUnits(_optimiser(optimizer), Masked())


def _optimiser(optimizer: Any) -> Algorithm:
    return adam(Annealed(1e-2)) if optimizer is None else require_part(optimizer, "optimizer")
