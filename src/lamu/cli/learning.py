"""The two ways in which `lamu fit` and `lamu compare` learn: a table's candidates, and runs of an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lamu.cli.defaults import likelihood_for
from lamu.cli.planning import plan
from lamu.cli.request import Request
from lamu.data import Encoding
from lamu.folds import fit_folds, folds_for
from lamu.model import Model
from lamu.prior_scale import fit_prior_scale
from lamu.protocol import Algorithm
from lamu.tabular import fit_table
from lamu.tabular.stacked_fit import plan_of
from lamu.tabular.truncated import Truncated

__all__ = ["Candidates", "Learned", "Runs", "way_of"]


@dataclass(frozen=True)
class Learned:
    """What was learned from the training rows."""

    posterior: Any
    histories: tuple[Any, ...] = ()  # of each run that is part of it
    steps: int = 0  # of all runs together, or of each member
    temperature: float = 1.0
    temperatures: Mapping[float, float] = field(default_factory=dict)  # the held-out nll of each that was tried
    # The held-out nll of each scale of the prior that was tried.
    scales: Mapping[float, float] = field(default_factory=dict)
    candidates: Mapping[str, float] = field(default_factory=dict)  # the weight of each candidate in a mixture
    candidates_nll: Mapping[str, float] = field(default_factory=dict)  # the held-out nll of each
    told: str | None = None  # a line about it, or None


@dataclass(frozen=True)
class Candidates:
    """The candidates of `lamu.fit_table`, mixed."""

    request: Request  # what was asked
    encoding: Encoding  # what the columns and the target are
    likelihood: str | None  # its name; None for the task's own
    folds: int  # how many folds
    rows: int  # the training rows

    name: str = "fit_table"
    loop: Mapping[str, Any] = field(default_factory=dict)

    @property
    def plan(self) -> str:
        """What is said before the fit."""
        return plan_of(likelihood_for(self.encoding, self.likelihood), self.rows, self.folds)

    @property
    def ran(self) -> str:
        """What is said after it."""
        return "candidates over folds"

    def learn(self, x: Any, y: Any, seed: int, options: Mapping[str, Any]) -> Learned:
        """Returns the mixture."""
        found = fit_table(
            x,
            y,
            likelihood_for(self.encoding, self.likelihood),
            levels=self.encoding.cardinalities,
            folds=self.request.folds,
            seed=seed,
            **options,
        )
        held_out = {name: nll + self.encoding.log_unit for name, nll in found.nll.items()}
        kept = sorted(((weight, name) for name, weight in found.weights.items() if weight > 0), reverse=True)
        parts = ", ".join(f"{weight:.2f} {name} ({held_out[name]:.3f})" for weight, name in kept)
        together = f"{found.stacked_nll + self.encoding.log_unit:.3f} together"
        likelihood = found.posterior.model.likelihood
        share = likelihood.untruncated if isinstance(likelihood, Truncated) else 1.0
        above = f"; noise truncated at zero with probability {1 - share:.2f}" if share < 1.0 else ""
        return Learned(
            posterior=found.posterior,
            steps=found.steps,
            candidates=found.weights,
            candidates_nll=held_out,
            told=f"mixture of {parts}: weight, candidate and held-out nll; {together}{above}",
        )


@dataclass(frozen=True)
class Runs:
    """Runs of one algorithm: an ensemble over folds, each member stopped by its own fold, or a single run."""

    # A single run is at the temperature and under the scale of the prior that training rows set aside choose.

    request: Request  # what was asked
    model: Model  # what is fitted
    algorithm: Algorithm  # what fits it
    name: str  # the algorithm's
    rows: int  # the training rows
    folds: int  # how many folds; 0 for a single run
    loop: Mapping[str, Any]  # options of the loop

    @property
    def plan(self) -> str:
        """What is said before the fit."""
        return plan(
            self.model, self.algorithm, self.rows, self.folds, self.request.temperature, self.loop.get("epochs")
        )

    @property
    def ran(self) -> str:
        """What is said after it."""
        return f"{self.name} over {self.folds} folds" if self.folds else self.name

    def learn(self, x: Any, y: Any, seed: int, options: Mapping[str, Any]) -> Learned:
        """Returns the ensemble, or what the single run learned."""
        data, loop = (x, y), {**self.loop, **options}
        if self.folds:
            temperature, tried = self.request.temperature or 1.0, {}
            found = fit_folds(
                self.model, data, self.algorithm, folds=self.folds, seed=seed, temperature=temperature, **loop
            )
            return _of_runs(found, found.fits, temperature, tried)
        temperature, tried = self.request.temperature_for(self.model, data, self.algorithm, seed, loop)
        found = fit_prior_scale(self.model, data, self.algorithm, seed=seed, temperature=temperature, **loop)
        return _of_runs(found, (found.fit,), temperature, tried)


def way_of(runs: Runs, encoding: Encoding, likelihood: str | None, default: bool) -> Candidates | Runs:
    """Returns how a request learns."""
    # The candidates are fitted where nothing is said that they do not know: no algorithm, setting, length, batch or
    # temperature, and no trials or censored rows.
    request = runs.request
    said = (request.epochs, request.batch_size, request.temperature)
    if default and all(each is None for each in said) and request.folds != 0 and not encoding.beside:
        return Candidates(request, encoding, likelihood, request.folds or folds_for(runs.rows), runs.rows)
    return runs


def _of_runs(found: Any, fits: tuple[Any, ...], temperature: float, tried: Mapping[float, float]) -> Learned:
    # The loop returns what it has; a folder that holds less than it says would mislead.
    if any(each.interrupted for each in fits):
        raise KeyboardInterrupt
    return Learned(
        posterior=found.posterior,
        histories=tuple(each.history for each in fits),
        steps=sum(len(each.history["loss"]) for each in fits),
        temperature=temperature,
        temperatures=tried,
        scales=found.scales,
    )
