"""Values out of bounds, NaN, repeated keys, odd names and unreadable files: one line each, before anything is expanded."""

from __future__ import annotations

import copy
import datetime
import time
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.spec import AbstractFileSystem

from raystitch.config import canonical_objective, expand_refs, load_config, parse_config
from raystitch.errors import InputError

NAN, INF = float("nan"), float("inf")
STUDY: dict[str, Any] = {
    "name": "study",
    "data": {"digits": "digits"},
    "models": {"net": {"arch": "resnet_mini", "data": "digits", "train": {}}},
    "settings": {"pair": {"front": "net", "end": "net"}},
}
TEXT = """\
data: {d: digits}
models:
  m: {arch: resnet_mini, data: d, train: {}}
settings: {s: {front: m, end: m}}
"""


def with_value(path: str, value: object) -> dict[str, Any]:
    study = copy.deepcopy(STUDY)
    node = study
    *parents, leaf = path.split(".")
    for parent in parents:
        node = node.setdefault(parent, {})
    node[leaf] = value
    return study


def refusal(study: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        parse_config(study)
    line = str(caught.value)
    assert "\n" not in line
    assert "Input should" not in line
    assert "DataConfig" not in line
    return line


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "c.yaml").write_text(text)
    return str(tmp_path / "c.yaml")


@pytest.mark.parametrize("seeds", ["0-100000000", "0-10000", ["0-9999", 10000], [["0-9999"] * 1000] * 1000])
def test_a_seed_range_is_refused_by_its_length(seeds: object) -> None:
    begin = time.process_time()
    for path in ("seeds", "models.net.seeds"):
        line = refusal(with_value(path, seeds))
        assert line.startswith(path)
        assert "at most 10000" in line
    assert time.process_time() - begin < 5  # expanding these takes minutes


def test_a_reference_is_refused_by_its_length() -> None:
    with pytest.raises(InputError, match=r"settings\.x = 'net/0-100000000': .*at most 10000"):
        expand_refs(parse_config(STUDY), ("net/0-100000000",), "settings.x")


def test_ten_thousand_seeds_are_fine() -> None:
    assert parse_config(with_value("models.net.seeds", "0-9999")).models["net"].seeds[-1] == 9999


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("seeds", 2**31 - 1),
        ("models.net.seeds", 2**31 - 1),
        ("iri.seed", 2**31 - 1),
        ("iri.steps", 10**6),
        ("iri.batch", 10**6),
        ("iri.shard_size", 10**6),
        ("fit.epochs", 10**5),
        ("fit.batch", 10**6),
        ("fit.init_images", 10**7),
        ("models.net.train.epochs", 10**5),
        ("models.net.train.batch", 10**6),
        ("resources.iri_actors", 10**4),
        ("resources.iri.cpus", 10**4),
        ("resources.fit.gpus", 10**4),
        ("data.noise", 4096),
        ("data.cue", 4096),
        ("data.seed", 2**31 - 1),
    ],
)
def test_every_count_has_an_upper_bound(path: str, most: int) -> None:
    def study(value: int) -> dict[str, Any]:
        special = {
            "data.noise": {"source": "noise", "size": value},
            "data.cue": {"source": "digits", "cue": {"size": value}},
            "data.seed": {"source": "noise", "seed": value},
        }
        return with_value(path, special.get(path, value))

    parse_config(study(most))
    for value in (most + 1, 10**30):
        line = refusal(study(value))
        assert line.startswith(path)
        assert str(value) in line
        assert str(most) in line


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("iri.compile", 3, "iri.compile = 3: give true or false or 'auto'"),
        ("iri.batch", "many", "iri.batch = 'many': give an integer or 'auto'"),
        ("iri.batch", 0, "iri.batch = 0: must be greater than or equal to 1 or 'auto'"),
    ],
)
def test_a_number_or_a_word_says_both(path: str, value: object, line: str) -> None:
    assert refusal(with_value(path, value)) == line


@pytest.mark.parametrize("number", [NAN, INF, -INF, ".nan"])
@pytest.mark.parametrize(
    "path",
    [
        "fit.lr",
        "fit.weight_decay",
        "iri.lr",
        "iri.tolerance",
        "resources.iri.cpus",
        "models.net.train.lr",
        "models.net.train.momentum",
        "models.net.train.weight_decay",
    ],
)
def test_no_number_is_nan_or_infinite(path: str, number: object) -> None:
    assert refusal(with_value(path, number)).startswith(path)


