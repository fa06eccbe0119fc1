"""Read a study from YAML; whatever is wrong becomes one line that names the field and the nearest right name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec
import yaml
from pydantic import BaseModel, ValidationError

from raystitch.config.objective import EXACT, why_not_exact
from raystitch.config.schema import StudyConfig
from raystitch.config.values import as_tuple, expand_range
from raystitch.errors import InputError, did_you_mean


def load_config(path: str, overrides: Sequence[str] = ()) -> StudyConfig:
    """Read a YAML study from a path or URL and apply ``key.path=value`` overrides (values are YAML).

    Raises:
        InputError: the file is missing or not YAML, or a field is unknown or has a wrong value.
    """
    try:
        with fsspec.open(path, "r", encoding="utf-8") as stream:
            raw = yaml.safe_load(stream)
    except yaml.YAMLError as error:
        raise InputError(path, None, f"not valid YAML: {error}") from error
    except (OSError, ValueError) as error:
        raise InputError("config", path, f"cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise InputError(path, None, "a study is a mapping with keys such as name, data, models, settings")
    for override in overrides:
        _apply_override(raw, override)
    raw.setdefault("name", Path(path).stem)
    return parse_config(raw)


def parse_config(raw: Mapping[str, Any]) -> StudyConfig:
    """Validate a mapping as a study; every problem becomes one :class:`InputError` naming its field."""
    try:
        config = StudyConfig.model_validate(raw)
    except ValidationError as error:
        raise _first_problem(error) from None
    _check_references(config)
    _check_objectives(config)
    return config


def _apply_override(raw: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise InputError("--set", override, "write it as key.path=value")
    *parents, leaf = key.split(".")
    node = raw
    for parent in parents:
        child = node.setdefault(parent, {})
        if isinstance(child, str) and parents[0] == "data":
            child = node[parent] = {"source": child}
        if not isinstance(child, dict):
            raise InputError("--set", override, f"{parent!r} is not a mapping, so it has no key {leaf!r}")
        node = child
    try:
        node[leaf] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError("--set", override, f"the value is not valid YAML: {error}") from error


def _first_problem(error: ValidationError) -> InputError:
    problem = error.errors(include_url=False)[0]
    path = [str(part) for part in problem["loc"] if not _is_branch_label(str(part))]
    where = ".".join(path) or "config"
    if problem["type"] == "extra_forbidden":
        known = _fields_at(path[:-1])
        return InputError(where, problem["input"], f"unknown key {path[-1]!r}{did_you_mean(path[-1], known)}")
    if problem["type"] == "missing":
        return InputError(where, None, "is required and missing")
    message = problem["msg"].removeprefix("Value error, ")
    return InputError(where, problem["input"] if path else None, message)


def _is_branch_label(part: str) -> bool:
    """Pydantic names the branch of a union inside the location; users did not write it."""
    return bool(re.search(r"[\[\](]|^function-|^literal$|^tuple$|^constrained", part)) or part in _BRANCHES


_BRANCHES = {"int", "str", "CueConfig", "TrainConfig", "Normalisation"}


def _fields_at(path: Sequence[str]) -> list[str]:
    """The keys allowed at a place in the config, found by walking the models' annotations."""
    model: type[BaseModel] = StudyConfig
    for part in path:
        field = model.model_fields.get(part)
        if field is None:
            continue  # a name the user chose, such as a dataset's
        model = _model_in(field.annotation) or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        if found := _model_in(part):
            return found
    return None


def _check_objectives(config: StudyConfig) -> None:
    moving = config.protocol == "paper" and "real" in config.arms
    problem = why_not_exact(config.objectives, config.fit.stitch.kind, moving)
    if problem is not None:
        raise InputError("objectives", EXACT, problem)


def _check_references(config: StudyConfig) -> None:
    for name, model in config.models.items():
        if model.data not in config.data:
            raise InputError(
                f"models.{name}.data", model.data, f"unknown dataset{did_you_mean(model.data, config.data)}"
            )
    for name, setting in config.settings.items():
        where = f"settings.{name}"
        if setting.data is not None and setting.data not in config.data:
            raise InputError(f"{where}.data", setting.data, f"unknown dataset{did_you_mean(setting.data, config.data)}")
        for side in ("front", "end"):
            expand_refs(config, getattr(setting, side), f"{where}.{side}")


def expand_refs(config: StudyConfig, refs: Sequence[str], where: str) -> list[tuple[str, int]]:
    """``("clean/1-3", "pixel")`` → [("clean", 1), …, ("pixel", s) for each seed s of the model].

    Raises:
        InputError: an unknown model, or a seed that the model does not list.
    """
    pairs: dict[tuple[str, int], None] = {}
    for ref in refs:
        name, slash, seeds = ref.partition("/")
        if name not in config.models:
            raise InputError(where, ref, f"unknown model {name!r}{did_you_mean(name, config.models)}")
        known = config.models[name].seeds
        try:
            wanted = expand_range(seeds) if slash else known
        except ValueError as error:
            raise InputError(where, ref, str(error)) from None
        for seed in as_tuple(wanted):
            if seed not in known:
                raise InputError(
                    where, ref, f"model {name!r} has no seed {seed}; its seeds: {', '.join(map(str, known))}"
                )
            pairs[(name, int(str(seed)))] = None
    return list(pairs)
