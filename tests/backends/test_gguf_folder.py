"""What is said of the GGUF files of a folder."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
from tiny_gguf import KIND, Sizes, parts, write_tiny_gguf

from specdec_tui import cli
from specdec_tui.backends.gguf.folder import Listed, gguf_files
from specdec_tui.backends.hub import locate
from specdec_tui.backends.memory import gigabytes
from specdec_tui.backends.pair import LoadError

MIXED = {"blk.*ffn": KIND.Q6_K, "token": KIND.Q8_0, "": KIND.Q4_K}
OTHER = "expanded: of llama models with experts weights are not read packed"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One of each sort, and what is none."""
    files = tmp_path / "files"
    files.mkdir()
    write_tiny_gguf(files / "a.gguf", kinds=MIXED)
    write_tiny_gguf(files / "b.gguf", architecture="qwen3", kinds={"": KIND.Q4_K}, splits=3)
    write_tiny_gguf(files / "c.gguf", kinds={"blk.1.ffn_up": KIND.Q2_K, "": KIND.Q4_K})
    write_tiny_gguf(files / "d.gguf", fields={"llama.expert_count": 8})
    write_tiny_gguf(files / "e.gguf", architecture="clip")
    write_tiny_gguf(files / "f.gguf", fields={"tokenizer.ggml.pre": "future"})
    write_tiny_gguf(files / "g.gguf", sizes=Sizes(layers=1), fields={"llama.block_count": 2})
    (files / "h.GGUF").write_bytes((files / "a.gguf").read_bytes()[:100_000])
    write_tiny_gguf(files / "i.gguf", splits=2)
    parts(files / "i.gguf", 2)[0].unlink()
    (files / "notes.txt").write_text("no model")
    (files / "folder.gguf").mkdir()
    return files


def test_every_model_of_a_folder_is_one_line_with_how_it_runs(folder: Path) -> None:
    found = {file.name: file for file in gguf_files(folder)}
    assert {name: file.form for name, file in found.items() if "refused" not in file.form} == {
        "a.gguf": "packed",
        "b-00001-of-00003.gguf (3 parts)": "packed",
        "c.gguf": "expanded: products over Q2_K are not made here",
        "d.gguf": OTHER,
    }
    reasons = {name: file.form for name, file in found.items() if "refused: it " in file.form}
    assert {name: reason.removeprefix("refused: it ")[:25] for name, reason in reasons.items()} == {
        "e.gguf": "is one of clip models, wh",
        "f.gguf": "has tokenizer.ggml.pre fu",
        "g.gguf": "has no blk.1.attn_norm.we",
        "h.GGUF": "is cut off (100,000 of 1,",
        "i-00002-of-00002.gguf (2 parts)": "is one of 2 parts, of whi",
    }


def test_kinds_sizes_and_context_are_told(folder: Path) -> None:
    size = (folder / "a.gguf").stat().st_size
    assert next(gguf_files(folder)) == Listed("a.gguf", "llama", "Q6_K + Q4_K + Q8_0", 1_312_000, size, 256, "packed")
    split = next(file for file in gguf_files(folder) if file.name.startswith("b"))
    assert split.size_bytes == sum(part.stat().st_size for part in parts(folder / "b.gguf", 3))
    assert split.parameters == 1_312_000 + 2 * 2 * 64  # norms of its heads


def test_one_file_may_be_named(folder: Path) -> None:
    (file,) = gguf_files(folder / "c.gguf")
    assert file.name == "c.gguf" and file.kinds == "Q4_K + Q2_K"


def test_models_shows_the_files_of_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "defghi":
        for path in folder.glob(f"{name}*.gguf"):
            if path.is_file():
                path.unlink()
    assert cli.main(["models", str(folder)]) == 0
    shown = capsys.readouterr().out
    for word in ("a.gguf", "Q6_K", "packed", "qwen3", "Q2_K"):
        assert word in shown


def test_a_folder_without_gguf_files_or_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path} holds no GGUF file (folders in it are not looked into).\n"
    assert cli.main(["models", str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err == f"specdec-tui: {tmp_path / 'no'} cannot be listed: No such file or directory.\n"
    (tmp_path / "notes.txt").write_text("no model")
    assert cli.main(["models", str(tmp_path / "notes.txt")]) == 2
    said = f"specdec-tui: {tmp_path / 'notes.txt'} is neither a folder nor a GGUF file.\n"
    assert capsys.readouterr().err == said


def test_a_vocabulary_alone_is_refused_as_what_it_is(tmp_path: Path) -> None:
    """Nothing is padded behind a header without tensors: the file is not cut off."""
    writer = gguf.GGUFWriter(tmp_path / "v.gguf", "llama")
    writer.add_context_length(256)
    writer.add_string("general.name", "v" * 5)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert (tmp_path / "v.gguf").stat().st_size % 32
    (row,) = gguf_files(tmp_path)
    assert row.form == "refused: it holds no tensors, a vocabulary at most: the file of a model is needed"


def test_how_to_run_one_is_told_where_one_can_be_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", str(folder / "a.gguf")]) == 0 and "To run one" in capsys.readouterr().out
    (folder / "text.gguf").write_text("no model")
    assert cli.main(["models", str(folder / "text.gguf")]) == 0 and "To run one" not in capsys.readouterr().out


def test_a_folder_of_gguf_files_as_a_target_names_a_file_to_give(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        LoadError, match=r"no config\.json, so it is not a model\. It holds GGUF files: give one of .*gguf\."
    ):
        locate(str(folder), lambda _: None)
    (tmp_path / "bare").mkdir()
    with pytest.raises(LoadError, match=r"no config\.json, so it is not a model\.$"):
        locate(str(tmp_path / "bare"), lambda _: None)


def test_sizes_below_a_tenth_of_a_gigabyte_are_megabytes() -> None:
    sizes = (0, 19_678_688, 98_362_432, 99_999, 100_000_000, 6.44e9)
    assert [gigabytes(size) for size in sizes] == ["0 MB", "20 MB", "98 MB", "100 kB", "0.1 GB", "6.4 GB"]
