"""Decoding on one GPU side by side: this project and transformers, same weights, one process.

    python benchmarks/gpu.py [--prompts 128,512,4096] [--acceptances 0.3,0.7] [--sides target,static] [--json FILE]

Greedy, batch 1, random weights in the shapes of Llama 3.2 3B and 1B; a dial on the target sets the acceptance.
Sides: our `target` and `speculative`; transformers' `generate` (eager, dynamic cache), `static` (compiled,
static cache) and `assisted`, whose drafts are fixed to γ; and, where it is installed, `flashspec`
(https://github.com/Mattral/FlashSpec, Apache-2.0) with γ drafts of the drafter, compiled as it does by itself.
Sides take turns; medians are shown. `generate` and `static` do not depend on the dial and run at the first
acceptance only.

Decode rates leave out the prefill: our records tell when it ended; transformers are timed from the first call of
a stopping criterion on, which waits for the device once. For `assisted` that is the end of the first round,
whose tokens are then left out too; so are those of flashspec's first step, by its own clock. Whole times are
those of the call. Our rounds are captured as CUDA graphs (`--stepwise`: not). Compilation and capture happen in
warm-up calls at full capacity, timed apart. The floor is the time to read the target's weights at the speed of a
device copy. Parts of a round: γ passes of the drafter over one token and one of the target over γ+1, each by itself.
Try it without a GPU (the tiny shape): --dtype float32 --prompts 16 --new-tokens 16 --acceptances 0.7
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from specdec_tui.backends.threads import prepare_threads

prepare_threads()

import torch  # noqa: E402
import transformers  # noqa: E402
from dialled_pair import SHAPES, DialledPair, add_pair, listed, share, whole  # noqa: E402
from gpu_report import FIXED, Report, print_summary, ratio, tables  # noqa: E402
from transformers import PreTrainedModel, StoppingCriteria, StoppingCriteriaList  # noqa: E402

from specdec_tui.backends import cuda_graphs  # noqa: E402
from specdec_tui.backends.causal_lm import TransformersModel  # noqa: E402
from specdec_tui.backends.model import bucket  # noqa: E402
from specdec_tui.decoding.costs import costs  # noqa: E402
from specdec_tui.decoding.device_run import SPARE, Programs  # noqa: E402
from specdec_tui.decoding.drafters import ModelDrafter  # noqa: E402
from specdec_tui.decoding.figures import RunFigures, speedup  # noqa: E402
from specdec_tui.decoding.loop import decode  # noqa: E402
from specdec_tui.decoding.lossless import check, near_tie_bound  # noqa: E402
from specdec_tui.decoding.records import EndReason, Notice, PrefillDone, RoundVerified  # noqa: E402
from specdec_tui.decoding.reliability import reliability  # noqa: E402
from specdec_tui.decoding.sampling import Sampler  # noqa: E402

SIDES = ("target", "speculative", "generate", "static", "assisted", "flashspec")
DRAFTING = ("speculative", "assisted", "flashspec")
FLASHSPEC = importlib.util.find_spec("flashspec") is not None
GREEDY = Sampler("greedy")
WARM_UPS, WARM_UP_PASSES = 2, 12
IN_A_ROW, SERIES = 8, 5
COPIED_BYTES = {"cuda": 1 << 30, "cpu": 1 << 25}


def captured_rounds(device: torch.device) -> Programs | None:
    """How our rounds are played: as CUDA graphs, elsewhere as the programs that these would hold."""
    return Programs(cuda_graphs.capture, cuda_graphs.mark) if device.type == "cuda" else Programs()


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call. `first_…` is the prefill; with `assisted` and `flashspec`, the first round too."""

    ids: list[int]
    seconds: float
    first_tokens: int
    first_seconds: float
    passes: int
    figures: RunFigures | None = None

    @property
    def decode_seconds(self) -> float:
        return self.seconds - self.first_seconds

    @property
    def tokens_per_second(self) -> float | None:
        return ratio(len(self.ids) - self.first_tokens, self.decode_seconds)

    @property
    def round_seconds(self) -> float | None:
        """Wall time of a target pass and what leads to it, the first left out."""
        return ratio(self.decode_seconds, self.passes - 1)


