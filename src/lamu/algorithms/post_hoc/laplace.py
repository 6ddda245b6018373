"""Laplace's method: the Gaussian with the curvature at the mode, as a recipe of parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from lamu import tree
from lamu.algorithms.post_hoc.at_mode import look_at_mode
from lamu.algorithms.post_hoc.forecast import foresee
from lamu.algorithms.post_hoc.positivity import require_positive, require_regular
from lamu.algorithms.post_hoc.selection import AllWeights, WeightsChoice
from lamu.algorithms.post_hoc.unknowns import settled
from lamu.data.batch import Batch
from lamu.objective import Objective
from lamu.objective.curvature import Curvature, Damped, GaussNewton, Hessian, SampledGaussNewton, SquaredGradients
from lamu.operators import Dense, DenseBlocks, Diagonal, Layerwise, LowRankOf, MatrixFreeOf, OutputBlocks, OutputEigen
from lamu.posterior import Posterior
from lamu.predictives import PredictiveRule
from lamu.protocol import Algorithm, Choices, Info, Traits
from lamu.rate import Annealed
from lamu.record import record, static
from lamu.typing import Params, RandomKey

__all__ = ["Laplace", "laplace", "mode_finder", "require_structure"]

_LARGEST_DENSE = 4096
_CLASSES = (Dense, Diagonal, DenseBlocks, OutputBlocks, OutputEigen)
_RECORDS = (Layerwise, LowRankOf, MatrixFreeOf)
_WORDS = {
    GaussNewton: "Gauss-Newton for the Hessian",
    SampledGaussNewton: "Gauss-Newton by sampled labels for the Hessian",
    SquaredGradients: "empirical Fisher for the Hessian",
}


@record
class Laplace:
    """The algorithm that `laplace` makes.

    Attributes:
        of: what finds the mode.
        weights: which weights the belief is about.
        structure: the operator class of the precision, a record that stands for one, or None where the number of
            weights decides.
        curvature: what stands for the Hessian.
        largest_dense: up to how many weights a precision without a given structure is dense.
        beyond: what it is with more of them.
        rule: how the posterior predicts; None for the linearised rule.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.laplace().choices.curvature
        'GaussNewton'
    """

    of: Algorithm
    weights: WeightsChoice = AllWeights()
    structure: Any = static(default=None)
    curvature: Any = GaussNewton()
    largest_dense: int = static(default=_LARGEST_DENSE)
    beyond: Any = static(default=Diagonal)
    rule: PredictiveRule | None = None

    @property
    def traits(self) -> Traits:
        """Those of what finds the mode; it chooses the width of the prior by itself."""
        return replace(self.of.traits, chooses_width=True)

    @property
    def choices(self) -> Choices:
        """The row of the table."""
        structure = "dense or diagonal" if self.structure is None else _named(self.structure)
        words = _WORDS.get(type(self.curvature))
        departures = (*(() if words is None else (words,)), "one step at the mode", "dispersions a point")
        family = f"Gaussian, {structure} precision{self.weights.words}"
        curvature = type(self.curvature).__name__
        return Choices(family, "Delta", curvature, departures=(*self.weights.departures, *departures))

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> Any:
        """Returns the first state of what finds the mode."""
        return self.of.init(key, objective, batch)

    def step(self, key: RandomKey, state: Any, batch: Batch, objective: Objective) -> tuple[Any, Info]:
        """Returns the next state of what finds the mode."""
        return self.of.step(key, state, batch, objective)

    def foresee(self, objective: Objective, params: Params) -> None:
        """Says what the precision will take in memory, and raises a ValueError for one that cannot fit."""
        foresee(self._structure_of, self.weights, objective.model, params["network"])

    def preview(self, key: RandomKey, state: Any, objective: Objective) -> Posterior:
        """Returns what the state predicts before the pass over the data: the point."""
        return self.of.posterior(key, state, objective, None, None)

    def posterior(self, key: RandomKey, state: Any, objective: Objective, data: Any, trace: Any) -> Posterior:
        """Returns the Gaussian at the mode, after one pass over the data."""
        _require_concave(self.curvature, objective)
        point = self.of.posterior(key, state, objective, data, trace)
        model, point = self.weights.select(objective.model, point, objective, data)
        structure = self._structure_of(tree.dimension(point.mean["network"]))
        objective = replace(objective, model=model)
        labels = jax.random.fold_in(jax.random.clone(key), 1)
        mode = look_at_mode(structure, point, objective, data, self.curvature, labels)
        mode, objective = settled(mode, objective, key, getattr(data, "held_out", None), self.rule)
        if type(self.curvature) not in _WORDS:
            require_positive(mode, objective)
        found = mode.posterior(objective, key)
        require_regular(found)
        return found if self.rule is None else found.with_rule(self.rule)

    def _structure_of(self, weights: int) -> Any:
        return self.structure or (Dense if weights <= self.largest_dense else self.beyond)


def laplace(
    of: Algorithm | None = None,
    weights: Any = None,
    structure: Any = None,
    curvature: Any = None,
    rule: PredictiveRule | None = None,
) -> Laplace:
    r"""Laplace's method: a Gaussian at the mode, with the generalised Gauss–Newton matrix as its precision.

    \[ m = \arg\min_\theta \ell(\theta), \qquad
       S = \tfrac1T \Big( p \sum_i w_i J_i^\top \Lambda_i J_i - \nabla^2 \log p(m) \Big) \]

    which is the fixed point of the rule under the delta method. The evidence is
    \(-\ell(m)/T + \tfrac{D}{2}\log 2\pi - \tfrac12\log\det S\). Prediction is linearised. The network is looked at in
    evaluation mode, its state held.

    | part | choices | cost after the mode is found, N rows, K outputs, D weights |
    |---|---|---|
    | `weights` | `AllWeights()`, `HeadWeights()`, `Matching("layers/2/*")`, `ByMask(mask)` | nothing |
    | | `LargestVariance(500)` | a pass for the diagonal of all weights |
    | `structure` | `Dense` | one Jacobian a row in chunks, \(N K D^2\) operations, \(2 D^2\) numbers |
    | | `DenseBlocks` | the same for each leaf by itself |
    | | `Layerwise()` | Kronecker factors: K backward passes in all, no Jacobian; a decomposition a factor |
    | | `Diagonal` | K backward passes, no Jacobian |
    | | `LowRankOf(20)` | 3 · 20 + 20 passes of Gauss–Newton products (Lanczos), that many copies of the weights |
    | | `MatrixFreeOf()` | nothing is held but the rows; every solve some dozens of passes |
    | | `OutputBlocks`, `OutputEigen` | of a last layer: a matrix an output; one basis for all outputs |
    | `curvature` | `GaussNewton()` | as above |
    | | `SampledGaussNewton(1)` | labels drawn from the model: one backward pass a draw in the place of K |
    | | `SquaredGradients()` | the data's own labels (empirical Fisher): one backward pass |
    | | `Hessian()`, `Damped(Hessian(), γ)` | one product a column; where the likelihood is log-concave |

    A last layer alone takes its features once and no Jacobian, whatever the structure. For a likelihood of one's own
    the information in f is `likelihood.information`, or, drawn, needs its `sample` and `log_prob` alone.

    With the prior `LearnedNormal` the width of the prior, and a factor of the noise where that is learned, are chosen
    with the mode held: by the evidence, or, where `fit` has set rows aside, by their predictive density. That takes
    fifteen to eighty determinants more. `lamu.algorithms.post_hoc.evidence` has the evidence as a function, and widths
    a layer.

    Departures from the rule: the Gauss–Newton matrix is an approximation of the Hessian (exact for linear networks with
    canonical likelihoods); it is computed once, where the optimiser stopped; learned dispersions stay a point.

    Args:
        of: the algorithm that finds the mode, with a point posterior; `adam(Annealed(1e-2))` where none is given.
        weights: which weights the belief is about, all others being held; all where none is given.
        structure: the operator class of the precision, or a record that stands for one; where none is given dense up
            to 4,096 weights, diagonal above.
        curvature: what stands for the Hessian; the Gauss–Newton matrix where none is given.
        rule: how the posterior predicts, and by what a width is judged on rows set aside: of `lamu.predictives`, for
            instance `Probit()`; the linearised rule where none is given.

    Returns:
        The algorithm.

    Raises:
        TypeError: for an `of` that is no algorithm, or a part that is none of those.
        ValueError: (when it runs) for a structure that does not fit into memory, a precision that is singular to
            rounding, and for a Hessian that is indefinite, or of a likelihood that is not log-concave.

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
    curvature = GaussNewton() if curvature is None else curvature
    if isinstance(curvature, type) or not isinstance(curvature, Curvature):
        raise TypeError(f"curvature={curvature!r} is no curvature; give for instance GaussNewton() or Hessian()")
    return Laplace(of=mode_finder(of), weights=weights, structure=structure, curvature=curvature, rule=rule)


