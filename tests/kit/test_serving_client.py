"""The process that sends requests: when its schedule begins, what comes of it, and that none is left behind."""

import math
import time

import psutil
import pytest

from dlbench.kit.serving_client import MOST_REQUESTS, Client

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def none_is_left():
    """Hold each test to leaving no process; those that other tests have running are none of them."""
    before = {*psutil.Process().children()}
    yield
    assert not {*psutil.Process().children()} - before


def received(client, count):
    sent: list[float] = []
    while len(sent) < count:
        sent += client.receive(math.inf)
    return sent


def test_no_request_is_sent_ahead_of_its_time_nor_is_one_lost():
    with Client([0.0, 0.001, 0.01, 0.01]) as client:
        scheduled = client.start()
        sent = received(client, 4)
    assert [round(each - scheduled[0], 9) for each in scheduled] == [0.0, 0.001, 0.01, 0.01]
    assert sent == sorted(sent)
    assert all(each >= due for each, due in zip(sent, scheduled, strict=True))


def test_the_schedule_begins_once_the_process_is_ready_so_that_no_burst_has_to_catch_up():
    """Whatever the process takes to start: requests that are due by then would all be sent at once."""
    with Client([0.0]) as client:
        read, ready = client._read, list[float]()

        def noting():
            stamps = read()
            ready.append(time.perf_counter())
            return stamps

        client._read = noting
        (first,) = client.start(after_s=0.25)
    assert ready[0] <= first - 0.25


def test_a_server_that_does_not_read_holds_up_no_request():
    """All are sent before the first is read: a client that waited would hide how late they are answered."""
    with Client([0.0] * MOST_REQUESTS) as client:
        client.start(after_s=0.0)
        client._process.wait()
        assert len(received(client, MOST_REQUESTS)) == MOST_REQUESTS
        assert client.receive(time.perf_counter()) == (), "there is no more to wait for, and a last batch may still"


def test_waits_end_and_a_client_that_ends_too_early_is_an_error():
    with Client([0.0, 3600.0]) as client:
        client.start()
        assert len(received(client, 1)) == 1
        assert client.receive(-math.inf) == client.receive(time.perf_counter()) == ()
        client._process.kill()
        with pytest.raises(OSError, match="the process that sends requests has ended"):
            client.receive(math.inf)
    with pytest.raises(ValueError, match="8193 requests are more than can be on their way at once; give 8192 or fewer"):
        Client([0.0] * (MOST_REQUESTS + 1))


def test_a_client_ends_with_its_server():
    with Client([0.0]) as client:
        process = client._process
        process.stdin.close()
        process.stdout.close()
        assert process.wait() == 0
