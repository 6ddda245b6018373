"""A Flax Linen module as a network."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.networks.interface import Network
from lamu.record import given, record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["Linen"]


@record
class Linen(Network):
    r"""A Flax Linen module, \(f(\theta, x)\) = `module.apply({"params": θ, **state}, x)`.

    The collection `params` is what beliefs are about, under the names that Flax gives it; all others (`batch_stats`,
    ...) are the network's state, which training passes renew. Random layers draw in passes that are given a key, and
    in no others.

    The module is told the mode by the arguments that its call has: `use_running_average` and `train`, `training` or
    `is_training` say whether a pass trains, and `deterministic` whether it has no key. A `train` of a module without a
    state can only be about noise, and says whether there is a key; of one with a state it is about both, so that such a
    module cannot predict with noise (`mc_dropout`) by statistics that are held.

    A module is code: a saved posterior has its name, and who loads it gives the network again,
    `lamu.load(path, network=...)`.

    Attributes:
        module: the module, not its class; its call takes `[batch, ...]` and gives `[batch, outputs]`.
        head: the path pattern of the last layer's parameters, in which f is linear, for methods of the last layer.
        linear: whether f is affine in all parameters.
        variables: what it was trained to, as `module.init` has it; None for fresh weights from every run's own key.

    Raises:
        TypeError: for what is no Linen module, or variables without `params`.
        ValueError: for a head that matches no parameter.

    Examples:
        >>> import flax.linen as nn, lamu
        >>> x, y = lamu.data.load("iris")
        >>> network = lamu.networks.Linen(nn.Sequential([nn.Dense(8), nn.tanh, nn.Dense(3)]), head="layers_2/*")
        >>> model = lamu.Model(network, lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.vogn(), epochs=100).posterior
        >>> lamu.tree.paths(posterior.mean["network"])[0], lamu.scores.accuracy(posterior.predict(x), y) > 0.9
        ('layers_0/bias', True)
    """

    module: Any = given()
    head: str = static(default="*")
    linear: bool = static(default=False)
    variables: Any = None

    def __post_init__(self) -> None:
        from flax.linen import Module

        if not isinstance(self.module, Module):
            told = f"the class {self.module.__name__}" if isinstance(self.module, type) else repr(self.module)
            raise TypeError(f"module={told} is no Linen module; give an instance, for instance Linen(Net())")
        if self.variables is not None:
            if "params" not in self.variables:
                raise TypeError(
                    f"the variables have the collections {', '.join(self.variables) or 'none'}, and 'params' is not "
                    'among them; give what module.init returned, or {"params": ...}'
                )
            tree.require_matches((self.head,), _plain(self.variables)["params"])

    @property
    def trained(self) -> bool:
        """Whether the weights were brought along."""
        return self.variables is not None

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns the parameters and the other collections: the module's own draw, or what it was trained to."""
        if self.variables is None:
            modes = self._modes(stateful=False, noisy=False, train=False)
            variables = _plain(self.module.init({"params": key}, x, **modes))
            tree.require_matches((self.head,), variables.get("params", {}))
        else:
            variables = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), _plain(self.variables))
        return variables.pop("params", {}), variables

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns the module's outputs, and its collections: new in training, else as they were."""
        modes = self._modes(stateful=bool(state), noisy=key is not None, train=train)
        # Streams of other names fall back to this one, each layer with a key of its own.
        rngs = None if key is None else {"params": key}
        variables = {"params": params, **state}
        if train and state:
            return self.module.apply(variables, x, rngs=rngs, mutable=list(state), **modes)
        return self.module.apply(variables, x, rngs=rngs, **modes), state

    def _modes(self, stateful: bool, noisy: bool, train: bool) -> dict[str, bool]:
        known = {"use_running_average": not train, "deterministic": not noisy}
        known |= dict.fromkeys(("train", "training", "is_training"), train if stateful else noisy)
        asked = inspect.signature(type(self.module).__call__).parameters
        return {name: value for name, value in known.items() if name in asked}


def _plain(variables: Any) -> dict[str, Any]:
    """Returns collections as dictionaries of arrays, without the boxes that say how arrays are sharded."""
    from flax.core import unfreeze
    from flax.core.meta import unbox

    return dict(unfreeze(unbox(variables)))
