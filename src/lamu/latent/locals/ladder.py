"""An encoder whose message is joined with the prior that comes down from the latents above."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp

from lamu.families import Gaussian
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, log_joint, shape_of
from lamu.graphs.statistics import Numbers
from lamu.latent.locals.amortised import Amortised
from lamu.latent.locals.encoder import encoded
from lamu.latent.locals.families import MeanField
from lamu.operators import Diagonal
from lamu.record import record
from lamu.typing import Params, RandomKey

__all__ = ["Ladder"]


@record
class Ladder(Amortised):
    r"""A layer of a hierarchy whose belief joins what comes up from the data with the prior that comes down.

    \[ q(z_l \mid z_{l+1}, y) = N\Big( \frac{\hat s^{-2} \hat m + s_p^{-2} m_p}{\hat s^{-2} + s_p^{-2}},\;
       \frac{1}{\hat s^{-2} + s_p^{-2}} \Big) \]

    with \(\hat m, \hat s\) the encoder's, which reads the row alone, and \(m_p, s_p\) those of the prior
    \(p(z_l \mid z_{l+1})\) at the draw of the latents above. The encoder learns a likelihood, and the prior's networks
    are in the belief too: deep layers stay in use where independent encoders let them collapse. It is exact where the
    layer has a Gaussian likelihood with independent coordinates.

    Attributes:
        network: the encoder, of \(\hat m\) and \(\log \hat s\).
        family: `MeanField()`.
        given: the latents above, which get their values first; the encoder does not read them.
        bound: one of `lamu.latent.bounds`.

    Raises:
        TypeError: for another family, or a prior that is no Normal.
        ValueError: when the prior depends on a latent that is not given.

    Source: Sønderby, Raiko, Maaløe, Sønderby & Winther (2016), equations 17 to 19.

    Examples:
        >>> from lamu.latent import Ladder
        >>> from lamu.networks import MLP
        >>> Ladder(MLP((50,)), given=("z2",)).given
        ('z2',)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.family, MeanField):
            raise TypeError(f"a Ladder joins Gaussians, and the family is {self.family!r}; leave it out")

    def init(self, key: RandomKey, name: str, row: Row, at: Environment) -> Params:
        """Returns fresh weights of the encoder, which reads the row alone."""
        site = next(site for site in row.latent if site.name == name)
        if site.kind is not Numbers or not site.factor.conjugate:
            raise TypeError(
                f"the prior of {name!r} is no Normal, and a Ladder joins an encoder's Gaussian with one; use "
                "Amortised(network)"
            )
        lacking = sorted(site.factor.names & {other.name for other in row.latent} - set(self.given))
        if lacking:
            raise ValueError(
                f"the prior of {name!r} depends on {lacking[0]!r}, which has no value before it; give "
                f"Ladder(network, given=({lacking[0]!r},))"
            )
        return Amortised.init(replace(self, given=()), key, name, row, at)

    def belief(self, name: str, own: Params, row: Row, at: Environment) -> Gaussian:
        """Returns the product of the encoder's Gaussian and the prior's."""
        site = next(site for site in row.latent if site.name == name)
        message = self.family.belief(own["family"], encoded(self.network, own["network"], name, (), row, at))
        zero = site.kind.zeros(shape_of(site), dtype_of(own))
        prior = jax.grad(lambda z: log_joint((site,), row.environment(at, {name: z})))(zero)
        size = math.prod(shape_of(site))
        first, second = (jnp.reshape(part, size) / row.temperature for part in (prior.first, prior.second))
        precision = message.precision.values - 2 * second
        return Gaussian((message.precision.values * message.mean + first) / precision, Diagonal(precision))
