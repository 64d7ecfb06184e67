"""How long the GPU would take to answer: simulated back-pressure on the I/O."""

from dataclasses import dataclass

from kvspill.records import Request


@dataclass(frozen=True, slots=True)
class Generation:
    """Time per generated token and per token of prefill."""

    ns_per_token: int
    ns_per_prefill_token: int = 0

    def duration_ns(self, request: Request) -> int:
        return (
            self.ns_per_token * request.generate_tokens + self.ns_per_prefill_token * request.context_tokens
        )
