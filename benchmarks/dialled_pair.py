"""A target and a drafter of given shapes with random weights, whose agreement can be dialled.

The target's first layers compute the drafter inside their wider stream; its other layers are random,
and `dial` scales what they add: at 0 both models have the same distribution. Every matrix has its full
size, so a pass reads as many bytes as the real model's. The text does not settle into a short loop:
layers outweigh the input's embedding, attention is sharp, and some tokens are likelier than others.

    python benchmarks/dialled_pair.py FOLDER [--shape llama3.2] [--agreement 0.75] [--device cuda] [--dtype bfloat16]

saves such a pair as FOLDER/target and FOLDER/drafter with the demo pair's tokenizer, whose vocabulary both then have:
models of full size for the app, `bench` and `app_cost.py` where no hub is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from specdec_tui.backends import demo

EMBEDDING_SCALE = 2.0**-5
LENGTH_EXPONENT = 0.15  # embeddings have Pareto-distributed lengths
ATTENTION_GAIN = 1.6  # size of queries and keys
# What a layer adds: the first, those up to the drafter's last, the target's own at dial 1. Many equal layers
# would amplify rounding errors until no two passes in half precision agreed.
FIRST_GAIN, LATER_GAIN, OWN_GAIN = 16.0, 0.5, 4.0
LOGIT_SCALE = 4.0
EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Size:
    width: int
    layers: int
    heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Two models that share key/value heads, MLP width and vocabulary.

    The target is 1.5 times as wide, with heads twice as wide and 3 per key/value head for the drafter's 4.
    """

    target: Size
    drafter: Size
    kv_heads: int
    mlp: int
    vocab: int


SHAPES = {
    "llama3.2": Shape(Size(3072, 28, 24, 128), Size(2048, 16, 32, 64), kv_heads=8, mlp=8192, vocab=128256),
    "tiny": Shape(Size(96, 6, 6, 16), Size(64, 3, 8, 8), kv_heads=2, mlp=128, vocab=512),
}


