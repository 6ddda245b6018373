"""The result of a run, and the error of a diverged one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu.convergence import Convergence
from lamu.data.wording import getattr_or_substitute
from lamu.posterior import Posterior
from lamu.typing import State

__all__ = ["Diverged", "Fit"]


_ELSEWHERE = {
    "predict": "fit.posterior.predict(x)",
    "predict_proba": "fit.posterior.predict(x).probabilities",
    "sample": "fit.posterior.sample(key, n)",
    "save": "fit.posterior.save(path)",
    "score": "lamu.scores.nll(fit.posterior.predict(x), y), or another of lamu.scores",
}


class Diverged(RuntimeError):
    """Raised when the loss becomes NaN or infinite.

    Attributes:
        fit: the result before the failed block of steps; None for a sampler, or where that was not a valid belief.
    """

    def __init__(self, message: str, fit: Fit | None) -> None:
        super().__init__(message)
        self.fit = fit


@dataclass(frozen=True)
class Fit:
    """Result of `fit`.

    Attributes:
        posterior: the posterior; with validation, that of the best state.
        history: "loss" (nats a row, an estimate on each step's batch) and "residual", one entry a step; with
            validation, "validation_step" and "validation_nll" (nats a row), one entry a validation, one for a sampler.
        state: the algorithm's last state; on the mesh, where there was one.
        interrupted: whether the run was stopped from the keyboard before its end.
        rows: the first rows, as many as the model's warnings need; None for none.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
        >>> sorted(lamu.fit(model, (x, y), lamu.algorithms.conjugate()).history)
        ['loss', 'residual']
    """

    posterior: Posterior
    history: dict[str, np.ndarray]
    state: State
    interrupted: bool = False
    rows: Any = None

    def __repr__(self) -> str:
        """One line with the model, the length, the convergence and the `warnings` of the fit."""
        posterior = self.posterior
        steps, convergence = len(self.history["loss"]), posterior.convergence
        words = [f"{type(posterior.belief).__name__} about {posterior.model.name}", f"{steps:,} steps"]
        if steps:
            words.append(f"loss {float(self.history['loss'][-1]):.4g}")
        if posterior.temperature != 1.0:
            words.append(f"temperature {float(posterior.temperature):g}")
        if convergence is not None:
            words.append("converged" if convergence.converged else "not converged")
        words += self.warnings
        return f"Fit({', '.join([*words, *(['interrupted'] if self.interrupted else [])])})"

    def __getattr__(self, name: str) -> Any:
        """Raises an AttributeError that names Lamu's counterpart of other libraries' methods."""
        return getattr_or_substitute(self, name, _ELSEWHERE)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The model's warnings about the posterior, such as empty mixture components or idle latent units."""
        return self.posterior.model.warnings(self.posterior.belief, self.posterior.temperature, self.rows)

    @property
    def convergence(self) -> Convergence | None:
        """The distance of the posterior from the fixed point of the rule; None where it was not measured."""
        return self.posterior.convergence
