"""The lanes of a race: a bar for each strategy, how far it is, and who is when. Pure functions to lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from specdec_tui.decoding.figures import DRAFT_NOTHING, OTHER_TEXTS
from specdec_tui.decoding.records import EndReason
from specdec_tui.decoding.standing import Standing, Verdict
from specdec_tui.doors.characters import visible
from specdec_tui.several_drafters import key_of
from specdec_tui.tui.figures.words import BAD, GOOD, OTHER_TEXT, QUIET, WARN, Part, speed_text
from specdec_tui.tui.panes.strip import brief
from specdec_tui.tui.race.course import Moment, Phase
from specdec_tui.tui.race.race import Race, has_finished

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEAST_BAR, _FULL_NAMES = 8, 60
_WITH_PREFILL = (" with prefill", " +prefill", "")
"""Behind the seconds of an end, the longest for which there is room: tokens/s are without it, and may say otherwise."""
_SIGNS = {Phase.DRAFT: "▒ draft…", Phase.VERIFY: "█ verify…", Phase.PREFILL: "░ prefill…"}
_VERDICTS = {Verdict.FASTER: GOOD, Verdict.SLOWER: WARN, Verdict.DISTURBED: WARN}


@dataclass(frozen=True, slots=True)
class Lane:
    """A strategy on its way. `place`: once it has finished the target's text, a strategy of another text has none;
    `ahead`: tokens before the target's, at the same time.
    """

    moment: Moment
    place: int | None = None
    ahead: int | None = None
    found: Standing | None = None
    """How it stood against the target, once all is over."""

    @property
    def strategy(self) -> str:
        return self.moment.strategy


def lanes_of(race: Race, standings: Mapping[str, Standing | None]) -> list[Lane]:
    """In the order of the panes; of a race that is over in that of their places."""
    places, moments = race.places, race.moments
    target = next((one for one in moments if one.strategy == "target"), None)
    lanes = [
        Lane(one, places.get(one.strategy), _ahead(one, target), standings.get(one.strategy) if race.over else None)
        for one in sorted(moments, key=lambda one: (key_of(one.strategy) == "", key_of(one.strategy)))
    ]
    return sorted(lanes, key=lambda lane: lane.place or len(lanes) + 1) if race.over else lanes


def _ahead(moment: Moment, target: Moment | None) -> int | None:
    """None where tokens are not to be compared: of another tokenizer, or settled by a search, which is late."""
    if target is None or moment.strategy == "target" or moment.searches or moment.own_tokens or target.own_tokens:
        return None
    return moment.tokens - target.tokens


@dataclass(frozen=True, slots=True)
class _Column:
    """`rank`: the lower, the sooner it has room; `least`: cells that it has at any time of the race."""

    rank: int
    cell: Callable[[Lane], Part]
    least: int = 0
    is_number: bool = True


def lane_lines(lanes: Sequence[Lane], race: Race, chosen: str, width: int) -> list[Content]:
    """A line for each lane in so many cells, the bars of all of them on one scale; columns are whole or not there."""
    for suffix in _WITH_PREFILL if race.over else ("",):
        lines, is_whole = _lane_lines(lanes, race, chosen, width, suffix)
        if is_whole:
            break
    return lines


def _lane_lines(lanes: Sequence[Lane], race: Race, chosen: str, width: int, suffix: str) -> tuple[list[Content], bool]:
    """The same with so much behind the seconds of those that have ended; and whether all columns and bars have room."""
    goal = race.goal
    of_goal = len(f"/{goal}") + len(str(goal))
    digits = 2 if race.length < 10 else 1
    name = _Column(0, lambda lane: _name(lane, chosen, width), is_number=False)
    count = _Column(2, lambda lane: (f"{lane.moment.tokens}/{goal}", ""), of_goal)
    rate = _Column(5, lambda lane: (_rate(lane.moment), QUIET), 8)
    if race.over:
        columns = [
            count,
            rate,
            _Column(1, lambda lane: _outcome(lane, digits, width, suffix), is_number=False),
            _Column(3, lambda lane: _speedup(lane), is_number=True),
            _Column(4, lambda lane: _word(lane), is_number=False),
        ]
    else:
        writes_other = any(lane.strategy in OTHER_TEXTS for lane in lanes)
        widest = len(
            f"{race.length:.{digits}f} s{_other(width)}" if writes_other else f"1st {race.length:.{digits}f} s"
        )
        columns = [
            count,
            rate,
            _Column(4, _gap, len(f"{goal} behind")),
            _Column(
                1, lambda lane: _outcome(lane, digits, width), max(widest, len(_SIGNS[Phase.PREFILL])), is_number=False
            ),
        ]
    names = [name.cell(lane) for lane in lanes]
    name_cells = max(map(_cells, names), default=0)
    room = width - name_cells - 1
    kept: dict[int, int] = {}
    is_whole = True
    for index in sorted(range(len(columns)), key=lambda index: columns[index].rank):
        column = columns[index]
        cells = max([column.least, *(_cells(column.cell(lane)) for lane in lanes)])
        if cells and cells + 2 + (_LEAST_BAR if column.rank > 1 else 0) <= room:
            kept[index] = cells
            room -= cells + 2
        elif cells:
            is_whole = False
    lines = []
    for lane, (text, style) in zip(lanes, names, strict=True):
        parts: list[Part] = [(text + " " * (name_cells - cell_len(text)), style), (" ", "")]
        if room > 1:
            parts.append((_bar(lane.moment.tokens, goal, room), "$primary"))
        for index in sorted(kept):
            word, look = columns[index].cell(lane)
            blanks = " " * (kept[index] - cell_len(word))
            parts += [
                ("  ", ""),
                *([(blanks, ""), (word, look)] if columns[index].is_number else [(word + blanks, look)]),
            ]
        lines.append(Content.assemble(*parts).truncate(max(1, width)))
    return lines, is_whole and room >= _LEAST_BAR


def _cells(part: Part) -> int:
    return cell_len(part[0])


def _name(lane: Lane, chosen: str, width: int) -> Part:
    name = lane.strategy if width >= _FULL_NAMES else brief(lane.strategy)
    is_chosen = lane.strategy == chosen
    return (
        f"{'▸' if is_chosen else ' '}{f'{key_of(lane.strategy)} {visible(name)}'.lstrip()}",
        "bold" if is_chosen else "",
    )


def _bar(tokens: int, goal: int, cells: int) -> str:
    eighths = round(8 * cells * tokens / goal) if goal else 0
    full, part = divmod(min(eighths, 8 * cells), 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(cells)


def _rate(moment: Moment) -> str:
    return "" if moment.rate is None else f"{speed_text(moment.rate)}/s"


def _gap(lane: Lane) -> Part:
    if lane.ahead is None:
        return "", ""
    return (f"{abs(lane.ahead)} {'ahead' if lane.ahead > 0 else 'behind'}" if lane.ahead else "even"), ""


def ordinal(place: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`; nobody has more than ten strategies."""
    return f"{place}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(place, 'th') }"


