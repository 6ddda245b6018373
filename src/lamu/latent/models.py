"""Ready models with amortised latents: functions that return a `lamu.Graph`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.base.arguments import sized
from lamu.expectations import LeaveOneOut, Relaxed, ScoreFunction
from lamu.families import Gamma
from lamu.graphs.elimination import Local
from lamu.graphs.factor import Factor
from lamu.graphs.graph import Graph
from lamu.graphs.network import exp
from lamu.graphs.normal_factors import Normal
from lamu.graphs.positive_factors import BernoulliLogits, Categorical
from lamu.graphs.program import Program
from lamu.graphs.series_factors import GaussianChain
from lamu.latent.bounds import ELBO, Bound
from lamu.latent.columns import Columns
from lamu.latent.drawing import Drawing, Glimpse, Whole
from lamu.latent.locals import (
    Amortised,
    AmortisedBernoulli,
    BeliefFamily,
    Conjugate,
    Corruption,
    Delta,
    Denoising,
    Enumerated,
    Ladder,
    Masking,
    MeanField,
    Recurrent,
    Smoother,
)
from lamu.latent.locals.encoder import EachStep
from lamu.latent.priors import AutoregressiveBernoulli, TransitionPrior
from lamu.likelihoods import Bernoulli, Likelihood
from lamu.networks import MLP, Linear, Network

__all__ = [
    "DARN",
    "DRAW",
    "VAE",
    "AutoEncoder",
    "DeepKalman",
    "DeepLatentGaussian",
    "DeepMarkov",
    "DenoisingAutoEncoder",
    "ExponentialPCA",
    "FactorAnalysis",
    "LadderVAE",
    "SemiSupervised",
    "SigmoidBelief",
    "StackedSemiSupervised",
    "TableVAE",
]

_PIXELS = Bernoulli()
_OF_TABLES = MLP((50,))
_WIDE_NETWORK, _GAUSSIAN, _BOUND, _HIDDEN = MLP((400,)), MeanField(), ELBO(), Masking()


@sized
def VAE(
    latents: int,
    outputs: int,
    decoder: Any = _WIDE_NETWORK,
    encoder: Any = _WIDE_NETWORK,
    likelihood: Likelihood = _PIXELS,
    family: BeliefFamily = _GAUSSIAN,
    bound: Bound = _BOUND,
    prior: Factor | None = None,
) -> Graph:
    r"""Returns a variational autoencoder, \(z \sim N(0, I)\), \(y \mid z \sim p(y \mid f(z))\).

    Data: `{"y": [N, outputs]}`, NaN where missing. Images `[N, height, width]` are passed unchanged to a convolutional
    encoder; outputs is the number of their pixels.

    `Gaussian()` learns a noise for each entry of y. Entries that hardly vary, such as the margin of images, then
    dominate all others and training is slow; for entries in one unit use a single noise, either fixed,
    `Gaussian(scale=...)`, or learned, `PerPosition(Gaussian(), (outputs,))`.

    Args:
        latents: dimension of z.
        outputs: number of the decoder's outputs, one for each entry of y for most likelihoods.
        decoder: f.
        encoder: the network of q(z | y).
        likelihood: p(y | f), for one entry.
        family: family of q(z | y).
        bound: the bound that training maximises.
        prior: p(z), for instance `MixturePrior(latents, parts=10)`; N(0, I) where None.

    Source: Kingma & Welling (2014); Rezende, Mohamed & Wierstra (2014).

    Examples:
        >>> import lamu
        >>> sorted(lamu.latent.models.VAE(2, 64).local)
        ['z']
    """
    prior = _standard_normal(latents) if prior is None else prior
    return _decoded(prior, decoder, outputs, likelihood, Amortised(encoder, family, bound=bound))


@sized
def TableVAE(
    columns: Columns,
    latents: int,
    decoder: Any = _OF_TABLES,
    encoder: Any = _OF_TABLES,
    family: BeliefFamily = _GAUSSIAN,
    bound: Bound = _BOUND,
    prior: Factor | None = None,
) -> Graph:
    r"""Returns a variational autoencoder of a table of mixed columns, \(y_d \mid z \sim p_d(y_d \mid f_d(z))\).

    Data: `columns.rows(frame)`, variables by name, NaN where missing.

    Args:
        columns: `latent.Columns.of(frame)`, with the likelihood of each.
        latents: dimension of z.
        decoder: f; `Linear()` for factor analysis of mixed columns.
        encoder: the network of q(z | y), which also reads which entries are missing.
        family: family of q(z | y).
        bound: the bound that training maximises.
        prior: p(z); N(0, I) where None.

    Source: Nazábal, Olmos, Ghahramani & Valera (2020), section 3.

    Examples:
        >>> import lamu, pandas as pd
        >>> from lamu import latent
        >>> frame = pd.DataFrame({"size": [1.2, 2.0, 1.9, 0.4, 1.1], "sort": ["a", "b", "b", "a", None]})
        >>> [site.name for site in latent.models.TableVAE(latent.Columns.of(frame), 1).in_rows]
        ['z', 'numbers', 'sort']
    """
    prior = _standard_normal(latents) if prior is None else prior
    laws = {name: columns.likelihood(name) for name in columns.variables}

    def program(m: Program) -> None:
        decode = m.network("decode", decoder, outputs=tuple(len(offset) for _, offset in laws.values()))
        with m.rows():
            outputs = decode(m.sample("z", prior))
            outputs = outputs if len(laws) > 1 else (outputs,)
            for (name, (likelihood, offset)), part in zip(laws.items(), outputs, strict=True):
                m.sample(name, likelihood(part + jnp.asarray(offset)))

    return Graph(program, local={"z": Amortised(encoder, family, bound=bound, marked=True)})


def _standard_normal(latents: int | tuple[int, ...]) -> Factor:
    return Normal(jnp.zeros(latents), 1.0)


def _decoded(
    prior: Factor, decoder: Network | Any, outputs: int, likelihood: Likelihood, local: Local, latent: str = "z"
) -> Graph:
    """Returns the model of rows that a network decodes from one latent."""

    def program(m: Program) -> None:
        decode = m.network("decode", decoder, outputs=outputs)
        with m.rows():
            z = m.sample(latent, prior)
            m.sample("y", likelihood(decode(z)))

    return Graph(program, local={latent: local})


@sized
def AutoEncoder(
    latents: int,
    outputs: int,
    decoder: Any = _WIDE_NETWORK,
    encoder: Any = _WIDE_NETWORK,
    likelihood: Likelihood = _PIXELS,
) -> Graph:
    r"""Returns an autoencoder, whose code \(z = f(y)\) is a point: a row counts \(\log p(y \mid z) + \log p(z)\).

    Data: `{"y": [N, outputs]}`, NaN where missing.

    Args:
        latents: dimension of z.
        outputs: number of the decoder's outputs.
        decoder: the network of y given z.
        encoder: f.
        likelihood: p(y | f), for one entry.

    Source: Rumelhart, Hinton & Williams (1986).

    Examples:
        >>> import lamu
        >>> type(lamu.latent.models.AutoEncoder(2, 64).local["z"]).__name__
        'Delta'
    """
    return _decoded(_standard_normal(latents), decoder, outputs, likelihood, Delta(encoder))


@sized
def DenoisingAutoEncoder(
    latents: int,
    outputs: int,
    decoder: Any = _WIDE_NETWORK,
    encoder: Any = _WIDE_NETWORK,
    likelihood: Likelihood = _PIXELS,
    corruption: Corruption = _HIDDEN,
) -> Graph:
    r"""Returns an autoencoder that learns to reconstruct clean rows from corrupted ones.

    \[ \tilde y \sim C(\tilde y \mid y), \qquad z = f(\tilde y), \qquad
       \text{a row counts } \log p(y \mid z) + \log p(z) \]

    Rows are corrupted in training only; `latent.reconstruct(posterior, rows, key)` uses clean rows.

    Data: `{"y": [N, outputs]}`, NaN where missing.

    Args:
        latents: dimension of z.
        outputs: number of the decoder's outputs.
        decoder: the network of y given z.
        encoder: f.
        likelihood: p(y | f), for one entry.
        corruption: C, `latent.Masking(share)` or `latent.GaussianNoise(scale)`.

    Source: Vincent, Larochelle, Bengio & Manzagol (2008).

    Examples:
        >>> import lamu
        >>> lamu.latent.models.DenoisingAutoEncoder(2, 64).local["z"].corruption
        Masking(share=0.25)
    """
    return _decoded(_standard_normal(latents), decoder, outputs, likelihood, Denoising(encoder, corruption))


_SCORES = ScoreFunction(4, LeaveOneOut())


@sized
def SigmoidBelief(
    latents: tuple[int, ...],
    outputs: int,
    hidden: tuple[int, ...] = (),
    likelihood: Likelihood = _PIXELS,
    estimator: ScoreFunction | Relaxed = _SCORES,
) -> Graph:
    r"""Returns a sigmoid belief network: layers of binary latents, with each layer's logits from the layer above.

    \[ b_L \sim \mathrm{Ber}(\sigma(c)), \qquad b_l \mid b_{l+1} \sim \mathrm{Ber}(\sigma(f_l(b_{l+1}))), \qquad
       y \sim p(y \mid f_0(b_1)) \]

    The belief goes up, \(q(b_1 \mid y)\, q(b_2 \mid b_1, y) \cdots\). Latents are called b1, b2, … from the data up.

    Data: `{"y": [N, outputs]}`, NaN where missing.

    Args:
        latents: the numbers of latents of each layer, from the data up.
        outputs: number of the decoder's outputs.
        hidden: the widths of the hidden layers of every network; none for the linear maps of the classical network.
        likelihood: p(y | f), for one entry.
        estimator: estimator of the encoders' gradients; `ScoreFunction(1, latent.Baseline(MLP((100,))))` is NVIL.

    Raises:
        ValueError: if there is no layer.

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
    r"""Returns a deep autoregressive network: binary layers and rows whose entries also depend on previous ones.

    \[ p(b_{l,j} = 1 \mid b_{l,<j}, b_{l+1}) = \sigma\big(f_{l,j}(b_{l+1}) + W_{l,j}\, b_{l,<j} + c_{l,j}\big) \]

    and the same for the entries of y given \(b_1\). The beliefs of the encoders are independent within a layer, and go
    up as in `SigmoidBelief`. Latents are called b1, b2, … from the data up.

    Data: `{"y": [N, outputs]}`, zeros and ones without missing entries.

    Args:
        latents: the numbers of latents of each layer, from the data up.
        outputs: the number of entries of y.
        hidden: the widths of the hidden layers of every network; none for linear maps.
        estimator: estimator of the encoders' gradients.

    Raises:
        ValueError: if there is no layer.

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
        raise ValueError("latents=() has no layer; give the numbers of latents from the data up, for instance (20, 10)")
    return len(latents)


def _network(hidden: tuple[int, ...]) -> Any:
    return MLP(hidden) if hidden else Linear()


def _upwards(depth: int, hidden: tuple[int, ...], estimator: Any) -> dict[str, AmortisedBernoulli]:
    """Returns an encoder for every layer, which reads the row and the layer below."""
    below = lambda n: (f"b{n - 1}",) if n > 1 else ()
    return {f"b{n}": AmortisedBernoulli(_network(hidden), estimator, below(n)) for n in range(1, depth + 1)}


_NETWORK = MLP((50,))


@sized
def DeepKalman(
    steps: int,
    transition: Any,
    outputs: int,
    likelihood: Likelihood,
    emission: Any = _NETWORK,
    encoder: Any = _NETWORK,
    precision: Any = 1.0,
) -> Graph:
    r"""Returns a series with linear latent dynamics and a network as emission.

    \[ x_1 \sim N(0, I/\max Q), \qquad x_{t+1} \mid x_t \sim N(A x_t, Q^{-1}), \qquad y_t \sim p(y \mid f(x_t)) \]

    The encoder sends every state a Gaussian message from \(y_t\), and a Kalman filter combines them: the belief is
    joint over all times. If f is linear and the noise Gaussian, the exact messages give the Kalman filter's density.
    The paper's transitions are networks too; here they are linear and known, as in structured autoencoders.

    Data: `{"y": [N, steps, outputs]}`, one series a row.

    Args:
        steps: T.
        transition: A `[d, d]`.
        outputs: number of f's outputs at a time.
        likelihood: p(y | f), for one entry, without dispersions to learn, for instance `Gaussian(scale=0.1)`.
        emission: f.
        encoder: the network of the message of one time.
        precision: Q, positive numbers or a matrix.

    Source: Krishnan, Shalit & Sontag (2015); Johnson et al. (2016), section 3.2; Fraccaro et al. (2017).

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.DeepKalman(4, 0.9 * jnp.eye(2), 3, lamu.likelihoods.Gaussian(scale=0.1))
        >>> fit = lamu.fit(graph, {"y": jnp.ones((2, 4, 3))}, lamu.algorithms.adam(0.01), steps=3)
        >>> fit.posterior.local({"y": jnp.ones((2, 4, 3))})["x"].mean.shape
        (2, 4, 2)
    """
    prior = GaussianChain(steps, transition, precision, first_precision=jnp.max(jnp.asarray(precision)))
    local = Conjugate(EachStep(encoder))
    return _decoded(prior, EachStep(emission), steps * outputs, likelihood, local, "x")


_SMOOTHER = Smoother()


@sized
def DeepMarkov(
    steps: int,
    latents: int,
    outputs: int,
    likelihood: Likelihood,
    transition: Any = _NETWORK,
    emission: Any = _NETWORK,
    encoder: Smoother = _SMOOTHER,
) -> Graph:
    r"""Returns a deep Markov model: a deep Kalman filter whose transitions are a network, too.

    \[ z_1 \sim N(0, I), \qquad z_{t+1} \mid z_t \sim N\big(m(z_t), \mathrm{diag}(s(z_t)^2)\big), \qquad
       y_t \sim p(y \mid f(z_t)) \]

    The encoder is a recurrent network that reads the series backwards (`latent.Smoother`). If the transitions are
    linear and known, `DeepKalman` has an exact joint belief over time.

    Data: `{"y": [N, steps, outputs]}`, one series a row, NaN where missing.

    Args:
        steps: T.
        latents: dimension of z at one time.
        outputs: number of f's outputs at a time.
        likelihood: p(y | f), for one entry, without dispersions to learn, for instance `Gaussian(scale=0.1)`.
        transition: the network of m and log s.
        emission: f.
        encoder: the local of z.

    Source: Krishnan, Shalit & Sontag (2015, 2017).

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.DeepMarkov(4, 2, 3, lamu.likelihoods.Gaussian(scale=0.1))
        >>> fit = lamu.fit(graph, {"y": jnp.ones((2, 4, 3))}, lamu.algorithms.adam(0.01), steps=3)
        >>> fit.posterior.local({"y": jnp.ones((2, 4, 3))})["z"].mean.shape
        (2, 4, 2)
    """
    prior = TransitionPrior(latents, steps, transition)
    return _decoded(prior, EachStep(emission), steps * outputs, likelihood, encoder)


_WHOLE = Whole()


@sized
def DRAW(
    steps: int,
    latents: int,
    outputs: int,
    hidden: int = 100,
    read: Glimpse = _WHOLE,
    write: Glimpse = _WHOLE,
    likelihood: Likelihood = _PIXELS,
) -> Graph:
    r"""Returns a deep recurrent attentive writer: \(z_t \sim N(0, I)\) at T steps, y from a canvas on which all write.

    Data: `{"y": [N, outputs]}`, NaN where missing. `latent.Drawing.canvases` returns the intermediate pictures.

    Args:
        steps: T.
        latents: dimension of z at each step.
        outputs: the number of pixels.
        hidden: the widths of encoder and decoder.
        read: how a step reads the image and the canvas's error, `Whole()` or `Attention(2, (28, 28))`.
        write: how a step writes.
        likelihood: p(y | f), for one pixel.

    Raises:
        ValueError: for fewer than one step or latent.

    Source: Gregor, Danihelka, Graves, Rezende & Wierstra (2015).

    Examples:
        >>> import lamu
        >>> from lamu.latent import Attention
        >>> glimpse = Attention(3, (8, 8))
        >>> sorted(lamu.latent.models.DRAW(4, 2, 64, read=glimpse, write=glimpse).local)
        ['z']
    """
    prior = _standard_normal((steps, latents))
    return _decoded(prior, Drawing(hidden, write, read), outputs, likelihood, Recurrent(hidden))


@sized
def DeepLatentGaussian(
    latents: tuple[int, ...],
    outputs: int,
    hidden: tuple[int, ...] = (200,),
    likelihood: Likelihood = _PIXELS,
) -> Graph:
    r"""Returns a deep latent Gaussian model: layers of independent latents, each added to the output from above.

    \[ z_l \sim N(0, I), \qquad h_L = z_L, \qquad h_l = \big(T_l(h_{l+1}),\, z_l\big), \qquad y \sim p(y \mid f(h_1)) \]

    The paper adds the two parts, \(h_l = T_l(h_{l+1}) + G_l z_l\); here the first kernel of the next network contains
    both sums. Because the latents are independent, so are their beliefs, \(q(z \mid y) = \prod_l q(z_l \mid y)\), and
    every divergence has a closed form. Latents are called z1, z2, … from the data up.

    Data: `{"y": [N, outputs]}`, NaN where missing.

    Args:
        latents: the numbers of latents of each layer, from the data up.
        outputs: number of the decoder's outputs.
        hidden: the widths of the hidden layers of every network.
        likelihood: p(y | f), for one entry.

    Raises:
        ValueError: if there is no layer.

    Source: Rezende, Mohamed & Wierstra (2014), equations 1 to 3.

    Examples:
        >>> import lamu
        >>> list(lamu.latent.models.DeepLatentGaussian((10, 5), 64).local)
        ['z2', 'z1']
    """
    depth = _depth(latents)

    def program(m: Program) -> None:
        ups = {n: m.network(f"up{n}", MLP(hidden), outputs=latents[n - 1]) for n in range(depth - 1, 0, -1)}
        decode = m.network("decode", MLP(hidden), outputs=outputs)
        with m.rows():
            h: tuple[Any, ...] = (m.sample(f"z{depth}", _standard_normal(latents[-1])),)
            for n, up in ups.items():
                h = (up(*h), m.sample(f"z{n}", _standard_normal(latents[n - 1])))
            m.sample("y", likelihood(decode(*h)))

    return Graph(program, local={f"z{n}": Amortised(MLP(hidden)) for n in range(depth, 0, -1)})


@sized
def LadderVAE(
    latents: tuple[int, ...],
    outputs: int,
    hidden: tuple[int, ...] = (200,),
    likelihood: Likelihood = _PIXELS,
) -> Graph:
    r"""Returns a ladder: a hierarchy of latents whose beliefs combine the encoder with the prior from above.

    \[ z_L \sim N(0, I), \qquad z_l \mid z_{l+1} \sim N\big(m_l(z_{l+1}), \mathrm{diag}(s_l(z_{l+1})^2)\big), \qquad
       y \sim p(y \mid f(z_1)) \]

    Beliefs go down from the top, \(q(z_L \mid y) \cdots q(z_1 \mid z_2, y)\) (`latent.Ladder`); in the paper the
    layers' encoders share their first layers, here each has its own network. Latents are called z1, z2, …
    from the data up.

    Data: `{"y": [N, outputs]}`, NaN where missing.

    Args:
        latents: the numbers of latents of each layer, from the data up.
        outputs: number of the decoder's outputs.
        hidden: the widths of the hidden layers of every network.
        likelihood: p(y | f), for one entry.

    Raises:
        ValueError: if there is no layer.

    Source: Sønderby, Raiko, Maaløe, Sønderby & Winther (2016).

    Examples:
        >>> import lamu
        >>> graph = lamu.latent.models.LadderVAE((10, 5), 64)
        >>> graph.local["z1"].given
        ('z2',)
    """
    depth = _depth(latents)

    def program(m: Program) -> None:
        downs = {n: m.network(f"down{n}", MLP(hidden), outputs=(latents[n - 1],) * 2) for n in range(depth - 1, 0, -1)}
        decode = m.network("decode", MLP(hidden), outputs=outputs)
        with m.rows():
            z = m.sample(f"z{depth}", _standard_normal(latents[-1]))
            for n, down in downs.items():
                mean, log_precision = down(z)
                z = m.sample(f"z{n}", Normal(mean, precision=exp(log_precision)))
            m.sample("y", likelihood(decode(z)))

    above = lambda n: (f"z{n + 1}",) if n < depth else ()
    return Graph(program, local={f"z{n}": Ladder(MLP(hidden), given=above(n)) for n in range(depth, 0, -1)})


_LINEAR, _BITS = Linear(), Bernoulli()


@sized
def FactorAnalysis(factors: int, dimension: int, isotropic: bool = False, encoder: Any = _LINEAR) -> Graph:
    r"""Returns factor analysis with an encoder, \(z \sim N(0, I)\), \(y \mid z \sim N(W z + b, \mathrm{diag}(\psi))\).

    `lamu.graphs.models.FactorAnalysis` is the same model with exact beliefs: prefer it if rows fit in memory.
    This one has points W, b, ψ, trained on minibatches by any optimiser. Its belief has independent coordinates, as
    the posterior does if \(W^\top \psi^{-1} W\) is diagonal. The density is invariant to rotations of W, and the
    bound prefers the diagonal one: at its optimum it is the exact log density.

    Data: `{"y": [N, dimension]}`, NaN where missing.

    Args:
        factors: dimension of z.
        dimension: number of columns.
        isotropic: whether all entries share one noise, as in probabilistic principal components.
        encoder: the network of q(z | y); linear is enough if no entry is missing.

    Source: Tipping & Bishop (1999); Lucas, Tucker, Grosse & Norouzi (2019) for the optimum of the bound.

    Examples:
        >>> import lamu
        >>> lamu.latent.models.FactorAnalysis(2, 5, isotropic=True).blocks
        (('noise',),)
    """

    def program(m: Program) -> None:
        decode = m.network("decode", Linear(), outputs=dimension)
        noise = m.sample("noise", Gamma(1e-3, 1e-3), plate=() if isotropic else dimension)
        with m.rows():
            z = m.sample("z", _standard_normal(factors))
            m.sample("y", Normal(decode(z), precision=noise))

    return Graph(program, local={"z": Amortised(encoder)})


@sized
def ExponentialPCA(factors: int, dimension: int, likelihood: Likelihood = _BITS, encoder: Any = _LINEAR) -> Graph:
    r"""Returns principal components for any likelihood, \(z \sim N(0, I)\), \(y_d \sim p(y_d \mid w_d^\top z + b_d)\).

    `lamu.graphs.models.ExponentialPCA` is for binary data, with a quadratic bound and relevances of the columns.

    Data: `{"y": [N, dimension]}`, NaN where missing.

    Args:
        factors: dimension of z.
        dimension: number of columns.
        likelihood: likelihood of an entry, for instance `Bernoulli()` or `Poisson()`.
        encoder: the network of q(z | y).

    Source: Collins, Dasgupta & Schapire (2002).

    Examples:
        >>> import lamu
        >>> sorted(lamu.latent.models.ExponentialPCA(2, 5).local)
        ['z']
    """
    return VAE(factors, dimension, Linear(), encoder, likelihood)


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

    The classifier learns from labels only by the last term, whose weight must grow as labels become few: pass
    `labelled`. Train it in two runs: on the labelled rows only, so that the decoder reads the class from c, and from
    there on all rows, with labels in every batch by `latent.oversample_labelled`. From random weights the style encodes
    the class, and the decoder's classes are not those of the labels.

    Args:
        classes: K.
        latents: dimension of z; small, since a large style encodes the class too.
        outputs: number of the decoder's outputs.
        hidden: the widths of the hidden layers of every network.
        weight: α, the weight per row of the average log probability of a label against the bounds of all rows.
        likelihood: p(y | f), for one entry.
        labelled: \(N_l / N\), the share of labelled rows.

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
            z = m.sample("z", _standard_normal(latents))
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
    r"""Returns model M1+M2: the class and the style of M2 generate the code of M1, and the code the row.

    \[ c \sim \mathrm{Cat}(1/K), \quad z_2 \sim N(0, I), \quad z_1 \mid c, z_2 \sim N(m(c, z_2), s(c, z_2)^2), \quad
       y \sim p(y \mid f(z_1)) \]
    \[ q(z_1 \mid y)\, q(c \mid z_1, y)\, q(z_2 \mid z_1, c, y) \]

    All parts are trained together. The paper trains M1 first, a `VAE`, and then M2 on its codes: that is
    `SemiSupervised` with a Gaussian likelihood on `posterior.local(rows)["z"].mean`.

    Data: as `SemiSupervised`.

    Args:
        classes: K.
        latents: dimension of the style z₂.
        codes: dimension of the code z₁.
        outputs: number of the decoder's outputs.
        hidden: the widths of the hidden layers of every network.
        weight: α, as in `SemiSupervised`; by default the paper's.
        likelihood: p(y | f), for one entry.
        labelled: \(N_l / N\), the share of labelled rows.

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
            z2 = m.sample("z2", _standard_normal(latents))
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
            f"labelled={labelled!r} is not a share of the rows; give the rows with a label over all rows, for "
            "instance 0.1"
        )
