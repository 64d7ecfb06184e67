"""The seeds' synthetic users: personas that hold conversations, each from a random stream of its own."""

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvspill.config import Config
from kvspill.config_groups import Persona
from kvspill.records import NS_PER_SEC, HitType, QoS, Request, SharedPrefix
from kvspill.world import World

_THINK_SPREAD = 0.2
_SMALLEST_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class _Habits:
    """What one user draws once and keeps: its persona's ranges come down to single values."""

    persona: str
    qos: QoS
    context_tokens: int
    generate_tokens: int
    think_ns: int


class SyntheticWorkload:
    """Users of the configured personas. The same seed gives each user the same requests (S9)."""

    def __init__(self, config: Config, world: World):
        self._world = world
        self.users = config.num_users
        self.elastic = True
        self._personas: Mapping[str, Persona] = config.personas
        self._qos_shares = (
            (QoS.INTERACTIVE, config.qos.interactive.share),
            (QoS.RESPONSIVE, config.qos.responsive.share),
            (QoS.BATCH, config.qos.batch.share),
        )
        self._end_probability = config.conversation_end_probability
        self._turns_max = 1 if config.disable_multi_turn else config.max_turns
        self._prefix_probability = 0.0 if config.disable_prefix_caching else config.prefix.probability
        self._prefixes = tuple(
            SharedPrefix(prompt_key(prompt.text), prompt.tokens, HitType(prompt.kind))
            for prompt in config.prefix.prompts
        )

    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]:
        """All requests of a user in the order of their intended times, without end."""
        rng = self._world.rng("user", user)
        habits = self._habits(rng)
        chance = rng.random
        at_ns = start_ns + int(habits.think_ns * chance())
        conversation = 0
        while True:
            history: tuple[int, ...] = ()
            answers: tuple[int, ...] = ()
            opening: SharedPrefix | None = None
            turn, last = 0, False
            while not last:
                # Each turn draws the same numbers whatever the options, so that they change one thing.
                context, generate, think = chance(), chance(), chance()
                prefix, which, end = chance(), chance(), chance()
                last = end < self._end_probability or turn + 1 >= self._turns_max
                think_ns = int(habits.think_ns * (1 + _THINK_SPREAD * (2 * think - 1)))
                shared = self._prefix(prefix, which)
                opening = shared if turn == 0 else opening
                request = Request(
                    user=user,
                    conversation=conversation,
                    turn=turn,
                    qos=habits.qos,
                    intended_ns=at_ns,
                    think_ns=think_ns,
                    context_tokens=_part(habits.context_tokens, context),
                    generate_tokens=_part(habits.generate_tokens, generate),
                    history_tokens=history,
                    prefix=shared,
                    last_turn=last,
                    persona=habits.persona,
                    history_answers=answers,
                    opening=opening,
                )
                yield request
                history = (*history, request.context_tokens)
                answers = (*answers, request.generate_tokens)
                at_ns += think_ns
                turn += 1
            conversation += 1

    def preload(self) -> Iterator[SharedPrefix]:
        """Nothing: conversations start empty."""
        return iter(())

    def facts(self) -> Mapping[str, Any]:
        return {"kind": "synthetic"}

    def _habits(self, rng: random.Random) -> _Habits:
        which, qos, context, generate, think = (rng.random() for _ in range(5))
        names = list(self._personas)
        name = names[_weighted([self._personas[name].weight for name in names], which)]
        persona = self._personas[name]
        qos_index = _weighted([share for _, share in self._qos_shares], qos)
        think_low, think_high = persona.think
        return _Habits(
            persona=name,
            qos=self._qos_shares[qos_index][0],
            context_tokens=_between(*persona.context, context),
            generate_tokens=_between(*persona.generate, generate),
            think_ns=int((think_low + (think_high - think_low) * think) * NS_PER_SEC),
        )

    def _prefix(self, chance: float, which: float) -> SharedPrefix | None:
        if chance >= self._prefix_probability or not self._prefixes:
            return None
        return self._prefixes[int(which * len(self._prefixes))]


def prompt_key(text: str) -> str:
    """The key that everyone who sends this text shares."""
    return "kv_system_" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _between(low: int, high: int, chance: float) -> int:
    return low + int(chance * (high - low + 1))


def _part(value: int, chance: float) -> int:
    """Between a quarter of the user's value and the value."""
    return _between(max(1, int(value * _SMALLEST_SHARE)), value, chance)


def _weighted(weights: Sequence[float], chance: float) -> int:
    """The index that a chance in [0, 1) falls on."""
    target = chance * sum(weights)
    for index, weight in enumerate(weights):
        target -= weight
        if target < 0:
            return index
    return len(weights) - 1
