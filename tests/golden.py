"""Golden outputs: what every command that reads says of the same files, kept to be compared with what it says after a change.

``python -m tests.golden`` makes them again and prints what differs from those that are kept; ``--write`` keeps the new ones. A test holds a
spread of those of small files. Those of the reference runs, which are measured anew from time to time, are for this script alone.
``--code FOLDER`` takes dlbench from another checkout, so that what an earlier commit says can be kept.
"""

import argparse
import difflib
import html
import io
import json
import lzma
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

TESTS = Path(__file__).resolve().parent
FILES = TESTS / "files"
REFERENCES = TESTS.parent / "results" / "reference"
KEPT = FILES / "golden"

BY = ("device", "dtype", "mode", "batch", "layout", "ranks", "run", "threads", "n")
FOR_CI = ("--junit", "out/junit.xml", "--verdict", "out/verdict.json", "--report", "out/page.html", "--github")

Call = tuple[str, ...]
Line = dict[str, Any]
"""Of a result file."""
Said = dict[str, Any]
"""The exit code, and text or JSON by where it was written: ``out``, ``err``, or the name of a file."""
_LONG = 100_000
"""Characters from which on a digest is kept: pages of many cases, exports of a recording."""
_SHOWN = 12
"""Differences of one call that are printed."""
_WIDTH, _AROUND = 200, 60


class Scene:
    """A folder with result files, the calls that read them, and what these said before."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.files = dict(_small_files(folder) if name == "small" else _reference_files(folder))
        """Content of each by its name in the folder."""

    @property
    def kept(self) -> Path:
        """The file that keeps what they said."""
        return KEPT / f"{self.name}.json.xz"

    def calls(self) -> Iterator[Call]:
        """Yield the arguments of every call: of each file alone, against its slower copy, and of all together."""
        for name in self.files:
            yield from _of_a_file(name)
        measured = [name for name in self.files if name.endswith(".jsonl") and "recording" not in name]
        for told in (
            ("--answers",),
            ("--details",),
            ("--answers", "--format", "md"),
            ("--answers", "--format", "json"),
            ("--format", "json"),
        ):
            yield ("show", *measured, *told)
        for by in BY:
            yield ("show", *measured, "--by", by)
        yield ("report", *measured, "-o", "out/page.html")
        for base, new in pairwise(measured):
            yield ("compare", base, new, "--across-machines", "--format", "json")
        yield ("compare", *measured, *FOR_CI)
        for folder in sorted({str(Path(name).parent) for name in measured}):
            yield ("show", folder, "--answers")

    def said(self, calls: Iterable[Call]) -> Iterator[tuple[Call, Said]]:
        """Yield what each call says, in this process."""
        with _surroundings(self.folder, (FILES / "intel-xeon-processor-amx" if self.name == "small" else None)):
            for call in calls:
                yield call, _answered(self.folder, call)

    def before(self) -> dict[str, Any]:
        """Return what is kept: digests of the files, and what was said by call."""
        found: dict[str, Any] = json.loads(lzma.decompress(self.kept.read_bytes()))
        return found

    def digests(self) -> dict[str, str]:
        """Return a digest of each file."""
        return {name: sha256(content).hexdigest()[:16] for name, content in self.files.items()}

    def keep(self, said: Mapping[str, Said]) -> None:
        """Keep what was said."""
        self.kept.parent.mkdir(exist_ok=True)
        document = json.dumps({"files": self.digests(), "said": said}, ensure_ascii=False, separators=(",", ":"))
        self.kept.write_bytes(lzma.compress(document.encode(errors="surrogatepass"), preset=9))


def key(call: Call) -> str:
    """Return a call as one text, by which what it said is kept."""
    return " ".join(call)


def _of_a_file(name: str) -> Iterator[Call]:
    from dlbench.analysis.export import formats

    for told in (("--answers",), ("--details",), ("--answers", "--format", "md"), ("--answers", "--format", "json"), ("--format", "json")):
        yield ("show", name, *told)
    for by in BY:
        yield ("show", name, "--by", by)
        yield ("show", name, "--by", by, "--format", "json")
        yield ("compare", name, "--by", by, "--format", "json")
    slower = f"slower/{name}"
    yield ("compare", name, slower, *FOR_CI)
    yield ("compare", name, slower, "--format", "json")
    yield ("compare", name, slower, "--across-machines", "--strict", "--threshold", "1%")
    yield ("compare", name, "--by", "run", *FOR_CI)
    both = f"both/{name}"
    for told in (
        ("--answers",),
        ("--details",),
        ("--answers", "--format", "json"),
        ("--by", "device"),
        ("--by", "dtype", "--format", "json"),
    ):
        yield ("show", both, *told)
    yield ("compare", both, "--by", "device", *FOR_CI)
    yield ("report", both, "-o", "out/page.html")
    for form in formats.names():
        yield ("export", name, "--to", form, "-o", "out/exported")
    yield ("report", name, "-o", "out/page.html")
    yield ("contribute", name, "-o", "out/public.jsonl")


def _small_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Lay out those below tests/files, and changed copies of each; yield names and contents."""
    for path in sorted(each for each in FILES.rglob("*") if each.is_file() and KEPT not in each.parents and each.suffix != ".md"):
        yield _laid_out(folder, str(path.relative_to(FILES)), path)


