"""What collectives move: the factors that make bandwidths of several operations and group sizes comparable."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

_BUS_FACTORS: Mapping[str, Callable[[int], float]] = MappingProxyType(
    {
        "all_reduce": lambda n: 2 * (n - 1) / n,
        "all_gather": lambda n: (n - 1) / n,
        "reduce_scatter": lambda n: (n - 1) / n,
        "all_to_all": lambda n: (n - 1) / n,
        "broadcast": lambda n: 1.0,
        "reduce": lambda n: 1.0,
        "send_recv": lambda n: 1.0,
    }
)
_RING_STEPS: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {
        "all_reduce": lambda n: 2 * (n - 1),
        "all_gather": lambda n: n - 1,
        "reduce_scatter": lambda n: n - 1,
        "all_to_all": lambda n: n - 1,
        "broadcast": lambda n: n - 1,
        "reduce": lambda n: n - 1,
        "send_recv": lambda n: 1,
    }
)

OPERATIONS = tuple(_BUS_FACTORS)


def bus_factor(operation: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth (bytes over time): how often each byte crosses the slowest link.

    The sizes are those of nccl-tests, and so are the factors (its doc/PERFORMANCE.md): of all_gather and reduce_scatter the whole
    that all ranks hold together, else what one rank hands in. Zero where nobody is there to talk to. Raises KeyError for another operation.
    """
    return _BUS_FACTORS[operation](ranks) if ranks > 1 else 0.0


def ring_steps(operation: str, ranks: int) -> int:
    """Return how many messages follow each other on a ring of so many ranks: how often the latency counts. Raises KeyError likewise.

    Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, Journal of Parallel and
    Distributed Computing 69, 2009.
    """
    return _RING_STEPS[operation](ranks) if ranks > 1 else 0
