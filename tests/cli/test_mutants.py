"""A file may hold anything: every command that reads a mutant of one answers with a result or with an error of dlbench's own."""

import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import front_door
import made_up

from dlbench.core.model import Status

SEED, COUNT = int(os.environ.get("MUTANTS_SEED", "1")), int(os.environ.get("MUTANTS", "108"))  # 108: four times each command

Lines = list[bytes]
Mutation = Callable[[random.Random, Lines], Lines]

_QUICK = (
    ("show", "m.jsonl", "--topic", "details"),
    ("show", "m.jsonl", "--topic", "all"),
    ("show", "m.jsonl", "--format", "json"),
    ("show", "m.jsonl", "--topic", "all", "--format", "json"),
    ("show", "m.jsonl", "--by", "dtype"),
    ("compare", "whole.jsonl", "m.jsonl", "--junit", "out.xml", "--verdict", "out.json"),
    ("compare", "m.jsonl", "whole.jsonl", "--across-machines"),
    ("compare", "m.jsonl", "--by", "run"),
    ("compare", "m.jsonl", "--by", "batch", "--format", "json"),
    ("export", "m.jsonl", "--to", "csv"),
    ("export", "m.jsonl", "--to", "pyperf"),
    ("export", "m.jsonl", "--to", "google-benchmark"),
    ("export", "m.jsonl", "--to", "bencher"),
)
COMMANDS = (*_QUICK, *_QUICK, ("report", "m.jsonl", "-o", "out.html"))
"""What reads a mutant; each mutant meets one of them, the next one the next. A page takes as long as all others together."""
ODD: tuple[str, ...] = (
    "null", "true", "false", "0", "-1", "1", "0.5", "-0.0", "1e400", "-1e400", "1e308", "5e-324", "NaN", "Infinity", "9" * 400,
    "-" + "9" * 400, "9223372036854775808", "1e17", '""', '"text"', '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\u202e"',
    '"[bold]red"', '"' + "long " * 400 + '"', "[]", "{}", "[[]]", "[null]", '{"a":null}', "[1,2,3]", '["a"]', '{"":{}}',
    "[" * 2000 + "]" * 2000, '{"a":' * 2000 + "1" + "}" * 2000, "[" * 100000, "01", "1.", "+1", "'x'", "nan", "\\", "tru", "1_000",
    '"2026-01-31T12:00:00"', '"cpu"', '"cuda:0"', '"fp32"', '"ok"', '"failed"', '"lower"',
)  # fmt: skip
"""JSON, and what is nearly JSON, to stand in the place of a value."""
_PLACE = "\ue000"
"""Stands for what is no JSON while the rest of a line is written."""


def flipped(chance: random.Random, lines: Lines) -> Lines:
    """Change some bytes."""
    content = bytearray(b"".join(lines))
    for _ in range(chance.choice((1, 1, 2, 8))):
        content[chance.randrange(len(content))] = chance.randrange(256)
    return [bytes(content)]


def cut(chance: random.Random, lines: Lines) -> Lines:
    """End within a line, or lack some bytes there."""
    content = b"".join(lines)
    at = chance.randrange(len(content))
    return [content[:at], content[at + chance.randrange(200) :] if chance.random() < 0.5 else b""]


def rearranged(chance: random.Random, lines: Lines) -> Lines:
    """Lack a line, have one twice, two in each other's place, or two as one."""
    kind, at, other = chance.randrange(4), *(chance.randrange(len(lines)) for _ in range(2))
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = lines[at].rstrip(b"\n")
    return lines


def wrapped(chance: random.Random, lines: Lines) -> Lines:
    """Have something in front of the file, or of a line."""
    at = chance.choice((0, chance.randrange(len(lines))))
    lines[at] = chance.choice((b"\xef\xbb\xbf", b"\xff\xfe", b" ", b"\x00", b"\n", b"[", b"\x1b[31m")) + lines[at]
    return lines


def of_other_fields(chance: random.Random, lines: Lines) -> Lines:
    """Lack a field or an entry of a list, have a field that no dlbench writes, or one under the name of another."""
    kind = chance.randrange(4)

    def change(holder: Any, name: Any) -> None:
        if kind < 2:
            holder.pop(name)
        elif isinstance(holder, dict) and kind == 2:
            holder["unheard"] = [1, {"of": None}]
        elif isinstance(holder, dict):
            holder[chance.choice((*holder, "id", "kind", "value", "", "\ud800"))] = holder.pop(name)

    return _changed(chance, lines, change)


def of_another_type(chance: random.Random, lines: Lines) -> Lines:
    """Have something else, or what is no JSON, in the place of a value."""

    def replace(holder: Any, name: Any) -> None:
        holder[name] = _PLACE

    odd = chance.choice(ODD).encode()
    return [line.replace(json.dumps(_PLACE).encode(), odd) for line in _changed(chance, lines, replace)]


