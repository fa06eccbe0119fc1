"""The table of timm families: ``python -m raystitch.nets.families --output docs/timm_families.md``.

For a small member of every family: its automatic stitch points, and the largest difference between the whole net and the two
halves (suffix after prefix) over all of them; or the one line with which it is refused. Nets are built and dropped one by one.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import timm
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from raystitch.errors import InputError
from raystitch.nets.build import NormalisedNet, build_net
from raystitch.nets.cut import CutNet, Point, cut
from raystitch.nets.family_list import FAMILIES, Family
from raystitch.nets.freeze import freeze
from raystitch.nets.points import TOLERANCE, find_points

CLASSES = 10
_HALF = (0.5, 0.5, 0.5)
_SEED = 0


@dataclass(frozen=True)
class Row:
    """What was found of a family.

    Attributes:
        family: which.
        points: its automatic points; none if it is refused.
        difference: largest |suffix(prefix(x)) − net(x)| over points, images and classes, of logits scaled to a spread of 1;
            ``None`` if refused.
        spread: standard deviation of the unscaled logits over the images, mean of the classes.
        refusal: the error, one line.
    """

    family: Family
    points: tuple[Point, ...] = ()
    difference: float | None = None
    spread: float | None = None
    refusal: str | None = None

    @property
    def verdict(self) -> str:
        """``exact``, ``refused``, or ``differs``, which must not be."""
        if self.difference is None:
            return "refused"
        return "exact" if self.difference <= TOLERANCE else "differs"


def check(family: Family) -> Row:
    """Build one net with random weights, cut it at its automatic points, and compare the halves with the whole."""
    try:
        net = freeze(build_net(family.arch, CLASSES, family.args, _HALF, _HALF, seed=_SEED))
        _wake(net, family.size)
        points = find_points(net, family.size, num_classes=CLASSES)
        difference, spread = _compare(net, cut(net, points), _images(3, family.size, seed=1))
    except InputError as error:
        return Row(family, refusal=str(error))
    return Row(family, points, difference, spread)


@torch.no_grad()
def _compare(net: NormalisedNet, chain: CutNet, images: Tensor) -> tuple[float, float]:
    whole = net(images)
    fronts = chain.trace(images, 0, chain.n)
    differences = [(chain.run(z, k, chain.n + 1) - whole).abs().max() for k, z in enumerate(fronts, start=1)]
    spread = float(whole.std(0).mean())
    return float(torch.stack(differences).max()) / spread, spread


@torch.no_grad()
def _wake(net: NormalisedNet, size: int) -> None:
    """Make every block count: weights that all start equal (zero heads, tiny layer scales) are drawn at random, and BatchNorm
    gets the statistics of some images, as it would in training."""
    generator = torch.Generator().manual_seed(_SEED)
    for parameter in net.parameters():
        if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
            parameter.copy_(parameter.sign() + 0.2 * torch.randn(parameter.shape, generator=generator))
    layers = [layer for layer in net.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    for layer in layers:
        _take_statistics(layer)
    net(_images(8, size, seed=2))
    net.eval()


def _take_statistics(layer: nn.Module) -> None:
    assert isinstance(layer, _BatchNorm)
    layer.momentum = 1.0
    layer.train()


def _images(count: int, size: int, seed: int) -> Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def page(rows: Sequence[Row]) -> str:
    """The table with its header, as Markdown."""
    found = Counter(row.verdict for row in rows)
    counts = ", ".join(f"{found[verdict]} {verdict}" for verdict in ("exact", "refused", "differs") if found[verdict])
    versions = f"torch {torch.__version__.partition('+')[0]} and timm {timm.__version__}"
    return "\n".join([_HEADER.format(versions=versions, counts=counts, total=len(rows)), *map(_line, rows)]) + "\n"


_HEADER = """# timm families cut at their automatic stitch points

{total} families: {counts}. Made by `python -m raystitch.nets.families --output docs/timm_families.md` with {versions}.

A small member of each family gets random weights (seeded; none left at zero, BatchNorm with statistics of a real pass) and is
cut at every point that is chosen when a config names none. *Spread* is the standard deviation of its logits over the images.
*Max abs difference* is between the logits of the whole net and those of suffix after prefix, scaled to a spread of 1: the
largest over all points, three images and ten classes. Up to 1e-4 is exact; 0 means the same bits.
A net is refused, in one line and before any work starts, where no single tensor carries everything from one block to the next.
Other points can be named by hand (`points` of a model), and `raystitch points NAME` shows those of any net.

| family | timm name | px | points | kinds | first … last | spread | max abs difference | result |
|---|---|---|---|---|---|---|---|---|"""


def _line(row: Row) -> str:
    options = [f"{key}={value}" for key, value in row.family.args.items()]
    name = f"`{row.family.arch}`" + (f" ({', '.join(options)})" if options else "")
    cells = [row.family.name, name, str(row.family.size), str(len(row.points)), *_found(row)]
    return f"| {' | '.join(cells)} |"


def _found(row: Row) -> list[str]:
    if row.difference is None or row.spread is None:
        return ["", "", "", "", f"refused: {row.refusal}".replace("|", "\\|")]
    kinds = Counter(point.kind for point in row.points)
    ends = f"{row.points[0].module} … {row.points[-1].module}"
    return [
        ", ".join(f"{count} {kind}" for kind, count in kinds.items()),
        ends,
        f"{row.spread:.2g}",
        f"{row.difference:.1e}",
        row.verdict,
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Write the table to a file or to standard output; 1 if a net differs from its halves."""
    parser = argparse.ArgumentParser(prog="raystitch.nets.families", description="Make the table of timm families.")
    parser.add_argument("--output", metavar="FILE", help="where to write it (default: standard output)")
    output = parser.parse_args(argv).output
    rows = [check(family) for family in FAMILIES]
    if output is None:
        sys.stdout.write(page(rows))
    else:
        Path(output).write_text(page(rows), encoding="utf-8")
    return int(any(row.verdict == "differs" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
