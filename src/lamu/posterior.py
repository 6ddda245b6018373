"""Posteriors: a model, a belief, a network state and a predictive rule, independent of the algorithm."""

from __future__ import annotations

import functools
import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import memory, predictives, store, tree
from lamu.base.arguments import whole_number
from lamu.base.compile_once import all_digits, is_traced, require_key
from lamu.convergence import FEWEST_WEIGHTS, Convergence
from lamu.data.arrays import UnfamiliarRows
from lamu.data.imputation import Completions
from lamu.data.wording import getattr_or_substitute
from lamu.families import Draws, Family
from lamu.families.interface import attribute_of, independent_draws
from lamu.likelihoods import Scaled
from lamu.model import Model, offset_per_output
from lamu.networks import Network, Standardised
from lamu.networks.multilayer import is_dense
from lamu.objective import Objective
from lamu.predictives import Predictive, PredictiveRule, Sampled
from lamu.predictives.lazy import predictive
from lamu.predictives.padding import Opened, preparation
from lamu.record import declared, decode, encode, measured, record, with_code_of
from lamu.target import Target
from lamu.typing import Belief, DTypeLike, Inputs, Number, Params, RandomKey, State

__all__ = ["Posterior", "default_samples", "load", "require_whole"]


_ELSEWHERE = {
    "predict_proba": "posterior.predict(x).probabilities",
    "predict_interval": "posterior.predict(x).interval(0.9)",
    "fit": "lamu.fit(model, (x, y), algorithm)",
    "score": "lamu.scores.nll(posterior.predict(x), y), or another of lamu.scores",
    "load": "lamu.load(path)",
}


# Of inputs whose units are asked: as many rows as cost a microsecond or two, and the distance in standard deviations
# beyond which they are others. A training row is never further than the square root of the number of rows.
_ROWS_COMPARED, _OTHER_UNITS = 64, 100.0
_SAMPLES = 32
_KEPT, _NUMBERS = 1024, 2**24  # draws of a sampler, and their numbers, that a prediction takes unasked


