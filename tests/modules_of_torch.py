"""PyTorch modules as tutorials write them, and one for each group of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812, as all of its users call it


class ConvNet(nn.Module):
    """As the tutorials: convolutions, pooling, dropout, a flat layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3, stride=2)
        self.drop, self.fc1, self.fc2 = nn.Dropout2d(0.25), nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = self.drop(F.relu(self.conv2(x)))
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


class Block(nn.Module):
    """A residual block with batch normalisation."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 2 * channels, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(2 * channels), nn.BatchNorm2d(2 * channels)
        self.conv2 = nn.Conv2d(2 * channels, 2 * channels, 3, 1, 1, bias=False)
        self.shortcut = nn.Sequential(nn.Conv2d(channels, 2 * channels, 1, stride), nn.BatchNorm2d(2 * channels))

    def forward(self, x: Any) -> Any:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(1, 4, 3, padding=1), nn.Sequential(Block(4, 2), Block(8, 1))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 3)

    def forward(self, x: Any) -> Any:
        x = self.pool(self.blocks(self.stem(x)))
        return self.fc(x.view(x.size(0), -1))


class Transformer(nn.Module):
    """Words in, classes out, with positions and a mask of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 8, padding_idx=0)
        self.register_buffer("position", torch.randn(1, 6, 8))
        self.register_buffer("causal", torch.full((6, 6), float("-inf")).triu(1))
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, activation="gelu")
        self.encoder, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 3)

    def forward(self, words: Any) -> Any:
        padding = words == 0
        h = self.encoder(self.embed(words) + self.position, src_key_padding_mask=padding)
        h = h + F.scaled_dot_product_attention(h, h, h, attn_mask=self.causal)
        h = h.masked_fill(padding.unsqueeze(-1), 0.0)
        return self.out(h.sum(1) / (~padding).sum(1, keepdim=True).clamp(min=1))


class Recurrent(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.rnn, self.out = kind(4, 5, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(10, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.rnn(x)[0][:, -1])


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, 1, 1)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: Any) -> Any:
        top = F.silu(self.norm(self.down(x)))
        low = F.leaky_relu(self.middle(F.avg_pool2d(top, 2)), 0.2)
        up = self.up(low) + F.interpolate(low[:, :4], scale_factor=2, mode="bilinear", align_corners=False)
        return self.last(torch.cat([top, up], dim=1)).flatten(1)


class Mixed(nn.Module):
    """Operators that no layer above has."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.5, 1.5, -1.0, 0.3]))
        self.norm, self.prelu, self.out = nn.LayerNorm(8), nn.PReLU(), nn.Linear(8, 3, bias=False)

    def forward(self, x: Any) -> Any:
        first, second = x.chunk(2, dim=-1)
        gate = torch.sigmoid(first) * torch.tanh(second) + self.scale * F.softplus(first - 1)
        both = torch.stack([gate, torch.where(first > 0, first**2, second.abs().sqrt())], dim=1)
        score = torch.einsum("nij,nkj->nik", both, both).softmax(-1)
        h = torch.cat([(score @ both).flatten(1), x.var(dim=1, keepdim=True), x.max(dim=1, keepdim=True)[0]], dim=1)
        h = F.pad(h[:, :7], (0, 1), value=0.5)
        h = F.hardswish(F.elu(self.norm(h))) + F.gelu(h, approximate="tanh").cumsum(1) / (
            1 + h.norm(dim=1, keepdim=True)
        )
        return self.out(self.prelu(h - h.mean(1, keepdim=True))) / (1 + x.var(unbiased=False) + x.std())


class Cells(nn.Module):
    """Loops of recurrent cells, gates and normalised weights."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(4, 6), nn.GRUCell(6, 4, bias=False), nn.RNNCell(4, 4)
        self.gate, self.relu = nn.GLU(dim=1), nn.RNNCell(4, 4, nonlinearity="relu")
        self.out = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(1, 2, 3), dim=1)

    def forward(self, x: Any) -> Any:
        h, c = self.lstm(x[:, 0])
        for time in range(1, x.shape[1]):
            h, c = self.lstm(x[:, time], (h, c))
        h = self.relu(self.rnn(self.gru(h)) + self.gate(F.pad(c, (0, 2), value=0.3)))
        return self.out(h) + self.conv(h.unsqueeze(1)).amax((1, 2)).unsqueeze(1)


class Ranks(nn.Module):
    """Order statistics, distances and moments of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 7), nn.Linear(5, 7, bias=False)

    def forward(self, x: Any) -> Any:
        a, b = self.first(x), self.second(x)
        std, mean = torch.std_mean(a, dim=1)
        variance, _ = torch.var_mean(b, dim=1, correction=0)
        whole, _ = torch.std_mean(a)
        parts = [
            F.cosine_similarity(a, b),
            F.pairwise_distance(a, b),
            std * mean + variance + whole,
            torch.topk(a, 3, dim=1)[0].prod(1) + torch.topk(b, 2, dim=0, largest=False)[0].sum(),
            a.median(1)[0] * b.median() + a.kthvalue(2, dim=1)[0],
            torch.sort(a, dim=1, descending=True)[0] @ torch.arange(7.0, device=x.device),
            a.gather(1, torch.argsort(b, dim=1)[:, :1]).squeeze(1),
        ]
        return torch.stack(parts, dim=1)


class Bags(nn.Module):
    """Bags of words: their sum, mean and largest value."""

    def __init__(self) -> None:
        super().__init__()
        self.sum, self.max = nn.EmbeddingBag(12, 3, mode="sum", padding_idx=2), nn.EmbeddingBag(12, 3, mode="max")
        self.mean, self.weighted = nn.EmbeddingBag(12, 3, padding_idx=2), nn.EmbeddingBag(12, 3, mode="sum")

    def forward(self, words: Any) -> Any:
        share = words.float() / 12
        return self.sum(words) * self.mean(words) + self.max(words) + self.weighted(words, per_sample_weights=share)


class Tied(nn.Module):
    """A language model whose last layer has the weight of its embedding, as GPT's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.middle, self.out = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 12, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, words: Any) -> Any:
        return self.out(torch.tanh(self.middle(self.embed(words).mean(1))))


MODULES: dict[str, tuple[Callable[[], Any], tuple[int, ...], bool]] = {  # what makes it, one row's shape, words or not
    "ConvNet": (ConvNet, (1, 8, 8), False),
    "ResNet": (ResNet, (1, 8, 8), False),
    "Transformer": (Transformer, (6,), True),
    "LSTM": (lambda: Recurrent(nn.LSTM), (5, 4), False),
    "GRU": (lambda: Recurrent(nn.GRU), (5, 4), False),
    "RNN": (lambda: Recurrent(nn.RNN), (5, 4), False),
    "UNet": (UNet, (1, 8, 8), False),
    "Mixed": (Mixed, (8,), False),
    "Cells": (Cells, (3, 4), False),
    "Ranks": (Ranks, (5,), False),
    "Bags": (Bags, (6,), True),
    "Tied": (Tied, (6,), True),
    "MLP": (lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), (4,), False),
}
