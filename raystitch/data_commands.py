"""What ``raystitch data import`` and ``raystitch data show`` do: from parsed arguments to printed lines and an exit code."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from pydantic import ValidationError
from rich.table import Table

from raystitch.commands import load_study, say
from raystitch.config import DataConfig
from raystitch.config.problems import first_problem
from raystitch.errors import InputError
from raystitch.store import Store


def import_(arguments: Namespace) -> int:
    """Write a dataset as shards with an index."""
    from raystitch import data

    fields = {"size": arguments.size, "classes": _class_list(arguments.classes), "limit": _limits(arguments.limit)}
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        config = data.detect(arguments.source, "SOURCE", arguments.test, **given)
    except ValidationError as error:
        problem = first_problem(error, DataConfig)
        raise InputError(f"--{problem.where.split('.')[0]}", problem.value, problem.problem) from None
    target = Store(arguments.target)
    target.check_writable()
    index = data.import_dataset(config, target, "SOURCE")
    counts = ", ".join(f"{split.count} {name}" for name, split in index.splits.items())
    shards = sum(len(split.shards) for split in index.splits.values())
    say(f"{counts} images of {index.size} px, {len(index.classes)} classes, {shards} shards → {target.url}")
    return 0


def show(arguments: Namespace) -> int:
    """Print counts, classes and sizes of the datasets of a config, or of a folder."""
    from raystitch import data

    if arguments.place.endswith((".yaml", ".yml")):
        found = {f"data.{name}": dataset for name, dataset in load_study(arguments.place).data.items()}
    else:
        found = {Path(arguments.place).name: data.detect(arguments.place, "FOLDER")}
    table = Table("dataset", "source", "split", "images", "classes", "per class", "size", title_justify="left")
    for name, dataset in found.items():
        for facts in data.describe(dataset, name):
            classes = f"{facts.present} of {facts.num_classes}"
            cells = (str(facts.count), classes, f"{facts.smallest}–{facts.largest}", f"{facts.side} px")
            table.add_row(name, dataset.source, facts.split, *cells)
    say(table)
    return 0


def _class_list(text: str | None) -> str | list[str] | None:
    """A file's name as it is, ``a,b`` as a list."""
    if text is None or Path(text).is_file() or "://" in text or text.endswith(".txt"):
        return text
    return [part.strip() for part in text.split(",") if part.strip()]


def _limits(text: str | None) -> dict[str, int] | None:
    """``5000`` for both splits, ``5000,1000`` for train and test."""
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) > 2 or not all(part.strip().isdecimal() for part in parts):
        raise InputError("--limit", text, "give one number for both splits, or TRAIN,TEST")
    return {"train": int(parts[0]), "test": int(parts[-1])}
