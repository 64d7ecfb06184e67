"""Several observers of one run; who listens may change while it goes on."""

from kvspill.records import Eviction, Lookup, Observer, OpRecord, RequestRecord


class Tee(Observer):
    """Tells every observer everything, in the order given."""

    def __init__(self, *observers: Observer):
        self.observers = observers

    def op(self, record: OpRecord) -> None:
        for observer in self.observers:
            observer.op(record)

    def lookup(self, lookup: Lookup) -> None:
        for observer in self.observers:
            observer.lookup(lookup)

    def eviction(self, eviction: Eviction) -> None:
        for observer in self.observers:
            observer.eviction(eviction)

    def request(self, record: RequestRecord) -> None:
        for observer in self.observers:
            observer.request(record)

    def cache_call(self, from_ns: int, to_ns: int) -> None:
        for observer in self.observers:
            observer.cache_call(from_ns, to_ns)

    def room_wait(self, from_ns: int, to_ns: int, writes: int) -> None:
        for observer in self.observers:
            observer.room_wait(from_ns, to_ns, writes)
