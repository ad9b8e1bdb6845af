"""Plain decoding, or a beam search, here against `generate` of transformers: same model, dtype, ids and length.

    python benchmarks/generate.py [--repeat 5] [--max-new-tokens 128] [--beams 4]

Both sides take the same prompt through prefill and decoding with a key/value cache, and must
produce the same ids. They take turns; the ratio is taken pair by pair. Time is the whole call.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from specdec_tui.backends.threads import prepare_threads


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--beams", type=int, default=1, help="texts of a beam search; 1: greedy decoding")
    options = parser.parse_args()
    prepare_threads()
    import torch
    from transformers import LlamaForCausalLM

    from specdec_tui.backends.demo import target_file
    from specdec_tui.backends.gguf.config import config_of
    from specdec_tui.backends.gguf.expanded import state_of
    from specdec_tui.backends.gguf.files import GgufFile
    from specdec_tui.backends.loading import load_pair
    from specdec_tui.decoding.beam import Beams
    from specdec_tui.decoding.loop import decode
    from specdec_tui.decoding.records import PrefillDone, RoundVerified
    from specdec_tui.decoding.sampling import Sampler
    from specdec_tui.settings import ModelChoice

    pair = load_pair(ModelChoice(device="cpu"), lambda progress: None)
    file = GgufFile(target_file(lambda step: None))
    state = state_of(file, config := config_of(file), torch.float32)
    theirs = LlamaForCausalLM.from_pretrained(None, config=config, state_dict=state).eval()
    prompt = pair.tokenizer.encode("Tell me a bedtime story about a fox who is afraid of the dark.").ids
    length, beams = options.max_new_tokens, Beams(max(2, options.beams))

    def ours() -> list[int]:
        ids: list[int] = []
        how = {"strategy": "target", "beams": None} if options.beams < 2 else {"strategy": "beam", "beams": beams}
        for record in decode(pair.target, prompt, sampler=Sampler("greedy"), max_new_tokens=length, **how):
            if isinstance(record, PrefillDone) and record.token is not None:
                ids.append(record.token.id)
            elif isinstance(record, RoundVerified):
                ids += [token.id for token in record.new_tokens]
        return ids

    def generate() -> list[int]:
        inputs = torch.tensor([prompt])
        out = theirs.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=length,
            do_sample=False,
            num_beams=options.beams,
            eos_token_id=None,
            pad_token_id=0,
        )
        return [int(token) for token in out[0, len(prompt) :]]

    def timed(side: object) -> tuple[float, list[int]]:
        pair.target.synchronize()
        begin = time.perf_counter()
        ids = side()  # type: ignore[operator]
        pair.target.synchronize()
        return time.perf_counter() - begin, ids

    timed(ours), timed(generate)
    times = []
    for _ in range(options.repeat):
        (our_time, our_ids), (their_time, their_ids) = timed(ours), timed(generate)
        assert our_ids == their_ids and len(our_ids) == length, "the two sides did different work"
        times.append((our_time, their_time))
    found = pair.info.target
    work = f"{len(prompt)} + {length} tokens, {options.beams} beams, same ids"
    print(f"{found.name}, {found.device}, {found.dtype}, {work}")
    print(f"ours      {length / median(a for a, _ in times):6.1f} tok/s")
    print(f"generate  {length / median(b for _, b in times):6.1f} tok/s")
    ratios = [b / a for a, b in times]
    print(f"ratio     {median(ratios):6.2f} (lowest {min(ratios):.2f}, highest {max(ratios):.2f})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
