"""Bus factors and ring steps of collectives, which make operations and numbers of ranks comparable."""

from collections.abc import Callable, Mapping

_COSTS: Mapping[str, Callable[[int], tuple[float, int]]] = {
    "all_reduce": lambda n: (2 * (n - 1) / n, 2 * (n - 1)),
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), lambda n: ((n - 1) / n, n - 1)),
    **dict.fromkeys(("broadcast", "reduce"), lambda n: (1.0, n - 1)),
    "send_recv": lambda n: (1.0, 1),
}
"""Bus factor and ring steps of each operation among n ranks, two at least."""

OPERATIONS = tuple(_COSTS)


def bus_factor(operation: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth (bytes over time): how often each byte crosses the slowest link.

    The sizes are those of nccl-tests, and so are the factors (its doc/PERFORMANCE.md): of all_gather and reduce_scatter the whole
    that all ranks hold together, else what one rank hands in. Zero for one rank. Raises KeyError for another operation.
    """
    return _COSTS[operation](ranks)[0] if ranks > 1 else 0.0


def ring_steps(operation: str, ranks: int) -> int:
    """Return how many messages follow each other on a ring of so many ranks: how often the latency counts. Raises KeyError as above.

    Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, Journal of Parallel and
    Distributed Computing 69, 2009.
    """
    return _COSTS[operation](ranks)[1] if ranks > 1 else 0
