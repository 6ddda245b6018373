"""What a protocol has is declared with it: nobody looks for members that it does not tell of."""

from __future__ import annotations

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.predictives.interface import Predictive

SOURCES = Path(lamu.__file__).parent
# Members of Network, Normaliser, Likelihood, Operator, Predictive, Kernel, Curvature, Expectation, Geometry and Target;
# those of an algorithm are in test_wrappers.
MEMBERS = {
    "linear", "head", "masked", "codes", "trained", "base", "init", "apply", "network", "likelihood",
    "information_root", "information_diagonal", "scale_noise", "quadratic", "log_concave",
    "add", "renewed", "averaged", "per_output", "chunks", "replicas", "departure", "stays_positive",
}  # fmt: skip
# An object of one's own, which need not inherit from anything, is asked in one place.
ADAPTER = SOURCES / "networks" / "adapted.py"


def looked_for(path: Path) -> list[str]:
    """Returns the names of protocol members that a module looks for with `getattr` or `hasattr`."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in ("getattr", "hasattr")]
    words = [call.args[1].value for call in named if isinstance(call.args[1], ast.Constant)]
    return [f"{path.relative_to(SOURCES)}: {word}" for word in words if word in MEMBERS]


def test_no_module_looks_for_members_of_a_protocol() -> None:
    paths = [path for path in SOURCES.rglob("*.py") if path != ADAPTER]
    assert [found for path in paths for found in looked_for(path)] == []


class Line:
    """A network of one's own: no base class, and no more than the two functions."""

    def init(self, key, x, outputs):
        return {"slope": 0.1 * jax.random.normal(key, (x.shape[1], outputs), x.dtype)}, {}

    def apply(self, params, state, x, key, train):
        return x @ params["slope"], state


class StraightLine(Line):
    """One that says what it knows."""

    linear = True


def data() -> tuple[np.ndarray, np.ndarray]:
    """Returns forty rows of a line."""
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 3))
    return x, x @ np.array([1.0, -2.0, 0.5]) + 0.1 * random.normal(size=40)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["adam", "ivon", "laplace", "vogn", "last_layer", "deep_ensemble", "swag"])
def test_a_class_with_init_and_apply_is_a_network(name: str) -> None:
    x, y = data()
    model = lamu.Model(Line(), lamu.likelihoods.Gaussian(0.1)).standardised(x, y)
    posterior = lamu.fit(model, (x, y), lamu.algorithms.registry()[name].factory(), steps=300).posterior
    assert posterior.predict(x).mean.shape == (40,)
    assert model.name == "Line"
    assert not model.identified


def test_what_a_network_of_ones_own_says_is_heard() -> None:
    x, y = data()
    model = lamu.Model(StraightLine(), lamu.likelihoods.Gaussian(0.5))
    exact = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior.mean["network"]["slope"]
    ridge = np.linalg.solve(x.T @ x / 0.25 + np.eye(3), x.T @ y / 0.25)
    np.testing.assert_allclose(exact[:, 0], ridge, rtol=1e-8)


def test_a_network_of_ones_own_is_saved_and_given_again(tmp_path: Path) -> None:
    x, y = data()
    model = lamu.Model(Line(), lamu.likelihoods.Gaussian(0.5)).standardised(x, y)
    posterior = lamu.fit(model, (x, y), lamu.algorithms.ivon(), steps=5).posterior
    folder = posterior.save(tmp_path / "posterior")
    again = lamu.load(folder, network=Line())
    np.testing.assert_array_equal(again.predict(x).mean, posterior.predict(x).mean)
    with pytest.raises(ValueError, match=r"lamu.load\(path, network"):
        lamu.load(folder)


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(TypeError, match="a float with no init and no apply"):
        lamu.Model(3.0, lamu.likelihoods.Gaussian())
    with pytest.raises(TypeError, match="give an instance"):
        lamu.Model(Line, lamu.likelihoods.Gaussian())
    with pytest.raises(TypeError, match=r"inherits from lamu\.likelihoods\.Likelihood"):
        lamu.Model(Line(), 3.0)


def test_a_density_says_what_it_lacks() -> None:
    density = lamu.LogDensity(lambda theta: -jnp.sum(theta**2), jnp.ones(2))
    with pytest.raises(TypeError, match="a density has no likelihood"):
        _ = density.likelihood
    with pytest.raises(AttributeError, match="likelyhood"):
        _ = density.likelyhood


def test_every_prediction_comes_in_chunks() -> None:
    x, y = data()
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5))
    pred = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior.predict(x)
    assert isinstance(pred, Predictive)
    assert not pred.deferred
    ((rows, part),) = pred.chunks()
    assert part is pred
    assert rows == slice(0, None)


def test_an_error_inside_a_property_of_a_target_is_the_one_that_is_told() -> None:
    class Broken(lamu.Model):
        @property
        def trained(self) -> bool:
            return self.network.untold

    broken = Broken(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'untold'"):
        _ = broken.trained
