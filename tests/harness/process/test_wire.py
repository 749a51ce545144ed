"""Messages over real pipes: torn, joined, late, large, and lines that are none."""

import json
import os
import threading
import time

import pytest

from dlbench.core.decoding import convert
from dlbench.core.errors import Interrupted
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Policy, Status
from dlbench.harness.process.wire import ForeignLine, HelloRequest, MeasureRequest, Reader, Reply, Request, send, wait, write_all

CASE = Case("a[n=1]@cpu", "mine", "a", {"n": 1}, "cpu")


@pytest.fixture
def pipe():
    """A reader, and the descriptor to write to."""
    source, target = os.pipe()
    yield Reader(source), target
    os.close(source)
    if target not in CLOSED:
        os.close(target)
    CLOSED.discard(target)


CLOSED = set()


def close(target):
    CLOSED.add(target)
    os.close(target)


def after(seconds, action):
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def test_messages_come_whole_and_in_order_however_they_were_cut(pipe):
    reader, target = pipe
    write_all(target, b'{"a": 1}\n{"b": ')
    assert reader.read() == {"a": 1}
    timer = after(0.05, lambda: write_all(target, b"2}\n"))
    assert reader.read() == {"b": 2}
    timer.join()


def test_a_message_larger_than_a_pipe_arrives(pipe):
    reader, target = pipe
    message = {"text": "x" * (1 << 20)}
    timer = after(0, lambda: send(target, message))
    assert reader.read() == message
    timer.join()


def test_the_end_comes_after_what_was_written_and_takes_a_torn_line_with_it(pipe):
    reader, target = pipe
    write_all(target, b'{"a": 1}\n{"b"')
    close(target)
    assert list(reader) == [{"a": 1}]
    with pytest.raises(EOFError):
        reader.read()


@pytest.mark.parametrize("line", ["hello", "[1]", "1", "\x00", '{"a": '])
def test_a_line_that_is_no_message_is_named_and_the_next_is_read(pipe, line):
    reader, target = pipe
    write_all(target, f"{line}\n".encode())
    send(target, {"a": 1})
    with pytest.raises(ForeignLine) as raised:
        reader.read()
    assert str(raised.value) == f"wrote {line!r} where only dlbench writes; leave descriptors of others alone"
    assert reader.read() == {"a": 1}


def test_waiting_ends_at_the_deadline_without_using_the_processor(pipe):
    reader, target = pipe
    write_all(target, b'{"a"')  # what is there is no message yet
    started, used = time.monotonic(), time.process_time()
    with pytest.raises(TimeoutError):
        reader.read(started + 0.3)
    assert time.monotonic() - started >= 0.3
    assert time.process_time() - used < 0.1


def test_waiting_ends_once_the_other_descriptor_is_readable(pipe):
    reader, _ = pipe
    wake, ring = os.pipe()
    timer = after(0.05, lambda: os.write(ring, b"!"))
    with pytest.raises(Interrupted):
        reader.read(time.monotonic() + 60, wake)
    timer.join()
    os.close(wake)
    os.close(ring)


def test_of_several_those_are_ready_that_have_a_message_or_ended(pipe):
    reader, target = pipe
    (second, to_second), (third, to_third) = os.pipe(), os.pipe()
    readers = [reader, Reader(second), Reader(third)]
    send(to_second, {"a": 1})
    os.close(to_third)
    assert wait(readers) == readers[1:]
    assert wait(readers) == readers[1:]  # nothing of it is lost by asking
    for descriptor in (second, to_second, third):
        os.close(descriptor)
    close(target)


def test_nobody_reads_any_more():
    source, target = os.pipe()
    os.close(source)
    with pytest.raises(BrokenPipeError):
        send(target, {"a": 1})
    os.close(target)


@pytest.mark.parametrize(
    "request_",
    [
        HelloRequest(threads=2, plugins=("a.py",), workloads=("a", "b")),
        MeasureRequest(
            threads=2,
            not_from="some/folder",
            case=CASE,
            round=3,
            policy=Policy(rounds=2),
            seed=7,
            device_name=None,
            devices=("cpu",),
            memory_bytes=1 << 30,
        ),
    ],
)
def test_requests_arrive_as_they_were(request_):
    assert Request.from_json(json.loads(json.dumps(request_.to_json()))) == request_


@pytest.mark.parametrize(
    ("reply", "status", "reason"),
    [
        (Reply(measurement=Measurement(CASE, 0, Status.OOM, "full"), fault=True), Status.OOM, "full"),
        (Reply(error="no plugin"), Status.FAILED, "no plugin"),
    ],
)
def test_replies_arrive_as_they_were(reply, status, reason):
    arrived = convert(Reply, json.loads(json.dumps(reply.to_json())))
    assert (arrived, arrived.status, arrived.reason) == (reply, status, reason)
    assert arrived.with_reason("another").reason == "another"
