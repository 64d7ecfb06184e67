"""The windows of a search: each stage has a recorder of its own, and the monitor sees every row."""

from collections.abc import Callable

from kvspill.measure.recorder import Recorder
from kvspill.records import Eviction, Lookup, OpRecord, RequestRecord
from kvspill.run.search.monitor import WindowMonitor


class StageWindows:
    """An Observer. The result of the run is the window of the last stage that was held to its end.

    Two recorders can be listening: the last whole stage, which still gets its share of operations that end
    later (S4), and the one being measured.
    """

    def __init__(
        self,
        monitor: WindowMonitor,
        make_recorder: Callable[[int], Recorder],
        on_stage: Callable[[], None] = lambda: None,
        on_open: Callable[[], None] = lambda: None,
        on_close: Callable[[Recorder], None] = lambda _recorder: None,
    ):
        self.monitor = monitor
        self._make_recorder = make_recorder
        self._on_stage = on_stage
        self._on_open = on_open
        self._on_close = on_close
        self._open: Recorder | None = None
        self._whole: Recorder | None = None
        self._listening: tuple[Recorder, ...] = ()
        self._over = False

    @property
    def recorder(self) -> Recorder | None:
        """The last whole stage; the present one where there is none yet."""
        return self._whole or self._open

    @property
    def measuring(self) -> Recorder | None:
        """The stage whose window is open now."""
        return self._open

    def stage(self, at_ns: int) -> None:
        """The load changes now; until `open` nothing is measured."""
        if self._over:
            return
        self._abandon()
        self.monitor.begin(at_ns)
        self._on_stage()

    def open(self, at_ns: int) -> None:
        """The load has settled: the stage's window begins."""
        if self._over:
            return
        self.monitor.begin(at_ns)
        self._open = self._make_recorder(at_ns)
        self._listen()
        self._on_open()

    def close(self, at_ns: int) -> None:
        """The stage was held to its end: from now on the result is its window."""
        if self._over:
            # The load ended while the stage's last interval was being waited out: end() has seen to it.
            return
        assert self._open is not None, "a window was opened"
        self._open.close_window(at_ns)
        self._whole, self._open = self._open, None
        self._listen()
        self._on_close(self._whole)

    def end(self, at_ns: int) -> None:
        """The load is over. A stage cut short counts only where no other was held to its end."""
        if self._whole is None:
            if self._open is None:
                self.open(at_ns)
            self.close(at_ns)
        else:
            self._abandon()
        self._over = True

    def _abandon(self) -> None:
        self._open = None
        self._listen()

    def _listen(self) -> None:
        self._listening = tuple(recorder for recorder in (self._whole, self._open) if recorder is not None)

    def op(self, record: OpRecord) -> None:
        self.monitor.op(record)
        for recorder in self._listening:
            recorder.op(record)

    def lookup(self, lookup: Lookup) -> None:
        for recorder in self._listening:
            recorder.lookup(lookup)

    def eviction(self, eviction: Eviction) -> None:
        for recorder in self._listening:
            recorder.eviction(eviction)

    def request(self, record: RequestRecord) -> None:
        self.monitor.request(record)
        for recorder in self._listening:
            recorder.request(record)

    def cache_call(self, from_ns: int, to_ns: int) -> None:
        for recorder in self._listening:
            recorder.cache_call(from_ns, to_ns)
