"""Codes of 4 and 8 bits: what numbers they stand for, and the machine code that turns them into half-precision numbers.

A register holds four bytes. Of 8-bit codes these are four columns, two and two that follow each other; of 4-bit codes
four columns of one plane and four of another (`packing`). Two orders of eight 4-bit codes in a register:

- `straight`: code n, from the low end, is the column n % 4 of plane n // 4. Numbers of a table are looked up in shared
  memory two codes at a time: 11 instructions for eight codes.
- `spread`: codes n and n + 4 are columns that follow each other, so that whole numbers need one instruction for two:
  as the low bits of a number they count one each, or sixteen each; 9 instructions for eight codes.

All conversions are exact. No torch and no Triton here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from specdec_tui.backends.gpu.ptx import joined_bytes

STRAIGHT, SPREAD = "straight", "spread"
HALVES = ("bfloat16", "float16")

# bitsandbytes/functional.py, get_4bit_type: quantiles of a normal distribution (Dettmers et al. 2023, appendix E).
_NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
_FP4 = (0.0, 0.0052083333, 0.6666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_MXFP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # e2m1 of the OCP microscaling formats


def _signed(magnitudes: Sequence[float]) -> tuple[float, ...]:
    return (*magnitudes, *(-value for value in magnitudes))


def _e4m3(code: int) -> float:
    """torch.float8_e4m3fn; its two codes of no number are taken for what their bits would say."""
    sign, exponent, mantissa = -1.0 if code & 128 else 1.0, code >> 3 & 15, code & 7
    return sign * (mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10))


@dataclass(frozen=True)
class Form:
    """`numbers`: what the codes stand for, before scales. `order`: of 4-bit codes in a register."""

    name: str
    numbers: tuple[float, ...]
    order: str = ""

    @property
    def bits(self) -> int:
        return 4 if len(self.numbers) == 16 else 8

    @property
    def planes(self) -> int:
        return 8 // self.bits


FORMS = {
    form.name: form
    for form in (
        Form("nf4", _NF4, STRAIGHT),
        Form("fp4", _signed(_FP4), STRAIGHT),
        Form("mxfp4", _signed(_MXFP4), STRAIGHT),
        Form("int4", tuple(float(code - 8) for code in range(16)), SPREAD),
        Form("uint4", tuple(float(code) for code in range(16)), SPREAD),
        Form("int8", tuple(float(code - 256 if code > 127 else code) for code in range(256))),
        Form("fp8", tuple(_e4m3(code) for code in range(256))),
    )
}


def half_bits(number: float, half: str) -> int:
    """The 16 bits of a number rounded to `half` (ties to even)."""
    if half == "float16":
        return int(struct.unpack("<H", struct.pack("<e", number))[0])
    bits = int(struct.unpack("<I", struct.pack("<f", number))[0])
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def shrunk(name: str, half: str) -> float:
    """What the numbers that `conversion` makes are to be divided by: a power of two.

    The bits of a whole number, at the low end of a bfloat16, are that number of the smallest step that there is, up to
    eight bits: no exponent needs to be put beside them. A product with the largest power of two makes this of them.
    """
    return 2.0**-6 if half == "bfloat16" and name in ("int4", "uint4", "int8") else 1.0


@cache
def conversion(name: str, half: str) -> str:
    """PTX for compute capability 8.0 and newer: four bytes of codes to four numbers of each plane, two a register,
    `shrunk`."""
    form = FORMS[name]
    if form.order == STRAIGHT:
        return _looked_up()
    if form.order == SPREAD:
        return _whole_of_4_bits(half, int(form.numbers[0]))
    return _whole_of_8_bits(half) if name == "int8" else _e4m3_numbers(half)


def _program(registers: str, lines: Sequence[str]) -> str:
    return "{\n.reg .b32 " + registers + ";\n" + "\n".join(lines) + "\n}"


def tables(name: str, half: str) -> tuple[int, ...]:
    """Of a form whose codes are looked up two at a time: the numbers of a byte's lower and upper code, as the lower and
    upper half of a word, by byte."""
    bits = [half_bits(number, half) for number in FORMS[name].numbers]
    return tuple(bits[byte & 15] | bits[byte >> 4] << 16 for byte in range(256))


def filling(warps: int) -> str:
    """PTX that copies the words of `tables`, at $1, into shared memory once for each lane of a warp, so that all lanes
    read it at once; a program of so many warps does it together. $0: four times the lane."""
    count = 256 // (4 * warps)
    loads = [f"ld.global.nc.b32 v{n}, [p + {16 * warps * n}];" for n in range(count)]
    stores = [f"st.shared.v4.b32 [a + {512 * warps * n}], {{v{n}, v{n}, v{n}, v{n}}};" for n in range(count)]
    lines = [
        f".shared .align 128 .b8 {_SHARED}[{256 * _ENTRY}];",
        "{",
        ".reg .b64 p, o;",
        f".reg .b32 a, t, {', '.join(f'v{n}' for n in range(count))};",
        "mov.u32 t, %tid.x;",
        f"mov.u32 a, {_SHARED};",
        "mad.lo.u32 a, t, 16, a;",
        "shr.u32 t, t, 3;",
        "mul.wide.u32 o, t, 4;",
        "add.s64 p, $1, o;",
        *loads,
        *stores,
        "mov.u32 t, %laneid;",
        "shl.b32 $0, t, 2;",
        "bar.sync 0;",
        "}",
    ]
    return "\n".join(lines)


_ENTRY = 128
"""Bytes that all lanes' copies of a word take."""
_SHARED = "packed_numbers"


