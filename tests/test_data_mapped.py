"""Sets that memory does not hold: the same tensors from a mapped file, one file per machine, bounded memory, no leftovers."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from test_data_cifar import write_binary
from test_data_stream import png

from raystitch.config import CueConfig, DataConfig
from raystitch.data import clean_scratch, hold, import_dataset, load_images, scratch_folder, with_cue
from raystitch.errors import InputError
from raystitch.store import Store

WHERE = "data.mine"
SHAPE = (10, 3, 4, 4)
IMAGES = np.arange(480, dtype=np.uint8).reshape(SHAPE)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where mapped files go while every set of more than 5,000 bytes is too large for memory."""
    monkeypatch.setenv("RAYSTITCH_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("RAYSTITCH_MEMORY_BYTES", "5000")
    return tmp_path / "scratch" / f"raystitch-{os.getuid()}"


def files(scratch: Path) -> list[Path]:
    gc.collect()
    return sorted(scratch.glob("*")) if scratch.exists() else []


def make(kind: str, root: Path) -> DataConfig:
    """50 training images in the layout asked for: of 8 pixels, or CIFAR's."""
    noise = DataConfig.model_validate({"source": "noise", "count": 50, "size": 8, "classes": 5})
    if kind == "cifar":
        write_binary(root, 10)
        return DataConfig(source="cifar", path=str(root))
    if kind == "webdataset":
        import_dataset(noise, Store(str(root)), WHERE, shard_bytes=4000)
    for split in ("train", "test"):
        data = load_images(noise, split, WHERE)  # type: ignore[arg-type]
        pictures = [png(image.numpy()) for image in data.images]
        if kind == "parquet":
            table = pa.table({"image": [{"bytes": picture} for picture in pictures], "label": data.labels.tolist()})
            pq.write_table(table, root / f"{split}.parquet", row_group_size=20)
        for number, (picture, label) in enumerate(zip(pictures, data.labels.tolist(), strict=True)):
            if kind == "folder":
                (root / split / str(label)).mkdir(parents=True, exist_ok=True)
                (root / split / str(label) / f"{number}.png").write_bytes(picture)
    return DataConfig(source=kind, path=str(root))  # type: ignore[arg-type]


def in_memory(config: DataConfig, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    with monkeypatch.context() as patch:
        patch.delenv("RAYSTITCH_MEMORY_BYTES")
        data = load_images(config, "train", WHERE)
    assert data.key is None
    return data.images


@pytest.mark.parametrize("kind", ["parquet", "folder", "webdataset", "cifar"])
@pytest.mark.parametrize(
    "changes", [{}, {"greyscale": True, "size": 9, "classes": (3, 1, 4, 2), "limit": {"train": 30}}]
)
def test_mapped_sets_are_those_in_memory(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, kind: str, changes: dict[str, object]
) -> None:
    config = make(kind, tmp_path)
    if kind == "cifar" and changes:
        changes = {"greyscale": True, "size": 40}  # 15 images: no class is sure to be there
    config = DataConfig.model_validate({**config.model_dump(exclude_unset=True), **changes})
    expected = in_memory(config, monkeypatch)
    assert not files(scratch)
    data = load_images(config, "train", WHERE)
    assert data.key is not None
    assert len(files(scratch)) == 1
    assert data.images.dtype == torch.uint8
    assert torch.equal(data.images, expected)
    assert torch.equal(data.images[torch.tensor([7, 0, 7])], expected[[7, 0, 7]])
    part = torch.split(data.images, 4)[1]
    del data
    assert len(files(scratch)) == 1  # a part of it is still used
    assert torch.equal(part, expected[4:8])
    del part
    assert not files(scratch)


@pytest.mark.parametrize("kind", ["pixel", "rand"])
def test_marked_copies_of_mapped_sets(scratch: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    config = DataConfig.model_validate({"source": "noise", "count": 60, "size": 8, "classes": 5})
    cue = CueConfig.model_validate({"kind": kind})
    plain = load_images(config, "train", WHERE)
    expected = load_images(config.model_copy(update={"count": 20}), "train", WHERE)  # a beginning of it, in memory
    assert expected.key is None
    marked = {name: with_cue(plain, cue, name, "train") for name in ("test", "shuffled", "clean")}
    assert marked["clean"] is plain
    assert len(files(scratch)) == 3
    for name in ("test", "shuffled"):
        assert torch.equal(marked[name].images[:20], with_cue(expected, cue, name, "train").images)
    del marked
    assert len(files(scratch)) == 1


def parts_of_images() -> Iterator[np.ndarray]:
    yield IMAGES[:3]
    yield IMAGES[3:]


def never() -> Iterator[np.ndarray]:
    raise AssertionError("filled again")


def test_floats_and_parts_of_any_length(scratch: Path) -> None:
    floats = IMAGES.astype(np.float32) / 255
    for key in (None, "floats"):
        held = hold(SHAPE, lambda: iter([floats[:1], floats[1:8], floats[8:]]), key, "float32")
        assert torch.equal(held, torch.from_numpy(floats))
    for key in (None, "short"):
        with pytest.raises(ValueError, match="announced"):
            hold(SHAPE, lambda: iter([IMAGES[:3]]), key)
    del held
    assert not files(scratch)


HOLDER = """
import sys
import numpy as np
from raystitch.data import hold

images = np.arange(480, dtype=np.uint8).reshape(10, 3, 4, 4)

def parts():
    yield images[:3]
    if "stop" in sys.argv:
        print("half", flush=True)
        sys.stdin.read()
    yield images[3:]

held = hold(images.shape, parts, "key")
print("whole", flush=True)
sys.stdin.read()
"""


def holder(*arguments: str) -> subprocess.Popen[str]:
    """Another process that holds the images until its input ends; or only half of them, yet."""
    command = [sys.executable, "-c", HOLDER, *arguments]
    root = Path(__file__).parents[1]
    process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == ("half" if arguments else "whole")
    return process


def test_processes_share_one_file_until_the_last_lets_go(scratch: Path) -> None:
    with holder() as process:
        held = hold(SHAPE, never, "key")
        assert torch.equal(held, torch.from_numpy(IMAGES))
        del held
        (file,) = files(scratch)  # the other process still has it
        clean_scratch()
        assert files(scratch) == [file]
        process.communicate("")
        assert process.returncode == 0
    assert not files(scratch)


def test_what_a_killed_process_leaves_is_not_trusted_and_is_removed(scratch: Path) -> None:
    with holder() as process:
        held = hold(SHAPE, never, "key")
        process.kill()
    (left,) = files(scratch)
    assert torch.equal(held, torch.from_numpy(IMAGES))
    del held
    assert not files(scratch)
    left.write_bytes(bytes(IMAGES.size))
    held = hold(SHAPE, parts_of_images, "key")
    assert torch.equal(held, torch.from_numpy(IMAGES))
    del held
    left.write_bytes(b"")
    other = scratch / "mine.txt"
    other.write_text("none of ours")
    clean_scratch()
    assert files(scratch) == [other]


def test_a_maker_that_dies_half_way_is_replaced(scratch: Path) -> None:
    found: list[torch.Tensor] = []
    with holder("stop") as process:
        waiting = threading.Thread(target=lambda: found.append(hold(SHAPE, parts_of_images, "key")))
        waiting.start()
        process.kill()
        waiting.join()
    assert torch.equal(found[0], torch.from_numpy(IMAGES))


def test_a_set_that_cannot_be_read_leaves_nothing(tmp_path: Path, scratch: Path) -> None:
    config = make("folder", tmp_path)
    torn = sorted((tmp_path / "train" / "3").iterdir())[-1]
    torn.write_bytes(torn.read_bytes()[:60])
    with pytest.raises(InputError, match=torn.name):
        load_images(config, "train", WHERE)
    assert not files(scratch)


def test_no_room(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        InputError, match=r"^RAYSTITCH_SCRATCH = .*3e\+06 GB of images cannot be kept here \(.* GB are free\)"
    ):
        hold((10**9, 3, 1000, 1000), never, "key")
    assert not files(scratch)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RAYSTITCH_SCRATCH", str(tmp_path / "file"))
    config = DataConfig.model_validate({"source": "noise", "count": 60, "size": 8})
    with pytest.raises(InputError, match=r"^RAYSTITCH_SCRATCH = .*Not a directory.*set RAYSTITCH_SCRATCH to") as caught:
        load_images(config, "train", WHERE)
    assert "\n" not in str(caught.value)


FULL = """
import resource, signal
import numpy as np
from raystitch.data import hold
from raystitch.errors import InputError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
try:
    hold((10, 3, 4, 4), lambda: iter([np.zeros((10, 3, 4, 4), np.uint8)]), "key")
except InputError as error:
    print(error)
"""


def test_a_disk_that_fills_up_while_images_are_written(scratch: Path) -> None:
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", FULL], cwd=root, capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    assert line.startswith("RAYSTITCH_SCRATCH = ")
    assert "File too large" in line
    assert not files(scratch)


def test_a_budget_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSTITCH_MEMORY_BYTES", "2GB")
    with pytest.raises(InputError, match=r"^RAYSTITCH_MEMORY_BYTES = '2GB': give a number of bytes"):
        load_images(DataConfig(source="digits"), "train", WHERE)


PEAK = """
import re, sys
from pathlib import Path
from raystitch.config import CueConfig, DataConfig
from raystitch.data import load_images, with_cue

def load(count):
    config = DataConfig.model_validate({"source": "webdataset", "path": sys.argv[1], "limit": {"train": count}})
    return load_images(config, "train", "data.mine")

def mark(data):
    return with_cue(data, CueConfig(), "shuffled", "train")

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024

mark(load(10))  # whatever the code itself needs
before = peak()
held = load(None)
loaded = peak()
marked = mark(held)
print(loaded - before, peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell a process its peak memory")
def test_peak_memory_does_not_grow_with_the_set(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 images of 32 pixels, 58 MiB decoded, and a marked copy of them; budgets of 10 MB and of more than enough.

    Marking reads the mapped set: its pages count as the process's, though the system may drop them at any time.
    """
    noise = DataConfig.model_validate({"source": "noise", "count": 20_000, "size": 32, "limit": {"test": 1}})
    import_dataset(noise, Store(str(tmp_path / "set")), WHERE, shard_bytes=4 << 20)
    grown = {}
    for budget in ("10000000", "1000000000"):
        monkeypatch.setenv("RAYSTITCH_MEMORY_BYTES", budget)
        command = [sys.executable, "-c", PEAK, str(tmp_path / "set")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
        grown[budget] = [int(number) for number in done.stdout.split()]
    assert grown["1000000000"][0] > 55
    assert grown["1000000000"][1] > 2 * 55
    assert grown["10000000"][0] < 45
    assert grown["10000000"][1] < 55 + 45
    assert not files(scratch)


def test_a_folder_of_a_killed_process_goes_when_the_next_begins(scratch: Path) -> None:
    code = (
        "import os, raystitch.data\n"
        "with raystitch.data.scratch_folder() as folder:\n"
        "    (folder / 'x').touch()\n"
        "    print(folder, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    left = Path(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
    assert (left / "x").exists()
    with scratch_folder() as first:
        assert not left.exists()
        with scratch_folder() as second:
            assert first.is_dir()
            assert second.is_dir()
    assert not files(scratch)
