"""Autoencoders: a code of every row, as a point or with a belief."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.graphs.factor import Factor
from lamu.graphs.graph import Graph
from lamu.graphs.normal import Normal
from lamu.graphs.program import Program
from lamu.latent.bounds import ELBO, Bound
from lamu.latent.locals import Amortised, BeliefFamily, Corruption, Delta, Denoising, Masking, MeanField
from lamu.likelihoods import Bernoulli, Likelihood
from lamu.networks import MLP
from lamu.sizes import sized

__all__ = ["VAE", "AutoEncoder", "DenoisingAutoEncoder"]

_NETWORK, _PIXELS, _GAUSSIAN, _BOUND, _HIDDEN = MLP((400,)), Bernoulli(), MeanField(), ELBO(), Masking()


@sized
def VAE(
    latents: int,
    outputs: int,
    decoder: Any = _NETWORK,
    encoder: Any = _NETWORK,
    likelihood: Likelihood = _PIXELS,
    family: BeliefFamily = _GAUSSIAN,
    bound: Bound = _BOUND,
    prior: Factor | None = None,
) -> Graph:
    r"""Returns a variational autoencoder, \(z \sim N(0, I)\), \(y \mid z \sim p(y \mid f(z))\).

    Data: `{"y": [N, outputs]}`, NaN where missing. Images `[N, height, width]` go to a convolutional encoder as they
    are; outputs is the number of their pixels.

    `Gaussian()` learns a noise for each entry of y. Entries that hardly vary, such as the margin of images, then
    outweigh all others and training is slow; entries of one unit are better served by one noise, which is given,
    `Gaussian(scale=...)`, or learned, `PerPosition(Gaussian(), (outputs,))`.

    Args:
        latents: numbers of z.
        outputs: numbers that the decoder returns, one an entry of y for most likelihoods.
        decoder: f.
        encoder: the network of q(z | y).
        likelihood: p(y | f), of one entry.
        family: of q(z | y).
        bound: what training maximises.
        prior: p(z), for instance `MixturePrior(latents, parts=10)`; N(0, I) where None.

    Source: Kingma & Welling (2014); Rezende, Mohamed & Wierstra (2014).

    Examples:
        >>> import lamu
        >>> sorted(lamu.latent.models.VAE(2, 64).local)
        ['z']
    """

    def program(m: Program) -> None:
        decode = m.network("decode", decoder, outputs=outputs)
        with m.rows():
            z = m.sample("z", Normal(jnp.zeros(latents), 1.0) if prior is None else prior)
            m.sample("y", likelihood(decode(z)))

    return Graph(program, local={"z": Amortised(encoder, family, bound=bound)})


@sized
def AutoEncoder(
    latents: int,
    outputs: int,
    decoder: Any = _NETWORK,
    encoder: Any = _NETWORK,
    likelihood: Likelihood = _PIXELS,
) -> Graph:
    r"""Returns an autoencoder, whose code \(z = f(y)\) is a point: a row counts \(\log p(y \mid z) + \log p(z)\).

    Data: `{"y": [N, outputs]}`, NaN where missing.

    Args:
        latents: numbers of z.
        outputs: numbers that the decoder returns.
        decoder: the network of y given z.
        encoder: f.
        likelihood: p(y | f), of one entry.

    Source: Rumelhart, Hinton & Williams (1986).

    Examples:
        >>> import lamu
        >>> type(lamu.latent.models.AutoEncoder(2, 64).local["z"]).__name__
        'Delta'
    """
    return _coded(latents, outputs, decoder, likelihood, Delta(encoder))


@sized
def DenoisingAutoEncoder(
    latents: int,
    outputs: int,
    decoder: Any = _NETWORK,
    encoder: Any = _NETWORK,
    likelihood: Likelihood = _PIXELS,
    corruption: Corruption = _HIDDEN,
) -> Graph:
    r"""Returns an autoencoder that reads corrupted rows and learns to return the clean ones.

    \[ \tilde y \sim C(\tilde y \mid y), \qquad z = f(\tilde y), \qquad
       \text{a row counts } \log p(y \mid z) + \log p(z) \]

    Rows are corrupted in training alone; `latent.reconstruct(posterior, rows, key)` is of rows as they are.

    Data: `{"y": [N, outputs]}`, NaN where missing.

    Args:
        latents: numbers of z.
        outputs: numbers that the decoder returns.
        decoder: the network of y given z.
        encoder: f.
        likelihood: p(y | f), of one entry.
        corruption: C, `latent.Masking(share)` or `latent.GaussianNoise(scale)`.

    Source: Vincent, Larochelle, Bengio & Manzagol (2008).

    Examples:
        >>> import lamu
        >>> lamu.latent.models.DenoisingAutoEncoder(2, 64).local["z"].corruption
        Masking(share=0.25)
    """
    return _coded(latents, outputs, decoder, likelihood, Denoising(encoder, corruption))


def _coded(latents: int, outputs: int, decoder: Any, likelihood: Likelihood, code: Delta) -> Graph:
    def program(m: Program) -> None:
        decode = m.network("decode", decoder, outputs=outputs)
        with m.rows():
            z = m.sample("z", Normal(jnp.zeros(latents), 1.0))
            m.sample("y", likelihood(decode(z)))

    return Graph(program, local={"z": code})
