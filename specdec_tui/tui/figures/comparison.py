"""The table at the end of a prompt: every strategy against the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.theme import Theme
from textual.widgets import DataTable

from specdec_tui.decoding.figures import RunFigures, speedup
from specdec_tui.decoding.records import EndReason, Lossless, LosslessStatus
from specdec_tui.tui.figures.words import lossless_part
from specdec_tui.tui.lines.sanitize import visible

Row = tuple[str, RunFigures, Lossless | None]

# Most wanted first: what does not fit is a scroll away, beside the strategy's name.
COLUMNS = (
    "strategy",
    "tok/s",
    "speedup",
    "α",
    "τ",
    "lossless",
    "drafted",
    "accepted",
    "rejected",
    "unverified",
    "wasted",
    "prefill s",
    "draft / verify / other",
)


_WORDS = ("strategy", "lossless")


class ComparisonTable(DataTable[Text]):
    """Numbers of all panes side by side; the best speedup carries a star."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "comparison--best",
        "comparison--good",
        "comparison--slow",
        "comparison--bad",
    }

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes, cursor_type="none", fixed_columns=1, cell_padding=1)
        self._shown: Sequence[Row] = ()

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, self._theme_changed)

    def _theme_changed(self, _theme: Theme) -> None:
        self.show(self._shown)

    def show(self, rows: Sequence[Row]) -> None:
        """Fill the table with (strategy, figures, verdict) rows, in their order."""
        self._shown = tuple(rows)
        self.clear(columns=True)
        for column in COLUMNS:
            self.add_column(Text(column, justify="left" if column in _WORDS else "right"), key=column)
        baseline = next((figures for name, figures, _ in rows if name == "target"), None)
        ratios = [_ratio(name, figures, baseline) for name, figures, _ in rows]
        best = max(
            (r for (name, *_), r in zip(rows, ratios, strict=True) if r is not None and name != "drafter"), default=None
        )
        for (name, figures, lossless), ratio in zip(rows, ratios, strict=True):
            is_best = ratio is not None and ratio == best and ratio > 1 and name != "drafter"  # it writes another text
            self.add_row(*self._cells(name, figures, lossless, ratio, is_best))

    def _cells(
        self, name: str, figures: RunFigures, lossless: Lossless | None, ratio: float | None, is_best: bool
    ) -> list[Text]:
        label = f"{'★' if is_best else ' '} {visible(name)}"
        drafts = figures.drafted > 0
        return [
            self._styled(label, "best" if is_best else ""),
            _number(figures.decode_tokens_per_second, ".1f"),
            self._speedup(name, figures, ratio, is_best),
            _number(figures.acceptance_rate, ".2f"),
            _number(figures.tokens_per_target_call, ".2f"),
            self._verdict(name, figures, lossless),
            *(
                _number(count if drafts else None, "d")
                for count in (figures.drafted, figures.accepted, figures.rejected, figures.unverified)
            ),
            _number(figures.wasted_rate, ".0%"),
            _number(figures.prefill_seconds or None, ".2f"),
            Text(_shares(figures), justify="right"),
        ]

    def _speedup(self, name: str, figures: RunFigures, ratio: float | None, is_best: bool) -> Text:
        if name == "target" and figures.decode_tokens_per_second is not None:
            return Text("1.00×", justify="right")
        if ratio is None:
            return Text("–", justify="right")
        kind = "best" if is_best else "slow" if ratio < 0.995 else ""
        return self._styled(f"{ratio:.2f}×{' slower' if ratio < 0.995 else ''}", kind, right=True)

    def _verdict(self, name: str, figures: RunFigures, lossless: Lossless | None) -> Text:
        end = figures.end
        if end is not None and end.reason is EndReason.ERROR:
            return self._styled("failed", "bad")
        if lossless is None:
            return Text("not checked")
        kinds = {
            LosslessStatus.IDENTICAL: "good",
            LosslessStatus.NEAR_TIES: "slow",
            LosslessStatus.DIFFERENT: "bad",
        }
        is_reference = name == "target" and lossless.status is LosslessStatus.IDENTICAL
        kind = "" if is_reference else kinds.get(lossless.status, "")
        return self._styled(lossless_part(lossless, name == "target")[0], kind)

    def _styled(self, text: str, kind: str, right: bool = False) -> Text:
        style = self.get_component_rich_style(f"comparison--{kind}", partial=True) if kind else ""
        return Text(text, style=style, justify="right" if right else "left")


def _ratio(name: str, figures: RunFigures, baseline: RunFigures | None) -> float | None:
    return None if name == "target" or baseline is None else speedup(baseline, figures)


def _number(value: float | None, form: str) -> Text:
    return Text("–" if value is None else format(value, form), justify="right")


def _shares(figures: RunFigures) -> str:
    """Where the decode time went, in percent."""
    total = figures.decode_seconds
    if not total:
        return "–"
    parts = (figures.draft_seconds, figures.verify_seconds, figures.other_seconds)
    return " / ".join(f"{part / total:.0%}" for part in parts)
