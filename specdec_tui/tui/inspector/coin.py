"""A coin between 0 and 1: how far a draft is accepted, and where the number that decided fell. No widget here."""

from __future__ import annotations

from rich.cells import cell_len

from specdec_tui.decoding.chances import in_digits
from specdec_tui.tui.figures.words import Part

COIN = "▲"
_KEEPS, _EDGE, _REFUSES = "━", "┫", "┄"
_ACCEPT = " accept "


def coin_line(chance: float, draw: float | None, width: int) -> list[Part]:
    """`0 ━━ accept ━━━━┫┄┄┄▲ 0.83┄┄┄ 1` in `width` cells: `draw` is accepted where it falls below `chance`.

    The coin is never drawn on the wrong side of the edge, and a chance that is neither 0 nor 1 leaves both sides.
    """
    cells = max(2, width - 4)
    chance = min(1.0, max(0.0, chance))
    kept = round(chance * cells)
    kept = kept if chance in (0.0, 1.0) else min(cells - 1, max(1, kept))
    line = [_KEEPS] * kept + [_REFUSES] * (cells - kept)
    if kept > 0:
        line[kept - 1] = _EDGE
    coin = None if draw is None else _place(draw, chance, kept, cells)
    taken = set() if coin is None else {coin}
    if coin is not None and draw is not None:
        line[coin] = COIN
        taken |= _write(line, f" {in_digits(draw, 2)}", [coin + 1, coin - 1 - len(in_digits(draw, 2))], taken)
    inside = range(max(0, (kept - len(_ACCEPT)) // 2), -1, -1) if kept > len(_ACCEPT) + 1 else ()
    _write(line, _ACCEPT, [*inside, kept], taken | ({kept - 1} if kept else set()))
    parts: list[Part] = [("0 ", "$quiet")]
    for start, end, style in ((0, kept, "$token-accepted"), (kept, cells, "$token-rejected")):
        text = "".join(line[start:end])
        if coin is not None and start <= coin < end:
            at = coin - start
            parts += [(text[:at], style), (COIN, f"bold {style}"), (text[at + 1 :], style)]
        else:
            parts.append((text, style))
    return [part for part in [*parts, (" 1", "$quiet")] if part[0]]


def _place(draw: float, chance: float, kept: int, cells: int) -> int:
    cell = min(cells - 1, max(0, int(draw * cells)))
    return min(cell, kept - 1) if draw < chance and kept else max(cell, kept) if kept < cells else cell


def _write(line: list[str], text: str, starts: list[int], taken: set[int]) -> set[int]:
    """Put a text where it fits first without covering what is taken; returns the cells it took."""
    for start in starts:
        cells = set(range(start, start + cell_len(text)))
        if start >= 0 and max(cells) < len(line) and not cells & taken:
            line[start : start + len(text)] = text
            return cells
    return set()
