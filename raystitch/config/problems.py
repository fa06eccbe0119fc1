"""What pydantic finds wrong with a config, in words of the config: where, which value, what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from raystitch.access import CREDENTIALS, holds_credentials, is_secret_name
from raystitch.config.values import FieldProblem
from raystitch.errors import InputError, did_you_mean

_NAMED = ("data", "models", "settings")
"""Sections whose keys are names that the user chose."""
_BRANCHES = {"int", "str", "bool", "CueConfig", "TrainConfig", "Normalisation"}
_KEY = "[key]"


def first_problem(error: ValidationError, root: type[BaseModel]) -> InputError:
    """The first problem of a failed validation of ``root`` as one line.

    The value is shown where it is short; null is called null, and keys are compared with those that exist.
    """
    problem, *others = error.errors(include_url=False)
    loc, value = problem["loc"], problem["input"]
    path = _written(loc)
    where = ".".join(map(_shown, path)) or "config"
    if problem["type"] == "extra_forbidden":
        known = list(_model_at(root, path[:-1]).model_fields)
        unknown = f"unknown key {path[-1]!r}{did_you_mean(path[-1], known)}"
        if _may_be_secret(path, value):
            place = "the environment, such as AWS_PROFILE" if path[0] == "s3" else "the environment"
            return InputError(where, None, f"{unknown}; credentials are left to {place}")
        return InputError(where, _brief(value), unknown)
    if isinstance(fault := problem.get("ctx", {}).get("error"), FieldProblem):
        path.append(fault.field)
        value = None if _may_be_secret(path, fault.value) else _brief(fault.value)
        return InputError(".".join(map(_shown, path)), value, str(fault))
    if problem["type"] == "missing":
        return InputError(where, None, "is required and missing")
    if loc and loc[-1] == _KEY and problem["type"] == "string_type":
        return InputError(
            where, None, f"a name is text; write it in quotes, '{path[-1]}'" if value else "a key is empty"
        )
    remedy = _remedy(problem, root, path)
    words = (other for other in others if other["type"] == "literal_error" and _written(other["loc"]) == path)
    if word := next(words, None):
        remedy += f" or {word['ctx']['expected']}"
    if value is None and path:
        field = _model_at(root, path[:-1]).model_fields.get(path[-1])
        optional = field is not None and not field.is_required()
        return InputError(where, None, f"is null; {remedy}{', or leave the key out' if optional else ''}")
    return InputError(where, _brief(value) if path and not _may_be_secret(path, value) else None, remedy)


def refuse_credentials(raw: object, place: str = "", seen: set[int] | None = None) -> None:
    """Refuse URLs with a password or signature in any key and any text, since all of a config is written into results.

    Raises:
        InputError: it names the place, and not what is there.
    """
    seen = set() if seen is None else seen
    if id(raw) in seen:
        return  # YAML's aliases may stand for the same thing any number of times
    if isinstance(raw, (Mapping, list, tuple)):
        seen.add(id(raw))
    if isinstance(raw, (bytes, set)):
        raise InputError(place or "config", None, "give text or a list; YAML's !!binary and !!set are not read")
    if isinstance(raw, str) and holds_credentials(raw):
        raise InputError(place or "config", None, CREDENTIALS)
    if isinstance(raw, Mapping):
        for key, value in raw.items():
            if isinstance(key, str) and holds_credentials(key):
                raise InputError(place or "config", None, f"a key {CREDENTIALS}")
            refuse_credentials(value, f"{place}.{_shown(str(key))}".lstrip("."), seen)
    elif isinstance(raw, (list, tuple)):
        for number, value in enumerate(raw):
            refuse_credentials(value, f"{place}.{number}", seen)


def _may_be_secret(path: Sequence[str], value: object) -> bool:
    """Anything of S3 or with the name of a secret, and whatever may be a text among what trackers are told."""
    if path[0] == "s3" or is_secret_name(path[-1]):
        return True
    return path[0] == "track" and not isinstance(value, (bool, int, float))


def _remedy(problem: Mapping[str, Any], root: type[BaseModel], path: Sequence[str]) -> str:
    """What would be right."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in ("model_type", "model_attributes_type"):
        keys = list(_model_at(root, path).model_fields)
        return f"give a mapping with keys such as {', '.join(keys[:4])}"
    if kind in _WORDS:
        return _WORDS[kind](context)
    return str(problem["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")


_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), lambda _: "give an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), lambda _: "give a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), lambda _: "give true or false"),
    **dict.fromkeys(("dict_type", "mapping_type"), lambda _: "give a mapping of names to what they stand for"),
    **dict.fromkeys(("tuple_type", "list_type"), lambda _: "give a list"),
    "finite_number": lambda _: "give a finite number",
    "string_type": lambda _: "give text (in quotes, if it looks like a number)",
    "string_unicode": lambda _: "holds characters that are no text",
    "string_too_short": lambda _: "must not be empty",
    "string_too_long": lambda c: f"must have at most {c['max_length']} characters",
    "string_pattern_mismatch": lambda _: "use letters, digits, '.', '_' and '-', and begin with a letter or digit",
    "too_short": lambda c: f"give at least {c['min_length']}",
    "too_long": lambda c: f"give at most {c['max_length']}",
    "literal_error": lambda c: f"give {c['expected']}",
    "greater_than": lambda c: f"must be greater than {c['gt']:g}",
    "greater_than_equal": lambda c: f"must be greater than or equal to {c['ge']:.10g}",
    "less_than": lambda c: f"must be less than {c['lt']:g}",
    "less_than_equal": lambda c: f"must be less than or equal to {c['le']:.10g}",
}


def _written(loc: Sequence[Any]) -> list[str]:
    return [str(part) for depth, part in enumerate(loc) if _is_written(loc, depth)]


def _is_written(loc: Sequence[Any], depth: int) -> bool:
    """Pydantic names the branch of a union inside the location; users did not write it."""
    if depth == 1 and loc[0] in _NAMED:
        return True
    part = str(loc[depth])
    return part not in _BRANCHES and not re.search(r"[\[\](]|^function-|^literal$|^tuple$|^constrained", part)


def _shown(part: str) -> str:
    return part if part.strip() and part.isprintable() else repr(part)


def _brief(value: object) -> object:
    """A value worth showing: no mapping, no long list, no URL with a password in it."""
    if _has_credentials(value):
        return None
    nested = isinstance(value, (list, tuple)) and (len(value) > 10 or any(_is_nested(item) for item in value))
    return None if isinstance(value, dict) or nested else value


def _has_credentials(value: object) -> bool:
    texts = value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(text, str) and holds_credentials(text) for text in texts)


def _is_nested(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, (list, tuple)) and len(value) > 2)


def _model_at(root: type[BaseModel], path: Sequence[str]) -> type[BaseModel]:
    """The model at a place in the config, found by walking annotations."""
    model = root
    for part in path:
        field = model.model_fields.get(part)
        if field is None:
            continue  # a name the user chose, such as a dataset's
        model = _model_in(field.annotation) or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        if found := _model_in(part):
            return found
    return None
