"""Pack a drafter that `distil_drafter.py` exported into one GGUF file: see README.md beside this file.

python tools/quantize_drafter.py DRAFTER --tokenizer TARGET.gguf --out FILE.gguf [--form Q8_0] [--embedding-form Q8_0]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from distil.arguments import Parser
from distil.blocks import FORMS
from distil.files import Refused
from distil.gguf_files import write_gguf
from distil.llama import read_config, read_shape, read_state


def main(words: Sequence[str] | None = None) -> None:
    """Write the file; SystemExit with status 2 after a line of explanation where that is impossible."""
    parser = Parser(prog="quantize_drafter.py", description=__doc__)
    parser.add_argument("drafter", type=Path, help="Hugging Face folder of a Llama")
    parser.add_argument("--tokenizer", type=Path, required=True, help="GGUF file whose tokenizer the drafter has")
    parser.add_argument("--out", type=Path, required=True, help="GGUF file to write")
    parser.add_argument("--form", choices=FORMS, default="Q8_0", help="blocks of the matrices in the layers")
    parser.add_argument("--embedding-form", choices=FORMS, help="blocks of embedding and head (default: as --form)")
    parser.add_argument("--name", default="drafter", help="name of the model, kept in the file")
    arguments = parser.parse_args(words)
    forms = (arguments.form, arguments.embedding_form or arguments.form)
    try:
        shape, config = read_shape(arguments.drafter), read_config(arguments.drafter)
        context = config.get("max_position_embeddings", 2048)
        state = read_state(arguments.drafter, shape)
        write_gguf(arguments.out, arguments.name, shape, context, state, forms, arguments.tokenizer)
    except (Refused, OSError) as error:
        print(f"quantize_drafter.py: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from error
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
