"""What people see of small files of all suites, as plain text: cases, ten lines, all tables, and reasons."""

import lzma
from collections.abc import Callable
from pathlib import Path

import front_door
import pytest

FILES = sorted((front_door.FILES / "small").glob("*.jsonl.xz"))


@pytest.mark.parametrize("packed", FILES, ids=lambda path: path.name.partition(".")[0])
def test_a_file_of_each_suite(tmp_path: Path, packed: Path, snapshot: Callable[[str, str], None]) -> None:
    name = packed.name.removesuffix(".xz")
    (tmp_path / name).write_bytes(lzma.decompress(packed.read_bytes()))
    shown = [front_door.in_process(tmp_path, "show", name, *more, columns=120) for more in ((), ("--topic", "details"), ("--topic", "all"))]
    snapshot(f"small-{packed.name.partition('.')[0]}", "\n\n".join(f"{done.out}{done.err}".rstrip() for done in shown) + "\n")
