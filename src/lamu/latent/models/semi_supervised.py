"""Semi-supervised classification by generative models."""

from __future__ import annotations

import jax.numpy as jnp

from lamu.graphs.categorical import Categorical
from lamu.graphs.graph import Graph
from lamu.graphs.network import exp
from lamu.graphs.normal import Normal
from lamu.graphs.program import Program
from lamu.latent.locals import Amortised, Enumerated
from lamu.likelihoods import Bernoulli, Likelihood
from lamu.networks import MLP
from lamu.sizes import sized

__all__ = ["SemiSupervised", "StackedSemiSupervised"]

_PIXELS = Bernoulli()


@sized
def SemiSupervised(
    classes: int,
    latents: int,
    outputs: int,
    hidden: tuple[int, ...] = (500,),
    weight: float = 10.0,
    likelihood: Likelihood = _PIXELS,
    labelled: float = 1.0,
) -> Graph:
    r"""Returns model M2: a class c and a style z, \(c \sim \mathrm{Cat}(1/K)\), \(z \sim N(0, I)\), y | c, z.

    \[ \mathcal J = \sum_{\text{labelled}} \mathcal L(y, c) + \sum_{\text{others}} \mathcal U(y)
       + \alpha N\, \frac{1}{N_l} \sum_{\text{labelled}} \log q(c \mid y) \]

    Data: `{"y": [N, outputs], "c": [N]}`, c from zero, NaN where a row has no label; all rows may have one.
    `posterior.local(rows)["c"].mean` are the probabilities of the classes.

    The classifier learns from labels by the last term alone, which must grow as labels become few: give `labelled`.
    Train it in two runs: on the rows with labels alone, so that the decoder reads the class from c, and from there on
    all rows, of which `latent.oversample_labelled` puts labels into every batch. From random weights the style takes
    the class over, and the classes that the decoder finds are not those of the labels.

    Args:
        classes: K.
        latents: numbers of z; few, since a large style holds the class too.
        outputs: numbers that the decoder returns.
        hidden: the widths of the hidden layers of every network.
        weight: α, what the average log probability of a label counts beside the bounds of all rows, a row.
        likelihood: p(y | f), of one entry.
        labelled: \(N_l / N\), the share of the rows that have a label.

    Raises:
        ValueError: for a share that is not above 0 and at most 1, or a negative weight.

    Departures: the paper has α = 0.1, and starts from random weights.

    Source: Kingma, Rezende, Mohamed & Welling (2014), equations 6 to 9.

    Examples:
        >>> import numpy as np, lamu
        >>> from lamu.latent import models, oversample_labelled
        >>> y = np.eye(6, dtype="float32")
        >>> c = np.array([0.0, 1.0, np.nan, np.nan, np.nan, np.nan])
        >>> graph = models.SemiSupervised(2, 1, 6, (8,), labelled=2 / 6)
        >>> known, adam = ~np.isnan(c), lamu.algorithms.adam(3e-3)
        >>> first = lamu.fit(graph, {"y": y[known], "c": c[known]}, adam, steps=20).posterior
        >>> rows = oversample_labelled({"y": y, "c": c})
        >>> posterior = lamu.fit(graph.starting_at(first.mean), rows, adam, steps=20, batch_size=3).posterior
        >>> posterior.local({"y": y})["c"].mean.shape
        (6, 2)
    """
    _require_share(labelled)

    def program(m: Program) -> None:
        decode = m.network("decode", MLP(hidden), outputs=outputs)
        with m.rows():
            c = m.sample("c", Categorical(jnp.full(classes, 1.0 / classes)))
            z = m.sample("z", Normal(jnp.zeros(latents), 1.0))
            m.sample("y", likelihood(decode(c, z)))

    local = {"c": Enumerated(MLP(hidden), weight / labelled), "z": Amortised(MLP(hidden), given=("c",))}
    return Graph(program, local=local)


@sized
def StackedSemiSupervised(
    classes: int,
    latents: int,
    codes: int,
    outputs: int,
    hidden: tuple[int, ...] = (500,),
    weight: float = 0.1,
    likelihood: Likelihood = _PIXELS,
    labelled: float = 1.0,
) -> Graph:
    r"""Returns model M1+M2: the class and the style of M2 make the code of M1, and the code makes the row.

    \[ c \sim \mathrm{Cat}(1/K), \quad z_2 \sim N(0, I), \quad z_1 \mid c, z_2 \sim N(m(c, z_2), s(c, z_2)^2), \quad
       y \sim p(y \mid f(z_1)) \]
    \[ q(z_1 \mid y)\, q(c \mid z_1, y)\, q(z_2 \mid z_1, c, y) \]

    All parts are trained together. The paper trains M1 first, a `VAE`, and then M2 on its codes: that is
    `SemiSupervised` with a Gaussian likelihood on `posterior.local(rows)["z"].mean`.

    Data: as `SemiSupervised`.

    Args:
        classes: K.
        latents: numbers of the style z₂.
        codes: numbers of the code z₁.
        outputs: numbers that the decoder returns.
        hidden: the widths of the hidden layers of every network.
        weight: α, as in `SemiSupervised`; by default the paper's.
        likelihood: p(y | f), of one entry.
        labelled: \(N_l / N\), the share of the rows that have a label.

    Raises:
        ValueError: for a share that is not above 0 and at most 1, or a negative weight.

    Source: Kingma, Rezende, Mohamed & Welling (2014), section 2.1, "stacked generative semi-supervised model".

    Examples:
        >>> import lamu
        >>> list(lamu.latent.models.StackedSemiSupervised(10, 20, 50, 64).local)
        ['z1', 'c', 'z2']
    """
    _require_share(labelled)

    def program(m: Program) -> None:
        up = m.network("up", MLP(hidden), outputs=(codes, codes))
        decode = m.network("decode", MLP(hidden), outputs=outputs)
        with m.rows():
            c = m.sample("c", Categorical(jnp.full(classes, 1.0 / classes)))
            z2 = m.sample("z2", Normal(jnp.zeros(latents), 1.0))
            mean, log_precision = up(c, z2)
            z1 = m.sample("z1", Normal(mean, precision=exp(log_precision)))
            m.sample("y", likelihood(decode(z1)))

    local = {
        "z1": Amortised(MLP(hidden)),
        "c": Enumerated(MLP(hidden), weight / labelled, given=("z1",)),
        "z2": Amortised(MLP(hidden), given=("z1", "c")),
    }
    return Graph(program, local=local)


def _require_share(labelled: float) -> None:
    if not 0 < labelled <= 1:
        raise ValueError(
            f"labelled={labelled!r} is no share of the rows; give the rows with a label over all rows, for instance 0.1"
        )
