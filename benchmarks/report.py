"""Write what the benchmarks found: ``results.json`` for programs, ``results.md`` for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

FILES = JSON, MARKDOWN = "results.json", "results.md"
Record = Mapping[str, Any]
"""A child's record, plain JSON."""


def write(folder: Path, records: Sequence[Record], quick: bool) -> None:
    """Write both files, each whole or not at all.

    Raises:
        OSError: one cannot be written; what it held is still there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = {"created": _now(), "quick": quick, "machine": records[0]["machine"], "benchmarks": list(records)}
    _replace(folder / JSON, json.dumps(content, indent=1, allow_nan=False) + "\n")
    _replace(folder / MARKDOWN, render(records, quick))


def render(records: Sequence[Record], quick: bool) -> str:
    """The tables as Markdown."""
    return "\n".join(_lines(_now(), records[0]["machine"], records, quick)) + "\n"


def put_aside(folder: Path) -> Iterator[Path]:
    """Call an earlier run's files by the time they were written, and give the new names.

    Raises:
        OSError: one cannot be renamed.
    """
    for name in FILES:
        path = folder / name
        if path.exists():
            stamp = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
            yield path.rename(path.with_stem(f"{path.stem}-{stamp}"))


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _lines(created: str, machine: Record, records: Sequence[Record], quick: bool) -> Iterator[str]:
    yield "# Benchmarks"
    yield ""
    if quick:
        yield "**Quick run: too few images and rounds for the figures to mean anything.**"
        yield ""
    yield "Ratios are against a baseline timed in turns in the same process. Values are medians, with quartiles in brackets."
    yield ""
    yield from _table(
        ["", ""], [["created", created], *([key.replace("_", " "), value] for key, value in machine.items())]
    )
    yield from _headlines(records)
    for record in records:
        yield from _details(record)


def _headlines(records: Sequence[Record]) -> Iterator[str]:
    yield "## Figures"
    yield ""
    rows = [
        [record["name"], figure["name"], _value(figure), _target(figure), figure["verdict"]]
        for record in records
        for figure in record["figures"]
    ]
    yield from _table(["benchmark", "figure", "measured", "target", ""], rows)
    rows = [[record["name"], *_memory(record), round(record["seconds"], 1)] for record in records]
    yield from _table(["benchmark", "peak memory, MiB", "of a worker, MiB", "on the GPU, MiB", "seconds"], rows)


def _memory(record: Record) -> list[float | None]:
    peak = record["peak_memory"]
    values = peak["process_mib"], record["facts"].get("worker_mib"), peak.get("gpu_mib")
    return [None if value is None else round(value) for value in values]


def _details(record: Record) -> Iterator[str]:
    yield f"## {record['name']}"
    yield ""
    yield from (f"- {note}" for note in record["notes"])
    yield f"- Sizes: {', '.join(f'{key} {value}' for key, value in record['facts'].items() if value not in (None, []))}."
    yield ""
    for table in record["tables"]:
        yield f"{table['title']}:"
        yield ""
        yield from _table(table["columns"], table["rows"])


def _value(figure: Record) -> str:
    if figure["value"] is None:
        return "not reached"
    text = f"{short(figure['value'])} {figure['unit']}".rstrip()
    return text if figure["low"] is None else f"{text} ({short(figure['low'])}–{short(figure['high'])})"


def _target(figure: Record) -> str:
    target = figure["target"]
    return "" if target is None else f"{target['sense']} {short(target['bound'])}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join('–' if value is None else str(value) for value in row)} |"
    yield ""


def short(value: float) -> str:
    """Three digits, or all of a larger number's whole ones: no exponent."""
    return f"{value:.0f}" if 999.5 <= abs(value) < 1e6 else f"{value:.3g}"
