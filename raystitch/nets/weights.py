"""Read, check, load and write the weights of a net.

Files are data: safetensors, or torch files read with ``weights_only``. Every problem is one short line naming the file.
"""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from raystitch.errors import InputError, NotFiniteError
from raystitch.nets.build import NormalisedNet

_WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
_POSITIONS = ("pos_embed", "pos_embedding", "position_embedding", "position_embeddings", "positional_embedding")
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "backbone.", "encoder.", "trunk.")


def read_weights(data: bytes, name: str) -> dict[str, Tensor]:
    """Read a state dict from a file's bytes.

    A dict under ``state_dict``, ``model`` and the like is unwrapped; prefixes that every key carries (``module.``,
    ``_orig_mod.``, …) are removed; half precision becomes float32.

    Args:
        data: the file.
        name: its name: ``*.safetensors`` or a torch file of any other name; also shown in errors.

    Raises:
        InputError: the file cannot be read, is damaged or holds no state dict.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old and rare kinds of tensors, which are refused where they do not fit
            content = _parse(data, name)
    except InputError:
        raise
    except Exception as error:
        form = "safetensors" if name.endswith(".safetensors") else "torch (plain tensors only)"
        raise InputError(name, None, f"cannot be read as a {form} file of weights") from error
    tensors = _unwrap(content)
    if not tensors or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in tensors.items()):
        raise InputError(name, None, "holds no state dict (a mapping from parameter names to tensors)")
    prefix = _common_prefix(tensors)
    return {key[len(prefix) :]: _at_least_float32(tensor) for key, tensor in tensors.items()}


def load_weights(net: NormalisedNet, weights: Mapping[str, Tensor], name: str) -> None:
    """Copy ``weights`` into ``net.net``: every tensor, none left over, all finite.

    BatchNorm's step counters may be missing, as in old files. On error the net is unchanged.

    Args:
        net: the net to fill.
        weights: from :func:`read_weights`.
        name: of the file, for errors.

    Raises:
        InputError: missing or unexpected keys, different shapes (or class count), tensors that are not plain numbers of the
            right kind (sparse, quantised, complex, or integers where the net has floats).
        NotFiniteError: NaN or infinite values; the net is left as it was.
    """
    expected = net.net.state_dict()
    prefix = _common_prefix(expected)
    given = {prefix + key: tensor for key, tensor in weights.items()}
    if prefix and not (given.keys() & expected.keys()):
        given = dict(weights)
    optional = {key for key in expected if key.endswith("num_batches_tracked")}
    missing = [key for key in expected if key not in given and key not in optional]
    unexpected = [key for key in given if key not in expected]
    if missing or unexpected:
        parts = [f"{word} {_few(keys)}" for word, keys in (("lacks", missing), ("has unknown", unexpected)) if keys]
        raise InputError(name, None, f"does not fit {net.label}: {'; '.join(parts)}")
    for key, tensor in given.items():
        if fault := _odd_kind(expected[key], tensor):
            raise InputError(name, None, f"{key} {fault}")
    _check_shapes(expected, given, name)
    for key, tensor in given.items():
        stored = tensor.to(expected[key].dtype)  # a large float64 number is infinite there
        if tensor.is_floating_point() and not bool((torch.isfinite(tensor) & torch.isfinite(stored)).all()):
            raise NotFiniteError(name, None, f"{key} holds NaN or infinite values")
    net.net.load_state_dict(given, strict=False)


def save_weights(net: NormalisedNet) -> bytes:
    """Return ``net.net``'s state dict as safetensors bytes; the same values give the same bytes."""
    state = net.net.state_dict()
    copies = {key: state[key].detach().cpu().clone(memory_format=torch.contiguous_format) for key in sorted(state)}
    data: bytes = safetensors.torch.save(copies)
    return data


def _parse(data: bytes, name: str) -> Any:
    if name.endswith(".safetensors"):
        return safetensors.torch.load(data)
    if data.startswith(b"PK"):  # torch itself does not look at the checksums
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise InputError(name, None, f"is damaged: the checksum of {damaged} is wrong")
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _unwrap(content: Any) -> Mapping[str, Tensor]:
    for _ in range(4):
        inner = next((content[k] for k in _WRAPPERS if k in content), None) if isinstance(content, Mapping) else None
        if not isinstance(inner, Mapping):
            break
        content = inner
    return content if isinstance(content, Mapping) else {}


def _common_prefix(keys: Iterable[str]) -> str:
    """The longest chain of known prefixes that every key carries."""
    names = list(keys)
    prefix = ""
    while names:
        found = next((p for p in _PREFIXES if all(name.startswith(prefix + p) for name in names)), None)
        if found is None:
            break
        prefix += found
    return prefix


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _odd_kind(ours: Tensor, theirs: Tensor) -> str | None:
    """Why a tensor cannot be copied into ours number by number."""
    if theirs.is_quantized:
        return f"is quantised ({theirs.dtype}); save it as float32"
    if theirs.is_nested or theirs.layout is not torch.strided:
        return "is sparse or nested; save it as a dense tensor"
    if theirs.is_meta:
        return "has no values"
    if theirs.is_complex() and not ours.is_complex():
        return f"is complex ({theirs.dtype}), but the net's numbers are {ours.dtype}"
    if ours.is_floating_point() and not theirs.is_floating_point():
        return f"holds {theirs.dtype}, but the net's numbers are {ours.dtype}"
    if theirs.is_floating_point() and theirs.dtype.itemsize < 2:
        return f"holds {theirs.dtype}; save it as float32"
    return None


def _check_shapes(expected: Mapping[str, Tensor], given: Mapping[str, Tensor], name: str) -> None:
    wrong = [key for key in given if given[key].shape != expected[key].shape]
    if not wrong:
        return
    for key in wrong:
        if key.endswith(_POSITIONS):
            raise InputError(name, None, _other_grid(key, expected[key], given[key]))
    layer = wrong[0].rpartition(".")[0]
    in_one_layer = all(key.rpartition(".")[0] == layer for key in wrong)
    if in_one_layer and all(_only_rows_differ(expected[key], given[key]) for key in wrong):
        theirs, ours = given[wrong[0]].shape[0], expected[wrong[0]].shape[0]
        raise InputError(name, None, f"its classifier {layer!r} has {theirs} classes, the dataset has {ours}")
    shapes = [f"{key} {tuple(given[key].shape)} instead of {tuple(expected[key].shape)}" for key in wrong]
    raise InputError(name, None, f"has tensors of the wrong shape: {_few(shapes)}")


def _other_grid(key: str, ours: Tensor, theirs: Tensor) -> str:
    """A position embedding (1, tokens, width) has one row for each patch, and a few for class tokens."""
    shapes = f"{key} is {tuple(theirs.shape)} instead of {tuple(ours.shape)}"
    if theirs.dim() == ours.dim() == 3 and theirs.shape[1] != ours.shape[1]:
        grids = [f"{side}×{side}" for side in (math.isqrt(theirs.shape[1]), math.isqrt(ours.shape[1]))]
        shapes += f", made for {grids[0]} patches, not {grids[1]}"
    return f"{shapes}; set img_size and patch_size in args to those it was trained with"


def _only_rows_differ(ours: Tensor, theirs: Tensor) -> bool:
    return ours.dim() > 0 and ours.dim() == theirs.dim() and ours.shape[1:] == theirs.shape[1:]


def _few(items: list[str], shown: int = 3) -> str:
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return ", ".join(items[:shown]) + more
