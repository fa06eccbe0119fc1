"""Preparing batches ahead: same items in the same order, a bounded number of them, errors in their place, no thread left."""

from __future__ import annotations

import dataclasses
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from stitching_chains import conv_net
from test_stitching_fit import ALL, fit, images, recipe, same_values
from test_training_supervised import digits, small_net
from test_training_supervised import recipe as training_recipe
from torch import Tensor

from raystitch.config import CueConfig, PgdConfig
from raystitch.data import ImageSet, make_cue, overlapped
from raystitch.data.prefetch import ahead
from raystitch.evaluate import evaluate, evaluate_unstitched
from raystitch.training import accuracy, train

MAIN, MAKER = "MainThread", "raystitch-ahead_0"
SECONDS = 60  # a test that would wait for ever fails instead


def makers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("raystitch-ahead")]


@pytest.fixture(autouse=True)
def _one_torch_thread_and_none_left() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    assert not makers()


def current() -> str:
    return threading.current_thread().name


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_exactly_depth_items_are_made_ahead(depth: int) -> None:
    made = [threading.Event() for _ in range(20)]

    def source() -> Iterator[int]:
        for number, event in enumerate(made):
            assert current() == MAKER
            event.set()
            yield number

    for number in (items := ahead(source(), depth)):
        assert made[min(number + depth, 19)].wait(SECONDS)
        # the maker has nothing more to do: the one task it gets next is asked for by the next item
        assert [event.is_set() for event in made] == [k <= number + depth for k in range(20)]
    assert list(items) == []


def test_all_items_come_in_order() -> None:
    assert list(ahead(range(1000))) == list(range(1000))
    assert list(ahead([])) == []
    assert list(ahead([None, False])) == [None, False]


def test_nothing_is_made_or_kept_for_an_iterator_that_is_not_used() -> None:
    def source() -> Iterator[int]:
        raise AssertionError("was asked")
        yield

    items = ahead(source())
    assert not makers()
    items.close()


@pytest.mark.parametrize("place", [0, 1, 4])
def test_an_error_comes_in_its_place(place: int) -> None:
    def source() -> Iterator[int]:
        yield from range(place)
        raise OSError("the disk is gone")

    found: list[int] = []
    with pytest.raises(OSError, match="the disk is gone"):
        found.extend(ahead(source()))
    assert found == list(range(place))
    assert not makers()


def test_leaving_the_loop_ends_the_thread_and_frees_the_items() -> None:
    class Item:
        pass

    seen: list[weakref.ref[Item]] = []

    def source() -> Iterator[Item]:
        while True:
            item = Item()
            seen.append(weakref.ref(item))
            yield item

    for _ in ahead(source()):
        assert makers()
        break
    assert not makers()
    del _
    gc.collect()
    assert seen
    assert all(item() is None for item in seen)

    def fail() -> None:
        for _ in ahead(source()):
            raise KeyError("in the loop")

    with pytest.raises(KeyError, match="in the loop"):
        fail()
    assert not makers()
    items = ahead(source())
    next(items)
    items.close()
    assert not makers()


class Watched(Tensor):
    """Images that remember which threads read pixels from them."""

    threads: list[str]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
        if func in (Tensor.__getitem__, Tensor.float):
            args[0].threads.append(current())
            return found
        if func is torch.split:
            return tuple(watched(part, args[0].threads) for part in found)
        return found


def watched(pixels: Tensor, threads: list[str]) -> Watched:
    found = pixels.as_subclass(Watched)
    found.threads = threads
    return found


def both(data: ImageSet) -> list[tuple[ImageSet, list[str]]]:
    """The set as memory holds it and as if it were mapped, each with the threads of the reads to come."""
    sets: list[tuple[ImageSet, list[str]]] = []
    for key in (None, "mapped"):
        threads: list[str] = []
        sets.append((dataclasses.replace(data, images=watched(data.images, threads), key=key), threads))
    return sets


def test_on_the_cpu_only_mapped_sets_are_prepared_ahead_and_only_beside_one_thread() -> None:
    assert list(overlapped((current() for _ in range(3)), "cpu", mapped=False)) == [MAIN] * 3
    assert list(overlapped((current() for _ in range(3)), "cpu", mapped=True)) == [MAKER] * 3
    torch.set_num_threads(2)
    assert list(overlapped((current() for _ in range(3)), "cpu", mapped=True)) == [MAIN] * 3


