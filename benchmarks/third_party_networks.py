"""Twelve networks as their libraries' tutorials write them, how they are trained there, and their posterior in Lamu.

A `Network` names its data, trains by its own library, gives its own outputs, and has a `posterior` whose lines are all
that Lamu asks of its user. Nothing else in this file calls Lamu.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

import lamu
from lamu.algorithms import laplace, last_layer
from lamu.batch_statistics import Frozen
from lamu.likelihoods import Categorical, PerPosition
from lamu.networks import NNX, Equinox, Linen, Tokens, Torch, Trained
from lamu.priors import LearnedNormal

__all__ = ["NETWORKS", "Network", "Parts"]


@dataclass(frozen=True)
class Parts:
    """Rows to train on, rows kept apart, and rows to judge by, each inputs and classes."""

    train: tuple[np.ndarray, np.ndarray]
    kept: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


class Network(ABC):
    """One network."""

    data: str  # "fashion", "small_fashion", "satellite", "sentences" or "scenes"
    epochs: int
    rate = 1e-3

    @abstractmethod
    def train(self, x: np.ndarray, y: np.ndarray) -> None:
        """Trains the network by its own library."""

    @abstractmethod
    def outputs(self, x: np.ndarray) -> np.ndarray:
        """Returns the library's own outputs."""

    @abstractmethod
    def posterior(self, parts: Parts) -> Any:
        """Returns the posterior: these are the lines that Lamu takes."""

    def given(self, x: np.ndarray) -> np.ndarray:
        """Returns inputs as the posterior takes them."""
        return x

    def as_own(self, f: Any) -> np.ndarray:
        """Returns outputs of the posterior's network as the library itself has them."""
        return np.asarray(f)


class _Pytorch(Network):
    def make(self) -> Any:
        raise NotImplementedError

    def train(self, x: np.ndarray, y: np.ndarray) -> None:
        import torch
        from torch import nn

        torch.manual_seed(0)
        self.module = self.make()
        optimizer = torch.optim.Adam(self.module.parameters(), self.rate)
        inputs, labels = torch.tensor(x), torch.tensor(y, dtype=torch.long)
        for _ in range(self.epochs):
            for rows in torch.randperm(len(inputs)).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(self.module(inputs[rows]), labels[rows]).backward()
                optimizer.step()
        self.module.eval()

    def outputs(self, x: np.ndarray) -> np.ndarray:
        import torch

        with torch.no_grad():
            return self.module(torch.tensor(x)).numpy()