@pytest.mark.parametrize("bad", [NAN, INF, 123.7])
def test_a_normalisation_is_finite_and_in_pixel_units(bad: float) -> None:
    for mean, std in (((0.5, bad, 0.5), (1, 1, 1)), ((0, 0, 0), (1, bad, 1))):
        line = refusal(with_value("models.net.normalise", {"mean": mean, "std": std}))
        assert line.startswith(f"models.net.normalise.{'mean' if mean[1] == bad or mean[1] != mean[1] else 'std'}.1")


@pytest.mark.parametrize("weight", ["1e999*slm", "9e307*slm+9e307*slm+9e307*slm", "1e300*slm"])
def test_an_objective_has_finite_weights(weight: str) -> None:
    assert refusal(with_value("objectives", weight)).startswith("objectives.0 = ")
    with pytest.raises(ValueError, match="weight"):
        canonical_objective(weight)
    with pytest.raises(ValueError, match="depth is at most"):
        canonical_objective("fula@" + "9" * 5000)


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({"width": NAN}, "width is nan"),
        ({"blocks": [1, {"a": INF}]}, "blocks.1.a is inf"),
        ({"since": datetime.date(2024, 1, 1)}, "since is datetime.date"),
        ({"a": {1: 2}}, "a has the key 1"),
        ({"a": "\ud800"}, "a is"),
        ({1: 2}, "1"),
    ],
)
def test_arguments_of_a_net_are_plain(args: dict[Any, Any], named: str) -> None:
    line = refusal(with_value("models.net.args", args))
    assert line.startswith("models.net.args")
    assert named in line


def test_plain_arguments_stay_as_they_are() -> None:
    args = {"blocks": [1, 2], "act": None, "deep": {"x": [True, "a", 0.5]}}
    assert parse_config(with_value("models.net.args", args)).models["net"].args == args


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        (TEXT + "name: a\nseeds: 1\nname: b\n", 7, "name"),
        (TEXT.replace("train: {}", "train: {lr: 0.1, lr: 0.2}"), 3, "lr"),
        (TEXT.replace("settings:", "  m: {}\nsettings:"), 4, "m"),
    ],
)
def test_a_key_given_twice_is_refused_with_its_line(tmp_path: Path, text: str, line: int, key: str) -> None:
    with pytest.raises(InputError, match=rf"c\.yaml: not valid YAML, line {line}, .*{key!r} is given twice, first in"):
        load_config(written(tmp_path, text))


def test_a_merged_key_may_be_overridden(tmp_path: Path) -> None:
    text = TEXT.replace(
        "train: {}}", "train: &t {lr: 0.5, epochs: 3}}\n  n: {arch: a, data: d, train: {<<: *t, lr: 0.2}}"
    )
    recipe = load_config(written(tmp_path, text)).models["n"].train
    assert recipe is not None
    assert (recipe.lr, recipe.epochs) == (0.2, 3)


