"""Lines of a result file read the same with msgspec and without it: what is valid, what is not, and the sentence on it."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlbench.core import lines as store_lines
from dlbench.core import store
from dlbench.core.conditions import Throttling
from dlbench.core.measurement import Measurement, Memory, Samples, SpotCheck, Transfer
from dlbench.core.model import Case, Status
from dlbench.core.records import measurement_to_json
from dlbench.core.writer import as_line

WHOLE = Measurement(
    Case("matmul[n=4,dtype=fp32]@cuda:0", "mine", "matmul", {"n": 4, "scale": 0.5, "dtype": "fp32", "plain": True}, "cuda:0"),
    3,
    Status.OK,
    device_name="A card",
    threads=2,
    samples=Samples(7, (0.5, 0.25), 1.5, 0.75, steady=False, device_s=0.125),
    memory=Memory(1, 2, 3),
    transfer=Transfer(10, 0.1, 20, 0.2, 0.05),
    check=SpotCheck(True, 1e-7, 1e-5, 4e-8, 3),
    items=4,
    flops=1e9,
    bytes=64,
    values={"loss": 0.5, "losses": [1, 0.5]},
    found={"batch": 64},
    limit_bytes=1 << 30,
    math={"tf32": False},
    nulls={
        "memory": [{"reason": "no_proc"}],
        "transfer": [{"part": "pinned", "reason": "too_much_to_lock", "bytes": 2048, "bytes_left": 0.5}],
    },
    started="2026-01-31T12:00:00.000+00:00",
    throttling=Throttling(thermal=0.5, reasons=("hw_slowdown",), tries=3, waiting=0.25),
)
LINE = measurement_to_json(WHOLE) | {"kind": "try"}
HUGE = "1" + "0" * 400
ODD = [
    *(
        "null",
        "true",
        "0",
        "1",
        "-1",
        "2.0",
        "0.5",
        "-0.0",
        "1e99",
        "1e101",
        "1e400",
        "5e-324",
        "9223372036854775807",
        "9223372036854775808",
    ),
    *(HUGE, f"-{HUGE}", "1" * 5000, '""', '"ok"', '"\\ud800"', '"\\u00e9 \\ud83d\\ude00"', "[]", "[1, 2.5]", "[true]", "{}", '{"a": 1}'),
    *('{"a": "b"}', "NaN", "[" * 3000, "01", "tru"),
]


def paths(data: Any, inside: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Each place in a line where another value can stand."""
    for at in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield (*inside, at)
        yield from paths(data[at], (*inside, at))


def mutants() -> Iterator[bytes]:
    """Lines with an odd value, without a field, with a field twice, with an unknown one, and with a byte changed."""
    text = as_line(LINE).decode().rstrip("\n")
    for path in paths(json.loads(text)):
        data = json.loads(text)
        parent = data
        for at in path[:-1]:
            parent = parent[at]
        parent[path[-1]] = "FREE"
        around = json.dumps(data, separators=(",", ":"))
        yield from (around.replace('"FREE"', odd).encode() for odd in ODD)
        del parent[path[-1]]
        yield json.dumps(data, separators=(",", ":")).encode()
        if isinstance(parent, dict):
            parent |= {"later": "FREE", "surprise": {"deep": [1]}}
            yield json.dumps(data, separators=(",", ":")).replace('"FREE"', HUGE).encode()
    yield from (text.replace('"round":3', f'"round":{first},"round":{last}').encode() for first, last in ((3, 4), ('"x"', 4), (4, '"x"')))
    yield text.replace('"round":3', '"round":3,"kind":"footer"').encode()
    yield b"\xef\xbb\xbf" + text.encode()
    chance = random.Random(25)
    for _ in range(600):
        line = bytearray(text.encode())
        line[chance.randrange(14, len(line))] = chance.choice(b'0129.-eE"\\,:[]{}tn u\x00\x80\xff')
        yield bytes(line)


def test_msgspec_accepts_and_refuses_what_the_type_hints_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lines = tmp_path / "f.jsonl", list(mutants())
    path.write_bytes(b"\n".join([b'{"kind":"header","schema":1}', *lines, as_line(LINE)]))
    quickly = store.load(path)
    read: list[bytes] = []
    monkeypatch.setattr(store_lines, "fast_reader", lambda kind: read.append)
    slowly = store.load(path)
    assert len(read) > 1000  # both ways were gone
    assert repr(quickly) == repr(slowly)
    assert len(quickly.tries) + len(quickly.left_out) + bool(quickly.footer) >= len(lines)
    assert min(len(quickly.tries), len(quickly.left_out)) > 500


def test_a_field_that_is_not_known_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    later = LINE | {"kind": "measurement", "watts": 3, "samples": LINE["samples"] | {"sigma": 0.5}}
    path.write_bytes(b'{"kind":"header","schema":1}\n' + as_line(later))
    run = store.load(path)
    assert (run.measurements, run.left_out) == ((WHOLE,), ())


def test_half_of_a_surrogate_pair_is_replaced_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(
        b'{"kind":"header","schema":1,"plugins":["a\\ud800"]}\n' + as_line(LINE | {"device_name": "é\ud800", "math": {"\udfff": "x"}})
    )
    run = store.load(path)
    assert (run.header["plugins"], run.tries[0].device_name, run.tries[0].math) == (["a?"], "é?", {"?": "x"})
