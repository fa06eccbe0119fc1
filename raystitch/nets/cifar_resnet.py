"""CIFAR ResNets of He et al. (2016), section 4.2: 6n+2 layers, 16/32/64 channels, parameter-free (option A) shortcuts.

Attribute names (``conv1, bn1, layer{1,2,3}.{i}.conv{1,2}/bn{1,2}, linear``) are those of the widely used public
CIFAR-10 weights, which therefore load as they are.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from raystitch.nets.residual import BasicBlock

DEPTHS = (20, 32, 44, 56)


class CifarBlock(BasicBlock):
    """A basic block with the option-A shortcut: thinned, and padded with zero channels."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, stride)
        self.stride, self.grow = stride, outputs - inputs

    def _shortcut(self, x: Tensor) -> Tensor:
        if self.stride == 1 and self.grow == 0:
            return x
        thinned = x[:, :, :: self.stride, :: self.stride]
        return F.pad(thinned, (0, 0, 0, 0, self.grow // 2, self.grow - self.grow // 2))


class CifarResNet(nn.Module):
    """Images (N, 3, H, W) → logits (N, num_classes); ``depth`` is one of 20, 32, 44, 56."""

    def __init__(self, depth: int, num_classes: int) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.act1 = nn.ReLU()
        self.layer1 = _stage(16, 16, blocks, 1)
        self.layer2 = _stage(16, 32, blocks, 2)
        self.layer3 = _stage(32, 64, blocks, 2)
        self.linear = nn.Linear(64, num_classes)
        self.apply(_initialise)

    def forward(self, x: Tensor) -> Tensor:
        """Stem, three stages, global average pool, linear head."""
        z = self.act1(self.bn1(self.conv1(x)))
        z = self.layer3(self.layer2(self.layer1(z)))
        logits: Tensor = self.linear(z.mean((2, 3)))
        return logits


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    first = CifarBlock(inputs, outputs, stride)
    return nn.Sequential(first, *(CifarBlock(outputs, outputs, 1) for _ in range(blocks - 1)))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        nn.init.kaiming_normal_(module.weight)
