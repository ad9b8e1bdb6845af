"""Tensors of GGUF files where they lie, headers that are read once, and split files."""

from __future__ import annotations

import os
import re
from pathlib import Path

import gguf
import numpy as np
import pytest
from tiny_gguf import KIND, parts, random_blocks, write_tiny_gguf

from specdec_tui.backends.gguf import header as header_module
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.gguf.header import read_header
from specdec_tui.backends.gguf.kinds import KINDS
from specdec_tui.backends.gguf.parts import header_of, parts_of
from specdec_tui.backends.pair import LoadAbandoned, LoadError, Progress
from specdec_tui.backends.small_files import FileProblem

MIXED = {"blk.*ffn": KIND.Q6_K, "blk.*attn_v": KIND.Q5_K, "token": KIND.Q8_0, "": KIND.Q4_K}


def silent(progress: Progress) -> None:
    pass


def test_kinds_are_those_of_the_library() -> None:
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert theirs.items() <= {number: tuple(kind) for number, kind in KINDS.items()}.items()


@pytest.mark.parametrize("splits", [1, 3])
def test_rows_of_every_tensor_are_the_packed_ones(tmp_path: Path, splits: int) -> None:
    meant = write_tiny_gguf(tmp_path / "m.gguf", kinds=MIXED, splits=splits)
    file = GgufFile(parts(tmp_path / "m.gguf", splits)[0] if splits > 1 else tmp_path / "m.gguf")
    assert set(file.tensors) == set(meant)
    for name, values in meant.items():
        tensor, rows = file.tensors[name], file.rows(name)
        assert tensor.shape == values.shape and rows.dtype == np.uint8 and not rows.flags.writeable
        assert len(rows) == (values.shape[0] if values.ndim > 1 else 1)
        unpacked = gguf.quants.dequantize(rows, KIND(tensor.kind)).reshape(values.shape)
        assert np.array_equal(unpacked.view(np.uint32), values.view(np.uint32))
    assert file.header.parameters == sum(values.size for values in meant.values())


@pytest.mark.parametrize("kind", [KIND.F32, KIND.F16, KIND.BF16])
def test_plain_numbers_become_float32_in_their_shape(tmp_path: Path, kind: KIND) -> None:
    meant = write_tiny_gguf(tmp_path / "m.gguf", kinds={"blk.0.attn_k": kind})
    found = GgufFile(tmp_path / "m.gguf").floats("blk.0.attn_k.weight")
    assert found.dtype == np.float32 and np.array_equal(found, meant["blk.0.attn_k.weight"])


