"""Cues: exact marker pixels, class colours by the method's rule, places that depend on seed, split and index only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from raystitch.config import CueConfig
from raystitch.data import ImageSet, make_cue, to_float, with_cue
from raystitch.data.cues import _hash, spread_colours
from raystitch.errors import InputError

CLASSES, SIDE = 5, 16


def grey_set(count: int = 60, side: int = SIDE) -> ImageSet:
    """Every pixel 77: a value that no marker pixel of the tests has in all channels."""
    return ImageSet(torch.full((count, 3, side, side), 77, dtype=torch.uint8), torch.arange(count) % CLASSES, CLASSES)


def changed(data: ImageSet, marked: ImageSet) -> Tensor:
    """bool (N, H, W): pixels that differ in any channel."""
    return (data.images != marked.images).any(1)


def corners(mask: Tensor) -> list[tuple[int, int]]:
    return [(int(m.any(1).nonzero()[0]), int(m.any(0).nonzero()[0])) for m in mask]


def marker_colours(data: ImageSet, marked: ImageSet) -> list[tuple[int, ...]]:
    mask = changed(data, marked)
    return [tuple(i[:, m].float().mean(1).int().tolist()) for i, m in zip(marked.images, mask, strict=True)]


def test_colours_by_hand() -> None:
    assert spread_colours(1).tolist() == [[0, 0, 0]]
    assert spread_colours(2).tolist() == [[0, 0, 0], [255, 255, 255]]
    # on the 3-level grid, squared distances to black and white: (0, 1, 2) has 5 and 5, which no other kind exceeds
    assert spread_colours(3).tolist() == [[0, 0, 0], [255, 255, 255], [0, 128, 255]]


@pytest.mark.parametrize("count", [4, 6, 10])
def test_each_colour_is_the_farthest_grid_point_from_those_before(count: int) -> None:
    levels = np.arange(count)
    grid = np.array([(r, g, b) for r in levels for g in levels for b in levels])
    steps = np.rint(spread_colours(count).astype(float) * (count - 1) / 255).astype(int)
    for k in range(1, count):
        nearest = ((grid[:, None] - steps[None, :k]) ** 2).sum(-1).min(1)
        assert ((steps[k] - steps[:k]) ** 2).sum(-1).min() == nearest.max()


@pytest.mark.parametrize("count", [100, 120])
def test_many_classes_have_different_colours(count: int) -> None:
    assert len({tuple(c) for c in spread_colours(count).tolist()}) == count


def test_hash_is_splitmix64() -> None:
    """First outputs of the published generator for seed 0 (its state grows by the golden gamma)."""
    gamma = 0x9E3779B97F4A7C15 - (1 << 64)
    outputs = [int(_hash(torch.tensor(k * gamma))) % (1 << 64) for k in range(2)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


@pytest.mark.parametrize(("side", "marker"), [(8, 1), (16, 2), (32, 4), (64, 8), (224, 28), (4, 1)])
def test_default_size_is_four_per_thirty_two(side: int, marker: int) -> None:
    assert make_cue(CueConfig(), CLASSES, side, "train").side == marker


@pytest.mark.parametrize("kind", ["pixel", "rand"])
@pytest.mark.parametrize(
    ("placement", "k"),
    [("random", 1), ("random", 3), ("random", SIDE), ("class", 1), ("class", 3), ("class", SIDE - 2)],
)
def test_exactly_a_square_of_k_by_k_changes(kind: str, placement: str, k: int) -> None:
    data = grey_set()
    config = CueConfig.model_validate({"kind": kind, "placement": placement, "size": k})
    mask = changed(data, with_cue(data, config, "test", "train"))
    assert (mask.sum((1, 2)) == k * k).all()
    assert (mask.any(2).sum(1) == k).all()
    assert (mask.any(1).sum(1) == k).all()
    assert (data.images == 77).all()


def test_pixel_shows_one_colour_per_class() -> None:
    data = grey_set()
    shown = marker_colours(data, with_cue(data, CueConfig(), "test", "train"))
    by_class = [{c for c, y in zip(shown, data.labels.tolist(), strict=True) if y == k} for k in range(CLASSES)]
    assert all(len(colours) == 1 for colours in by_class)
    assert set.union(*by_class) == {tuple(c) for c in spread_colours(CLASSES).tolist()}


def test_the_seed_shuffles_colours_over_classes() -> None:
    assignments = {
        tuple(map(tuple, make_cue(CueConfig(seed=s), CLASSES, SIDE, "train").colours.tolist())) for s in range(6)
    }
    assert len(assignments) > 1
    assert len({tuple(sorted(a)) for a in assignments}) == 1


def test_shuffled_shows_the_marker_and_place_of_the_class_before() -> None:
    data = grey_set()
    for placement in ("random", "class"):
        config = CueConfig.model_validate({"placement": placement})
        shuffled = with_cue(data, config, "shuffled", "test")
        before = ImageSet(data.images, (data.labels + CLASSES - 1) % CLASSES, CLASSES)
        assert torch.equal(shuffled.images, with_cue(before, config, "test", "test").images)
        assert torch.equal(shuffled.labels, data.labels)
    config = CueConfig(placement="class")
    truth, wrong = (with_cue(data, config, name, "test") for name in ("test", "shuffled"))  # type: ignore[arg-type]
    place, colour = corners(changed(data, truth)), marker_colours(data, truth)
    for c in range(CLASSES):
        assert corners(changed(data, wrong))[c] == place[(c - 1) % CLASSES]
        assert marker_colours(data, wrong)[c] == colour[(c - 1) % CLASSES]


def test_clean_and_no_cue_leave_images_alone() -> None:
    data = grey_set()
    assert torch.equal(with_cue(data, CueConfig(), "clean", "test").images, data.images)
    assert torch.equal(with_cue(data, None, "shuffled", "test").images, data.images)


@pytest.mark.parametrize("kind", ["pixel", "rand"])
def test_a_sample_does_not_depend_on_its_batch(kind: str) -> None:
    data = grey_set()
    config = CueConfig.model_validate({"kind": kind, "size": 3})
    cue = make_cue(config, CLASSES, SIDE, "train")
    whole = cue.paste(data.images, data.labels, torch.arange(len(data)))
    assert torch.equal(whole, with_cue(data, config, "test", "train").images)
    torch.manual_seed(1)
    order = torch.randperm(len(data))
    for part in order.split(7):
        assert torch.equal(cue.paste(data.images[part], data.labels[part], part), whole[part])
    twin = make_cue(config, CLASSES, SIDE, "train")
    assert torch.equal(twin.paste(data.images, data.labels, torch.arange(len(data))), whole)


def test_float_and_uint8_images_get_the_same_marker() -> None:
    data = grey_set()
    for kind in ("pixel", "rand"):
        cue = make_cue(CueConfig.model_validate({"kind": kind}), CLASSES, SIDE, "test")
        index = torch.arange(len(data))
        late = cue.paste(to_float(data.images), data.labels, index)
        assert torch.equal(late, to_float(cue.paste(data.images, data.labels, index)))


def test_places_differ_between_splits_and_seeds_and_cover_the_image() -> None:
    data = grey_set(3000, 8)
    config = CueConfig(size=2)
    train, test, other = (
        corners(changed(data, with_cue(data, c, "test", s)))  # type: ignore[arg-type]
        for c, s in ((config, "train"), (config, "test"), (CueConfig(size=2, seed=1), "train"))
    )
    expected = 3000 / 49  # 7 × 7 places; a count is binomial, so five standard deviations are ± 39
    for places in (train, test, other):
        counts = [places.count((top, left)) for top in range(7) for left in range(7)]
        assert min(counts) > expected - 39
        assert max(counts) < expected + 39
    for a, b in ((train, test), (train, other)):
        assert sum(x == y for x, y in zip(a, b, strict=True)) < expected + 39


def test_class_places_are_fixed_distinct_and_the_same_in_both_splits() -> None:
    data = grey_set()
    config = CueConfig(placement="class")
    train, test = (corners(changed(data, with_cue(data, config, "test", s))) for s in ("train", "test"))  # type: ignore[arg-type]
    assert train == test
    assert len(set(train)) == CLASSES
    assert train[:CLASSES] * (len(data) // CLASSES) == train


def test_rand_at_a_random_place_knows_nothing_of_the_label() -> None:
    data = grey_set()
    config = CueConfig(kind="rand", size=4)
    marked = with_cue(data, config, "test", "train").images
    others = ImageSet(data.images, (data.labels + 2) % CLASSES, CLASSES)
    assert torch.equal(with_cue(others, config, "test", "train").images, marked)
    assert torch.equal(with_cue(data, config, "shuffled", "train").images, marked)


def test_rand_at_a_class_place_tells_the_class_by_the_place_alone() -> None:
    """Decided: the place is the class's own, as for pixel, so it carries the label; the noise is the sample's, as ever."""
    data = grey_set()
    config = CueConfig(kind="rand", placement="class", size=4)
    truth, wrong = (with_cue(data, config, name, "test") for name in ("test", "shuffled"))  # type: ignore[arg-type]
    places, shown = corners(changed(data, truth)), corners(changed(data, wrong))
    assert len(set(places[:CLASSES])) == CLASSES
    assert places == corners(changed(data, with_cue(data, CueConfig(placement="class", size=4), "test", "test")))
    patches = []
    for k, label in enumerate(data.labels.tolist()):
        assert places[k] == places[label]
        assert shown[k] == places[(label - 1) % CLASSES]
        noise = [
            marked.images[k, :, top : top + 4, left : left + 4]
            for marked, (top, left) in ((truth, places[k]), (wrong, shown[k]))
        ]
        assert torch.equal(*noise)
        patches.append(noise[0].numpy().tobytes())
    assert len(set(patches)) == len(data)


@pytest.mark.parametrize("kind", ["pixel", "rand"])
@pytest.mark.parametrize("placement", ["random", "class"])
def test_marker_of_a_photograph_sized_image(kind: str, placement: str) -> None:
    data = grey_set(20, 224)
    config = CueConfig.model_validate({"kind": kind, "placement": placement})
    mask = changed(data, with_cue(data, config, "test", "train"))
    assert (mask.sum((1, 2)) == 28 * 28).all()
    assert (mask.any(2).sum(1) == 28).all()


def test_rand_is_uniform_noise_that_differs_by_pixel_channel_and_sample() -> None:
    data = grey_set(200)
    noise = with_cue(data, CueConfig(kind="rand", size=SIDE), "test", "train").images.double()
    count = noise.numel()
    assert abs(float(noise.mean()) - 127.5) < 5 * 73.9 / count**0.5
    assert torch.bincount(noise.flatten().int(), minlength=256).min() > 0.7 * count / 256
    rows = noise.flatten(1) - 127.5
    correlation = (rows[:-1] * rows[1:]).mean() / 73.9**2
    assert abs(float(correlation)) < 5 / count**0.5
    channels = noise - 127.5
    assert abs(float((channels[:, 0] * channels[:, 1]).mean())) / 73.9**2 < 5 / (count / 3) ** 0.5


def test_marker_larger_than_the_image() -> None:
    with pytest.raises(InputError, match=r"^cue\.size = 9: .* at most 8$"):
        make_cue(CueConfig(size=9), CLASSES, 8, "train")
