"""Answers by shape, the programs that a sampler's stages share, and diagonals of outputs from one forward pass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms.post_hoc import laplace_fit
from lamu.algorithms.post_hoc.ggn_blocks import evaluated
from lamu.base.compile_once import once_a_shape
from lamu.data import Arrays
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import GaussNewton
from lamu.objective.curvature.reader import linearise
from lamu.objective.curvature.reader.linearised import squares_of_outputs
from lamu.operators import Dense, Diagonal, KroneckerFactored
from lamu.record import record
from lamu.running import schedule
from lamu.running.compiled_steps import scan_chains


def test_an_answer_is_found_once_for_a_shape_a_dtype_and_a_value() -> None:
    asked: list[Any] = []
    size = once_a_shape(lambda tree, rows: asked.append(rows) or len(asked))
    w = {"w": jnp.zeros((2, 3))}
    assert size(w, 4) == size({"w": jnp.ones((2, 3))}, 4) == 1, "the same shapes were asked about again"
    assert size(w, 5) == 2, "another value is another question"
    assert size({"v": w["w"]}, 4) == 3, "another structure is another question"
    assert size({"w": jnp.zeros((3, 2))}, 4) == 4, "another shape is another question"
    assert size({"w": jnp.zeros((2, 3), jnp.int32)}, 4) == 5, "another dtype is another question"
    assert size(w, rows=4) == size(w, rows=4) == 6, "an argument by its name was refused, or asked about again"
    own = {"w": {1, 2}}  # a set: a leaf that has no hash, and may change
    assert size(own, 4) == 7, "what cannot be told from another was refused"
    assert size(own, 4) == 8, "what cannot be told from another was remembered"


@pytest.mark.parametrize(("warmup", "draws"), [(48, 48), (32, 64)])
def test_warm_up_and_draws_are_one_program(warmup: int, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[Any] = set()

    def noted(*arguments: Any) -> Any:
        asked.add(arguments[7:])  # the length, and how many steps a kept draw takes: each pair is a program
        return scan_chains(*arguments)

    noted.lower = scan_chains.lower  # pyright: ignore[reportFunctionMemberAccess]
    monkeypatch.setattr(schedule, "scan_chains", noted)
    density = lamu.LogDensity(lambda w: -0.5 * jnp.sum(w**2), jnp.zeros(3))
    fit = lamu.fit(density, None, lamu.mcmc.hmc(chains=2, warmup=warmup, draws=draws, most=4), progress=False)
    assert len(asked) == 1, f"the stages asked for different programs: {asked}"
    assert fit.posterior.samples["network"].shape == (2, draws, 3), "draws of the warm-up were kept, or others lost"


@record
class Convolved(lamu.networks.Network):
    """A network of the compiler's own convolutions, one strided and one of groups, whose kernels meet many places."""

    linear = False
    masked = False
    head = "head"

    def init(self, key: Any, x: Any, outputs: int) -> Any:
        made = [jax.random.normal(jax.random.fold_in(key, i), shape, x.dtype) for i, shape in enumerate(self._shapes)]
        return {"first": made[0], "second": made[1], "head": made[2][:, :outputs]}, {}

    _shapes = ((3, 2, 1, 2), (2, 2, 1, 4), (8, 4))

    def apply(self, params: Any, state: Any, x: Any, key: Any, train: bool) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x[..., None], params["first"], (1, 1), "SAME", dimension_numbers=layout)
        x = jax.lax.conv_general_dilated(
            jnp.tanh(x), params["second"], (2, 2), "VALID", dimension_numbers=layout, feature_group_count=2
        )
        return jnp.tanh(x.reshape(x.shape[0], 2, -1)).sum(axis=1) @ params["head"], state


@pytest.mark.parametrize(
    "network",
    [
        lamu.networks.MLP((5, 4)),
        pytest.param(lamu.networks.ConvNet((2, 3), (4,), kernel=3), marks=pytest.mark.stress),
        Convolved(),
    ],
    ids=str,
)
def test_the_diagonal_from_one_forward_pass_is_that_of_the_jacobians(network: Any) -> None:
    x = jax.random.normal(jax.random.key(0), (6, 4, 4))
    x = x.reshape(6, 16) if isinstance(network, lamu.networks.MLP) else x
    batch = lamu.data.Batch.of(x, jnp.arange(6) % 3)
    model = lamu.Model(network, lamu.likelihoods.Categorical(3), lamu.priors.Normal(1.0))
    params, state = model.init(jax.random.key(1), batch)
    loss = BatchLoss(Objective(model, 6), batch, state, NetworkParameters(), params["likelihood"], conjugate=True)
    theta = params["network"]
    found, explicit = (f(loss, theta, Diagonal).values for f in (GaussNewton().matrix, GaussNewton().by_jacobian))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6), found, explicit)
    assert not linearise(loss.of_row, theta, batch.x).unread, "nothing was read, so nothing was tested"