class Watch(StoppingCriteria):
    """Counts passes, reads the clock after the first, and stops after `most`.

    A pass is a call of this criterion; with `model` a call of that model, because some versions of assisted
    generation ask a criterion more than once a round.
    """

    def __init__(self, most: int, wait: Callable[[], None], model: PreTrainedModel | None = None) -> None:
        self._most, self._wait = most, wait
        self.passes = self.first_length = 0
        self.first = 0.0
        self._hook = model.register_forward_hook(self._count) if model is not None else None

    def _count(self, *_: Any) -> None:
        self.passes += 1

    def close(self) -> None:
        if self._hook is not None:
            self._hook.remove()

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        if self._hook is None:
            self._count()
        if self.passes and not self.first_length:
            self._wait()
            self.first, self.first_length = time.perf_counter(), input_ids.shape[1]
        return torch.full((len(input_ids),), self.passes >= self._most, device=input_ids.device)


class Contest:
    """All sides over one pair. `call` runs one of them on a prompt."""

    def __init__(self, pair: DialledPair, new_tokens: int, programs: Programs | None) -> None:
        self.pair, self.new_tokens, self.programs = pair, new_tokens, programs
        self.target, self.drafter = TransformersModel(pair.target), TransformersModel(pair.drafter)

    def call(
        self, side: str, gamma: int, prompt: Sequence[int], most: int | None = None, sampler: Sampler = GREEDY
    ) -> Outcome:
        """`most` passes at most: for warming up, with caches of the full capacity. `sampler`: of our sides."""
        match side:
            case "target":
                return self._ours(prompt, most, None, 0, sampler)
            case "speculative":
                return self._ours(prompt, most, ModelDrafter(self.drafter, self.target.vocab_size), gamma, sampler)
            case "static":
                return self._generate(prompt, most, cache_implementation="static")
            case "assisted":
                fix_drafts(self.pair.drafter, gamma)
                return self._generate(prompt, most, assistant_model=self.pair.drafter)
            case "flashspec":
                return self._flashspec(prompt, most, gamma)
        return self._generate(prompt, most)

    def warm_up(self, side: str, gamma: int, prompt: Sequence[int], sampler: Sampler = GREEDY) -> float:
        """Seconds of the first calls: compilation, capture, allocation."""
        begin = time.perf_counter()
        for _ in range(WARM_UPS):
            self.call(side, gamma, prompt, WARM_UP_PASSES, sampler)
        return time.perf_counter() - begin

    def pass_seconds(self, model: TransformersModel, prompt: Sequence[int], tokens: int) -> float:
        """A pass over `tokens` behind a prompt, by itself: several are queued, then waited for."""
        one_pass = self._pass(model, prompt, [prompt[0]] * tokens)
        means = []
        for _ in range(SERIES):
            model.synchronize()
            begin = time.perf_counter()
            for _ in range(IN_A_ROW):
                one_pass()
            model.synchronize()
            means.append((time.perf_counter() - begin) / IN_A_ROW)
        return median(means)

    def _pass(self, model: TransformersModel, prompt: Sequence[int], ids: list[int]) -> Callable[[], None]:
        room = len(prompt) + self.new_tokens + SPARE
        if self.programs is None:
            context = model.open(capacity=room)
            context.extend(prompt, 1)

            def stepwise() -> None:
                context.extend(ids, len(ids))
                context.rewind(len(prompt))

            return stepwise
        sequence = model.open_static(room)
        sequence.prefill(torch.tensor(prompt, device=model.device))
        block, begin = (torch.tensor(values, device=model.device) for values in (ids, [len(prompt)]))
        return self.programs.capture(lambda: _discard(sequence.extend(block, begin, len(ids))), [begin])

    def _ours(
        self, prompt: Sequence[int], most: int | None, drafter: ModelDrafter | None, gamma: int, sampler: Sampler
    ) -> Outcome:
        figures, ids = RunFigures(), list[int]()
        self.target.synchronize()
        begin = time.perf_counter()
        for record in decode(
            self.target,
            prompt,
            strategy="speculative" if drafter else "target",
            drafter=drafter,
            sampler=sampler,
            gamma=gamma,
            max_new_tokens=self.new_tokens,
            programs=self.programs,
            alone=True,
            cancelled=lambda: most is not None and figures.target_calls >= most,
        ):
            figures.add(record)
            if isinstance(record, PrefillDone) and record.token is not None:
                ids.append(record.token.id)
            elif isinstance(record, RoundVerified):
                ids += [token.id for token in record.new_tokens]
            elif isinstance(record, Notice):
                raise RuntimeError(record.message)
        seconds = time.perf_counter() - begin
        if figures.end is None or figures.end.reason not in (EndReason.LENGTH, EndReason.CANCELLED):
            raise RuntimeError(figures.end.message if figures.end else "no end")
        return Outcome(ids, seconds, figures.prefill_tokens, figures.prefill_seconds, figures.target_calls, figures)

    def _generate(self, prompt: Sequence[int], most: int | None, **how: Any) -> Outcome:
        counted = self.pair.target if "assistant_model" in how else None
        watch = Watch(most or self.new_tokens, self.target.synchronize, counted)
        inputs = torch.tensor([prompt], device=self.pair.target.device)
        self.target.synchronize()
        begin = time.perf_counter()
        out = self.pair.target.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=self.new_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([watch]),
            **how,
        )
        ids = out[0, len(prompt) :].tolist()
        seconds = time.perf_counter() - begin
        watch.close()
        return Outcome(ids, seconds, watch.first_length - len(prompt), watch.first - begin, watch.passes)

    def _flashspec(self, prompt: Sequence[int], most: int | None, gamma: int) -> Outcome:
        inputs = torch.tensor([prompt], device=self.pair.target.device)
        engine = self._engine(gamma, bucket(len(prompt) + self.new_tokens + SPARE))
        self.target.synchronize()
        begin = time.perf_counter()
        result = engine.generate(inputs, max_new_tokens=min(most or self.new_tokens, self.new_tokens))
        ids = result.output_ids[0, : result.n_tokens_generated].tolist()
        seconds = time.perf_counter() - begin
        first = result.arm_steps[0]
        return Outcome(ids, seconds, first.emitted, first.seconds, len(result.arm_steps))

    @cache  # noqa: B019 - a contest lives as long as the program
    def _engine(self, gamma: int, capacity: int) -> Any:
        """flashspec over the pair; it keeps what it compiled."""
        from flashspec import (  # type: ignore[import-not-found]
            BanditConfig,
            FlashSpecConfig,
            SamplingConfig,
            SpeculativeEngine,
        )
        from flashspec.engine import HuggingFaceDrafter, TargetModel  # type: ignore[import-not-found]

        where = self.pair.target.device, self.pair.target.dtype
        config = FlashSpecConfig(
            device=str(where[0]),
            dtype=str(where[1]).removeprefix("torch."),
            drafter_strategy="bandit",  # of one arm: the drafter alone, with γ drafts
            bandit=BanditConfig(n_arms=1),
            sampling=SamplingConfig(gamma=gamma, temperature=0.0),
            compile_max_cache_len=capacity,
        )
        drafter = HuggingFaceDrafter("drafter", *where, model=self.pair.drafter)
        return SpeculativeEngine(config, [drafter], TargetModel("target", *where, model=self.pair.target))