@pytest.mark.parametrize("method", ["supervised", "adversarial", "simclr"])
def test_training_has_the_same_bits_when_prepared_ahead(method: str) -> None:
    augment = "resized_crop_flip" if method == "supervised" else "flip_crop"
    recipe = training_recipe(method=method, epochs=2, augment=augment)
    nets = []
    for data, threads in both(digits("train", 200)):
        nets.append(net := small_net(dropout=0.3))
        train(net, data, recipe, seed=5, cue=CueConfig(size=2))
        assert MAKER in threads if data.key else set(threads) == {MAIN}
    first, second = (net.state_dict() for net in nets)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("protocol", "attack", "cache_bytes"),
    [("paper", None, 0), ("paper", PgdConfig(steps=2), 0), ("matched", None, 0), ("matched", None, 20_000)],
)
def test_fits_have_the_same_bits_when_prepared_ahead(protocol: str, attack: PgdConfig | None, cache_bytes: int) -> None:
    front, end, paste = conv_net(0), conv_net(1, width=5), make_cue(CueConfig(size=2), 4, 8, "train").paste
    found = []
    for data, threads in both(images()):
        more: dict[str, Any] = {"paste": paste, "attack": attack, "cache_bytes": cache_bytes}
        found.append(fit(front, end, ALL, protocol, data=data, **more))
        assert MAKER in threads if data.key else set(threads) == {MAIN}
    assert all(same_values(found[0][name], found[1][name]) for name in ALL)


def test_one_mapped_set_of_two_is_enough_to_prepare_ahead() -> None:
    (memory, _), (mapped, threads) = both(images())
    front, end = conv_net(0), conv_net(1)
    found = [fit(front, end, ("dm",), data=memory, end_data=data, cache_bytes=0)["dm"] for data in (memory, mapped)]
    assert MAKER in threads
    assert same_values(*found)


def test_images_of_kept_representations_are_read_once() -> None:
    """Where all is kept the images are read once, before the first epoch."""
    reads = []
    for epochs in (1, 4):
        data, threads = both(images())[1]
        fit(conv_net(0), conv_net(1), data=data, config=recipe(epochs=epochs))
        reads.append(threads)
    assert reads[0] == reads[1] == [MAIN] + [MAKER] * 5  # one image to learn sizes from, then 72 in batches of 16


def test_evaluation_has_the_same_bits_when_prepared_ahead() -> None:
    front, end = conv_net(0, classes=6), conv_net(1, classes=6)
    fitted = list(fit(front, end).values())
    found = []
    for data, threads in both(images(count=1100, seed=9)):
        measured = evaluate(fitted, front, end, data, "cpu") | {
            "end": evaluate_unstitched(end, front, end, data, "cpu")
        }
        found.append((measured, accuracy(end, data)))
        assert set(threads) == {MAKER if data.key else MAIN}
    (first, top1), (second, other_top1) = found
    assert top1 == other_top1
    for name in first:
        assert torch.equal(first[name].h, second[name].h)
        assert first[name].columns == second[name].columns


def test_an_evaluation_that_fails_leaves_no_thread() -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    front, end = conv_net(0), conv_net(1)
    end.segments[0].register_forward_hook(fail)
    data = dataclasses.replace(images(count=3000), key="mapped")
    with pytest.raises(RuntimeError, match="no memory") as caught:
        evaluate_unstitched(end, front, end, data, "cpu")
    assert caught.traceback  # which keeps the frames of the loop
    assert not makers()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("mapped", [False, True])
def test_a_gpu_is_given_what_the_cpu_prepares(mapped: bool) -> None:
    pixels = torch.randint(256, (64, 32, 3, 16, 16), dtype=torch.uint8)
    source = ((part.pin_memory().to("cuda", non_blocking=True), part) for part in pixels)
    for (there, here), expected in zip(overlapped(source, "cuda", mapped), pixels, strict=True):
        work = there.float() @ there.float().transpose(-1, -2)  # the device lags behind
        assert torch.equal(here, expected)
        assert torch.equal(there.cpu(), expected)
        del there, work
