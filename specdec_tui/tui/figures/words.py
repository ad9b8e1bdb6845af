"""What a pane says about its run in words and numbers: pure functions from figures to parts of a line."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from specdec_tui.decoding.costs import TIMES_VARY, shown_costs
from specdec_tui.decoding.figures import DRAFT_NOTHING, OTHER_TEXTS, RunFigures
from specdec_tui.decoding.form_distance import OWN, ROUNDED
from specdec_tui.decoding.records import EndReason, Lossless, LosslessStatus
from specdec_tui.decoding.standing import RECOMPUTES, Standing, Verdict, standing
from specdec_tui.doors.characters import visible
from specdec_tui.tui.commands.table import key

# (text, Textual style). Text is shown as it is, never read as markup.
Part = tuple[str, str]

QUIET = "$quiet"
GOOD = "bold $token-accepted"
WARN = "bold $token-resampled"
BAD = "bold $token-rejected"

PLAIN_STRATEGIES = DRAFT_NOTHING
"""Those that draft nothing."""

# Columns from which a line has room for a sum.
_WIDE_LINE = 90
_LEAST_REASON, _LEAST_VERDICT = 30, 8
_BARS = "▁▂▃▄▅▆▇█"


class PaneState(StrEnum):
    """What the run of a pane is doing."""

    IDLE = "idle"
    ABSENT = "absent"  # others have run since
    WAITING = "waiting"
    CAPTURING = "capturing"
    PREFILL = "prefill"
    RUNNING = "running"
    ENDED = "ended"
    BROKEN_OFF = "broken off"  # of a trace: the app was left in the middle of the run

    @property
    def is_empty(self) -> bool:
        """Whether it tells of no run."""
        return self in (PaneState.IDLE, PaneState.ABSENT)


def sparkline(values: Sequence[int], highest: int) -> str:
    """One bar per value, full height at `highest`."""
    top = max(1, highest)
    return "".join(_BARS[min(7, max(0, (value * 8 - 1) // top))] for value in values)


SO_FAR, OTHER_TEXT = "so far", "another text"


def is_so_far(figures: RunFigures, baseline: RunFigures | None) -> bool:
    """Whether a run is over and its baseline is not: what is measured of it still changes, over the text both have."""
    goes_on = baseline is not None and baseline.end is None and not baseline.is_of_another_time
    return goes_on and figures.end is not None


def speedup_parts(found: Standing, label: str = "", in_words: bool = True, qualified: str = "") -> list[Part]:
    """A speedup, and beside it whatever keeps it from being what it seems, in words or as bare marks.

    `label`: of what other time the baseline is. `qualified`: what else is to be known.
    """
    parts: list[Part]
    text = found.text if in_words else found.marked
    match found.verdict:
        case Verdict.DISTURBED:
            parts = [("clock disturbed ", WARN), (text, "bold")]
        case Verdict.SLOWER:
            parts = [(f"{text}, slower", WARN)]
        case Verdict.FASTER:
            parts = [(text, GOOD)]
        case Verdict.SHORT | Verdict.UNCHECKED:
            parts = [(text, "bold"), (f", {found.doubt}", QUIET)]
        case _:
            parts = [(text, "bold")]
    if qualified:
        parts.append((f"{'' if qualified == SO_FAR else ','} {qualified}", QUIET))
    if in_words and found.marks:
        parts.append((f" ({found.remarks})", WARN))
    if label:
        parts.append((f" vs. {visible(label)}", QUIET))
    return parts


def speed_groups(
    figures: RunFigures,
    baseline: RunFigures | None,
    found: Standing | None,
    is_target: bool,
    label: str = "",
    in_words: bool = True,
) -> list[list[Part]]:
    """What a run has achieved so far, most important group first; nothing before it has a speed.

    `label`: of what other time the baseline is; where there is none, what stands in the place of a speedup.
    `in_words`: so is what is to be known of a speedup.
    """
    rate = figures.decode_tokens_per_second
    if rate is None:
        return []
    groups: list[list[Part]] = [[(speed_text(rate), "bold"), (" tok/s", QUIET)]]
    if is_target:
        groups.append(_baseline_parts(figures))
    elif found is not None:
        known = [OTHER_TEXT] * (figures.strategy in OTHER_TEXTS) + [SO_FAR] * is_so_far(figures, baseline)
        groups.append(speedup_parts(found, label, in_words, " ".join(known)))
    elif baseline is None and label:
        groups.append([(visible(label), "$text-accent")])
    if figures.acceptance_rate is not None:
        groups.append([("α ", QUIET), (f"{figures.acceptance_rate:.2f}", "bold")])
    if figures.drafted and figures.tokens_per_target_call is not None:
        groups.append([("τ ", QUIET), (f"{figures.tokens_per_target_call:.2f}", "bold")])
    return groups


def _baseline_parts(figures: RunFigures) -> list[Part]:
    """Of the target's own run."""
    return [("baseline", QUIET), *([(f" ({RECOMPUTES} recomputes)", WARN)] if figures.recomputes else [])]


