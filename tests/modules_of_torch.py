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


MODULES: dict[str, tuple[Callable[[], Any], tuple[int, ...], bool]] = {  # what makes it, one row's shape, words or not
    "ConvNet": (ConvNet, (1, 8, 8), False),
    "ResNet": (ResNet, (1, 8, 8), False),
    "Transformer": (Transformer, (6,), True),
    "LSTM": (lambda: Recurrent(nn.LSTM), (5, 4), False),
    "GRU": (lambda: Recurrent(nn.GRU), (5, 4), False),
    "RNN": (lambda: Recurrent(nn.RNN), (5, 4), False),
    "UNet": (UNet, (1, 8, 8), False),
    "Mixed": (Mixed, (8,), False),
    "MLP": (lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), (4,), False),
}
