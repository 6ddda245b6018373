"""The neural linear model: exact conjugate regression on learned features, with unknown noise."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.closed_form.linear_regression import Directions, integrate_noise
from lamu.algorithms.post_hoc.laplace import mode_finder
from lamu.algorithms.post_hoc.mode import dispersions_around, is_pretrained
from lamu.algorithms.post_hoc.subnetwork import HeadWeights
from lamu.base.arguments import require
from lamu.data.batch import Batch, with_offset
from lamu.families.matrix_normal import LinearNormalGamma
from lamu.model import supervised
from lamu.objective import Objective
from lamu.operators.kronecker import as_matrix
from lamu.posterior import Posterior
from lamu.predictives.gaussian import StudentRule, head_features, head_size, output_units, require_head
from lamu.priors import independent_normal
from lamu.protocol import Algorithm, Choices, Traits, Wrapper, recipe
from lamu.record import record
from lamu.typing import Array, Belief, Data, Number, OperatorTree, Params, RandomKey, State, Trace

__all__ = ["NeuralLinear", "absorb", "neural_linear"]

_ROWS = 1024  # rows at a time in a pass over the data


@record
class NeuralLinear(Wrapper):
    """Algorithm of `neural_linear`."""

    base: Algorithm  # the algorithm that learns the features
    prior_rows: Number = 1.0  # number of rows that the noise's prior is worth

    @property
    def traits(self) -> Traits:
        # Those of the feature learner.
        return replace(self.base.traits, needs_data_pass=True, linearises=True)

    @property
    def choices(self) -> Choices:
        departures = ("features a point", "priors in units of the mode's noise")
        return Choices("Normal-Gamma an output, last layer", "Exact", "none needed", departures=departures)

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> State:
        # Returns the first state of the feature learner.
        likelihood = objective.model.likelihood
        if not likelihood.quadratic or set(likelihood.init(batch.y)) != {"log_scale"}:
            name = likelihood.name
            raise TypeError(
                f"neural_linear() learns the noise of Gaussian(), and here is {name} without one; use last_layer(), or "
                "Gaussian() without a scale"
            )
        return self.base.init(key, objective, batch)

    def posterior(self, key: RandomKey, state: State, objective: Objective, data: Data, trace: Trace) -> Posterior:
        # Returns the exact posterior of head and noise given the features, after one pass over the data.
        point = self.base.posterior(key, state, objective, data, trace)
        model, head_point = HeadWeights().select(supervised(objective.model), point)
        head = head_point.mean["network"]
        dispersions: Params | None = None
        if is_pretrained(objective.model, point, data) and objective.model.start is None:
            dispersions = dispersions_around(point, objective, data)  # the point's are from the targets only
        noise = jnp.exp(2 * (dispersions or point.mean["likelihood"])["log_scale"])
        row = data.example(1).x
        require_head(model, head, point.network_state, row, noise.shape[0], "neural_linear()")
        units = np.asarray(output_units(model, head, point.network_state, row)).round(3)
        if not np.allclose(units, 1, rtol=1e-3):
            raise TypeError(
                f"neural_linear() takes the same features for every output, and here they are {units.tolist()} times "
                "those of output 0, as where Standardised(unit=) differs by output; leave unit out and take "
                "model.standardised(x, y), which scales targets, or use last_layer()"
            )
        prior_moments = independent_normal(model.free_prior, head)
        if prior_moments is None:
            name = type(model.prior).__name__
            raise TypeError(f"neural_linear() needs independent normal weights, not {name}; give Normal(scale)")
        mean, delta = prior_moments
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(head)):
            head = mean
        sums, rest = _totals(replace(objective, model=model), head, point.network_state, data)
        noise = _unit(noise, (mean, delta, head), sums, objective.temperature)
        prior = _prior(mean, delta, noise, self.prior_rows)
        prior_belief = _tempered_prior(prior, objective.temperature)
        start = Posterior(
            model,
            prior_belief,
            point.network_state,
            StudentRule(),
            key,
            temperature=objective.temperature,
        )
        belief = prior_belief.after(*sums, around=head)
        width, outputs = head_size(head)
        constant = (1 - 1 / objective.temperature) * outputs * width / 2 * math.log(2 * math.pi)
        evidence = belief.log_normaliser() - prior.log_normaliser() / objective.temperature + rest + constant
        return replace(start, belief=belief, evidence=evidence)


@recipe("Snoek et al. 2015; Riquelme et al. 2018")
def neural_linear(optimizer: Algorithm | None = None, prior_rows: Number = 1.0) -> NeuralLinear:
    r"""The neural linear model: features by any optimiser, and Bayesian regression with unknown noise on them.

    With \(\phi(x)\) the features at the mode, including the bias's one, and for each output

    \[ y = w^\top \phi(x) + \varepsilon, \quad \varepsilon \sim N(0, 1/\tau), \qquad
       \tau \sim \mathrm{Gamma}\big(\tfrac r2, \tfrac r2 \hat\sigma^2\big), \quad
       w \mid \tau \sim N\big(m_0, (\tau \hat\sigma^2 \delta)^{-1}\big) \]

    the posterior is exact: \(\lambda \leftarrow \lambda_0 + \sum_i w_i t(x_i, y_i) / T\) of the Normal–Gamma family,
    and the prediction is Student's t in closed form. At \(\tau = 1/\hat\sigma^2\) its belief about w is that of
    `last_layer` with known noise; here the noise is uncertain too, which matters if rows are few. After the
    steps that find the mode, one pass over the data without a gradient, and one factorisation an output.
    `lamu.algorithms.post_hoc.neural_linear.absorb` adds further rows in closed form, without the old ones.

    Departures from the rule: the features are a point; the prior of the weights is in units of the noise, so that it is
    conjugate, and \(\hat\sigma\), the noise at the mode, sets that unit and the location of the noise's prior
    (it is worth r rows). If the weights follow more than half of the rows, the mode's noise is near zero, and
    \(\hat\sigma\) comes from integrating over the noise.

    Args:
        optimizer: the algorithm that learns the features, with a point posterior; `adam(Annealed(1e-2))` where None.
        prior_rows: r, the number of rows that the mode's noise is worth.

    Returns:
        The algorithm. Its posterior's model has every weight frozen but the head's; its belief is a
        `LinearNormalGamma`, and its `evidence` that of the head.

    Raises:
        TypeError: if `optimizer` is not an algorithm, and, when it runs, for a likelihood other than `Gaussian()`
            with unknown noise, a prior that is not normal, or a head that is not a dense layer.
        ValueError: for `prior_rows` that are not positive.

    Source: Snoek et al. (2015); Riquelme, Tucker & Snoek (2018), section 3; Bishop (2006), section 3.3.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.neural_linear(), epochs=10).posterior
        >>> float(posterior.predict(x).freedom[0])  # one row more than there are
        443.0
    """
    require(prior_rows > 0, f"prior_rows={prior_rows!r} rows make no prior of the noise; give a positive number")
    return NeuralLinear(mode_finder(optimizer), prior_rows * 1.0)


def absorb(
    posterior: Posterior, data: Data, temperature: Number | None = None, likelihood_power: Number = 1.0
) -> Posterior:
    r"""Returns a posterior of `neural_linear` after more rows, in closed form; the features do not change.

    \[ \Lambda \leftarrow \Lambda + \tfrac1T \sum_i w_i \phi_i \phi_i^\top, \qquad
       \Lambda m \leftarrow \Lambda m + \tfrac1T \sum_i w_i y_i \phi_i \]

    and likewise the noise's shape and rate: the posterior is as if these rows had been in the last pass,
    in any order and any batches. One pass through the network and one factorisation an output; no gradient, and no
    earlier rows.

    Args:
        posterior: of `neural_linear`.
        data: rows, as `fit` takes them.
        temperature: the temperature T at which it was fitted; its own where None.
        likelihood_power: the power of the likelihood with which it was fitted.

    Returns:
        The posterior, with the evidence of all rows.

    Raises:
        TypeError: for a posterior with another belief.

    Source: Bishop (2006), section 3.3; Riquelme, Tucker & Snoek (2018), section 3.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.post_hoc.neural_linear import absorb
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> before = lamu.fit(model, (x[:300], y[:300]), lamu.algorithms.neural_linear(), epochs=10).posterior
        >>> after = absorb(before, (x[300:], y[300:]))
        >>> bool((after.predict(x[300:]).epistemic < before.predict(x[300:]).epistemic).all())
        True
    """
    if not isinstance(posterior.belief, LinearNormalGamma):
        raise TypeError(
            f"rows can be absorbed by a posterior of neural_linear(), and this is a {type(posterior.belief).__name__}; "
            "for other Gaussian beliefs use posterior.model.with_prior(posterior) and fit again"
        )
    rows = posterior.model.rows(data)
    temperature = posterior.temperature if temperature is None else temperature
    objective = Objective(posterior.model, float(rows.count), temperature, likelihood_power)
    old: Belief = posterior.belief
    sums, rest = _totals(objective, old.location, posterior.network_state, rows)
    new = old.after(*sums, old.location)
    evidence = None
    if posterior.evidence is not None:
        evidence = posterior.evidence + new.log_normaliser() - old.log_normaliser() + rest
    return replace(posterior, belief=new, evidence=evidence, convergence=None, temperature=temperature)


def _prior(mean: Params, delta: Params, noise: Array, prior_rows: Number) -> LinearNormalGamma:
    """Returns the conjugate prior: the model's for the weights in units of the noise, and the noise worth some rows."""
    width, outputs = head_size(mean)
    rows = tree.ravel(delta)[0].reshape(width, outputs).T * noise[:, None]
    shape = jnp.full_like(noise, prior_rows / 2)
    return LinearNormalGamma.of(mean, jax.vmap(jnp.diag)(rows), shape, shape * noise)