def speed_words(figures: RunFigures, baseline: RunFigures | None, is_target: bool, label: str = "") -> str:
    """The same without colours, for a run that is over."""
    found = None if is_target else standing(figures, baseline)
    groups = speed_groups(figures, baseline, found, is_target, label)
    if found is not None and found.is_disturbed:
        groups.append([(found.reason, "")])
    return " · ".join("".join(text for text, _ in group) for group in groups)


def cost_groups(figures: RunFigures, baseline: RunFigures | None, width: int) -> list[list[Part]]:
    """What the costs of a run let one expect of it: the predicted speedup, how far off it is, c and v.

    `width`: of a line of their own, 0 where they have none.
    In a wide line with how it comes about: tokens expected of a round ÷ its cost in steps of the target. Where the
    times of steps vary, that stands in the place of all of them.
    """
    found = shown_costs(figures, baseline)
    if found.missing == TIMES_VARY:
        what: list[Part] = [("predicted, c, v: ", QUIET)] if width else []
        return [[*what, (found.missing, WARN)]]
    groups: list[list[Part]] = []
    if (predicted := found.predicted_speedup) is not None:
        if width >= _WIDE_LINE:
            tokens, steps = quotient(found.tokens or 0.0, found.steps or 0.0, predicted)
            parts = (tokens, " tok/round ÷ ", steps, " target steps = ", f"{predicted:.2f}×")
            groups.append([(text, QUIET if index % 2 else "bold") for index, text in enumerate(parts)])
            groups[0].append((" predicted", QUIET))
        else:
            groups.append([("predicted ", QUIET), (f"{predicted:.2f}×", "bold")])
        if is_so_far(figures, baseline):
            groups[0].append((f" {SO_FAR}", QUIET))
        if (off := found.remainder) is not None:
            share = "±0 %" if abs(off) < 0.005 else f"{off * 100:+.0f} %".replace("-", "−")
            groups.append([("measured ", QUIET), (share, "bold")])
    for name, value in (("c", found.cost_ratio), ("v", found.verify_ratio)):
        if value is not None:
            # A draft's is taken γ times: two digits that count.
            groups.append([(f"{name} ", QUIET), (f"{value:.{3 if 0.0005 <= value < 0.0995 else 2}f}", "bold")])
    return groups


def quotient(above: float, below: float, result: float) -> tuple[str, str]:
    """Two numbers with digits enough that dividing what is printed gives `result` as it is printed."""
    for digits in range(2, 6):
        printed = f"{above:.{digits}f}", f"{below:.{digits}f}"
        divisor = float(printed[1])
        if divisor and f"{float(printed[0]) / divisor:.2f}" == f"{result:.2f}":
            break
    return printed


def speed_text(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.1f}" if rate < 1000 else f"{rate:.0f}"


def shortened(sentence: str, width: int) -> str:
    """As many whole words of a sentence as fit into `width` cells."""
    if cell_len(sentence) <= width:
        return sentence
    words = sentence.split()
    while words and cell_len(" ".join(words)) >= width:
        words.pop()
    return (" ".join(words) or set_cell_size(sentence, max(0, width - 1)).rstrip()) + "…"


def in_rows(text: Content, width: int, rows: int) -> Content:
    """A text wrapped between words; the last of its rows says with `…` that there was no room for more."""
    lines = text.wrap(max(1, width))
    if len(lines) > rows > 0:
        last = lines[rows - 1].rstrip()
        kept = shortened(f"{last.plain} {'·' * width}", width) if last.plain else "…"
        lines[rows - 1 :] = [Content.assemble(last[: len(kept) - 1], "…")]
    return Content("\n").join(lines)


def _cells(line: Sequence[Part]) -> int:
    return sum(cell_len(text) for text, _ in line)


