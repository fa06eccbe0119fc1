"""Facts of datasets: from their files, checked against what the config expects; or that alone, where no files are there."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from raystitch import data
from raystitch.config import DataConfig
from raystitch.data import Split
from raystitch.data.classes import listed_classes
from raystitch.errors import InputError, MissingError
from raystitch.plan import DataFacts
from raystitch.remote import NO_OPTIONS

COUNT_SLACK = 0.1
"""Share by which the number of images may differ from what is expected: class lists rarely give a round number."""
_ASSUMED = "assumed-"


def look_at_data(config: DataConfig, where: str) -> DataFacts:
    """Facts from the files, none of whose images is decoded but the first.

    Args:
        config: the dataset.
        where: its config path, such as ``data.cifar10``.

    Raises:
        MissingError: the files are not there.
        InputError: they are damaged, hold fewer than two classes, or not what ``expect`` says.
    """
    facts = DataFacts(
        train=data.fingerprint(config, "train", where),
        test=data.fingerprint(config, "test", where),
        num_classes=data.num_classes(config, where),
        size=data.image_size(config, where),
        train_count=data.count(config, "train", where),
        test_count=data.count(config, "test", where),
    )
    _compare(config, where, facts.train_count, facts.test_count, facts.num_classes)
    return _checked(config, where, facts)


def look_or_assume(config: DataConfig, where: str) -> DataFacts:
    """The same; where the files are not there, what the config says of them.

    It must give ``expect.train``, ``expect.test``, ``size``, and ``expect.classes`` or a class list. The fingerprints are a
    digest of what the config says of the split, so that studies which name the same data in the same way agree.

    Raises:
        InputError: as :func:`look_at_data`, but for missing files of which the config says enough.
    """
    try:
        return look_at_data(config, where)
    except MissingError as error:
        return _checked(config, where, _assume(config, where, error))


def assumed_digest(text: str) -> str:
    """In the place of the SHA-256 of a missing file, that of the text which names it; marked, so never taken for a real one."""
    return _ASSUMED + hashlib.sha256(text.encode()).hexdigest()


def is_assumed(digest: str) -> bool:
    """Whether a digest is made up."""
    return digest.startswith(_ASSUMED)


def _compare(config: DataConfig, where: str, train: int | None, test: int | None, classes: int | None) -> None:
    expect = config.expect
    for field, expected, found, slack, what in (
        ("train", expect.train, train, COUNT_SLACK, "training images"),
        ("test", expect.test, test, COUNT_SLACK, "test images"),
        ("classes", expect.classes, classes, 0.0, "classes"),
    ):
        if expected is not None and found is not None and abs(found - expected) > slack * expected:
            raise InputError(f"{where}.expect.{field}", expected, f"the dataset has {found} {what}")


def _checked(config: DataConfig, where: str, facts: DataFacts) -> DataFacts:
    if facts.num_classes < 2:
        raise InputError(f"{where}.classes", facts.num_classes, "a dataset needs at least two classes")
    if config.cue is not None:
        try:
            data.make_cue(config.cue, facts.num_classes, facts.size, "train")
        except InputError as error:
            raise InputError(f"{where}.{error.where}", error.value, error.problem) from error
    return facts


def _assume(config: DataConfig, where: str, missing: MissingError) -> DataFacts:
    entries = None
    if isinstance(config.classes, (str, tuple)):
        entries = listed_classes(config.classes, where, NO_OPTIONS)
        _compare(config, where, None, None, len(entries))
    classes = config.expect.classes if entries is None else len(entries)
    expect = config.expect
    if expect.train is None or expect.test is None or classes is None or config.size is None:
        given = {
            "expect.train": expect.train,
            "expect.test": expect.test,
            "expect.classes": classes,
            "size": config.size,
        }
        lacking = " and ".join(name for name, value in given.items() if value is None)
        raise MissingError(
            missing.where, missing.value, f"{missing.problem}; to plan without the files, give {lacking}"
        )
    return DataFacts(
        train=_made_up(config, "train", entries),
        test=_made_up(config, "test", entries),
        num_classes=classes,
        size=config.size,
        train_count=expect.train,
        test_count=expect.test,
        assumed=True,
    )


def _made_up(config: DataConfig, split: Split, classes: Any) -> str:
    """What the config says of a split's images. The cue is none of it: it is in the ids beside the fingerprint."""
    section = config.model_dump(mode="json", exclude={"cue", "expect", "limit", "classes"})
    limit = [config.limit.train if split == "train" else config.limit.test, config.limit.rows]
    return assumed_digest(json.dumps([section, limit, classes, split], sort_keys=True))
