"""PyTorch modules as networks: the same function, gradients, statistics and noise, and every kind of posterior."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import lamu
from lamu.networks import Torch
from tests.for_each import for_each
from tests.modules_of_torch import MODULES


def case(name: str, rows: int = 5) -> tuple[Any, np.ndarray]:
    make, shape, words = MODULES[name]
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 12, size=(rows, *shape)) if words else rng.normal(size=(rows, *shape)).astype(np.float32)
    if words:
        x[:, 0] = 3  # a row of padding alone has no mean
    return make(), x


def flat(nested: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(nested, dict):
        return {prefix[:-1]: nested}
    return {name: leaf for key in nested for name, leaf in flat(nested[key], f"{prefix}{key}.").items()}


LONG = ("Cells", "Ranks", "UNet", "GRU")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.stress) if name in LONG else name for name in MODULES]
)
def test_outputs_and_gradients_are_pytorchs(name):
    module, x = case(name)
    network = Torch(module)
    params, state = network.init(jax.random.key(0), jnp.asarray(x), 3)
    value = lambda params: jnp.sum(network.apply(params, state, jnp.asarray(x), None, False)[0] ** 2)
    found, gradient = network.apply(params, state, jnp.asarray(x), None, False)[0], jax.grad(value)(params)
    module.eval()
    expected = module(torch.as_tensor(x))
    (expected**2).sum().backward()
    np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-5)
    assert bool(state) == any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in module.modules())
    slopes = {path: each.grad.numpy() for path, each in module.named_parameters()}
    for path, leaf in flat(gradient).items():
        np.testing.assert_allclose(leaf, slopes[path], atol=1e-5 * max(1.0, abs(slopes[path]).max()), err_msg=path)


@pytest.mark.parametrize("name", ["MLP", "ResNet"])
def test_a_training_pass_renews_the_statistics_as_pytorch_does(name):
    module, x = case(name)
    network = Torch(module)
    params, state = network.init(jax.random.key(0), jnp.asarray(x), 3)
    found, after = network.apply(params, state, jnp.asarray(x), None, True, None)
    module.train()
    expected = module(torch.as_tensor(x)).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    now = dict(module.named_buffers())
    for path, leaf in flat(after).items():
        np.testing.assert_allclose(leaf, now[path].numpy(), atol=1e-6, err_msg=path)
        assert not np.allclose(leaf, flat(state)[path])  # PyTorch's own moved, so this saw the move


def test_padded_rows_leave_statistics_and_other_rows_alone():
    module, x = case("MLP", rows=6)
    network = Torch(module)
    params, state = network.init(jax.random.key(0), jnp.asarray(x), 3)
    alone, after = network.apply(params, state, jnp.asarray(x[:4]), None, True, None)
    x[4:] = np.inf
    mask = jnp.asarray([1.0, 1, 1, 1, 0, 0])
    padded, after_padded = network.apply(params, state, jnp.asarray(x), None, True, mask)
    np.testing.assert_allclose(padded[:4], alone, atol=1e-6)
    for one, other in zip(jax.tree.leaves(after), jax.tree.leaves(after_padded), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_dropout_draws_with_a_key_and_keeps_the_mean():
    network = Torch(nn.Sequential(nn.Linear(4, 400), nn.Dropout(0.25), nn.Linear(400, 1)))
    x = jnp.ones((1, 4))
    params, state = network.init(jax.random.key(0), x, 1)
    f = lambda key: network.apply(params, state, x, key, True)[0][0, 0]
    draws = jax.vmap(f)(jax.random.split(jax.random.key(1), 2000))
    assert float(draws.std()) > 0
    # 5 standard errors of the mean: one failure in two million.
    assert abs(float(draws.mean() - network.apply(params, state, x, None, True)[0][0, 0])) < 5 * draws.std() / 2000**0.5


@pytest.mark.stress
def test_every_kind_of_posterior_takes_a_trained_module():
    x, y = lamu.data.load("iris")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(module.parameters(), 0.05)
    inputs, labels = torch.tensor(np.asarray(x)), torch.tensor(np.asarray(y), dtype=torch.long)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs.float()), labels).backward()
        optimizer.step()
    model = lamu.Model(Torch(module, head="2/*"), lamu.likelihoods.Categorical(3))
    for algorithm in (lamu.algorithms.laplace(), lamu.algorithms.last_layer()):
        posterior = lamu.fit(model, (x, y), algorithm, epochs=0).posterior
        assert lamu.scores.accuracy(posterior.predict(x), y) > 0.95
        back = model.network.state_dict(posterior.mean["network"])
        module.load_state_dict(back)
        with torch.no_grad():
            own = module(inputs.float()).softmax(-1).numpy()
        params = posterior.model.complete(posterior.mean["network"])
        point = jax.nn.softmax(model.network.apply(params, {}, jnp.asarray(x), None, False)[0])
        np.testing.assert_allclose(own, point, atol=1e-5)
    assert lamu.fit(model, (x, y), lamu.algorithms.ivon(), epochs=3).posterior.predict(x).mean.shape == (150, 3)


def test_a_function_that_makes_modules_gives_every_run_weights_of_its_own():
    network = Torch(lambda: nn.Linear(2, 1))
    x = jnp.ones((3, 2))
    assert not network.trained
    first, again, second = (
        jax.jit(lambda key: network.init(key, x, 1)[0])(jax.random.key(seed))["weight"] for seed in (0, 0, 1)
    )
    assert (first == again).all()
    assert not (first == second).any()
    before = torch.random.get_rng_state()
    network.init(jax.random.key(3), x, 1)
    assert (torch.random.get_rng_state() == before).all()


def test_the_module_is_not_changed_and_its_later_training_is_not_seen():
    module = nn.Linear(2, 1)
    network = Torch(module)
    weight = module.weight.detach().clone()
    with torch.no_grad():
        module.weight += 1
    params, _ = network.init(jax.random.key(0), jnp.ones((1, 2)), 1)
    np.testing.assert_array_equal(params["weight"], weight.numpy())
    params, _ = Torch(module).init(jax.random.key(0), jnp.ones((1, 2)), 1)
    np.testing.assert_allclose(params["weight"], weight.numpy() + 1, rtol=1e-6)


def test_a_module_that_is_changed_later_is_read_again_and_the_network_of_before_stays():
    # The module was read once a process: a new temperature, activation or buffer was not seen, in silence.
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.activation, self.out = nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)
            self.temperature = 1.0
            self.register_buffer("shift", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            return self.out(self.activation(self.first(x - self.shift))) / self.temperature

    def outputs(network: Torch) -> Any:
        return network.apply(*network.init(jax.random.key(0), x, 2), x, None, False)[0]

    def swap() -> None:
        module.activation = nn.Softplus()

    module, rows = Scaled(), torch.randn(5, 3)
    x = jnp.asarray(rows.numpy())
    changes = (
        lambda: setattr(module, "temperature", 2.0),
        lambda: module.shift.fill_(1.0),
        swap,
        lambda: setattr(module, "out", nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))),
    )
    network = Torch(module)
    assert Torch(module).module is network.module  # programs are compiled once
    for change in changes:
        expected = module(rows).detach()
        change()
        assert np.allclose(outputs(network), expected, atol=1e-6)
        network = Torch(module)
        assert np.allclose(outputs(network), module(rows).detach(), atol=1e-6)


def test_what_cannot_be_read_is_named():
    class Branch(nn.Linear):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else super().forward(x)

    class Unknown(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(2, 2), _Solve())

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    class Two(nn.Linear):
        def forward(self, x: Any) -> Any:
            return x, super().forward(x)

    x = jnp.ones((3, 2))
    for module, said in ((Branch(2, 2), "torch.export cannot read Branch"), (Two(2, 2), "returns 2 tensors")):
        with pytest.raises(TypeError, match=said):
            Torch(module).init(jax.random.key(0), x, 2)
    with pytest.raises(TypeError, match=r"operator aten\.special_bessel_j0\.default in the submodule 'inner\.1'"):
        Torch(Unknown()).init(jax.random.key(0), x, 2)
    for norm in (nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm):
        network = Torch(norm(nn.Linear(2, 2)))
        start = network.init(jax.random.key(0), x, 2)
        said = r"training mode .*aten\.div\.out .* of spectral_norm keep the weights, .*_spectral_norm\(layer"
        with pytest.raises(TypeError, match=said):
            network.apply(*start, x, None, True)
    with pytest.raises(TypeError, match="is not a PyTorch module"):
        Torch(3)
    with pytest.raises(ValueError, match="nothing"):
        Torch(nn.Linear(2, 1), head="nothing/*")


class _Solve(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.special.bessel_j0(x)


class ByMode(nn.Module):
    """A module whose `forward` asks for its mode."""

    def __init__(self, branch: str) -> None:
        super().__init__()
        self.norm, self.first, self.out = nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Linear(3, 2)
        self.branch = branch

    def forward(self, x: Any) -> Any:
        h = self.first(self.norm(x))
        if self.training and self.branch == "depth":  # stochastic depth, as torchvision and timm write it
            h = h / 0.8 * h.new_empty((h.shape[0], 1)).bernoulli_(0.8)
        f = self.out(x + h)
        if self.branch == "two":
            return (f, h) if self.training else f
        return f.softmax(-1) if self.branch == "softmax" and not self.training else f


@pytest.mark.parametrize("branch", ["softmax", "depth", "two"])
def test_outputs_are_those_of_evaluation_where_forward_asks_for_the_mode(branch):
    # The graph of training mode was computed in every pass: logits for probabilities, and a refusal of the others.
    torch.manual_seed(0)
    module, rows = ByMode(branch).train(), torch.randn(6, 3)
    module(rows)  # statistics
    before = {name: each.clone() for name, each in module.named_buffers()}
    network, x = Torch(module), jnp.asarray(rows.numpy())
    params, state = network.init(jax.random.key(0), x, 2)
    outputs, _ = network.apply(params, state, x, None, False)
    assert np.allclose(outputs, module.eval()(rows).detach(), atol=1e-6)
    assert sorted(state["norm"]) == ["running_mean", "running_var"]
    if branch == "softmax":
        trained, after = network.apply(params, state, x, None, True)
        assert np.allclose(trained, module.train()(rows).detach(), atol=1e-6)
        assert np.allclose(after["norm"]["running_mean"], module.norm.running_mean, atol=1e-6)
    else:
        with pytest.raises(TypeError, match=r"in training mode \(self\.training is True\)"):
            network.apply(params, state, x, None, True)
    assert all(torch.equal(each, before[name]) for name, each in module.named_buffers()) or branch == "softmax"


@pytest.mark.parametrize("layer", [nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.3)])
def test_dropout_of_selu_keeps_mean_and_variance(layer):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(20000, 2)), jnp.float32)
    network = Torch(nn.Sequential(nn.Linear(2, 2), layer))
    start = {"0": {"weight": jnp.eye(2), "bias": jnp.zeros(2)}}
    assert np.allclose(network.apply(start, {}, x, None, False)[0], x, atol=1e-6)
    noisy, _ = network.apply(start, {}, x, jax.random.key(0), True)
    assert np.allclose([jnp.mean(noisy), jnp.std(noisy)], [0, 1], atol=0.02)
    dropped = nn.functional.alpha_dropout(torch.zeros(100), 0.3, True).min().item()
    assert np.isclose(np.mean(np.isclose(noisy, dropped, atol=1e-5)), 0.3, atol=0.01)


def test_codes_may_come_as_numbers_to_a_module_that_makes_them_codes():
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4, 2)

        def forward(self, x: Any) -> Any:
            return self.table(x.long())[:, 0]

    module, codes = Table(), np.asarray([[3.0] * 20, [1.0] * 20], np.float32)
    network = Torch(module)
    outputs, _ = network.apply(*network.init(jax.random.key(0), jnp.asarray(codes), 2), jnp.asarray(codes), None, False)
    assert np.allclose(outputs, module(torch.tensor(codes)).detach())


def test_tied_weights_are_one_parameter_that_goes_back_under_every_name():
    module, x = case("Tied")
    network = Torch(module)
    params, state = network.init(jax.random.key(0), jnp.asarray(x), 12)
    assert lamu.tree.paths(params) == ["embed/weight", "middle/bias", "middle/weight"]
    doubled = network.state_dict(jax.tree.map(lambda leaf: 2 * leaf, params), state)
    assert sorted(doubled) == sorted(module.state_dict())
    np.testing.assert_array_equal(doubled["out.weight"], 2 * module.embed.weight.detach().numpy())
    module.load_state_dict(doubled)
    expected = network.apply(jax.tree.map(lambda leaf: 2 * leaf, params), state, jnp.asarray(x), None, False)[0]
    np.testing.assert_allclose(module(torch.as_tensor(x)).detach().numpy(), expected, atol=1e-5)


def test_a_head_may_have_a_tied_weights_later_name():
    module, x = case("Tied")
    network = Torch(module, head="out/*")
    assert network.head == "embed/weight"
    y = np.arange(len(x)) % 12
    model = lamu.Model(lamu.networks.Tokens(network), lamu.likelihoods.Categorical(12))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lamu.Unconverged)
        posterior = lamu.fit(model, (x, y), lamu.algorithms.last_layer(), epochs=0).posterior
    assert lamu.tree.paths(posterior.mean["network"]) == ["embed/weight"]


def test_a_tied_weight_beside_others_is_no_head():
    module = nn.ModuleDict({"embed": nn.Linear(3, 3, bias=False), "out": nn.Linear(3, 3)})
    module["out"].weight = module["embed"].weight
    with pytest.raises(ValueError, match=r"'out/weight', a tied weight .* 'embed/weight'.*Matching\(\['embed/weight'"):
        Torch(module, head="out/*")
    assert Torch(module, head="*").head == "*"


def test_a_layer_under_two_names_renews_its_statistics_as_pytorch_does():
    norm = nn.BatchNorm1d(3)
    module = nn.Sequential(norm, nn.Linear(3, 3), norm)
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    network = Torch(module)
    params, state = network.init(jax.random.key(0), jnp.asarray(x), 3)
    found, after = network.apply(params, state, jnp.asarray(x), None, True, None)
    np.testing.assert_allclose(found, module.train()(torch.as_tensor(x)).detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(flat(after)["0.running_mean"], norm.running_mean.numpy(), atol=1e-6)
    np.testing.assert_allclose(network.state_dict(params, after)["2.running_var"], norm.running_var.numpy(), atol=1e-6)


class Keeps(nn.Module):
    """Writes attributes in its forward pass; whether they matter is the function's choice."""

    def __init__(self, matters: str) -> None:
        super().__init__()
        self.layer, self.matters, self.h, self.seen, self.count = nn.Linear(2, 3), matters, None, [], 0
        if matters == "last":
            self.register_buffer("last", None)

    def forward(self, x: Any) -> Any:
        h = self.layer(x)
        if self.matters == "h" and self.h is not None:
            h = h + self.h
        if self.matters == "seen" and self.seen:
            h = h + self.seen[-1]
        if self.matters == "count":
            h = h * 0.5**self.count
        if self.matters == "last" and self.last is not None:
            h = h + self.last
        self.h, self.last, self.count = h, h, self.count + 1
        self.seen.append(h)
        return h


