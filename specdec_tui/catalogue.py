"""The `models` command: presets, what the local cache holds, and what would fit into memory here."""

from __future__ import annotations

from specdec_tui.backends.pair import LoadError
from specdec_tui.backends.presets import DEMO_TARGET, NO_DRAFTER, PRESETS, ModelSpec, resolve
from specdec_tui.doors import output
from specdec_tui.settings import ModelChoice, SettingError, parse_path, reason_of


def show_models(choice: ModelChoice) -> int:
    """Print both tables. Exit status 0; LoadError's line and 2 for a device that is not there."""
    if choice.target_url:
        return _show_server(choice)
    from specdec_tui.backends.hub_cache import CachedModel, scan_cache
    from specdec_tui.backends.memory import gigabytes, resolve_device

    try:
        device = resolve_device(choice.device)
    except LoadError as error:
        output.complain(str(error))
        return 2
    found = scan_cache()
    names = {model.name for model in found if isinstance(model, CachedModel)}
    presets = []
    for name, preset in PRESETS.items():
        pair = resolve(ModelChoice(name, device=choice.device, dtype=choice.dtype, quantize=choice.quantize))
        specs = [pair.target, *pair.drafters]
        cached = all(_is_cached(spec, names) for spec in specs)
        needs, fits = _fit(specs, device) if cached else _rough_fit(preset.parameters, specs, device)
        presets.append(
            (
                name,
                pair.target.name,
                " + ".join(drafter.name for drafter in pair.drafters) or NO_DRAFTER,
                "yes" if cached else "no",
                needs + ("" if preset.quantization == "none" else f" ({preset.quantization})"),
                fits,
            )
        )
    headings = ("preset", "target", "drafter", "cached", "needs", "fits")
    output.show(output.Sheet(headings, presets, f"Presets (on {device})"))
    cached_rows = []
    for model in found:
        if not isinstance(model, CachedModel):
            cached_rows.append((model.name, "damaged", "", "", model.reason))
            continue
        spec = ModelSpec(model.name, choice.dtype, choice.device, choice.quantize or "none")
        cached_rows.append((model.name, model.model_type, gigabytes(model.size_bytes), *_fit([spec], device)))
    if found:
        output.show(output.Sheet(("model", "type", "on disk", "needs", "fits"), cached_rows, "Local hub cache"))
    else:
        output.say("The local hub cache holds no language model.")
    output.say("Any other hub id, folder or GGUF file: specdec-tui --target NAME --drafter NAME")
    return 0


def show_files(named: str) -> int:
    """Print what the GGUF files of a folder are. Exit status 0; a line and 2 where there is no such folder."""
    from specdec_tui.backends.gguf.folder import gguf_files
    from specdec_tui.backends.memory import gigabytes
    from specdec_tui.backends.quiet import quiet

    try:
        with quiet():
            found = list(gguf_files(parse_path(named)))
    except SettingError as error:
        output.complain(str(error))
        return 2
    except NotADirectoryError:
        output.complain(f"{named} is neither a folder nor a GGUF file.")
        return 2
    except OSError as error:
        output.complain(f"{named} cannot be listed: {reason_of(error)}.")
        return 2
    if not found:
        output.say(f"{named} holds no GGUF file (folders in it are not looked into).")
        return 0
    rows = [
        (
            file.name,
            file.architecture,
            file.kinds,
            f"{file.parameters / 1e6:,.0f} M" if file.parameters else "",
            gigabytes(file.size_bytes),
            f"{file.context_length:,}" if file.context_length else "",
            file.form,
        )
        for file in found
    ]
    headings = ("file", "model", "kinds", "parameters", "on disk", "context", "weights on a CPU")
    right = frozenset(("parameters", "on disk", "context"))
    output.show(output.Sheet(headings, rows, f"GGUF files in {named}", right=right))
    if not all(file.form.startswith("refused") for file in found):
        output.say("To run one: specdec-tui --target FILE, with --drafter for a smaller one of its family")
    return 0


def _show_server(choice: ModelChoice) -> int:
    """The models of a server, and what was seen of the one that is named, or is its only one."""
    from specdec_tui.backends.quiet import quiet
    from specdec_tui.backends.remote.connect import connect, models_of, place_of

    try:
        with quiet():
            rows = [(name, "?" if length is None else f"{length:,}") for name, length in models_of(choice.target_url)]
            output.show(output.Sheet(("model", "context"), rows, f"On {place_of(choice.target_url)}"))
            if choice.target or len(rows) == 1:
                found = connect(choice, lambda progress: None, lambda: False)
                for sentence in (*found.info.seen, *found.info.notices):
                    output.say(sentence)
    except LoadError as error:
        output.complain(str(error))
        return 2
    return 0


def _is_cached(spec: ModelSpec, names: set[str]) -> bool:
    from specdec_tui.backends import demo

    if spec.source == DEMO_TARGET:
        return demo.cached_target_file() is not None
    return spec.source.startswith("demo-") or spec.source in names


def _rough_fit(parameters: tuple[float, float], specs: list[ModelSpec], device: str) -> tuple[str, str]:
    """The same from the parameter counts alone: weights, and a tenth for keys, values and activations."""
    from specdec_tui.backends import memory
    from specdec_tui.backends.weights import resolve_dtype

    sizes = {"int8": 1.0, "int4": 0.6, "none": float(resolve_dtype(specs[0].dtype, device).itemsize)}
    pairs = zip(parameters, specs, strict=True)
    total = 1.1 * sum(count * sizes[spec.quantization] for count, spec in pairs)
    free = memory.available_bytes(device if device != "cuda" else "cuda:0")
    return f"about {memory.gigabytes(total)}", "probably" if total < free else "no"


def _fit(specs: list[ModelSpec], device: str) -> tuple[str, str]:
    """What these models need together, and whether it is free here."""
    from specdec_tui.backends import memory
    from specdec_tui.backends.description import describe
    from specdec_tui.backends.errors import plainly
    from specdec_tui.backends.quiet import quiet
    from specdec_tui.backends.weights import resolve_dtype

    try:
        with quiet():
            needs = []
            for spec in specs:
                config = describe(spec, lambda progress: None).config
                needs.append(memory.estimate(spec.name, config, resolve_dtype(spec.dtype, device), spec.quantization))
    except LoadError as error:
        return "?", str(error).removeprefix(f"{specs[0].name}: ")
    except Exception as error:  # one model that cannot be read must not hide the others
        return "?", f"cannot be read: {plainly(error)}"
    total = memory.gigabytes(sum(need.total_bytes for need in needs))
    try:
        placements = memory.place(needs, device, specs[0].quantization)
    except LoadError:
        return total, "no"
    return total, placements[0].note or "yes"
