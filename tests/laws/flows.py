"""Laws of the flows: their determinants are autodiff's, and their inverses undo them.

A row's extras: `context`, how many numbers the context has.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.families import Gaussian
from lamu.latent import Coupling, Flowed, InverseAutoregressive, Planar, Radial
from lamu.operators import Scalar
from lamu.record import record
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("flows", "")

SIZE, CONTEXT = 4, 3
POINTS = jnp.asarray(np.random.default_rng(0).normal(size=(20, SIZE)))
CONTEXTS = jnp.asarray(np.random.default_rng(1).normal(size=(20, CONTEXT)))

coupling = row("flows", "Coupling", Coupling((6,)))
planar = row("flows", "Planar", Planar())
radial = row("flows", "Radial", Radial())
autoregressive = row("flows", "InverseAutoregressive", InverseAutoregressive((6,)))


def parameters(flow: Any) -> Any:
    """Parameters that are far from the identity."""
    params = flow.init(jax.random.key(0), SIZE, CONTEXT, jnp.float64)
    return tree.add(params, tree.normal(jax.random.key(1), params), 0.7)


@law("flows")
def the_log_determinant_is_that_of_the_jacobian(row: Row) -> None:
    params = parameters(row.subject)

    def both(z: Any, context: Any) -> Any:
        jacobian = jax.jacobian(lambda z: row.subject.forward(params, z, context)[0])(z)
        return row.subject.forward(params, z, context)[1], jnp.linalg.slogdet(jacobian)[1]

    found, expected = jax.jit(jax.vmap(both))(POINTS, CONTEXTS)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
    assert np.ptp(np.asarray(expected)) > 1e-3  # these points are not all alike


@law("flows")
def the_inverse_undoes_it(row: Row) -> None:
    params = parameters(row.subject)

    def there_and_back(z: Any, context: Any) -> Any:
        return row.subject.inverse(params, row.subject.forward(params, z, context)[0], context)

    np.testing.assert_allclose(jax.jit(jax.vmap(there_and_back))(POINTS, CONTEXTS), POINTS, atol=1e-9)


@law("flows")
def the_gradient_of_the_inverse_is_the_inverse_of_the_jacobian(row: Row) -> None:
    params, z, context = parameters(row.subject), POINTS[0], CONTEXTS[0]
    image = row.subject.forward(params, z, context)[0]
    forward = jax.jacobian(lambda z: row.subject.forward(params, z, context)[0])(z)
    backward = jax.jacrev(lambda image: row.subject.inverse(params, image, context))(image)
    np.testing.assert_allclose(np.asarray(backward) @ np.asarray(forward), np.eye(SIZE), atol=1e-7)


@law("flows")
def it_depends_on_its_context(row: Row) -> None:
    params = parameters(row.subject)
    images = [row.subject.forward(params, POINTS[0], context)[0] for context in CONTEXTS[:2]]
    assert np.max(np.abs(np.asarray(images[0] - images[1]))) > 1e-3


@law("flows")
def the_density_of_its_draws_is_normalised(row: Row) -> None:
    """E_q[p / q] is one for a narrow normalised p, within 4 standard errors: a false alarm in 6 of 100,000 keys."""
    params, context = parameters(row.subject), CONTEXTS[0]
    belief = Flowed(Gaussian(jnp.zeros(SIZE), Scalar(jnp.asarray(1.0))), (row.subject,), (params,), context)
    centre = row.subject.forward(params, jnp.zeros(SIZE), context)[0]
    narrow = Gaussian(centre, Scalar(jnp.asarray(6.0)))

    def ratio(key: Any) -> Any:
        z, log_q = belief.draw(key)
        return jnp.exp(narrow.log_prob(z) - log_q)

    ratios = np.asarray(jax.jit(jax.vmap(ratio))(jax.random.split(jax.random.key(2), 20_000)))
    assert abs(ratios.mean() - 1) <= 4 * ratios.std() / np.sqrt(ratios.size)


@record
class WithoutTheFactor(Planar):
    """A planar flow whose determinant lacks a term."""

    def forward(self, params: Any, z: Any, context: Any) -> Any:
        image, log_det = super().forward(params, z, context)
        return image, 2 * log_det


@record
class Undirected(Planar):
    """A planar flow whose inverse is its mirror image."""

    def inverse(self, params: Any, image: Any, context: Any) -> Any:
        return 2 * image - self.forward(params, image, context)[0]


@record
class Deaf(Planar):
    """A planar flow that does not hear its context."""

    def forward(self, params: Any, z: Any, context: Any) -> Any:
        return super().forward(params, z, 0 * context)


@record
class LogScales(InverseAutoregressive):
    """A gate for its logarithm in the determinant."""

    def forward(self, params: Any, z: Any, context: Any) -> Any:
        image, log_det = super().forward(params, z, context)
        return image, jnp.exp(log_det)


twin(
    planar,
    "the determinant twice",
    "the_log_determinant_is_that_of_the_jacobian the_density_of_its_draws_is_normalised",
    WithoutTheFactor(),
)
twin(
    planar,
    "a mirror for an inverse",
    "the_inverse_undoes_it the_gradient_of_the_inverse_is_the_inverse_of_the_jacobian",
    Undirected(),
)
twin(planar, "no context", "it_depends_on_its_context", Deaf())
twin(autoregressive, "gates for their logarithms", "the_log_determinant_is_that_of_the_jacobian", LogScales())
