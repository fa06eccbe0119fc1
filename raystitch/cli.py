"""The ``raystitch`` command: run a study, look at what would run, at what ran, and at the results.

Exit codes: 0 all is done, 1 some units failed or are missing, 2 the input is wrong (one line on standard error), 130 stopped
by the user.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from raystitch import commands, data_commands
from raystitch.access import redact, set_endpoint, without_credentials
from raystitch.config import server_url
from raystitch.damage import told_in_one_line
from raystitch.errors import InputError

_PLAN_TEXT = "what would run: units by kind, shared, done and missing, and the cost; of several studies also together"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script and of ``python -m raystitch.sweep``."""
    arguments = _parser().parse_args(argv)
    try:
        _refuse_credentials(arguments)
        _use_endpoint(getattr(arguments, "endpoint", None))
        with told_in_one_line():
            return int(arguments.run(arguments))
    except InputError as error:
        print(f"raystitch: {redact(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        print(f"raystitch: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("raystitch: stopped; what was finished is kept, the same command goes on from here", file=sys.stderr)
        return 130


def _refuse_credentials(arguments: argparse.Namespace) -> None:
    """What the config itself holds is looked at when it is read."""
    for name, value in vars(arguments).items():
        for text in value if isinstance(value, list) and name != "overrides" else [value]:
            try:
                without_credentials(text if isinstance(text, str) else "")
            except ValueError as error:
                raise InputError(name, None, str(error)) from None


def _use_endpoint(url: str | None) -> None:
    if url is None:
        return
    try:
        set_endpoint(server_url(url))
    except ValueError as error:
        raise InputError("--endpoint", None, str(error)) from None


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, as for every other wrong input."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {redact(message)}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="raystitch", description="Invariance-aware model stitching at scale.")
    add = parser.add_subparsers(required=True, metavar="COMMAND").add_parser
    sweep = _of_study(add, "sweep", "run a study: compute what is missing, write table and report", commands.sweep)
    sweep.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    _of_study(add, "plan", _PLAN_TEXT, commands.plan, several=True)
    _of_study(add, "validate", "check a config and all that it names, without running it", commands.validate)
    _of_storage(add, "status", "what is done, missing and failed", commands.status)
    results = _of_storage(add, "results", "print the results table, or export all of it", commands.results)
    results.add_argument("--output", metavar="FILE", help="write every column as .csv, .json or .parquet")
    text = "merge the rows of all studies into one file, which makes a table of thousands of fits fast to load"
    merge = add("compact", help=text, description=text)
    merge.add_argument("--storage", metavar="URI", default="./runs", help="where results are (default: ./runs)")
    _endpoint(merge)
    merge.set_defaults(run=commands.compact)
    _of_storage(add, "report", "write the report of a study again", commands.report)
    points = add("points", help="stitch points of a net: number, kind, module and shape")
    points.add_argument("model", metavar="MODEL", help="timm name, cifar_resnet20 … 56, resnet_mini, module:function")
    points.add_argument("--size", type=int, help="side of the images in pixels (default: the net's own)")
    points.add_argument("--arg", action="append", default=[], metavar="KEY=VALUE", help="keyword argument of the net")
    points.set_defaults(run=commands.points)
    _data(add("data", help="import a dataset into shards, or show what one holds"))
    return parser


def _data(parser: argparse.ArgumentParser) -> None:
    add = parser.add_subparsers(required=True, metavar="COMMAND").add_parser
    text = "write a dataset as WebDataset shards with an index, ready to stream: source webdataset"
    load = add("import", help=text, description=text)
    load.add_argument("source", metavar="SOURCE", help="image folders, Parquet, shards, or CIFAR files; folder or URL")
    load.add_argument("target", metavar="TARGET", help="folder or URL to fill")
    load.add_argument("--test", metavar="URL", help="the test split, where SOURCE holds only the train split")
    load.add_argument("--size", type=int, help="resize the shorter side to this many pixels, and crop the centre")
    load.add_argument(
        "--classes", metavar="A,B,… | FILE", help="keep these: names, WordNet ids or labels, in this order"
    )
    load.add_argument("--limit", metavar="N | TRAIN,TEST", help="keep this many images of a split, evenly spaced")
    _endpoint(load)
    load.set_defaults(run=data_commands.import_)
    text = "counts, classes and sizes of the datasets of a study, or of one folder"
    show = add("show", help=text, description=text)
    show.add_argument("place", metavar="CONFIG|FOLDER", help="YAML file of a study, or the folder or URL of a dataset")
    _endpoint(show)
    show.set_defaults(run=data_commands.show)


def _endpoint(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--endpoint", metavar="URL", help="server of s3:// URLs (default: AWS_ENDPOINT_URL, or Amazon)"
    )


def _of_study(
    add: Any, name: str, text: str, run: Callable[[argparse.Namespace], int], several: bool = False
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = add(name, help=text, description=text)
    count = "+" if several else None
    command.add_argument("config", metavar="CONFIG", nargs=count, help="YAML file of the study, or its URL")
    command.add_argument("--storage", metavar="URI", help="where results go (default: the config's, ./runs)")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="such as fit.epochs=5"
    )
    _endpoint(command)
    command.set_defaults(run=run)
    return command


def _of_storage(add: Any, name: str, text: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = add(name, help=text, description=text)
    command.add_argument("sweep", nargs="?", metavar="SWEEP", help="name of a study (default: every one)")
    command.add_argument("--storage", metavar="URI", default="./runs", help="where results are (default: ./runs)")
    _endpoint(command)
    command.set_defaults(run=run)
    return command


if __name__ == "__main__":
    sys.exit(main())