def default_samples(belief: Belief) -> int:
    """Returns how many draws a prediction has if none is given: 32, and of kept ones all that are quickly computed."""
    if not isinstance(belief, Draws):
        return _SAMPLES
    size = sum(math.prod(np.shape(leaf)[2:]) for leaf in jax.tree.leaves(belief.samples))
    return max(_SAMPLES, min(belief.count, _KEPT, _NUMBERS // max(size, 1)))


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _in_current_precision(method: _Method) -> _Method:
    """Decorator that rounds a posterior of 64 bits where JAX computes in 32, as saving and loading it does."""

    @functools.wraps(method)
    def rounded(self: Posterior, *args: Any, **kwargs: Any) -> Any:
        wide = any(map(_is_wide, jax.tree.leaves((self.belief, self.network_state))))
        if wide and jax.dtypes.canonicalize_dtype(float) != np.float64:
            cache = vars(self).setdefault("_kept", _Kept())
            if "rounded" not in cache:
                cache["rounded"] = jax.tree.map(lambda leaf: leaf.astype(np.float32) if _is_wide(leaf) else leaf, self)
            self = cache["rounded"]
        return method(self, *args, **kwargs)

    return cast("_Method", rounded)


def _is_wide(leaf: Any) -> bool:
    return getattr(leaf, "dtype", None) == np.float64


@record
class Posterior:
    r"""A belief about the parameters of a model, with a rule for predictions.

    Attributes:
        model: the fitted model: network, likelihood and prior, or any other target.
        belief: q(θ).
        network_state: the network's state (batch statistics).
        rule: the predictive rule, which turns the belief into a predictive distribution.
        key: the default key of predictions; derived from the seed and saved.
        evidence: \(\log \int \exp(-\ell(\theta)/T)\, d\theta\) in nats where the algorithm has it (exactly, by
            Laplace's approximation, or as a lower bound where its recipe says so), at T = 1 the log marginal
            likelihood; else None.
        convergence: the distance of the belief from the fixed point of the rule; None where it was not measured.
        temperature: T of the belief; `Model.with_prior`, `lamu.merge` and `lamu.remove` read it.
        data_size: the number of rows that were fitted, by their weights; None where it is not known.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=55.0)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> posterior.predict(x[:5]).mean.shape
        (5,)
    """

    model: Target
    belief: Family
    network_state: State
    rule: PredictiveRule
    key: Any
    evidence: Any = measured(default=None)
    convergence: Convergence | None = None
    temperature: Number = 1.0
    data_size: Number | None = field(default=None, metadata={"added": True})

    def __repr__(self) -> str:
        """One line: the belief, the model, the rows, the temperature, the evidence, and whether it is converged."""
        words = [f"{type(self.belief).__name__} about {self.model.name}"]
        words += [] if self.data_size is None else [f"{self.data_size:g} rows"]
        numbers = {"temperature": self.temperature, "evidence": self.evidence}
        words += [f"{name} {value:g}" for name, value in numbers.items() if value is not None]
        if self.convergence is not None:
            words.append("converged" if self.convergence.converged else "not converged")
        return f"Posterior({', '.join(words)})"

    @classmethod
    def of(
        cls,
        objective: Objective,
        belief: Belief,
        network_state: State,
        key: RandomKey,
        rule: PredictiveRule | None = None,
        evidence: object = None,
    ) -> Posterior:
        """Returns the posterior of a belief about an objective, at its temperature.

        Args:
            objective: the loss.
            belief: q(θ).
            network_state: the network's state.
            key: the default key of predictions.
            rule: the predictive rule; by draws where None.
            evidence: as the attribute.
        """
        rule, temperature = Sampled() if rule is None else rule, objective.posterior_temperature
        return cls(objective.model, belief, network_state, rule, key, evidence, temperature=temperature)

    @_in_current_precision
    def predict(
        self, x: Inputs, samples: int | None = None, key: RandomKey | None = None, offset: Any = None
    ) -> Predictive:
        """Returns the predictive distribution at new inputs.

        Where the outputs of all draws at all rows would take more than `lamu.memory.budget()`, the predictive keeps the
        inputs and computes chunks of rows on demand (`lamu.predictives.Deferred`), with the same results.

        For a network, a function of inputs that calls it works under `jax.jit`, `jax.grad` and `jax.vmap`; there the
        values are not checked.

        Args:
            x: inputs `[N, ...]` in the units of the data; for a model without inputs the number of rows; for a graph
                rows by name, in which NaN is predicted; for a NumPyro program arguments by name, of which omitted ones
                keep their values, and observed ones are predicted. Columns of a frame (of pandas or polars) are matched
                by the names of the fitted frame; further columns are ignored. For rows with trials (`Binomial()`),
                `{"x": x, "trials": n}` predicts successes in n trials, x alone those in one.
            samples: the number of draws, where the predictive rule needs draws; where None 32, and of the kept draws of
                a sampler all, up to 1,024 and to 16 million numbers together.
            key: a random key for the draws; by default the posterior's own, so that a prediction can be repeated.
            offset: a known part of the linear predictor, added to f and in its units, `[N]` or `[N, outputs]`, as in
                the fitted data. `{"x": x, "offset": offset}` is the same. One number a row is not added to outputs that
                are log odds of a zero or log deviations.

        Raises:
            ValueError: for inputs of the wrong width, without rows, or not finite, a frame that lacks a column, an
                offset of another shape, trials that are not whole numbers, fewer than one draw, or draws that take more
                than `lamu.memory.limit()` together.
        """
        with all_digits():
            samples, trials = self._samples(samples), None
            if isinstance(x, Mapping) and self.model.has_outputs:
                from lamu.predictives.wrapper import with_trials  # imported here, as most predictions have none

                x, offset = _with_offset(x, offset)
                x, trials = with_trials(x, self.model.likelihood)
            x = self.model.inputs(x)
            completed = self._warn_of_units(x)
            if offset is not None and not self.model.simulates:
                offset = _checked_offset(offset, x)
                # With two kinds of outputs there must be two outputs; for more, one number a row is refused.
                offset = offset_per_output(self.model.likelihood, offset, 2) if self.model.has_outputs else offset
            ready = self._prepared(samples) if key is None else None
            if completed is not None:
                from lamu.predictives.input_mixture import InputMixture  # imported here, as few rows need draws

                of = lambda row: None if offset is None else jnp.asarray(offset)[row]
                pred = InputMixture.of(lambda rows, row: self.predict(rows, samples, key, of(row)), completed)
            elif ready is not None:
                pred = predictive(ready, x, offset)
            else:
                rule = self.rule
                if self.model.predicts_missing:
                    from lamu.predictives.graph import GraphRule  # imported here, for graphs alone

                    rule = GraphRule()
                elif self.model.simulates:
                    from lamu.predictives.program import ProgramRule  # imported here, as it imports NumPyro

                    rule = ProgramRule()
                key = self._key(key)
                pred = rule.predict(self.model, self.belief, self.network_state, x, samples, key, offset)
            return pred if trials is None else predictives.OfTrials(pred, jnp.asarray(trials))

    def _warn_of_units(self, x: Any) -> Completions | None:
        """Warns of inputs far from the training rows, and of new categories, of which it returns draws."""
        network = self.model.network if isinstance(self.model, Model) else None
        if isinstance(x, Tracer) or is_traced():
            return None
        scaled = isinstance(network, Standardised)
        completed = self._with_new_categories(x, getattr(network.base if scaled else network, "columns", None))
        if not scaled or completed is not None:
            return completed
        cache = vars(self).setdefault("_kept", _Kept())
        if "scaling" not in cache:  # copied from the device once
            cache["scaling"] = np.asarray(network.shift), np.asarray(network.scale)
        shift, scale = cache["scaling"]
        first = np.asarray(np.asarray(x)[:_ROWS_COMPARED], float)
        if first.shape[1:] != shift.shape:  # refused later, with both shapes
            return None
        z = ((first - shift) / scale).ravel()
        with np.errstate(over="ignore"):
            distance = math.sqrt(float(z @ z) / max(z.size, 1))  # there may be no columns
        if distance > _OTHER_UNITS:
            pixels = ", for instance pixels / 255" if first.ndim > 2 else ""
            warnings.warn(
                f"the inputs are {distance:.4g} standard deviations from the mean of the training rows (root mean "
                f"square; they reach from {first.min():.4g} to {first.max():.4g}, and the mean is about "
                f"{shift.mean():.3g}); give them in the units of the training rows{pixels}",
                UnfamiliarRows,
                stacklevel=4,
            )
        return None

    def _with_new_categories(self, x: Any, encoding: Any) -> Completions | None:
        """Returns a table's rows with draws of categories that training did not have, with a warning; None if none."""
        levels, blocks = getattr(encoding, "levels", ()), getattr(encoding, "one_hot", ())
        if not (any(levels) or blocks) or x.shape[1:] != (len(levels),):  # the rows of a graph have no shape
            return None
        from lamu.data.unseen import new_categories  # imported here, for tables alone

        names = [f"{column} of x" for column in range(len(levels))]
        completed, notes = new_categories(np.asarray(x), levels, blocks, self.model.columns or names)
        for note in notes:
            warnings.warn(note, UnfamiliarRows, stacklevel=5)
        return completed

    def _key(self, key: RandomKey | None) -> RandomKey:
        """Returns the given random key, or the posterior's own."""
        if key is None:
            return self._again()
        require_key(key)
        return key

    def _again(self) -> RandomKey:
        # A clone, because JAX's check for reused keys would refuse this intended reuse.
        return jax.random.clone(self.key)

    def _samples(self, samples: int | None) -> int:
        """Returns the number of draws of a prediction: the given one, or the default for this belief."""
        if samples is None:
            return default_samples(self.belief)
        return whole_number("samples", samples, problem="cannot be averaged")

    def _prepared(self, samples: int) -> Opened | None:
        """Returns the rule's preparation with the posterior's own key; small preparations are cached."""
        needs_rows = self.model.predicts_missing or self.model.simulates
        if needs_rows or type(self.rule).predict is not PredictiveRule.predict or is_traced():
            return None
        question = samples, memory.budget(), jax.dtypes.canonicalize_dtype(float)
        cache = vars(self).setdefault("_kept", _Kept())
        if question in cache:
            return cache[question]
        prepared = self.rule.prepare(self.model, self.belief, self.network_state, samples, self._again())
        ready = preparation(prepared)
        if ready is not None and memory.bytes_of(ready.leaves) <= memory.budget():
            cache.clear()  # only the latest is cached
            cache[question] = ready
        return ready

    @_in_current_precision
    def local(self, rows: object, samples: int = 32, key: RandomKey | None = None) -> dict[str, Any]:
        """Returns the beliefs about the latent variables of rows of a `lamu.Graph`, by name.

        Unobserved variables that no other variable depends on are not included: use `predict`.

        Args:
            rows: data, arrays by name.
            samples: draws of a belief that has no closed form.
            key: for these draws; the posterior's own where None.

        Raises:
            TypeError: for a model that is not a graph.
        """
        key = self._key(key)
        return self.model.local_beliefs(self.belief, self.model.rows(rows), samples, key)

    @_in_current_precision
    def log_prob(self, rows: object, samples: int | None = None, key: RandomKey | None = None) -> Any:
        r"""Returns \(\log E_q[p(\text{row} \mid \theta)]\) of rows in nats, `[N]`, for a target without inputs.

        For a `lamu.ConjugateModel` it is exact. For a `lamu.Graph` the expectation is an average over draws; for a
        point belief it is the density. Where latents of a row interact it is an average of bounds.

        Where latents are drawn it is an average of importance weights. From 100 samples on, rows with unreliable
        weights get their own proposal, and a warning counts the rows that stay unreliable. The result is the value of
        `lamu.scores.row_log_prob`, which has each row's Pareto k. Fewer than 100 weights are too few to judge, and are
        averaged as they are.

        Args:
            rows: data, arrays by name.
            samples: the number of draws; where None 32, and 128 where latents are drawn.
            key: for these draws; the posterior's own where None.

        Raises:
            TypeError: for a network; use `predict` for its targets.
            ValueError: for fewer than one draw.
        """
        samples = (128 if self.model.draws_latents else 32) if samples is None else samples
        samples = whole_number("samples", samples, problem="cannot be averaged")
        key, batch = self._key(key), self.model.rows(rows).full()
        if samples < FEWEST_WEIGHTS or not self.model.draws_latents:
            return self.model.row_log_prob(self.belief, batch, samples, key)
        from lamu.latent.row_proposals import row_log_probs  # imported here, as most models draw no latents

        return jnp.asarray(row_log_probs(self.model, self.belief, batch, samples, key).value)

    def with_rule(self, rule: PredictiveRule) -> Posterior:
        """Returns the same posterior with another predictive rule."""
        return replace(self, rule=rule)

    def joint(self) -> Posterior:
        r"""Returns the posterior whose predictions are draws of functions, each the same for all rows.

        Sums, differences and rankings of rows need it: a closed form, or a quadrature, is of each row alone, so that
        draws of several rows lack what a common θ makes of them. Each row is predicted as before, up to the error of
        `samples` draws. Other posteriors share their draws as they are: of samplers, ensembles, variational beliefs,
        graphs and programs.

        Examples:
            >>> import jax, lamu
            >>> x, y = lamu.data.load("diabetes")
            >>> pred = lamu.regression(x[:30], y[:30]).joint().predict(x[30:], samples=500)
            >>> totals = pred.sample(jax.random.key(0), 500).sum(axis=1)  # of the 412 rows
            >>> float(totals.std()) > 2 * float((pred.variance.sum()) ** 0.5)
            True
        """
        return self.with_rule(self.rule.joint())

    @_in_current_precision
    def sample(self, key: RandomKey, n: int) -> Params:
        """Returns n independent draws of the parameters, along a new leading axis; frozen weights are not repeated.

        Raises:
            ValueError: where the draws take more than `lamu.memory.limit()` together.
        """
        require_key(key)
        leaves = jax.tree.leaves(jax.eval_shape(self.belief.sample, key))
        size = memory.bytes_of(leaves)
        numbers = sum(math.prod(leaf.shape) for leaf in leaves)
        instead = f"ask for {max(memory.limit() // max(size, 1), 1):,} at a time"
        memory.demand(n * size, f"a sample of {n:,} draws of {numbers:,} numbers", instead)
        return independent_draws(self.belief, key, n)

    @property
    def mean(self) -> Params:
        """E_q[θ]; raises an AttributeError, with the alternative, for beliefs with several modes."""
        return self.belief.mean

    @property
    @_in_current_precision
    def std(self) -> Params:
        """The standard deviation of each number of θ; raises an AttributeError for beliefs with several modes."""
        return attribute_of(self.belief, "std")

    @_in_current_precision
    def interval(self, level: float = 0.9) -> tuple[Params, Params]:
        """Returns the ends of the central interval of each number of θ, two trees like `mean`.

        Args:
            level: the probability inside, between 0 and 1.
        """
        return attribute_of(self.belief, "interval")(level)

    @property
    def samples(self) -> Params:
        """The draws of a sampled belief, leaves `[chains, draws, ...]`; raises an AttributeError for other beliefs."""
        if isinstance(self.belief, Draws):
            return self.belief.samples
        raise AttributeError(f"a {type(self.belief).__name__} belief holds no draws; use sample(key, n)")

    def __getattr__(self, name: str) -> Any:
        """Raises an AttributeError that names Lamu's counterpart of other libraries' methods."""
        return getattr_or_substitute(self, name, _ELSEWHERE)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the posterior as a folder: JSON and plain arrays, atomically, with checksums and without code.

        Draws that are stored on disk are copied in pieces, so that they may exceed the memory. Modules of PyTorch, Flax
        or Equinox, and functions, are code: give the network again, `lamu.load(path, network=...)`.

        Args:
            path: the folder to create.

        Returns:
            Its path.

        Raises:
            FileExistsError: if `path` exists.
            TypeError: if a part is not a record, for instance a custom network; decorate its class with
                `lamu.record.record`.
        """
        arrays: dict[str, np.ndarray] = {}
        content = encode(self, arrays, "posterior")
        return store.write(path, content, arrays)

    @_in_current_precision
    def export(
        self,
        path: str | os.PathLike[str],
        x: Inputs | None = None,
        samples: int | None = None,
        platforms: Sequence[str] = ("cpu", "cuda", "tpu"),
    ) -> Path:
        """Exports the predictions as programs that JAX runs without Lamu, for any number of rows.

        The folder contains programs of `jax.export` (StableHLO), the draws that `predict` uses with the posterior's own
        key, and a schema in JSON. Mean, variance, the parts of the uncertainty and the probabilities of classes are one
        program; intervals, quantiles and sets of classes are one each. docs/serving.md has a loader of thirty lines.
        Offsets and trials are not supported: the programs assume an offset of zero, and one trial a row.

        Args:
            path: the folder to create.
            x: inputs whose rows have the shape and the dtype of those to predict; needed where the network does not
                determine them (standardised inputs and dense layers do).
            samples: the number of draws, where the predictive rule needs draws; that of `predict` where None.
            platforms: the platforms that the programs run on.

        Returns:
            The folder's path.

        Raises:
            FileExistsError: if `path` exists.
            TypeError: for a graph or another target that is not a `Model`, and for a network that cannot be exported,
                such as one that calls back into Python.
            ValueError: where the shape of a row is not known, and no x is given.

        Examples:
            >>> import lamu, tempfile, pathlib
            >>> x, y = lamu.data.load("diabetes")
            >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=55.0)).standardised(x, y)
            >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
            >>> folder = posterior.export(pathlib.Path(tempfile.mkdtemp()) / "exported")
            >>> sorted(file.name for file in folder.iterdir())[1:]
            ['interval.stablehlo', 'moments.stablehlo', 'quantile.stablehlo', 'schema.json']
        """
        from lamu import stablehlo  # imported here, as a fit needs no `jax.export`

        if not isinstance(self.model, Model):
            raise TypeError(
                f"a {type(self.model).__name__} cannot be exported, since what it predicts is not a function of "
                "inputs x alone; save(path) keeps it for Lamu"
            )
        samples = self._samples(samples)
        example = None if x is None else self.model.inputs(x)
        shape = self.row_shape if example is None else example.shape[1:]
        if shape is None:
            raise ValueError("the network does not tell the shape of a row; give x, inputs of one row or more")
        dtype = jax.dtypes.canonicalize_dtype(jnp.result_type(float) if example is None else example.dtype)
        with all_digits():
            prepared = self.rule.prepare(self.model, self.belief, self.network_state, samples, self._again())
            about = {"samples": samples, "columns": self.model.columns}
            return stablehlo.write(path, prepared, shape, dtype, self.model.name, platforms, about)

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        """The shape of one row of the inputs, where the network determines it; else None."""
        network = self.model.network if isinstance(self.model, Model) else None
        if isinstance(network, Standardised):
            return np.shape(network.shift)
        draw = jax.eval_shape(self.belief.sample, self.key)
        is_plain = is_dense(network) and self.model.frozen is None and isinstance(draw, Mapping)
        return _row_shape(network, draw["network"]) if is_plain else None


class _Kept(dict[Any, Any]):
    """Cache of a posterior's preparations, which copies of the posterior do not share."""

    def __reduce__(self) -> Any:
        return _Kept, ()


