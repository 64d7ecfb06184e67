"""Groups of layers that cache alike, and the bytes of KV of a context as a function of its tokens."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal, Self

from kvspill.errors import UsageError

Kind = Literal["full", "window", "mla", "indexer", "compressed", "state"]

DTYPE_BITS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "float32": 32,
        "fp32": 32,
        "float16": 16,
        "fp16": 16,
        "bfloat16": 16,
        "bf16": 16,
        "fp8": 8,
        "float8": 8,
        "fp8_e4m3": 8,
        "fp8_e5m2": 8,
        "int8": 8,
        "uint8": 8,
        "fp4": 4,
        "int4": 4,
    }
)


def check_dtype(dtype: str) -> None:
    """Raise a ValueError where there is no such type."""
    if dtype not in DTYPE_BITS:
        raise ValueError(f"dtype {dtype[:40]!r} is unknown; choose {', '.join(sorted(DTYPE_BITS))}")


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that keep the same of a context."""

    kind: Kind
    layers: int
    width: int
    """Elements that one head of one layer keeps of a token, K and V together; of a state, all of it."""
    heads: int = 1
    """Heads that tensor-parallel ranks share; what has one is on every rank."""
    window: int = 0
    """Tokens that a window keeps: the last ones."""
    ratio: int = 1
    """Tokens that one kept vector stands for."""
    dtype: str = "float16"
    fixed: bool = False
    """True where the architecture decides the type, so that a type chosen for the KV does not change it."""

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        if (self.kind == "window") != (self.window > 0):
            raise ValueError(f"{self.kind} layers, window {self.window}; window layers have one, others none")
        for name in ("layers", "width", "heads", "ratio"):
            if getattr(self, name) < 1:
                raise ValueError(f"{self.kind} layers: {name} {getattr(self, name)}; give a positive number")

    def heads_of_rank(self, ranks: int) -> int | None:
        """Heads on one of so many ranks; more ranks than heads replicate them; None where uneven."""
        if self.heads % ranks == 0:
            return self.heads // ranks
        return 1 if ranks % self.heads == 0 else None

    def bits(self, ranks: int) -> int:
        """Bits of what the group keeps of one token (of a state: of all tokens) on one rank."""
        heads = self.heads_of_rank(ranks)
        if heads is None:
            raise ValueError(f"{ranks} ranks do not divide {self.heads} heads")
        return self.layers * heads * self.width * DTYPE_BITS[self.dtype]

    def stored_as(self, dtype: str) -> "LayerGroup":
        return self if self.fixed else replace(self, dtype=dtype)

    def describe(self) -> str:
        """The group in a few words, for tables."""
        size = {
            "mla": f"MLA {self.width}",
            "indexer": f"indexer {self.width}",
            "compressed": f"1/{self.ratio} {self.width}",
            "state": "state",
        }.get(self.kind, f"{self.heads}x{self.width}")
        window = f" {self.window:,}:" if self.window else ""
        kind = f"{self.kind}{window} " if self.kind in ("full", "window") else ""
        return f"{self.layers} {kind}{size}"


@dataclass(frozen=True, slots=True)
class KvSize:
    """Bytes of KV that one rank keeps of a context: a function of its tokens.

    A part grows with every token. Another belongs to the end of a context: the last tokens that windows
    keep, and states, which stay the same size.
    """

    growing: tuple[tuple[int, int], ...]
    """Tokens per vector, and the bits of one."""
    windows: tuple[tuple[int, int], ...] = ()
    """Tokens that are kept at most, and the bits of one."""
    state_bits: int = 0

    @classmethod
    def of_groups(cls, groups: Iterable[LayerGroup], ranks: int = 1) -> Self:
        growing: dict[int, int] = {}
        windows: dict[int, int] = {}
        state_bits = 0
        for group in groups:
            bits = group.bits(ranks)
            if group.kind == "state":
                state_bits += bits
            elif group.window:
                windows[group.window] = windows.get(group.window, 0) + bits
            else:
                growing[group.ratio] = growing.get(group.ratio, 0) + bits
        return cls(tuple(sorted(growing.items())), tuple(sorted(windows.items())), state_bits)

    @classmethod
    def even(cls, bytes_per_token: int) -> Self:
        """So many bytes for every token, as where all layers are of full attention."""
        return cls(((1, 8 * bytes_per_token),))

    def of(self, tokens: int) -> int:
        """The whole of a context."""
        return sum([tokens // ratio * bits for ratio, bits in self.growing]) // 8 + self.end(tokens)

    def block(self, tokens: int) -> int:
        """What a block of so many tokens adds to the part that grows."""
        return sum([-(-tokens * bits // ratio) for ratio, bits in self.growing]) // 8

    def end(self, tokens: int) -> int:
        """What belongs to the end of a context: windows and states."""
        if not self.has_end or tokens <= 0:
            return 0
        return (sum([min(tokens, window) * bits for window, bits in self.windows]) + self.state_bits) // 8

    @property
    def has_end(self) -> bool:
        return bool(self.windows or self.state_bits)

    @property
    def grows(self) -> bool:
        """False where no layer keeps every token."""
        return bool(self.growing)

    @property
    def bytes_per_token(self) -> float:
        """What one more token takes in a context that is longer than every window."""
        return sum(bits / ratio for ratio, bits in self.growing) / 8

    def mean_bytes_per_token(self, tokens: float) -> float:
        """Bytes of a context of about so many tokens, divided by them."""
        whole = max(1, round(tokens))
        return self.of(whole) / whole


def check_tensor_parallel(name: str, groups: Iterable[LayerGroup], ranks: int) -> None:
    """More ranks than heads replicate heads; anything uneven is refused."""
    if ranks < 1:
        raise UsageError(f"--tensor-parallel {ranks}: must be at least 1; give 1 for no split")
    for group in groups:
        if group.heads_of_rank(ranks) is None:
            heads = group.heads
            what = "state heads" if group.kind == "state" else "KV heads"
            divisors = [str(count) for count in range(1, heads + 1) if heads % count == 0]
            raise UsageError(
                f"--tensor-parallel {ranks}: does not divide the {heads} {what} of {name}; "
                f"give one of {', '.join(divisors)} or a multiple of {heads}"
            )