@for_each("matters", ["h", "seen", "count", "last"])
def test_hidden_state_is_refused_by_its_path(matters):
    with pytest.raises(TypeError, match=rf"Sequential has hidden state: its forward writes .*\b1\.{matters}\b"):
        Torch(nn.Sequential(nn.Tanh(), Keeps(matters))).init(jax.random.key(0), jnp.ones((3, 2)), 3)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_attributes_that_leave_the_outputs_alone_are_no_state():
    x = jnp.ones((3, 2))
    for module in (Keeps("nothing"), nn.utils.weight_norm(nn.Linear(2, 3))):
        params, state = Torch(module).init(jax.random.key(0), x, 3)
        found = Torch(module).apply(params, state, x, None, False)[0]
        np.testing.assert_allclose(found, module.eval()(torch.ones(3, 2)).detach().numpy(), atol=1e-6)


def test_rows_of_another_width_are_named_with_the_layer(capfd):
    network = Torch(nn.Sequential(nn.Tanh(), nn.Linear(4, 3)))
    with pytest.raises(
        ValueError, match=r"rows of the shape \(5,\): its submodule '1', Linear\(in_features=4, .*2x5 and"
    ):
        network.init(jax.random.key(0), jnp.ones((3, 5)), 3)
    assert capfd.readouterr().err == ""


