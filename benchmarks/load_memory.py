"""What users and waiting requests take of memory: the constants of the preflight are compared with this.

    python benchmarks/load_memory.py [USERS]

Each figure is the growth of the resident memory of a process of its own, divided by the number of users or
requests.
"""

import asyncio
import gc
import subprocess
import sys
from pathlib import Path

from kvspill.config import Config
from kvspill.records import Request
from kvspill.run.preflight import CLOSED_USER_BYTES, OPEN_USER_BYTES, RETRIEVAL_BYTES, WAITING_BYTES
from kvspill.serving.arrivals import OpenArrivals
from kvspill.serving.closed import ClosedPopulation
from kvspill.serving.population import LoadLimits
from kvspill.serving.queue import RequestQueue
from kvspill.workload.base import Workload
from kvspill.workload.registry import make_workload
from kvspill.world import World, run_virtual

USERS = 100_000
TURNS = 5
ALLOWED = {
    "open": OPEN_USER_BYTES,
    "closed": CLOSED_USER_BYTES,
    "open, retrieving": OPEN_USER_BYTES + RETRIEVAL_BYTES,
    "waiting": WAITING_BYTES,
}


def resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


async def measure(world: World, what: str, users: int) -> float:
    """Bytes for each user, or for each request of a backlog of several turns of each user."""
    workload = make_workload(Config(num_users=users, enable_rag="retrieving" in what), world, 1 << 60)
    arrivals, queue = OpenArrivals(workload), RequestQueue(users * TURNS)
    if what == "waiting":
        arrivals.start_all(lambda _done, _all: None)
    before = resident_bytes()
    if what.startswith("open"):
        arrivals.start_all(lambda _done, _all: None)
        return (resident_bytes() - before) / users
    if what == "closed":
        return await _closed(world, workload, before)
    for _ in range(users * TURNS):
        request = arrivals.pop()
        queue.submit(request, request.intended_ns)
    return (resident_bytes() - before) / len(queue)


async def _closed(world: World, workload: Workload, before: int) -> float:
    """Everybody has asked and waits for the answer: as much as a user ever has."""
    asked: list[Request] = []

    def arrive(request: Request, _at_ns: int) -> bool:
        asked.append(request)
        return True

    population = ClosedPopulation(world, workload, LoadLimits(0, None, None), arrive)
    living = asyncio.ensure_future(population.run())
    while len(asked) < workload.users:
        await asyncio.sleep(1)
    taken = resident_bytes() - before
    living.cancel()
    return taken / workload.users


def main() -> int:
    if len(sys.argv) > 2:
        what, users = sys.argv[1], int(sys.argv[2])
        print(run_virtual(lambda world: measure(world, what, users), seed=1))
        return 0
    users = int(sys.argv[1]) if len(sys.argv) > 1 else USERS
    beyond = False
    for what, allowed in ALLOWED.items():
        command = [sys.executable, __file__, what, str(users)]
        found = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{what:<16} {found:8,.0f} bytes each, the preflight counts {allowed:,}")
        beyond |= found > allowed
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
