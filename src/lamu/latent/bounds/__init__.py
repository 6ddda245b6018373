"""Lower bounds on the log density of a row with latent variables, one file an estimator."""

from lamu.latent.bounds.doubly_reparameterised import DoublyReparameterised
from lamu.latent.bounds.elbo import ELBO
from lamu.latent.bounds.free_bits import FreeBits
from lamu.latent.bounds.importance import Importance
from lamu.latent.bounds.interface import Bound
from lamu.latent.bounds.joint import Joint, RowJoint
from lamu.latent.bounds.renyi import Renyi
from lamu.latent.bounds.sticking_the_landing import StickingTheLanding
from lamu.latent.bounds.warm_up import WarmUp

__all__ = [
    "ELBO",
    "Bound",
    "DoublyReparameterised",
    "FreeBits",
    "Importance",
    "Joint",
    "Renyi",
    "RowJoint",
    "StickingTheLanding",
    "WarmUp",
]
