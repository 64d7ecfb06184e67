"""A request's context as a chain of blocks: equal beginnings have equal keys."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvspill.records import HitType, LookupKind, Purpose, Request

_CONVERSATION: LookupKind = (Purpose.HISTORY, HitType.MULTI_TURN)


@dataclass(frozen=True, slots=True)
class Chain:
    """The blocks of one context, first block first. A key stands for its block and all before it."""

    keys: Sequence[str]
    block_tokens: int
    context_tokens: int
    """Tokens of the whole context, those after the last full block included."""
    shared: int = 0
    """Leading blocks that lie wholly in a prompt which other conversations begin with, too."""
    shared_kind: LookupKind = _CONVERSATION
    fill: Sequence[int] = ()
    """Tokens in each block, where a trace says so."""

    def tokens_of(self, blocks: int) -> int:
        """Tokens of the context in its first blocks; the last one of a trace may be filled in part."""
        whole = sum(self.fill[:blocks]) if self.fill else blocks * self.block_tokens
        return min(whole, self.context_tokens)

    def kinds(self) -> list[LookupKind]:
        """Why each block is asked for."""
        return [self.shared_kind] * self.shared + [_CONVERSATION] * (len(self.keys) - self.shared)

    def parents(self) -> list[str | None]:
        """The block that each one continues."""
        return [None, *self.keys[:-1]] if self.keys else []


def chain_of(request: Request, block_tokens: int) -> Chain:
    """The chain of a request's context.

    Blocks that a trace lists count as listed, the last one too. Otherwise the context is the shared
    prompt that the conversation began with, then the turns before with their answers, then this turn;
    only full blocks count. Within a conversation a block's place decides its content, so the place in
    the conversation is as good a key as a hash of it.
    """
    if request.blocks:
        size = request.block_tokens or block_tokens
        return Chain(request.blocks, size, request.context_tokens, fill=request.block_fill)
    opening = request.opening or (request.prefix if request.turn == 0 else None)
    before = 0 if opening is None else opening.tokens
    context_tokens = (
        before + sum(request.history_tokens) + sum(request.history_answers) + request.context_tokens
    )
    shared = before // block_tokens
    conversation = f"u{request.user}_c{request.conversation}_b"
    keys = [f"{conversation}{place}" for place in range(shared, context_tokens // block_tokens)]
    if opening is None:
        return Chain(keys, block_tokens, context_tokens)
    beginning = [f"{opening.key}_b{place}" for place in range(shared)]
    return Chain(beginning + keys, block_tokens, context_tokens, shared, (Purpose.PROMPT, opening.hit_type))
