"""Rounds as one tensor program give the records of the plain loop; here without a graph around them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_transformers import tiny_model
from transformers import AutoConfig, AutoModelForCausalLM

from specdec_tui.backends import causal_lm, compiled_model, static_model
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.gpu import model as gpu_model
from specdec_tui.backends.model import bucket, nothing
from specdec_tui.backends.static_model import StaticContext, why_not_static
from specdec_tui.decoding.device_run import STEPS, Need, Programs, need_of
from specdec_tui.decoding.drafters import Drafter, ModelDrafter
from specdec_tui.decoding.lookup import LookupDrafter
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.ngram import NgramDrafter, NgramStore
from specdec_tui.decoding.records import (
    NOT_MEASURED,
    Capturing,
    EndReason,
    Notice,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    Token,
    tokens_of,
)
from specdec_tui.decoding.sampling import Sampler

PROMPT = [3, 4, 5, 3, 4]
GREEDY = Sampler("greedy")
SAMPLERS = [
    Sampler("multinomial", 1.0),
    Sampler("topk", 0.7, top_k=9),
    Sampler("nucleus", 0.9, top_p=0.8),
    Sampler("topknucleus", 1.3, top_k=20, top_p=0.9),
]
RULES = ["rejection", "coupled", "block", "skip-adjustment"]
DRAFTERS = ["none", "model", "lookup", "ngram"]


@pytest.fixture(scope="module")
def target() -> TransformersModel:
    return TransformersModel(tiny_model("llama", vocab_size=64, num_hidden_layers=1))


@pytest.fixture(scope="module")
def small() -> TransformersModel:
    """With fewer tokens than the target has."""
    return TransformersModel(tiny_model("llama", vocab_size=60, num_hidden_layers=1))


def drafter_of(kind: str, target: TransformersModel, small: TransformersModel) -> Drafter | None:
    match kind:
        case "model":
            return ModelDrafter(small, target.vocab_size)
        case "lookup":
            return LookupDrafter(3)
        case "ngram":
            return NgramDrafter(NgramStore(3), top_k_filler=4)
    return None


def comparable(record: Record) -> Any:
    """A record without clock readings, its numbers left out: those are compared apart."""
    match record:
        case PrefillDone(token=token):
            return (PrefillDone, token and token.id)
        case RoundVerified():
            return (RoundVerified, record.round, [(t.id, t.status, t.position) for t in tokens_of(record)])
    return record


def numbers(token: Token) -> list[float]:
    return [-1.0 if value is None else value for value in (token.p, token.q, token.acceptance, token.draw)]


def assert_same(plain: list[Record], device: list[Record]) -> None:
    plain, device = ([record for record in run if record != Capturing()] for run in (plain, device))
    assert [comparable(record) for record in device] == [comparable(record) for record in plain]
    for one, other in zip(plain, device, strict=True):
        for mine, theirs in zip(tokens_of(one), tokens_of(other), strict=True):
            assert numbers(theirs) == pytest.approx(numbers(mine), abs=2e-4)


def both(target: TransformersModel, build: Any, programs: Programs, **settings: Any) -> tuple[list[Record], ...]:
    settings = {"strategy": "tested", "max_new_tokens": 17} | settings
    return tuple(
        list(decode(target, PROMPT, drafter=build(), programs=known, **settings)) for known in (None, programs)
    )


@pytest.mark.parametrize("kind", DRAFTERS)
def test_greedy_records_are_those_of_the_plain_loop(
    kind: str, target: TransformersModel, small: TransformersModel
) -> None:
    programs = Programs()
    for gamma, ends in ((1, frozenset[int]()), (3, frozenset(range(20, 40))), (8, frozenset[int]())):
        plain, device = both(
            target, lambda: drafter_of(kind, target, small), programs, sampler=GREEDY, gamma=gamma, end_ids=ends
        )
        assert_same(plain, device)
        assert not any(isinstance(record, Notice) for record in device)


@pytest.mark.each_value
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", DRAFTERS)
def test_sampled_records_are_those_of_the_plain_loop(
    kind: str, rule: str, target: TransformersModel, small: TransformersModel
) -> None:
    programs = Programs()
    half = (RULES.index(rule) + DRAFTERS.index(kind)) % 2
    cases = zip(SAMPLERS[half::2], ((1, frozenset[int]()), (4, frozenset(range(20, 26)))), strict=True)
    for seed, (sampler, (gamma, ends)) in enumerate(cases):
        plain, device = both(
            target,
            lambda: drafter_of(kind, target, small),
            programs,
            sampler=sampler,
            rule=rule,
            gamma=gamma,
            end_ids=ends,
            seed=seed,
        )
        assert_same(plain, device)


@pytest.mark.each_value
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["none", "model", "lookup"])
def test_insight_is_that_of_the_plain_loop_and_changes_no_token(
    kind: str, rule: str, target: TransformersModel, small: TransformersModel
) -> None:
    programs = Programs()
    settings = {"sampler": SAMPLERS[0], "rule": rule, "gamma": 3, "max_new_tokens": 30}
    plain, device = both(target, lambda: drafter_of(kind, target, small), programs, insight=True, **settings)
    assert_same(plain, device)
    residuals = 0
    for one, other in zip(*([t for r in run for t in tokens_of(r)] for run in (plain, device)), strict=True):
        assert (one.insight is None) == (other.insight is None)
        if one.insight is not None and other.insight is not None:
            for name in ("target_top", "drafter_top", "residual_top"):
                mine, theirs = getattr(one.insight, name), getattr(other.insight, name)
                assert [value for _, value in theirs] == pytest.approx([value for _, value in mine], abs=2e-4)
            residuals += bool(one.insight.residual_top)
    assert bool(residuals) == (kind != "none" and rule in ("rejection", "block"))
    without, _ = both(target, lambda: drafter_of(kind, target, small), programs, **settings)
    assert [comparable(record) for record in without] == [
        comparable(record) for record in plain if record != Capturing()
    ]


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gpt2"])
def test_model_families_run_as_programs(name: str) -> None:
    """Some of them with windows of 6 tokens, in all layers or in every other one."""
    model = TransformersModel(tiny_model(name))
    plain, device = both(model, lambda: LookupDrafter(3), Programs(), sampler=GREEDY, gamma=3)
    assert_same(plain, device)
    assert not any(isinstance(record, Notice) for record in device)


def test_programs_are_made_once_and_lent_to_one_run_at_a_time(target: TransformersModel) -> None:
    made: list[int] = []

    def capture(step: Any, state: list[torch.Tensor]) -> Any:
        made.append(len(state))
        return step

    programs = Programs(capture)
    settings: dict[str, Any] = {"strategy": "t", "sampler": GREEDY, "max_new_tokens": 9, "programs": programs}
    first = list(decode(target, PROMPT, **settings))
    again = list(decode(target, PROMPT, **settings))
    assert_same(first, again)
    assert len(made) == 1
    runs = [decode(target, PROMPT, **settings) for _ in range(2)]
    turns = list(zip_longest(*runs))
    for run in range(2):
        assert_same(first, [turn[run] for turn in turns if turn[run] is not None])
    assert len(made) == 2


def need(target: TransformersModel, capacity: int = 100, gamma: int = 0, **settings: Any) -> Need:
    given = {"sampler": GREEDY, "rule": "rejection", "end_ids": frozenset()} | settings
    return need_of(target, LookupDrafter(3) if gamma else None, gamma=gamma, capacity=capacity, **given)


def test_a_program_made_ahead_is_the_one_a_run_takes_and_tells_the_time_of(target: TransformersModel) -> None:
    programs = Programs()
    ahead = programs.lend(need(target))
    ahead.seconds = 5.0
    programs.take_back(ahead)
    assert programs.settled(need(target)) and not programs.settled(need(target, gamma=2))
    settings: dict[str, Any] = {"strategy": "t", "sampler": Sampler("greedy", 0.3), "max_new_tokens": 5}
    for seconds in (5.0, 0.0):
        run = list(decode(target, PROMPT, rule="coupled", programs=programs, **settings))
        assert Capturing() not in run
        assert [record.capture_seconds for record in run if isinstance(record, PrefillDone)] == [seconds]


def test_a_run_that_makes_its_program_says_so_before_the_prefill(target: TransformersModel) -> None:
    settings: dict[str, Any] = {"strategy": "t", "sampler": GREEDY, "max_new_tokens": 5, "programs": Programs()}
    first, second = (list(decode(target, PROMPT, **settings)) for _ in range(2))
    assert first[1] == Capturing() and isinstance(first[2], PrefillDone) and first[2].capture_seconds > 0
    assert Capturing() not in second


def test_only_a_run_step_by_step_is_warmed_up_and_before_its_clock_runs(target: TransformersModel) -> None:
    seen: list[object] = []
    settings: dict[str, Any] = {"strategy": "t", "sampler": GREEDY, "max_new_tokens": 4}
    for programs, cache, times in ((Programs(), True, 0), (Programs(), False, 1), (None, True, 1)):
        seen.clear()
        for record in decode(
            target,
            PROMPT,
            programs=programs,
            use_cache=cache,
            warm_up=lambda: seen.append("warm") or NOT_MEASURED,
            **settings,
        ):
            seen.append(type(record))
        assert seen.count("warm") == times
        if times:
            assert seen.index("warm") == seen.index(PrefillDone) - 1


def test_each_capacity_has_a_program_of_its_own(target: TransformersModel) -> None:
    """How sums round depends on it: every strategy of a run must have the same."""
    programs = Programs()
    long, short = (programs.lend(need(target, capacity)) for capacity in (400, 100))
    for program in (short, long):
        programs.take_back(program)
    assert programs.lend(need(target, 90)) is short
    assert programs.lend(need(target, 300)) is long


def test_memory_that_other_strategies_hold_is_told_with_what_helps(target: TransformersModel) -> None:
    made: list[None] = []

    def capture(step: Any, state: list[torch.Tensor]) -> Any:
        made.append(None)
        if len(made) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return step

    programs = Programs(capture)
    held = programs.lend(need(target))
    with pytest.raises(ValueError, match=r"^out of memory beside .*schedule sequential needs one at a time"):
        programs.lend(need(target, gamma=2))
    programs.take_back(held)
    with pytest.raises(ValueError, match=r"^out of memory$"):
        programs.lend(need(target, gamma=2))


@pytest.mark.parametrize("wrapped", [False, True])
def test_out_of_memory_is_told_forgotten_and_keeps_nothing(wrapped: bool, target: TransformersModel) -> None:
    held: list[weakref.ref[torch.Tensor]] = []

    def capture(step: Any, state: list[torch.Tensor]) -> Any:
        held.append(weakref.ref(state[0]))
        if len(held) < 2:
            try:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            except torch.OutOfMemoryError as error:
                if wrapped:  # as the end of a capture does
                    raise RuntimeError("operation failed due to a previous error during capture") from error
                raise
        return step

    programs = Programs(capture)
    alive: list[bool] = []
    settings: dict[str, Any] = {"strategy": "t", "sampler": GREEDY, "max_new_tokens": 6, "programs": programs}
    first = list(
        decode(target, PROMPT, warm_up=lambda: alive.append(held[0]() is not None) or NOT_MEASURED, **settings)
    )
    assert alive == [False], "the plain run must have the memory"
    assert [r.message for r in first if isinstance(r, Notice)] == ["step by step, not captured: out of memory"]
    assert first[-1] == RunEnded(EndReason.LENGTH)
    second = list(decode(target, PROMPT, **settings))
    assert not any(isinstance(record, Notice) for record in second)
    assert_same([record for record in first if not isinstance(record, Notice)], second)


def test_where_memory_is_short_the_programs_not_used_for_longest_are_given_up(target: TransformersModel) -> None:
    held: list[weakref.ref[torch.Tensor]] = []

    def capture(step: Any, state: list[torch.Tensor]) -> Any:
        if sum(tensor() is not None for tensor in held) == 2:
            raise torch.OutOfMemoryError
        held.append(weakref.ref(state[0]))
        return step

    programs = Programs(capture)
    for gamma in (1, 2, 3):
        programs.take_back(programs.lend(need(target, gamma=gamma)))
    assert [programs.settled(need(target, gamma=gamma)) for gamma in (1, 2, 3)] == [False, True, True]


def test_a_prefill_that_lacks_memory_gets_that_of_idle_programs(
    target: TransformersModel, small: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = Programs()
    settings: dict[str, Any] = {"strategy": "t", "sampler": GREEDY, "max_new_tokens": 6, "programs": programs}
    first = list(decode(target, PROMPT, **settings))
    programs.take_back(programs.lend(need(target, gamma=2)))

    def short(self: Any, ids: torch.Tensor, between: Callable[[], None]) -> torch.Tensor:
        if programs.settled(need(target, gamma=2)):
            raise torch.OutOfMemoryError
        return whole(self, ids)

    whole = StaticContext.prefill
    monkeypatch.setattr(StaticContext, "prefill", short)
    assert_same(first, list(decode(target, PROMPT, **settings)))
    assert not programs.settled(need(target, gamma=2))


def test_a_run_of_numbers_that_are_none_does_not_spoil_the_next() -> None:
    network = tiny_model("gpt2", vocab_size=64)
    with torch.no_grad():
        network.get_input_embeddings().weight[50] = torch.inf
    model, programs = TransformersModel(network), Programs()
    settings: dict[str, Any] = {"strategy": "t", "sampler": GREEDY, "max_new_tokens": 6, "programs": programs}
    good = list(decode(model, PROMPT, **settings))
    bad = list(decode(model, [*PROMPT, 6, 50], **settings))
    assert isinstance(bad[-1], RunEnded) and bad[-1].reason is EndReason.ERROR
    assert_same(good, list(decode(model, PROMPT, **settings)))


def test_a_run_stops_between_reads_and_loses_nothing(target: TransformersModel) -> None:
    seen: list[Record] = []
    for record in decode(
        target,
        PROMPT,
        strategy="t",
        sampler=GREEDY,
        max_new_tokens=40,
        programs=Programs(),
        cancelled=lambda: sum(isinstance(each, RoundVerified) for each in seen) >= STEPS,
    ):
        seen.append(record)
    assert seen[-1] == RunEnded(EndReason.CANCELLED)
    assert sum(isinstance(record, RoundVerified) for record in seen) == STEPS


def test_a_window_that_only_the_config_knows_of_hides_nothing() -> None:
    model = TransformersModel(tiny_model("llama", sliding_window=6))
    plain, device = both(model, lambda: None, Programs(), sampler=GREEDY, max_new_tokens=40)
    assert_same(plain, device)
    assert not any(isinstance(record, Notice) for record in device)


def test_quantized_spread_and_oddly_attending_models_are_not_captured() -> None:
    quantized = tiny_model("llama")
    quantized.is_quantized = True
    spread = tiny_model("llama")
    spread.model.layers[1].to("meta")
    flex = tiny_model("llama")
    flex.config._attn_implementation = "flex_attention"
    assert [why_not_static(model) for model in (quantized, spread, flex, tiny_model("llama"))] == [
        "its weights are quantized",
        "it is spread over several devices, and not all of them are GPUs",
        "it attends by 'flex_attention'",
        "",
    ]


def test_kernels_that_fail_are_told_and_replaced_by_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> Any:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(gpu_model, "why_not", lambda model: "")
    monkeypatch.setattr(gpu_model, "opener", lambda *arguments: fails)
    model = TransformersModel(tiny_model("llama"))
    monkeypatch.setattr(model, "_device", SimpleNamespace(type="cuda"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "_difference_over", lambda open_static, length: open_static(256) and -1.0)
        model.open_static(100)
    assert model.static_note.count("the GPU kernels fail (RuntimeError: no compiler here) here")
    model._device = torch.device("cpu")
    plain, device = both(model, lambda: None, Programs(), sampler=GREEDY)
    assert [record.message for record in device if isinstance(record, Notice)] == [model.static_note]
    assert_same(plain, [record for record in device if not isinstance(record, Notice)])


@pytest.mark.parametrize(("dtype", "told"), [(torch.bfloat16, True), (torch.float32, False)])
def test_a_model_that_the_kernels_are_not_for_says_why_it_goes_over_the_layers(
    dtype: torch.dtype, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_model.launches, "kernels", lambda: None)
    monkeypatch.setattr(gpu_model, "why_not", lambda model: "its heads are wider than 256")
    model = TransformersModel(tiny_model("llama").to(dtype))
    monkeypatch.setattr(model, "_device", SimpleNamespace(type="cuda"))
    monkeypatch.setattr(model, "_difference_over", lambda open_static, length: -1.0)
    assert type(model.open_static(100)) is StaticContext
    note = "captured over transformers' layers, which are slower: its heads are wider than 256; "
    note += "they are not compiled: there is no Triton"
    assert model.static_note == (note if told else "")


@pytest.mark.parametrize("fault", ["its weights are not in half precision", ""])
def test_a_model_spread_over_gpus_is_captured_by_our_kernels_or_not_at_all(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causal_lm, "is_spread", lambda model: True)
    monkeypatch.setattr(gpu_model, "why_not", lambda model: fault)
    monkeypatch.setattr(gpu_model, "opener", lambda *given: partial(Wrong, *given))
    model = TransformersModel(tiny_model("llama"))
    monkeypatch.setattr(model, "_device", SimpleNamespace(type="cuda"))
    monkeypatch.setattr(model, "_difference_over", lambda open_static, length: -1.0)
    if not fault:
        assert type(model.open_static(100)) is Wrong and model.static_note == ""
        return
    why = f"it is spread over several GPUs, where our kernels alone are captured: {fault}"
    with pytest.raises(ValueError, match=f"^{why}$"):
        model.open_static(100)


class Wrong(StaticContext):
    """Kernels that go wrong in passes over one token, over several, or in a prefill."""

    fault = ""

    def prefill(self, ids: torch.Tensor, between: Callable[[], None] = nothing) -> torch.Tensor:
        return super().prefill(ids, between) * (1.1 if self.fault == "prefill" else 1)

    def extend(self, ids: torch.Tensor, begin: torch.Tensor, keep: int) -> torch.Tensor:
        kind = "token" if len(ids) == 1 else "block"
        return super().extend(ids, begin, keep) * (1.1 if self.fault == kind else 1)


@pytest.mark.parametrize("fault", ["prefill", "token", "block", ""])
def test_kernels_that_give_other_logits_are_told_and_replaced_by_the_layers(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wrong, "fault", fault)
    monkeypatch.setattr(gpu_model, "why_not", lambda model: "")
    monkeypatch.setattr(gpu_model, "opener", lambda *given: partial(Wrong, *given))
    model = TransformersModel(tiny_model("llama"))
    tried = model._difference_over

    def on_the_cpu(opened: Any, length: int) -> float:
        model._device, claimed = torch.device("cpu"), model._device
        found = tried(opened, length)
        model._device = claimed
        return found

    monkeypatch.setattr(model, "_difference_over", on_the_cpu)
    model._device = SimpleNamespace(type="cuda")  # type: ignore[assignment]
    opened = model.open_static(100)
    assert type(opened) is (StaticContext if fault else Wrong)
    assert model.static_note.count("the GPU kernels do not give its logits here") == bool(fault)
    model._device = torch.device("cpu")
    plain, device = both(model, lambda: None, Programs(), sampler=GREEDY)
    assert_same(plain, [record for record in device if not isinstance(record, Notice)])


UNFIT = {
    "gpt_neo": (
        {
            "num_layers": 2,
            "num_heads": 4,
            "hidden_size": 32,
            "attention_types": [[["global", "local"], 1]],
            "max_position_embeddings": 600,
        },
        "its logits would differ by ",  # its local layers count from the end of the buffer
    ),
    "phi3": (
        {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 600,
            "original_max_position_embeddings": 300,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0] * 4,
                "long_factor": [2.0, 3.0, 4.0, 5.0],
                "original_max_position_embeddings": 300,
            },
        },
        "its rotations depend on the length of the text",
    ),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_models_whose_passes_depend_on_the_room_or_the_length_run_plainly(kind: str) -> None:
    sizes, reason = UNFIT[kind]
    config = AutoConfig.for_model(kind, vocab_size=64, bos_token_id=0, eos_token_id=1, pad_token_id=1, **sizes)
    torch.manual_seed(1)
    network = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    model, prompt = TransformersModel(network), [(7 * i * i + 3 * i) % 50 + 3 for i in range(290)]
    settings: dict[str, Any] = {"strategy": "t", "sampler": GREEDY, "max_new_tokens": 20}
    plain = list(decode(model, prompt, **settings))
    device = list(decode(model, prompt, programs=Programs(), **settings))
    notices = [record.message for record in device if isinstance(record, Notice)]
    assert len(notices) == 1 and notices[0].startswith(f"step by step, not captured: {reason}")
    assert_same(plain, [record for record in device if not isinstance(record, Notice)])


def test_models_on_different_devices_run_plainly_and_say_why(target: TransformersModel) -> None:
    class Elsewhere(TransformersModel):
        device = torch.device("meta")  # in name only: it computes here

    small = Elsewhere(tiny_model("llama", vocab_size=64, num_hidden_layers=1))
    _, device = both(target, lambda: ModelDrafter(small, 64), Programs(), sampler=GREEDY)
    notices = [record.message for record in device if isinstance(record, Notice)]
    assert notices == ["step by step, not captured: target and drafter are on different devices"]


def test_what_cannot_be_captured_runs_plainly_and_says_why(target: TransformersModel) -> None:
    recurrent = TransformersModel(tiny_model("mamba"))
    plain, device = both(recurrent, lambda: None, Programs(), sampler=GREEDY)
    notices = [record.message for record in device if isinstance(record, Notice)]
    assert notices == ["step by step, not captured: its layers attend in chunks or keep states of their own"]
    assert_same(plain, [record for record in device if not isinstance(record, Notice)])

    def refuses(step: Any, state: list[torch.Tensor]) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    programs = Programs(refuses)
    for _ in range(2):
        plain, device = both(target, lambda: None, programs, sampler=GREEDY)
        notices = [record.message for record in device if isinstance(record, Notice)]
        assert notices == ["step by step, not captured: operation not permitted when stream is capturing"]
        assert_same(plain, [record for record in device if not isinstance(record, Notice)])


@pytest.mark.parametrize("kind", DRAFTERS)
def test_without_drafts_a_run_is_captured_all_the_same(
    kind: str, target: TransformersModel, small: TransformersModel
) -> None:
    plain, device = both(target, lambda: drafter_of(kind, target, small), Programs(), sampler=GREEDY, gamma=0)
    assert_same(plain, device)
    assert isinstance(device[-1], RunEnded) and device[-1].reason is EndReason.LENGTH
    assert not any(isinstance(record, Notice) for record in device)


def test_a_models_code_that_fails_over_a_fixed_cache_is_told_as_that() -> None:
    sizes = {"hidden_size": 32, "n_layer": 2, "n_head": 4}
    config = AutoConfig.for_model("bloom", vocab_size=64, bos_token_id=0, eos_token_id=1, pad_token_id=1, **sizes)
    model = TransformersModel(AutoModelForCausalLM.from_config(config).float().eval())
    plain, device = both(model, lambda: None, Programs(), sampler=GREEDY)
    (notice,) = [record.message for record in device if isinstance(record, Notice)]
    assert notice.startswith("step by step, not captured: its code does not work over a cache of fixed size (")
    assert_same(plain, [record for record in device if not isinstance(record, Notice)])


def test_clock_readings_of_a_round_add_up_to_its_time(target: TransformersModel, small: TransformersModel) -> None:
    settings: dict[str, Any] = {"strategy": "t", "sampler": GREEDY, "gamma": 3, "max_new_tokens": 20}
    records = decode(target, PROMPT, drafter=ModelDrafter(small, 64), programs=Programs(), **settings)
    rounds = [record for record in records if isinstance(record, RoundVerified)]
    assert len(rounds) > 3
    for record in rounds[:-1]:
        assert record.draft_seconds > 0 and record.verify_seconds > 0 and record.other_seconds >= 0


def test_a_long_prompt_goes_in_by_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec_tui.backends.static_model.PREFILL_CHUNK", 7)
    model = TransformersModel(tiny_model("llama"))
    prompt = [(5 * i) % 50 + 3 for i in range(60)]
    settings: dict[str, Any] = {"strategy": "t", "sampler": GREEDY, "max_new_tokens": 12}
    assert_same(list(decode(model, prompt, **settings)), list(decode(model, prompt, programs=Programs(), **settings)))


@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_run_may_fill_the_context_to_its_last_token(kind: str, small: TransformersModel) -> None:
    model = TransformersModel(tiny_model("gpt2", vocab_size=64, n_positions=24))
    plain, device = both(
        model, lambda: drafter_of(kind, model, small), Programs(), sampler=GREEDY, gamma=6, max_new_tokens=60
    )
    assert isinstance(plain[-1], RunEnded) and plain[-1].reason is EndReason.CONTEXT
    assert_same(plain, device)


@pytest.mark.parametrize(("length", "capacity"), [(1, 256), (256, 256), (257, 512), (2048, 2048), (2049, 4096)])
def test_capacities_come_in_buckets(length: int, capacity: int) -> None:
    assert bucket(length) == capacity


@pytest.mark.each_value
@pytest.mark.parametrize("rule", ["", *RULES])
@pytest.mark.parametrize("kind", DRAFTERS)
def test_records_behind_given_tokens_are_those_of_the_plain_loop(
    kind: str, rule: str, target: TransformersModel, small: TransformersModel
) -> None:
    settings: dict[str, Any] = {"sampler": SAMPLERS[0] if rule else GREEDY, "rule": rule or "rejection", "seed": 3}
    plain, device = both(target, lambda: drafter_of(kind, target, small), Programs(), given=[9, 30, 9], **settings)
    assert_same(plain, device)
    assert not any(isinstance(record, Notice) for record in device)


def test_a_long_prefill_is_broken_off_between_its_parts_and_the_program_is_lent_again(
    target: TransformersModel, small: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_model, "PREFILL_CHUNK", 4)
    programs, asked = Programs(), [0]
    prompt = [7 + i % 40 for i in range(30)]
    settings: dict[str, Any] = {"strategy": "tested", "sampler": GREEDY, "gamma": 3, "max_new_tokens": 12}

    def cancelled() -> bool:
        asked[0] += 1
        return asked[0] > 4

    build = lambda: drafter_of("model", target, small)  # noqa: E731
    whole = list(decode(target, prompt, drafter=build(), programs=programs, **settings))
    broken = list(decode(target, prompt, drafter=build(), programs=programs, cancelled=cancelled, **settings))
    assert asked[0] == 5  # once before it begins, then between parts: never again once it is true
    assert not any(isinstance(record, PrefillDone) for record in broken)
    assert isinstance(broken[-1], RunEnded) and broken[-1].reason is EndReason.CANCELLED
    assert_same(whole, list(decode(target, prompt, drafter=build(), programs=programs, **settings)))
