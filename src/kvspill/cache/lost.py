"""What faults took from the cache: whoever asks for it next must not gain by that."""

_KEYS_MAX = 100_000


class LostKeys:
    """Keys that are missing because of a fault; beyond a limit those of longest ago are forgotten."""

    def __init__(self) -> None:
        self._was_there: dict[str, bool] = {}

    def note(self, key: str, was_there: bool) -> None:
        """A fault took the entry itself, or (where it never was there) its write."""
        self._was_there[key] = self._was_there.pop(key, False) or was_there
        if len(self._was_there) > _KEYS_MAX:
            del self._was_there[next(iter(self._was_there))]

    def was_there(self, key: str) -> bool:
        """True where a read found the entry broken: it is written again because of that alone."""
        return self._was_there.get(key, False)

    def found_again(self, key: str) -> None:
        self._was_there.pop(key, None)

    def __contains__(self, key: str) -> bool:
        return key in self._was_there

    def __len__(self) -> int:
        return len(self._was_there)