def _discard(logits: torch.Tensor) -> None:
    """A pass by itself is not looked at."""


def fix_drafts(drafter: PreTrainedModel, gamma: int) -> None:
    """Always γ drafts: no schedule, no stop at low confidence."""
    drafter.generation_config.num_assistant_tokens = gamma
    drafter.generation_config.num_assistant_tokens_schedule = "constant"
    drafter.generation_config.assistant_confidence_threshold = 0.0


def forget_compiled(model: PreTrainedModel) -> None:
    """Let `generate` compile afresh for the next cache length: else it keeps the longest, or compiles for any.

    The names are transformers' own, of several versions.
    """
    torch.compiler.reset()
    for name in ("_compiled_call", "_cache", "_previous_max_cache_length"):
        model.__dict__.pop(name, None)


def copy_bytes_per_second(device: torch.device) -> float:
    """The best of some copies within the device's memory; bytes read and bytes written both count."""
    source = torch.ones(COPIED_BYTES[device.type], dtype=torch.uint8, device=device)
    copy, times = torch.empty_like(source), []
    for _ in range(2 * SERIES):
        begin = time.perf_counter()
        for _ in range(IN_A_ROW):
            copy.copy_(source)
        copy[-1].item()
        times.append((time.perf_counter() - begin) / IN_A_ROW)
    return 2 * source.nbytes / min(times)