class OutputsFirst(nn.Linear):
    def forward(self, x):
        return super().forward(x).T


@pytest.mark.parametrize("classes", [2, 3])
def test_a_module_with_the_outputs_first_is_told_to_transpose(classes):
    model = lamu.Model(Torch(OutputsFirst(4, classes)), lamu.likelihoods.Categorical(classes))
    with pytest.raises(ValueError, match=r"of shape \[outputs, rows\]; return their transpose"):
        model.init(jax.random.key(0), lamu.data.Batch.of(jnp.ones((5, 4)), jnp.zeros(5, int)))


def test_codes_outside_of_a_table_are_not_read_as_others():
    network = Torch(nn.Sequential(nn.Embedding(5, 3), nn.Flatten()))
    params, state = network.init(jax.random.key(0), jnp.ones((2, 1), jnp.int32), 3)
    rows = np.asarray(network.apply(params, state, jnp.array([[4], [5], [-1]], jnp.int32), None, False)[0])
    assert np.isfinite(rows[0]).all()
    assert np.isnan(rows[1:]).all()


def test_a_module_without_an_adapter_is_told_which():
    with pytest.raises(TypeError, match=r"give one of lamu.networks, a module by lamu.networks.Torch\(module\), or"):
        lamu.Model(nn.Linear(4, 3), lamu.likelihoods.Categorical(3))


class OfTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, a: Any, b: Any) -> Any:
        return self.layer(a) + self.layer(b)


class OfNames(nn.Module):
    def __init__(self, ask: Any) -> None:
        super().__init__()
        self.layer, self.ask = nn.Linear(3, 2), ask

    def forward(self, batch: Any) -> Any:
        return self.layer(self.ask(batch))


def small() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def first(network: Any, x: Any) -> Any:
    params, state = network.init(jax.random.key(0), jnp.asarray(x), 2)
    return network.apply(params, state, jnp.asarray(x), None, False)[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel, lambda m: nn.DataParallel(torch.compile(m))])
def test_what_is_wrapped_around_a_module_is_taken_off(wrap):
    x = np.ones((4, 3), np.float32)
    network = Torch(wrap(small()), head="2/*")
    np.testing.assert_allclose(first(network, x), small()(torch.as_tensor(x)).detach().numpy(), atol=1e-6)


def test_weights_of_sixteen_bits_are_computed_in_thirty_two():
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    module = small().bfloat16()
    expected = copy.deepcopy(module).float()(torch.as_tensor(x)).detach().numpy()
    network = Torch(module)
    np.testing.assert_allclose(first(network, x), expected, atol=1e-6)
    assert {each.dtype for each in network.state_dict(network.start["params"]).values()} == {torch.bfloat16}