def fit_groups(groups: Sequence[Sequence[Part]], width: int, gap: str = "  ", first: int = 0) -> list[Part]:
    """As many whole groups as fit into `width` cells, in their order; group `first` is always there."""
    kept: set[int] = set()
    used = 0
    for index in sorted(range(len(groups)), key=lambda index: index != first):
        cells = _cells(groups[index]) + (cell_len(gap) if kept else 0)
        if not kept or used + cells <= width:
            kept.add(index)
            used += cells
    line: list[Part] = []
    for index in sorted(kept):
        line += [(gap, QUIET), *groups[index]] if line else groups[index]
    return line


def status_line(groups: Sequence[Sequence[Part]], width: int, first: int = 0) -> list[Part]:
    """A status line in so many cells. Group `first` is always there.

    A reason why nothing was checked gives way to how many tokens there are: what stands behind its comma, then words
    from its end, then all of it behind another word.
    """
    gap = " · "
    room = width - _cells(groups[0]) - len(gap)
    *before, (said, style) = groups[first]
    is_reason = style == QUIET and not said.startswith("~")  # else a verdict: whole
    if first and is_reason and _cells(groups[first]) > room:
        left = room - _cells(before)
        clause = said.partition(", ")[0]
        short = clause if cell_len(clause) <= left else shortened(said, left)
        has_room = cell_len(short) >= _LEAST_VERDICT
        kept = before[:-1] if before and not has_room else [*before, (short if has_room else said, style)]
        groups = [*groups[:first], kept, *groups[first + 1 :]]
    return fit_groups(groups, width, gap, first)


def figure_lines(
    figures: RunFigures,
    baseline: RunFigures | None,
    is_target: bool,
    width: int,
    *,
    label: str = "",
    rows: int = 1,
    beside_gauges: bool = False,
    can_grow: bool = False,
    can_repeat: bool = True,
    pinned: Sequence[list[Part]] = (),
) -> Content:
    """Figures in one or two rows, and in the room left a bar for each of the last rounds.

    In a row of its own stands what one should expect of the run, or why its clock cannot be believed.
    `pinned`: how they differ from pinned ones, which has room before what one should expect.
    `beside_gauges`: what these say is left out. `can_grow`: for such a reason there is a second row.
    """
    found = None if is_target else standing(figures, baseline)
    has_room = rows > 1 or beside_gauges
    is_disturbed = found is not None and found.is_disturbed
    rows += is_disturbed and rows < 2 and can_grow
    reason = _LEAST_REASON + 2 if is_disturbed and rows < 2 else 0
    speed = speed_groups(figures, baseline, found, is_target, label)
    told: list[list[Part]] = []  # what bare marks mean
    if _cells(fit_groups(speed[:2], 2**15)) > width - reason:
        speed = speed_groups(figures, baseline, found, is_target, label, in_words=False)
        told = [] if beside_gauges else _caveats(found, "")
    # What is predicted comes from the same clocks.
    cost = [] if is_target or is_disturbed else cost_groups(figures, baseline, width if has_room else 0)
    cost = [*pinned, *cost]
    caveats = _caveats(found, label) if beside_gauges else []
    if beside_gauges:
        rest = [group for group in speed if group[0][0] in ("τ ", visible(label))]
        speed = [_baseline_parts(figures)] if is_target else [*caveats, *rest]
    if found is not None and is_disturbed:
        # Groups before the reason: the speed, and that it is disturbed; gauges have said that.
        said = 0 if rows > 1 else len(caveats) if beside_gauges else 2
        room = width - _cells(fit_groups(speed[:said] or told, width)) - 2 * bool(speed[:said] or told)
        behind: list[list[Part]] = []
        if rows > 1 and told and cell_len(found.reason) > room and RECOMPUTES not in found.marks:
            room, told, behind = width, [], told
        repeats = [[(f"{key('run again')} repeats", "$text-accent")]] if can_repeat and figures.end is not None else []
        cost = [[(shortened(found.reason, room), QUIET)], *repeats, *behind] if room >= _LEAST_REASON else repeats
        cost = [*cost, *pinned]
        if rows < 2:
            speed, cost, told = [*speed[:said], *cost, *speed[said:]], [], []
    # A speed without how it stands, or that its clock cannot be believed, would be taken at its word.
    main = 1 if found is not None and not beside_gauges and _cells(fit_groups(speed[:2], 2**15)) > width else 0
    if rows < 2:
        line = fit_groups(speed[:2] + told + speed[2:] + cost, width, first=main)
        return Content.assemble(*_with_bars(line, figures, width))
    first = _with_bars(fit_groups(speed, width, first=main), figures, width)
    return Content("\n").join([Content.assemble(*first), Content.assemble(*fit_groups(told + cost, width))])


