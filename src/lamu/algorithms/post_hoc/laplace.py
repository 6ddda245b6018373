"""Laplace's method: the Gaussian with the curvature at the mode, as a recipe of parts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from lamu import memory, tree
from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit, bytes_held, check_memory, fit_laplace, fit_with_gradient
from lamu.algorithms.post_hoc.laplace_posterior import (
    AveragedGaussNewton,
    posterior_at_mode,
    require_positive,
    warn_of_spikes,
    with_curvature_averaged,
    with_dispersion_integrated,
    with_noise_integrated,
)
from lamu.algorithms.post_hoc.marginal_likelihood import empirical_bayes
from lamu.algorithms.post_hoc.mode import (
    MOST_ROUNDS,
    Polished,
    dispersions_around,
    effective_parameters,
    is_pretrained,
    log_gradient_norm,
    noise_factor,
    polish,
    residual_at,
    residual_of,
)
from lamu.algorithms.post_hoc.subnetwork import AllWeights, HeadWeights, WeightsChoice, matching
from lamu.base.compile_once import subkey
from lamu.data.batch import Batch
from lamu.families import Point
from lamu.model import Model
from lamu.objective import Objective
from lamu.objective.curvature import Curvature, Damped, GaussNewton, Hessian, SampledGaussNewton, SquaredGradients
from lamu.operators import (
    AnyStructure,
    Dense,
    DenseBlocks,
    Diagonal,
    KroneckerFactored,
    LowRankStructure,
    MatrixFreeStructure,
    OutputBlocks,
    OutputEigen,
    StructureLike,
)
from lamu.operators.interface import is_operator
from lamu.posterior import Posterior
from lamu.predictives import Linearised, LinearisedMarginal, PredictiveRule, Probit
from lamu.priors import LearnedNormal, SpikeAndSlab
from lamu.protocol import Algorithm, Choices, Traits, Wrapper, recipe, require_part
from lamu.rate import Annealed
from lamu.record import record, static
from lamu.supports import Classes
from lamu.typing import Data, OperatorTree, Params, RandomKey, State, Trace

__all__ = ["Laplace", "curvature_or", "laplace", "last_layer", "mode_finder", "require_structure", "structure_name"]


# Numbers that decide the default structure: conventions of memory and time, not tuned.
_LARGEST_DENSE = 4096  # weights with one matrix; more have Kronecker factors
_LARGEST_DENSE_HEAD = 20_000  # the same for `last_layer`
_LARGEST_DENSE_AS_GIVEN = 1024  # for a pretrained network: a tenth of the time that its training took
_MOST_FACTORED_OUTPUTS = 1000  # of such a network's head, beyond which `OutputEigen` is kept
_RANK = 20  # if neither a matrix nor Kronecker factors are possible
_CLASSES = (Dense, Diagonal, DenseBlocks, OutputBlocks, OutputEigen)
_RECORDS = (KroneckerFactored, LowRankStructure, MatrixFreeStructure)
_WORDS = {
    GaussNewton: "Gauss-Newton for the Hessian",
    AveragedGaussNewton: "Gauss-Newton for the Hessian, of classes averaged over the linearised outputs",
    SampledGaussNewton: "Gauss-Newton by sampled labels for the Hessian",
    SquaredGradients: "empirical Fisher for the Hessian",
}


@record
class Laplace(Wrapper):
    """Algorithm of `laplace`."""

    base: Algorithm  # the algorithm that finds the mode
    weights: WeightsChoice = AllWeights()  # the weights of the belief
    # The operator class of the precision, a record of it, or None for a default by the number of weights.
    structure: StructureLike | None = static(default=None)
    curvature: Any = AveragedGaussNewton()  # the estimate of the Hessian
    # Number of weights up to which the default structure is dense.
    largest_dense: int = static(default=_LARGEST_DENSE)
    # The default structure for more; None for Kronecker factors, or a low rank where those do not apply.
    beyond: StructureLike | None = static(default=None)
    rule: PredictiveRule | None = None  # the predictive rule; None for the linearised rule

    @property
    def traits(self) -> Traits:
        # Those of the mode finder; the scale of the prior is chosen here.
        linearises = self.rule is None or isinstance(self.rule, Linearised | LinearisedMarginal | Probit)
        return replace(self.base.traits, chooses_prior_scale=True, needs_data_pass=True, linearises=linearises)

    @property
    def choices(self) -> Choices:
        beyond = "Kronecker" if self.beyond is None else structure_name(self.beyond)
        structure = f"dense or {beyond}" if self.structure is None else structure_name(self.structure)
        words = _WORDS.get(type(self.curvature))
        departures = (*(() if words is None else (words,)), "one step at the mode", "dispersions a point")
        family = f"Gaussian, {structure} precision{self.weights.words}"
        curvature = type(self.curvature).__name__
        return Choices(family, "Delta", curvature, departures=(*self.weights.departures, *departures))

    def check_memory(self, objective: Objective, shapes: Callable[[], Params]) -> None:
        # Logs the memory of the precision, and raises a ValueError if it cannot fit.
        super().check_memory(objective, shapes)
        model, patterns = objective.model, self.weights.patterns_of(objective.model)
        if patterns is None:
            return
        weights = shapes()["network"]
        chosen = matching(weights, patterns)
        head = matching(weights, (model.network.head if isinstance(model, Model) else "*",))
        check_memory(self._structure_of(chosen), chosen, head)

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> State:
        _require_suited(self.curvature, objective)  # before the steps, not after them
        model = objective.model
        if isinstance(model.prior, SpikeAndSlab) and isinstance(self.weights, AllWeights) and not model.identified:
            raise ValueError(
                "Laplace's method takes one mode, and a network with hidden units has one for every choice of "
                "weights in the slab of a SpikeAndSlab prior; take lamu.algorithms.ivon() or lamu.mcmc.nuts(), or a "
                "prior without a spike, such as LearnedNormal()"
            )
        return super().init(key, objective, batch)

    def posterior(self, key: RandomKey, state: State, objective: Objective, data: Data, trace: Trace) -> Posterior:
        # Returns the Gaussian at the mode, after polishing the mode.
        return self.around(self.base.posterior(key, state, objective, data, trace), key, objective, data)

    def around(self, point: Posterior, key: RandomKey, objective: Objective, data: Data) -> Posterior:
        """Returns the Gaussian at the mode near a point."""
        _require_suited(self.curvature, objective)
        # The mode, and the weights of the belief.
        open_scale = isinstance(objective.model.prior, LearnedNormal)
        pretrained = is_pretrained(objective.model, point, data)
        determined = None if pretrained else self._determined_beside(point, objective, data)
        model, point = self.weights.select(objective.model, point, objective, data)
        # The curvature at the mode, in a structure that fits, by a pass over the rows.
        structure = self._structure_of(point.mean["network"])
        if pretrained and self.structure is None and tree.dimension(point.mean["network"]) > _LARGEST_DENSE_AS_GIVEN:
            structure = self._factored(structure, objective.model, data)
        objective = replace(objective, model=model)
        labels = subkey(jax.random.clone(key), 1)

        open_noise = False
        if pretrained and isinstance(model, Model) and model.start is None:
            # Without dispersions among the pretrained parameters, only the spread of the targets is known.
            dispersions = dispersions_around(point, objective, data)
            if dispersions is not None:
                point = replace(point, belief=Point({**point.mean, "likelihood": dispersions}))
                open_noise = model.quadratic

        def look(params: Params) -> LaplaceFit:
            point_posterior, labels_again = replace(point, belief=Point(params)), jax.random.clone(labels)
            return fit_laplace(structure, point_posterior, objective, data, self.curvature, labels_again)

        def find(mode: LaplaceFit, under: Objective, rounds: int = MOST_ROUNDS) -> Polished:
            if not pretrained:
                return polish(look, mode, under, data, rounds, determined)
            # A changed noise changes the gradient.
            same = mode.params is first.params
            gradient_or_data, residual_fn = (gradient, residual_of) if same else (data, residual_at)
            return residual_fn(mode, under, gradient_or_data, open_scale)

        def first_fit() -> tuple[LaplaceFit, State]:
            if not pretrained:
                return look(point.mean), None
            return fit_with_gradient(structure, point, objective, data, self.curvature, jax.random.clone(labels))

        weights = tree.dimension(point.mean["network"])
        first, gradient = first_fit()
        if self.structure is None and structure.by_factors and not _mostly_layers(first.curvature, weights):
            structure = LowRankStructure(_RANK)
            first, gradient = first_fit()
        if open_noise and not open_scale:  # which is chosen together with the noise
            factor = noise_factor(first, objective)
            first, gradient = first.scale_noise(objective, factor), tree.scale(gradient, factor**-2)
        if gradient is not None:
            log_gradient_norm(first, objective, gradient)
        logging.getLogger("lamu").info("The precision of %s weights is %s.", f"{weights:,}", structure_name(structure))
        # The evidence, or validation rows, choose the prior's scale and the noise, and the mode moves with them.
        rule, under = self._rule_of(objective.model, pretrained), objective
        if open_scale:
            held_out, around = getattr(data, "held_out", None), data if pretrained else None
            tempered = self.rule is None and isinstance(rule, Probit)
            polished, under, rule = empirical_bayes(first, under, key, held_out, find, rule, around, tempered=tempered)
        else:
            polished = find(first, under)
        if type(self.curvature) not in _WORDS:
            require_positive(polished.mode, under)
        # The posterior.
        posterior = posterior_at_mode(polished, under, key, pretrained)
        if not pretrained:
            if determined is None:
                posterior = with_noise_integrated(posterior, polished, under, objective.model.prior)
            hold = lambda params: polish(look, look(params), under, data, held=True)
            posterior = with_dispersion_integrated(posterior, polished, under, hold, data)
            if isinstance(self.curvature, AveragedGaussNewton):
                posterior = with_curvature_averaged(posterior, structure, polished.mode, under, data, key)
        warn_of_spikes(posterior)
        return posterior if rule is None else posterior.with_rule(rule)

    def _determined_beside(self, point: Posterior, objective: Objective, data: Data) -> float | None:
        """Returns γ of all weights for a belief about some of a regression: all were fitted to the rows."""
        noisy = objective.model.quadratic and jax.tree.leaves(point.mean["likelihood"])
        if not noisy or isinstance(self.weights, AllWeights):
            return None
        structure = Laplace(base=self.base)._structure_of(point.mean["network"])
        if isinstance(structure, LowRankStructure):  # of which twenty directions are no count
            return None
        return effective_parameters(fit_laplace(structure, point, objective, data, GaussNewton()), objective)

    def _factored(self, structure: AnyStructure, model: Any, data: Data) -> AnyStructure:
        """Returns Kronecker factors instead of costlier structures, and of those for last layers only."""
        if structure is OutputEigen and model.likelihood.outputs(data.example(1).y) > _MOST_FACTORED_OUTPUTS:
            return structure
        return KroneckerFactored() if structure in (Dense, OutputEigen) else structure

    def _rule_of(self, model: Any, trained: bool) -> PredictiveRule | None:
        """Returns the predictive rule: the marginal rule for maps, the probit for pretrained logits."""
        # Weights trained without the posterior in mind are overconfident. The probit rule, which shrinks the
        # logits, then predicts unseen rows better than the average over samples, and nearly always keeps the
        # most probable class.
        if self.rule is not None or isinstance(self.structure, MatrixFreeStructure) or not isinstance(model, Model):
            return self.rule
        position, is_map = model.likelihood.of_position, model.likelihood.n_positions > 1
        if trained and position.logits and (is_map or isinstance(position.support, Classes)):
            return Probit()
        return LinearisedMarginal() if is_map else None

    def _structure_of(self, weights: Params) -> AnyStructure:
        """Returns the structure: by default the richest one that fits."""
        if self.structure is not None:
            return self.structure
        if tree.dimension(weights) <= self.largest_dense and bytes_held(Dense, weights) <= memory.limit():
            return Dense
        if self.beyond is not None:
            return self.beyond
        return (
            KroneckerFactored()
            if bytes_held(KroneckerFactored(), weights) <= memory.limit()
            else LowRankStructure(_RANK)
        )


@recipe("MacKay 1992; Khan & Rue 2021, section 4.4")
def laplace(
    optimizer: Algorithm | None = None,
    weights: Any = None,
    structure: StructureLike | None = None,
    curvature: Any = None,
    rule: PredictiveRule | None = None,
) -> Laplace:
    r"""Laplace's method: a Gaussian at the mode, with the generalised Gauss–Newton matrix as its precision.

    \[ m = \arg\min_\theta \ell(\theta), \qquad
       S = \tfrac1T \Big( p \sum_i w_i J_i^\top \Lambda_i J_i - \nabla^2 \log p(m) \Big) \]

    which is the fixed point of the rule under the delta method. The evidence is
    \(-\ell(m)/T + \tfrac{D}{2}\log 2\pi - \tfrac12\log\det S\). Learned dispersions are integrated over
    in it, by Laplace's method in their logarithms. Prediction is linearised. The network is in evaluation
    mode, with its state fixed.

    | part | choices | cost after the mode is found, N rows, K outputs, D weights |
    |---|---|---|
    | `weights` | `AllWeights()`, `HeadWeights()`, `Matching("layers/2/*")`, `ByMask(mask)` | nothing |
    | | `LargestVariance(500)` | a pass for the diagonal of all weights |
    | `structure` | `Dense` | one Jacobian a row in chunks, \(N K D^2\) operations, \(2 D^2\) numbers |
    | | `DenseBlocks` | the same for each leaf separately |
    | | `KroneckerFactored()` | Kronecker factors: K backward passes in all, no Jacobian; a decomposition a factor |
    | | `Diagonal` | K backward passes, no Jacobian |
    | | `LowRankStructure(20)` | 3 · 20 + 20 passes of Gauss–Newton products (Lanczos), as many copies of weights |
    | | `MatrixFreeStructure()` | only the rows are stored; every solve takes some dozens of passes |
    | | `OutputBlocks`, `OutputEigen` | for a last layer: a matrix an output; one basis for all outputs |
    | `curvature` | None | as `GaussNewton()`; for classes some ten times that again, for the average below |
    | | `GaussNewton()` | at the mode alone, as above |
    | | `SampledGaussNewton(1)` | labels sampled from the model: one backward pass a sample instead of K |
    | | `SquaredGradients()` | the data's own labels (empirical Fisher): one backward pass |
    | | `Hessian()`, `Damped(Hessian(), γ)` | one product a column; if the likelihood is log-concave |

    A last layer takes its features once and no Jacobian, with any structure. For a custom likelihood
    the information in f is `likelihood.information`; sampled, it needs only its `sample` and `log_prob`.

    A network that separates its rows has logits at which \(\Lambda_i\) nearly vanishes, so that a belief with the
    curvature there is far too wide. By default, the curvature for the logits of classes is therefore the average

    \[ S = \tfrac1T \Big( p \sum_i w_i J_i^\top\, E_{f \sim N(f_i,\, J_i S^{-1} J_i^\top)}[\Lambda_i(f)]\, J_i
           - \nabla^2 \log p(m) \Big), \]

    the fixed point of the rule for the linearised network, with the mean fixed at the mode: an NLL of .29 instead of
    .84 on digits, and .17 instead of .34 for the last layer. It is computed if the mode is found here, for networks
    that are not linear, for up to 100 classes, and neither for a low rank nor matrix-free. `evidence` is still that of
    the curvature at the mode, and `curvature=GaussNewton()` gives the belief with that curvature, too.

    The optimiser's result is near the mode, not at it. After the steps, L-BFGS over all rows continues until the
    residual \(\sqrt{g^\top S^{-1} g}\), g the gradient of \(\ell/T\), is below 0.05, for at most 400 gradients; it is
    `posterior.convergence.residual`. If it stays above, there is no `evidence`, and a warning `lamu.Unconverged`
    says so. Only the chosen weights are polished, in evaluation mode; the others and the network's state are fixed.
    This also holds if `fit(validation=...)` chose the state, since at no other point is this Gaussian the posterior's:
    for a belief around weights that were stopped early, pass them, `model.starting_at(params)` with `epochs=0`. A
    pretrained network (`epochs=0`) keeps its weights: its residual is measured, and above 0.05 it has no evidence. A
    learned noise of a Gaussian moves to the greatest evidence, \(\sigma^2 = R / (M - \gamma)\) with R the
    squared residuals, M the observations and γ the well-determined weights, which are counted over all weights even if
    the belief is about some of them: the others were fitted to the same rows. If γ is more than half of M, a
    noise that is too small is raised, and any other one is kept. Dispersions of other likelihoods move with the weights
    to the joint mode.

    For a pretrained network without a given rule, logits of several classes, or of maps, are predicted by
    `Probit()`: weights trained without the posterior in mind are overconfident, and the probit shrinks them
    better than the average over samples of the linearised outputs (an NLL of .455 against .517 on 600 validation images
    of Fashion-MNIST).

    Rows that such a network was not trained on, `validation=(x, y)`, choose the temperature of that rule with the scale
    of a `LearnedNormal` prior: the widest scale whose log density of those rows, each at its best temperature, is
    within half a nat of the greatest (one standard error). Weights that separate their training rows have outputs that
    are too large, and a nearly vanishing curvature there, so that no scale alone calibrates them.

    With the prior `LearnedNormal` the scale of the prior is chosen, and the mode found again under every candidate
    scale: for regressions, and if `fit` has no validation rows, by the evidence (MacKay's fixed point, in turn with
    the mode), else by the predictive density of those rows. For a pretrained network the mode is fixed; the
    rows must then be new to the network, `validation=(x, y)`, and without them the scale is
    that of the greatest lower bound of the evidence. `lamu.algorithms.post_hoc.evidence` has the evidence as a
    function, and scales a layer.

    Departures from the rule: the Gauss–Newton matrix is an approximation of the Hessian (exact for linear networks with
    canonical likelihoods); it is computed at the mode, without an average; learned dispersions are a point, except for
    the noise of a Gaussian regression of few rows, and the one dispersion of a linear network.

    The noise, and for a linear network with a `LearnedNormal` prior its scale, are integrated over: with
    fewer than 50 observations more than well-determined weights, for up to 1,024 weights under a dense precision and
    independent normal priors. The belief about \(1/\sigma^2\) is then Gamma's
    (`posterior.belief.factors["likelihood"]`), `posterior.mean` stays the mode, and the linearised prediction is
    Student's t. With the noise at its mode, 90 % intervals of 2, 3,
    5, 8 and 12 rows of three columns cover .68, .63, .52, .74 and .83; with this .87, .88, .84, .87 and .89.

    Of a linear network with another likelihood and one learned dispersion (the shape of a gamma regression), fewer than
    200 rows and 20 a weight, up to 256 weights and a dense precision, the belief is a mixture: Laplace's at each of
    seven values of the dispersion, weighted by their evidence. `posterior.mean` and `posterior.std` are its moments.

    Args:
        optimizer: the algorithm that finds the mode, with a point posterior; `adam(Annealed(1e-2))` where None.
        weights: the weights of the belief, with all others fixed; all where None.
        structure: the operator class of the precision, or a record of it. By default dense up
            to 4,096 weights (1,024 for a pretrained network) if that fits the memory, then Kronecker factors,
            then, if layers hold less than half of the weights or the factors do not fit, rank 20; never a diagonal
            by default. The choice is logged, and is the type of
            `posterior.belief.factors["network"].precision`.
        curvature: the estimate of the Hessian; the Gauss–Newton matrix where None, for classes averaged.
        rule: the predictive rule, which also judges scales on validation rows: of `lamu.predictives`, for
            instance `Probit()`. By default `Linearised()`, for maps (`PerPosition`) `LinearisedMarginal()`, and
            for classes of a pretrained network `Probit()`.

    Returns:
        The algorithm.

    Raises:
        TypeError: if `optimizer` is not an algorithm, or a part is not one of those.
        ValueError: (when it runs) for a structure that does not fit into memory, and for a Hessian that is indefinite,
            or of a likelihood that is not log-concave. The error's attribute `fit` holds the point.

    Warns:
        Unconverged: if there is no evidence, because the mode was not reached, or because the precision there is
            singular to rounding (a multiple of rounding is then added to its diagonal).

    Source: MacKay (1992); Khan & Rue (2021), section 4.4; Ritter, Botev & Barber (2018), for Kronecker factors;
        Immer, Korzepa & Bauer (2021); Daxberger et al. (2021a), Laplace Redux, and (2021b), for sub-networks.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.laplace(), epochs=20).posterior
        >>> lamu.scores.nll(posterior.predict(x), y) < 0.12
        True
    """
    weights = AllWeights() if weights is None else weights
    if isinstance(weights, type) or not isinstance(weights, WeightsChoice):
        raise TypeError(f"weights={weights!r} chooses no weights; give for instance HeadWeights() or Matching('*bias')")
    require_structure(structure)
    curvature = curvature_or(curvature, AveragedGaussNewton())
    return Laplace(base=mode_finder(optimizer), weights=weights, structure=structure, curvature=curvature, rule=rule)


def curvature_or(curvature: Any, default: Curvature | None) -> Any:
    """Returns a curvature, the default where None; raises a TypeError for anything else."""
    curvature = default if curvature is None else curvature
    if isinstance(curvature, type) or not isinstance(curvature, Curvature | None):
        raise TypeError(f"curvature={curvature!r} is not a curvature; give for instance GaussNewton() or Hessian()")
    return curvature


def require_structure(structure: Any) -> None:
    """Raises a TypeError if a value is not a structure of a precision."""
    if structure is None or structure in _CLASSES or isinstance(structure, _RECORDS):
        return
    raise TypeError(
        f"structure={structure!r} is not a structure of a precision; give one of "
        f"{', '.join(choice.__name__ for choice in _CLASSES)}, KroneckerFactored(), LowRankStructure(20), "
        "MatrixFreeStructure()"
    )


def mode_finder(optimizer: Algorithm | None) -> Algorithm:
    """Returns the mode finder, `adam(Annealed(1e-2))` where None."""
    if optimizer is None:
        from lamu.algorithms.optimisers import adam

        return adam(Annealed(1e-2))
    return require_part(optimizer, "optimizer")


def _mostly_layers(curvature: OperatorTree, weights: int) -> bool:
    """Returns whether Kronecker factors hold half of the weights or more; the others are on a diagonal."""
    blocks = jax.tree.leaves(curvature.blocks, is_leaf=is_operator)
    alone = sum(tree.dimension(block.values) for block in blocks if isinstance(block, Diagonal))
    return 2 * alone <= weights


def structure_name(structure: AnyStructure) -> str:
    """Returns a structure's name in tables."""
    if structure in (OutputBlocks, OutputEigen):
        return "per-output"
    return structure.__name__.lower() if isinstance(structure, type) else str(structure)