@for_each(
    "make, x, words",
    [
        (OfTwo, np.ones((4, 3)), r"OfTwo.forward takes 2 inputs \(a, b\), .*x\[:, :k\], x\[:, k:\]"),
        (lambda: OfNames(lambda b: b["a"]), np.ones((4, 3)), "OfNames.forward takes a dictionary of tensors"),
        (lambda: OfNames(lambda b: next(iter(b.values()))), np.ones((4, 3)), "takes a dictionary of tensors"),
        (lambda: OfNames(lambda b: b.get("a")), np.ones((4, 3)), "takes a dictionary of tensors"),
        (lambda: nn.Sequential(nn.Embedding(9, 2), nn.Flatten()), np.ones((4, 1)), r"lamu.networks.Tokens\("),
    ],
)
def test_a_module_of_other_inputs_is_told_what_to_write(make, x, words):
    with pytest.raises(TypeError, match=words):
        first(Torch(make()), x.astype(np.float32))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_told_what_to_give():
    with pytest.raises(TypeError, match=r"is TorchScript, .*module.load_state_dict\(scripted.state_dict\(\)\)"):
        Torch(torch.jit.trace(small(), torch.zeros(2, 3)))


def test_a_wrong_head_lists_the_paths():
    with pytest.raises(ValueError, match=r"'fc/.*' matches no leaf; the leaves are 0/bias, 0/weight, 2/bias, 2/weight"):
        Torch(small(), head="fc/*")


def part_frozen() -> nn.Sequential:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    return module


