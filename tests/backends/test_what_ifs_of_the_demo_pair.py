"""What-ifs of the demo pair under every rule: the text is that of decoding from the prefix with the same noise."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specdec_tui.backends.loading import Pair
from specdec_tui.decoding import loop
from specdec_tui.decoding.drafters import ModelDrafter
from specdec_tui.decoding.records import EMITTED, Checked, Event, LosslessStatus, Origin, RunStarted, Step, tokens_of
from specdec_tui.decoding.sampling import Dice, PositionNoise
from specdec_tui.run_settings import rounds_of
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.strategy_parts import writer_of
from specdec_tui.what_ifs import WhatIf

pytestmark = pytest.mark.large
GREEDY = Settings(max_new_tokens=32, strategies=("speculative",), seed=7)
WARM = replace(GREEDY, processor="multinomial", temperature=0.8)
AT = 9


@pytest.fixture
def engine(demo_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    monkeypatch.setattr("specdec_tui.backends.loading.load_pair", lambda choice, progress: demo_pair)
    engine = LocalEngine()
    engine.load(ModelChoice(), lambda progress: None)
    return engine


def ids_of(events: list[Event]) -> list[int]:
    steps = (event for event in events if isinstance(event, Step))
    return [token.id for step in steps for token in tokens_of(step.record) if token.status in EMITTED]


def definition(pair: Pair, text: list[int], prompt: int, settings: Settings) -> list[int]:
    """Token by token, without the loop: the arg-max of the logits, of log p + g with the noise of each place."""
    noise = PositionNoise(settings.seed, pair.target.vocab_size, torch.device("cpu"))
    context, text, fed = pair.target.open(capacity=len(text) + 64), list(text), 0
    while len(text) - prompt < settings.max_new_tokens:
        row = context.extend(text[fed:], keep=1)[0]
        fed = len(text)
        if settings.processor != "greedy":
            row = (row.double() / settings.temperature).log_softmax(-1) - noise.at(len(text) - prompt).double().log()
        text.append(int(row.argmax()))
        if text[-1] in pair.end_ids:
            break
    return text


@pytest.mark.parametrize("rule", ["rejection", "coupled", "block", "skip-adjustment"])
@pytest.mark.parametrize("settings", [GREEDY, WARM], ids=["greedy", "T 0.8"])
def test_the_text_is_that_of_decoding_from_the_prefix(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, settings: Settings, rule: str
) -> None:
    settings = replace(settings, rule=rule)
    pair = engine._pair
    assert pair is not None
    run = list(engine.run("Why is the sky blue?", settings, lambda: False))
    start = next(event for event in run if isinstance(event, Step))
    assert isinstance(start.record, RunStarted)
    prompt = engine._read["target"].prompt.ids
    whole = ids_of(run)
    last = pair.target.open(capacity=200).extend([*prompt, *whole[:AT]], keep=1)[0]
    other = next(id for id in last.topk(5).indices.tolist() if id != whole[AT])
    given = (*whole[:AT], other)
    request = WhatIf("speculative~1", Origin("speculative", AT, other), settings, start.prompt_text, len(prompt), given)
    events = list(engine.what_ifs([request], lambda: False))
    text = ids_of(events)
    assert text
    check = next(event.lossless for event in events if isinstance(event, Checked))
    greedy = settings.processor == "greedy"
    if greedy or rule == "coupled":
        assert check.status is LosslessStatus.IDENTICAL
        assert [*prompt, *given, *text] == definition(pair, [*prompt, *given], len(prompt), settings)
        return
    assert check.status is LosslessStatus.NOT_APPLICABLE
    monkeypatch.setattr(loop, "Dice", lambda seed, size, device, _: Dice(seed, size, device, len(given)))
    plain = loop.decode(
        pair.target,
        [*prompt, *given],
        strategy="plain",
        drafter=ModelDrafter(pair.drafters[0].model, pair.target.vocab_size, pair.drafters[0].shared_ids),
        max_new_tokens=settings.max_new_tokens - len(given),
        seed=settings.seed,
        **rounds_of(writer_of(pair, "speculative"), settings),
    )
    assert text == [t.id for record in plain for t in tokens_of(record) if t.status in EMITTED]