def _tempered_prior(prior: LinearNormalGamma, temperature: Number) -> LinearNormalGamma:
    """Returns the prior to the power 1/T. It need not be a density, as long as the posterior is one."""
    half = prior.root.shape[1] / 2
    shape = 1 - half + (prior.shape - 1 + half) / temperature
    return LinearNormalGamma(prior.location, prior.root / temperature**0.5, shape, prior.rate / temperature)


def _unit(noise: Array, head: tuple[Params, Params, Params], sums: tuple[Array, ...], temperature: Number) -> Array:
    """Returns the noise that is the priors' unit: the mode's, if weights do not follow more than half the rows."""
    # Otherwise the mode's noise is near zero, and the noise is integrated over, as in `lamu.regression`.
    parts = [np.asarray(as_matrix(part, head_size(part))[0], float) for part in head]
    gram, cross, squares, weight = (np.asarray(part, float) * float(temperature) for part in sums)
    units = []
    for k, mode_noise in enumerate(np.asarray(noise, float)):
        mean, deviation, around = parts[0][:, k], parts[1][:, k] ** -0.5, parts[2][:, k]
        curvature, basis = np.linalg.eigh(deviation[:, None] * gram * deviation)
        curvature = np.maximum(curvature, 0.0)
        if np.sum(curvature / (curvature + mode_noise)) <= weight / 2:  # NaN is not
            units.append(mode_noise)
            continue
        rows = Directions(
            curvature,
            basis.T @ (deviation * cross[:, k]),
            float(squares[k]),
            float(weight),
            basis.T @ ((mean - around) / deviation),
            np.ones(len(curvature)),
            np.zeros(len(curvature), bool),
        )
        belief = integrate_noise(rows, lambda log_noise: -(log_noise**2) / 18)
        units.append(belief.rate / belief.shape)
    return jnp.asarray(np.array(units), noise.dtype)


