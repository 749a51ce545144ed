"""What an open loop itself costs, beside a bare queue and thread, and whether it waits as queueing theory says."""

import argparse
import math
import queue
import statistics
import threading
import time
from collections.abc import Callable, Sequence

import torch

from benchmarks.alternate import report
from dlbench.core.units import percent, seconds
from dlbench.kit.open_loop import Batcher, schedule, serve
from dlbench.kit.serving_client import Client

MINUTES = 2.5
RATE, REQUESTS, PAIRS = 200.0, 400, 10
MOST_RATIO = 1.5
"""Of the latency of a service that does nothing, over that of a queue and a thread."""
SLEEP_S, LOAD, SLEEPS, WITHIN = 0.01, 0.3, 3000, 0.15
"""A service that sleeps, and how far its mean wait may lie from that of M/D/1."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve by both in turns, then by a service that sleeps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--sleeps", type=int, default=SLEEPS, help="requests to the service that sleeps")
    options = parser.parse_args(arguments)
    ways: tuple[Callable[[Sequence[float]], float], ...] = (_latency, _bare_latency, _bare_process_latency)
    pairs = []
    for pair in range(options.pairs):
        times = schedule("poisson", RATE, options.requests, pair)
        order = ways if pair % 2 else ways[::-1]
        taken = {way: way(times) for way in order}
        pairs.append([taken[way] for way in ways])
    ours, bare, process = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other, _ in pairs)
    wait_s, expected_s = _mean_wait(options.sleeps)
    off = wait_s / expected_s - 1
    report(
        f"A service that does nothing, {options.pairs} pairs of {options.requests} requests at {RATE:g}/s; then one that sleeps",
        ("what", "measured", "held against"),
        [
            ("median latency, a queue and a thread", seconds(ours), seconds(bare)),
            ("the same, a pipe and a process", seconds(ours), seconds(process)),
            (f"mean wait at a load of {LOAD:g}, M/D/1", seconds(wait_s), seconds(expected_s)),
        ],
        f"median ratio {ratio:.2f}, at most {MOST_RATIO:g}; mean wait {off:+.1%} off, at most {percent(WITHIN)}",
        ratio <= MOST_RATIO and abs(off) <= WITHIN,
    )


def _latency(times: Sequence[float]) -> float:
    """Return the median latency of our loop."""
    with Client(times) as client:
        stamps = serve(client.start(), client.receive, Batcher(1), lambda size: None, time.perf_counter)
    return statistics.median(map(float.__sub__, stamps.done, stamps.scheduled))


def _bare_latency(times: Sequence[float]) -> float:
    """Return that of a thread which puts the requests into a queue, with the same sleep ahead of each."""
    sent = queue.SimpleQueue[float]()
    begins = time.perf_counter() + 0.05

    def send() -> None:
        for each in times:
            while (left_s := begins + each - time.perf_counter()) > 0:
                if left_s > 2e-4:
                    time.sleep(left_s - 2e-4)
            sent.put(begins + each)

    thread = threading.Thread(target=send)
    thread.start()
    latencies = []
    for _ in times:
        due = sent.get()
        latencies.append(time.perf_counter() - due)
    thread.join()
    return statistics.median(latencies)


def _bare_process_latency(times: Sequence[float]) -> float:
    """Return that of the process that sends requests, without a loop: what it costs that no server can hold it up."""
    with Client(times) as client:
        scheduled, done = client.start(), list[float]()
        while len(done) < len(times):
            come = client.receive(math.inf)
            done += [time.perf_counter()] * len(come)
    return statistics.median(map(float.__sub__, done, scheduled))


def _mean_wait(requests: int) -> tuple[float, float]:
    """Return the mean wait before a service that sleeps, and that of M/D/1 with its mean time."""
    torch.manual_seed(1)
    with Client(schedule("poisson", LOAD / SLEEP_S, requests)) as client:
        stamps = serve(client.start(), client.receive, Batcher(1), lambda size: time.sleep(SLEEP_S), time.perf_counter)
    service_s = statistics.fmean(map(float.__sub__, stamps.done, stamps.begun))
    load = LOAD / SLEEP_S * service_s
    return math.fsum(map(float.__sub__, stamps.begun, stamps.scheduled)) / requests, load * service_s / (2 * (1 - load))


if __name__ == "__main__":
    main()
