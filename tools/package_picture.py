"""Draws the packages and their allowed imports from `.importlinter`, for docs/explanation/architecture.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

_WIDTH: Final = 1000
_MARGIN: Final = 24
_GAP: Final = 40
_INSET: Final = 16
_ROW: Final = 36
_CHIP: Final = 26
_ARROW: Final = 18
_LETTER: Final = 7.4
_PADDING: Final = 8

_HEAD: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" \
aria-labelledby="title desc" font-family="system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', \
'DejaVu Sans', sans-serif">
  <title id="title">The packages of Hetuflow and their allowed imports</title>
  <desc id="desc">{description}</desc>
  <!-- Made by docs/generate.py from .importlinter: edit that and run it again. -->
  <style>
    .ground {{ fill: #ffffff; stroke: #d8dee9 }}
    .area {{ fill: #f5f7fb; stroke: #dfe5ef }}
    .layer {{ fill: #e9edf5 }}
    .box {{ fill: #ffffff; stroke: #b9c4d6 }}
    .head {{ fill: #1f2a3d; font-size: 16px; font-weight: 600 }}
    .name {{ fill: #1f2a3d; font-size: 13px; text-anchor: middle }}
    .note {{ fill: #55627a; font-size: 13px }}
    .line {{ fill: none; stroke: #6b7890; stroke-width: 2 }}
    .tip {{ fill: #6b7890 }}
    @media (prefers-color-scheme: dark) {{
      .ground {{ fill: #161b26; stroke: #2b3446 }}
      .area {{ fill: #1c2331; stroke: #2f3a4f }}
      .layer {{ fill: #293246 }}
      .box {{ fill: #232c3d; stroke: #46536b }}
      .head, .name {{ fill: #e8edf7 }}
      .note {{ fill: #a9b5ca }}
      .line {{ stroke: #8b98b0 }}
      .tip {{ fill: #8b98b0 }}
    }}
  </style>
  <defs>
    <marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="6" markerHeight="6" orient="auto">
      <path class="tip" d="M0 0 L10 5 L0 10 z"/>
    </marker>
  </defs>
  <rect class="ground" x="1" y="1" width="{inner_width}" height="{inner_height}" rx="16"/>"""


@dataclass
class Group:
    """Consecutive layers of a contract below a comment."""

    heading: str
    layers: list[list[str]] = field(default_factory=list)


def picture(contracts: str) -> str:
    """The SVG of a file in the format of `.importlinter`."""
    (packages,) = _groups(_section(contracts, "sides"))
    shapes: list[str] = []
    top = float(_MARGIN)
    for layer in packages.layers:
        panels = [
            (package, _groups(_section(contracts, package.removeprefix("hetuflow_")))) for package in layer
        ]
        bottom, drawn = _panel_row(panels, top)
        shapes += drawn
        if layer is not packages.layers[-1]:
            shapes.append(_line(_WIDTH / 2, bottom + 6, _WIDTH / 2, bottom + _GAP - 6))
        top = bottom + _GAP
    height = int(top - _GAP + _MARGIN)
    head = _HEAD.format(
        width=_WIDTH,
        height=height,
        inner_width=_WIDTH - 2,
        inner_height=height - 2,
        description=escape("; ".join(_description(contracts, packages))),
    )
    return "\n".join([head, *shapes, "</svg>", ""])


def _section(contracts: str, name: str) -> list[str]:
    """The lines of the list of layers of a contract."""
    section = contracts.partition(f"[importlinter:contract:{name}]\n")[2]
    lines = section.partition("\nlayers =\n")[2].splitlines()
    end = next((number for number, line in enumerate(lines) if not line.startswith(" ")), len(lines))
    return [line.strip() for line in lines[:end]]


def _groups(lines: Sequence[str]) -> list[Group]:
    groups = [Group("")]
    for line in lines:
        if line.startswith("#"):
            groups.append(Group(line.removeprefix("#").strip(" .")))
        else:
            groups[-1].layers.append(re.findall(r"\w+", line))
    return [group for group in groups if group.layers]


def _description(contracts: str, packages: Group) -> Iterator[str]:
    for layer in packages.layers:
        for package in layer:
            groups = _groups(_section(contracts, package.removeprefix("hetuflow_")))
            layers = [" and ".join(names) for group in groups for names in group.layers]
            yield f"{package}: {', then '.join(layers)}"


def _panel_row(panels: Sequence[tuple[str, list[Group]]], top: float) -> tuple[float, list[str]]:
    """Panels side by side, as wide as they have names; the end of the tallest, and the shapes."""
    weights = [
        len([name for group in groups for layer in group.layers for name in layer]) for _, groups in panels
    ]
    room = _WIDTH - 2 * _MARGIN - (len(panels) - 1) * _MARGIN
    left = float(_MARGIN)
    drawn = []
    for (package, groups), weight in zip(panels, weights, strict=True):
        width = room * weight / sum(weights)
        drawn.append(
            (package, left, width, *_content(groups, left + _INSET, left + width - _INSET, top + 40))
        )
        left += width + _MARGIN
    bottom = max(end for *_, end, _ in drawn) + _INSET
    shapes = []
    for package, start, width, _, content in drawn:
        shapes.append(_rect("area", start, top, width, bottom - top, 12))
        shapes.append(_text("head", start + _INSET, top + 28, package))
        shapes += content
    return bottom, shapes


def _content(groups: Sequence[Group], left: float, right: float, top: float) -> tuple[float, list[str]]:
    shapes: list[str] = []
    y = top
    for group in groups:
        if group.heading:
            shapes.append(_text("note", left, y + 18, group.heading))
            y += 26
        x = left
        for layer in group.layers:
            widths = [_chip_width(name) for name in layer]
            whole = sum(widths) + _PADDING / 2 * (len(widths) - 1)
            if x > left and x + min(whole, right - left) > right:
                x, y = left, y + _ROW
            x, y, chips = _layer(layer, widths, x, y, left, right)
            shapes += chips
            if layer is not groups[-1].layers[-1]:
                shapes.append(_line(x + 3, y + _CHIP / 2, x + _ARROW - 3, y + _CHIP / 2))
            x += _ARROW
        y += _ROW
    return y - (_ROW - _CHIP), shapes


def _layer(
    names: Sequence[str], widths: Sequence[float], x: float, y: float, left: float, right: float
) -> tuple[float, float, list[str]]:
    """Boxes on a common ground; one that does not fit begins a new line."""
    grounds: list[str] = []
    boxes: list[str] = []
    for name, width in zip(names, widths, strict=True):
        if x > left and x + width > right:
            x, y = left, y + _ROW
        if len(names) > 1:
            grounds.append(_rect("layer", x - 4, y - 4, width + 8, _CHIP + 8, 6))
        boxes.append(_rect("box", x, y, width, _CHIP, 6))
        boxes.append(_text("name", x + width / 2, y + 17, name))
        x += width + _PADDING / 2
    return x - _PADDING / 2, y, grounds + boxes


def _chip_width(name: str) -> float:
    return len(name) * _LETTER + 2 * _PADDING + 4


def _rect(kind: str, x: float, y: float, width: float, height: float, radius: int) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" rx="{radius}"'
    return f'  <rect class="{kind}" x="{x:.0f}" y="{y:.0f}" {size}/>'


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'  <text class="{kind}" x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'  <path class="line" marker-end="url(#tip)" d="M{x1:.0f} {y1:.0f} L{x2:.0f} {y2:.0f}"/>'
