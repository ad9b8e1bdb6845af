"""PTX by which a warp finds the experts of a token: those of the highest scores, of equal ones the earlier first.

In Triton a program's threads would share the work, and meet several times before the first weight can be asked for.
Here each warp finds them for itself: its lanes hold the scores, and two reductions over the warp tell each next one.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]


@triton.constexpr_function
def finding(count: int, slots: int, cached: bool) -> str:
    """Code of outputs int32 [slots] experts and float32 [slots] their scores, and an input, where the `count` scores
    begin. All lanes of a warp must be there; all get the same. `cached`: the scores may be read by way of the L1 cache,
    which the warps of a multiprocessor have in common."""
    each = -(-count // 32)
    held = range(each)
    load = "ld.global" if cached else "ld.global.cg"
    lines = [
        "{",
        ".reg .s32 lane, most, first, bits;",
        ".reg .s64 place;",
        ".reg .pred p;",
        f".reg .s32 key<{each}>, number<{each}>;",
        "mov.u32 lane, %laneid;",
        "mul.wide.s32 place, lane, 4;",
        f"add.s64 place, place, ${2 * slots};",
    ]
    for i in held:
        lines += [
            f"add.s32 number{i}, lane, {32 * i};",
            f"mov.b32 key{i}, 0x80000000;",
            f"setp.lt.s32 p, number{i}, {count};",
            f"@p {load}.b32 key{i}, [place+{128 * i}];",
        ]
    for i in held:  # float32 as integers of the same order; none stands below those that are not there
        lines += [
            f"shr.s32 bits, key{i}, 31;",
            "and.b32 bits, bits, 0x7fffffff;",
            f"setp.lt.s32 p, number{i}, {count};",
            f"@p xor.b32 key{i}, key{i}, bits;",
        ]
    for slot in range(slots):
        lines.append("mov.b32 most, key0;")
        lines += [f"max.s32 most, most, key{i};" for i in held[1:]]
        lines += ["redux.sync.max.s32 most, most, 0xffffffff;", f"mov.b32 first, {count - 1};"]
        for i in reversed(held):
            lines += [f"setp.eq.s32 p, key{i}, most;", f"@p min.s32 first, number{i}, {count - 1};"]
        lines += ["redux.sync.min.s32 first, first, 0xffffffff;", f"mov.b32 ${slot}, first;"]
        lines += ["shr.s32 bits, most, 31;", "and.b32 bits, bits, 0x7fffffff;", "xor.b32 bits, most, bits;"]
        lines.append(f"mov.b32 ${slots + slot}, bits;")
        for i in held if slot + 1 < slots else ():
            lines += [f"setp.eq.s32 p, number{i}, first;", f"@p mov.b32 key{i}, 0x80000000;"]
    return "\n".join([*lines, "}"])


@triton.constexpr_function
def operands(slots: int) -> str:
    """The constraints of `finding`."""
    return ",".join(["=r"] * slots + ["=f"] * slots + ["l"])


@triton.constexpr_function
def results(slots: int) -> tuple[tl.dtype, ...]:
    """The types of what `finding` finds."""
    return (tl.int32,) * slots + (tl.float32,) * slots
