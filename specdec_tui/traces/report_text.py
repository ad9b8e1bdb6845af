"""A strategy's text in HTML: every token in the colours of its fate, with what is known of it on hover."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from specdec_tui.decoding.chances import chances, is_greedy, judgement, kind
from specdec_tui.decoding.records import (
    Insight,
    Notice,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
    tokens_of,
)
from specdec_tui.glossary import FATES, fate_word
from specdec_tui.traces.export import pairs_of
from specdec_tui.traces.markup import element, safe, spelled
from specdec_tui.traces.tokens import ALTERNATIVES, ENTROPIES

_ORDER = (
    Status.ACCEPTED,
    Status.RESAMPLED,
    Status.BONUS,
    Status.SAMPLED,
    Status.REJECTED,
    Status.UNVERIFIED,
)
_LOST = (Status.REJECTED, Status.UNVERIFIED, Status.PENDING)


def spellings(steps: Iterable[Step], texts: Mapping[int, str]) -> dict[int, str]:
    """Token ids with their texts: those that the trace spells out, else as they stood in these steps."""
    seen = {token.id: text for step in steps for token, text in pairs_of(step)}
    return seen | dict(texts)


def text_of(steps: Sequence[Step], names: Mapping[int, str]) -> str:
    """The tokens of a run, drafts that were not kept beside those that were."""
    return element("div", *_pieces(steps, names), class_="tokens")


def notices_of(steps: Sequence[Step]) -> str:
    """What the run had to say besides its tokens."""
    messages = [step.record.message for step in steps if isinstance(step.record, Notice)]
    messages += [step.record.message for step in steps if isinstance(step.record, RunEnded) and step.record.message]
    return "".join(element("p", safe(message), class_="quiet") for message in messages)


def legend() -> str:
    found = []
    for fate in _ORDER:
        glyph, meaning = FATES[fate]
        found.append(
            element("span", element("b", f"{glyph} {fate.value}", class_=fate.value), f" {safe(meaning)}") + " "
        )
    return element("p", *found, class_="legend")


def _pieces(steps: Sequence[Step], names: Mapping[int, str]) -> Iterator[str]:
    searches = any(isinstance(step.record, RunStarted) and step.record.beams for step in steps)
    for step in steps:
        record = step.record
        if isinstance(record, PrefillDone):
            place = "prefill"
        elif isinstance(record, RoundVerified):
            place = f"round {record.round + 1}"
        else:
            if isinstance(record, RunEnded):
                yield safe("".join(step.texts))
            continue
        greedy = is_greedy(tokens_of(record))
        for token, text in pairs_of(step):
            fate = f"{FATES[token.status][0]} {fate_word(token.status.value, searches)}"
            where = f"{place} · token {token.position + 1} · {fate}"
            yield _piece(token, text, _told(token, text, where, greedy, names))


def _piece(token: Token, text: str, told: str) -> str:
    lost = token.status in _LOST
    classes = token.status.value + (" lost" if lost else "")
    if not text:
        return f'<span class="{classes} empty" title="{told}"></span>'
    if lost:
        return f'<span class="{classes}" title="{told}">{safe(spelled(text))}</span>'
    if not text.strip("\n"):
        classes += " break"
    return f'<span class="{classes}" title="{told}">{safe(text)}</span>'


def _told(token: Token, text: str, where: str, greedy: bool, names: Mapping[int, str]) -> str:
    lines = [where, f"‘{spelled(text)}’ · id {token.id}"]
    lines += [" · ".join(words) for words in (chances(token, greedy), judgement(token, greedy)) if words]
    if token.insight is not None:
        lines += _insight(token.insight, kind(greedy), names)
    return safe("\n".join(lines)).replace("\n", "&#10;")


def _insight(insight: Insight, what_kind: str, names: Mapping[int, str]) -> Iterator[str]:
    entropies = [(name.removesuffix("_entropy"), getattr(insight, name)) for name in ENTROPIES]
    known = [f"{whose} {value:.3f}" for whose, value in entropies if value is not None]
    if known:
        yield f"{what_kind} entropy (nats): " + ", ".join(known)
    for name in ALTERNATIVES:
        pairs = getattr(insight, name)
        if pairs:
            tops = (f"{spelled(names[index]) if index in names else f'#{index}'} {p:.3f}" for index, p in pairs)
            what = "residual max(0, p − q) scaled to sum 1" if name == "residual_top" else name.removesuffix("_top")
            yield f"{what_kind} {what}: " + "  ".join(tops)
