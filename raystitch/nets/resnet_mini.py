"""A small residual net for tiny images (8 to 32 pixels), so that a whole study runs in seconds on one core."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from raystitch.nets.residual import BasicBlock


class MiniBlock(BasicBlock):
    """A basic block with a projection where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, stride)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def _shortcut(self, x: Tensor) -> Tensor:
        shortcut: Tensor = self.downsample(x)
        return shortcut


class MiniResNet(nn.Module):
    """Images (N, 3, H, W) → logits (N, num_classes).

    Args:
        num_classes: number of classes.
        width: channels of the stem and of stage 1; doubled, with stride 2, at each later stage.
        blocks: blocks per stage.
    """

    def __init__(self, num_classes: int, width: int = 16, blocks: Sequence[int] = (1, 1, 1)) -> None:
        super().__init__()
        if width < 1 or not blocks or min(blocks) < 1:
            raise ValueError("width and every entry of blocks must be at least 1")
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = nn.ReLU()
        self.stages = [f"layer{i + 1}" for i in range(len(blocks))]
        channels = width
        for i, (name, count) in enumerate(zip(self.stages, blocks, strict=True)):
            outputs = width * 2**i
            first = MiniBlock(channels, outputs, stride=1 if i == 0 else 2)
            self.add_module(name, nn.Sequential(first, *(MiniBlock(outputs, outputs, 1) for _ in range(count - 1))))
            channels = outputs
        self.fc = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Stem, stages, global average pool, linear head."""
        z: Tensor = self.act1(self.bn1(self.conv1(x)))
        for name in self.stages:
            z = self.get_submodule(name)(z)
        logits: Tensor = self.fc(z.mean((2, 3)))
        return logits