def _totals(objective: Objective, head: Params, network_state: State, data: Data) -> tuple[OperatorTree, Array]:
    """Returns the sums over rows for the belief, and the part of their log density that is free of the weights."""
    total: OperatorTree = None
    for batch in data.batches(min(getattr(data, "count", _ROWS), _ROWS)):
        part = batch.count, _sums(objective, head, network_state, batch)
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    count, sums = total
    share = objective.data_size / count  # one, where N is the number of rows
    *sums, rest = jax.tree.map(lambda leaf: leaf * tree.cast(share, leaf), sums)
    return tuple(sums), rest


@jax.jit
def _sums(objective: Objective, head: Params, network_state: State, batch: Batch) -> tuple[Array, ...]:
    """Returns the batch's sums for the belief, and the part of its log density that is free of the weights."""
    model = supervised(objective.model)
    f, phi = head_features(model, head, network_state, batch.x)
    f = with_offset(f, batch.offset)
    plain = {"log_scale": jnp.zeros(f.shape[1], f.dtype)}
    log_prob = lambda f: model.likelihood.log_prob(plain, f, batch.y)
    # The derivative of a normal log density of unit variance is the residual, in the units of the weights.
    residual = jax.grad(lambda f: jnp.sum(log_prob(f)))(f)
    share = objective.likelihood_power / objective.temperature
    rest = log_prob(f) + jnp.sum(residual**2, axis=1) / 2
    weight = (share * batch.mask * batch.weight).astype(f.dtype)
    # A row of weight zero may hold any value, and NaN times zero would still be NaN.
    phi = jnp.where(weight[:, None] > 0, phi, jnp.zeros_like(phi))
    residual = jnp.where(weight[:, None] > 0, residual, jnp.zeros_like(residual))
    weighted = phi.T * weight[None]
    squares = jnp.sum(residual**2 * weight[:, None], axis=0)
    return weighted @ phi, weighted @ residual, squares, jnp.sum(weight), share * batch.total(rest)