def test_squares_of_outputs_are_sums_over_directions_not_squares_of_sums() -> None:
    """Directions of opposite signs cancel in a sum of gradients, and never in a sum of their squares."""
    read = linearise(lambda w, x: x @ w, jnp.ones((2, 2)), jnp.array([[1.0, 2.0], [3.0, -1.0]]))
    u = jnp.array([[1.0, 0.5], [0.0, 2.0]])
    (square,) = squares_of_outputs(read, jnp.stack([u, -u]))
    np.testing.assert_allclose(square, 2 * jnp.einsum("ni,no->io", jnp.array([[1.0, 4.0], [9.0, 1.0]]), u**2))


@pytest.mark.parametrize(
    ("recipe", "structure"),
    [
        (lamu.algorithms.laplace, KroneckerFactored()),
        (lamu.algorithms.last_layer, KroneckerFactored()),
        (lamu.algorithms.last_layer, Diagonal),
    ],
    ids=["all weights", "head", "diagonal head"],
)
def test_the_curvature_and_the_energy_share_a_forward_pass(recipe: Any, structure: Any) -> None:
    """Activations are counted in the program: a network of two, looked at twice, would have four."""
    x, y = np.random.default_rng(0).normal(size=(6, 4, 4)), np.arange(6) % 3
    model = lamu.Model(Convolved(), lamu.likelihoods.Categorical(3), lamu.priors.Normal(1.0))
    point = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=1, progress=False).posterior
    model, point = recipe().weights.select(model, point)
    batch = lamu.data.Batch.of(jnp.asarray(x), jnp.asarray(y))
    objective = evaluated(Objective(model, 6), {})
    asked = (structure, GaussNewton(), objective, point.mean, batch, jax.random.key(0))
    assert str(laplace_fit.row_sums.trace(*asked).jaxpr).count(" tanh ") == 2


@pytest.mark.parametrize("structure", [Dense, Diagonal, KroneckerFactored()], ids=str)
@pytest.mark.parametrize("recipe", [lamu.algorithms.laplace, lamu.algorithms.last_layer], ids=["all", "head"])
def test_the_energy_at_the_mode_counts_an_offset_once(recipe: Any, structure: Any) -> None:
    generator = np.random.default_rng(0)
    data = {"x": generator.normal(size=(6, 3)), "y": np.arange(6) % 2, "offset": generator.normal(size=6)}
    model = lamu.Model(lamu.networks.MLP((4,)), lamu.likelihoods.Bernoulli(), lamu.priors.Normal(1.0))
    point = lamu.fit(model, data, lamu.algorithms.adam(1e-2), epochs=1, progress=False).posterior
    model, point = recipe().weights.select(model, point)
    found = laplace_fit.fit_laplace(structure, point, Objective(model, 6), Arrays.of(data))
    rows = model.log_likelihood(point.mean, {}, Arrays.of(data).full())[0]
    np.testing.assert_allclose(found.likelihood, -jnp.sum(rows), rtol=1e-5)


@pytest.mark.stress
def test_a_precision_that_is_singular_to_rounding_is_refused() -> None:
    """A constant added to all logits changes nothing, so that a wide prior alone pins that direction down."""
    x, y = lamu.data.load("digits")
    x = np.asarray(x, np.float32)[:300] / 16
    model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Categorical(10), lamu.priors.Normal(1e6))
    with jax.enable_x64(False), pytest.warns(lamu.Unconverged, match="singular to the rounding of float32"):
        lamu.fit(model, (x, y[:300]), lamu.algorithms.last_layer(), epochs=2, progress=False)


@pytest.mark.stress
def test_the_width_is_judged_by_the_rule_that_predicts() -> None:
    """Probit shrinks by the part that all logits share, too, so that it asks for a narrower prior than draws do."""
    x, y = lamu.data.load("digits")
    x = np.asarray(x) / 16
    model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Categorical(10), lamu.priors.LearnedNormal(1.0))
    widths = {}
    for rule in (None, lamu.predictives.Probit()):
        algorithm = lamu.algorithms.last_layer(lamu.algorithms.adam(3e-2), rule=rule)
        posterior = lamu.fit(model, (x[:500], y[:500]), algorithm, epochs=10, validation=0.3, progress=False).posterior
        assert rule is None or posterior.rule == rule, "the posterior predicts by another rule"
        widths[rule] = float(posterior.model.prior.scale)
    plain, probit = widths.values()
    assert probit < plain, f"widths {plain} and {probit}: the rows set aside were predicted by the same rule"