def test_parameters_that_take_no_gradient_are_held(tmp_path):
    """The posterior is that of the others alone: with all frozen but the last layer, Laplace's is `last_layer`."""
    module, x = part_frozen(), np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    of = lambda network: lamu.Model(network, lamu.likelihoods.Categorical(2))
    options: Any = {"epochs": 0}
    dense = lamu.algorithms.laplace(structure=lamu.operators.Dense)
    found = lamu.fit(of(Torch(module)), (x, y), dense, **options).posterior
    assert lamu.tree.paths(found.mean["network"]) == ["2/bias", "2/weight"]
    whole = copy.deepcopy(module).requires_grad_(True)
    head = lamu.algorithms.laplace(structure=lamu.operators.Dense, weights=lamu.algorithms.HeadWeights())
    expected = lamu.fit(of(Torch(whole, head="2/*")), (x, y), head, **options).posterior
    for a, b in zip(jax.tree.leaves(found.std), jax.tree.leaves(expected.std["network"]["2"]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    np.testing.assert_allclose(found.predict(x).mean, expected.predict(x).mean, atol=1e-6)
    again = lamu.load(found.save(tmp_path / "posterior"), network=Torch(module))
    np.testing.assert_array_equal(again.predict(x).mean, found.predict(x).mean)
    again = lamu.load(tmp_path / "posterior", network=Torch(whole))
    np.testing.assert_array_equal(again.predict(x).mean, found.predict(x).mean)
    with pytest.raises(ValueError, match=r"lack 0.weight, 0.bias; .*requires_grad"):
        Torch(whole).apply(found.mean["network"], {}, jnp.asarray(x), None, False)


class Shifted(nn.Module):
    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(3))
        self.first, self.out = nn.Linear(3, 4).requires_grad_(not frozen), nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        return self.out(torch.tanh(self.first(x - self.shift)))


@pytest.mark.parametrize("adapted", [False, True])
def test_a_posterior_is_loaded_with_a_module_of_other_weights(tmp_path, adapted):
    # What the belief is not about, frozen weights and buffers, was that of the module given, in silence.
    def network(module: nn.Module) -> Any:
        return lamu.networks.LowRankAdapter(Torch(module), rank=1) if adapted else Torch(module)

    module, x = Shifted(frozen=True), np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    module.shift.fill_(0.7)
    algorithm, epochs = (lamu.algorithms.adam(0.01), 1) if adapted else (lamu.algorithms.laplace(), 0)
    model = lamu.Model(network(module), lamu.likelihoods.Gaussian(1.0))
    posterior = lamu.fit(model, (x, x[:, 0]), algorithm, epochs=epochs).posterior
    posterior.save(tmp_path / "saved")
    for other in (Shifted(frozen=True), Shifted(frozen=False)):
        loaded = lamu.load(tmp_path / "saved", network=network(other))
        assert np.array_equal(loaded.predict(x).mean, posterior.predict(x).mean)


def test_a_run_leaves_parameters_that_take_no_gradient_as_they_are():
    module, x = part_frozen(), np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    for network in (Torch(module), Torch(part_frozen)):
        model = lamu.Model(network, lamu.likelihoods.Categorical(2))
        posterior = lamu.fit(model, (x, (x[:, 0] > 0).astype(int)), lamu.algorithms.adam(0.1), epochs=3).posterior
        after = network.state_dict(posterior.mean["network"])
        assert torch.equal(after["0.weight"], module[0].weight)
        assert not torch.equal(after["2.weight"], module[2].weight)


def test_a_module_frozen_altogether_is_one_whose_parameters_are_all_learned():
    module = part_frozen().requires_grad_(False)
    assert lamu.tree.paths(Torch(module, head="2/*").start["params"]) == ["0/bias", "0/weight", "2/bias", "2/weight"]


def test_a_head_that_takes_no_gradient_is_told():
    with pytest.raises(ValueError, match="requires_grad is False"):
        Torch(part_frozen(), head="0/*")


def test_adapters_correct_parameters_that_take_no_gradient():
    """Who adapts a network has frozen it: its weights stay, and each has a correction."""
    module, x = part_frozen(), np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    network = lamu.LowRankAdapter(lamu.networks.InputNoise(Torch(module, head="2/*"), 0.0), rank=1, full="2/*")
    model = lamu.Model(network, lamu.likelihoods.Categorical(2))
    posterior = lamu.fit(model, (x, (x[:, 0] > 0).astype(int)), lamu.algorithms.adam(0.1), epochs=3).posterior
    assert lamu.tree.paths(posterior.mean["network"]["low_rank"]) == ["0/weight/down", "0/weight/up"]
    after = Torch(module).state_dict(network.merged(posterior.mean["network"], x))
    assert not torch.equal(after["0.weight"], module[0].weight)
