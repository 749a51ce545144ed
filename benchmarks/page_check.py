"""Open pages in Chromium, and hold them to what they promise: see docs/report.md.

That is no message, no script, no request, no sideways scrolling, WCAG 2.1 AA by axe-core, the answers' lines on the first screen, no
folder of the user's, and a length. Without pages it makes eight, of reference runs and of files that are hard to bear, and holds those to
their size and time.

Needs Node.js, Chromium, and the packages playwright-core and axe-core where NODE_PATH points.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from benchmarks.alternate import ROOT, environment, python
from dlbench.core.model import Case, Status
from tests import made_up

_SCRIPT = Path(__file__).with_suffix(".cjs")
_REFERENCES = ROOT / "results" / "reference" / "intel-xeon-processor"
_PIXELS = {"cnn": 4500}
_OTHER_PIXELS = 7000
"""Most pixels from top to end at 1400 wide, of a page by its name and of any other."""
_MOST_BYTES, _MOST_S = 3_000_000, 5.0
"""Of the page on 504 cases, and of a core to make it."""
_ODD = "<b>\"it's\" & 'that'</b> " + "n" * 177
"""Name of 200 letters."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what was found on each page, and exit with 1 if that was anything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="(default: eight that it makes)")
    parser.add_argument(
        "--browser", default=shutil.which("chromium") or shutil.which("google-chrome"), help="(default: the one on the path)"
    )
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each page, width and scheme")
    options = parser.parse_args(arguments)
    node = shutil.which("node")
    if not node or not options.browser:
        sys.exit("page_check needs node and Chromium; install them, or name the browser with --browser")
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        fits, pages = (True, options.pages) if options.pages else _made(Path(folder))
        settings = {
            "browser": options.browser,
            "pictures": str(options.pictures or ""),
            "pages": {page.resolve().as_uri(): _PIXELS.get(page.stem, _OTHER_PIXELS) for page in pages},
        }
        done = subprocess.run([node, str(_SCRIPT), json.dumps(settings)], check=False)
    sys.exit(done.returncode or not fits)


def _made(folder: Path) -> tuple[bool, list[Path]]:
    """Make eight pages in a folder; return whether the one on 504 cases is small and quick enough, and all."""
    pages, fits = [], True
    for name, command in _commands(folder):
        page, began = folder / f"{name}.html", os.times()
        # 3 to 5 are answers of a comparison, too.
        done = subprocess.run(python("-m", "dlbench", *command, str(page)), env=environment(), capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3, 4, 5):
            sys.exit(done.stderr)
        # Of a core, as what else runs may take as long as it likes.
        seconds = os.times().children_user + os.times().children_system - began.children_user - began.children_system
        size = page.stat().st_size
        print(f"{page.name}: {size / 1e6:.2f} MB in {seconds:.1f} s", flush=True)
        if name == "504-cases":
            fits = size <= _MOST_BYTES and seconds <= _MOST_S
            print(f"  at most {_MOST_BYTES / 1e6:.0f} MB and {_MOST_S:.0f} s: {'held' if fits else 'not held'}")
        pages.append(page)
    return fits, pages


def _commands(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each page, and the command that makes it up to the path; files that it needs are written before."""
    yield "cnn", ["report", str(_REFERENCES / "cnn.jsonl"), "-o"]
    yield "quick", ["report", str(_REFERENCES / "quick.jsonl"), "-o"]
    yield "all-references", ["report", *map(str, sorted(_REFERENCES.glob("*.jsonl"))), "-o"]
    yield "comparison", ["compare", str(_REFERENCES / "modes.jsonl"), "--by", "dtype", "--report"]
    cases = [
        made_up.case(step, device, model=model, batch=batch, dtype=dtype)
        for step, device, model, batch, dtype in product(
            ("train_step", "infer_step"),
            ("cpu", "cuda:0"),
            ("alexnet", "vgg11", "resnet18", "resnet34", "resnet50", "inception_v3", "bert_base"),
            (1, 2, 4, 8, 16, 32),
            ("fp32", "bf16", "fp16"),
        )
    ]
    yield "504-cases", ["report", str(_measured(folder / "504.jsonl", cases, blocks=30)), "-o"]
    steps = [made_up.case("train_step", model="resnet18", batch=batch, dtype="fp32") for batch in (1, 8)]
    ten = [str(_measured(folder / "my own" / f"{n}" / "run.jsonl", steps, name=f"machine {n}")) for n in range(10)]
    yield "ten-machines", ["report", *ten, "-o"]
    odd = [made_up.case("train_step", model=_ODD, suite=_ODD, batch=batch, dtype="fp32") for batch in (1, 8)]
    yield "long-names-and-markup", ["report", str(_measured(folder / f"{_ODD.replace('/', '')}.jsonl", odd, name=_ODD)), "-o"]
    failed = [made_up.ended(made_up.case("noop"), Status.FAILED, f"no such file: '/home/somebody/{_ODD}'")]
    yield "failures-alone", ["report", str(made_up.write(folder / "failed.jsonl", failed)), "-o"]


def _measured(path: Path, cases: Sequence[Case], *, blocks: int = 10, name: str = "") -> Path:
    """Write a file with seven rounds of each case, on a CPU of that name where one is given."""
    measured = []
    for number, case in enumerate(cases):
        seconds = (0.01 if case.device == "cuda:0" else 0.4) * (1 + number % 7)
        # Blocks that no two are alike, as a page keeps all of those that it draws.
        rounds = [[seconds * each * (1 + block % 10 / 100) for block in range(blocks)] for each in made_up.SEVEN]
        measured += made_up.rounds_of(case, rounds)
    identity = {"identity": {"cpu": {"name": name}}, "stack": {"threads": 2}} if name else {}
    return made_up.write(path, [made_up.renamed(each, name, 2) if name else each for each in measured], environment=identity)


if __name__ == "__main__":
    main()