def weight_bytes(model: PreTrainedModel) -> int:
    return sum(weight.nbytes for weight in model.parameters())


def environment(device: torch.device) -> dict[str, Any]:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "gpu": gpu,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "flashspec": importlib.metadata.version("flashspec") if FLASHSPEC else None,
    }


def measure(contest: Contest, report: Report, options: argparse.Namespace, deadline: float) -> None:
    """Prompt by prompt: parts, warm-up, then all sides in turns."""
    pair, source = contest.pair, torch.Generator().manual_seed(options.seed)
    sides = [(s, g) for s in options.sides for g in (options.gamma if s in DRAFTING else [0])]
    dials: dict[float, float] = {}
    for wish in options.acceptances:
        agreement = pair.turn_to(wish)
        dials[wish] = pair.dial
        report.add("dials", {"wish": wish, "dial": pair.dial, "agreement": agreement})
    for length in options.prompts:
        prompt = torch.randint(pair.shape.vocab, (length,), generator=source).tolist()
        if time.monotonic() > deadline:
            report.add("skipped", {"prompt": length, "why": "no time left"})
            continue
        forget_compiled(pair.target)
        works = []
        for side, gamma in sides:
            try:
                seconds = contest.warm_up(side, gamma, prompt)
            except Exception as error:  # one side must not cost the others their time on the device
                report.add("skipped", {"prompt": length, "side": side, "gamma": gamma, "why": repr(error)[:500]})
                continue
            works.append((side, gamma))
            report.add("warm_up", {"prompt": length, "side": side, "gamma": gamma, "seconds": seconds})
        for gamma in options.gamma:
            draft = contest.pass_seconds(contest.drafter, prompt, 1)
            verify = contest.pass_seconds(contest.target, prompt, gamma + 1)
            parts = {"draft_seconds": draft, "verify_seconds": verify, "round_seconds": gamma * draft + verify}
            report.add("parts", {"prompt": length, "gamma": gamma, **parts})
        for repeat in range(options.repeat):
            for wish, dial in dials.items():
                turn = [w for w in works if w[0] not in FIXED or wish == options.acceptances[0]]
                place = {"prompt": length, "acceptance": wish, "repeat": repeat}
                pair.dial = dial
                take_turns(contest, report, prompt, turn, place, deadline)