def _reference_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(REFERENCES.glob("*/*.jsonl*")):
        yield _laid_out(folder, str(path.relative_to(REFERENCES)), path)


def _laid_out(folder: Path, name: str, path: Path) -> tuple[str, bytes]:
    content, name = path.read_bytes(), name.removesuffix(".xz")
    if path.suffix == ".xz":
        content = lzma.decompress(content)
    for place, each in (("", content), ("slower", _changed(content, _slower)), ("both", _changed(content, _on_a_card))):
        (folder / place / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / place / name).write_bytes(each)
    return name, content


def _changed(content: bytes, change: Callable[[Line, int], Iterable[Line]]) -> bytes:
    """Return a result file with other lines in the place of each, which ``change`` is given with the number of its case; no other file."""
    if not content.startswith(b'{"kind":"header"'):
        return content
    cases, lines = dict[str, int](), list[bytes]()
    for line in content.splitlines():
        record = json.loads(line)
        number = cases.setdefault(record["case"]["id"], len(cases)) if "case" in record else 0
        lines += (json.dumps(each, separators=(",", ":")).encode() for each in change(record, number))
    return b"\n".join([*lines, b""])


def _slower(record: Line, number: int) -> Iterator[Line]:
    """Every other case takes a quarter longer."""
    samples = record.get("samples")
    if samples and number % 2:
        samples["block_s"] = [1.25 * seconds for seconds in samples["block_s"]]
    yield record


_COPIES = {"h2d_bytes": 1 << 20, "h2d_s": 1e-4, "d2h_bytes": 4096, "d2h_s": 1e-5, "pinned_h2d_s": 4e-5, "pinned_d2h_s": 8e-6}


def _on_a_card(record: Line, number: int) -> Iterator[Line]:
    """On a made-up card, too: 2, 5, 10 times as fast as the CPU, or slower."""
    if record["kind"] == "header":
        record["devices"] = [*record["devices"], {"id": "cuda:0", "kind": "cuda", "name": "NVIDIA H200", "memory_bytes": 150 << 30}]
        record["planned"] = {**record["planned"], "count": 2 * record["planned"]["count"]}
    yield record
    if "case" not in record or record["case"]["device"] != "cpu":
        return
    factor = (0.5, 0.2, 0.1, 1.5)[number % 4]
    case = {**record["case"], "id": record["case"]["id"].replace("@cpu", "@cuda:0"), "device": "cuda:0"}
    card = {**record, "case": case, "device_name": "NVIDIA H200", "missing_reasons": {}}
    if samples := record.get("samples"):
        blocks = [factor * seconds for seconds in samples["block_s"]]
        card["samples"] = {**samples, "block_s": blocks, "device_s": (0.9, 0.5)[number % 2] * blocks[0] / samples["calls"]}
        card["memory"] = {"peak_bytes": (number + 1) << 20, "reserved_bytes": (number + 2) << 20, "host_peak_bytes": 3 << 20}
        card["transfer"] = _COPIES if number % 3 else None
    yield card


