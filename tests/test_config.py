import copy
from pathlib import Path

import pytest

from raystitch.config import expand_refs, load_config, parse_config
from raystitch.errors import InputError

STUDY = {
    "name": "study",
    "data": {"digits": "digits"},
    "models": {"net": {"arch": "resnet_mini", "data": "digits", "seeds": "0-2", "train": {}}},
    "settings": {"pair": {"front": "net/1-2", "end": "net/0"}},
}


def with_value(path: str, value: object) -> dict:
    study = copy.deepcopy(STUDY)
    node = study
    *parents, leaf = path.split(".")
    for parent in parents:
        node = node.setdefault(parent, {})
    node[leaf] = value
    return study


def test_defaults_are_those_of_the_method() -> None:
    study = parse_config(STUDY)
    assert study.seeds == (1, 2, 3)
    assert study.protocol == "matched"
    assert (study.fit.epochs, study.fit.batch, study.fit.lr, study.fit.weight_decay) == (30, 128, 1e-3, 1e-4)
    assert (study.fit.init, study.fit.init_images) == ("pinv", 500)
    assert set(study.objectives) == {"hlm", "slm", "fula", "dm"}
    recipe = study.models["net"].train
    assert recipe is not None
    assert (recipe.epochs, recipe.lr, recipe.momentum, recipe.weight_decay, recipe.batch) == (200, 0.1, 0.9, 1e-4, 128)


def test_published_optimiser_steps_by_one_pixel_value() -> None:
    study = parse_config(with_value("iri", {"optimiser": "sign_pgd", "steps": 200}))
    assert study.iri.step_size == pytest.approx(1 / 255)


@pytest.mark.parametrize(
    ("given", "seeds"), [(4, (4,)), ("1-3", (1, 2, 3)), ([0, "2-3"], (0, 2, 3)), ("5", (5,)), ([1, 1], (1,))]
)
def test_seed_ranges_expand(given: object, seeds: tuple[int, ...]) -> None:
    assert parse_config(with_value("seeds", given)).seeds == seeds


def test_references_expand_to_models_and_seeds() -> None:
    study = parse_config(STUDY)
    assert expand_refs(study, ("net/1-2", "net"), "x") == [("net", 1), ("net", 2), ("net", 0)]


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        ("objective", ["hlm"], ["objective", "did you mean 'objectives'"]),
        ("fit.epoch", 3, ["fit.epoch", "did you mean 'epochs'"]),
        ("models.net.train.epoch", 3, ["models.net.train.epoch", "did you mean 'epochs'"]),
        ("models.net.arhc", "x", ["models.net.arhc", "did you mean 'arch'"]),
        ("data.digits", {"source": "digits", "cue": {"knd": "pixel"}}, ["data.digits.cue.knd", "'kind'"]),
        ("fit.epochs", "many", ["fit.epochs", "'many'", "integer"]),
        ("fit.epochs", 0, ["fit.epochs", "0", "greater"]),
        ("seeds", "3-1", ["seeds", "write '1-3'"]),
        ("objectives", ["hlm", "slmm"], ["objectives.1", "'slmm'", "'slm'"]),
        ("objectives", [], ["objectives"]),
        ("arms", [], ["arms"]),
        ("points", "al", ["points", "'all'", "'cross'"]),
        ("points", [1, "x"], ["points", "'x'"]),
        ("points", [[1, 2, 3]], ["points", "pair"]),
        ("points", [], ["points"]),
        ("data.digits", {"source": "digit"}, ["data.digits.source", "'digit'", "'digits'"]),
        ("data.digits", {"source": "folder"}, ["data.digits", "path"]),
        ("data.digits", {"source": "digits", "path": "x"}, ["data.digits", "built in"]),
        ("models.net.normalise", "imagnet", ["models.net.normalise", "did you mean 'imagenet'"]),
        ("models.net.data", "digit", ["models.net.data", "did you mean 'digits'"]),
        ("models.net.checkpoint", "x.pt", ["models.net", "exactly one of checkpoint, train"]),
        ("settings.pair.front", "nett/1", ["settings.pair.front", "did you mean 'net'"]),
        ("settings.pair.end", "net/7", ["settings.pair.end", "no seed 7", "0, 1, 2"]),
        ("settings.pair.data", "cifar", ["settings.pair.data", "unknown dataset"]),
        ("settings.pair.eval", "tset", ["settings.pair.eval", "'test'"]),
        ("name", "a/b", ["name", "'a/b'"]),
        ("models", {}, ["models"]),
        ("settings", None, ["settings"]),
    ],
)
def test_a_wrong_value_gives_one_line_naming_field_and_remedy(path: str, value: object, parts: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_config(with_value(path, value))
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(parts[0])
    for part in parts[1:]:
        assert part in line


def test_missing_key_is_named() -> None:
    study = copy.deepcopy(STUDY)
    del study["models"]["net"]["arch"]
    with pytest.raises(InputError, match=r"models\.net\.arch: is required"):
        parse_config(study)


def test_overrides_are_yaml_values_at_dotted_paths(tmp_path: Path) -> None:
    file = tmp_path / "my-study.yaml"
    file.write_text(
        "data: {d: digits}\nmodels: {m: {arch: resnet_mini, data: d, train: {}}}\nsettings: {s: {front: m, end: m}}\n"
    )
    study = load_config(str(file), ["fit.epochs=5", "objectives=[slm, dm]", "data.d.limit.train=600"])
    assert study.name == "my-study"
    assert study.fit.epochs == 5
    assert study.objectives == ("slm", "dm")
    assert study.data["d"].limit.train == 600


@pytest.mark.parametrize(
    ("content", "overrides", "part"),
    [
        ("a: [1", [], "not valid YAML"),
        ("- 1", [], "mapping"),
        ("", [], "mapping"),
        ("name: x", ["fit.epochs"], "key.path=value"),
        ("name: x", ["name.y=3"], "not a mapping"),
        ("name: x", ["seeds=[1"], "not valid YAML"),
    ],
)
def test_unusable_file_or_override(tmp_path: Path, content: str, overrides: list[str], part: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content)
    with pytest.raises(InputError, match=part):
        load_config(str(file), overrides)


def test_missing_file() -> None:
    with pytest.raises(InputError, match=r"config = '/nowhere/c\.yaml'"):
        load_config("/nowhere/c.yaml")


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("similarity.images=50", "similarity.images", 50),
        ("iri.steps=5", "iri.steps", 5),
        ("settings.pair.iri.steps=5", "settings.pair.iri.steps", 5),
        ("settings.pair.attack.steps=2", "settings.pair.attack.steps", 2),
        ("settings.pair.fit.stitch.rank=2", "settings.pair.fit.stitch.rank", 2),
    ],
)
def test_overrides_reach_into_sections_that_are_one_word(tmp_path: Path, override: str, path: str, value: int) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(
        "{data: {d: digits}, models: {m: {arch: resnet_mini, data: d, train: {}}}, similarity: true, iri: paper, settings: "
        "{pair: {front: m, end: m, iri: paper, attack: pgd, fit: {stitch: low_rank}}}}"
    )
    given = ["settings.pair.fit.stitch.rank=1"] if "rank" not in override else []
    node: object = load_config(str(file), [*given, override])
    for part in path.split("."):
        node = node[part] if isinstance(node, dict) else getattr(node, part)
    assert node == value


@pytest.mark.parametrize("levels", [True, [True], [0.4, True]])
def test_truth_is_no_number_in_a_list_either(levels: object) -> None:
    with pytest.raises(InputError, match=r"iri.levels.*give a number, not true or false"):
        parse_config(with_value("iri.levels", levels))
