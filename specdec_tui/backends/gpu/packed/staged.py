"""Tokens in shared memory, as PTX: they come there together, one way to the L2 cache, and threads that multiply need
not hold them in registers. No torch and no Triton here, but for what is multiplied.

The columns of a token follow each other. Between tokens lie 16 bytes more, so that two that a warp reads together are
in different banks.
"""

from __future__ import annotations

from torch import Tensor

from specdec_tui.backends.gpu.packed.codes import FORMS, taken
from specdec_tui.backends.gpu.packed.cuts import Cut, stageable
from specdec_tui.backends.gpu.packed.packing import Packed

_MOST = 48 << 10  # bytes that a program may have without asking, beside what Triton takes
_TOKENS = 8  # of a program, at most
_SHARED = "packed_tokens"


def staging(x: Tensor, matrix: Packed, gated: bool, cut: Cut) -> tuple[str, str]:
    """`asking` and `arriving` for x [tokens, columns]; empty where the cut does not say so, x finds no room, or steps
    go beyond it."""
    (tokens, columns), form = x.shape, FORMS[matrix.form]
    if not cut.staged or not stageable(matrix, cut.warps) or tokens > _TOKENS or x.data_ptr() % 16:
        return "", ""
    if tokens * _apart(tokens, columns) > _MOST - taken(matrix.form, cut.warps, 1 + gated):
        return "", ""
    return asking(tokens, columns, cut.warps), arriving(tokens, columns, form.planes * matrix.width, matrix.width)


def _apart(tokens: int, columns: int) -> int:
    """Bytes from a token to the next."""
    return 2 * columns + (16 if tokens > 1 else 0)


def asking(tokens: int, columns: int, warps: int) -> str:
    """Asks for all tokens [tokens, columns] of half precision at $1; all threads do it together, 16 bytes each in
    turn. $0: nothing."""
    threads, units, apart = 32 * warps, columns // 8, _apart(tokens, columns)
    lines = [
        f".shared .align 128 .b8 {_SHARED}[{tokens * apart}];",
        "{",
        ".reg .b64 p, o;",
        ".reg .pred q;",
        ".reg .b32 a, t;",
        "mov.u32 t, %tid.x;",
        f"mov.u32 a, {_SHARED};",
        "mad.lo.u32 a, t, 16, a;",
        "mul.wide.u32 o, t, 16;",
        "add.s64 p, $1, o;",
        f"setp.lt.u32 q, t, {units % threads};",
    ]
    for token in range(tokens):
        for begin in range(0, units, threads):
            some = "" if begin + threads <= units else "@q "  # not by way of the L1 cache, whose lines may be old
            to, source = token * apart + 16 * begin, 2 * token * columns + 16 * begin
            lines.append(f"{some}cp.async.cg.shared.global [a + {to}], [p + {source}], 16;")
    return "\n".join([*lines, "mov.u32 $0, 0;", "}"])


def arriving(tokens: int, columns: int, chunk: int, width: int) -> str:
    """Waits for them. $0: where a thread finds its own columns of its warp's first chunk, see `packing`: lane 4 · g + t
    has token g and a quarter t of a plane's `width`. Behind the last token that one is repeated, and nothing is made of
    it."""
    lines = [
        ".reg .b32 a, t;",
        "cp.async.wait_all;",
        "bar.sync 0;",
        "mov.u32 t, %tid.x;",
        f"mov.u32 $0, {_SHARED};",
        "shr.u32 a, t, 5;",
        f"mad.lo.u32 $0, a, {2 * chunk}, $0;",
        "and.b32 a, t, 3;",
        f"mad.lo.u32 $0, a, {width // 2}, $0;",
        "bfe.u32 a, t, 2, 3;",
        f"min.u32 a, a, {tokens - 1};",
        f"mad.lo.u32 $0, a, {_apart(tokens, columns)}, $0;",
    ]
    return "{\n" + "\n".join(lines) + "\n}"


def columns_read(count: int) -> str:
    """Reads `count` columns of a thread's token, two a register, at the first of as many addresses behind them."""
    words = count // 2
    most = min(4, words)
    return "\n".join(
        f"ld.shared.v{most}.b32 {{{', '.join(f'${first + n}' for n in range(most))}}}, [${words} + {4 * first}];"
        for first in range(0, words, most)
    )


def constraints(count: int) -> str:
    """Of `columns_read`: words, then an address of each column, then as many words that are not looked at."""
    words = count // 2
    return ",".join(["=r"] * words + ["r"] * (count + words))
