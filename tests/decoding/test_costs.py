"""What clocks say about the cost of rounds, and that nobody draws it from clocks that contradict each other."""

import ast
from pathlib import Path

import pytest

import specdec_tui
from specdec_tui.decoding import figures
from specdec_tui.decoding.costs import NAMES, Costs, costs, without_disturbed
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import PrefillDone, RoundVerified, RunStarted, Status, Token

PACKAGE = Path(specdec_tui.__file__).parent


def run_of(strategy: str, step: float, drafts: int = 0) -> RunFigures:
    found = RunFigures()
    found.add(RunStarted(strategy, 3, drafts, 999))
    found.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    own = tuple(Token(1, Status.ACCEPTED, 0) for _ in range(drafts))
    for index in range(90 if not drafts else 40):
        found.add(RoundVerified(index, own, Token(2, Status.BONUS, 0), 0.01 * drafts, step, 0.0))
    return found


TARGET, RUN = run_of("target", 0.1), run_of("speculative", 0.1, drafts=1)


def test_costs_are_the_figures_of_steady_clocks() -> None:
    found = costs(RUN, TARGET)
    assert found.named() == {
        "cost_ratio": pytest.approx(0.1),
        "verify_ratio": pytest.approx(1.0),
        "predicted_speedup": pytest.approx(2 / 1.1),
        "remainder": pytest.approx(0),
    }
    assert not found.withheld and costs(RUN, None) == Costs()


def test_costs_of_a_disturbed_clock_are_withheld_with_the_reason() -> None:
    """The machine was three times as slow while the target ran: c would be 0.03 and v 0.33."""
    slow = run_of("target", 0.3)
    assert figures.cost_ratio(RUN, slow) and figures.verify_ratio(RUN, slow) and figures.prediction(RUN, slow)
    found = costs(RUN, slow)
    assert set(found.named().values()) == {None}
    assert found.withheld == "passes over more tokens took 100 ms, over one token 300 ms in target"


def test_costs_that_another_version_kept_of_a_disturbed_clock_are_withheld_too() -> None:
    kept = dict.fromkeys(NAMES, 1.5) | {"speedup": 2.0, "reliability": {"word": "steady"}}
    assert without_disturbed(kept) == kept
    kept["reliability"] = {"word": "disturbed"}
    assert without_disturbed(kept) == kept | dict.fromkeys(NAMES)


def test_nobody_else_computes_costs() -> None:
    """Else c and v of a disturbed run stand somewhere as if they were good."""
    names = {"cost_ratio", "verify_ratio", "prediction", "remainder"}
    for path in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        taken = {a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
        called = {n.func for n in nodes if isinstance(n, ast.Call)}
        taken |= {f.attr for f in called if isinstance(f, ast.Attribute)}
        assert path.name in ("costs.py", "figures.py") or not taken & names, f"{path.name} takes {taken & names}"
