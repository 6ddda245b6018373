"""Base class of likelihoods that hold another one: every member is the base's, unless the wrapper says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lamu.likelihoods.interface import Likelihood
from lamu.typing import Array, Params, PyTree, RandomKey, Targets

__all__ = ["LikelihoodWrapper"]


def _of_base(name: str) -> property:
    """An attribute that is the base's."""
    return property(lambda self: getattr(self.base, name))


def _by_base(name: str) -> Callable[..., PyTree]:
    """A method that is the base's."""

    def method(self: LikelihoodWrapper, *arguments: PyTree) -> PyTree:
        return getattr(self.base, name)(*arguments)

    return method


def _at_parameters(name: str) -> Callable[..., PyTree]:
    """A method that is the base's, at the base's parameters."""

    def method(self: LikelihoodWrapper, params: Params, *others: PyTree) -> PyTree:
        return getattr(self.base, name)(self.parameters(params), *others)

    return method


class LikelihoodWrapper(Likelihood):
    """A likelihood that holds another one as its `base`, and forwards every member of `Likelihood` to it."""

    # A wrapper overrides what it changes. One whose density is another function of f takes back what follows from the
    # density (`information = Likelihood.information`, for instance) or has its own formula.

    base: Any

    def parameters(self, params: Params) -> Params:
        """Returns the base's parameters; those of the wrapper, unless overridden."""
        return params

    support, log_concave, quadratic = _of_base("support"), _of_base("log_concave"), _of_base("quadratic")
    logits, takes_trials = _of_base("logits"), _of_base("takes_trials")

    outputs, output_scales, check, init = map(_by_base, ("outputs", "output_scales", "check", "init"))
    log_prior, sample_prior = _by_base("log_prior"), _by_base("sample_prior")
    dispersion_information, scale_noise = _by_base("dispersion_information"), _by_base("scale_noise")

    distribution, log_prob = _at_parameters("distribution"), _at_parameters("log_prob")
    mean, variance, entropy = _at_parameters("mean"), _at_parameters("variance"), _at_parameters("entropy")
    cdf, log_tails, log_interval = _at_parameters("cdf"), _at_parameters("log_tails"), _at_parameters("log_interval")
    log_cdf, log_survival = _at_parameters("log_cdf"), _at_parameters("log_survival")
    marginal, counted = _at_parameters("marginal"), _at_parameters("counted")
    information, information_blocks = _at_parameters("information"), _at_parameters("information_blocks")
    information_root, information_sum = _at_parameters("information_root"), _at_parameters("information_sum")
    information_diagonal = _at_parameters("information_diagonal")

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def task(self) -> str:
        return self.base.task

    @property
    def n_positions(self) -> int:
        return self.base.n_positions

    @property
    def of_position(self) -> Likelihood:
        """The same wrapper around the base's likelihood of one target."""
        one = self.base.of_position
        wrapper: Any = self  # a record, as every likelihood is
        return self if one is self.base else replace(wrapper, base=one)

    def check_training(self, y: Targets) -> None:
        self.check(y)
        self.base.check_training(y)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        return self.base.sample(key, self.parameters(params), f)
