"""Base class of likelihoods that hold another one: every member is the base's, unless the wrapper says otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lamu.likelihoods.interface import Likelihood
from lamu.supports import Support
from lamu.typing import Array, Number, Params, RandomKey, Targets

__all__ = ["LikelihoodWrapper"]


def _of_base(name: str) -> Any:
    """An attribute that is the base's."""
    return property(lambda self: getattr(self.base, name))


class LikelihoodWrapper(Likelihood):
    """A likelihood that holds another one as its `base`, and forwards every member of `Likelihood` to it."""

    # A wrapper overrides what it changes. One whose density is another function of f takes back what follows from the
    # density (`information = Likelihood.information`, for instance) or has its own formula.

    base: Any

    def parameters(self, params: Params) -> Params:
        """Returns the base's parameters; those of the wrapper, unless overridden."""
        return params

    support: Support | Any = _of_base("support")
    log_concave: bool | Any = _of_base("log_concave")
    quadratic: bool | Any = _of_base("quadratic")
    logits: bool | Any = _of_base("logits")
    takes_trials: bool | Any = _of_base("takes_trials")

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

    def distribution(self, params: Params, f: Array) -> Any:
        return self.base.distribution(self.parameters(params), f)

    def outputs(self, y: Targets) -> int:
        return self.base.outputs(y)

    def output_scales(self, width: int) -> tuple[str, ...]:
        return self.base.output_scales(width)

    def check(self, y: Targets) -> None:
        self.base.check(y)

    def check_training(self, y: Targets) -> None:
        self.check(y)
        self.base.check_training(y)

    def init(self, y: Targets) -> Params:
        return self.base.init(y)

    def log_prior(self, params: Params) -> Array:
        return self.base.log_prior(params)

    def sample_prior(self, key: RandomKey, params: Params) -> Params:
        return self.base.sample_prior(key, params)

    def dispersion_information(self, params: Params) -> Params:
        return self.base.dispersion_information(params)

    def scale_noise(self, params: Params, factor: Number) -> Params | None:
        return self.base.scale_noise(params, factor)

    def log_prob(self, params: Params, f: Array, y: Targets) -> Array:
        # Returns the base's log density in nats, `[batch]`.
        return self.base.log_prob(self.parameters(params), f, y)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        return self.base.sample(key, self.parameters(params), f)

    def mean(self, params: Params, f: Array) -> Array:
        return self.base.mean(self.parameters(params), f)

    def variance(self, params: Params, f: Array) -> Array:
        return self.base.variance(self.parameters(params), f)

    def entropy(self, params: Params, f: Array) -> Array:
        return self.base.entropy(self.parameters(params), f)

    def cdf(self, params: Params, f: Array, y: Targets) -> Array:
        """Returns the base's distribution function."""
        return self.base.cdf(self.parameters(params), f, y)

    def log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        return self.base.log_tails(self.parameters(params), f, y)

    def log_cdf(self, params: Params, f: Array, y: Array) -> Array:
        return self.base.log_cdf(self.parameters(params), f, y)

    def log_survival(self, params: Params, f: Array, y: Array) -> Array:
        return self.base.log_survival(self.parameters(params), f, y)

    def log_interval(self, params: Params, f: Array, lower: Array, upper: Array) -> Array:
        return self.base.log_interval(self.parameters(params), f, lower, upper)

    def marginal(self, params: Params, mean: Array, covariance: Array) -> Any:
        return self.base.marginal(self.parameters(params), mean, covariance)

    def counted(self, params: Params, f: Array, y: Targets, weights: Array) -> Array:
        return self.base.counted(self.parameters(params), f, y, weights)

    def information(self, params: Params, f: Array) -> Array:
        return self.base.information(self.parameters(params), f)

    def information_blocks(self, params: Params, f: Array) -> Array:
        return self.base.information_blocks(self.parameters(params), f)

    def information_root(self, params: Params, f: Array) -> Array:
        """Returns the base's root of the information, `[batch, outputs, rank]`."""
        return self.base.information_root(self.parameters(params), f)

    def information_diagonal(self, params: Params, f: Array) -> Array:
        return self.base.information_diagonal(self.parameters(params), f)

    def information_sum(self, params: Params, f: Array, weights: Array) -> Array:
        """Returns the base's sum of the information, `[outputs, outputs]`."""
        return self.base.information_sum(self.parameters(params), f, weights)
