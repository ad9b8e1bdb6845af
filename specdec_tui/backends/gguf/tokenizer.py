"""A model's tokenizer from its GGUF file: bytes merged by ranks (`gpt2`), or SentencePiece's BPE by scores (`llama`).

Built with the tokenizers library from the header's lists alone; keys and what holds without them are llama.cpp's
(`src/llama-vocab.cpp`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from specdec_tui.backends.errors import first_line, panics_raise
from specdec_tui.backends.gguf.file_tokenizer import FileTokenizer
from specdec_tui.backends.gguf.header import TOKENS, GgufHeader
from specdec_tui.backends.gguf.pre_tokenizer import WORDS
from specdec_tui.backends.small_files import FileProblem
from specdec_tui.doors.characters import named

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_KEY = "tokenizer.ggml."
_MODEL, _PRE = f"{_KEY}model", f"{_KEY}pre"
_USUAL_PRE = "default"
_PARTS = {"gpt2": f"{_KEY}merges", "llama": f"{_KEY}scores"}  # the list that a model is made of beside its tokens
_TEMPLATE = "tokenizer.chat_template"
_NORMAL, _UNKNOWN, _CONTROL, _USERS, _UNUSED, _BYTE = range(1, 7)  # kinds of tokens
_SPACE = "▁"
_OFTEN = ("default", "gpt-2", "llama-bpe", "qwen2", "smollm", "tekken")  # names of ways to cut words
# What SentencePiece's tokens are where a file does not say.
_USUAL_IDS = {"unknown": 0, "bos": 1, "eos": 2}
# Phi-3 has its special tokens take the spaces behind them, but for these (as llama.cpp knows by its name too).
_KEEP_SPACES = ("<unk>", "<s>", "<|endoftext|>")


def tokenizer_of(header: GgufHeader) -> FileTokenizer:
    """The tokenizer, its special tokens and chat templates. FileProblem that names the key which cannot be read."""
    model = check_keys(header)
    tokens = [token or f"[EMPTY_{id}]" for id, token in enumerate(header.array(TOKENS))]
    kinds = _kinds(header, len(tokens))
    try:
        with panics_raise():
            tokenizer = _of_merges(header, tokens) if model == "gpt2" else _of_scores(header, tokens, kinds)
            _add_tokens(header, tokenizer, tokens, kinds)
            _add_ends(header, tokenizer, tokens, model)
            return _wrapped(header, tokenizer, tokens, model)
    except FileProblem:
        raise
    except Exception as error:
        raise FileProblem(f"has a tokenizer that cannot be built: {first_line(error)}") from error


def check_keys(header: GgufHeader) -> str:
    """The name of the tokenizer's model. FileProblem where a header rules out that it is read here."""
    model = header.texts.get(_MODEL, "")
    if model not in ("gpt2", "llama"):
        said = f"has {_MODEL} {named(model)}" if model else f"has no {_MODEL}"
        raise FileProblem(f"{said} in its header: gpt2 and llama are read here")
    if model == "gpt2" and (name := header.texts.get(_PRE, _USUAL_PRE)) not in WORDS:
        raise FileProblem(f"has {_PRE} {named(name)} in its header, which is not known: {_known_names()} are")
    if missing := next((key for key in (TOKENS, _PARTS[model]) if key not in header.lists), None):
        raise FileProblem(f"has no {missing} in its header")
    return model


def add_turn_ends(header: GgufHeader, tokenizer: FileTokenizer, config: PreTrainedConfig) -> None:
    """Have texts end at tokens by which the chat template ends turns and messages, where a header has no key for them.

    Converters have written these keys since 2024; llama.cpp finds the tokens by their names too.
    """
    template = tokenizer.chat_template or ""
    text = "".join(template.values()) if isinstance(template, dict) else template
    named_by_key: Any = config.eos_token_id
    ends = list(named_by_key) if isinstance(named_by_key, list) else [named_by_key]
    for name, token in {"eot": "<|end|>", "eom": "<|eom_id|>"}.items():
        id = tokenizer.added_tokens_encoder.get(token)
        if token in text and id is not None and f"{_KEY}{name}_token_id" not in header.numbers:
            ends.append(id)
    found = [id for id in dict.fromkeys(ends) if id is not None]
    config.eos_token_id = found if len(found) > 1 else next(iter(found), None)


def _known_names() -> str:
    return f"{', '.join(_OFTEN)} and {len(WORDS) - len(_OFTEN)} others"


def missing_pre(header: GgufHeader) -> str:
    """A sentence where a file does not say how its words are cut; empty where it does."""
    if header.texts.get(_MODEL) != "gpt2" or _PRE in header.texts:
        return ""
    return f"its header has no {_PRE}: words are cut as llama.cpp cuts them then, which is no model's own way"


def _kinds(header: GgufHeader, count: int) -> list[int]:
    if not header.length(key := f"{_KEY}token_type"):
        return [_NORMAL] * count
    kinds = header.array(key)
    if len(kinds) != count:
        raise FileProblem(f"is damaged: {key} in its header has {len(kinds):,} entries for {count:,} tokens")
    return kinds


