"""Which nodes of a graph are the only live tensor, so that the net can be cut there.

In execution order, a node is a valid cut exactly when no value computed before it is used after it, on the way from
the images to the logits.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx


@dataclass(frozen=True)
class Liveness:
    """The way from the images to the logits.

    Attributes:
        order: relevant nodes (that depend on the images and that the logits depend on) → place in execution order.
        crossing: node → the latest value that crosses it; a relevant node that is not a key is a valid cut.
        images: the placeholder of the images.
        logits: the node that is the net's output.
    """

    order: dict[fx.Node, int]
    crossing: dict[fx.Node, fx.Node]
    images: fx.Node
    logits: fx.Node

    def is_cut(self, node: fx.Node) -> bool:
        """Whether the net can be cut at ``node``: a value between images and logits that nothing crosses."""
        return node in self.order and node not in self.crossing and node not in (self.images, self.logits)


def liveness(graph: fx.Graph) -> Liveness | None:
    """Sweep the graph once; ``None`` if its output is not one value computed from its input."""
    nodes = list(graph.nodes)
    images = next(node for node in nodes if node.op == "placeholder")
    logits = next(node for node in nodes if node.op == "output").args[0]
    if not isinstance(logits, fx.Node):
        return None
    needed = ancestors(logits)
    order: dict[fx.Node, int] = {images: 0}
    for node in nodes:
        if node in needed and any(source in order for source in node.all_input_nodes):
            order[node] = len(order)
    if logits not in order or images not in needed:
        return None
    return Liveness(order, _crossing(order), images, logits)


def ancestors(node: fx.Node, until: fx.Node | None = None) -> set[fx.Node]:
    """All nodes that ``node`` is computed from, itself included, not looking behind ``until``."""
    found, waiting = {node}, [node]
    while waiting:
        current = waiting.pop()
        if current is until:
            continue
        fresh = [source for source in current.all_input_nodes if source not in found]
        found.update(fresh)
        waiting.extend(fresh)
    return found


def _crossing(order: dict[fx.Node, int]) -> dict[fx.Node, fx.Node]:
    last_use = {node: max((order[user] for user in node.users if user in order), default=-1) for node in order}
    crossing: dict[fx.Node, fx.Node] = {}
    alive: list[fx.Node] = []
    for node, place in order.items():
        alive = [value for value in alive if last_use[value] > place]
        if alive:
            crossing[node] = alive[-1]
        alive.append(node)
    return crossing
