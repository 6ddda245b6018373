"""The prior's width by evidence, beside the evidence of linear regression, which is exact and known."""

from __future__ import annotations

import numpy as np
import optax
from scipy.optimize import minimize_scalar

from lamu.algorithms import laplace, map_estimate
from lamu.loop import fit
from lamu.model import Model
from lamu.operators import Dense
from lamu.priors import LearnedNormal, Normal
from lamu.verification import problems, references


def test_the_width_is_where_the_evidence_at_the_given_mode_is_greatest() -> None:
    """The mode is found under the first guess and held, so the evidence is that of a Gaussian around it, by hand."""
    problem = problems.regression()
    model = Model(problem.objective.model.network, problem.objective.model.likelihood, LearnedNormal(0.8))
    algorithm = laplace(of=map_estimate(optax.lbfgs()), structure=Dense)
    posterior = fit(model, (problem.x, problem.y), algorithm, steps=60, batch_size=30).posterior
    mode, _, _ = references.linear_regression(problem.design, problem.y, problem.scale, 0.8**-2)
    gram = problem.design.T @ problem.design / problem.scale**2

    def negative_evidence(log_scale: float) -> float:
        delta = np.exp(-2 * log_scale)
        determinant = np.linalg.slogdet(gram + delta * np.eye(len(mode)))[1]
        return (delta * mode @ mode - len(mode) * np.log(delta) + determinant) / 2

    expected = np.exp(minimize_scalar(negative_evidence, bounds=(-5, 5), method="bounded").x)
    assert isinstance(posterior.model.prior, Normal)
    # The search stops at 0.01 in the logarithm.
    assert abs(np.log(posterior.model.prior.scale / expected)) < 0.02
    assert abs(np.log(expected / 0.8)) > 0.1