def _vocabulary(tokens: list[str]) -> dict[str, int]:
    vocabulary = {token: id for id, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        twice = next(token for id, token in enumerate(tokens) if vocabulary[token] != id)
        raise FileProblem(f"is damaged: {TOKENS} in its header has {named(twice)} twice")
    return vocabulary


def _of_merges(header: GgufHeader, tokens: list[str]) -> Tokenizer:
    """GPT-2's: bytes, written as characters, are merged in the order of a list."""
    words = WORDS[header.texts.get(_PRE, _USUAL_PRE)]
    key = _PARTS["gpt2"]
    merges = [tuple(merge.split(" ")) for merge in header.array(key)]
    if wrong := next((merge for merge in merges if len(merge) != 2), None):
        raise FileProblem(f"is damaged: {key} in its header has {named(' '.join(wrong))}, which is no two tokens")
    tokenizer = Tokenizer(models.BPE(_vocabulary(tokens), merges, ignore_merges=words.whole))
    if (normalizer := words.normalizer()) is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = words.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _of_scores(header: GgufHeader, tokens: list[str], kinds: list[int]) -> Tokenizer:
    """SentencePiece's BPE: characters are merged by the scores of what they become, others fall back to bytes."""
    for id, kind in enumerate(kinds):
        if kind == _USERS:  # taken from a text before its spaces are written as this sign
            tokens[id] = tokens[id].replace(_SPACE, " ")
    scores = header.array(key := _PARTS["llama"])
    if len(scores) != len(tokens):
        raise FileProblem(f"is damaged: {key} in its header has {len(scores):,} entries for {len(tokens):,} tokens")
    vocabulary = _vocabulary(tokens)
    unknown = tokens[header.whole(f"{_KEY}unknown_token_id", _USUAL_IDS["unknown"])]
    tokenizer = Tokenizer(
        models.BPE(
            vocabulary,
            _merges_of(vocabulary, scores, kinds),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=_BYTE in kinds,
        )
    )
    spaces = normalizers.Replace(" ", _SPACE)
    to_spaces = decoders.Replace(_SPACE, " ")
    if header.numbers.get(f"{_KEY}add_space_prefix", True):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces])
        end = [decoders.Strip(" ", 1, 0)]
    else:
        tokenizer.normalizer, end = spaces, []
    tokenizer.decoder = decoders.Sequence([to_spaces, decoders.ByteFallback(), decoders.Fuse(), *end])
    return tokenizer


def _merges_of(vocabulary: dict[str, int], scores: list[float], kinds: list[int]) -> list[tuple[str, str]]:
    """Pairs that become a token, best first: by its score, then the pair whose left part is the longer.

    In the order in which transformers' own conversion of SentencePiece models has them.
    """
    found = []
    for token, id in vocabulary.items():
        if kinds[id] not in (_NORMAL, _USERS, _UNUSED):
            continue
        score, text = scores[id], token.replace(" ", _SPACE)
        for cut in range(len(text) - 1, 0, -1):
            left, right = text[:cut], text[cut:]
            if left in vocabulary and right in vocabulary and text in vocabulary:
                found.append((-score, -cut, cut - len(text), left, right))
    found.sort(key=lambda pair: pair[:3])
    return [(left, right) for *_, left, right in found]


def _add_tokens(header: GgufHeader, tokenizer: Tokenizer, tokens: list[str], kinds: list[int]) -> None:
    """Tokens that are found in a text before anything else is done with it."""
    takes_spaces = header.architecture == "phi3" and header.texts.get(_MODEL) == "llama"

    def added(id: int) -> AddedToken:
        special = kinds[id] in (_CONTROL, _UNKNOWN)
        behind = takes_spaces and special and tokens[id] not in _KEEP_SPACES
        return AddedToken(tokens[id], special=special, normalized=False, rstrip=behind)

    tokenizer.add_special_tokens([added(id) for id, kind in enumerate(kinds) if kind in (_CONTROL, _UNKNOWN)])
    tokenizer.add_tokens([added(id) for id, kind in enumerate(kinds) if kind == _USERS])


def _id(header: GgufHeader, name: str, model: str) -> int | None:
    key = f"{_KEY}{name}_token_id"
    if key in header.numbers:
        return header.whole(key, 0)
    return _USUAL_IDS.get(name) if model == "llama" else None


def _add_ends(header: GgufHeader, tokenizer: Tokenizer, tokens: list[str], model: str) -> None:
    """Tokens that every text begins and ends with."""
    begins = model == "llama" or WORDS[header.texts.get(_PRE, _USUAL_PRE)].begins
    pattern, ids = ["$A"], []
    for name, usual, place in (("bos", begins, 0), ("eos", False, 2)):
        id = _id(header, name, model)
        if header.numbers.get(f"{_KEY}add_{name}_token", usual) and id is not None:
            pattern.insert(place, tokens[id])
            ids.append((tokens[id], id))
    if ids:
        twice = [part if part != "$A" else "$B" for part in pattern]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=pattern, pair=[*pattern, *(f"{part}:1" for part in twice)], special_tokens=list(dict.fromkeys(ids))
        )


def _wrapped(header: GgufHeader, tokenizer: Tokenizer, tokens: list[str], model: str) -> FileTokenizer:
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    special = {ours: tokens[id] for ours, theirs in names.items() if (id := _id(header, theirs, model)) is not None}
    return FileTokenizer(tokenizer, special, _templates(header))


def _templates(header: GgufHeader) -> str | dict[str, str] | None:
    """The chat template; by their names where there are more."""
    usual = header.texts.get(_TEMPLATE)
    start = f"{_TEMPLATE}."
    others = {key.removeprefix(start): text for key, text in header.texts.items() if key.startswith(start)}
    if not others:
        return usual
    return ({} if usual is None else {"default": usual}) | others