def _with_offset(x: Inputs, offset: Any) -> tuple[Inputs, Any]:
    """Separates inputs from an offset given with them."""
    assert isinstance(x, Mapping)
    if "offset" not in x or "x" not in x:
        return x, offset
    if offset is not None:
        raise ValueError("the inputs bring an offset, and offset= is another; give one of them")
    rest = {name: part for name, part in x.items() if name != "offset"}
    return (rest["x"] if set(rest) == {"x"} else rest), x["offset"]


def _checked_offset(offset: object, x: Inputs) -> Any:
    offset = offset if isinstance(offset, jax.Array) else np.asarray(offset)
    if offset.ndim not in (1, 2) or offset.shape[0] != x.shape[0]:
        raise ValueError(
            f"the offset has the shape {offset.shape} and x {x.shape[0]} rows; give one number a row, of shape "
            f"({x.shape[0]},), or one an output"
        )
    if not isinstance(offset, Tracer) and not bool(np.isfinite(offset).all()):
        raise ValueError("the offset holds NaN or infinity; the log of an exposure of zero is one")
    return offset.astype(x.dtype)


def load(
    path: str | os.PathLike[str],
    network: Network | object = None,
    *,
    program: Callable[..., Any] | None = None,
    trust: Iterable[str] = (),
) -> Posterior:
    """Reads a posterior that `Posterior.save` wrote.

    Args:
        path: the folder.
        network: replaces the saved network where its type cannot be loaded; of a network of the same type only the
            code is taken (the module, the function), and frozen weights and constants are the saved ones. The input
            scaling of `Model.standardised` is kept, unless the given network is a `Standardised` itself.
        program: the function of a posterior of `lamu.from_numpyro`, which a file does not contain.
        trust: names of modules that may be imported, including their submodules, for instance `["mypackage"]`.

    Returns:
        The posterior. Its predictions equal those of the saved one bit for bit.

    A file contains no code, and loading it runs none. A likelihood, prior or other record from outside the library is
    saved by its name, `package.module:Name`. That module must have been imported before, or be named in `trust`:
    importing runs the module's top level, and a file may name any module on the path. A class that is defined in a
    script (`__main__`) or a notebook can be loaded where it is defined again.

    Raises:
        lamu.store.StoreError: if the folder is missing, truncated, altered, or not a saved posterior, or a type is
            unknown, or a program is not given; the message says which.
        ValueError: for a program where none was saved, or one with other sites.

    Examples:
        >>> import lamu, tempfile, pathlib
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=55.0)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> folder = posterior.save(pathlib.Path(tempfile.mkdtemp()) / "posterior")
        >>> bool((lamu.load(folder).predict(x).mean == posterior.predict(x).mean).all())
        True
    """
    content, arrays = store.read(path, lambda content: _declared(path, content))
    with store.reading(path):
        replacements: Any = None
        if network is not None:
            holder, field = content["fields"]["model"]["fields"], "network"
            while not isinstance(network, Standardised) and holder[field]["record"] == "networks.Standardised":
                holder, field = holder[field]["fields"], "base"
            replacements = {}
            holder[field] = with_code_of(holder[field], network, replacements)
            arrays = {name: arrays[name] for name in declared(content)}
        if program is not None:
            if not callable(program):
                raise TypeError(f"program={program!r} is not a function; give the one that lamu.from_numpyro was given")
            if not _put_program(content):
                raise ValueError(f"{str(path)!r} holds no NumPyro program; leave program={program!r} out")
            replacements = {**(replacements or {}), "given program": lambda: program}
        posterior = decode(content, arrays, replacements, trust)
        if program is not None:
            posterior.model.require_sites(program)
        require_whole(posterior)
    return posterior