def _other(width: int) -> str:
    return f", {OTHER_TEXT}" if width >= _FULL_NAMES else ", other"


def _outcome(lane: Lane, digits: int, width: int, suffix: str = "") -> Part:
    """What it does, or how it ended."""
    moment = lane.moment
    if moment.end is None and moment.phase is Phase.VERIFY and moment.strategy in DRAFT_NOTHING:
        return "█ step…", QUIET
    if moment.end is None:
        return _SIGNS.get(moment.phase, moment.phase.value), WARN if moment.phase is Phase.BROKEN_OFF else QUIET
    end, seconds = moment.end
    if lane.place is not None:
        return f"{ordinal(lane.place)} {seconds:.{digits}f} s{suffix}", "bold"
    if has_finished(moment):
        return f"{seconds:.{digits}f} s{_other(width)}", QUIET
    return end.words, BAD if end.reason is EndReason.ERROR else WARN


def _speedup(lane: Lane) -> Part:
    if lane.strategy == "target":
        return "baseline", QUIET
    return ("", "") if lane.found is None else (lane.found.marked, _VERDICTS.get(lane.found.verdict, ""))


def _word(lane: Lane) -> Part:
    """Whether the clock can be believed."""
    if lane.found is None or lane.strategy == "target":
        return "", ""
    if lane.found.doubt:
        return lane.found.doubt, WARN
    return "steady", QUIET