def take_turns(
    contest: Contest,
    report: Report,
    prompt: Sequence[int],
    sides: Sequence[tuple[str, int]],
    place: dict[str, Any],
    deadline: float,
) -> None:
    """Each side once. The target's own run, which comes first, is what the others are compared with."""
    bound, baseline = near_tie_bound(contest.pair.target.dtype), None
    for side, gamma in sides:
        if time.monotonic() > deadline:
            report.add("skipped", {**place, "side": side, "gamma": gamma, "why": "no time left"})
            continue
        outcome = contest.call(side, gamma, prompt)
        if len(outcome.ids) != contest.new_tokens:
            raise RuntimeError(f"{side} wrote {len(outcome.ids)} tokens instead of {contest.new_tokens}")
        baseline = outcome if side == "target" else baseline
        reference = baseline.ids if baseline else None
        lossless = check(
            contest.target, prompt, outcome.ids, reference, sampler=GREEDY, rule="rejection", seed=0, bound=bound
        )
        entry = {
            "side": side,
            "gamma": gamma,
            "tokens_per_second": outcome.tokens_per_second,
            "seconds": outcome.seconds,
            "first_seconds": outcome.first_seconds,
            "first_tokens": outcome.first_tokens,
            "round_seconds": outcome.round_seconds,
            "tokens_per_target_call": len(outcome.ids) / outcome.passes,
            "lossless": lossless.status,
            "near_ties": lossless.ties,
            "first_difference": lossless.first_divergence,
            "largest_gap": lossless.gap,
            "ids": outcome.ids,
        }
        if side == "speculative" and outcome.figures:
            entry["acceptance_rate"] = outcome.figures.acceptance_rate
            if baseline and baseline.figures:
                both = outcome.figures, baseline.figures
                found = costs(*both)
                entry |= {"c": found.cost_ratio, "v": found.verify_ratio, "predicted": found.predicted_speedup}
                entry["speedup"] = speedup(baseline.figures, outcome.figures)
                told = reliability(*both)
                entry["disturbed"] = told.reason if told else ""
        report.add("runs", place | entry)


def _side(text: str) -> str:
    if text not in SIDES:
        raise argparse.ArgumentTypeError(f"'{text}' is not valid: give some of {', '.join(SIDES)}")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_pair(parser)
    parser.add_argument(
        "--sides",
        type=listed(_side),
        default=[s for s in SIDES if s != "flashspec" or FLASHSPEC],
        help=",".join(SIDES),
    )
    parser.add_argument("--acceptances", type=listed(share), default=[0.3, 0.5, 0.7, 0.8, 0.9, 0.95])
    parser.add_argument("--prompts", type=listed(whole(1)), default=[128, 512, 4096], help="lengths in tokens")
    parser.add_argument("--gamma", type=listed(whole(1)), default=[3])
    parser.add_argument("--new-tokens", type=whole(2), default=256, help="the first of them is the prefill's")
    parser.add_argument("--repeat", type=whole(1), default=2)
    parser.add_argument("--minutes", type=float, default=30.0, help="what is not begun by then is skipped")
    parser.add_argument("--seed", type=whole(0), default=0)
    parser.add_argument("--json", type=Path, help="file that holds everything measured so far")
    parser.add_argument("--stepwise", action="store_true", help="play our rounds step by step, not captured")
    options = parser.parse_args(arguments)
    options.sides.sort(key=SIDES.index)
    deadline = time.monotonic() + 60 * options.minutes

    device = torch.device(options.device)
    report = Report(options.json)
    speed = copy_bytes_per_second(device)
    pair = DialledPair(SHAPES[options.shape], options.device, getattr(torch, options.dtype), options.seed)
    sizes = {"target": weight_bytes(pair.target), "drafter": weight_bytes(pair.drafter)}
    report.data["environment"] = environment(device)
    report.data["options"] = {name: value for name, value in vars(options).items() if name != "json"}
    report.data["floor"] = {"copy_bytes_per_second": speed}
    for name, size in sizes.items():
        floor = {"weight_bytes": size, "seconds": size / speed, "tokens_per_second": speed / size}
        report.data["floor"] |= {f"{name}_{figure}": value for figure, value in floor.items()}
    print(json.dumps({name: report.data[name] for name in ("environment", "floor")}), flush=True)
    programs = None if options.stepwise else captured_rounds(device)
    measure(Contest(pair, options.new_tokens, programs), report, options, deadline)
    report.data["peak_memory_bytes"] = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    report.data["plain"], report.data["drafted"] = tables(report)
    report.save()
    print_summary(report.data)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
