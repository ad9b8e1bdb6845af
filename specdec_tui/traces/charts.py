"""Line and bar charts as inline SVG, coloured by the classes of the page's style sheet. No script, no dependency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

from specdec_tui.traces.markup import element, safe

WIDTH, HEIGHT = 480, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 18, 42


@dataclass(frozen=True, slots=True)
class Series:
    """A line through (x, y) points, drawn in the colour of the style sheet's class `tone`."""

    name: str
    points: Sequence[tuple[float, float]]
    tone: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar with what stands under it and above it."""

    label: str
    value: float
    shown: str


def line_chart(
    title: str, x_label: str, y_label: str, series: Sequence[Series], *, right: float = 0, top: float = 0
) -> str:
    """Lines over a common origin (0, 0), with a legend; empty where there is nothing to draw.

    The axes reach at least to `right` and `top`, so that charts beside each other can be compared.
    """
    drawn = [Series(s.name, [p for p in s.points if isfinite(p[0]) and isfinite(p[1])], s.tone) for s in series]
    drawn = [s for s in drawn if s.points]
    if not drawn:
        return ""
    right = max(right, *(x for s in drawn for x, _ in s.points)) or 1
    top = max(top, *(y for s in drawn for _, y in s.points)) or 1
    x_step, y_step = _step(right, 6), _step(top, 5)
    top = (floor(top / y_step + 0.999) or 1) * y_step
    parts = [*_horizontals(top, y_step, y_label)]
    for count in range(floor(right / x_step) + 1):
        parts.append(_text(_x(count * x_step, right), HEIGHT - _BOTTOM + 15, f"{count * x_step:g}", "middle"))
    parts.append(_text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 6, x_label, "middle"))
    for line in drawn:
        places = [f"{_x(x, right):.1f},{_y(y, top):.1f}" for x, y in line.points]
        path = " ".join(places if len(places) > 1 else places * 2)
        parts.append(f'<polyline class="line {safe(line.tone)}" points="{path}"/>')
    legend = "".join(
        element("span", element("i", class_=f"key {line.tone}"), safe(line.name), class_="entry") for line in drawn
    )
    return _figure(title, parts, legend)


def bar_chart(title: str, x_label: str, y_label: str, bars: Sequence[Bar], tone: str, *, top: float = 0) -> str:
    """Bars from 0 to `top` (0: the highest of them); empty where there are none."""
    bars = [bar for bar in bars if isfinite(bar.value)]
    if not bars:
        return ""
    highest = top or max(bar.value for bar in bars) or 1
    step = _step(highest, 5)
    room = (WIDTH - _LEFT - _RIGHT) / len(bars)
    every = max(1, round(34 / room + 0.49))  # a label takes up to 34 pixels
    highest = highest if top else highest + step / 2
    parts = [*_horizontals(highest, step, y_label)]
    for index, bar in enumerate(bars):
        left, height = _LEFT + room * (index + 0.12), _y(0, highest) - _y(bar.value, highest)
        parts.append(
            f'<rect class="bar {safe(tone)}" x="{left:.1f}" y="{_y(bar.value, highest):.1f}" '
            f'width="{room * 0.76:.1f}" height="{height:.1f}"><title>{safe(f"{bar.label}: {bar.shown}")}</title></rect>'
        )
        if index % every == 0:
            middle = _LEFT + room * (index + 0.5)
            parts.append(_text(middle, HEIGHT - _BOTTOM + 15, bar.label, "middle"))
            parts.append(_text(middle, max(_y(bar.value, highest) - 4, 11), bar.shown, "middle"))
    parts.append(_text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 6, x_label, "middle"))
    return _figure(title, parts, "")


def _figure(title: str, parts: Sequence[str], legend: str) -> str:
    drawing = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{safe(title)}">{"".join(parts)}</svg>'
    below = element("div", legend, class_="legend") if legend else ""
    return element("figure", element("figcaption", safe(title)), drawing, below)


def _horizontals(top: float, step: float, label: str) -> list[str]:
    parts = [_text(2, 11, label, "start")]
    for count in range(floor(top / step + 1e-9) + 1):
        y = _y(count * step, top)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if y > 26:  # the axis' name stands above
            parts.append(_text(_LEFT - 6, y + 4, f"{count * step:g}", "end"))
    return parts


def _step(top: float, parts: int) -> float:
    """A round distance (1, 2 or 5 times a power of ten) of about `top / parts`."""
    rough = top / parts
    power = 10.0 ** floor(log10(rough)) if rough > 1e-300 else 1e-300
    return power * next((factor for factor in (1, 2, 5) if factor * power >= rough), 10)


def _x(value: float, right: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * value / right


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{safe(text)}</text>'
