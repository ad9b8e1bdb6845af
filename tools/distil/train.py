"""Second stage: train a student on the stored distributions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from distil.decoder import as_is, compiled
from distil.files import Refused, check_settings, damaged, load_tensors, read_json, save_tensors, write_json
from distil.llama import hidden_states, load_llama, read_shape
from distil.loss import LossWeights, chunk_gradient, fused_head_loss
from distil.shards import Rows, load_rows, shard_files, unpack_ids
from distil.student import Student, student_shape
from distil.target import check_target

_CHECKPOINT_SECONDS = 60.0
_LOG_EVERY = 50
_HELD_OUT_EVERY = 500
_PROBE = (20, 60)  # steps before and after which the time of a step is taken, for a budget in minutes
_CHUNK = 8192


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """What decides the weights, apart from the rows and the number of steps.

    `other_weight` is that of tokens which are not the target's own answers (an answer's have weight 1);
    `batch` counts rows; `held_out` rows are taken off the first shard and never trained on.
    """

    width: int = 256
    layers: int = 5
    heads: int = 4
    kv_heads: int = 4
    mlp: int = 768
    batch: int = 64
    peak: float = 2e-3
    warmup: int = 200
    decay: float = 0.05
    kl: float = 0.3
    tv: float = 1.0
    top: float = 0.1
    other_weight: float = 0.25
    held_out: int = 64
    seed: int = 1

    def __post_init__(self) -> None:
        """Refused when the heads do not divide the width, or nothing is left of the loss."""
        if self.width % self.heads or self.heads % self.kv_heads or self.width // self.heads % 2:
            raise Refused(
                f"{self.heads} heads with {self.kv_heads} for keys do not fit a width of {self.width}: "
                "heads must divide it into even parts, and kv-heads must divide heads"
            )
        if not self.kl + self.tv + self.top:
            raise Refused("one of --kl, --tv and --top must be above 0")


def learning_rate(step: int, total: int | None, settings: TrainingSettings) -> float:
    """Linear up to the peak, then linear down to zero at `total`; while no total is known, no way down."""
    rise = min(1.0, (step + 1) / settings.warmup)
    if total is None:
        return settings.peak * rise
    return settings.peak * min(rise, (total - step) / max(1, total - settings.warmup))


def rows_of_step(step: int, batch: int, first: int, count: int, seed: int) -> Tensor:
    """Row numbers [batch] of a step: every epoch is a new order of the rows from `first` on. Needs no state."""
    epoch, place = divmod(step, (count - first) // batch)
    return first + _order(epoch, count - first, seed)[place * batch : (place + 1) * batch]


@lru_cache(maxsize=2)
def _order(epoch: int, count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed * 100_003 + epoch))


def token_weights(rows: Rows, other_weight: float) -> Tensor:
    """Weights [rows * length], adding up to one."""
    weights = torch.full(rows.of_answer.shape, other_weight, device=rows.of_answer.device)
    weights = weights.masked_fill(rows.of_answer, 1.0).flatten()
    return weights / weights.sum()


class Trainer:
    """A student, its optimizer and how a step runs. `compile` is `compiled` or `as_is`."""

    def __init__(self, student: Student, settings: TrainingSettings, device: torch.device, compile: Any) -> None:
        self.student, self.settings, self.device = student.to(device), settings, device
        self.weights = LossWeights(settings.kl, settings.tv, settings.top)
        self._dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._trunk = compile(student.trunk)
        self._gradient_of = compile(chunk_gradient)
        matrices, others = student.decayed()
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": settings.decay}, {"params": others, "weight_decay": 0.0}],
            lr=settings.peak,
            betas=(0.9, 0.95),
            fused=True if device.type == "cuda" else None,
        )

    def gradients(self, rows: Rows) -> Tensor:
        """Add the gradients of a batch to the parameters; the sums [3] of loss, acceptance and agreement."""
        tokens = unpack_ids(rows.tokens)
        # The look-up stays outside of the compiled part: its backward pass sorts instead of adding atomically.
        x = F.embedding(tokens, self.student.embedding).to(self._dtype)
        hidden = self._trunk(x).flatten(0, 1)
        loss, sums = fused_head_loss(
            hidden,
            self.student.embedding,
            unpack_ids(rows.ids).flatten(0, 1),
            rows.probabilities.flatten(0, 1),
            token_weights(rows, self.settings.other_weight),
            self.weights,
            _CHUNK,
            self._gradient_of,
        )
        loss.backward()
        return sums

    def step(self, rows: Rows, rate: float) -> Tensor:
        """One step of the optimizer; the sums of `gradients`, still on the device."""
        sums = self.gradients(rows)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return sums

    @torch.no_grad()
    def held_out(self, rows: Rows) -> dict[str, float]:
        """Loss, Σ min(p, q) and agreement of the first choice over the answers' tokens of rows not trained on.

        Empty where there is no such token.
        """
        model = self.student.as_llama()
        total = torch.zeros(3, device=self.device)
        tokens = 0
        for begin in range(0, len(rows), 8):
            part = rows.pick(torch.arange(begin, min(begin + 8, len(rows))), self.device)
            hidden = hidden_states(model, unpack_ids(part.tokens)).flatten(0, 1)
            chosen = part.of_answer.flatten().nonzero().squeeze(1)
            if len(chosen):
                ids, p = unpack_ids(part.ids).flatten(0, 1)[chosen], part.probabilities.flatten(0, 1)[chosen]
                ones = torch.ones(len(chosen), device=self.device)
                sums, _ = chunk_gradient(hidden[chosen] @ model.head.t(), ids, p, ones, self.weights)
                total += sums
                tokens += len(chosen)
        if not tokens:
            return {}
        loss, accepted, agreed = (total / tokens).tolist()
        return {"held_out_loss": loss, "held_out_accepted": accepted, "held_out_agreed": agreed}


def make_trainer(
    student: Student,
    settings: TrainingSettings,
    device: torch.device,
    compile: bool,
    sample: Rows,
    tell: Callable[[str], None],
) -> Trainer:
    """A trainer that compiles where that works; `sample` is a batch of the size of all."""
    if compile and device.type == "cuda":
        trainer = Trainer(student, settings, device, compiled)
        try:
            trainer.gradients(sample)
        except Exception as error:  # a compiler fails in ways of its own; without it training is slower, not wrong
            tell(f"torch.compile does not work here: {type(error).__name__}: {str(error)[:500]}")
        else:
            trainer.optimizer.zero_grad(set_to_none=True)
            return trainer
        student.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
    return Trainer(student, settings, device, as_is)


def train(
    run: Path,
    name: str,
    target: Path,
    settings: TrainingSettings,
    tokens: int | None,
    minutes: float | None,
    device: torch.device,
    compile: bool,
    tell: Callable[[str], None],
    checkpoint_seconds: float = _CHECKPOINT_SECONDS,
    stop_after: int | None = None,
) -> None:
    """Train candidate `name` in `run`/models/`name` for `tokens`, or for `minutes` with the steps fixed after a while.

    Goes on from its checkpoint; does nothing when the weights are there. Refused, before anything is written,
    when the candidate was begun with other settings, another amount or another text. `stop_after` ends this
    call after so many steps, as an interruption would.
    """
    begun = time.monotonic()
    folder = run / "models" / name
    checkpoint = folder / "checkpoint.pt"
    budget = {"budget_tokens": tokens, "budget_minutes": minutes}
    check_settings(folder / "settings.json", asdict(settings) | budget, begun=checkpoint.exists())
    if checkpoint.exists() and (folder / "training.json").exists():
        check_target(run, target)
        tell(f"training of {name} is finished")
        return
    files = shard_files(run / "shards")
    if not files:
        raise Refused(f"{run} holds no text yet: generate first")
    check_target(run, target)
    written = read_json(run / "generation.json", needed=["finished", "tokens"])
    if not written["finished"]:
        raise Refused(f"the text in {run} is not finished: the same generate command goes on")
    rows = load_rows(files, device)
    length = rows.tokens.shape[1]
    if rows.tokens.numel() != written["tokens"]:
        raise Refused(
            f"{run} holds {rows.tokens.numel():,} tokens of text and not the {written['tokens']:,} that were written: "
            "the same generate command writes what is missing"
        )
    held = min(settings.held_out, len(rows) // 4)
    if len(rows) - held < settings.batch:
        raise Refused(f"{len(rows) - held} rows are too few for a batch of {settings.batch}")
    teacher = load_llama(target, torch.device("cpu"), torch.float32)
    shape = student_shape(
        teacher.shape, settings.width, settings.layers, settings.heads, settings.kv_heads, settings.mlp
    )
    student = Student(shape, length, settings.seed, teacher.embedding)
    del teacher
    state = load_tensors(checkpoint) if checkpoint.exists() else None
    if state is not None and state.get("rows") != len(rows):
        raise Refused(f"{name} was begun with another amount of text in {run}: train under another name")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "settings.json", asdict(settings) | budget)

    def batch_of(step: int) -> Rows:
        return rows.pick(rows_of_step(step, settings.batch, held, len(rows), settings.seed), device)

    trainer = make_trainer(student, settings, device, compile, batch_of(0), tell)
    per_step = settings.batch * length
    total = max(1, tokens // per_step) if tokens else None
    first, before = 0, 0.0
    log: list[dict[str, float]] = []
    if state is not None:
        student.load_state_dict(state["student"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        first, before, total, log = state["step"], state["seconds"], state["total"], state["log"]
        tell(f"{name}: going on at step {first}")

    def seconds() -> float:
        return before + time.monotonic() - begun

    def save(step: int) -> None:
        weights = {"student": student.state_dict(), "optimizer": trainer.optimizer.state_dict()}
        place = {"step": step, "rows": len(rows), "seconds": seconds(), "total": total, "log": log}
        save_tensors(checkpoint, weights | place)
        (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log), encoding="utf-8")

    saved = started = time.monotonic()
    probed = 0.0
    sums = torch.zeros(3, device=device)
    step, summed = first, 0
    while total is None or step < total:
        sums += trainer.step(batch_of(step), learning_rate(step, total, settings))
        step, summed = step + 1, summed + 1
        if total is None and step - first in _PROBE:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            now = time.monotonic()
            if step - first == _PROBE[1]:
                # Three per cent are left for the checkpoints and the last evaluation.
                left = max(0.0, 60 * (minutes or 0.0) * 0.97 - seconds())
                total = step + int(left / ((now - probed) / (_PROBE[1] - _PROBE[0])))
            probed = now
        if step % _LOG_EVERY == 0 or step == total:
            loss, accepted, agreed = (sums / summed).tolist()
            sums.zero_()
            summed = 0
            line = {
                "step": step,
                "tokens": step * per_step,
                "tokens_per_second": round((step - first) * per_step / (time.monotonic() - started)),
                "seconds": round(seconds(), 1),
                "loss": loss,
                "accepted": accepted,
                "agreed": agreed,
            }
            if step % _HELD_OUT_EVERY == 0 or step == total:
                line |= trainer.held_out(rows.pick(torch.arange(held), device))
            log.append(line)
            tell(f"{name} of {total or '?'}: " + " ".join(f"{key} {value:.6g}" for key, value in line.items()))
        if time.monotonic() - saved > checkpoint_seconds:
            save(step)
            saved = time.monotonic()
        if stop_after is not None and step - first >= stop_after:
            return
    save(step)
    (folder / "evaluation.json").unlink(missing_ok=True)  # of weights that were lost
    write_json(
        folder / "training.json",
        {
            "steps": step,
            "tokens": step * per_step,
            "seconds": round(seconds(), 1),
            "tokens_per_second": log[-1]["tokens_per_second"],
            "parameters": sum(p.numel() for p in student.parameters()),
            "rows": len(rows) - held,
            "epochs": round(step * settings.batch / (len(rows) - held), 2),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "torch": torch.__version__,
            "last": log[-1],
        },
    )


def load_student(run: Path, name: str, target: Path) -> Student:
    """The trained candidate on the CPU; Refused when its training is not finished or `target` is another one."""
    folder = run / "models" / name
    checkpoint = folder / "checkpoint.pt"
    if not (checkpoint.exists() and (folder / "training.json").exists()):
        raise Refused(f"training of {name} is not finished")
    check_target(run, target)
    sizes = ("width", "layers", "heads", "kv_heads", "mlp")
    settings = read_json(folder / "settings.json", needed=sizes)
    student = Student(student_shape(read_shape(target), *(settings[each] for each in sizes)), 1, 0)
    try:
        student.load_state_dict(load_tensors(checkpoint)["student"])
    except (KeyError, RuntimeError) as error:
        raise damaged(checkpoint, error) from error
    return student