class Quickstart(_Pytorch):
    """PyTorch, "Quickstart": three dense layers."""

    data, epochs = "fashion", 30

    def make(self) -> Any:
        from torch import nn

        class NeuralNetwork(nn.Module):
            def __init__(self):
                super().__init__()
                self.flatten = nn.Flatten()
                self.linear_relu_stack = nn.Sequential(
                    nn.Linear(28 * 28, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
                )

            def forward(self, x):
                return self.linear_relu_stack(self.flatten(x))

        return NeuralNetwork()

    def posterior(self, parts: Parts) -> Any:
        model = lamu.Model(Torch(self.module, head="linear_relu_stack/4/*"), Categorical(10), LearnedNormal())
        return lamu.fit(model, parts.train, last_layer(), epochs=0, validation=parts.kept).posterior


class Classifier(_Pytorch):
    """PyTorch, "Training a classifier": the convolutional network of the CIFAR tutorial, for one channel."""

    data, epochs = "fashion", 30

    def make(self) -> Any:
        import torch
        from torch import nn
        from torch.nn import functional as F  # noqa: N812, as all of its users call it

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv1 = nn.Conv2d(1, 6, 5)
                self.pool = nn.MaxPool2d(2, 2)
                self.conv2 = nn.Conv2d(6, 16, 5)
                self.fc1 = nn.Linear(16 * 4 * 4, 120)
                self.fc2 = nn.Linear(120, 84)
                self.fc3 = nn.Linear(84, 10)

            def forward(self, x):
                x = self.pool(F.relu(self.conv1(x)))
                x = self.pool(F.relu(self.conv2(x)))
                x = torch.flatten(x, 1)
                x = F.relu(self.fc1(x))
                x = F.relu(self.fc2(x))
                return self.fc3(x)

        return Net()

    def posterior(self, parts: Parts) -> Any:
        model = lamu.Model(Torch(self.module, head="fc3/*"), Categorical(10), LearnedNormal())
        return lamu.fit(model, parts.train, last_layer(), epochs=0, validation=parts.kept).posterior


class Residual(_Pytorch):
    """torchvision's basic block: a residual network with batch normalisation."""

    data, epochs = "small_fashion", 30

    def make(self) -> Any:
        import torch
        from torch import nn

        class BasicBlock(nn.Module):
            def __init__(self, inplanes, planes, stride):
                super().__init__()
                self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
                self.bn1 = nn.BatchNorm2d(planes)
                self.relu = nn.ReLU(inplace=True)
                self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
                self.bn2 = nn.BatchNorm2d(planes)
                self.downsample = nn.Sequential(
                    nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
                )

            def forward(self, x):
                out = self.relu(self.bn1(self.conv1(x)))
                out = self.bn2(self.conv2(out))
                out += self.downsample(x)
                return self.relu(out)

        class ResNet(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
                self.bn1 = nn.BatchNorm2d(16)
                self.layer1 = BasicBlock(16, 32, 2)
                self.layer2 = BasicBlock(32, 64, 2)
                self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
                self.fc = nn.Linear(64, 10)

            def forward(self, x):
                x = torch.relu(self.bn1(self.conv1(x)))
                x = self.avgpool(self.layer2(self.layer1(x)))
                return self.fc(torch.flatten(x, 1))

        return ResNet()

    def posterior(self, parts: Parts) -> Any:
        model = lamu.Model(Torch(self.module, head="fc/*"), Categorical(10), LearnedNormal())
        options = {"epochs": 0, "validation": parts.kept, "statistics": Frozen()}
        return lamu.fit(model, parts.train, last_layer(), **options).posterior


class Rows(_Pytorch):
    """The usual recurrent classifier: an LSTM that reads an image row by row."""

    data, epochs = "small_fashion", 40

    def make(self) -> Any:
        from torch import nn

        class RNN(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = nn.LSTM(14, 64, batch_first=True)
                self.fc = nn.Linear(64, 10)

            def forward(self, x):
                out, _ = self.lstm(x.squeeze(1))
                return self.fc(out[:, -1, :])

        return RNN()

    def posterior(self, parts: Parts) -> Any:
        model = lamu.Model(Torch(self.module, head="fc/*"), Categorical(10), LearnedNormal())
        return lamu.fit(model, parts.train, last_layer(), epochs=0, validation=parts.kept).posterior


class Transformer(_Pytorch):
    """A transformer for sentences, made of PyTorch's encoder layers, and low-rank adapters beside its weights."""

    data, epochs = "sentences", 8

    def make(self) -> Any:
        import torch
        from torch import nn

        class TransformerModel(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = nn.Embedding(10384, 64)
                self.position = nn.Parameter(0.02 * torch.randn(24, 64))
                layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
                self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
                self.linear = nn.Linear(64, 2)

            def forward(self, words):
                return self.linear(self.encoder(self.embedding(words) + self.position).mean(1))

        return TransformerModel()

    def train(self, x: np.ndarray, y: np.ndarray) -> None:
        super().train(x.astype(np.int64), y)

    def outputs(self, x: np.ndarray) -> np.ndarray:
        return super().outputs(x.astype(np.int64))

    def posterior(self, parts: Parts) -> Any:
        base = Tokens(Torch(self.module, head="linear/*"))
        network = lamu.LowRankAdapter(base, rank=1, at="encoder*linear*weight", full="linear/*")
        model = lamu.Model(network, Categorical(2), LearnedNormal())
        return lamu.fit(model, parts.train, laplace(), epochs=0, validation=parts.kept).posterior


class Unet(_Pytorch):
    """A U-Net for the class of every pixel, as written again and again since Ronneberger et al. (2015)."""

    data, epochs, rate = "scenes", 60, 2e-3

    def make(self) -> Any:
        import torch
        from torch import nn

        def double(inputs, outputs):
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, padding=1),
                nn.ReLU(inplace=True),
                nn.Conv2d(outputs, outputs, 3, padding=1),
                nn.ReLU(inplace=True),
            )

        class UNet(nn.Module):
            def __init__(self):
                super().__init__()
                self.inc, self.down1, self.down2 = double(1, 8), double(8, 16), double(16, 32)
                self.pool = nn.MaxPool2d(2)
                self.up1, self.up2 = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ConvTranspose2d(16, 8, 2, stride=2)
                self.conv1, self.conv2 = double(32, 16), double(16, 8)
                self.outc = nn.Conv2d(8, 9, 1)

            def forward(self, x):
                x1 = self.inc(x)
                x2 = self.down1(self.pool(x1))
                x3 = self.down2(self.pool(x2))
                x = self.conv1(torch.cat([x2, self.up1(x3)], dim=1))
                x = self.conv2(torch.cat([x1, self.up2(x)], dim=1))
                return self.outc(x)

        return UNet()

    def posterior(self, parts: Parts) -> Any:
        from torch import nn

        class Flat(nn.Sequential):  # pixels side by side, their classes last
            def forward(self, x):
                return super().forward(x).permute(0, 2, 3, 1).flatten(1)

        network = Torch(Flat(self.module), head="0/outc/*")
        model = lamu.Model(network, PerPosition(Categorical(9), (16, 16)), LearnedNormal())
        return lamu.fit(model, parts.train, last_layer(), epochs=0, validation=parts.kept).posterior


class _Jax(Network):
    """Trained by optax, as the tutorials of Flax and Equinox do."""

    def begin(self, x: np.ndarray) -> Any:
        """Makes the network and returns what is trained."""
        raise NotImplementedError

    def loss(self, trained: Any, x: Any, y: Any, key: Any) -> tuple[Any, Any]:
        """Returns the loss of a batch, and what else changes."""
        raise NotImplementedError

    def train(self, x: np.ndarray, y: np.ndarray) -> None:
        import jax
        import optax

        params, others = self.begin(x)
        optimizer = optax.adam(self.rate)
        state, order = optimizer.init(params), np.random.default_rng(0)

        @jax.jit
        def step(params, others, state, x, y, key):
            slope, others = jax.grad(self.loss, has_aux=True)(params, others, x, y, key)
            updates, state = optimizer.update(slope, state)
            return optax.apply_updates(params, updates), others, state

        key = jax.random.key(1)
        for _ in range(self.epochs):
            for rows in np.array_split(order.permutation(len(x))[: len(x) // 64 * 64], len(x) // 64):
                key, own = jax.random.split(key)
                params, others, state = step(params, others, state, x[rows], y[rows], own)
        self.params, self.others = jax.block_until_ready((params, others))


class LinenCNN(_Jax):
    """Flax Linen, the MNIST example: two convolutions and two dense layers."""

    data, epochs, rate = "small_fashion", 30, 3e-3

    def begin(self, x: np.ndarray) -> Any:
        import flax.linen as nn
        import jax

        class CNN(nn.Module):
            @nn.compact
            def __call__(self, x):
                x = nn.Conv(features=16, kernel_size=(3, 3))(x)
                x = nn.relu(x)
                x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
                x = nn.Conv(features=32, kernel_size=(3, 3))(x)
                x = nn.relu(x)
                x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
                x = x.reshape((x.shape[0], -1))
                x = nn.Dense(features=256)(x)
                x = nn.relu(x)
                return nn.Dense(features=10)(x)

        self.module = CNN()
        return self.module.init(jax.random.key(0), self._last(x[:1]))["params"], ()

    def loss(self, params: Any, others: Any, x: Any, y: Any, key: Any) -> tuple[Any, Any]:
        import optax

        f = self.module.apply({"params": params}, self._last(x))
        return optax.softmax_cross_entropy_with_integer_labels(f, y).mean(), others

    def outputs(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.module.apply({"params": self.params}, self._last(x)))

    def posterior(self, parts: Parts) -> Any:
        (x, y), (to, at) = parts.train, parts.kept
        network = Linen(self.module, variables={"params": self.params}, head="Dense_1/*")
        model = lamu.Model(network, Categorical(10), LearnedNormal())
        rows, kept = (np.moveaxis(x, 1, -1), y), (np.moveaxis(to, 1, -1), at)
        return lamu.fit(model, rows, last_layer(), epochs=0, validation=kept).posterior

    def given(self, x: np.ndarray) -> np.ndarray:
        return self._last(x)

    def _last(self, x: Any) -> Any:
        return x.transpose(0, 2, 3, 1)


class LinenMLP(_Jax):
    """Flax Linen: dense layers with batch normalisation and dropout, as the guides on both write them."""

    data, epochs = "satellite", 150

    def begin(self, x: np.ndarray) -> Any:
        import flax.linen as nn
        import jax

        class MLP(nn.Module):
            @nn.compact
            def __call__(self, x, train: bool = False):
                x = nn.Dense(128)(x)
                x = nn.BatchNorm(use_running_average=not train)(x)
                x = nn.relu(x)
                x = nn.Dropout(0.2, deterministic=not train)(x)
                x = nn.Dense(128)(x)
                x = nn.relu(x)
                return nn.Dense(6, name="head")(x)

        self.module = MLP()
        variables = self.module.init(jax.random.key(0), x[:1])
        return variables["params"], variables["batch_stats"]

    def loss(self, params: Any, others: Any, x: Any, y: Any, key: Any) -> tuple[Any, Any]:
        import optax

        variables = {"params": params, "batch_stats": others}
        f, new = self.module.apply(variables, x, train=True, mutable=["batch_stats"], rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(f, y).mean(), new["batch_stats"]

    def outputs(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.module.apply({"params": self.params, "batch_stats": self.others}, x))

    def posterior(self, parts: Parts) -> Any:
        network = Linen(self.module, variables={"params": self.params, "batch_stats": self.others}, head="head/*")
        model = lamu.Model(network, Categorical(6), LearnedNormal())
        options = {"epochs": 0, "validation": parts.kept, "statistics": Frozen()}
        return lamu.fit(model, parts.train, last_layer(), **options).posterior


class NNXCNN(_Jax):
    """Flax NNX, the "MNIST tutorial": convolutions, dropout and two dense layers."""

    data, epochs, rate = "small_fashion", 30, 3e-3

    def begin(self, x: np.ndarray) -> Any:
        from functools import partial

        from flax import nnx

        class CNN(nnx.Module):
            def __init__(self, *, rngs: nnx.Rngs):
                self.conv1 = nnx.Conv(1, 16, kernel_size=(3, 3), rngs=rngs)
                self.conv2 = nnx.Conv(16, 32, kernel_size=(3, 3), rngs=rngs)
                self.dropout = nnx.Dropout(rate=0.025, rngs=rngs)
                self.avg_pool = partial(nnx.avg_pool, window_shape=(2, 2), strides=(2, 2))
                self.linear1 = nnx.Linear(3 * 3 * 32, 256, rngs=rngs)
                self.linear2 = nnx.Linear(256, 10, rngs=rngs)

            def __call__(self, x):
                x = self.avg_pool(nnx.relu(self.conv1(x)))
                x = self.avg_pool(nnx.relu(self.dropout(self.conv2(x))))
                x = x.reshape(x.shape[0], -1)
                x = nnx.relu(self.linear1(x))
                return self.linear2(x)

        self.module = CNN(rngs=nnx.Rngs(0))
        self.graph, params, others = nnx.split(self.module, nnx.Param, ...)
        return params, others

    def loss(self, params: Any, others: Any, x: Any, y: Any, key: Any) -> tuple[Any, Any]:
        import jax
        import optax
        from flax import nnx

        module = nnx.merge(self.graph, params, jax.tree.map(lambda leaf: leaf, others))  # variables of this trace
        f = module(x.transpose(0, 2, 3, 1))
        return optax.softmax_cross_entropy_with_integer_labels(f, y).mean(), nnx.state(module, nnx.Not(nnx.Param))

    def train(self, x: np.ndarray, y: np.ndarray) -> None:
        from flax import nnx

        super().train(x, y)
        self.module = nnx.merge(self.graph, self.params, self.others)
        self.module.eval()

    def outputs(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.module(x.transpose(0, 2, 3, 1)))

    def posterior(self, parts: Parts) -> Any:
        (x, y), (to, at) = parts.train, parts.kept
        model = lamu.Model(NNX.of(self.module, head="linear2/*"), Categorical(10), LearnedNormal())
        rows, kept = (np.moveaxis(x, 1, -1), y), (np.moveaxis(to, 1, -1), at)
        return lamu.fit(model, rows, last_layer(), epochs=0, validation=kept).posterior

    def given(self, x: np.ndarray) -> np.ndarray:
        return x.transpose(0, 2, 3, 1)


class _Equinox(_Jax):
    def make(self, key: Any) -> Any:
        raise NotImplementedError

    def begin(self, x: np.ndarray) -> Any:
        import equinox as eqx
        import jax

        params, self.static = eqx.partition(self.make(jax.random.key(0)), eqx.is_inexact_array)
        return params, ()

    def loss(self, params: Any, others: Any, x: Any, y: Any, key: Any) -> tuple[Any, Any]:
        import equinox as eqx
        import jax
        import optax

        f = jax.vmap(eqx.combine(params, self.static))(x)
        return optax.softmax_cross_entropy_with_integer_labels(f, y).mean(), others

    def train(self, x: np.ndarray, y: np.ndarray) -> None:
        import equinox as eqx

        super().train(x, y)
        self.module = eqx.combine(self.params, self.static)

    def outputs(self, x: np.ndarray) -> np.ndarray:
        import jax

        return np.asarray(jax.vmap(self.module)(x))


class EquinoxCNN(_Equinox):
    """Equinox, the example "CNN on MNIST": layers in a list; its outputs are log probabilities."""

    data, epochs = "fashion", 30

    def make(self, key: Any) -> Any:
        import equinox as eqx
        import jax
        import jax.numpy as jnp

        class CNN(eqx.Module):
            layers: list

            def __init__(self, key):
                key1, key2, key3, key4 = jax.random.split(key, 4)
                self.layers = [
                    eqx.nn.Conv2d(1, 3, kernel_size=4, key=key1),
                    eqx.nn.MaxPool2d(kernel_size=2),
                    jax.nn.relu,
                    jnp.ravel,
                    eqx.nn.Linear(1728, 512, key=key2),
                    jax.nn.sigmoid,
                    eqx.nn.Linear(512, 64, key=key3),
                    jax.nn.relu,
                    eqx.nn.Linear(64, 10, key=key4),
                    jax.nn.log_softmax,
                ]

            def __call__(self, x):
                for layer in self.layers:
                    x = layer(x)
                return x

        return CNN(key)

    def posterior(self, parts: Parts) -> Any:
        model = lamu.Model(Equinox.of(self.module, head="layers/8/*"), Categorical(10), LearnedNormal())
        return lamu.fit(model, parts.train, last_layer(), epochs=0, validation=parts.kept).posterior


class EquinoxMLP(_Equinox):
    """Equinox's own `MLP`."""

    data, epochs = "satellite", 150

    def make(self, key: Any) -> Any:
        import equinox as eqx

        return eqx.nn.MLP(in_size=36, out_size=6, width_size=128, depth=2, key=key)

    def posterior(self, parts: Parts) -> Any:
        model = lamu.Model(Equinox.of(self.module, head="layers/2/*"), Categorical(6), LearnedNormal())
        return lamu.fit(model, parts.train, last_layer(), epochs=0, validation=parts.kept).posterior


class Pipeline(Network):
    """scikit-learn: a scaler and an `MLPClassifier`; Lamu's estimator takes the classifier's place and its weights."""

    data, epochs = "satellite", 60

    def train(self, x: np.ndarray, y: np.ndarray) -> None:
        import warnings

        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        classifier = MLPClassifier((128, 128), batch_size=64, max_iter=self.epochs, random_state=0, tol=0.0)
        self.pipeline = make_pipeline(StandardScaler(), classifier)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.pipeline.fit(x, y)

    def outputs(self, x: np.ndarray) -> np.ndarray:
        return self.pipeline.predict_log_proba(x.astype(float))  # some probabilities are below the least of single

    def posterior(self, parts: Parts) -> Any:
        from jax.nn import relu

        net = self.pipeline[-1]
        layers = {str(i): {"w": w, "b": b} for i, (w, b) in enumerate(zip(net.coefs_, net.intercepts_, strict=True))}
        layer = lambda theta, i, h: h @ theta[i]["w"] + theta[i]["b"]
        function = lambda theta, x: layer(theta, "2", relu(layer(theta, "1", relu(layer(theta, "0", x)))))
        options = {"prior": LearnedNormal(), "algorithm": last_layer(), "epochs": 0, "random_state": 0}
        own = lamu.sklearn.BayesianClassifier(network=Trained(function, layers, head="2/*"), **options)
        self.believed = type(self.pipeline)([("scaler", self.pipeline[0]), ("classifier", own)]).fit(*parts.train)
        return own.posterior_

    def given(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.pipeline[0].transform(x), x.dtype)

    def as_own(self, f: Any) -> np.ndarray:
        from jax.nn import log_softmax  # scikit-learn gives log probabilities

        return np.asarray(log_softmax(f))


NETWORKS: dict[str, type[Network]] = {
    "pytorch quickstart": Quickstart,
    "pytorch classifier": Classifier,
    "pytorch resnet": Residual,
    "pytorch lstm": Rows,
    "linen cnn": LinenCNN,
    "linen mlp": LinenMLP,
    "nnx cnn": NNXCNN,
    "equinox cnn": EquinoxCNN,
    "equinox mlp": EquinoxMLP,
    "sklearn pipeline": Pipeline,
    "lora transformer": Transformer,
    "u-net": Unet,
}