def test_a_tensor_that_is_not_there_or_of_another_kind_is_named(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf")
    file = GgufFile(tmp_path / "m.gguf")
    with pytest.raises(LoadError, match=r"has no tensor output.weight"):
        file.rows("output.weight")
    with pytest.raises(LoadError, match=r"holds blk.0.attn_k.weight as Q4_1, where plain numbers"):
        file.floats("blk.0.attn_k.weight")


def test_rows_that_are_no_whole_blocks_are_named(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", kinds={"blk.0.attn_k": KIND.F16})
    content = (tmp_path / "m.gguf").read_bytes()
    place = content.index(b"blk.0.attn_k.weight") + len(b"blk.0.attn_k.weight") + 4
    odd = content[:place] + (250).to_bytes(8, "little") + content[place + 8 :]
    odd = odd[: place + 16] + int(KIND.Q4_K).to_bytes(4, "little") + odd[place + 20 :]
    (tmp_path / "m.gguf").write_bytes(odd)
    with pytest.raises(
        FileProblem, match=r"blk.0.attn_k.weight in it has rows of 250, .* whole blocks of Q4_K \(256\)"
    ):
        read_header(tmp_path / "m.gguf")


def test_lists_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", fields={"a.numbers": [1, -2, 3], "a.texts": ["é", "", "x" * 300]})
    header = read_header(tmp_path / "m.gguf")
    assert header.length("tokenizer.ggml.tokens") == 512 and header.length("nothing") == 0
    assert header.array("tokenizer.ggml.tokens")[:2] == ["<s>", "</s>"]
    assert header.array("a.numbers") == [1, -2, 3] and header.array("a.texts") == ["é", "", "x" * 300]
    with pytest.raises(FileProblem, match="has no nothing in its header"):
        header.array("nothing")


def test_a_header_is_read_once_for_as_long_as_its_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[Path] = []
    walk = header_module._walk
    monkeypatch.setattr(header_module, "_walk", lambda reader, path: walks.append(path) or walk(reader, path))
    path = tmp_path / "m.gguf"
    write_tiny_gguf(path)
    assert read_header(path) is read_header(path)
    assert len(walks) == 1
    write_tiny_gguf(path, fields={"general.name": "another"})
    assert read_header(path).texts["general.name"] == "another"
    os.utime(path, ns=(1, 1))
    read_header(path)
    assert len(walks) == 3


def test_every_part_names_all_parts(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", splits=3)
    expected = tuple(parts(tmp_path / "m.gguf", 3))
    for part in expected:
        file = GgufFile(part)
        assert file.paths == expected == parts_of(part)
        assert file.header.architecture == "llama" and file.header.length("tokenizer.ggml.tokens") == 512
        assert {tensor.part for tensor in file.tensors.values()} == {0, 1, 2}
        assert file.size == sum(path.stat().st_size for path in expected)
    assert parts_of(tmp_path / "m-00001-of-00001.gguf") == (tmp_path / "m-00001-of-00001.gguf",)


class TestSplitFilesAreRefused:
    @pytest.fixture
    def three(self, tmp_path: Path) -> list[Path]:
        write_tiny_gguf(tmp_path / "m.gguf", splits=3)
        return parts(tmp_path / "m.gguf", 3)

    def refused(self, path: Path, said: str) -> None:
        with pytest.raises(FileProblem, match=re.escape(said)):
            header_of(path)

    def test_with_a_part_that_is_missing(self, three: list[Path]) -> None:
        three[1].unlink()
        self.refused(three[0], "is one of 3 parts, of which m-00002-of-00003.gguf is not there")
        self.refused(three[1], "is not there")

    def test_with_a_part_that_is_cut_off(self, three: list[Path]) -> None:
        three[2].write_bytes(three[2].read_bytes()[:-100])
        self.refused(three[0], "is one of 3 parts, of which m-00003-of-00003.gguf is cut off")

    def test_with_parts_in_another_order(self, three: list[Path]) -> None:
        content = three[1].read_bytes()
        three[1].write_bytes(three[2].read_bytes())
        three[2].write_bytes(content)
        said = "m-00002-of-00003.gguf is part 3 of 3 by its header, and part 2 of 3 by its name"
        self.refused(three[0], f"is one of 3 parts, of which {said}")

    def test_with_a_part_that_is_a_whole_model(self, three: list[Path], tmp_path: Path) -> None:
        write_tiny_gguf(tmp_path / "whole.gguf")
        (tmp_path / "whole.gguf").replace(three[2])
        self.refused(three[0], "m-00003-of-00003.gguf is a file of its own by its header, and part 3 of 3 by its name")

    def test_with_parts_of_different_models(self, three: list[Path], tmp_path: Path) -> None:
        write_tiny_gguf(tmp_path / "other.gguf", architecture="qwen3", splits=3)
        parts(tmp_path / "other.gguf", 3)[2].replace(three[2])
        self.refused(three[0], "parts")
        with pytest.raises(FileProblem, match=r"of different models|not those of one model"):
            header_of(three[0])

    def test_with_a_part_of_another_name(self, three: list[Path]) -> None:
        renamed = three[1].rename(three[1].with_name("m.gguf"))
        self.refused(renamed, "is part 2 of a split GGUF file of 3 parts, which its name does not say")


def test_warming_tells_bytes_and_can_be_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec_tui.backends.gguf.files._CHUNK", 1 << 18)
    write_tiny_gguf(tmp_path / "m.gguf", splits=2)
    file = GgufFile(parts(tmp_path / "m.gguf", 2)[0])
    told: list[Progress] = []
    file.warm(told.append)
    fractions = [progress.fraction or 0.0 for progress in told]
    assert len(told) > 3 and fractions == sorted(fractions) and (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert told[0].stage == f"Reading m-00001-of-00002.gguf: 0 MB of {file.size / 1e3:.0f} kB"

    def abandon(progress: Progress) -> None:
        if progress.fraction:
            raise LoadAbandoned

    with pytest.raises(LoadAbandoned):
        file.warm(abandon)


@pytest.mark.parametrize("kind", [KIND.Q2_K, KIND.Q3_K, KIND.Q4_K, KIND.Q5_K, KIND.Q6_K, KIND.Q4_0, KIND.Q5_1])
def test_random_blocks_are_weights_of_a_usual_size(kind: KIND) -> None:
    packed = random_blocks((64, 512), kind, np.random.default_rng(1))
    values = gguf.quants.dequantize(packed, kind)
    assert values.shape == (64, 512) and 0.05 < values.std() < 0.07 and abs(values.mean()) < 0.01
