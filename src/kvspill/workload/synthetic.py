"""The seeds' synthetic users: personas that hold conversations, each from a random stream of its own."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvspill.config import Config
from kvspill.config.groups import SMALLEST_SHARE
from kvspill.records import HitType, QoS, Request, SharedPrefix
from kvspill.workload.draws import between, qos_of, think_ns, usual_think_ns, weighted
from kvspill.world import World


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
        self._config = config
        self._world = world
        self.users = config.num_users
        self.elastic = True
        self._personas = tuple(config.personas.items())
        self._weights = [persona.weight for _name, persona in self._personas]
        self._end_probability = config.conversation_end_probability
        self._turns_max = 1 if config.disable_multi_turn else config.max_turns
        self._prefix_probability = 0.0 if config.disable_prefix_caching else config.prefix.probability
        self._prefixes = tuple(
            SharedPrefix(prompt_key(prompt.text, prompt.kind), prompt.tokens, HitType(prompt.kind))
            for prompt in config.prefix.prompts
        )

    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]:
        """All requests of a user in the order of their intended times, without end."""
        chance = self._world.rng("user", user).random
        habits = self._habits(chance)
        context_low, context_values = _part(habits.context_tokens)
        generate_low, generate_values = _part(habits.generate_tokens)
        at_ns = start_ns + int(habits.think_ns * chance())
        conversation = 0
        while True:
            history: tuple[int, ...] = ()
            answers: tuple[int, ...] = ()
            prompts: tuple[int, ...] = ()
            opening: SharedPrefix | None = None
            turn, last = 0, False
            while not last:
                # Each turn draws the same numbers whatever the options, so that they change one thing.
                context, generate, think = chance(), chance(), chance()
                prefix, which, end = chance(), chance(), chance()
                last = end < self._end_probability or turn + 1 >= self._turns_max
                pause_ns = think_ns(habits.think_ns, think)
                shared = self._prefix(prefix, which)
                opening = shared if turn == 0 else opening
                context_tokens = context_low + int(context * context_values)
                generate_tokens = generate_low + int(generate * generate_values)
                yield Request(
                    user,
                    conversation,
                    turn,
                    habits.qos,
                    at_ns,
                    pause_ns,
                    context_tokens,
                    generate_tokens,
                    history,
                    shared,
                    habits.persona,
                    history_answers=answers,
                    history_shared=prompts if any(prompts) else (),
                    opening=opening,
                )
                history = (*history, context_tokens)
                answers = (*answers, generate_tokens)
                prompts = (*prompts, 0 if shared is None else shared.tokens)
                at_ns += pause_ns
                turn += 1
            conversation += 1

    def preload(self) -> Iterator[SharedPrefix]:
        """Nothing: conversations start empty."""
        return iter(())

    def facts(self) -> Mapping[str, Any]:
        return {"kind": "synthetic", "personas": self._config.persona_preset or "own"}

    def _habits(self, chance: Callable[[], float]) -> _Habits:
        which, qos, context, generate, think = chance(), chance(), chance(), chance(), chance()
        name, persona = self._personas[weighted(self._weights, which)]
        return _Habits(
            persona=name,
            qos=qos_of(self._config, qos),
            context_tokens=between(*persona.context, context),
            generate_tokens=between(*persona.generate, generate),
            think_ns=usual_think_ns(persona.think, think),
        )

    def _prefix(self, chance: float, which: float) -> SharedPrefix | None:
        if chance >= self._prefix_probability or not self._prefixes:
            return None
        return self._prefixes[int(which * len(self._prefixes))]


def prompt_key(text: str, kind: str = "system") -> str:
    """The key that everyone who sends this text shares."""
    return f"kv_{kind}_" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _part(value: int) -> tuple[int, int]:
    """What a request draws from: a quarter of the user's value at least, and how many values up to it."""
    low = max(1, int(value * SMALLEST_SHARE))
    return low, value - low + 1
