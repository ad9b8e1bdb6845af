from __future__ import annotations

from specdec_tui.settings import Settings
from specdec_tui.tui.figures.summary import summary


def test_one_token_is_one_token() -> None:
    assert " 1 token ·" in summary(Settings(max_new_tokens=1))
    assert " 2 tokens ·" in summary(Settings(max_new_tokens=2))