def _put_program(node: Any) -> bool:
    """Marks NumPyro programs in saved content for replacement by a given one; returns whether there are any."""
    if not isinstance(node, dict | list):
        return False
    if isinstance(node, dict) and node.get("record") == "programs.LogJoint":
        node["fields"]["program"] = {"record": "given program", "fields": {}}
        return True
    replaced = [_put_program(item) for item in (node.values() if isinstance(node, dict) else node)]  # in all of them
    return any(replaced)


def _declared(path: object, content: object) -> Any:
    if not isinstance(content, dict) or content.get("record") != "posterior.Posterior":
        raise store.StoreError(f"{str(path)!r} holds no posterior")
    return declared(content)


def require_whole(posterior: Posterior) -> None:
    """Raises a ValueError where parts of a posterior do not fit each other, by their shapes alone.

    Args:
        posterior: a posterior read from a file.

    Raises:
        ValueError: with the part of a wrong shape.

    Examples:
        >>> import lamu
        >>> from lamu.posterior import require_whole
        >>> x, y = lamu.data.load("diabetes")
        >>> require_whole(lamu.regression(x, y))
    """
    key, temperature = posterior.key, posterior.temperature
    if not (hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0):
        raise ValueError("its key is not a random key")
    if not float(temperature) > 0:
        raise ValueError(f"its temperature is {float(temperature):g}")
    if not callable(getattr(posterior.belief, "sample", None)):
        raise ValueError(f"its belief is a {type(posterior.belief).__name__}")
    for path, leaf in jax.tree_util.tree_flatten_with_path(posterior)[0]:
        if isinstance(leaf, str):
            raise ValueError(f"it has the word {leaf!r} at {jax.tree_util.keystr(path)}, where numbers are")
    if not isinstance(posterior.rule, PredictiveRule):
        raise ValueError(f"its predictive rule is a {type(posterior.rule).__name__}")
    _require_moderate((posterior.belief, posterior.model))
    draw = jax.eval_shape(posterior.belief.sample, key)
    if isinstance(posterior.model, Model):
        _require_network(posterior.model, draw, posterior.network_state)
        leaves = jax.tree_util.tree_flatten_with_path(posterior.belief)[0]
        named = [(jax.tree_util.keystr(path), leaf.dtype) for path, leaf in leaves]
        # A precision may contain rows, and draws their batch statistics, in any dtype.
        kinds = {
            str(dtype)
            for where, dtype in named
            if ".statistics" not in where and (".mean" in where or jnp.issubdtype(dtype, np.floating))
        }
        if len(kinds) > 1 and is_dense(posterior.model.network):
            raise ValueError(f"the numbers of its belief are {' and '.join(sorted(kinds))}")


