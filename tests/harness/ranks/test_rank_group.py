"""Answers of several ranks, as one."""

from dlbench.core.measurement import Measurement, Memory, Transfer
from dlbench.core.model import Case, Status
from dlbench.harness.process.wire import Reply
from dlbench.harness.process.worker_process import combine_replies

CASE = Case("a[ranks=2]@cpu", "mine", "a", {"ranks": 2}, "cpu")


def ok(peak=None, host=100, **more):
    return Reply(measurement=Measurement(CASE, 0, Status.OK, memory=Memory(peak, host_peak_bytes=host), **more))


def bad(status, reason, fault=False):
    return Reply(measurement=Measurement(CASE, 0, Status(status), reason), fault=fault)


def test_ranks_that_all_went_well_are_the_first_with_the_highest_memory():
    whole = combine_replies({2: ok(7, 90, values={"a": 2.0}), 0: ok(5, 100, values={"a": 1.0}), 1: ok(6, 300)}, 3)
    assert whole == ok(7, 300, values={"a": 1.0})
    assert combine_replies({0: ok(None, 1), 1: ok(None, 2)}, 2) == ok(None, 2)


def test_what_all_ranks_copy_at_once_is_added_up():
    copies = [Transfer(size, 0.5, 4, 0.25) for size in (100, 0)]
    whole = combine_replies({number: ok(transfer=copied) for number, copied in enumerate(copies)}, 2)
    assert whole == ok(transfer=Transfer(h2d_bytes=100, h2d_s=0.5, d2h_bytes=8, d2h_s=0.25))


def test_the_first_that_went_wrong_is_named():
    assert combine_replies({0: ok(), 1: bad("oom", "no room", fault=True)}, 2) == bad("oom", "rank 1: no room", fault=True)
    assert combine_replies({3: bad("failed", "first"), 0: bad("crashed", "second")}, 4) == bad("failed", "rank 3: first")
    assert combine_replies({1: bad("failed", "cut off"), 0: bad("crashed", "CUDA error", fault=True)}, 2) == bad(
        "failed", "rank 1: cut off", fault=True
    )
    assert combine_replies({1: Reply(error="no plugin")}, 2) == Reply(error="rank 1: no plugin")


def test_what_all_say_is_said_once():
    assert combine_replies({0: bad("failed", "uneven"), 1: bad("failed", "uneven")}, 2) == bad("failed", "uneven")
    assert combine_replies({0: Reply(error="no plugin"), 1: Reply(error="no plugin")}, 2) == Reply(error="no plugin")
    assert combine_replies({0: bad("failed", "uneven"), 1: bad("failed", "even")}, 2) == bad("failed", "rank 0: uneven")