@contextmanager
def _surroundings(folder: Path, references: Path | None) -> Iterator[None]:
    """Make what a command says depend on nothing but its files: no defaults, UTC, data in place of drawings, and settled references."""
    import front_door
    import vl_convert

    from dlbench.analysis.answers.parts import elsewhere
    from dlbench.analysis.read.references import ReferenceRun
    from dlbench.core.store import read_header

    kept = {name: value for name, value in front_door.environment().items() if not name.startswith(("DLBENCH_", "GITHUB_"))}
    variables = {**kept, "TZ": "UTC", "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "GITHUB_STEP_SUMMARY": "out/summary.md"}
    with ExitStack() as stack:
        stack.callback(time.tzset)  # after the variables are as they were
        stack.enter_context(mock.patch.dict(os.environ, variables, clear=True))
        time.tzset()
        stack.enter_context(mock.patch.object(vl_convert, "vegalite_to_svg", _drawn))
        if references:
            runs = tuple(ReferenceRun(path, read_header(path)) for path in sorted(references.glob("*.jsonl")))
            stack.enter_context(mock.patch.object(elsewhere, "reference_runs", return_value=runs))
        yield


def _drawn(chart: Mapping[str, Any], **_: Any) -> str:
    """Return the data of a drawing in its place."""
    rows = sorted(json.dumps(row, sort_keys=True) for points in chart.get("datasets", {}).values() for row in points)
    return "<svg >{}</svg>".format("\n".join(html.escape(row) for row in dict.fromkeys(rows)))


def _answered(folder: Path, call: Call) -> Said:
    import front_door

    written = folder / "out"
    written.mkdir()
    try:
        done = front_door.in_process(folder, *call)
        streams = {"out": done.out, "err": done.err}
        contents = {name: _read(text) for name, text in streams.items()}
        contents |= {str(path.relative_to(folder)): _read_file(path) for path in sorted(written.iterdir())}
        return {"exit": int(done.code or 0), **{name: shortened(content) for name, content in contents.items()}}
    except AssertionError as crash:  # of the door: an error that is none of dlbench's own
        return {"exit": 70, "err": str(crash).replace(str(TESTS.parent), "")}
    finally:
        shutil.rmtree(written)


def shortened(content: Any) -> Any:
    """Return what is said as it is, or its length and a digest where it is too long to be kept."""
    text = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
    return content if len(text) <= _LONG else f"{len(text)} characters, {sha256(text.encode(errors='surrogatepass')).hexdigest()[:16]}"


def _read(text: str) -> Any:
    """Return JSON as data, anything else as it is."""
    if text.startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError:
            pass
    return text


def _read_file(path: Path) -> Any:
    content = path.read_bytes()
    if content.startswith(b"PAR1"):
        import pandas as pd

        return pd.read_parquet(io.BytesIO(content)).to_csv(index=False)
    text = content.decode()
    if path.suffix == ".html":  # without what a change of colours changes
        text = re.sub(r"<style>.*?</style>|<meta [^>]*Content-Security-Policy[^>]*>", "", text, flags=re.DOTALL)
    return _read(text)


def differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """Yield a line for each leaf of JSON, or line of text, that differs, and where."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in dict.fromkeys([*before, *now]):
            yield from differences(before.get(name, _NOTHING), now.get(name, _NOTHING), f"{place}.{name}".lstrip("."))
    elif isinstance(before, list) and isinstance(now, list):
        for at in range(max(len(before), len(now))):
            pair = (each[at] if at < len(each) else _NOTHING for each in (before, now))
            yield from differences(*pair, f"{place}[{at}]")
    elif isinstance(before, str) and isinstance(now, str) and before != now:
        yield from (f"{place}: {line}" for line in _lines(before.splitlines(), now.splitlines()))
    elif type(before) is not type(now) or before != now:
        yield f"{place}: {before!r} → {now!r}"


def _lines(before: list[str], now: list[str]) -> Iterator[str]:
    for _, start, end, other_start, other_end in difflib.SequenceMatcher(None, before, now, autojunk=False).get_opcodes():
        old, new = before[start:end], now[other_start:other_end]
        if old != new:
            # From shortly before where they part: a line of a table may be longer than a screen.
            alike = len(os.path.commonprefix([*old, *new]))  # noqa: RUF071  # of letters
            at = max(0, alike - _AROUND) if len(old) == len(new) == 1 else 0
            yield from (f"{sign}{'…' if at else ''}{line[at:]}" for sign, lines in (("-", old), ("+", new)) for line in lines)


_NOTHING: object = type("Nothing", (), {"__repr__": lambda self: "nothing"})()


def told(call: Call, lines: Iterable[str]) -> str:
    """Return what differs in what a call says, cut to what a reader takes in."""
    found = list(lines)
    more = [f"  and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return "\n".join([f"dlbench {key(call)}", *(f"  {_cut(line)}" for line in found[:_SHOWN]), *more])


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[:_WIDTH]} …"


def main() -> int:
    """Make what is said of small files, of reference runs, or of both; 1 where it is not what is kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("scene", nargs="*", choices=[[], "small", "references"], help="default: both")
    parser.add_argument("--write", action="store_true", help="keep what is said now")
    parser.add_argument("--code", type=Path, default=TESTS.parent, metavar="FOLDER", help="checkout to take dlbench from")
    parser.add_argument("--only", default="", metavar="WORDS", help="only calls that contain this, such as 'show quick'")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th call")
    options = parser.parse_args()
    if options.write and (options.only or options.every > 1):
        parser.error("--write keeps what all calls say; leave out --only and --every")
    sys.path[:0] = [str(options.code.resolve()), str(TESTS)]
    return max(_look(name, options) for name in options.scene or ("small", "references"))


def _look(name: str, options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(name, Path(folder))
        calls = [call for call in scene.calls() if options.only in key(call)][:: options.every]
        began, before = time.monotonic(), scene.before() if scene.kept.exists() else {"files": {}, "said": {}}
        now, changed = dict[str, Said](), 0
        for file, digest in scene.digests().items():
            if before["files"].get(file, digest) != digest:
                print(f"{file} is another file than the one that is kept; what is said of it differs, too")
        for call, said in scene.said(calls):
            now[key(call)] = said
            if lines := list(differences(before["said"].get(key(call), {}), now[key(call)])):
                changed += 1
                print(told(call, lines), flush=True)
        if options.write:
            scene.keep(now)
        print(f"{name}: {changed} of {len(calls)} calls say something else, in {time.monotonic() - began:.0f} s", flush=True)
        return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
