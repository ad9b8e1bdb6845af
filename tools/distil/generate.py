"""First stage: the target writes its own text, and what it would have said at every place is kept."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from distil.choosing import choose, noise
from distil.conversation import Conversation
from distil.decoder import Decoder, as_is, compiled, disagreement, float_logits
from distil.files import Refused, check_settings, read_json, write_json
from distil.llama import Llama, load_llama, read_config, read_shape
from distil.openings import Opening, make_openings, recipe
from distil.shards import MOST_IDS, Rows, pack_ids, save_rows, shard_files
from distil.target import fingerprint

_TOLERANCE = 0.1  # relative; rounding of bfloat16 gives about 0.02 over 30 layers, a mistake much more
_LONGEST_OPENING = 128


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """What decides the text: `batch` rows of `length` tokens to a shard, the top `k` probabilities at each.

    Answers are ended after `answer_limit` tokens: greedy ones of a small model often repeat themselves from there.
    """

    batch: int = 2048
    length: int = 512
    k: int = 96
    answer_limit: int = 192
    seed: int = 1


class Author:
    """Writes batches of rows. `mode` says how the steps run, fastest first: see `MODES`."""

    def __init__(self, model: Llama, settings: GenerationSettings, end_id: int, mode: str) -> None:
        device = model.embedding.device
        batch, length, k = settings.batch, settings.length, settings.k
        self._model, self._settings = model, settings
        compile = compiled if mode == "compiled" else as_is
        fused = mode != "plain"
        self._decoder = Decoder(model, batch, length, fused, compile)
        self._choose = compile(choose)
        self._conversation = Conversation(batch, min(length, _LONGEST_OPENING), end_id, settings.answer_limit, device)
        self._position = torch.zeros(1, dtype=torch.long, device=device)
        self._current = torch.zeros(batch, dtype=torch.long, device=device)
        self._rows = Rows(
            torch.zeros(batch, length, dtype=torch.int16, device=device),
            torch.zeros(batch, length, k, dtype=torch.int16, device=device),
            torch.zeros(batch, length, k, dtype=torch.float16, device=device),
            torch.zeros(batch, length, dtype=torch.bool, device=device),
        )
        self._graph = self._capture() if fused else None

    @torch.no_grad()
    def _step(self, length: int) -> None:
        rows, position, batch = self._rows, self._position, self._settings.batch
        hidden = self._decoder.step(self._current, position, length)
        logits = float_logits(hidden, self._model.head)
        random = noise(batch, logits.shape[1], logits.device)
        sampled, ids, probabilities = self._choose(logits, *self._conversation.sampling(), *random, self._settings.k)
        rows.tokens.index_copy_(1, position, pack_ids(self._current)[:, None])
        rows.ids.index_copy_(1, position, pack_ids(ids)[:, None])
        rows.probabilities.index_copy_(1, position, probabilities.half()[:, None])
        token, of_answer = self._conversation.advance(sampled, position)
        rows.of_answer.index_copy_(1, position, of_answer[:, None])
        self._current.copy_(token)
        self._position.add_(1)

    def _capture(self) -> torch.cuda.CUDAGraph:
        """One step as a graph; RuntimeError when its kernels disagree with torch's own."""
        distance = disagreement(self._decoder)
        if not distance < _TOLERANCE:
            raise RuntimeError(f"the fused decoder is {distance:.3f} away from the plain one")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._position.zero_()
                self._step(1)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        self._position.zero_()
        with torch.cuda.graph(graph):
            self._step(1)
        return graph

    def write(self, openings: list[Opening], seed: int) -> Rows:
        """One batch of rows, on the CPU; the same for the same openings and seed in the same mode."""
        torch.manual_seed(seed)
        self._current.copy_(self._conversation.restart(openings))
        self._position.zero_()
        for n in range(self._settings.length):
            if self._graph is None:
                self._step(n + 1)
            else:
                self._graph.replay()
        rows = self._rows
        return Rows(
            rows.tokens.to("cpu", copy=True),
            rows.ids.to("cpu", copy=True),
            rows.probabilities.to("cpu", copy=True),
            rows.of_answer.to("cpu", copy=True),
        )


MODES = ("compiled", "graph", "plain")
"""compiled: own attention kernel, torch.compile and a CUDA graph; graph: the same without torch.compile;
plain: torch's own kernels one by one, the only one on a CPU."""


def make_author(
    model: Llama, settings: GenerationSettings, end_id: int, modes: Iterable[str], tell: Callable[[str], None]
) -> Author:
    """An author in the first mode that works here; what failed is told, with its reason."""
    for mode in modes:
        try:
            author = Author(model, settings, end_id, mode)
        except Exception as error:  # compilers and captures fail in ways of their own; the next mode needs less
            if mode == "plain":
                raise
            tell(f"decoding mode {mode} does not work here: {type(error).__name__}: {str(error)[:500]}")
            torch.cuda.empty_cache()
        else:
            tell(f"decoding mode: {mode}")
            return author
    raise ValueError("no decoding mode was named")


