"""Tokens have the texts that the server told of them, and where it did not, none is cut out of another."""

import pytest

from specdec_tui.traces.served.steps import ServedStep, texts_of


@pytest.mark.parametrize(
    ("pieces", "text", "texts"),
    [
        ([" four", ","], " four,", (" four", ",")),
        ([".", "<|im_end|>"], ".", (".", "<|im_end|>")),  # an end token stands behind the text
        (["<|im_end|>"], "", ("<|im_end|>",)),
        (["\ufffd", "\ufffd"], "é", ("", "é")),  # two halves of a character
        (["\ufffd"], "", ("",)),  # the other half is still to come
        ([" four", ","], " fo", ("", " fo")),  # a stop string cut it
        ([" four"], " four,", ("", " four,")),  # fewer pieces than tokens
        (None, " four,", ("", " four,")),
    ],
)
def test_the_last_token_has_the_whole_text_where_pieces_do_not_make_it_up(
    pieces: list[str] | None, text: str, texts: tuple[str, ...]
) -> None:
    assert texts_of(pieces, text, len(texts)) == texts


def test_drafts_that_were_not_accepted_are_those_that_are_untold() -> None:
    assert ServedStep((1, 2), ("a", "b"), 0.1, 1, 4).untold == 3
    assert ServedStep((1,), ("a",), 0.1, 0, None).untold is None
