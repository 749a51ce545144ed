"""What stamps come to, and the mistakes of others that it must not make."""

import math
from typing import Any

from scripted_loop import served

from dlbench.core.stats import OpenRun, RateVerdict, verdict
from dlbench.kit.open_loop import Batcher, Stamps, reported


def report(stamps: Stamps, bound_s: float, largest: int = 1, warm: int = 0) -> dict[str, Any]:
    return dict(reported(stamps, bound_s, largest, warm))


def test_values_of_a_run_exactly() -> None:
    """Two a second, of which the first fourteen meet a server that takes 0.25 s and the last two one that takes 1 s."""
    stamps = Stamps(
        scheduled=[each / 2 for each in range(16)],
        sent=[each / 2 + 0.0625 for each in range(16)],
        begun=[each / 2 + 0.0625 for each in range(15)] + [8.25],
        done=[each / 2 + 0.3125 for each in range(14)] + [8.25, 9.25],
    )
    assert report(stamps, 0.5, warm=2) == {
        "p50_s": 0.3125,
        "missed": [0.0] * 6 + [1.0],
        "requests": 14,
        "late": 0.125,
        "backlog": 0,
        "scheduled_per_s": 2.0,
        "offered_per_s": 2.0,
        "completed_per_s": 13 / (9.25 - 1.3125),
        "queue_s": (8.25 - 7.5625) / 14,
        "service_s": (12 * 0.25 + 8.25 - 7.0625 + 1.0) / 14,
    }


def test_latencies_count_from_the_schedule_where_the_server_holds_up_what_is_sent() -> None:
    """Coordinated omission: a client that waits for its server sends late what is due meanwhile, and a latency from then on is short."""
    times = [each * 0.125 for each in range(300)]
    stalls = iter([0.0625] * 19 + [8.0] + [0.0625] * 280)
    stamps, _ = served(times, lambda size: next(stalls))
    values = report(stamps, 0.125)
    assert values["p90_s"] > 4, "a hundred others waited for the one that stalled"
    sent_by_one_that_waits = Stamps(times, [*stamps.begun], stamps.begun, stamps.done)
    assert report(sent_by_one_that_waits, 0.125)["p90_s"] == values["p90_s"]
    assert report(sent_by_one_that_waits, 0.125)["late"] > 0.05


def test_a_burst_that_catches_up_is_the_fault_of_the_client_and_has_no_verdict() -> None:
    """A generator that began its schedule before it was ready sends at once what was due by then."""
    scheduled = [each * 0.25 for each in range(100)]
    stamps, _ = served([max(each, 10.0) for each in scheduled], lambda size: 0.125, scheduled=scheduled)
    values = report(stamps, 1.0)
    assert values["late"] == 9.75
    assert "within" not in values
    assert verdict([OpenRun(*(values[each] for each in OpenRun._fields))], 0.1) is RateVerdict.CLIENT_BOUND


def test_a_generator_that_stalls_is_not_taken_for_a_slow_server() -> None:
    scheduled = [float(each) for each in range(100)]
    stalled = [50.0 if 40 <= each < 50 else each for each in scheduled]
    stamps, _ = served(stalled, lambda size: 0.125, scheduled=scheduled)
    values = report(stamps, 1.0)
    assert (values["late"], "within" in values, values["service_s"]) == (9.0, False, 0.125)


def test_what_fails_is_over_any_bound_and_in_no_rate_of_what_was_done() -> None:
    """Rejected requests come back fast, and count as no success."""
    scheduled = [float(each) for each in range(70)]
    done = [each + 0.5 if at % 2 else math.inf for at, each in enumerate(scheduled)]
    values = report(Stamps(scheduled, scheduled, scheduled, done), 1e9)
    assert (values["within"], values["missed"]) == (0.5, [0.5] * 7)
    assert values["completed_per_s"] == 34 / 68
    assert (values["p50_s"], "p90_s" in values) == (0.5, False), "half of them were never done"


def test_a_backlog_that_grows_is_no_latency() -> None:
    stamps, _ = served([each * 0.5 for each in range(100)], lambda size: 0.75)
    values = report(stamps, 1000.0)
    assert values["backlog"] == 32
    assert not {"p50_s", "p90_s"} & {*values}


def test_a_last_batch_that_waits_is_no_backlog() -> None:
    stamps, sizes = served([each * 0.25 for each in range(100)], lambda size: 0.125, Batcher(8, wait_s=1.5))
    assert max(sizes) == 7
    assert report(stamps, 2.0, largest=8)["backlog"] == 0
