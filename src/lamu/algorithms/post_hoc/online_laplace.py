"""Online Laplace: training with prior scales and noise that maximise the log evidence, updated every few epochs."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.optimisers import Optimizer
from lamu.algorithms.post_hoc.ggn_blocks import evaluated
from lamu.algorithms.post_hoc.laplace import Laplace, curvature_or, mode_finder, require_structure, structure_name
from lamu.algorithms.post_hoc.laplace_fit import RowSums, row_sums
from lamu.algorithms.post_hoc.laplace_posterior import AveragedGaussNewton
from lamu.algorithms.post_hoc.scale_search import PriorScales, ScalePerLayer, ScalePerWeight, prior_of
from lamu.base.arguments import require, whole_number
from lamu.base.compile_once import lenient
from lamu.data.batch import Batch
from lamu.families import Point
from lamu.likelihoods.bases import FixedDispersion
from lamu.objective import Objective
from lamu.objective.curvature import Curvature
from lamu.operators import AnyStructure, Dense, Diagonal, KroneckerFactored, StructureLike
from lamu.posterior import Posterior
from lamu.priors import LayerwiseNormal, LearnedNormal, Normal
from lamu.protocol import Algorithm, Choices, Info, Traits, Wrapper, recipe
from lamu.record import record, static
from lamu.typing import Array, Data, Number, Params, RandomKey, State, Trace

__all__ = ["OnlineLaplace", "OnlineState", "online_laplace"]

LOG = logging.getLogger("lamu")

# Conventions, not tuned.
_LARGEST = math.log(1e6)  # of the logarithm of a precision: scales from 0.001 to 1,000
_LARGEST_DENSE = 1024  # weights: a step on the evidence factors the matrix


@record
class OnlineState:
    """State carried between steps."""

    inner: State  # the state of the mode finder
    log_precision: Params  # the logarithms of the prior's precisions, a tree that is a prefix of the weights
    dispersion: Params  # the Gaussian noise, updated by the evidence; empty if the likelihood has none
    memory: State  # Adam's state, for both
    rows: Array  # the rows seen since the last update; negative in the burn-in
    sums: RowSums  # sums over the rows of the period's last epoch; until the next one those of the period before
    closed: Array  # whether the sums are of a finished period
    updates: Array  # number of updates so far


@record
class OnlineLaplace(Wrapper):
    """Algorithm of `online_laplace`."""

    base: Algorithm  # the algorithm that finds the mode
    scales: PriorScales  # which weights share a scale of the prior
    structure: StructureLike | None = static(default=None)  # of the curvature; None for a default by size
    curvature: Any = None  # the choice of curvature; None for the Gauss–Newton matrix
    burn_in: Number = 5.0  # epochs before the first period
    evidence_update_period: Number = 5.0  # epochs between updates by the evidence
    updates: int = static(default=20)  # adam steps on the evidence at the end of a period
    rate: Number = 0.1  # adam's learning rate on the logarithms of precisions and noise

    @property
    def traits(self) -> Traits:
        # Those of the mode finder; the scales of the prior are chosen here.
        return replace(self.base.traits, chooses_prior_scale=True, needs_data_pass=True)

    @property
    def choices(self) -> Choices:
        name = structure_name(self.structure) if self.structure else "dense or Kronecker"
        departures = ("minibatch curvature of moving weights", "prior and noise by steps on the evidence")
        departures = ("Gauss-Newton for the Hessian", *departures, "dispersions a point")
        curvature = type(self._curvature()).__name__
        return Choices(f"Gaussian, {name} precision", "Delta", curvature, departures=departures)

    def inner(self, state: OnlineState) -> State:
        # Returns the state of the mode finder.
        return state.inner

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> OnlineState:
        # Returns the first state of the mode finder, under the model's own prior and initial noise.
        prior = objective.model.prior
        if not isinstance(prior, Normal | LearnedNormal | LayerwiseNormal):
            raise TypeError(
                f"online_laplace() learns the scales of a normal prior, and {type(prior).__name__} is none; give "
                "Normal(scale), or use laplace()"
            )
        params, network_state = objective.model.init(key, batch)
        log_precision = self.scales.start(prior.gaussian(params["network"]).precision.diagonal(params["network"]))
        dispersion = params["likelihood"] if objective.model.likelihood.quadratic else {}
        under = self._objective_under(objective, log_precision, dispersion)
        fixed = {"network": params["network"], "likelihood": {} if dispersion else params["likelihood"]}
        measure = lambda key: self._measured(key, under, fixed, network_state, batch)
        shapes = jax.eval_shape(measure, key)
        sums = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        dtype = sums.rows.dtype
        return OnlineState(
            inner=self.base.init(jax.random.clone(key), under, batch),
            log_precision=log_precision,
            dispersion=dispersion,
            memory=self._adam().init((log_precision, self._no_factor(sums, dispersion))),
            rows=jnp.asarray((self.evidence_update_period - 1 - self.burn_in) * objective.data_size, dtype),
            sums=sums,
            closed=jnp.ones((), bool),
            updates=jnp.zeros((), jnp.int32),
        )

    def step(self, key: RandomKey, state: OnlineState, batch: Batch, objective: Objective) -> tuple[OnlineState, Info]:
        # Returns the state after a step of the mode finder, and after an update at the end of a period.
        step_key, curvature_key = jax.random.split(key)
        under = self._objective_under(objective, state.log_precision, state.dispersion)
        inner, info = self.base.step(step_key, state.inner, batch, under)
        epoch = jnp.asarray(objective.data_size, state.rows.dtype)
        point = self._point(step_key, state.inner, under)

        def with_curvature() -> tuple[RowSums, Array]:
            measured = self._measured(curvature_key, under, point.mean, point.network_state, batch)
            earlier = jax.tree.map(lambda leaf: jnp.where(state.closed, jnp.zeros_like(leaf), leaf), state.sums)
            return earlier.add(measured), jnp.zeros_like(state.closed)

        # Curvature only in the last epoch of a period: it costs as much as a few steps, and old curvature is stale.
        last = state.rows >= (self.evidence_update_period - 1) * epoch
        sums, closed = jax.lax.cond(last, with_curvature, lambda: (state.sums, state.closed))
        rows = state.rows + batch.count.astype(state.rows.dtype)
        params = self._point(step_key, inner, under).mean
        period_ended = rows >= self.evidence_update_period * epoch
        updated = jax.lax.cond(
            period_ended,
            lambda: self._updated(state, sums, params, objective),
            lambda: (state.log_precision, state.dispersion, state.memory),
        )
        rows = jnp.where(period_ended, rows - self.evidence_update_period * epoch, rows)
        new = OnlineState(
            inner=inner,
            log_precision=updated[0],
            dispersion=updated[1],
            memory=updated[2],
            rows=rows,
            sums=sums,
            closed=closed | period_ended,
            updates=state.updates + period_ended.astype(jnp.int32),
        )
        return new, info

    def preview(self, key: RandomKey, state: OnlineState, objective: Objective) -> Posterior:
        # Returns the state's posterior before the pass over the data: the point, under the current prior.
        under = self._objective_under(objective, state.log_precision, state.dispersion)
        point = self._point(key, state.inner, under)
        model = replace(under.model, likelihood=objective.model.likelihood)
        return replace(point, model=model, belief=Point({**point.mean, **self._noise(state, point)}))

    def posterior(
        self, key: RandomKey, state: OnlineState, objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns Laplace's Gaussian under the learned prior and noise, after one pass over the data.
        #
        # Without data it has the curvature of the period's last epoch, which must have begun.
        if not int(state.updates):
            LOG.warning(
                "online_laplace: the run ended before its first update, after %s epochs; the prior is the model's own. "
                "Train longer, or give a smaller burn_in and evidence_update_period",
                float(self.burn_in + 1),
            )
        point = self.preview(key, state, objective)
        objective = replace(objective, model=point.model)
        structure = self._structure(point.mean["network"], point.network_state)
        if data is not None:
            end = Laplace(base=self.base, structure=structure, curvature=self._curvature())
            return end.around(point, key, objective, data)
        if float(state.sums.rows) == 0.0:
            raise ValueError("there is no curvature yet, and no data to take it from; give the data")
        return state.sums.finish(objective, point.mean, point.network_state).integrated(objective, key)

    def _structure(self, weights: Params, network_state: State) -> AnyStructure:
        """Returns the structure: by default the richest one that fits the number of weights."""
        if self.structure is not None:
            return self.structure
        if tree.dimension(weights) <= _LARGEST_DENSE:
            return Dense
        apart = isinstance(self.scales, ScalePerWeight) or bool(jax.tree.leaves(network_state))
        return Diagonal if apart else KroneckerFactored()

    def _curvature(self) -> Curvature:
        return AveragedGaussNewton() if self.curvature is None else self.curvature

    def _objective_under(self, objective: Objective, log_precision: Params, dispersion: Params) -> Objective:
        """Returns the objective under a given prior and, if the evidence updates it, a given noise."""
        model = objective.model
        prior: Any = prior_of(log_precision, getattr(model.prior, "loc", 0.0))
        likelihood: Any = FixedDispersion(model.likelihood, dispersion) if dispersion else model.likelihood
        return replace(objective, model=replace(model, prior=prior, likelihood=likelihood))

    def _measured(
        self, key: RandomKey, objective: Objective, params: Params, network_state: State, batch: Batch
    ) -> RowSums:
        structure = self._structure(params["network"], network_state)
        return row_sums(structure, self._curvature(), evaluated(objective, network_state), params, batch, key)

    def _point(self, key: RandomKey, inner: State, objective: Objective) -> Posterior:
        return self.base.posterior(key, inner, objective, None, None)

    def _noise(self, state: OnlineState, point: Posterior) -> Params:
        return {"likelihood": state.dispersion or point.mean["likelihood"]}

    def _no_factor(self, sums: RowSums, dispersion: Params) -> Any:
        """Returns zero logarithms of the noise's factors, one for each output; None if it is not updated."""
        return jnp.zeros_like(sums.misfit) if dispersion else None

    def _adam(self) -> Optimizer:
        import optax

        return optax.adam(self.rate)

    def _updated(self, state: OnlineState, sums: RowSums, params: Params, objective: Objective) -> State:
        """Returns the prior, the noise and Adam's state after steps on the evidence at fixed parameters."""
        under = self._objective_under(objective, state.log_precision, state.dispersion)
        fit = sums.finish(under, params, {})
        optimiser = self._adam()

        def loss(logs: Params) -> Array:
            precision, noise = jax.tree.map(jnp.exp, logs)
            return -fit.log_evidence(under, precision, noise)

        def body(carry: State, _: None) -> tuple[State, None]:
            logs, memory = carry
            gradient = jax.grad(loss)(logs)
            with lenient():
                step, new_memory = optimiser.update(gradient, memory, logs)
            new = jax.tree.map(lambda leaf, by: leaf + by.astype(leaf.dtype), logs, step)
            new = (jax.tree.map(lambda leaf: jnp.clip(leaf, -_LARGEST, _LARGEST), new[0]), new[1])
            # A matrix that is singular to rounding has no gradient; the prior then does not change.
            finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((gradient, new))]))
            return jax.tree.map(lambda a, b: jnp.where(finite, a, b), (new, new_memory), carry), None

        start = (state.log_precision, self._no_factor(sums, state.dispersion))
        (logs, memory), _ = jax.lax.scan(body, (start, state.memory), None, length=self.updates)
        log_precision, log_factor = logs
        dispersion = state.dispersion
        if dispersion:
            likelihood: Any = objective.model.likelihood
            dispersion = likelihood.scale_noise(dispersion, jnp.exp(log_factor))
        return log_precision, dispersion, memory