def taken(name: str, warps: int, parts: int) -> int:
    """Bytes of a program's shared memory that `filling`, where the form has a table, and `ptx.joining` take."""
    return joined_bytes(warps, 4 * parts) + (256 * _ENTRY if FORMS[name].order == STRAIGHT else 0)


def _looked_up() -> str:
    """Numbers of 16 bits by pairs of 4-bit codes, from what `filling` put into shared memory; its result is $5."""
    lines = [f"mov.u32 b, {_SHARED};"]
    for out, shift in enumerate(("shl.b32 a, $4, 7;", "shr.u32 a, $4, 1;", "shr.u32 a, $4, 9;", "shr.u32 a, $4, 17;")):
        lines += [shift, f"lop3.b32 a, a, {255 * _ENTRY}, $5, 0xea;", "add.u32 a, a, b;", f"ld.shared.b32 ${out}, [a];"]
    return _program("a, b", lines)


def _whole_of_4_bits(half: str, first: int) -> str:
    """One shift brings the upper half of each 16 bits down; then two codes of each 8 bits are two masks apart."""
    kind, _ = _ARITHMETIC[half]
    if half == "bfloat16":
        exponent, factors, added = 0, (2.0**127, 2.0**123), (first * shrunk("int4", half),) * 2
    else:  # beside the exponent of 1024, where the upper code counts sixteen each
        exponent, factors, added = 0x6400, (1.0, 2.0**-4), (first - 1024.0, first - 64.0)
    lines = ["shr.u32 w, $4, 8;"]
    for place, mask in enumerate((0x000F000F, 0x00F000F0)):
        scale, more = half_bits(factors[place], half), half_bits(added[place] or -0.0, half)
        lines += [f"mov.b32 o, 0x{scale:04x}{scale:04x};", f"mov.b32 z, 0x{more:04x}{more:04x};"]
        for word, out in (("$4", place), ("w", 2 + place)):
            lines += [
                f"lop3.b32 t, {word}, 0x{mask:08x}, 0x{exponent:04x}{exponent:04x}, 0xea;",
                f"fma.rn.{kind} ${out}, t, o, z;",
            ]
    return _program("t, w, z, o", lines)


def _whole_of_8_bits(half: str) -> str:
    kind, one = _ARITHMETIC[half]
    scale, less, beside = (one, -1152.0, 0x64) if half == "float16" else (half_bits(2.0**127, half), -2.0, 0)
    add = half_bits(less, half)
    lines = [
        f"mov.b32 z, 0x{add:04x}{add:04x};",
        f"mov.b32 o, 0x{scale:04x}{scale:04x};",
        "xor.b32 w, $2, 0x80808080;",
    ]
    for out, places in ((0, "0x4140"), (1, "0x4342")):
        lines += [f"prmt.b32 t, w, 0x{beside * 0x01010101:08x}, {places};", f"fma.rn.{kind} ${out}, t, o, z;"]
    return _program("t, w, z, o", lines)


def _e4m3_numbers(half: str) -> str:
    """The bits at their place, with too small an exponent, which a product makes up for; subnormal codes as others."""
    kind, _ = _ARITHMETIC[half]
    shift, kept, factor = (4, "0x07f007f0", 2.0**120) if half == "bfloat16" else (1, "0x3f803f80", 2.0**8)
    scale = half_bits(factor, half)
    lines = [f"mov.b32 o, 0x{scale:04x}{scale:04x};", "mov.b32 z, 0x80008000;"]
    for out, places in ((0, "0x1404"), (1, "0x3424")):
        lines += [
            f"prmt.b32 t, $2, 0, {places};",
            f"shr.u32 u, t, {shift};",
            f"and.b32 u, u, {kept};",
            "lop3.b32 t, t, 0x80008000, u, 0xea;",
            f"fma.rn.{kind} ${out}, t, o, z;",
        ]
    return _program("t, u, o, z", lines)


_ARITHMETIC = {"bfloat16": ("bf16x2", 0x3F80), "float16": ("f16x2", 0x3C00)}
"""The kind of two numbers in a register, and the bits of 1."""
