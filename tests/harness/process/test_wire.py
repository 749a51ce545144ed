"""Messages over real pipes: torn, joined, late, large, and lines that are none."""

import json
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict

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
    os.close(target)


@contextmanager
def meanwhile(action, *arguments, seconds=0.05):
    timer = threading.Timer(seconds, action, arguments)
    timer.start()
    yield
    timer.join()


def test_messages_come_whole_and_in_order_however_they_were_cut(pipe):
    reader, target = pipe
    write_all(target, b'{"a": 1}\n{"b": ')
    assert reader.read() == {"a": 1}
    with meanwhile(write_all, target, b"2}\n"):
        assert reader.read() == {"b": 2}
    large = {"text": "x" * (1 << 20)}
    with meanwhile(send, target, large, seconds=0):
        assert reader.read() == large


def test_the_end_comes_after_what_was_written_and_takes_a_torn_line_with_it():
    source, target = os.pipe()
    write_all(target, b'{"a": 1}\n{"b"')
    os.close(target)
    reader = Reader(source)
    assert list(reader) == [{"a": 1}]
    with pytest.raises(EOFError):
        reader.read()
    os.close(source)


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
        reader.read(started + 0.2)
    assert time.monotonic() - started >= 0.2
    assert time.process_time() - used < 0.1


def test_waiting_ends_once_the_other_descriptor_is_readable(pipe):
    reader, target = pipe
    other, to_other = os.pipe()
    with meanwhile(os.write, target, b"!"), pytest.raises(Interrupted):
        Reader(other).read(time.monotonic() + 60, reader.fileno())
    os.close(other)
    with pytest.raises(BrokenPipeError):  # nobody reads any more
        send(to_other, {"a": 1})
    os.close(to_other)


def test_of_several_those_are_ready_that_have_a_message_or_ended(pipe):
    (second, to_second), (third, to_third) = os.pipe(), os.pipe()
    readers = [pipe[0], Reader(second), Reader(third)]
    send(to_second, {"a": 1})
    os.close(to_third)
    assert [wait(readers) for _ in range(2)] == [readers[1:]] * 2  # nothing of it is lost by asking
    for descriptor in (second, to_second, third):
        os.close(descriptor)


def test_requests_arrive_as_they_were():
    given = {"case": CASE, "round": 3, "policy": Policy(rounds=2), "seed": 7, "device_name": None, "devices": ("cpu",)}
    measure = MeasureRequest(threads=2, not_from="some/folder", memory_bytes=1 << 30, **given)
    for sent in (HelloRequest(threads=2, plugins=("a.py",), workloads=("a", "b")), measure):
        assert Request.from_json(json.loads(json.dumps(asdict(sent)))) == sent


FULL, NO_PLUGIN = Reply(measurement=Measurement(CASE, 0, Status.OOM, "full"), fault=True), Reply(error="no plugin")


@pytest.mark.parametrize(("reply", "status", "reason"), [(FULL, Status.OOM, "full"), (NO_PLUGIN, Status.FAILED, "no plugin")])
def test_replies_arrive_as_they_were(reply, status, reason):
    arrived = convert(Reply, json.loads(json.dumps(reply.to_json())))
    assert (arrived, arrived.status, arrived.reason) == (reply, status, reason)
    assert arrived.with_reason("another").reason == "another"
