from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_transformers import tiny_model

from specdec_tui.backends import memory
from specdec_tui.backends.memory import Estimate
from specdec_tui.backends.pair import LoadError

GIB = 1 << 30


def gpus(monkeypatch: pytest.MonkeyPatch, *free: int, cpu: int = 64 * GIB) -> None:
    """A machine with this much free memory on each GPU and on the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(free))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
    sizes = {"cpu": cpu} | {f"cuda:{index}": size for index, size in enumerate(free)}
    monkeypatch.setattr(memory, "available_bytes", sizes.__getitem__)


def needing(size: int, name: str = "target") -> Estimate:
    return Estimate(name, parameters=1, weight_bytes=int(size / 1.05), cache_bytes_per_token=0)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt2", "mamba"])
def test_the_estimate_counts_the_weights_that_a_loaded_model_has(kind: str, tied: bool) -> None:
    model = tiny_model(kind, tie_word_embeddings=tied)
    need = memory.estimate("m", model.config, torch.float32, "none")
    assert need.parameters == model.num_parameters()
    assert need.weight_bytes == 4 * need.parameters


def test_half_precision_halves_and_quantization_shrinks_the_linear_layers_alone() -> None:
    config = tiny_model("llama").config
    full, half, int8, int4 = (
        memory.estimate("m", config, dtype, quantization).weight_bytes
        for dtype, quantization in (
            (torch.float32, "none"),
            (torch.bfloat16, "none"),
            (torch.bfloat16, "int8"),
            (torch.bfloat16, "int4"),
        )
    )
    embeddings = 2 * 320 * 32 * 2
    assert half == full // 2
    assert embeddings < int4 < int8 < half
    assert int8 - embeddings == pytest.approx((half - embeddings) / 2, rel=0.05)


def test_the_cache_estimate_is_what_keys_and_values_of_a_token_take() -> None:
    need = memory.estimate("m", tiny_model("llama").config, torch.float32, "none")
    assert need.cache_bytes_per_token == 2 * 3 * 2 * 8 * 4


def test_a_pair_that_fits_goes_to_the_roomiest_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 4 * GIB, 9 * GIB)
    places = memory.place([needing(6 * GIB), needing(2 * GIB, "drafter")], "cuda")
    assert [place.device for place in places] == ["cuda:1", "cuda:1"]
    assert all(place.max_memory is None and not place.note for place in places)


def test_a_target_that_leaves_no_room_for_its_drafter_has_a_gpu_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 4 * GIB, 9 * GIB, 5 * GIB)
    needs = [needing(8 * GIB), needing(3 * GIB, "drafter"), needing(GIB, "other")]
    target, *others = memory.place(needs, "cuda")
    assert target.device == "cuda:1" and [place.device for place in others] == ["cuda:2", "cuda:2"]
    assert all(place.max_memory is None for place in (target, *others))
    assert target.note == "target is on cuda:1 and drafter and other on cuda:2: they do not fit one GPU together."
    assert memory.place([needing(8 * GIB), needing(5 * GIB, "drafter")], "cuda")[0].max_memory is not None


def test_a_target_too_large_for_one_gpu_is_spread_and_the_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 8 * GIB, 9 * GIB)
    target, drafter = memory.place([needing(12 * GIB), needing(GIB, "drafter")], "cuda")
    assert target.max_memory is not None and set(target.max_memory) == {0, 1}
    assert "spread over 2" in target.note
    assert drafter.device == "cuda:1" and drafter.max_memory is None


def test_what_the_gpus_cannot_hold_goes_to_the_cpu_and_the_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 8 * GIB)
    (place,) = memory.place([needing(12 * GIB)], "cuda:0")
    assert place.max_memory is not None and set(place.max_memory) == {0, "cpu"}
    assert "CPU" in place.note


def test_a_quantized_target_is_not_moved_to_the_cpu_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 8 * GIB)
    with pytest.raises(LoadError, match="quantized"):
        memory.place([needing(12 * GIB)], "cuda", "int8")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_impossible_fit_is_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    gpus(monkeypatch, GIB, cpu=2 * GIB)
    with pytest.raises(LoadError, match=r"target 10\.7 GB needed, .*2\.1 GB free"):
        memory.place([needing(10 * GIB)], device)


def test_cuda_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch)
    assert memory.resolve_device("auto") == "cpu"
    with pytest.raises(LoadError, match="no CUDA GPU"):
        memory.resolve_device("cuda")


def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, GIB)
    assert memory.resolve_device("auto") == "cuda"
    assert memory.resolve_device("cuda:0") == "cuda:0"
    with pytest.raises(LoadError, match="this machine has cuda:0"):
        memory.resolve_device("cuda:7")


def test_a_containers_limit_counts_and_its_cached_files_do_not(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 400\ninactive_file 200\nactive_file 100\n")
    assert memory._container_bytes(tmp_path) == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._container_bytes(tmp_path) > 2**60
    assert memory._container_bytes(tmp_path / "absent") > 2**60
