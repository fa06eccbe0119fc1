"""The way that cluster/README.md leads: its shell blocks are valid, their commands parse, paths and links exist."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_schemas import aws_option_exists
from ray_head import REPOSITORY, environment

from raystitch.cli import _parser
from raystitch.config import load_config

CLUSTER = REPOSITORY / "cluster"
README = (CLUSTER / "README.md").read_text()
PROJECT_README = (REPOSITORY / "README.md").read_text()
_SECTION = PROJECT_README.split("## On a cluster\n")[1].split("\n## ")[0]
BLOCKS = re.findall(r"^```bash\n(.*?)^```", README + _SECTION, re.DOTALL | re.MULTILINE)
OUTSIDE = {"gcloud", "kubectl", "helm", "docker", "sed", "base64", "chmod", "export", "pip"}
"""Programs that are not asked here; a command of any other program is an error."""

_ASK_RAY = """
import json, sys
import click
from ray.scripts.scripts import cli

def problem(words, whole):
    command = cli
    words = list(words)
    try:
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        if whole:
            command.make_context("ray", words)
        else:
            known = {o for p in command.params for o in p.opts}
            return " ".join(w for w in words if w.startswith("--") and w not in known)
    except KeyError as error:
        return f"no command {error}"
    except click.ClickException as error:
        return error.format_message()
    return ""

