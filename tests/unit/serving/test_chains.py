"""Chains of blocks: equal beginnings have equal keys, and only full blocks count."""

from typing import Any

from kvspill.records import HitType, Purpose, QoS, Request, SharedPrefix
from kvspill.serving.chains import chain_of

PROMPT = SharedPrefix("prompt", 70, HitType.SYSTEM)


def request(
    user: int = 0,
    conversation: int = 0,
    turn: int = 0,
    context: int = 100,
    history: Any = (),
    answers: Any = (),
    **more: Any,
) -> Any:
    return Request(
        user, conversation, turn, QoS.BATCH, 0, 0, context, 10, history, history_answers=answers, **more
    )


def test_only_full_blocks_count() -> None:
    assert len(chain_of(request(context=99), 50).keys) == 1
    assert len(chain_of(request(context=100), 50).keys) == 2
    assert chain_of(request(context=49), 50).keys == []


def test_a_turn_begins_with_all_turns_before_and_their_answers() -> None:
    first = chain_of(request(context=100), 50)
    second = chain_of(request(turn=1, context=60, history=(100,), answers=(40,)), 50)
    assert second.context_tokens == 200
    assert len(second.keys) == 4
    assert second.keys[:2] == first.keys


def test_conversations_share_nothing_but_their_prompt() -> None:
    mine = chain_of(request(user=0, opening=PROMPT), 32)
    yours = chain_of(request(user=1, opening=PROMPT), 32)
    assert mine.context_tokens == 170
    assert mine.shared == 2
    assert mine.keys[:2] == yours.keys[:2]
    assert not set(mine.keys[2:]) & set(yours.keys)
    assert not set(chain_of(request(user=0), 32).keys) & set(chain_of(request(user=1), 32).keys)


def test_the_block_that_a_prompt_ends_in_is_private() -> None:
    assert chain_of(request(opening=PROMPT), 64).shared == 1
    assert chain_of(request(opening=PROMPT), 71).shared == 0


def test_prompt_blocks_are_asked_for_as_prompt_and_the_rest_as_history() -> None:
    kinds = chain_of(request(opening=PROMPT), 64).kinds()
    assert kinds == [(Purpose.PROMPT, HitType.SYSTEM), (Purpose.HISTORY, HitType.MULTI_TURN)]


def test_blocks_that_a_trace_lists_count_as_listed_the_last_too() -> None:
    chain = chain_of(request(context=600, blocks=("7", "8"), block_tokens=512), 50)
    assert chain.keys == ("7", "8")
    assert chain.block_tokens == 512
    assert chain.context_tokens == 600


def test_each_block_continues_the_one_before_it() -> None:
    assert chain_of(request(blocks=("7", "8", "9"), block_tokens=512), 50).parents() == [None, "7", "8"]
