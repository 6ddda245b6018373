"""A network as it predicts: in evaluation mode, with its state inside it."""

from __future__ import annotations

from typing import Any

from lamu.networks.interface import Network, outputs
from lamu.networks.wrapper import NetworkWrapper
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Evaluated"]


@record
class Evaluated(NetworkWrapper):
    r"""The network \(x \mapsto f(\theta, x)\) with batch statistics and the like held, whose rows never meet.

    Its weights go on to be learned, under the statistics that it came with, and each row has a gradient of its own:
    what `vogn`, `ogn`, `slang` and empirical Fisher matrices need of a network with batch normalisation. Its units are
    never dropped.

    Attributes:
        base: the network.
        state: its state, for instance `fit.posterior.network_state` of an earlier run.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("iris")
        >>> base = lamu.networks.MLP((8,), normalise=lamu.networks.BatchNorm())
        >>> model = lamu.Model(base, lamu.likelihoods.Categorical(3))
        >>> first = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=20).posterior
        >>> held = lamu.networks.Evaluated(base, first.network_state)
        >>> model = lamu.Model(held, lamu.likelihoods.Categorical(3)).starting_at(first.mean)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.vogn(), epochs=40).posterior
        >>> lamu.scores.accuracy(posterior.predict(x), y) > 0.9
        True
    """

    base: Network | Any
    state: Any

    @property
    def masked(self) -> bool:
        """No row meets another."""
        return False

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        return self.base.init(key, x, outputs)[0], {}

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns the base's outputs in evaluation mode, whatever mode is asked for."""
        return outputs(self.base, params, self.state, x, None, False, None)[0], {}