def _caveats(found: Standing | None, label: str) -> list[list[Part]]:
    """What is to be known of a speedup that is shown elsewhere with its marks."""
    if found is None:
        return []
    groups: list[list[Part]] = [[(found.remarks, WARN)]] if found.marks else []
    return [*groups, [(f"vs. {visible(label)}", QUIET)]] if label else groups


def _with_bars(line: list[Part], figures: RunFigures, width: int) -> list[Part]:
    """Full height is a round whose drafts were all accepted."""
    room = width - _cells(line) - 2
    if not figures.drafted or room < 4:
        return line
    bare = f"0–{figures.gamma + 1} "
    scale = next((words for words in (f"tok/round {bare}", bare) if room >= 12 + len(words)), "")
    shown = figures.tokens_per_round[-min(room - len(scale), 40) :]
    bars = [(scale, QUIET)] if scale else []
    return [*line, ("  ", ""), *bars, (sparkline(shown, figures.gamma + 1), "$secondary")]


def lossless_part(lossless: Lossless, is_target: bool = False) -> Part:
    """The verdict of the lossless check in a few words. Token numbers count from 1."""
    if is_target and lossless.status in (LosslessStatus.IDENTICAL, LosslessStatus.NOT_APPLICABLE):
        return ("the reference", QUIET)
    match lossless.status:
        case LosslessStatus.IDENTICAL:
            return (f"✓ identical to {ROUNDED if OWN in lossless.detail else 'target'}", GOOD)
        case LosslessStatus.NEAR_TIES:
            ties = f"{lossless.ties} near-tie{'' if lossless.ties == 1 else 's'}"
            gap = "" if lossless.gap is None else f" (max gap {lossless.gap:.2g})"
            return (f"≈ {ties}{gap}", WARN)
        case LosslessStatus.DIFFERENT:
            where = "" if lossless.first_divergence is None else f" from token {lossless.first_divergence + 1}"
            return (f"✗ DIFFERENT{where}", BAD)
    if "lossy" in lossless.detail:
        return ("≠ lossy", WARN)
    if not lossless.detail or "distribution" in lossless.detail:
        return ("~ same distribution, other draws", QUIET)
    return (visible(lossless.detail), QUIET)


def status_parts(
    state: PaneState, figures: RunFigures, max_new_tokens: int, lossless: Lossless | None, is_target: bool
) -> tuple[list[list[Part]], int]:
    """The status line's groups in reading order, and which of them matters most."""
    match state:
        case PaneState.IDLE:
            return [[("no run yet", QUIET)]], 0
        case PaneState.ABSENT:
            return [[("not in the last run", QUIET)]], 0
        case PaneState.WAITING:
            return [[("waiting", QUIET)]], 0
        case PaneState.CAPTURING:
            return [[("compiling, capturing…", "$token-bonus")]], 0
        case PaneState.PREFILL:
            tokens = figures.prompt_tokens
            return [[(f"reading {tokens} prompt token{'' if tokens == 1 else 's'}…", "$token-bonus")]], 0
    end = figures.end
    unit = " token" if max_new_tokens == 1 else " tokens"
    if figures.searches and end is None:
        unit += " settled"  # the text that is shown is longer
    groups: list[list[Part]] = [[(f"{figures.new_tokens}/{max_new_tokens}", "bold"), (unit, QUIET)]]
    first = 0
    if end is not None and end.reason is not EndReason.LENGTH:
        bad = end.reason is EndReason.ERROR
        groups.append([(end.words, BAD if bad else QUIET)])
    if state is PaneState.BROKEN_OFF:
        groups.append([("not ended", WARN)])
        first = len(groups) - 1
    if lossless is not None:
        verdict = lossless_part(lossless, is_target)
        if end is not None and end.reason in (EndReason.CANCELLED, EndReason.ERROR):
            # One group: a verdict on a part of the text must not be read without saying so, but once.
            said = verdict[0].startswith(end.words)
            groups[-1] = [verdict] if said else [*groups[-1], (" · ", QUIET), verdict]
        else:
            groups.append([verdict])
        first = len(groups) - 1
    if figures.prefill_seconds:
        groups.append([(f"prefill {figures.prefill_seconds:.2f} s", QUIET)])
    if figures.capture_seconds:
        groups.append([(f"captured in {figures.capture_seconds:.1f} s", QUIET)])
    if end is not None and end.reason is EndReason.LENGTH:
        groups.append([(end.words, QUIET)])
    return groups, first
