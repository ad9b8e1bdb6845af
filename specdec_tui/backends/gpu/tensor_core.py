"""What a tensor core is given and what it leaves, as PTX. Plain Python.

Lane 4 · g + t of a warp loads eight numbers of row g of a matrix that follow each other: columns 8 · t … 8 · t + 7 of a
step of 32. The four registers that they fill are what the lane has to give, as they are: the core takes the first and
the third for row g, the second and the fourth for another row, g + 8. So it makes of each row two sums, over words 0
and 2 and over words 1 and 3 of each eight columns, which are added up in the end.

Few tokens come in tiles of four: lane 4 · n + t has words 0 and 2 of token n, and lane 16 + 4 · n + t words 1 and 3, so
that one multiplication makes both sums. Of more, in tiles of eight, lane 4 · n + t has all words of token n, and two
multiplications, each with zeros in half of the rows, make the same sums. (PTX ISA, mma.m16n8k16.)
"""

from __future__ import annotations

FEW, MANY = 4, 8
"""Tokens of a tile."""
MOST_FEW = 8
"""Tokens that are few; stream and branch by turns are two."""


def sums_bytes(pieces: int, rows: int, count: int) -> int:
    """Of shared memory that the sums of `pieces` over `rows` and so many tokens take, see `putting`."""
    tiles = -(-count // FEW) if count <= MOST_FEW else -(-count // MANY)
    return 4 * MANY * rows * (pieces * tiles if count <= MOST_FEW else pieces + tiles)


def gap_of(columns: int) -> int:
    """Bytes between tokens with room for so many columns, in shared memory: two that follow each other then are half of
    all banks apart."""
    return (64 - 2 * columns) % 128


def multiplying(kind: str, count: int, read: bool) -> str:
    """$0 … $3: the sums $12 … $15 of a lane and what rows $4 … $7 and tokens $8 … $11 make, numbers of `kind`, bf16 or
    f16. `count` tokens; `read`: by `reading_few`, else all words are there."""
    few = count <= MOST_FEW
    lines = [".reg .f32 d0, d1, d2, d3;", *(f"mov.b32 d{n}, ${12 + n};" for n in range(4))]

    def multiply(rows: str, one: str, two: str) -> str:
        shape = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
        return f"{shape} {{d0, d1, d2, d3}}, {{{rows}}}, {{{one}, {two}}}, {{d0, d1, d2, d3}};"

    if few and read:
        lines.append(multiply("$4, $5, $6, $7", "$8", "$9"))
    elif few:
        lines += [
            ".reg .pred q;",
            ".reg .b32 t, b, c;",
            "mov.u32 t, %laneid;",
            "setp.lt.u32 q, t, 16;",
            "selp.b32 b, $8, $9, q;",
            "selp.b32 c, $10, $11, q;",
            multiply("$4, $5, $6, $7", "b", "c"),
        ]
    else:
        lines += [".reg .b32 z;", "mov.u32 z, 0;"]
        lines += [multiply("$4, z, $6, z", "$8", "$10"), multiply("z, $5, z, $7", "$9", "$11")]
    lines += [f"mov.b32 ${n}, d{n};" for n in range(4)]
    return "{\n" + "\n".join(lines) + "\n}"


MULTIPLYING = ",".join(["=r"] * 4 + ["r"] * 12)
"""Constraints of `multiplying`."""


def reading_few() -> str:
    """Words 0 and 2, or 1 and 3, of a lane's columns, from the first of eight addresses on, see `arriving`. Two words
    more are not looked at."""
    return "ld.shared.b32 $0, [$4];\nld.shared.b32 $1, [$4 + 8];\nmov.b32 $2, $0;\nmov.b32 $3, $1;"


READING = ",".join(["=r"] * 4 + ["r"] * 12)
"""Constraints of `reading_few`: words, then an address of each column, then as many words that are not looked at."""


def room_for(size: int) -> str:
    """$0: where the sums of a program have room in shared memory, so many bytes."""
    return f".shared .align 16 .b8 own_sums[{size}];\nmov.u32 $0, own_sums;"


def putting(rows: int, count: int) -> str:
    """Puts a lane's sums $4 … $7 of a piece, a warp's, at $8 on: float32 [piece, tile, 8, rows]. Of a tile of few these
    are four of the first sum and four of the second; of more, which come one tile after the other, the two are added
    up. $8 is the first of eight such addresses."""
    few = count <= MOST_FEW
    tiles = -(-count // FEW) if few else 1
    lines = [".reg .b32 a, t, w, b, c;", "mov.u32 t, %tid.x;", "shr.u32 w, t, 5;"]
    lines.append(f"mad.lo.u32 a, w, {4 * MANY * rows * tiles}, $8;")
    if few:
        lines += [
            ".reg .pred q;",
            "bfe.u32 w, t, 1, 1;",
            f"mad.lo.u32 a, w, {4 * FEW * rows}, a;",
            "setp.lt.u32 q, w, 1;",
            "and.b32 w, t, 1;",
            "selp.b32 b, $4, $6, q;",
            "selp.b32 c, $5, $7, q;",
        ]
    else:
        lines += [
            ".reg .f32 f, g;",
            "and.b32 w, t, 3;",
            *("mov.b32 f, $4;", "mov.b32 g, $6;", "add.rn.f32 f, f, g;", "mov.b32 b, f;"),
            *("mov.b32 f, $5;", "mov.b32 g, $7;", "add.rn.f32 f, f, g;", "mov.b32 c, f;"),
        ]
    lines += [
        f"mad.lo.u32 a, w, {8 * rows}, a;",
        "bfe.u32 t, t, 2, 3;",
        "mad.lo.u32 a, t, 4, a;",
        "st.shared.b32 [a], b;",
        f"st.shared.b32 [a + {4 * rows}], c;",
        *(f"mov.u32 ${n}, 0;" for n in range(4)),
    ]
    return "{\n" + "\n".join(lines) + "\n}"


PUTTING = ",".join(["=r"] * 4 + ["r"] * 12)
"""Constraints of `putting`."""


def copies(pieces: int, rows: int, tokens: int) -> int:
    """Threads of a program, a warp for each piece, for each sum of so many rows and tokens."""
    return max(1, 32 * pieces // (rows * tokens))


def adding(pieces: int, rows: int, count: int) -> str:
    """$0: the sum over all pieces, a power of two, of what lies at $1 in the first: float32. Pieces are added up as by
    Triton's own sums: first those half of them apart."""
    few = count <= MOST_FEW
    size = 4 * MANY * rows * (-(-count // FEW) if few else 1)
    lines = [f".reg .f32 {', '.join(f'v{n}' for n in range(pieces))}, s;"]
    lines += [f"ld.shared.f32 v{n}, [$1 + {size * n}];" for n in range(pieces)]
    if few:
        for piece in range(pieces):
            lines.append(f"ld.shared.f32 s, [$1 + {size * piece + 4 * FEW * rows}];")
            lines.append(f"add.rn.f32 v{piece}, v{piece}, s;")
    apart = pieces // 2
    while apart:
        lines += [f"add.rn.f32 v{n}, v{n}, v{n + apart};" for n in range(apart)]
        apart //= 2
    return "{\n" + "\n".join([*lines, "mov.f32 $0, v0;"]) + "\n}"


def totals_bytes(count: int) -> int:
    """Of shared memory that `count` sums of `totalling` take."""
    return 4 * count


def room_for_totals(size: int) -> str:
    """$0: where totals have room in shared memory, so many bytes."""
    return f".shared .align 16 .b8 own_totals[{size}];\nmov.u32 $0, own_totals;"


def totalling() -> str:
    """Puts the total over a warp's lanes of float32 $1 at $2, unless that is 0: lanes 16 apart are added up first, then
    8, 4, 2, 1."""
    lines = [".reg .f32 s, v;", ".reg .pred q, r;", ".reg .b32 l;", "mov.f32 s, $1;", "mov.u32 l, %laneid;"]
    for apart in (16, 8, 4, 2, 1):
        lines += [f"shfl.sync.bfly.b32 v, s, {apart}, 31, -1;", "add.rn.f32 s, s, v;"]
    lines += ["setp.lt.u32 q, l, 1;", "setp.lt.u32 r, 0, $2;", "and.pred q, q, r;", "@q st.shared.f32 [$2], s;"]
    return "{\n" + "\n".join([*lines, "mov.u32 $0, 0;"]) + "\n}"
