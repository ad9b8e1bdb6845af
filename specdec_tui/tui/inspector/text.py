"""What the inspector says of one token, for a width: why it is so, what else could have been, and its details.

No widget here. Parts are (text, Textual style); their text is shown as it is and never read as markup.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len

from specdec_tui.decoding.chances import chances, kind
from specdec_tui.decoding.records import DraftsProposed, PrefillDone, RoundVerified, Status
from specdec_tui.glossary import fate_word
from specdec_tui.tui.commands.table import key
from specdec_tui.tui.figures.words import QUIET
from specdec_tui.tui.inspector.alternatives import Line, alternatives
from specdec_tui.tui.inspector.coin import coin_line
from specdec_tui.tui.inspector.look import Look
from specdec_tui.tui.inspector.reasons import why
from specdec_tui.tui.tokens.chips import clip, spell
from specdec_tui.tui.tokens.style import GLYPHS

_TEXT_STYLES = {Status.REJECTED: "strike", Status.RESAMPLED: "bold", Status.BONUS: "bold", Status.UNVERIFIED: "italic"}
_LEAST_COIN = 12  # cells
_HOLDS = "\N{NO-BREAK SPACE}"


def hint() -> str:
    """How to come by what is not known."""
    return f"no alternatives: {key('commands')}, insight on, then {key('run again')}"


def title_of(look: Look, name: str, width: int) -> Line:
    """`why ✗ ·surpass · speculative · round 5, draft 2 of 4 · rejected`, cut to `width` from behind."""
    token = look.token
    colour = f"$token-{token.status.value}"
    head: Line = [("why ", ""), (f"{GLYPHS[token.status]} ", colour)]
    chip = clip(spell(look.text), max(4, min(30, width // 2)))
    title = [*head, (chip, f"{colour} {_TEXT_STYLES.get(token.status, '')}".rstrip())]
    for word in (name, look.round_words, fate_word(token.status.value, look.searches)):
        title.append((f" · {word}", ""))
    return _cut(title, width)


def inspector_lines(look: Look, width: int, rows: int = 100) -> list[Line]:
    """The reasons, the list of alternatives and the details; no line is wider than `width` cells.

    Where only so many `rows` are in sight at once, the rule, its coin and the bars of what was drafted and drawn
    are among the first.
    """
    reasons = why(look)
    colour = f"$token-{look.token.status.value}"
    given, rule = wrapped(reasons.given, "", width), wrapped(reasons.rule, colour, width)
    so = wrapped(reasons.so, "", width)
    coin: list[Line] = []
    if reasons.chance is not None and width >= _LEAST_COIN:
        coin = [coin_line(reasons.chance, reasons.draw, width)]
    below = alternatives(look, width)
    chosen = 1 + len(look.chosen) if below else 0  # with the head of the list
    if len(given) + len(rule) + len(coin) + len(so) + chosen <= rows:
        lines = [*given, *rule, *coin, *so, *below]
    else:
        lines = [*rule, *coin, *below, *([[]] if below else []), *given, *so]
    return [*lines, *([[]] if below else []), *details(look, width)]


def details(look: Look, width: int) -> list[Line]:
    """What is known of the token besides: figures, entropies, where it stands, the clock."""
    token, greedy, seen = look.token, look.greedy, look.token.insight
    lines: list[Line] = []
    for text in chances(token, greedy):
        lines += wrapped(text, "", width)
    if seen is not None:
        entropies = [("target", seen.target_entropy), ("drafter", seen.drafter_entropy)]
        known = [f"{name} {value:.2f}" for name, value in entropies if value is not None]
        if known:
            lines += wrapped(f"{kind(greedy)} entropy: {', '.join(known)} nats", "", width)
    lines += wrapped(f"{look.round_words} · token {token.position + 1} · id {token.id}", QUIET, width)
    lines += _clock(look, width)
    lacking = "no alternatives: the server told none" if look.served else hint()
    return lines if seen is not None else [*lines, *wrapped(lacking, QUIET, width)]


def _clock(look: Look, width: int) -> list[Line]:
    by_calls = look.by_calls
    match look.record:
        case PrefillDone(seconds=seconds, wire_seconds=wire):
            readings = [("prefill", seconds), *[("of it wire", wire)] * by_calls]
        case RoundVerified() as record if look.served:
            readings = [("the whole round", record.seconds)]
        case RoundVerified(wire_seconds=wire) as record:
            readings = [("draft", record.draft_seconds), ("server" if by_calls else "verify", record.verify_seconds)]
            readings += [*[("wire", wire)] * by_calls, ("other", record.other_seconds)]
        case DraftsProposed():
            return []
    text = ", ".join(f"{name} {seconds * 1e3:.1f}" for name, seconds in readings)
    return wrapped(f"clock: {text} ms", QUIET, width)


def _cut(parts: Sequence[tuple[str, str]], width: int) -> Line:
    """Whole parts as long as they fit."""
    kept: Line = []
    for text, style in parts:
        width -= cell_len(text)
        if width < 0:
            break
        kept.append((text, style))
    return kept


def wrapped(text: str, style: str, width: int) -> list[Line]:
    """A sentence in lines of `width` cells, 8 at least; what belongs to a formula or a figure stays together."""
    for whole in (" − ", " = ", "0, ", "(1, ", "log p + g_t", ") 0.", ") below "):
        text = text.replace(whole, whole.replace(" ", _HOLDS))
    lines = textwrap.wrap(text, max(8, width))
    return [[(line.replace(_HOLDS, " "), style)] for line in lines]
