"""How the work of a kernel is cut: what part of a matrix one program has, by the matrix's shape."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

_SHARED_BYTES = 160 << 10  # of a program, for its pipeline


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` of a matrix for one program, its columns cut into `pieces`, `columns` of each at a time, `stages` - 1 of
    them ahead; 0: those that are loaded early are held, and others take their place, see `multiplied`.

    Before the kernel before has ended, `early` columns of each piece are loaded, and `ahead` more asked for;
    `early_last`: they are multiplied behind all others, which then are on their way sooner, but need their own room. Of
    experts `pieces` are those of one slot.
    """

    rows: int
    columns: int
    pieces: int
    warps: int
    stages: int
    early: int
    ahead: int
    early_last: bool = False


HELD_STEP, _HELD = 32, 112  # columns that are held together; registers of a thread that hold weights, at most


def _held(rows: int, pieces: int, early: int = 512) -> Tile:
    return Tile(rows, 0, pieces, pieces, 1, early, 0)


HEAD_ROWS = 32_768  # of a matrix over the vocabulary
_SHORT, _MOST_HELD = 1024, 8192  # columns that are loaded at once; that are held at most
_HELD_SIDE, _FEW_HELD_ROWS = 3072, 2048  # of matrices that are held unless others were faster
_MOST_SMALL = 2048  # rows or columns of matrices that were faster when they were held, whatever their shape
_FEW_EARLY = 64  # columns of many tokens; all that are multiplied last, whose number decides how sums round
_FEW_ROWS = 256  # of a router: what a program has must be short, or it is waited for
_LANES = 8  # see `experts`
_PLAIN = (
    Tile(16, 64, 8, 8, 3, 256, 0),
    _held(8, 8),
    _held(16, 4),
    _held(16, 8),
    Tile(16, 128, 4, 4, 4, 128, 128),
    Tile(8, 128, 4, 4, 6, 64, 256, True),
    _held(16, 16),
    Tile(16, 128, 4, 4, 6, 64, 512, True),
    _held(32, 8, 192),
    _held(8, 4),
    _held(8, 16),
    Tile(8, 64, 4, 4, 3, 256, 0),
    Tile(8, 128, 8, 8, 4, 128, 256),
    Tile(16, 64, 4, 4, 6, 64, 256),
)
_GATED = (
    Tile(8, 128, 4, 4, 4, 128, 128),
    _held(8, 4, 384),
    _held(8, 8),
    Tile(32, 128, 1, 4, 4, 0, 512),
    Tile(8, 64, 4, 4, 3, 256, 0),
    _held(16, 8, 160),
    Tile(64, 64, 1, 4, 5, 0, 256),
)
_FEW = (
    _held(16, 16, 256),
    _held(16, 8, 256),
    _held(8, 8, 256),
    Tile(16, 64, 8, 8, 3, 256, 0),
)
_EXPERTS = (
    Tile(32, 128, 1, 4, 4, 0, 0),
    Tile(64, 128, 1, 8, 4, 0, 0),
    Tile(16, 128, 1, 2, 5, 0, 0),
    Tile(32, 64, 1, 4, 6, 0, 0),
    Tile(16, 64, 4, 4, 4, 0, 0),
    Tile(32, 128, 1, 4, 5, 0, 0),
    Tile(32, 64, 2, 4, 4, 0, 0),
    Tile(16, 256, 1, 2, 4, 0, 0),
)
_HEAD = (Tile(64, 256, 1, 4, 3, 0, 256), Tile(64, 128, 1, 4, 4, 0, 256), Tile(128, 64, 1, 4, 5, 0, 128))