def _require_suited(curvature: Curvature, objective: Objective) -> None:
    """Raises an error for a curvature that the target does not have, or that may be indefinite."""
    if isinstance(curvature, GaussNewton | AveragedGaussNewton) and not objective.model.has_outputs:
        _ = objective.model.outputs  # which says what to take
    exact = isinstance(curvature, Hessian) or (isinstance(curvature, Damped) and isinstance(curvature.base, Hessian))
    if not exact or not isinstance(objective.model, Model):
        return
    likelihood = objective.model.likelihood
    if not likelihood.log_concave:
        raise ValueError(
            f"the Hessian of {type(likelihood).__name__}, which is not log-concave in f, may be indefinite anywhere; "
            "take curvature=GaussNewton()"
        )


@recipe("Snoek et al. 2015; Kristiadi et al. 2020")
def last_layer(
    optimizer: Algorithm | None = None,
    structure: StructureLike | None = None,
    curvature: Any = None,
    rule: PredictiveRule | None = None,
) -> Laplace:
    r"""Laplace's method for the last layer only: exact Bayes for a linear model on learned features.

    With \(\phi(x)\) the features at the mode and W the head's weights, \(f(x) = W \phi(x)\) is linear in W, so that the
    Gauss–Newton matrix is the Hessian (for canonical likelihoods) and the linearised prediction is exact in f:

    \[ S = \tfrac1T \Big( \sum_i \phi_i \phi_i^\top \otimes \Lambda_i + \delta I \Big), \qquad
       J_i = \phi(x_i)^\top \otimes I \]

    After the steps that find the mode, one pass over the data for the features, and no Jacobian. With F features,
    including the bias's one, K outputs and N rows:

    | structure | operations | numbers held |
    |---|---|---|
    | `Dense` | \(N F^2 K^2\), and \((F K)^3 / 3\) for the factor | \(F^2 K^2\) |
    | `KroneckerFactored()`, Kronecker | \(N (F^2 + K^2)\), and \(F^3 + K^3\) | \(F^2 + K^2 + F K\) |
    | `OutputBlocks`, a matrix an output | \(N F^2 K\), and \(K F^3 / 3\) | \(F^2 K\) |
    | `OutputEigen`, \(\sum \phi\phi^\top \otimes \mathrm{diag} \sum \Lambda\) | \(N (F^2 + F K)\) | \(F^2 + F K\) |
    | `Diagonal` | \(N F K\) | \(F K\) |

    The last three have no correlations between outputs, and predict without a matrix of outputs for any input: use them
    for ten thousand classes, with the rule `Probit()`.

    If the likelihood has a target at every position of a row (`PerPosition`: pixels, steps), a head that is applied at
    each of them, dense or a convolution, is read position by position, and N counts positions: maps of any size need no
    Jacobian. The same holds for predictions by the rule of maps, `LinearisedMarginal()` (`Probit()` for classes of a
    pretrained network), which assumes independent outputs of a row; `Linearised()` samples whole maps, from the rows'
    Jacobians.

    The head is brought to its mode first, and the posterior has no evidence if that fails, as in `laplace`. The
    learned noise of a regression accounts for the features, too, which were fitted to the same rows: it counts
    the well-determined weights of the whole network, once, by the curvature that `laplace` would use.

    Departures from the rule: the features are a point, and the belief is computed at the mode alone.

    Args:
        optimizer: the algorithm that finds the mode, with a point posterior; `adam(Annealed(1e-2))` where None.
        structure: one of the table's; by default dense up to 20,000 weights, `OutputEigen` above. For a
            pretrained network (`epochs=0`) dense up to 1,024 weights, then Kronecker factors.
        curvature: the estimate of the Hessian, as in `laplace`; the Gauss–Newton matrix where None, for classes
            averaged over the belief if the mode is found here.
        rule: the predictive rule, as in `laplace`.

    Returns:
        The algorithm. Its posterior's model has every weight frozen but the head's.

    Raises:
        TypeError: if `optimizer` is not an algorithm, or `structure` not a structure.

    Source: Snoek et al. (2015); Kristiadi, Hein & Hennig (2020).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.last_layer(), epochs=10).posterior
        >>> lamu.tree.paths(posterior.mean["network"])
        ['layers/1/bias', 'layers/1/kernel']
    """
    require_structure(structure)
    return Laplace(
        base=mode_finder(optimizer),
        weights=HeadWeights(),
        structure=structure,
        curvature=curvature_or(curvature, AveragedGaussNewton()),
        largest_dense=_LARGEST_DENSE_HEAD,
        beyond=OutputEigen,
        rule=rule,
    )
