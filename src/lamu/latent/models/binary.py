"""Models with layers of binary latents."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.expectations import LeaveOneOut, Relaxed, ScoreFunction
from lamu.graphs.bernoulli_logits import BernoulliLogits
from lamu.graphs.graph import Graph
from lamu.graphs.program import Program
from lamu.latent.locals import AmortisedBernoulli
from lamu.latent.priors import AutoregressiveBernoulli
from lamu.likelihoods import Bernoulli, Likelihood
from lamu.networks import MLP, Linear
from lamu.sizes import sized

__all__ = ["DARN", "SigmoidBelief"]

_PIXELS, _SCORES = Bernoulli(), ScoreFunction(4, LeaveOneOut())


@sized
def SigmoidBelief(
    latents: tuple[int, ...],
    outputs: int,
    hidden: tuple[int, ...] = (),
    likelihood: Likelihood = _PIXELS,
    estimator: ScoreFunction | Relaxed = _SCORES,
) -> Graph:
    r"""Returns a sigmoid belief network: layers of binary latents, each layer's logits made by the layer above.

    \[ b_L \sim \mathrm{Ber}(\sigma(c)), \qquad b_l \mid b_{l+1} \sim \mathrm{Ber}(\sigma(f_l(b_{l+1}))), \qquad
       y \sim p(y \mid f_0(b_1)) \]

    The belief goes up, \(q(b_1 \mid y)\, q(b_2 \mid b_1, y) \cdots\). Latents are called b1, b2, … from the data up.

    Data: `{"y": [N, outputs]}`, NaN where missing.

    Args:
        latents: the numbers of latents of each layer, from the data up.
        outputs: numbers that the decoder returns.
        hidden: the widths of the hidden layers of every network; none for the linear maps of the classical network.
        likelihood: p(y | f), of one entry.
        estimator: of the encoders' gradients; `ScoreFunction(1, latent.Baseline(MLP((100,))))` is NVIL.

    Raises:
        ValueError: for no layer.

    Source: Neal (1992); Mnih & Gregor (2014).

    Examples:
        >>> import lamu
        >>> list(lamu.latent.models.SigmoidBelief((10, 5), 64).local)
        ['b1', 'b2']
    """
    depth = _depth(latents)

    def program(m: Program) -> None:
        top = m.network("top", Linear(bias=False), outputs=latents[-1])
        ups = {n: m.network(f"up{n}", _network(hidden), outputs=latents[n - 1]) for n in range(depth - 1, 0, -1)}
        decode = m.network("decode", _network(hidden), outputs=outputs)
        with m.rows():
            b = m.sample(f"b{depth}", BernoulliLogits(top(jnp.ones(1))))
            for n, up in ups.items():
                b = m.sample(f"b{n}", BernoulliLogits(up(b)))
            m.sample("y", likelihood(decode(b)))

    return Graph(program, local=_upwards(depth, hidden, estimator))


@sized
def DARN(
    latents: tuple[int, ...],
    outputs: int,
    hidden: tuple[int, ...] = (),
    estimator: ScoreFunction | Relaxed = _SCORES,
) -> Graph:
    r"""Returns a deep autoregressive network: binary layers and rows whose entries depend on those before them, too.

    \[ p(b_{l,j} = 1 \mid b_{l,<j}, b_{l+1}) = \sigma\big(f_{l,j}(b_{l+1}) + W_{l,j}\, b_{l,<j} + c_{l,j}\big) \]

    and the same for the entries of y given \(b_1\). The beliefs of the encoders are independent within a layer, and go
    up as in `SigmoidBelief`. Latents are called b1, b2, … from the data up.

    Data: `{"y": [N, outputs]}`, zeros and ones without missing entries.

    Args:
        latents: the numbers of latents of each layer, from the data up.
        outputs: the number of entries of y.
        hidden: the widths of the hidden layers of every network; none for linear maps.
        estimator: of the encoders' gradients.

    Raises:
        ValueError: for no layer.

    Source: Gregor, Danihelka, Mnih, Blundell & Wierstra (2014).

    Examples:
        >>> import lamu
        >>> list(lamu.latent.models.DARN((8,), 64).local)
        ['b1']
    """
    depth = _depth(latents)

    def program(m: Program) -> None:
        ups = {n: m.network(f"up{n}", _network(hidden), outputs=latents[n - 1]) for n in range(depth - 1, 0, -1)}
        decode = m.network("decode", _network(hidden), outputs=outputs)
        with m.rows():
            b = m.sample(f"b{depth}", AutoregressiveBernoulli(latents[-1]))
            for n, up in ups.items():
                b = m.sample(f"b{n}", AutoregressiveBernoulli(latents[n - 1], up(b)))
            m.sample("y", AutoregressiveBernoulli(outputs, decode(b)))

    return Graph(program, local=_upwards(depth, hidden, estimator))


def _depth(latents: tuple[int, ...]) -> int:
    if not latents:
        raise ValueError(
            "latents=() has no layer; give the numbers of latents from the data up, for instance (200, 100)"
        )
    return len(latents)


def _network(hidden: tuple[int, ...]) -> Any:
    return MLP(hidden) if hidden else Linear()


def _upwards(depth: int, hidden: tuple[int, ...], estimator: Any) -> dict[str, AmortisedBernoulli]:
    """Returns an encoder of every layer, which reads the row and the layer below."""
    below = lambda n: (f"b{n - 1}",) if n > 1 else ()
    return {f"b{n}": AmortisedBernoulli(_network(hidden), estimator, below(n)) for n in range(1, depth + 1)}
