"""Where the nodes of a graph stand in a picture, and how the lines between them go.

Nodes stand in layers, each below all that it begins with. A line that passes layers has a place of
its own in each of them, so that it crosses no node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

GAP_X, GAP_Y = 28.0, 56.0
"""Between two nodes of a layer, and between two layers."""
LINE_WIDTH = 16.0
"""Room for a line that passes a layer."""
SWEEPS = 6

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """Where a node stands."""

    x: float
    """Of its left side."""
    y: float
    """Of its upper side."""
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line from a node to one that begins with it."""

    parent: str
    child: str
    points: Sequence[Point]
    """From the lower side of the one to the upper side of the other; straight through the layers
    between, curved from layer to layer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """A picture of a graph."""

    nodes: Mapping[str, Box]
    lines: Sequence[Line]
    width: float
    height: float


_Key = str | tuple[str, str, int]
"""A node, or the place of the line between two nodes in a layer."""


def lay_out(
    parents: Mapping[str, Sequence[str]], sizes: Mapping[str, Point], margin: float = 0.0
) -> Layout:
    """Return the picture of a graph without circles. `parents` has what each node begins with, and
    each node after those; `sizes` the width and height of each."""
    layer_of = _layers(parents)
    layers, links = _with_lines(parents, layer_of)
    _order(layers, links)
    widths = {key: _width(key, sizes) for layer in layers for key in layer}
    middles = _across(layers, links, widths)
    left = min(middles[key] - widths[key] / 2 for key in middles) - margin
    nodes: dict[str, Box] = {}
    sides: list[tuple[float, float]] = []
    y = margin
    for layer in layers:
        height = max(sizes[key][1] for key in layer if isinstance(key, str))
        for key in layer:
            if isinstance(key, str):
                width, own = sizes[key]
                x = middles[key] - left - width / 2
                nodes[key] = Box(x=x, y=y, width=width, height=own)
        sides.append((y, y + height))
        y += height + GAP_Y
    lines = [
        _line(parent, child, nodes, layer_of, sides, {k: m - left for k, m in middles.items()})
        for child, those in parents.items()
        for parent in dict.fromkeys(those)
    ]
    width = max(middles[key] - left + widths[key] / 2 for key in middles)
    return Layout(nodes=nodes, lines=lines, width=width + margin, height=y - GAP_Y + margin)


def _layers(parents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the layer of each node: below all its parents, and one that has none right above the
    first that begins with it."""
    found: dict[str, int] = {}
    for name, those in parents.items():
        found[name] = 1 + max((found[each] for each in those), default=-1)
    for name in parents:
        below = [found[other] for other, those in parents.items() if name in those]
        if not parents[name] and below:
            found[name] = min(below) - 1
    return found


def _with_lines(
    parents: Mapping[str, Sequence[str]], layer_of: Mapping[str, int]
) -> tuple[list[list[_Key]], list[tuple[_Key, _Key]]]:
    """Return the layers, with a place for each line that passes one, and what is linked to what in
    the layer below it."""
    layers: list[list[_Key]] = [[] for _ in range(1 + max(layer_of.values()))]
    links: list[tuple[_Key, _Key]] = []
    for name, layer in layer_of.items():
        layers[layer].append(name)
    for child, those in parents.items():
        for parent in dict.fromkeys(those):
            above: _Key = parent
            for layer in range(layer_of[parent] + 1, layer_of[child]):
                passing = (parent, child, layer)
                layers[layer].append(passing)
                links.append((above, passing))
                above = passing
            links.append((above, child))
    return layers, links


def _order(layers: Sequence[list[_Key]], links: Sequence[tuple[_Key, _Key]]) -> None:
    """Put each layer in the order of what its nodes are linked to, from above and from below in
    turn, so that few lines cross."""
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        fixed = list(layers if downwards else reversed(layers))
        for there, here in pairwise(fixed):
            rank = {key: float(number) for number, key in enumerate(there)}
            own = {key: float(number) for number, key in enumerate(here)}
            wanted = {key: _mean(_linked(key, links, rank), own[key]) for key in here}
            here.sort(key=lambda key: wanted[key])


def _across(
    layers: Sequence[Sequence[_Key]],
    links: Sequence[tuple[_Key, _Key]],
    widths: Mapping[_Key, float],
) -> dict[_Key, float]:
    """Return the middle of each, from left to right: near what it is linked to."""
    middles: dict[_Key, float] = {}
    for layer in layers:
        middles |= _apart(layer, dict.fromkeys(layer, 0.0), widths)
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = {key: _mean(_linked(key, links, middles), middles[key]) for key in layer}
            middles |= _apart(layer, wanted, widths)
    return middles


def _apart(
    layer: Sequence[_Key], wanted: Mapping[_Key, float], widths: Mapping[_Key, float]
) -> dict[_Key, float]:
    """Return middles as near to the wanted ones as those of a layer get that do not overlap."""
    groups: list[tuple[list[_Key], list[float], float]] = []
    for key in layer:
        keys, offsets, middle = [key], [0.0], wanted[key]
        while groups:
            others, theirs, at = groups[-1]
            room = (widths[others[-1]] + widths[keys[0]]) / 2 + GAP_X
            shift = theirs[-1] + room - offsets[0]
            if middle + offsets[0] - (at + theirs[-1]) >= room:
                break
            groups.pop()
            keys, offsets = others + keys, theirs + [shift + each for each in offsets]
            middle = _mean([wanted[k] - o for k, o in zip(keys, offsets, strict=True)], 0.0)
        groups.append((keys, offsets, middle))
    return {
        key: middle + offset
        for keys, offsets, middle in groups
        for key, offset in zip(keys, offsets, strict=True)
    }


def _linked(
    key: _Key, links: Sequence[tuple[_Key, _Key]], known: Mapping[_Key, float]
) -> list[float]:
    above = [known[one] for one, other in links if other == key and one in known]
    return above + [known[other] for one, other in links if one == key and other in known]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _width(key: _Key, sizes: Mapping[str, Point]) -> float:
    return sizes[key][0] if isinstance(key, str) else LINE_WIDTH


def _line(
    parent: str,
    child: str,
    nodes: Mapping[str, Box],
    layer_of: Mapping[str, int],
    sides: Sequence[tuple[float, float]],
    middles: Mapping[_Key, float],
) -> Line:
    begins, ends = nodes[parent], nodes[child]
    points = [(begins.middle, begins.y + begins.height)]
    points.append((begins.middle, sides[layer_of[parent]][1]))
    for layer in range(layer_of[parent] + 1, layer_of[child]):
        x = middles[parent, child, layer]
        points += [(x, sides[layer][0]), (x, sides[layer][1])]
    points.append((ends.middle, ends.y))
    return Line(parent=parent, child=child, points=points)