asked = json.load(sys.stdin)
print(json.dumps([problem(*one) for one in asked]))
"""


def ask_ray(*asked: tuple[list[str], bool]) -> list[str]:
    """For each command of Ray (its words, and whether it is whole) what is wrong with it, or an empty text."""
    command = [sys.executable, "-c", _ASK_RAY]
    done = subprocess.run(
        command,
        input=json.dumps(asked),
        env=environment(),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    problems: list[str] = json.loads(done.stdout.splitlines()[-1])
    return problems


def commands(block: str) -> Iterator[list[str]]:
    """Simple commands of a shell block, word by word: pipes, lists, loops and substitutions are taken apart."""
    block = block.replace("\\\n", " ")
    while inner := re.search(r"\$\(([^()]*)\)", block):
        yield from commands(inner[1])
        block = block[: inner.start()] + "SUBSTITUTED" + block[inner.end() :]
    for line in block.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;<>&")
        lexer.whitespace_split, lexer.commenters = True, "#" if re.search(r"(^|\s)#\s", line) else ""
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("|;<>&"):
                if words and words[0] not in ("for", "done", "/dev/null"):
                    yield words
                words = []
            elif words or word != "do":
                words.append(word)


COMMANDS = [command for block in BLOCKS for command in commands(block)]


def of(program: str) -> list[list[str]]:
    found = [command[1:] for command in COMMANDS if command[0] == program]
    assert found, program
    return found


def sweeps() -> Iterator[list[str]]:
    """Every sweep that the READMEs and the RayJob start on a cluster."""
    for words in of("ray"):
        if words[:2] == ["job", "submit"]:
            yield words[words.index("--") + 1 :]
    job = yaml.safe_load((CLUSTER / "kuberay" / "rayjob.yaml").read_text())
    yield shlex.split(job["spec"]["entrypoint"].replace("/opt/raystitch/", ""))


def test_the_shell_understands_every_block() -> None:
    for block in BLOCKS:
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), block


def test_commands_are_taken_apart() -> None:
    block = 'export A=$(b c | d)\nfor X in 1 2; do\n  aws e "$(sed "s/x/$X/" f)"   # why\ndone\n'
    block += "ray g > /dev/null; h -- i \\\n  j"
    expected = [["b", "c"], ["d"], ["sed", "s/x/$X/", "f"], ["export", "A=SUBSTITUTED"]]
    expected += [["aws", "e", "SUBSTITUTED"], ["ray", "g"], ["h", "--", "i", "j"]]
    assert list(commands(block)) == expected


def test_only_known_programs_are_called() -> None:
    assert {command[0] for command in COMMANDS} == OUTSIDE | {"ray", "raystitch", "python", "aws"}


def test_every_raystitch_command_parses() -> None:
    for words in of("raystitch"):
        _parser().parse_args(words)
    for words in of("python"):
        assert words[0] == "-c"
        compile(words[1], "README", "exec")


def test_every_ray_command_parses() -> None:
    whole = [(words, True) for words in of("ray")]
    spans = re.findall(r"`(ray [a-z][^`]*)`", README + PROJECT_README)
    parts = [(shlex.split(span.replace("…", "").split(" -- ")[0])[1:], False) for span in spans]
    assert len(parts) > 5
    assert ask_ray(*whole, *parts) == [""] * (len(whole) + len(parts))


def test_a_wrong_ray_command_would_be_found() -> None:
    wrong = [
        (["upp", "cluster/aws.yaml"], True),
        (["up", "--yess", "cluster/aws.yaml"], True),
        (["down", "-y"], True),
        (["job", "submit", "--working-directory", "."], False),
    ]
    assert all(ask_ray(*wrong))


def test_every_aws_command_has_its_options() -> None:
    for service, operation, *words in of("aws"):
        if service == "s3":
            assert operation == "mb"
            continue
        options = [word[2:] for word in words if word.startswith("--")]
        assert all(aws_option_exists(service, operation, option) for option in options), (operation, options)
    assert not aws_option_exists("iam", "create-role", "role")
    assert not aws_option_exists("iam", "make-role", "role-name")


def test_every_sweep_is_a_valid_study_that_uses_gpus() -> None:
    found = list(sweeps())
    assert len(found) == 3
    for words in found:
        assert words[:3] == ["python", "-m", "raystitch.sweep"]
        arguments = _parser().parse_args(["sweep", *words[3:]])
        assert arguments.storage == "$STORAGE" or arguments.storage.startswith("s3://")
        wanted = load_config(str(REPOSITORY / arguments.config), arguments.overrides).resources
        assert wanted.iri_actors is None, "nothing bounds it but the cluster"
        for kind in (wanted.iri, wanted.fit):
            assert (kind.cpus, kind.gpus) == (2, 0.5)


@pytest.mark.parametrize("machine", ["aws.yaml", "gcp.yaml", "kuberay/raycluster.yaml"])
def test_a_worker_machine_holds_one_worker_of_each_kind(machine: str) -> None:
    (words, *_) = sweeps()
    arguments = _parser().parse_args(["sweep", *words[3:]])
    wanted = load_config(str(REPOSITORY / arguments.config), arguments.overrides).resources
    cpus, gpus = capacity(yaml.safe_load((CLUSTER / machine).read_text()))
    assert wanted.iri.gpus + wanted.fit.gpus == gpus
    assert wanted.iri.cpus + wanted.fit.cpus <= cpus


def capacity(config: dict[str, Any]) -> tuple[int, int]:
    """CPUs and GPUs of a worker machine."""
    if "available_node_types" in config:
        worker = config["available_node_types"]["gpu"]
        return worker["resources"]["CPU"], worker["resources"]["GPU"]
    group = config["spec"]["workerGroupSpecs"][0]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    return int(limits["cpu"]), int(limits["nvidia.com/gpu"])


def test_every_path_exists() -> None:
    texts = {path: path.read_text() for path in CLUSTER.rglob("*") if path.is_file()}
    named = {
        (source, found)
        for source, text in texts.items()
        for found in re.findall(r"(?<![\w./-])(?:/opt/raystitch/)?((?:cluster|configs|tests|docs)/[\w./-]*\w)", text)
    }
    assert len(named) > 15
    assert [(source, path) for source, path in named if not (REPOSITORY / path).exists()] == []
    rows = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|", README.split("## Before")[0], re.MULTILINE)
    listed = {name for row in rows for name in re.findall("`([^`]+)`", row)}
    files = {str(path.relative_to(CLUSTER)) for path in texts} - {"README.md"}
    assert {name for name in files if not name.startswith("iam/")} | {"iam/"} == listed


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        path, _, anchor = target.partition("#")
        page = (CLUSTER / path).resolve() if path else CLUSTER / "README.md"
        assert page.exists(), target
        titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not anchor or anchor in anchors, target
    assert Path(REPOSITORY / "cluster/README.md").exists()
    assert "(cluster/README.md)" in PROJECT_README
    assert "(../cluster/README.md)" in (REPOSITORY / "docs" / "object_storage.md").read_text()


@pytest.mark.parametrize("name", ["PROJECT", "BUCKET", "REGISTRY"])
def test_the_readme_fills_in_every_blank(name: str) -> None:
    blanks = {
        str(path.relative_to(REPOSITORY))
        for path in CLUSTER.rglob("*")
        if path.suffix in (".yaml", ".json") and re.search(rf"\b{name}\b", path.read_text())
    }
    filled = {word for words in of("sed") if re.search(rf"\bs([/#]){name}\1", " ".join(words)) for word in words}
    assert blanks
    assert blanks <= filled