def _require_moderate(parts: object) -> None:
    """Raises a ValueError where numbers are so large that outputs of a network overflow."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(parts)[0]:
        inside = jax.tree_util.keystr(path)
        named = any(name in inside for name in (".mean", ".samples", ".shift", ".scale"))
        if not named or not isinstance(leaf, jax.Array | np.ndarray) or not jnp.issubdtype(leaf.dtype, np.floating):
            continue
        largest, most = float(np.abs(leaf).max(initial=0.0)), float(jnp.finfo(leaf.dtype).max) ** 0.5
        if largest > most:
            raise ValueError(f"it has the number {largest:.1e} at {inside[3:]}, whose square {leaf.dtype} cannot hold")


def _require_network(model: Model, draw: object, network_state: State) -> None:
    """Raises a ValueError where a draw does not have the parameters that the network's `init` would return."""
    # That needs the shape of a row, known from standardised networks and dense layers; others are not checked.
    if model.frozen is not None and not (isinstance(model.frozen, Mapping) and jax.tree.leaves(model.frozen)):
        raise ValueError("its frozen weights are not arrays by name")
    if model.frozen is not None:
        return
    dense = is_dense(model.network)
    if not isinstance(draw, Mapping) or set(draw) != {"network", "likelihood"}:
        if dense:
            raise ValueError("its belief is not about the weights of a network")
        return
    shape, leaves = _row_shape(model.network, draw["network"]), tree.by_path(draw["network"])
    dtypes = [leaf.dtype for leaf in leaves.values() if leaf is not None]
    if dense and not all(jnp.issubdtype(dtype, np.floating) for dtype in dtypes):
        raise ValueError(f"its weights are {' and '.join(sorted({str(dtype) for dtype in dtypes}))}")
    if shape is None or not dtypes:
        return
    kind = lambda leaf: None if leaf is None else (leaf.shape, leaf.dtype)
    expected, state, outputs = {}, None, 0
    for outputs in _numbers_of_outputs(model, draw["network"]):
        fresh, state = _fresh(model.network, shape, outputs, dtypes[0])
        expected = tree.by_path(fresh)
        if {path: kind(leaf) for path, leaf in expected.items()} == {path: kind(leaf) for path, leaf in leaves.items()}:
            break
    for path in [*expected, *leaves]:
        if kind(leaves.get(path)) != kind(expected.get(path)):
            raise ValueError(f"its belief about {path} is not of the network {model.network!r}")
    if jax.tree.structure(state) != jax.tree.structure(network_state):
        raise ValueError(f"its network state is not that of the network {model.network!r}")
    if not dense:
        return
    f = jax.ShapeDtypeStruct((1, outputs), dtypes[0])
    if isinstance(model.likelihood, Scaled):
        scaled, plain = (
            jax.eval_shape(each.mean, draw["likelihood"], f).shape for each in (model.likelihood, model.likelihood.base)
        )
        if scaled != plain:
            raise ValueError(f"its likelihood scales targets of the shape {plain[1:]} by constants of another")
    classes = model.likelihood.outputs(np.zeros(1, int)) if model.has_classes else outputs
    if classes != outputs:
        raise ValueError(f"its network has {outputs} outputs, and its likelihood {model.likelihood!r} takes {classes}")


