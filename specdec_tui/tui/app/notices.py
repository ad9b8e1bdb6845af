"""What the app has said lately. It stands in the run line, where it covers nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from textual.content import Content
from textual.notifications import SeverityLevel

from specdec_tui.tui.commands.header import one_row

_LOOKS: dict[SeverityLevel, tuple[str, str]] = {
    "information": ("", "$text-accent"),
    "warning": ("! ", "$text-warning"),
    "error": ("✗ ", "$text-error"),
}
_MOST_SHOWN = 3


Holds = Callable[[], bool]
"""Whether what a notice says of a state is still so."""


def always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for a person, and until when it stands at most (on the clock of `Notices`)."""

    text: str
    severity: SeverityLevel
    until: float
    holds: Holds = always

    @property
    def content(self) -> Content:
        """The text may come from anyone, so it is never read as markup."""
        sign, colour = _LOOKS[self.severity]
        return Content.styled(sign + self.text, colour)


class Notices:
    """The notices that still stand, in the order in which they were said."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._said: list[Notice] = []

    def say(
        self, text: str, severity: SeverityLevel = "information", seconds: float = 5, holds: Holds = always
    ) -> bool:
        """Add a notice; False when it is the last one and still stands."""
        text = one_row(text)
        standing = self.standing
        if standing and standing[-1].text == text:
            return False
        self._said = [*standing, Notice(text, severity, self._clock() + seconds, holds)]
        return True

    def clear(self) -> None:
        self._said = []

    @property
    def standing(self) -> list[Notice]:
        now = self._clock()
        self._said = [notice for notice in self._said if notice.until > now and notice.holds()]
        return self._said

    @property
    def shown(self) -> list[Notice]:
        """The newest first. Of mere information, only what was said last: the line is no list of events."""
        standing = self.standing
        problems = [notice for notice in standing[:-1] if notice.severity != "information"]
        return [*standing[-1:], *reversed(problems)][:_MOST_SHOWN]
