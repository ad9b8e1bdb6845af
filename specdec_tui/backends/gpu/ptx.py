"""What the kernels do by instructions of their own, as PTX. Plain Python.

Sums of warps are joined by way of shared memory while the threads meet once; numbers are loaded and stored in the
layout in which a tensor core leaves its sums; and tokens come into shared memory all at once, one way to the L2 cache,
so that the threads that multiply need not hold them in registers. There the columns of a token follow each other, and
between tokens lie some bytes more, so that two that a warp reads together are in different banks.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_SHARED = 48 << 10
"""Bytes that a program may have without asking, beside what Triton takes."""


def joined_bytes(warps: int, count: int) -> int:
    """Of shared memory that `joining` takes."""
    return 128 * warps * count


def joins(warps: int, count: int) -> bool:
    """Whether warps with `count` sums a thread are joined so."""
    return count % 4 == 0 and 128 * warps * count <= 8 << 10  # with more there is no gain


def joining(warps: int, count: int) -> str:
    """Warps that have `count` sums a thread, in fours, all get what they make together: inputs behind as many outputs.
    The number of warps is a power of two, and they are added up as by Triton's own sums: first those half of them
    apart."""
    size = 512 * warps
    lines = [f".shared .align 16 .b8 joined_sums[{size * count // 4}];", ".reg .b32 a, t;"]
    lines.append(f".reg .f32 {', '.join(f'v{n}' for n in range(warps * count))};")
    lines += ["mov.u32 t, %tid.x;", "mov.u32 a, joined_sums;", "mad.lo.u32 t, t, 16, a;"]
    for four in range(0, count, 4):
        own = ", ".join(f"${count + four + n}" for n in range(4))
        lines.append(f"st.shared.v4.f32 [t + {four // 4 * size}], {{{own}}};")
    lines += ["bar.sync 0;", "mov.u32 t, %laneid;", "mad.lo.u32 t, t, 16, a;"]
    for warp in range(warps):
        for four in range(0, count, 4):
            held = ", ".join(f"v{warp * count + four + n}" for n in range(4))
            lines.append(f"ld.shared.v4.f32 {{{held}}}, [t + {four // 4 * size + 512 * warp}];")
    apart = warps // 2
    while apart:
        for place in range(apart * count):
            lines.append(f"add.rn.f32 v{place}, v{place}, v{place + apart * count};")
        apart //= 2
    lines += [f"mov.f32 ${n}, v{n};" for n in range(count)]
    return "{\n" + "\n".join(lines) + "\n}"


def sums_in_and_out(count: int) -> str:
    """Constraints of `joining`."""
    return ",".join(["=f"] * count + ["f"] * count)


def reading(kind: str) -> str:
    """The number at $1, of `kind` bf16, f16 or f32, as float32."""
    if kind == "f32":
        return "ld.global.f32 $0, [$1];"
    convert = "mov.b32 $0, {0, h};" if kind == "bf16" else "cvt.f32.f16 $0, h;"
    return f"{{ .reg .b16 h; ld.global.b16 h, [$1]; {convert} }}"


def writing(kind: str) -> str:
    """Stores $2, rounded to `kind` (bf16, f16, f32), at $1 unless that is 0."""
    bits = 32 if kind == "f32" else 16
    convert = "mov.b32 h, $2;" if kind == "f32" else f"cvt.rn.{kind}.f32 h, $2;"
    lines = [
        f".reg .b{bits} h;",
        ".reg .pred q;",
        "setp.ne.s64 q, $1, 0;",
        convert,
        f"@q st.global.b{bits} [$1], h;",
        "mov.u32 $0, 0;",
    ]
    return "{\n" + "\n".join(lines) + "\n}"


def token_bytes(tokens: int, columns: int, gap: int = 16) -> int:
    """Bytes from a token to the next, of which `gap` are for nothing but other banks."""
    return 2 * columns + (gap if tokens > 1 else 0)


def asking(rows: Sequence[int], columns: int, warps: int, room: int = 0, gap: int = 16) -> str:
    """Asks for all tokens, the rows of that number of x [., columns] in half precision at $1; all threads do it
    together, 16 bytes each in turn. $0: nothing. Behind the last column there are zeros, up to `room` columns of all,
    both multiples of 8.

    By way of the L1 cache: programs of a multiprocessor read the same tokens.
    """
    threads, units, room = 32 * warps, columns // 8, max(room, columns)
    apart = token_bytes(len(rows), room, gap)
    lines = [
        f".shared .align 128 .b8 own_tokens[{len(rows) * apart}];",
        "{",
        ".reg .b64 p, o;",
        ".reg .pred q;",
        ".reg .b32 a, t, z;",
        "mov.u32 t, %tid.x;",
        "mov.u32 a, own_tokens;",
        "mad.lo.u32 a, t, 16, a;",
        "mul.wide.u32 o, t, 16;",
        "add.s64 p, $1, o;",
    ]
    if units % threads:
        lines.append(f"setp.lt.u32 q, t, {units % threads};")
    for place, row in enumerate(rows):
        for begin in range(0, units, threads):
            some = "" if begin + threads <= units else "@q "
            to, source = place * apart + 16 * begin, 2 * row * columns + 16 * begin
            lines.append(f"{some}cp.async.ca.shared.global [a + {to}], [p + {source}], 16;")
    if room > columns:
        lines.append("mov.u32 z, 0;")
    for begin in range(units, room // 8, threads):
        lines.append(f"setp.lt.u32 q, t, {min(threads, room // 8 - begin)};")
        for place in range(len(rows)):
            lines.append(f"@q st.shared.v4.b32 [a + {place * apart + 16 * begin}], {{z, z, z, z}};")
    return "\n".join([*lines, "mov.u32 $0, 0;", "}"])


def arriving(
    tokens: int,
    columns: int,
    chunk: int,
    width: int,
    paired: bool = False,
    few: bool = False,
    gap: int = 16,
    tile: int = 0,
) -> str:
    """Waits for tokens that have room for so many columns. $0: where a thread finds its own columns of its warp's first
    chunk: lane 4 · g + t has token g and a quarter t of `width` columns, warp w begins `chunk` · w columns on. Behind
    the last token that one is repeated, and nothing is made of it. `paired`: there are twice as many, and token g / 2
    of the first or of the second half is meant, by turns. `few`: lane 16 · h + 4 · g + t has token g, four bytes on in
    the second half of the lanes, see `tensor_core`; these are four of several tiles, and who asks for another `tile`
    than the first has waited."""
    lines = [
        ".reg .b32 a, t;",
        *(() if tile else ("cp.async.wait_all;", "bar.sync 0;")),
        "mov.u32 t, %tid.x;",
        "mov.u32 $0, own_tokens;",
        "shr.u32 a, t, 5;",
        f"mad.lo.u32 $0, a, {2 * chunk}, $0;",
        "and.b32 a, t, 3;",
        f"mad.lo.u32 $0, a, {width // 2}, $0;",
    ]
    apart = 2 * columns + (gap if tokens > 1 or paired else 0)
    if few:
        lines += ["bfe.u32 a, t, 4, 1;", "mad.lo.u32 $0, a, 4, $0;"]
    if paired:
        lines += ["bfe.u32 a, t, 2, 1;", f"mad.lo.u32 $0, a, {tokens * apart}, $0;"]
    lines += [
        f"bfe.u32 a, t, {3 if paired else 2}, {3 - paired - few};",
        *((f"add.u32 a, a, {tile * (2 if paired else 4)};",) if tile else ()),
        f"min.u32 a, a, {tokens - 1};",
        f"mad.lo.u32 $0, a, {apart}, $0;",
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