@recipe("Immer et al. 2021, algorithm 1")
def online_laplace(
    optimizer: Algorithm | None = None,
    scales: PriorScales | None = None,
    structure: StructureLike | None = None,
    curvature: Any = None,
    burn_in: Number = 5.0,
    evidence_update_period: Number = 5.0,
    updates: int = 20,
    rate: Number = 0.1,
) -> OnlineLaplace:
    r"""Training by the evidence: updates the scales of the prior and the Gaussian noise while the mode is found.

    The mode is found by any optimiser, \(m \leftarrow m - \rho \nabla \bar\ell_{\delta,\sigma}(m)\), under a prior
    of precisions δ and a noise σ. At the end of every period, some steps of Adam move their logarithms up the Laplace
    evidence, with m and the period's curvature H fixed:

    \[ \log Z(\delta, \sigma) \approx -\frac{\ell_{\delta,\sigma}(m)}{T} + \frac{D}{2} \log 2\pi
       - \frac12 \log\det \frac1T \big( H_\sigma + \operatorname{diag}(\delta) \big), \qquad
       H_\sigma = p \sum_i w_i J_i^\top \Lambda_i J_i \]

    so that no validation rows are needed. The posterior is that of `laplace` under the learned prior
    (`posterior.model.prior`, a `LayerwiseNormal`), of the same structure: L-BFGS finds the mode from the last
    step, for classes the curvature is averaged over the belief, and `evidence`, if a mode is found, compares models.
    Prediction is linearised.

    A step costs the mode finder's gradient; those of a period's last epoch also cost a curvature (for
    Kronecker factors a backward pass an output). An update costs one eigendecomposition a factor, or, for a full
    matrix, `updates` factorisations. Under `jax.vmap` both branches run at every step.

    Departures from the rule: the Gauss–Newton matrix for the Hessian, with the given structure; its sums are over the
    minibatches of the last epoch of the period, taken while the weights moved, and Kronecker factors are averaged
    separately; prior and noise are points, updated by the evidence at weights that need not be its mode; with
    several outputs the effective weights are shared evenly among their noises. Dispersions of likelihoods other than
    the Gaussian are learned with the mode. Logarithms of precisions stay within ±13.8 (scales from 0.001 to 1,000).

    Args:
        optimizer: the algorithm that finds the mode, with a point posterior; `adam(Annealed(1e-2))` where None.
        scales: which weights share a scale: `ScalePerLayer()` where None, `OneScale()`, or `ScalePerWeight()`.
        structure: of the curvature: `Dense`, `KroneckerFactored()` or `Diagonal`. By default
            dense up to 1,024 weights, and above Kronecker factors, or the diagonal if the network has batch
            statistics or every weight a scale of its own. Kronecker factors are cheap, and on small regressions
            preferred narrower priors than the full matrix.
        curvature: the estimate of the Hessian, of `lamu.objective.curvature`, as in `laplace`: the Gauss–Newton matrix
            where None, for classes averaged at the end; `SampledGaussNewton()` is for many classes.
        burn_in: epochs under the model's own prior, before the first period's last epoch.
        evidence_update_period: epochs between updates by the evidence, one or more.
        updates: steps on the evidence at the end of a period.
        rate: their learning rate.

    Returns:
        The algorithm. Its posterior is the Gaussian, with `evidence`.

    Raises:
        TypeError: if `optimizer` is not an algorithm, or `scales` not a choice of scales, and, when it runs, for a
            prior that is not normal.
        ValueError: for a scale per weight under Kronecker factors, which have one per layer, and for invalid numbers of
            the schedule.

    Source: Immer, Bauer, Fortuin, Rätsch & Khan (2021), algorithm 1; MacKay (1992).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.online_laplace(), epochs=30).posterior
        >>> sorted(posterior.model.prior.scale["layers"])
        [0, 1]
    """
    scales = ScalePerLayer() if scales is None else scales
    if isinstance(scales, type) or not isinstance(scales, PriorScales):
        raise TypeError(f"scales={scales!r} does not say which weights share one; give for instance ScalePerLayer()")
    require_structure(structure)
    if isinstance(scales, ScalePerWeight) and structure is not None and structure.by_factors:
        raise ValueError(
            "Kronecker factors hold one scale of the prior a layer, and scales=ScalePerWeight() asks for one a weight; "
            "give structure=Diagonal, or scales=ScalePerLayer()"
        )
    for name, value, least in (("burn_in", burn_in, 0), ("evidence_update_period", evidence_update_period, 1)):
        require(value >= least, f"{name}={value!r} must be at least {least}")
    updates = whole_number("updates", updates)
    require(rate > 0, f"rate={rate!r} must be positive")
    return OnlineLaplace(
        mode_finder(optimizer),
        scales,
        structure,
        curvature_or(curvature, None),
        float(burn_in),
        float(evidence_update_period),
        updates,
        rate,
    )
