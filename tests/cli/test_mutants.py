"""A file may hold anything: every command that reads a mutant of one answers with a result or with an error of dlbench's own."""

import json
import os
import random
from pathlib import Path
from typing import Any
from unittest import mock

import front_door
import made_up

from dlbench.core.model import Status

COUNT = int(os.environ.get("MUTANTS", "108"))
COMMANDS = (
    "show m.jsonl --topic details",
    "show m.jsonl --topic all",
    "show m.jsonl --format json",
    "show m.jsonl --topic all --format json",
    "show m.jsonl --by dtype",
    "compare whole.jsonl m.jsonl --junit out.xml --verdict out.json",
    "compare m.jsonl whole.jsonl --across-machines",
    "compare m.jsonl --by run",
    "compare m.jsonl --by batch --format json",
    "export m.jsonl --to csv",
    "export m.jsonl --to pyperf",
    "export m.jsonl --to google-benchmark",
    "export m.jsonl --to bencher",
    "report m.jsonl -o out.html",
)
"""What reads a mutant: each mutant meets one of them, the next one the next."""
ODD: tuple[str, ...] = (
    "null", "true", "false", "0", "-1", "1", "0.5", "-0.0", "1e400", "-1e400", "1e308", "5e-324", "NaN", "Infinity", "9" * 400,
    "-" + "9" * 400, "9223372036854775808", "1e17", '""', '"text"', '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\u202e"',
    '"[bold]red"', '"' + "long " * 400 + '"', "[]", "{}", "[[]]", "[null]", '{"a":null}', "[1,2,3]", '["a"]', '{"":{}}',
    "[" * 2000 + "]" * 2000, '{"a":' * 2000 + "1" + "}" * 2000, "[" * 100000, "01", "1.", "+1", "'x'", "nan", "\\", "tru", "1_000",
    '"2026-01-31T12:00:00"', '"cpu"', '"cuda:0"', '"fp32"', '"ok"', '"failed"', '"lower"',
)  # fmt: skip
"""JSON, and what is nearly JSON, to stand in the place of a value."""
PLACE = "\ue000"
"""Stands for what may be no JSON while the rest of a line is written."""


def with_other_bytes(chance: random.Random, content: bytes) -> bytes:
    """Return the content with some bytes changed, left out, or put in front of a line."""
    at, kind = chance.randrange(len(content)), chance.randrange(4)
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + content[at + chance.randrange(200) :]
    if kind == 2:
        return content[:at] + bytes(chance.randrange(256) for _ in range(chance.choice((1, 8)))) + content[at + 1 :]
    start = content.rfind(b"\n", 0, at) + 1
    return content[:start] + chance.choice((b"\xef\xbb\xbf", b"\xff\xfe", b" ", b"\x00", b"\n", b"[", b"\x1b[31m")) + content[start:]


def with_other_lines(chance: random.Random, content: bytes) -> bytes:
    """Return the content without a line, with one twice, with two in each other's place, or with two as one."""
    lines, kind = content.splitlines(keepends=True), chance.randrange(4)
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = lines[at].rstrip(b"\n")
    return b"".join(lines)


def with_another_field(chance: random.Random, content: bytes) -> bytes:
    """Return the content with a field, at any depth, gone, under another name, or with something else for its value."""
    lines = content.splitlines(keepends=True)
    at, kind = chance.randrange(len(lines)), chance.randrange(4)
    record = holder = json.loads(lines[at])
    name = chance.choice([*holder])
    while isinstance(holder[name], dict | list) and holder[name] and chance.random() < 0.7:
        holder = holder[name]
        name = chance.choice([*holder]) if isinstance(holder, dict) else chance.randrange(len(holder))
    if kind > 1:
        holder[name] = PLACE
    else:
        value: Any = holder.pop(name)
        if kind and isinstance(holder, dict):
            holder[chance.choice((*holder, "id", "kind", "value", "unheard", "", "\ud800"))] = value
    lines[at] = json.dumps(record, separators=(",", ":")).encode() + b"\n"
    return b"".join(lines).replace(json.dumps(PLACE).encode(), chance.choice(ODD).encode())


def mutants(content: bytes, count: int) -> list[bytes]:
    """Return so many mutants of a result file, each by one to three changes, of which most are of a field."""
    chance, found = random.Random(1), []
    for _ in range(count):
        mutant = content
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            mutate = chance.choice((with_other_bytes, with_other_lines, with_another_field, with_another_field))
            try:
                mutant = mutate(chance, mutant)
            except (ValueError, RecursionError, AttributeError, TypeError, IndexError):  # the change before left a line without fields
                break
        found.append(mutant)
    return found


def write_whole(folder: Path) -> bytes:
    """Write the file that mutants are made of, and return its content: two devices and precisions, values, and a case that failed."""
    measured = [each for each in made_up.both_kinds(rounds=2) if each.case.params["batch"] == 8]
    copy = made_up.case("copy", "cuda:0", bytes=1 << 20)
    measured += made_up.rounds_of(copy, [[0.25, 0.5]], values={"gap": 0.5, "curve": [1.0, 0.5]})
    measured.append(made_up.ended(made_up.case("matmul", n=8), Status.FAILED, "it broke"))
    provenance = {"argv": ["dlbench", "run", "quick"], "utc": "2026-01-31T12:00:00+00:00"}
    environment = {"machine_key": "0", "identity": {"cpu": "c"}, "stack": {"threads": 2}, "provenance": provenance}
    described = {"values": [{"name": "gap", "unit": "s", "direction": "lower", "meaning": "a gap"}]}
    return made_up.write(folder / "whole.jsonl", measured, environment=environment, workloads={"copy": described}).read_bytes()


def test_whatever_was_done_to_a_file_it_is_no_internal_error(tmp_path: Path) -> None:
    content = write_whole(tmp_path)
    made = mutants(content, COUNT)
    found = []
    with mock.patch("vl_convert.vegalite_to_svg", return_value="<svg ></svg>"):  # a drawing takes as long as thirty other answers
        for number, mutant in enumerate(made):
            (tmp_path / "m.jsonl").write_bytes(mutant)
            (tmp_path / "out.html").unlink(missing_ok=True)
            command = COMMANDS[number % len(COMMANDS)]
            try:
                front_door.in_process(tmp_path, *command.split())
            except AssertionError as crash:
                found.append(f"{number}, {command}: {crash}")
    assert not found, "\n".join(found)
    assert len({*made, content}) > COUNT / 2