def generate(
    run: Path,
    target: Path,
    tokenizer: Any,
    settings: GenerationSettings,
    tokens: int | None,
    minutes: float | None,
    excluded: Iterable[str],
    device: torch.device,
    mode: str,
    tell: Callable[[str], None],
) -> None:
    """Write shards into `run`/shards until `tokens` or `minutes` (wall time of all calls, start included) are reached.

    A shard that exists is never written again; each has seeds of its own, so that an interruption changes nothing.
    Refused, before anything is written, when the folder was begun with other settings or another target.
    """
    begun = time.monotonic()
    report_file = run / "generation.json"
    folder = run / "shards"
    held_out = tuple(excluded)
    recorded = {
        **asdict(settings),
        **recipe(),
        "target_sha256": fingerprint(target),
        "excluded_sha256": hashlib.sha256("\n".join(sorted(held_out)).encode()).hexdigest(),
    }
    present = {int(file.stem) for file in shard_files(folder)}
    check_settings(run / "generation-settings.json", recorded, begun=bool(present))
    _check_limits(target, settings)
    report = read_json(report_file)
    per_shard = settings.batch * settings.length
    wanted = -(-tokens // per_shard) if tokens else None
    known = report.get("tokens", 0) // per_shard

    def keep_report(finished: bool, **more: Any) -> None:
        total = {"tokens": len(present) * per_shard, "budget_minutes": minutes}
        write_json(report_file, report | {"finished": finished} | total | more)

    enough = report.get("finished") and minutes is not None and minutes <= (report.get("budget_minutes") or 0.0)
    complete = all(n in present for n in range(known if wanted is None or enough else wanted))
    if present and complete and (enough or wanted is not None):
        if not report.get("finished"):  # interrupted after the last shard
            keep_report(finished=True)
        tell(f"generation is finished: {len(present) * per_shard:,} tokens")
        return

    before = report.get("seconds", 0.0)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = load_llama(target, device, dtype)
    modes = MODES[MODES.index(mode) :] if device.type == "cuda" else ("plain",)
    author = make_author(model, settings, int(tokenizer.eos_token_id), modes, tell)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(run / "generation-settings.json", recorded)

    def openings(index: int) -> list[Opening]:
        longest = min(settings.length, _LONGEST_OPENING)
        return make_openings(tokenizer, settings.batch, f"{settings.seed}/{index}", held_out, longest)

    started, longest_shard, made = time.monotonic(), 0.0, 0
    writing: Future[None] | None = None

    def seconds() -> float:
        return before + time.monotonic() - begun

    def keep_progress(finished: bool) -> None:
        keep_report(
            finished,
            seconds=round(seconds(), 2),
            tokens_per_second=round(made * per_shard / max(1e-9, time.monotonic() - started)),
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            torch=torch.__version__,
        )

    missing = (n for n in itertools.count() if n not in present)  # those that were deleted, then new ones
    with ThreadPoolExecutor(2) as pool:  # files and the next openings, while the device works
        index = next(missing)
        coming = pool.submit(openings, index)
        while wanted is None or index < wanted:
            late = minutes is not None and seconds() + longest_shard > 60 * minutes
            if late and present and index >= known:
                break
            shard_begun = time.monotonic()
            after = next(missing)
            now, coming = coming.result(), pool.submit(openings, after)
            rows = author.write(now, settings.seed * 1_000_003 + index)
            if writing is not None:
                writing.result()
            writing = pool.submit(save_rows, folder / f"{index:05d}.pt", rows)
            present.add(index)
            index, made = after, made + 1
            longest_shard = time.monotonic() - shard_begun
            keep_progress(finished=False)
            rate = made * per_shard / (time.monotonic() - started)
            tell(f"shard {len(present)}: {len(present) * per_shard:,} tokens, {rate:,.0f} tokens/s")
        if writing is not None:
            writing.result()
    if made:
        keep_progress(finished=True)
    else:  # too late for a shard: the speed is that of the earlier ones
        keep_report(finished=True)


def _check_limits(target: Path, settings: GenerationSettings) -> None:
    vocab, places = read_shape(target).vocab, read_config(target).get("max_position_embeddings")
    if vocab > MOST_IDS:
        raise Refused(f"{target} has a vocabulary of {vocab:,}: more than {MOST_IDS:,} do not fit the stored rows")
    if settings.k > vocab:
        raise Refused(f"--k {settings.k} is more than the target's vocabulary of {vocab:,}")
    if places and settings.length > places:
        raise Refused(f"--length {settings.length} is more than the {places:,} places that the target was made for")
