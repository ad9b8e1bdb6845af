"""A γ-lab over runs made by hand, in an app of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from widget_data import HostApp

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import EndReason, PrefillDone, RoundVerified, RunEnded, RunStarted, Status, Token
from specdec_tui.tui.lab.reading import Progress, Subject
from specdec_tui.tui.lab.screen import LabScreen


def run_of(
    gamma: int = 4,
    alpha: float = 0.6,
    draft: float = 0.08,
    verify: float = 0.012,
    strategy: str = "speculative",
    seed: int = 1,
    tokens: int = 128,
    pace: float = 1.0,
) -> RunFigures:
    """Decoding `tokens`: a plain pass takes a second, each draft `draft`, and a pass `verify` more for each draft."""
    dice, found, made, number = Random(seed), RunFigures(), 1, 0
    found.add(RunStarted(strategy, 12, gamma, tokens))
    found.add(PrefillDone(Token(1, Status.SAMPLED, 0), 0.2))
    while made < tokens:
        room = min(gamma, tokens - made - 1)
        kept = 0
        while kept < room and dice.random() < alpha:
            kept += 1
        fates = [Status.ACCEPTED] * kept + [Status.REJECTED] * (kept < room)
        fates += [Status.UNVERIFIED] * (room - len(fates))
        drafts = tuple(Token(5, fate, made + place) for place, fate in enumerate(fates))
        slow = (1 + 0.02 * dice.random()) * pace
        times = draft * room * slow, (1 + verify * room) * slow, 0.0
        found.add(RoundVerified(number, drafts, Token(6, Status.SAMPLED, made + kept), *times))
        made, number = made + kept + 1, number + 1
    found.add(RunEnded(EndReason.LENGTH))
    return found


def plain(tokens: int = 128, seed: int = 9) -> RunFigures:
    return run_of(0, strategy="target", tokens=tokens, seed=seed)


@dataclass
class Bench:
    """A laboratory that remembers what it was asked."""

    subjects: dict[str, Subject]
    about: str = "γ 4 · greedy · 128 tokens · “Why is the sky [/blue]?”"
    progress: Progress | None = None
    notice: str = ""
    refusal: str = ""
    asked: list[str] = field(default_factory=list)

    @property
    def strategies(self) -> Sequence[str]:
        return list(self.subjects)

    def subject(self, strategy: str) -> Subject:
        return self.subjects[strategy]

    def no_sweep(self, strategy: str) -> str:
        return self.refusal

    def sweep(self, strategy: str) -> None:
        self.asked.append(f"sweep {strategy}")
        self.progress = Progress(strategy, 1, 6, 42.0)

    def stop_sweep(self) -> None:
        self.asked.append("stop")
        self.progress = None

    def take(self, gamma: int) -> None:
        self.asked.append(f"take {gamma}")


def bench(swept: bool = False) -> Bench:
    """Of the target, a drafter that pays and a look-up without a sweep."""
    pairs = [(run_of(gamma, seed=seed, alpha=0.6), plain(seed=seed)) for gamma in range(1, 9) for seed in (11, 12, 13)]
    return Bench(
        {
            "target": Subject("target", plain(), plain()),
            "speculative": Subject("speculative", run_of(), plain(), "", pairs if swept else ()),
            "lookup": Subject("lookup", run_of(strategy="lookup", draft=0.0, verify=0.05, alpha=0.01), plain()),
        }
    )


class LabApp(HostApp):
    """The lab alone on the screen."""

    def __init__(self, of: Bench, theme: str = "specdec-dark", ansi_color: bool | None = None) -> None:
        super().__init__(theme=theme, ansi_color=ansi_color)
        self.lab = LabScreen(of, "speculative", ("1", "3", "5"))

    def on_mount(self) -> None:
        self.push_screen(self.lab)