def twice(chance: random.Random, lines: Lines) -> Lines:
    """Have a field of the outermost object twice."""
    at = chance.randrange(len(lines))
    field = chance.choice(("kind", "schema", "case", "round", "status", "samples", "devices", "policy", "memory"))
    lines[at] = lines[at].replace(b"{", f'{{"{field}":{chance.choice(ODD[:30])},'.encode(), 1)
    return lines


def of_another_schema(chance: random.Random, lines: Lines) -> Lines:
    """Say that it is of another schema, or by another version."""
    header = json.loads(lines[0])
    header[chance.choice(("schema", "dlbench", "kind"))] = chance.choice((0, 2, -1, 1.0, 1.5, True, None, "1", "9.9.9", [1], 10**400))
    lines[0] = _as_line(header)
    return lines


MUTATIONS: tuple[Mutation, ...] = (
    *(flipped, cut, wrapped, twice, of_another_schema),
    *[rearranged] * 4,
    *[of_other_fields] * 4,
    *[of_another_type] * 4,
)


def mutants(content: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield so many mutants of a result file, each with what was done to it; the same ones for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        lines, done = content.splitlines(keepends=True), []
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            mutation = chance.choice(MUTATIONS)
            try:
                lines = b"".join(mutation(chance, lines)).splitlines(keepends=True) or [b""]
            except (ValueError, RecursionError):  # an earlier mutation left a line that can't be changed by its fields
                continue
            done.append(mutation.__name__)
        yield " ".join(done), b"".join(lines)


def _changed(chance: random.Random, lines: Lines, change: Callable[[Any, Any], object]) -> Lines:
    """Change one place of one line, at any depth, each depth as likely."""
    at = chance.randrange(len(lines))
    record = json.loads(lines[at])
    holders = [record]
    while isinstance(holders[-1], dict | list) and holders[-1]:
        holder = holders[-1]
        name = chance.choice([*holder]) if isinstance(holder, dict) else chance.randrange(len(holder))
        if not (isinstance(holder[name], dict | list) and holder[name]) or chance.random() < 0.3:
            change(holder, name)
            break
        holders.append(holder[name])
    lines[at] = _as_line(record)
    return lines


def _as_line(record: Any) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def whole() -> bytes:
    """Return the result file that mutants are made of: two devices and precisions, values, and a case that failed."""
    measured = [each for each in made_up.both_kinds(rounds=2) if each.case.params["batch"] == 8]
    copy = made_up.case("copy", "cuda:0", bytes=1 << 20)
    measured += made_up.rounds_of(copy, [[0.25, 0.5]], values={"gap": 0.5, "curve": [1.0, 0.5]})
    measured.append(made_up.ended(made_up.case("matmul", n=8), Status.FAILED, "it broke"))
    provenance = {"argv": ["dlbench", "run", "quick"], "utc": "2026-01-31T12:00:00+00:00"}
    environment = {"machine_key": "0", "identity": {"cpu": "c"}, "stack": {"threads": 2}, "provenance": provenance}
    described = {"values": [{"name": "gap", "unit": "s", "direction": "lower", "meaning": "a gap"}]}
    with tempfile.TemporaryDirectory() as folder:
        path = made_up.write(Path(folder) / "whole.jsonl", measured, environment=environment, workloads={"copy": described})
        return b"".join(_as_line(json.loads(line)) for line in path.read_bytes().splitlines())


def failing(content: bytes, count: int, seed: int) -> Iterator[tuple[tuple[str, ...], str, bytes, str]]:
    """Yield the mutants that a command, in this process, answers with anything but its own: command, mutation, content, what was said."""
    drawings = mock.patch("vl_convert.vegalite_to_svg", return_value="<svg ></svg>")  # which take as long as thirty other answers
    with drawings, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "whole.jsonl").write_bytes(content)
        for number, (done, mutant) in enumerate(mutants(content, count, seed)):
            (folder / "m.jsonl").write_bytes(mutant)
            (folder / "out.html").unlink(missing_ok=True)
            command = COMMANDS[number % len(COMMANDS)]
            try:
                front_door.in_process(folder, *command)
            except AssertionError as crash:
                yield command, done, mutant, str(crash)


def test_whatever_was_done_to_a_file_it_is_no_internal_error() -> None:
    content = whole()
    found = [f"{' '.join(command)}: {done}\n{said}" for command, done, _, said in failing(content, COUNT, SEED)]
    assert not found, "\n".join(found)
    first, again, other = ([mutant for _, mutant in mutants(content, 100, seed)] for seed in (1, 1, 2))
    assert first == again != other
    assert sum(mutant == content for mutant in first) < 5
