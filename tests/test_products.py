"""Products of float32 on an accelerator: all digits in what Lamu computes, the device's own in passes of networks."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms.closed_form import extended_kalman
from lamu.base.compile_once import full_products, network_products
from lamu.limits import NNGP
from lamu.networks import MLP, Linear
from lamu.networks.interface import outputs
from lamu.objective.curvature.reader.linearised import squares_and_gradient
from lamu.record import record

HIGHEST, DEFAULT = jax.lax.Precision.HIGHEST, jax.lax.Precision.DEFAULT
X = jnp.asarray(np.random.default_rng(0).normal(size=(6, 2)), jnp.float32)


@pytest.fixture(autouse=True)
def nobody_has_chosen():
    """Products as a user has them who has set nothing."""
    with jax.default_matmul_precision(None):
        yield


@pytest.fixture
def accelerator(monkeypatch):
    """A GPU by name: products are traced as there."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def precisions(function, *arguments):
    """Returns the precision of every product that a function traces, in the order of the trace."""
    found = []

    def read(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "dot_general":
                found.append(equation.params["precision"])
            for value in equation.params.values():
                for inner in value if isinstance(value, tuple | list) else (value,):
                    if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                        read(getattr(inner, "jaxpr", inner))

    # A function of its own, because traces are cached by the function, and no process changes its device.
    read(jax.make_jaxpr(lambda *given: function(*given))(*arguments).jaxpr)
    return found


@record
class Watched(MLP):
    """A network that notes what precision its products are asked for."""

    def apply(self, params, state, x, key, train, mask=None):
        SEEN.append(jax.config.jax_default_matmul_precision)
        return super().apply(params, state, x, key, train)


SEEN: list = []


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lamu.algorithms.kalman_update, (jnp.eye(3), jnp.ones((2, 3)))),
        (NNGP(depth=1).kernel, (X,)),
        (lambda x: NNGP(depth=1).regression(x, x[:, 0], 0.1).predict(x), (X,)),
    ],
)
def test_covariances_are_products_with_all_digits(accelerator, function, arguments):
    found = precisions(function, *arguments)
    assert found
    assert set(found) == {(HIGHEST, HIGHEST)}


def test_nothing_is_asked_of_a_cpu():
    assert full_products(lambda: jax.config.jax_default_matmul_precision)() is None


def test_a_network_keeps_the_precision_of_the_device_and_its_gradient_too(accelerator):
    network = MLP((4,))
    params, state = network.init(jax.random.key(0), X, 1)
    loss = lambda params, root: jnp.sum(outputs(network, params, state, X, None, True, None)[0]) + jnp.sum(root @ root)
    found = precisions(full_products(jax.grad(loss, (0, 1))), params, jnp.eye(2, dtype=X.dtype))
    assert set(found) == {(DEFAULT, DEFAULT), (HIGHEST, HIGHEST)}
    assert found.count((HIGHEST, HIGHEST)) == len(
        precisions(jax.grad(lambda r: jnp.sum(r @ r)), jnp.eye(2, dtype=X.dtype))
    )


def test_squares_of_rows_have_the_precision_of_the_device(accelerator):
    # They stand beside a network's gradient in every step of VOGN, and are sums of what is positive.
    squares = lambda w: squares_and_gradient(lambda w, x: jnp.tanh(x @ w)[0], w, X, jnp.ones(6, X.dtype))[2]
    found = precisions(full_products(squares), jnp.ones((2, 1), X.dtype))
    assert set(found) == {(DEFAULT, DEFAULT)}


def test_a_linear_model_has_all_digits(accelerator):
    params, state = Linear().init(jax.random.key(0), X, 1)
    apply = full_products(lambda params: outputs(Linear(), params, state, X, None, False, None)[0])
    assert precisions(apply, params) == [(HIGHEST, HIGHEST)]


@pytest.mark.parametrize("chosen", [None, "tensorfloat32"])
def test_a_fit_and_its_prediction_ask_for_all_digits_unless_somebody_has_chosen(accelerator, monkeypatch, chosen):
    inside, update = [], extended_kalman.kalman_update

    def noted(covariance, root):
        inside.append(jax.config.jax_default_matmul_precision)
        return update(covariance, root)

    monkeypatch.setattr(extended_kalman, "kalman_update", noted)
    SEEN.clear()
    model = lamu.Model(Watched((3,)), lamu.likelihoods.Gaussian(scale=1.0))
    with jax.default_matmul_precision(chosen):
        fit = lamu.fit(model, (X, X[:, 0]), lamu.algorithms.extended_kalman(), batch_size=6)
        fit.posterior.predict(X)
    assert set(inside) == {chosen or "float32"}
    assert set(SEEN) == {chosen or "default"}


def test_the_way_back_ends_with_its_block(accelerator):
    seen = []

    @full_products
    def function():
        with network_products():
            seen.append(jax.config.jax_default_matmul_precision)
            full_products(lambda: seen.append(jax.config.jax_default_matmul_precision))()
        seen.append(jax.config.jax_default_matmul_precision)

    function()
    assert seen == ["default", "float32", "float32"]
    assert jax.config.jax_default_matmul_precision is None


def test_a_warning_is_of_the_line_that_called_fit(tmp_path):
    """A decorator would put its own line there, and a second fit's warning would be taken for the first one's.

    In a process of its own: here the checks of shapes stand on the stack.
    """
    script = tmp_path / "fits.py"
    script.write_text(
        "import jax.numpy as jnp, lamu\n"
        "model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))\n"
        "rows = {'x': jnp.ones((6, 2)), 'y': jnp.ones(6), 'weight': jnp.full(6, 1 / 6)}\n"
        "lamu.fit(model, rows, lamu.algorithms.adam(), steps=1)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True)
    assert f"{script}:4: UnscaledWeights" in done.stderr