def _fresh(network: Any, shape: tuple[int, ...], outputs: int, dtype: DTypeLike) -> tuple[Params, State]:
    """Returns the shapes of a network's initial parameters and state."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    x = jax.ShapeDtypeStruct((1, *shape), dtype)
    return jax.eval_shape(lambda key, x: network.init(key, x, outputs), key, x)


def _numbers_of_outputs(model: Model, weights: Any) -> list[int]:
    """Returns the possible numbers of outputs of a network, from its likelihood or its last layer."""
    if is_dense(model.network):
        return [weights["layers"][max(weights["layers"], key=int)]["kernel"].shape[-1]]
    if model.has_classes:
        return [model.likelihood.outputs(np.zeros(1, int))]
    shift = np.shape(model.likelihood.shift) if isinstance(model.likelihood, Scaled) else ()
    first = model.likelihood.outputs(np.zeros((1, *shift)))
    ends = {size for leaf in jax.tree.leaves(weights) for size in (leaf.shape[:1] + leaf.shape[-1:])}
    return [first, *sorted(ends - {first})]


def _row_shape(network: Any, weights: Any) -> tuple[int, ...] | None:
    """Returns the shape of a row, from the standardisation constants or the first dense layer."""
    dense = is_dense(network)
    width = None
    if dense:
        layers = weights.get("layers") if isinstance(weights, Mapping) else None
        if not layers:
            raise ValueError(f"its belief about {', '.join(weights)} is not of the network {network!r}")
        width = layers[min(layers)]["kernel"].shape[0]
    if not isinstance(network, Standardised):
        return None if width is None else (width,)
    shape = np.shape(network.shift)
    if width is not None and math.prod(shape) != width:
        raise ValueError(f"its network takes {width} inputs, and is standardised for {shape}")
    return shape
