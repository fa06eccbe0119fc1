"""Trace a net into a torch.fx graph, and say which node is the output of which module.

timm's own tracer settings are used. A class whose forward cannot be traced (control flow on values) becomes a leaf of
the graph; only a net whose own forward cannot be traced is refused. In-place operations are replaced by out-of-place
ones, and leaves that may write into what they are given are given copies, so that no segment of the graph can overwrite its
input; what is read of a tensor after it was overwritten is the new value, as it is in the net.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from timm.models._features_fx import get_notrace_functions, get_notrace_modules
from torch import fx, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from raystitch.errors import InputError
from raystitch.modes import evaluating
from raystitch.nets.build import NormalisedNet


@dataclass(frozen=True)
class Trace:
    """A net's graph.

    Attributes:
        graph: from the images to the logits, normalisation included; run it with the net as its root module.
        outputs: module path inside the user's net → node of its output (of its last call).
        scopes: node → path of the innermost module it was computed in.
        leaves: paths of modules that are single nodes of the graph although they have parts.
    """

    graph: fx.Graph
    outputs: dict[str, fx.Node]
    scopes: dict[fx.Node, str]
    leaves: frozenset[str]


def trace(net: NormalisedNet) -> Trace:
    """Trace ``net`` as it computes in eval mode; its modes are left as they were.

    Raises:
        InputError: the net's own forward cannot be traced, or it writes into tensors in a way that cannot be undone.
    """
    leaf_types: set[type[nn.Module]] = {_BatchNorm, *get_notrace_modules()}
    with evaluating(net):
        while True:
            tracer = _PathTracer(leaf_types)
            try:
                graph = tracer.trace(net)
                break
            except Exception as error:
                culprit = tracer.culprit
                if culprit is None or culprit is net.net:
                    raise InputError("arch", net.label, f"cannot be traced: {error}") from error
                leaf_types.add(type(culprit))
    _make_out_of_place(net, graph)
    return Trace(graph, tracer.outputs, tracer.scopes, frozenset(tracer.leaves))


class _PathTracer(fx.Tracer):
    """Records each module's output node, and the innermost module in which tracing failed."""

    def __init__(self, leaf_types: set[type[nn.Module]]) -> None:
        super().__init__(autowrap_functions=tuple(get_notrace_functions()))
        self.leaf_types = tuple(leaf_types)
        self.outputs: dict[str, fx.Node] = {}
        self.scopes: dict[fx.Node, str] = {}
        self.leaves: set[str] = set()
        self.culprit: nn.Module | None = None
        self._stack = [""]

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Built-in layers, timm's untraceable ones, and those that failed before."""
        return isinstance(m, self.leaf_types) or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Trace through or record ``m``, and note its output."""
        path = inner_path(self.path_of_module(m))
        if self.is_leaf_module(m, path) and any(True for _ in m.children()):
            self.leaves.add(path)
        self._stack.append(path)
        try:
            result = super().call_module(m, forward, args, kwargs)
        except Exception:
            self.culprit = self.culprit or m
            raise
        finally:
            self._stack.pop()
        if isinstance(result, fx.Proxy):
            self.outputs[path] = result.node
        return result

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """Create a node and note the module it belongs to."""
        node = super().create_node(*args, **kwargs)
        self.scopes[node] = self._stack[-1]
        return node


def inner_path(path: str) -> str:
    """``net.layer1.0`` (inside :class:`NormalisedNet`) → ``layer1.0`` (inside the user's net)."""
    return path.removeprefix("net").removeprefix(".")


_OUT_OF_PLACE: dict[Any, Any] = {
    **{getattr(operator, f"i{name}"): getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "pow")},
    **{
        getattr(home, f"{name}_"): getattr(home, name)
        for home in (torch, F)
        for name in ("relu", "sigmoid", "tanh", "elu", "leaky_relu", "hardtanh", "selu", "celu", "dropout")
        if hasattr(home, f"{name}_") and hasattr(home, name)
    },
}


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def altered(layer: nn.Module) -> bool:
    """Whether a layer computes something else than its type says: it has hooks, or a forward of its own.

    Weight normalisation, spectral normalisation and pruning work by hooks, too.
    """
    return "forward" in vars(layer) or any(getattr(layer, name, None) for name in _HOOKS)


def in_place(layer: nn.Module) -> bool:
    """Whether it is a layer of torch's own that overwrites its input; what a flag of that name means elsewhere is not known."""
    return _of_torch(layer) and "forward" not in vars(layer) and getattr(layer, "inplace", False) is True


def out_of_place(layer: nn.Module) -> nn.Module:
    """A twin of an :func:`in_place` layer that leaves its input as it is; it has the mode that the layer has now."""
    twin = copy.copy(layer)
    twin.inplace = False  # type: ignore[assignment]
    return twin


def own_copy(value: Any) -> Any:
    """What a leaf of the graph may write into: a copy of a tensor, anything else as it is.

    It stays a step of its own where a graph is traced again, as unpickling does.
    """
    if isinstance(value, fx.Proxy):
        return value.tracer.create_proxy("call_function", own_copy, (value,), {})
    return value.clone() if isinstance(value, torch.Tensor) else value


def _make_out_of_place(net: nn.Module, graph: fx.Graph) -> None:
    """Rewrite ``a.add_(b)``, ``a += b``, ``relu(a, inplace=True)`` to new values that later uses of ``a`` read.

    In-place layers of torch are nodes as they are: what runs the graph gives it an :func:`out_of_place` twin of each. A
    module that is a leaf and not a layer of torch is given an :func:`own_copy` of its input, which later uses read.
    """
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op == "call_module":
            layer = net.get_submodule(str(node.target))
            if _may_write(layer):
                _give_copies(node, order)
            if not in_place(layer):
                continue
        elif not _writes(node):
            continue
        elif node.op == "call_method" and hasattr(torch.Tensor, str(node.target)[:-1]):
            node.target = str(node.target)[:-1]
        elif node.op == "call_function" and node.target in _OUT_OF_PLACE:
            node.target = _OUT_OF_PLACE[node.target]
        elif node.kwargs.get("inplace") is True:
            node.kwargs = {**node.kwargs, "inplace": False}
        else:
            raise InputError("arch", None, f"the net writes into a tensor in place ({node.name}), so it cannot be cut")
        written = node.args[0] if node.args else node.kwargs.get("input")
        if isinstance(written, fx.Node):
            _read_instead(written, node, order)


def _of_torch(layer: nn.Module) -> bool:
    return type(layer).__module__.startswith("torch.nn.")


def _may_write(layer: nn.Module) -> bool:
    """Whether it is not known to leave its input as it is: layers of torch and those of its kinds that nets subclass do."""
    return altered(layer) or not (_of_torch(layer) or isinstance(layer, (_BatchNorm, _ConvNd)))


def _give_copies(leaf: fx.Node, order: dict[fx.Node, int]) -> None:
    for given in leaf.all_input_nodes:
        with leaf.graph.inserting_before(leaf):
            own = leaf.graph.call_function(own_copy, (given,))
        order[own] = order[leaf]
        leaf.replace_input_with(given, own)
        _read_instead(given, own, order)


def _read_instead(old: fx.Node, new: fx.Node, order: dict[fx.Node, int]) -> None:
    old.replace_all_uses_with(new, delete_user_cb=lambda user: order[user] > order[new])


def _writes(node: fx.Node) -> bool:
    if node.kwargs.get("inplace") is True:
        return True
    if node.op == "call_method":
        name = str(node.target)
        return name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
    return node.op == "call_function" and node.target in _OUT_OF_PLACE
