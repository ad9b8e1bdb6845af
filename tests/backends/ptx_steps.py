"""The instructions of a small PTX program carried out one by one, as a thread of a GPU does: no GPU is needed."""

from __future__ import annotations

import re
import struct

from specdec_tui.backends.gpu.packed.codes import half_bits


def number(bits: int, half: str) -> float:
    """Of 16 bits."""
    if half == "float16":
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def number_of(bits: int) -> float:
    """Of 32 bits in single precision."""
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def bits_of(number: float) -> int:
    """The 32 bits of a number rounded to single precision."""
    return int(struct.unpack("<I", struct.pack("<f", number))[0])


def prmt(one: int, other: int, selector: int) -> int:
    """PTX ISA, prmt: bytes of two words by four selectors, whose fourth bit asks for copies of a byte's top bit."""
    source = (one | other << 32).to_bytes(8, "little")
    found = 0
    for place in range(4):
        nibble = selector >> 4 * place & 15
        byte = source[nibble & 7]
        found |= ((255 if byte & 128 else 0) if nibble & 8 else byte) << 8 * place
    return found


def lop3(values: list[int], table: int) -> int:
    found = 0
    for bit in range(32):
        place = sum((value >> bit & 1) << (2 - n) for n, value in enumerate(values))
        found |= (table >> place & 1) << bit
    return found


BASE = 1024  # where shared memory begins
Memory = dict[int, int]  # words by address


def carried_out(
    program: str,
    inputs: dict[str, int],
    half: str = "bfloat16",
    shared: Memory | None = None,
    given: Memory | None = None,
) -> dict[str, int]:
    """The registers after a program."""
    held = {"packed_numbers": BASE, "own_tokens": BASE, "joined_sums": BASE} | inputs
    held = {"own_totals": BASE} | held
    shared, given = {} if shared is None else shared, given or {}

    def value(name: str) -> int:
        if name.startswith("["):
            return sum(value(part.strip()) for part in name.strip("[]").split("+"))
        if name.startswith("0f"):  # a number's bits
            return int(name[2:], 16)
        return held[name] if name in held else int(name, 0)

    for line in program.split("\n"):
        if (line := line.strip("{}; ")) == "" or line.startswith((".reg", ".shared", "bar.sync", "cp.async.wait")):
            continue
        if line.startswith("@"):
            condition, _, line = line.partition(" ")
            if not held[condition[1:]]:
                continue
        name, _, rest = line.partition(" ")
        target, *operands = (part.strip("{} ") for part in rest.split(","))
        values = [value(operand) for operand in operands] if not name.startswith("ld") else []
        match name.split(".")[0]:
            case "st":
                shared |= {value(target) + 4 * place: stored for place, stored in enumerate(values)}
                continue
            case "cp":
                to, source = value(target), values[0]
                assert values[1] == 16 and to % 16 == source % 16 == 0
                shared |= {to + place: given[source + place] for place in range(0, 16, 4)}
                continue
            case "ld":
                memory = shared if name.startswith("ld.shared") else given
                targets = [part.strip("{} ") for part in rest.split(",")[:-1]]
                address = value(rest.split(",")[-1].strip())
                assert address % (4 * len(targets)) == 0
                held |= {each: memory[address + 4 * place] for place, each in enumerate(targets)}
                continue
            case "add" if name == "add.rn.f32":
                result = bits_of(number_of(values[0]) + number_of(values[1]))
            case "setp":
                assert name == "setp.lt.u32"
                result = values[0] < values[1]
            case "selp":
                result = values[0] if values[2] else values[1]
            case "min":
                result = min(values)
            case "bfe":
                result = values[0] >> values[1] & (1 << values[2]) - 1
            case "add":
                result = values[0] + values[1]
            case "mul":
                result = values[0] * values[1]
            case "mad":
                result = values[0] * values[1] + values[2]
            case "shl":
                result = values[0] << values[1]
            case "mov":
                result = values[0]
            case "shr":
                result = values[0] >> values[1]
            case "and":
                result = values[0] & values[1]
            case "xor":
                result = values[0] ^ values[1]
            case "prmt":
                result = prmt(*values)
            case "lop3":
                result = lop3(values[:3], values[3])
            case "fma":
                assert name == f"fma.rn.{'bf16x2' if half == 'bfloat16' else 'f16x2'}"
                result = 0
                for shift in (0, 16):
                    a, b, c = (number(part >> shift & 0xFFFF, half) for part in values)
                    result |= half_bits(a * b + c, half) << shift
            case other:
                raise AssertionError(f"unknown instruction {other}")
        held[target] = result & 0xFFFFFFFF
    return held


def product_of_tiles(rows: list[list[float]], columns: list[list[float]], sums: list[list[float]]) -> None:
    """sums [16][8] + rows [16][16] @ columns [16][8], in single precision, one column of the rows after the other."""
    for i, row in enumerate(rows):
        for n in range(8):
            for k, number_of_row in enumerate(row):
                sums[i][n] = number_of(bits_of(sums[i][n] + number_of_row * columns[k][n]))


def carried_out_together(
    program: str,
    lanes: list[dict[str, int]],
    half: str = "bfloat16",
    shared: Memory | None = None,
    given: Memory | None = None,
) -> list[dict[str, int]]:
    """The registers of the 32 lanes of a warp after a program whose instructions they carry out together. mma.m16n8k16
    and shfl.sync.bfly as the PTX ISA has them."""
    held = [dict(lane) for lane in lanes]
    for line in program.split("\n"):
        if line.startswith("mma.sync.aligned.m16n8k16"):
            groups = [[name.strip() for name in part.split(",")] for part in re.findall(r"{([^}]*)}", line)]
            rows, columns = [[0.0] * 16 for _ in range(16)], [[0.0] * 8 for _ in range(16)]
            sums = [[0.0] * 8 for _ in range(16)]
            for lane, own in enumerate(held):
                g, t = lane // 4, lane % 4
                for place, name in enumerate(groups[1]):
                    for part in range(2):
                        value = number(own[name] >> 16 * part & 0xFFFF, half)
                        rows[g + place % 2 * 8][2 * t + part + place // 2 * 8] = value
                for place, name in enumerate(groups[2]):
                    for part in range(2):
                        columns[2 * t + part + place * 8][g] = number(own[name] >> 16 * part & 0xFFFF, half)
                for place, name in enumerate(groups[3]):
                    sums[g + place // 2 * 8][2 * t + place % 2] = number_of(own[name])
            product_of_tiles(rows, columns, sums)
            for lane, own in enumerate(held):
                for place, name in enumerate(groups[0]):
                    own[name] = bits_of(sums[lane // 4 + place // 2 * 8][2 * (lane % 4) + place % 2])
        elif line.startswith("shfl.sync.bfly"):
            target, source, apart = (part.strip() for part in line.split(" ", 1)[1].split(",")[:3])
            values = [own[source] for own in held]
            for lane, own in enumerate(held):
                own[target] = values[lane ^ int(apart)]
        else:
            held = [carried_out(line, own, half, shared, given) for own in held]
    return held
