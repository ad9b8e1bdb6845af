"""How the work of a kernel is cut: what part of a matrix one program has, by the matrix's shape."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

_SHARED_BYTES = 160 << 10  # of a program, for its pipeline


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` of a matrix for one program, its columns cut into `pieces`, `columns` of each at a time, `stages` - 1 of
    them ahead.

    Before the kernel before has ended, `early` columns of each piece are loaded, and `ahead` more asked for. Of
    experts `pieces` are those of one slot; of gate and up of experts `ahead` are numbers of the next layer's weights.
    """

    rows: int
    columns: int
    pieces: int
    warps: int
    stages: int
    early: int
    ahead: int


_HEAD_ROWS, _SHORT = 32_768, 1024  # rows of a matrix over the vocabulary; columns that are loaded at once
_FEW_ROWS = 256  # of a router: what a program has must be short, or it is waited for
_LANES = 8  # see `experts`
_PLAIN = (
    Tile(16, 64, 8, 8, 3, 256, 0),
    Tile(16, 128, 4, 4, 4, 128, 128),
    Tile(16, 64, 4, 4, 3, 256, 0),
    Tile(16, 64, 4, 4, 6, 64, 256),
    Tile(8, 64, 4, 4, 3, 256, 0),
    Tile(16, 128, 4, 4, 3, 256, 256),
    Tile(16, 128, 4, 4, 4, 128, 512),
)
_GATED = (
    Tile(8, 128, 4, 4, 4, 128, 128),
    Tile(8, 64, 4, 4, 3, 256, 0),
    Tile(64, 64, 1, 4, 5, 0, 256),
    Tile(32, 128, 1, 4, 4, 0, 512),
)
_FEW = (
    Tile(16, 128, 8, 8, 4, 128, 256),
    Tile(16, 64, 8, 8, 3, 256, 0),
    Tile(8, 64, 8, 8, 3, 256, 0),
    Tile(16, 64, 16, 16, 3, 128, 0),
)
_EXPERTS = (
    Tile(16, 64, 4, 4, 4, 0, 0),
    Tile(16, 64, 4, 4, 4, 0, 16384),
    Tile(32, 64, 4, 8, 3, 0, 16384),
    Tile(16, 128, 4, 4, 3, 0, 16384),
    Tile(8, 128, 4, 4, 4, 0, 8192),
    Tile(32, 64, 2, 4, 4, 0, 32768),
    Tile(64, 64, 1, 4, 5, 0, 32768),
)
_HEAD = (Tile(64, 256, 1, 4, 3, 0, 256), Tile(64, 128, 1, 4, 4, 0, 256), Tile(128, 64, 1, 4, 5, 0, 128))


@dataclass(frozen=True, slots=True)
class Cut:
    """How a program of attention goes through its share: so many keys at a time."""

    keys: int
    warps: int
    stages: int


def attention_cut(lanes: int) -> Cut:
    return Cut(32, 4, 2) if lanes >= 256 else Cut(128, 4, 2)


def power(number: int) -> int:
    """The next power of two."""
    return 1 << max(0, number - 1).bit_length()


def tile_tokens(tokens: int) -> int:
    """The side of a tensor core's tile that tokens fill."""
    return max(8, power(tokens))


def candidates(gated: bool, rows: int, columns: int, slots: int = 0) -> tuple[Tile, ...]:
    """What is worth a trial for a matrix, best guesses first: each was the fastest for some shape of an H200.

    `slots`: of experts, how many of them a token chooses.
    """
    if slots:
        return _EXPERTS if gated else _of_slots(slots, columns)
    if gated:
        return _GATED
    return _HEAD if rows >= _HEAD_ROWS else _FEW if rows <= _FEW_ROWS else _PLAIN


def _of_slots(slots: int, columns: int) -> tuple[Tile, ...]:
    """At least four pieces of all slots together."""
    cuts = max(1, 4 // power(slots))
    warps = 4 if power(slots) * cuts <= 4 else 8
    early = 64 if columns >= 128 * cuts else 0  # else all of a piece
    found = (
        Tile(16, 64, cuts, warps, 4, 64, early),
        Tile(16, 64, cuts, warps, 4, 128, 0),
        Tile(8, 64, cuts, warps, 4, 128, 0),
        Tile(16, 64, 2 * cuts, 8, 4, 64, 0),
        Tile(16, 128, cuts, 8, 3, 64, 128),
        Tile(32, 64, cuts, 8, 4, 64, 0),
        Tile(8, 128, cuts, 4, 4, 64, 256),
    )
    return tuple(dict.fromkeys(found))


def guess(gated: bool, rows: int, columns: int, slots: int = 0) -> Tile:
    """The tile of a matrix that was not tried on this card."""
    if gated and not slots:
        return _GATED[1] if columns <= _SHORT else _GATED[0]
    if slots or rows >= _HEAD_ROWS or rows <= _FEW_ROWS:
        return candidates(gated, rows, columns, slots)[0]
    return _PLAIN[2] if columns <= _SHORT else _PLAIN[1] if columns > 4096 else _PLAIN[0]


Shape = tuple[bool, int, int, int]
"""Whether a matrix holds gate and up, its rows (of one of them), its columns; of experts how many a token chooses."""


@dataclass(frozen=True)
class Tiles:
    """Those tried on this card. How many pieces a tile has decides how sums round: it hangs on the matrix alone, and
    nothing here on the number of tokens but what is free."""

    tried: dict[Shape, Tile] = field(default_factory=dict)

    def of(self, gated: bool, rows: int, columns: int, tokens: int) -> Tile:
        tile = self.tried.get((gated, rows, columns, 0)) or guess(gated, rows, columns)
        return fitting(tile, columns, tokens, 1 + gated)

    def of_experts(self, gated: bool, rows: int, columns: int, slots: int) -> Tile:
        """Each program has one token."""
        tile = self.tried.get((gated, rows, columns, slots)) or guess(gated, rows, columns, slots)
        found = fitting(replace(tile, ahead=0) if gated else tile, columns, _LANES, 1 + gated, 1 if gated else slots)
        return replace(found, ahead=tile.ahead) if gated else found


def fitting(tile: Tile, columns: int, tokens: int, matrices: int = 1, slots: int = 1) -> Tile:
    """With no more columns than there are, and room for the tokens in shared memory."""
    whole = power(-(-columns // (16 * tile.pieces)) * 16)
    early = min(tile.early, whole)
    if early and tokens > 16:
        early = min(early, 64)
    lines = (matrices * tile.rows + tile_tokens(tokens)) * power(slots)
    width = min(tile.columns, whole)
    while width > 16 and 2 * tile.pieces * lines * width * (tile.stages - 1) > _SHARED_BYTES:
        width //= 2
    ahead = min(tile.ahead, power(whole - early + 1) // 2)
    return replace(tile, columns=width, early=early, ahead=ahead if ahead >= 64 else 0)