def require_structure(structure: Any) -> None:
    """Raises a TypeError for something that is no structure of a precision.

    Args:
        structure: an operator class, or a record that stands for one; None for the default.
    """
    if structure is None or structure in _CLASSES or isinstance(structure, _RECORDS):
        return
    raise TypeError(
        f"structure={structure!r} is no structure of a precision; give one of "
        f"{', '.join(each.__name__ for each in _CLASSES)}, Layerwise(), LowRankOf(20), MatrixFreeOf()"
    )


def mode_finder(of: Algorithm | None) -> Algorithm:
    """Returns the algorithm that finds the mode, `adam(Annealed(1e-2))` where none is given.

    Raises:
        TypeError: for something that is no algorithm.
    """
    if of is None:
        from lamu.algorithms.optimisers.adam import adam

        return adam(Annealed(1e-2))
    if not isinstance(of, Algorithm):
        raise TypeError(f"of={of!r} is no algorithm that could find the mode; give for instance adam(1e-2)")
    if jax.tree_util.all_leaves([of]):
        raise TypeError(
            f"of={of!r} is no pytree and cannot be a part of another; decorate its class with lamu.record.record"
        )
    return of


def _named(structure: Any) -> str:
    return structure.__name__.lower() if isinstance(structure, type) else str(structure)


def _require_concave(curvature: Any, objective: Objective) -> None:
    exact = isinstance(curvature, Hessian) or (isinstance(curvature, Damped) and isinstance(curvature.of, Hessian))
    likelihood = objective.model.likelihood
    if exact and not likelihood.log_concave:
        raise ValueError(
            f"the Hessian of {type(likelihood).__name__}, which is not log-concave in f, may be indefinite anywhere; "
            "take curvature=GaussNewton()"
        )
