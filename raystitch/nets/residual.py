"""The basic residual block that the CIFAR ResNets and the mini ResNet share; they differ in the shortcut."""

from __future__ import annotations

from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut: (N, in, H, W) → (N, out, H/stride, W/stride) (He et al. 2016, figure 2)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.act1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.act2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Residual sum, then ReLU."""
        z = self.act1(self.bn1(self.conv1(x)))
        out: Tensor = self.act2(self.bn2(self.conv2(z)) + self._shortcut(x))
        return out

    def _shortcut(self, x: Tensor) -> Tensor:
        return x
