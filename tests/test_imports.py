"""Imports go one way (DESIGN): Ray at the edge, compute rooms independent of each other, plan and config pure."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "raystitch"
LEVELS = [
    {"errors", "memory", "access", "localfile", "modes"},
    {"s3"},
    {"remote"},
    {"config", "store", "progress", "tarball"},
    {"units", "tables", "heartbeat", "records"},
    {"plan", "damage"},
    {"results", "analysis", "predictions"},
    {"schedule"},
    {"nets", "data"},
    {"pgd"},
    {"iris", "stitching", "metrics", "attacks", "training", "report"},
    {"cost", "gallery", "evaluate", "reporting", "catalogue", "expected", "view"},
    {"shelf"},
    {"measure"},
    {"execute"},
    {"distributed"},
    {"sweep"},
    {"planning"},
    {"commands"},
    {"data_commands"},
    {"cli"},
]
LEVEL = {room: n for n, rooms in enumerate(LEVELS) for room in rooms}
UPWARD = {("sweep", "cli")}  # `python -m raystitch.sweep` is the command line under another name
WITHIN = {("catalogue", "expected"), ("reporting", "gallery")}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or path.parent != PACKAGE)


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    here = room(path)
    for name in imported(path):
        package, _, rest = name.partition(".")
        if package == "ray":
            assert here == "distributed", f"{path} imports {name}: only distributed/ may"
        if package == "raystitch" and rest:
            there = rest.split(".")[0]
            assert there in LEVEL, f"{there} has no level"
            allowed = there == here or LEVEL[there] < LEVEL[here] or (here, there) in UPWARD | WITHIN
            assert allowed, f"{path} imports {name}: {there} is not below {here}"


def test_plan_config_and_results_need_neither_torch_nor_ray() -> None:
    code = (
        "import sys, raystitch.plan, raystitch.config, raystitch.store, raystitch.results, raystitch.schedule\n"
        "import raystitch.analysis\n"
        "import raystitch; raystitch.load_results; raystitch.load_predictions\n"
        "assert not {'torch', 'ray', 'timm'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_compute_rooms_need_no_ray() -> None:
    code = (
        "import sys, raystitch.nets, raystitch.data, raystitch.iris, raystitch.stitching, raystitch.metrics\n"
        "import raystitch.attacks, raystitch.training, raystitch.report, raystitch.execute, raystitch.sweep, raystitch.cli\n"
        "assert 'ray' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
