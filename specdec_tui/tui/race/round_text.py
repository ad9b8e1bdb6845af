"""The round that a strategy is at, in three lines: what is drafted, what is verified, what is kept. No widget here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.cells import cell_len
from textual.content import Content

from specdec_tui.decoding.figures import DRAFT_NOTHING, OF_THE_DRAFTER
from specdec_tui.decoding.records import (
    EMITTED,
    DraftsProposed,
    PrefillDone,
    RoundVerified,
    Status,
    Step,
    Token,
    beams_of,
    tokens_of,
)
from specdec_tui.doors.characters import visible
from specdec_tui.settings import SERVED, SPECULATIVE
from specdec_tui.tui.figures.words import QUIET, Part
from specdec_tui.tui.race.course import Moment, Phase
from specdec_tui.tui.tokens.chips import Kind, Run, cells_in, chip

_LABEL, _GAP = 8, " → "
_LEAST_CHIP, _EASY_CHIP, _MOST_CHIP = 4, 8, 18

Chips = list[list[Run]]


def round_title(moment: Moment) -> str:
    """`round 10`, counted from 1; what there is before the first."""
    match moment.shown and moment.shown.record:
        case DraftsProposed(round=index) | RoundVerified(round=index):
            return f"round {index + 1}"
        case PrefillDone():
            return "prefill"
    return "prompt"


def round_lines(moment: Moment, width: int) -> list[Content]:
    """Draft, verify and keep, each in at most `width` cells; tokens of a draft stand below each other."""
    step = moment.shown
    if step is None or isinstance(step.record, PrefillDone):
        kept = [] if step is None else _chips(step, tokens_of(step.record), _MOST_CHIP)
        return _lines([[], [], kept], _explanations(moment), width)
    drafts = step.record.drafts if isinstance(step.record, DraftsProposed | RoundVerified) else ()
    waits = isinstance(step.record, DraftsProposed)
    natural = max((cells_in(one) for one in _chips(step, drafts, _MOST_CHIP)), default=0)
    cells, count = _cells_for(len(drafts), natural, _widest(_explanations(moment, in_short=True)), width)
    drafted = _chips(step, [replace(token, status=Status.PENDING) for token in drafts[:count]], cells)
    if waits:
        verified: Chips = [[Run("…", None)] for _ in drafted]
        kept = [] if moment.before is None else _kept(moment.before, cells, width)
    else:
        verified = _chips(step, drafts[:count], cells)
        kept = _kept(step, cells, width)
    columns = [max(map(cells_in, pair)) for pair in zip(drafted, verified, strict=True)]
    rows = [_padded(drafted, columns), _padded(verified, columns), kept if waits else _padded(kept, columns)]
    if count < len(drafts):
        for row in rows[:2]:
            row.append([Run(f"+{len(drafts) - count}", None)])
    return _lines(rows, _explanations(moment), width, _explanations(moment, in_short=True), is_past=waits)


def _cells_for(drafts: int, natural: int, said: int, width: int) -> tuple[int, int]:
    """Cells of a token, and how many of so many drafts have room; what is `said` behind them gives way last."""
    if not drafts:
        return _MOST_CHIP, 0
    gap, room = len(_GAP), width - _LABEL
    for left, least in ((room - said - 2, _EASY_CHIP), (room, _LEAST_CHIP)):
        each = (left + gap) // drafts - gap
        if each >= min(least, natural):
            return min(each, natural), drafts
    fitting = max(0, (room - gap) // (_LEAST_CHIP + gap))
    return _LEAST_CHIP, min(fitting, drafts)


def _chips(step: Step, tokens: Sequence[Token], cells: int, first: int = 0) -> Chips:
    texts = step.texts[first:]
    return [
        chip(token, texts[index] if index < len(texts) else "", index, max(2, cells))
        for index, token in enumerate(tokens)
    ]


def _kept(step: Step, cells: int, width: int) -> Chips:
    """The tokens that a round added to the text; of many the last ones."""
    every = zip(tokens_of(step.record), step.texts, strict=False)
    pairs = [(token, text) for token, text in every if token.status in EMITTED]
    fitting = max(1, (width - _LABEL) // (max(2, cells) + len(_GAP)))
    left_out = max(0, len(pairs) - fitting)
    chips = [chip(token, text, index, max(2, cells)) for index, (token, text) in enumerate(pairs[left_out:])]
    return [[Run(f"{left_out} and", None)], *chips] if left_out else chips


def _padded(chips: Chips, columns: Sequence[int]) -> Chips:
    padded = []
    for index, runs in enumerate(chips):
        blanks = columns[index] - cells_in(runs) if index < len(columns) else 0
        padded.append([*runs, Run(" " * blanks, None)] if blanks > 0 else runs)
    return padded


def _lines(
    rows: Sequence[Chips], said: Sequence[str], width: int, in_short: Sequence[str] = (), is_past: bool = False
) -> list[Content]:
    """What is `said` of the lines stands behind them, or else what is said `in_short`, where there is room for it.

    `is_past`: what is kept is that of the round before.
    """
    written = []
    for label, row in zip(("draft", "verify", "keep"), rows, strict=True):
        gap = _GAP if label == "draft" else " " * len(_GAP)
        parts: list[Part] = [(f" {label:<{_LABEL - 1}}", "bold")]
        if label == "keep" and is_past and row:
            parts.append(("before: ", QUIET))
        for index, runs in enumerate(row):
            parts += [(gap, QUIET)] if index else []
            parts += [(run.text, _style(run)) for run in runs]
        written.append(parts)
    widths = [sum(cell_len(text) for text, _ in parts) for parts in written]
    begin = max(widths) + 2 * any(rows)
    if begin + _widest(said) > width and in_short:
        said = in_short
    for parts, cells, words in zip(written, widths, said, strict=True):
        if words and begin + cell_len(words) <= width:
            parts += [(" " * (begin - cells), ""), (words, QUIET)]
    return [Content.assemble(*parts).truncate(max(1, width), ellipsis=True) for parts in written]


def _widest(words: Sequence[str]) -> int:
    return max(map(cell_len, words), default=0)


def _style(run: Run) -> str:
    """Fates differ by glyph, and by style where there are no colours."""
    if run.status is None or run.kind is Kind.BLANK:
        return QUIET
    bold = "bold " if run.status in (Status.RESAMPLED, Status.BONUS) else ""
    strike = "strike " if run.status is Status.REJECTED and run.kind is Kind.TEXT else ""
    return f"{bold}{strike}$token-{run.status.value}"


def _explanations(moment: Moment, in_short: bool = False) -> tuple[str, str, str]:
    """What each of the three lines is about."""
    step, name = moment.shown, moment.strategy
    if step is None:
        prompt = f"reads {_count(moment.prompt_tokens, 'prompt token')}" if moment.phase is Phase.PREFILL else ""
        return "", prompt, ""
    record = step.record
    if isinstance(record, PrefillDone):
        return "", "the prompt is read in one pass", "the first token" if record.token else "no token yet"
    who = "the drafter" if name in OF_THE_DRAFTER else "the target"
    if moment.searches:
        beams = f"{who} goes on with {_count(len(beams_of(record)), 'text')} in one pass"
        settled = len(record.new_tokens) if isinstance(record, RoundVerified) else 0
        return "none: it searches", beams, f"{_count(settled, 'token')} settled"
    drafts = len(record.drafts) if isinstance(record, DraftsProposed | RoundVerified) else 0
    if name in SERVED:
        told = _count(len(record.new_tokens), "token") if isinstance(record, RoundVerified) else ""
        return "those that it kept: no other is told", "the server checks them", told and f"{told} for 1 step"
    if not drafts:
        none = "none: one token a pass" if name in DRAFT_NOTHING else "none this time"
        return none, f"{who} writes one token itself", "1 token for 1 pass"
    new = _count(len(record.new_tokens), "token") if isinstance(record, RoundVerified) else ""
    if in_short:
        return _drafted(name, drafts).partition(",")[0], f"{drafts + 1} places, 1 pass", new
    return _drafted(name, drafts), f"{who} reads all {drafts + 1} places at once", new and f"{new} for 1 target pass"


def _drafted(strategy: str, drafts: int) -> str:
    if strategy in SPECULATIVE:
        return f"{_count(drafts, 'draft pass', 'draft passes')}, one after another"
    if strategy == "lookup":
        return f"{drafts} copied, from the text: no pass"
    return f"{drafts} guessed, from what it has seen: no pass"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def chosen_words(moment: Moment) -> str:
    """Whose round it is: `speculative, round 10`."""
    return f"{visible(moment.strategy)}, {round_title(moment)}"