@pytest.mark.parametrize(
    "text", ["a: &a [*a]", "a: &a {b: *a}", "[" * 5000, "a: !!python/object:os.system {}", "a: '\x07'"]
)
def test_yaml_that_is_no_plain_data(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="not valid YAML") as caught:
        load_config(written(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("section", ["data", "models", "settings"])
@pytest.mark.parametrize("name", ["", " ", "a/b", "a\nb", "a\x00", "a\u2028b", "x" * 81, 3, None])
def test_odd_names_are_refused(section: str, name: object) -> None:
    study = copy.deepcopy(STUDY)
    study[section][name] = copy.deepcopy(next(iter(study[section].values())))
    line = refusal(study)
    assert line.startswith(section)
    assert "\0" not in line
    assert any(word in line for word in ("a name", "a key"))


def test_settings_alone_may_have_blanks_in_their_names() -> None:
    study = copy.deepcopy(STUDY)
    study["settings"]["deep to shallow"] = study["settings"]["pair"]
    assert "deep to shallow" in parse_config(study).settings
    study["models"]["my net"] = study["models"]["net"]
    assert "no blanks" in refusal(study)


def test_an_empty_key_is_refused() -> None:
    assert "unknown key ''" in refusal({**STUDY, "": 1})


@pytest.mark.parametrize(
    ("text", "override", "look"),
    [
        (TEXT + "resources:\n", "resources.iri_actors=1", lambda c: c.resources.iri_actors == 1),
        (TEXT + "fit: {stitch: low_rank}\n", "fit.stitch.rank=3", lambda c: str(c.fit.stitch) == "low_rank:3"),
        (TEXT, "data.d.cue.size=2", lambda c: c.data["d"].cue.size == 2),
        (
            TEXT.replace("d: digits", "d: {source: digits, cue: rand}"),
            "data.d.cue.size=2",
            lambda c: (c.data["d"].cue.kind, c.data["d"].cue.size) == ("rand", 2),
        ),
        (
            TEXT.replace("arch: resnet_mini,", "arch: resnet_mini, args: &a {width: 4},").replace(
                "settings:", "  n: {arch: x, args: *a, data: d, train: {}}\nsettings:"
            ),
            "models.m.args.width=8",
            lambda c: (c.models["m"].args, c.models["n"].args) == ({"width": 8}, {"width": 4}),
        ),
    ],
)
def test_overrides_reach_empty_short_and_shared_sections(tmp_path: Path, text: str, override: str, look: Any) -> None:
    assert look(load_config(written(tmp_path, text), [override]))


@pytest.mark.parametrize("override", [".a=1", "a..b=1", "=1", "a.=1", "fit={a: 1, a: 2}"])
def test_unusable_overrides(tmp_path: Path, override: str) -> None:
    with pytest.raises(InputError, match=r"^--set"):
        load_config(written(tmp_path, TEXT), [override])


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("data.digits", [1], "data.digits = [1]: give a mapping with keys such as source, path, train, test"),
        ("fit", None, "fit: is null; give a mapping with keys such as epochs, batch, lr, weight_decay"),
        ("fit.epochs", None, "fit.epochs: is null; give an integer, or leave the key out"),
        ("fit.epochs", True, "fit.epochs = True: give a number, not true or false"),
        ("models.net.train.attack.eps", True, "models.net.train.attack.eps = True: give a number"),
        ("iri.lr", False, "iri.lr = False: give a number"),
        ("fit.epochs", 1.5, "fit.epochs = 1.5: give an integer"),
        ("fit.lr", {"a": 1}, "fit.lr: give a number"),
        ("models", None, "models: is null; give a mapping of names"),
        ("models.net.checkpoint", "", "models.net.checkpoint = '': must not be empty"),
        ("models.net.points", ["a", "b", "a"], "models.net.points = ['a', 'b', 'a']: names 'a' twice"),
        ("data.digits", {"source": "digits", "classes": [1.5]}, "data.digits.classes = [1.5]: 1.5 is no class"),
        (
            "data.digits",
            {"source": "digits", "greyscale": "perhaps"},
            "data.digits.greyscale = 'perhaps': give true or",
        ),
        ("settings.pair.eval", [], "settings.pair.eval = []: give at least one"),
        ("name", "a b", "name = 'a b': use letters"),
        ("models.int", {"arch": "x"}, "models.int.data: is required and missing"),
    ],
)
def test_plain_words(path: str, value: object, line: str) -> None:
    assert refusal(with_value(path, value)).startswith(line)


class Unreachable(AbstractFileSystem):
    protocol = "unreachable"
    cachable = False

    def _open(self, *args: object, **kwargs: object) -> None:
        raise type("NoCredentialsError", (Exception,), {})("Unable to locate credentials")


def test_whatever_a_file_system_raises_is_one_line(tmp_path: Path) -> None:
    fsspec.register_implementation("unreachable", Unreachable, clobber=True)
    with pytest.raises(InputError, match=r"^config = 'unreachable://b/c\.yaml': cannot be read: Unable to locate"):
        load_config("unreachable://b/c.yaml")
    for path in ("", "nosuch://x", str(tmp_path), "a\0b"):
        with pytest.raises(InputError, match=r"^config = .*cannot be read"):
            load_config(path)