class DialledPair:
    """`target` and `drafter`, and the dial between them."""

    def __init__(self, shape: Shape, device: str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0) -> None:
        self.shape = shape
        self._random = torch.Generator(device).manual_seed(seed)
        ratio = shape.drafter.width / shape.target.width
        self.drafter = self._model(shape.drafter, EPSILON, device, dtype)
        # Zeros in the wider stream make its mean square smaller.
        self.target = self._model(shape.target, EPSILON * ratio, device, dtype)
        with torch.no_grad():
            self._embed_drafter(ratio**0.5)
        layers = self.target.model.layers[shape.drafter.layers :]
        outputs = [linear.weight for layer in layers for linear in (layer.self_attn.o_proj, layer.mlp.down_proj)]
        self._scaled = [(weight, weight.detach().clone()) for weight in outputs]
        self._measured: dict[float, float] = {}
        self.dial = 0.0

    @property
    def dial(self) -> float:
        return self._dial

    @dial.setter
    @torch.no_grad()
    def dial(self, dial: float) -> None:
        """Scale what the target's own layers add, in place."""
        for weight, unscaled in self._scaled:
            torch.mul(unscaled, dial, out=weight)
        self._dial = dial

    @torch.no_grad()
    def agreement(self, dial: float, texts: int = 16, prompt: int = 64, length: int = 32) -> float:
        """Share of first choices of the drafter that are the target's, over texts the target writes at this dial."""
        self.dial = dial
        source = torch.Generator().manual_seed(1)
        prompts = torch.randint(self.shape.vocab, (texts, prompt), generator=source).to(self.target.device)
        text = self.target.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=length,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        choices = self.drafter(text[:, :-1], logits_to_keep=length).logits.argmax(-1)
        share: float = (choices == text[:, prompt:]).double().mean().item()
        return share

    def turn_to(self, agreement: float) -> float:
        """Search the dial for an agreement, set it, and return the agreement measured there."""
        self.dial = search_dial(self.agreement, self._measured, agreement)
        return self._measured[self.dial]

    def _model(self, size: Size, epsilon: float, device: str, dtype: torch.dtype) -> LlamaForCausalLM:
        config = LlamaConfig(
            vocab_size=self.shape.vocab,
            hidden_size=size.width,
            intermediate_size=self.shape.mlp,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=self.shape.kv_heads,
            head_dim=size.head_dim,
            max_position_embeddings=131072,
            rms_norm_eps=epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
        )
        with torch.device(device):
            model: LlamaForCausalLM = LlamaForCausalLM._from_config(config, dtype=dtype).eval()
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                gain = ATTENTION_GAIN if "q_proj" in name or "k_proj" in name else 1.0
                if "o_proj" in name or "down_proj" in name:
                    layer = int(name.split(".")[2])
                    gain = FIRST_GAIN if layer == 0 else LATER_GAIN if layer < self.shape.drafter.layers else OWN_GAIN
                weight.data.normal_(0, gain / weight.shape[1] ** 0.5, generator=self._random)
        lengths = torch.rand(self.shape.vocab, 1, device=device, generator=self._random) ** -LENGTH_EXPONENT
        table = model.get_input_embeddings().weight
        table.data.normal_(0, EMBEDDING_SCALE, generator=self._random).mul_(lengths)
        model.model.norm.weight.data.fill_(LOGIT_SCALE / (EMBEDDING_SCALE * self.shape.drafter.width**0.5))
        return model

    def _embed_drafter(self, norm: float) -> None:
        """Make the target's first layers the drafter's."""
        target, drafter, width = self.target.model, self.drafter.model, self.shape.drafter.width
        target.embed_tokens.weight.zero_()[:, :width] = drafter.embed_tokens.weight
        target.norm.weight.fill_(drafter.norm.weight[0].item() * norm)
        for wide, narrow in zip(target.layers, drafter.layers, strict=False):
            wide.input_layernorm.weight.fill_(norm)
            wide.post_attention_layernorm.weight.fill_(norm)
            self._embed_attention(wide.self_attn, narrow.self_attn)
            for name in ("gate_proj", "up_proj"):
                getattr(wide.mlp, name).weight[:, :width] = getattr(narrow.mlp, name).weight
            wide.mlp.down_proj.weight.zero_()[:width] = narrow.mlp.down_proj.weight

    def _embed_attention(self, wide: Any, narrow: Any) -> None:
        """Three of four drafter heads per key/value head fit; the fourth is silenced in the drafter.

        A rotary pair (i, i + dim/2) of a narrow head turns as fast as the pair (2i, 2i + dim) of a wide one.
        """
        groups, width, dim = self.shape.kv_heads, self.shape.drafter.width, self.shape.drafter.head_dim
        held = self.shape.target.heads // groups
        even = 2 * torch.arange(dim // 2, device=narrow.q_proj.weight.device)
        places = torch.cat([even, even + dim])

        def heads(linear: nn.Linear, head_dim: int) -> Tensor:
            return linear.weight.view(groups, -1, head_dim, linear.weight.shape[1])

        queries = heads(narrow.q_proj, dim)[:, :held]
        heads(wide.q_proj, 2 * dim).zero_()[:, :, places, :width] = queries * 2**0.5
        for name in ("k_proj", "v_proj"):
            heads(getattr(wide, name), 2 * dim)[:, :, places, :width] = heads(getattr(narrow, name), dim)
        mixed = narrow.o_proj.weight.view(width, groups, -1, dim)
        mixed[:, :, held:] = 0
        wider = wide.o_proj.weight.zero_().view(-1, groups, held, 2 * dim)
        wider[:width, :, :, places] = mixed[:, :, :held]


def search_dial(
    measure: Callable[[float], float],
    known: dict[float, float],
    wish: float,
    tolerance: float = 0.02,
    tries: int = 10,
) -> float:
    """The dial whose agreement, which falls with the dial, is nearest to the wish.

    `known` holds what was measured and is added to.
    """
    dial: float | None = 0.0
    while dial is not None:
        if dial not in known:
            known[dial] = measure(dial)
        best = min(known, key=lambda dial: abs(known[dial] - wish))
        tries -= 1
        done = tries < 0 or abs(known[best] - wish) <= tolerance
        dial = None if done else _next_dial(known, wish)
    return best


def _next_dial(known: dict[float, float], wish: float) -> float:
    """Twice the highest dial, or a dial between the two that enclose the wish."""
    low = max((dial for dial in known if known[dial] >= wish), default=0.0)
    high = min((dial for dial in known if dial > low), default=None)
    if high is None:
        return 2 * low or 1.0
    share = (known[low] - wish) / (known[low] - known[high]) if known[low] > known[high] else 0.5
    return low + min(max(share, 0.1), 0.9) * (high - low)


def dialled_pair(
    shape: str, agreement: float | None = None, device: str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0
) -> DialledPair:
    """A pair of a named shape, turned to an agreement; at dial 0 without one."""
    pair = DialledPair(SHAPES[shape], device, dtype, seed)
    if agreement is not None:
        pair.turn_to(agreement)
    return pair


def whole(low: int) -> Callable[[str], int]:
    """For argparse: a whole number from `low` up."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < low:
            raise argparse.ArgumentTypeError(f"'{text}' is not valid: give a whole number from {low} up")
        return int(text)

    return parse


def share(text: str) -> float:
    """For argparse: a number from 0 to 1."""
    try:
        if 0 <= float(text) <= 1:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"'{text}' is not valid: give a number from 0 to 1")


def listed(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """For argparse: some of a kind, separated by commas."""
    return lambda text: [kind(item) for item in text.split(",")]


def add_pair(parser: argparse.ArgumentParser) -> None:
    """The flags that say which pair; without a GPU the tiny one is the default."""
    cuda = torch.cuda.is_available()
    parser.add_argument("--shape", choices=sorted(SHAPES), default="llama3.2" if cuda else "tiny")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agreement", type=share, default=0.75)
    add_pair(parser)
    options = parser.parse_args(arguments)
    tokenizer = AutoTokenizer.from_pretrained(demo.drafter_folder())
    shape = replace(SHAPES[options.shape], vocab=len(tokenizer))
    pair = DialledPair(shape, options.device, getattr(torch, options.dtype))
    print(f"agreement {pair.turn_to(options.agreement):.3f}")
    for name, model in (("target", pair.target), ("drafter", pair.drafter)):
        model.generation_config.eos_token_id = model.config.eos_token_id = tokenizer.eos_token_id
        model.save_pretrained(options.folder / name)
        tokenizer.save_pretrained(options.folder / name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