@dataclass(frozen=True, slots=True)
class Cut:
    """How attention goes through a text: a program for each `share` of it, so many keys at a time; `early`: the first
    of them are loaded before they are needed. `whole`: all of a share is, and the columns of its values are cut into
    `slices`, see `whole_shares`."""

    keys: int
    warps: int
    stages: int
    share: int
    early: bool = True
    whole: bool = False
    slices: int = 1

    def shares(self, capacity: int) -> int:
        return -(-capacity // self.share)

    def rows(self, rows: int, programs: int) -> int:
        """Of a program, where each of so many has `rows` of queries. Where shares are read at once, fewer of them as
        long as there are idle multiprocessors: a program takes as long as its code is."""
        tiles = -(-rows // _FEW_QUERIES)
        return _FEW_QUERIES if self.whole and programs * self.slices * tiles <= _AT_ONCE else _QUERIES

    def beside(self, rows: int, lanes: int) -> int:
        """Shares that are on their way at once when `rows` are joined."""
        return max(2, min(16, _JOINED * 32 * self.warps // (rows * lanes)))


_QUERIES, _FEW_QUERIES = 16, 8  # of a program; where shares are read at once, sums of a query do not hang on it
_JOINED = 64  # numbers of shares that a thread holds
_MOST_SHARES, _PROGRAMS = 64, 384  # of a text; that a card holds at once, about
_ALONE = 128  # programs that have a multiprocessor each
_AT_ONCE, _FEW_SHARES = 400, 32  # programs of which few wait for another; shares that are quickly joined
_WHOLE, _SLICE = 256, 64  # keys of a share that is read at once; columns of its values for a program


def attention_cut(width: int, key_heads: int, capacity: int, half: bool = True) -> Cut:
    """Of heads of so many columns, and numbers of `half` precision. Shares are read at once as long as each program has
    a multiprocessor, or few have to wait for another and shares are few. Others are whole tiles, and no more than run
    side by side; wide heads keep a multiprocessor busy for longer than it takes to join shares."""
    lanes, slices = lanes_of(width), power(-(-width // _SLICE))
    shares = -(-capacity // _WHOLE)
    if half and slices <= 4 and shares * key_heads * slices <= (_AT_ONCE if shares <= _FEW_SHARES else _ALONE):
        return Cut(_WHOLE, 8, 1, _WHOLE, whole=True, slices=slices)
    most = max(1, min(_MOST_SHARES, _PROGRAMS // key_heads))
    if lanes >= 256:
        share = -(-capacity // (most * 64)) * 64
        return Cut(64, 8, 1, share) if share == 64 else Cut(128, 8, 2, -(-share // 128) * 128)
    share = max(256, -(-capacity // (most * 128)) * 128)
    if share == 256 and -(-capacity // share) * key_heads <= _ALONE:
        return Cut(256, 8, 1, share)
    return Cut(128, 4, 2, share, early=share == 256 or lanes < 128)


def lanes_of(width: int) -> int:
    """The width of a head as attention takes it."""
    return max(16, power(width))


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
        return _EXPERTS if gated else _of_slots(slots)
    found = _GATED if gated else _HEAD if rows >= HEAD_ROWS else _FEW if rows <= _FEW_ROWS else _PLAIN
    return tuple(tile for tile in found if tile.columns or columns <= _MOST_HELD)


def share_of(columns: int, pieces: int) -> int:
    """Columns of a piece."""
    return -(-columns // (16 * pieces)) * 16


def _room(tile: Tile, matrices: int) -> int:
    """Columns of a piece that threads hold."""
    of_step = -(-matrices * tile.rows // 8) * 4 * -(-tile.pieces // tile.warps)
    return (_HELD if tile.warps <= 8 else 72) // of_step * HELD_STEP  # of more threads each has fewer registers


def _of_slots(slots: int) -> tuple[Tile, ...]:
    """At least four pieces of all slots together."""
    cuts = max(1, 4 // power(slots))
    warps = 4 if power(slots) * cuts <= 4 else 8
    found = (
        Tile(8, 128, cuts, 4, 4, 64, 256),
        Tile(16, 64, 2 * cuts, 8, 4, 64, 0),
        Tile(16, 64, cuts, warps, 4, 64, 512),
        Tile(16, 128, cuts, 8, 4, 64, 256),
        Tile(32, 64, cuts, 8, 4, 64, 0),
        Tile(16, 64, cuts, warps, 6, 64, 128),
        Tile(8, 128, cuts, 4, 4, 64, 512),
        Tile(16, 64, cuts, warps, 4, 64, 64),
    )
    return tuple(dict.fromkeys(found))


def guess(gated: bool, rows: int, columns: int, slots: int = 0) -> Tile:
    """The tile of a matrix that was not tried on this card: small ones are held, in as many programs as it takes to
    keep all multiprocessors busy."""
    if gated and not slots:
        return _GATED[1] if columns <= _HELD_SIDE else _GATED[0]
    if slots or rows >= HEAD_ROWS or rows <= _FEW_ROWS:
        return candidates(gated, rows, columns, slots)[0]
    if columns <= _SHORT:
        return _PLAIN[2]
    if rows <= _FEW_HELD_ROWS and columns <= _MOST_HELD:
        return _PLAIN[1]
    return _PLAIN[3] if min(rows, columns) <= _HELD_SIDE and columns <= _MOST_HELD else _PLAIN[0]


def held(gated: bool, rows: int, columns: int, slots: int = 0) -> Tile | None:
    """One that holds rows, where there is one; kernels that do so and those that stream make each other slower."""
    if slots or rows >= HEAD_ROWS or rows <= _FEW_ROWS or columns > _MOST_HELD:
        return None
    if gated:
        return _GATED[1]
    return _PLAIN[2] if columns <= _SHORT else _PLAIN[1] if rows <= _FEW_HELD_ROWS else _PLAIN[3]


def streamed(gated: bool, rows: int, columns: int, slots: int = 0) -> Tile | None:
    """One that streams a matrix whose rows could be held, where it is large enough for that."""
    if min(rows, columns) <= _MOST_SMALL or held(gated, rows, columns, slots) is None:
        return None
    return _GATED[0] if gated else _PLAIN[0]


Shape = tuple[bool, int, int, int]
"""Whether a matrix holds gate and up, its rows (of one of them), its columns; of experts how many a token chooses."""


@dataclass(frozen=True)
class Tiles:
    """Those tried on this card. How many pieces a tile has decides how sums round: it hangs on the matrix alone, and
    nothing here on the number of tokens but what is free."""

    tried: dict[Shape, Tile] = field(default_factory=dict)

    def of(self, gated: bool, rows: int, columns: int, tokens: int, paired: bool = False) -> Tile:
        """`paired`: each token is read twice, as stream and as branch."""
        tile = self.tried.get((gated, rows, columns, 0)) or guess(gated, rows, columns)
        return fitting(tile, columns, 2 * power(tokens) if paired else tokens, 1 + gated)

    def of_experts(self, gated: bool, rows: int, columns: int, slots: int) -> Tile:
        """Each program has one token."""
        tile = self.tried.get((gated, rows, columns, slots)) or guess(gated, rows, columns, slots)
        return fitting(tile, columns, _LANES, 1 + gated, 1 if gated else slots)


def fitting(tile: Tile, columns: int, tokens: int, matrices: int = 1, slots: int = 1) -> Tile:
    """With no more columns than there are, and room for the tokens in shared memory."""
    if not tile.columns:
        share = share_of(columns, tile.pieces)
        room = _room(tile, matrices) if tokens <= 16 else _room(tile, matrices) // 3
        steps = min(tile.early // HELD_STEP, -(-share // HELD_STEP), max(1, room // HELD_STEP))
        return replace(tile, early=steps * HELD_STEP)
    whole = power(-(-columns // (16 * tile.pieces)) * 16)
    early = min(tile.early, whole)
    if early and tokens > 16:
        early = min(early, _FEW_EARLY)
    lines = (matrices * tile.rows + tile_tokens(tokens)) * power(slots)
    width = min(tile.columns, whole)
    while width > 16 and 2 * tile.pieces * lines * width * (tile.stages - 1) > _SHARED_BYTES:
        width //= 2
    ahead = min(tile.ahead, power(whole - early + 1) // 2)
    return replace(tile, columns=width, early=early, ahead=ahead if ahead >= 64 else 0)
