"""``dlbench ab`` by the front door: real processes on two sides, real git references, a real second interpreter."""

import hashlib
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import front_door
import pytest
import shared_hosts
from front_door import PLUGINS, PRETEND, dlbench, in_process, lines, measurements

pytestmark = pytest.mark.real

SIDES = str(PLUGINS / "sides.py")
SCRIPTED = str(PLUGINS / "scripted.py")
# In a process that stays, torch is imported once a side and round.
QUICKLY = ("--device", "cpu", "--isolation", "none")


def ab(folder, *arguments, benches=('workload = "tells"',), run=dlbench, **more):
    (folder / "here.txt").touch()
    same = () if {"--a", "--b"} & set(arguments) else ("--b", "same")
    return run("ab", front_door.suite(folder, *benches, **more), "-o", "o.jsonl", *QUICKLY, *same, *arguments, cwd=folder)


def told(folder, name):
    """What an experiment returned, by side."""
    found = {}
    for each in measurements(folder / "o.jsonl"):
        if name in each.get("values", {}):
            found.setdefault(each["side"], []).append(each["values"][name])
    return found


@pytest.fixture(scope="module")
def slowed(tmp_path_factory):
    """One A/B in which b takes a tenth longer, confirmed; five rounds are enough for one case with times."""
    folder = tmp_path_factory.mktemp("slowed")
    benches = ('workload = "takes"\naxes.ms = [1, 2]', 'workload = "tells"')
    plugins = (SCRIPTED, SIDES)
    arguments = (*plugins, "--b", "env=TAKES_TIMES=1.1", "--b", "env=API_TOKEN=hush", "--rounds", "5", "--seed", "3", "--confirm")
    done = ab(folder, *arguments, "--junit", "o.xml", "-k", "not ms=2", benches=benches, run=shared_hosts.dlbench)
    return done, folder


def test_a_side_that_is_slower_is_found_confirmed_and_fails_with_3(slowed):
    done, folder = slowed
    assert done.code == 3, done.err
    rows = [re.split(r"  +", line.strip()) for line in done.out.splitlines()]
    measured_again = "measured again; the first rounds said slower by +10.0 %"
    assert rows[4] == ["takes ms=1", "1.00 ms", "1.10 ms", "+10.0 %", "+10.0 %", "0.0238", "slower"]
    (reason,) = [line for line in done.out.splitlines() if line.startswith("takes ms=1: ")]
    assert reason.endswith(measured_again)  # before it stands what else this machine did meanwhile, if anything
    assert rows[-1] == ["1 slower, 1 inconclusive; exit 3"]
    assert "measuring again, in 5 fresh rounds: takes[ms=1]@cpu" in done.err
    assert "note: the sides differ, a against b: side.environ.TAKES_TIMES: nothing against '1.1'; " in done.err
    assert "round 1 of 5, 3 cases left: " in done.err
    assert "saved in o.jsonl" in done.err
    assert "slower by +10.0 %" in (folder / "o.xml").read_text()


def test_one_file_has_both_sides_round_by_round(slowed):
    _, folder = slowed
    header, *rest, footer = lines(folder / "o.jsonl")
    assert (header["planned"], header["policy"]["rounds"], footer["rounds"]) == ({"count": 4}, 5, 10)
    order = [(each["round"], each["side"], each["case"]["workload"]) for each in rest if each["kind"] == "measurement"]
    first, fresh = order[: 5 * 4], order[5 * 4 :]
    for number in range(5):
        turn = first[number * 4 : number * 4 + 4]
        assert {each[0] for each in turn} == {number}
        assert sorted((side, workload) for _, side, workload in turn) == [("a", "takes"), ("a", "tells"), ("b", "takes"), ("b", "tells")]
        assert turn[0][2] == turn[1][2]
    assert [number for number, *_ in fresh] == [n for n in range(5, 10) for _ in range(2)]
    assert {each[1:] for each in fresh} == {("a-confirm", "takes"), ("b-confirm", "takes")}
    assert len({side for _, side, _ in first[::2]}) == 2
    assert header["order"] == "balanced"
    for number in (0, 2):
        even, odd = ({workload: side for _, side, workload in reversed(first[at * 4 : at * 4 + 4])} for at in (number, number + 1))
        assert {workload: {even[workload], odd[workload]} for workload in even} == {"takes": {"a", "b"}, "tells": {"a", "b"}}


def test_the_header_says_what_differs_and_no_secret(slowed):
    _, folder = slowed
    header = lines(folder / "o.jsonl")[0]
    assert header["sides"]["a"]["side"]["environ"] == {}
    assert header["sides"]["b"]["side"]["environ"] == {"TAKES_TIMES": "1.1", "API_TOKEN": "…"}
    assert "stack" not in header["environment"]
    assert header["sides"]["b"]["stack"]["versions"]["torch"]
    assert "hush" not in (folder / "o.jsonl").read_text()


def test_the_file_alone_gives_the_same_verdicts(slowed):
    done, folder = slowed
    again = in_process(folder, "compare", "o.jsonl", "--by", "run")
    assert (again.code, again.out) == (done.code, done.out)
    assert in_process(folder, "compare", "o.jsonl", "--by", "run", "--threshold", "900%").code == 0


def test_the_file_has_the_thresholds_that_were_given(tmp_path):
    given = ("--detect", "40%", "--threshold", "5%", "--threshold", "value=0.2")
    benches = ['workload = "noop"']
    done = ab(
        tmp_path, "--rounds", "1", *given, benches=benches, head="[thresholds]\nthroughput = 0.1\nmemory = 0.1\n", run=shared_hosts.dlbench
    )
    assert done.code == 4, done.err
    assert lines(tmp_path / "o.jsonl")[0]["suites"][0]["thresholds"] == {"memory": 0.1, "detect": "40%", "time": "5%", "value": "0.2"}


def test_it_is_not_gone_on_with(slowed):
    _, folder = slowed
    before = (folder / "o.jsonl").read_bytes()
    done = in_process(folder, "run", "--resume", "o.jsonl")
    assert done.code == 2
    assert "o.jsonl is an A/B, which can't be resumed" in done.err
    assert (folder / "o.jsonl").read_bytes() == before


def test_sides_that_do_not_differ_are_said_to_be_an_a_a_and_too_few_rounds_are_4(tmp_path):
    done = ab(tmp_path, "--rounds", "1", benches=['workload = "noop"'], run=shared_hosts.dlbench)
    assert done.code == 4, done.err
    assert "note: nothing that is recorded differs between the sides" in done.err
    assert "11 rounds a side would do: --rounds 11" in done.err


def test_each_side_has_its_own_process_and_layout_each_round_and_both_the_same_inputs(tmp_path):
    done = ab(tmp_path, SIDES, "--rounds", "2")
    assert done.code == 4, done.err
    pids, seeds, numbers = (told(tmp_path, name) for name in ("pid", "hash_seed", "first_random"))
    assert (len(pids["a"]), len(pids["b"]), len({*pids["a"], *pids["b"]})) == (2, 2, 4)
    assert len({*seeds["a"], *seeds["b"]}) == 4
    assert len({*numbers["a"], *numbers["b"]}) == 1


def test_the_rounds_are_by_default_those_that_a_gate_needs(tmp_path):
    # What runs out of time is not tried again, so the rounds that were planned cost nothing here.
    done = ab(tmp_path, "--timeout", "1ms", benches=['workload = "noop"'], run=shared_hosts.dlbench)
    assert done.code == 4, done.err
    policy = lines(tmp_path / "o.jsonl")[0]["policy"]
    assert (policy["rounds"], policy["max_rounds"], policy["budget_s"]) == (14, 14, None)


def test_what_fails_on_side_b_is_a_row_and_5(tmp_path):
    benches = ['workload = "meets_its_fate"\naxes.fate = ["raises", "dies", "lives"]']
    done = ab(tmp_path, SIDES, "--b", "env=FATED=1", "--rounds", "2", benches=benches, run=shared_hosts.dlbench)
    assert done.code == 5, done.err
    first = [
        each for each in measurements(tmp_path / "o.jsonl") if each["round"] < 2
    ]  # more rounds come for the one that can't show enough
    rows = [(each["side"], each["case"]["params"]["fate"], each["status"]) for each in first]
    assert sorted(rows) == sorted(
        [
            *(("a", fate, "ok") for fate in ("raises", "dies", "lives") for _ in range(2)),
            ("b", "raises", "failed"), ("b", "dies", "crashed"), ("b", "lives", "ok"), ("b", "lives", "ok"),
        ]
    )  # fmt: skip


def test_both_sides_share_a_device_and_each_has_a_process_there(tmp_path):
    benches = ('workload = "which_process"\naxes.n = [1, 2]', 'workload = "faulty"')
    suite = front_door.suite(tmp_path, *benches)
    options = (PRETEND, "--device", "pretend:0", "--isolation", "none", "--rounds", "2", "--seed", "1", "--b", "same")
    done = dlbench("ab", suite, *options, "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 5, done.err
    # The case that faults does so on both sides, one right after the other, and that is no device that fails twice in a row.
    ended = [(each["side"], each["status"]) for each in measurements(tmp_path / "o.jsonl") if each["case"]["workload"] == "faulty"]
    assert sorted(ended) == [("a", "crashed"), ("b", "crashed")]
    pids = told(tmp_path, "pid")
    assert (len(pids["a"]), len(pids["b"]), set(pids["a"]) & set(pids["b"])) == (4, 4, set())
    second = {each["side"]: each["values"]["pid"] for each in measurements(tmp_path / "o.jsonl") if each["round"] == 1}
    assert {(each["side"], each["values"]["pid"]) for each in measurements(tmp_path / "o.jsonl") if each["round"] == 1} == set(
        second.items()
    )


def test_a_device_that_one_side_lacks_is_no_silent_pass(tmp_path):
    text = Path(PRETEND).read_text().replace('kind = "pretend"', 'kind = "xpu"')  # a kind that a suite may name
    (tmp_path / "pretend.py").write_text(
        text.replace("register_backend(Pretend())", 'if "BARE" not in os.environ:\n    register_backend(Pretend())')
    )
    suite = front_door.suite(tmp_path, 'workload = "which_process"', head='devices = ["cpu", "xpu:0"]' + front_door.HASTY)
    arguments = ("ab", suite, "pretend.py", "--b", "env=BARE=1", "--rounds", "1", "--isolation", "none", "-o", "o.jsonl")
    done = shared_hosts.dlbench(*arguments, cwd=tmp_path)
    assert done.code == 5, done.err
    assert re.search("^which_process on xpu:0: skipped: side b has no xpu:0; it has cpu", done.out, re.MULTILINE)
    for difference in ("side.environ.BARE: nothing against '1'", "identity.accelerators[0].kind: 'xpu' against nothing"):
        assert difference in done.err
    done = shared_hosts.dlbench(*arguments[:-1], "p.jsonl", "--device", "xpu:0", cwd=tmp_path)
    assert (done.code, done.out) == (69, "")
    assert done.err.startswith("dlbench: side b: there is no device 'xpu:0' here")


@pytest.fixture
def checkout(tmp_path, needs_git):
    """A git checkout of a plugin and what it imports: state 1 is tagged, state 2 is committed, state 3 is in the files alone."""
    folder = tmp_path / "checkout"
    for name in ("plug", "src/mine"):
        (folder / name).mkdir(parents=True)
    plugin = Path(SIDES).read_text().replace("STATE = 1", "from mine.state import STATE")
    (folder / "plug" / "sides.py").write_text(plugin)
    (folder / "src" / "mine" / "__init__.py").touch()
    for state in (1, 2, 3):
        (folder / "src" / "mine" / "state.py").write_text(f"STATE = {state}\n")
        if state < 3:
            for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "state"), ("tag", f"state{state}")):
                git(folder, *words)
    return folder


def git(folder, *words):
    names = {f"GIT_{who}_{what}": "somebody@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environ = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(["git", *words], cwd=folder, env=environ, check=True, capture_output=True, text=True).stdout


def state_of(folder):
    """Everything in a folder, git's own files too."""
    return {
        path: hashlib.sha256(path.read_bytes()).digest() for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture
def temporary(tmp_path):
    """Where the command puts its temporary files, so that a test sees what is left of them."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


BOTH = ("--a", "env=PYTHONPATH=src", "--b", "env=PYTHONPATH=src")


def test_git_references_are_measured_from_folders_of_their_own(checkout, temporary):
    suite = front_door.suite(checkout.parent, 'workload = "tells"')
    arguments = ("ab", f"../{suite}", "-o", "../o.jsonl", *QUICKLY, "--rounds", "1", "plug/sides.py", *BOTH)
    before = state_of(checkout)
    done = dlbench(*arguments, "--a", "ref=state1", "--b", "ref=main", cwd=checkout, variables={"TMPDIR": str(temporary)})
    assert done.code == 4, done.err
    assert told(checkout.parent, "state") == {"a": [1.0], "b": [2.0]}
    assert (state_of(checkout), list(temporary.glob("dlbench-*"))) == (before, [])
    sides = lines(checkout.parent / "o.jsonl")[0]["sides"]
    assert [(sides[name]["side"]["ref"], sides[name]["side"]["commit"]) for name in ("a", "b")] == [
        ("state1", git(checkout, "rev-parse", "state1").strip()), ("main", git(checkout, "rev-parse", "main").strip()),
    ]  # fmt: skip
    assert str(checkout) not in (checkout.parent / "o.jsonl").read_text()


def test_a_reference_stands_beside_the_files_as_they_are(checkout):
    suite = front_door.suite(checkout.parent, 'workload = "tells"')
    arguments = ("ab", f"../{suite}", "-o", "../o.jsonl", *QUICKLY, "--rounds", "1", "plug/sides.py", *BOTH)
    done = dlbench(*arguments, "--a", "ref=HEAD", cwd=checkout)
    assert done.code == 4, done.err
    assert told(checkout.parent, "state") == {"a": [2.0], "b": [3.0]}


@pytest.mark.parametrize(("side", "verdict", "code"), [("--a", "new", 4), ("--b", "missing", 5)])
def test_a_workload_that_one_state_of_the_code_lacks_is_a_verdict_and_no_mistake(checkout, side, verdict, code):
    suite = front_door.suite(checkout.parent, 'workload = "noop"', 'workload = "added"')
    added = "@workload()\ndef added(device: torch.device) -> Work:\n    return Work(call=lambda: None)\n"
    (checkout / "plug" / "sides.py").write_text(f"import torch\nfrom dlbench import Work, workload\n\n\n{added}")
    arguments = ("ab", f"../{suite}", "-o", "../o.jsonl", *QUICKLY, "--rounds", "1", "plug/sides.py", *BOTH, side, "ref=main")
    done = dlbench(*arguments, "--format", "json", cwd=checkout)
    assert done.code == code, done.err
    assert {row["compare.case"]: row["compare.verdict"] for row in json.loads(done.out)}["added[]@cpu"] == verdict


def test_a_reference_whose_plugin_does_not_import_is_named_without_its_folder(checkout):
    (checkout / "plug" / "sides.py").write_text("import no_such_package\n")
    git(checkout, "commit", "-q", "-a", "-m", "broken")
    done = dlbench("ab", "self", "-o", "../o.jsonl", *QUICKLY, "plug/sides.py", "--b", "ref=main", *BOTH, cwd=checkout)
    assert (done.code, done.err) == (
        2,
        "dlbench: side a: plug/sides.py, line 1: ModuleNotFoundError: No module named 'no_such_package'\n",
    )
    git(checkout, "checkout", "-q", "state2")
    done = dlbench("ab", "self", "-o", "../o.jsonl", *QUICKLY, "plug/sides.py", "--b", "ref=main", *BOTH, cwd=checkout)
    assert (done.code, done.err) == (
        2,
        "dlbench: side b: plug/sides.py, line 1: ModuleNotFoundError: No module named 'no_such_package'\n",
    )


def test_code_of_the_checkout_itself_is_never_measured_in_place_of_a_reference(checkout):
    """As with an editable installation, whose packages come from the checkout whatever the reference."""
    suite = front_door.suite(checkout.parent, 'workload = "tells"')
    arguments = ("ab", f"../{suite}", "-o", "../o.jsonl", *QUICKLY, "--rounds", "1", "plug/sides.py", "--a", "ref=state1")
    done = dlbench(*arguments, cwd=checkout, variables={"PYTHONPATH": f"{front_door.ROOT}{os.pathsep}{checkout / 'src'}"})
    assert (done.code, done.out) == (2, "")
    assert re.search(
        r"^dlbench: side a: module 'mine(\.state)?' was imported from the checkout itself and not from the reference", done.err
    )
    assert not (checkout.parent / "o.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--a", "ref=nowhere", "plug/sides.py"), "--a ref=nowhere: the checkout has no reference 'nowhere'"),
        (("--a", "ref=-x", "plug/sides.py"), "--a ref=-x: the checkout has no reference '-x'"),
        (("--b", "ref=main", "other.py"), "--b ref=main: this reference has no other.py"),
    ],
)
def test_references_that_make_no_sense(checkout, temporary, arguments, sentence):
    (checkout / "other.py").write_text("")
    done = dlbench("ab", "self", "-o", "../o.jsonl", *QUICKLY, *arguments, cwd=checkout, variables={"TMPDIR": str(temporary)})
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.count("\n") == 1
    assert list(temporary.glob("dlbench-*")) == []
    assert not (checkout.parent / "o.jsonl").exists()


@pytest.mark.usefixtures("needs_git")
def test_a_plugin_outside_any_checkout_has_no_references(tmp_path):
    (tmp_path / "mine.py").write_text("")
    done = dlbench("ab", "self", "mine.py", "--a", "ref=main", cwd=tmp_path, variables={"GIT_CEILING_DIRECTORIES": "/"})
    assert (done.code, done.err) == (
        2, "dlbench: --a ref=main: no FILE.py of yours lies in a git checkout, so there is nothing to take this reference of\n",
    )  # fmt: skip


def torch_alone(folder):
    """A second interpreter: a virtual environment that has torch, what torch itself needs, and nothing else."""
    python = folder / "alone" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(python.parent.parent)], check=True)
    (site,) = python.parent.parent.glob("lib/python*/site-packages")
    wanted, taken = ["torch"], set()
    while wanted:
        try:
            found = importlib.metadata.distribution(wanted.pop())
        except importlib.metadata.PackageNotFoundError:  # for another system
            continue
        taken.add(found.name)
        for top in {path.parts[0] for path in found.files or () if not path.parts[0].startswith((".", "__pycache__"))}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))).resolve())
        names = (re.match(r"[\w.-]+", line)[0] for line in found.requires or () if "extra ==" not in line)
        wanted += [name for name in names if name not in taken]
    return python


def test_an_interpreter_needs_torch_and_nothing_else(tmp_path):
    python = torch_alone(tmp_path)
    benches = ('workload = "lists_modules"', 'workload = "matmul"\naxes.n = 8')
    done = ab(tmp_path, SIDES, "--b", f"python={python}", "--rounds", "1", benches=benches)
    assert done.code == 4, done.err
    assert {each["status"] for each in measurements(tmp_path / "o.jsonl")} == {"ok"}
    modules = ("click", "msgspec", "rich", "pandas", "psutil", "pynvml")
    assert [told(tmp_path, name)["b"] for name in (*modules, "torch")] == [[0.0]] * len(modules) + [[1.0]]
    absent = subprocess.run([str(python), "-c", "import click"], capture_output=True, text=True, check=False)
    assert "No module named 'click'" in absent.stderr
    assert "side.python_key: " in done.err
    assert str(tmp_path) not in (tmp_path / "o.jsonl").read_text()


def test_an_interpreter_that_was_asked_for_does_not_import_from_the_folder_one_stands_in(tmp_path):
    """Else a package that is checked out there would be measured on both sides, whatever is installed in either."""
    for folder, state in ((".", 3), ("one", 1), ("two", 2)):
        (tmp_path / folder / "installed").mkdir(parents=True)
        (tmp_path / folder / "installed" / "__init__.py").write_text(f"STATE = {state}\n")
    (tmp_path / "mine.py").write_text(Path(SIDES).read_text().replace("STATE = 1", "from installed import STATE"))
    sides = [
        word
        for side, lib in (("a", "one"), ("b", "two"))
        for word in (f"--{side}", f"python={sys.executable}", f"--{side}", f"env=PYTHONPATH={lib}")
    ]
    done = ab(tmp_path, "mine.py", "--rounds", "1", *sides)
    assert done.code == 4, done.err
    assert told(tmp_path, "state") == {"a": [1.0], "b": [2.0]}
    done = dlbench("ab", "self", "mine.py", "--a", f"python={sys.executable}", cwd=tmp_path)
    assert (done.code, done.err) == (
        2,
        "dlbench: side a: mine.py, line 12: ModuleNotFoundError: No module named 'installed'\n",
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--a", "python=no/such/python"), "--a python=no/such/python: there is no such program; give the path of a Python"),
        (("--b", "python=./empty"), "side b: cannot start "),
        (("--b", "python=/bin/false"), "side b: the measuring process could not start: it ended with exit code 1 and no result"),
        (("--b", "env=PYTHONPATH=old"), "side b: python is Python 3.9; the measuring process needs Python 3.11 or later"),
        (("--b", "env=PYTHONPATH=bare"), "side b: torch is not installed for python"),
        (("--b", "env=PYTHONPATH=dated"), "side b: python has torch 2.5.1; dlbench needs torch 2.6 or later"),
        (("--a", "env=SPEED"), "--a env=SPEED: write env=NAME=VALUE"),
        (("--a", "env=2=3"), "--a env=2=3: write env=NAME=VALUE"),
        (("--a", "env=OMP_NUM_THREADS=1"), "--a env=OMP_NUM_THREADS=1: dlbench sets OMP_NUM_THREADS itself, alike on both sides"),
        (("--a", "env=X=1", "--a", "env=X=2"), "--a env=X=2: X is given twice; give it once"),
        (("--threshold", "5"), "--threshold 5: '5' is not a fraction; write for example 5% or 0.05"),
        (("--a", "ref=main"), "--a ref=main: no FILE.py of yours lies in a git checkout"),
        (("--set", "nn=3"), "side a: --set nn: no workload of self has such a parameter"),
        (("--device", "cuda:9"), "side a: there is no device 'cuda:9' here"),
    ],
)
def test_sides_that_make_no_sense_are_one_sentence(tmp_path, arguments, sentence):
    (tmp_path / "empty").touch(mode=0o755)
    for name, text in {
        "old/sitecustomize": "import sys; sys.version_info = (3, 9, 2)",
        "bare/torch": "raise ModuleNotFoundError(\"No module named 'torch'\")",
        "dated/sitecustomize": "import torch; torch.__version__ = '2.5.1'",
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / f"{name}.py").write_text(text)
    same = () if {"--a", "--b"} & set(arguments) else ("--b", "same")
    done = shared_hosts.dlbench("ab", "self", "-o", "o.jsonl", *same, *arguments, cwd=tmp_path)
    assert (done.code, done.out) == (69 if "--device" in arguments else 2, "")
    assert sentence in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(("qick",), "dlbench: no suite is called 'qick'; did you mean 'quick'?"), (("self", "-k", "(noop"), "dlbench: -k")],
)
def test_a_mistake_that_is_no_sides_is_not_told_as_one(tmp_path, arguments, sentence):
    done = shared_hosts.dlbench("ab", "--b", "same", *arguments, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(sentence)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            (),
            "a and b are the same code here; say in what b differs: --b python=PATH, --b env=NAME=VALUE, --b ref=REF "
            "(--b same measures the same code twice)",
        ),
        (("--b", "same", "--b", "env=A=1"), "--b same: write python=PATH, env=NAME=VALUE, ref=REF"),
    ],
)
def test_a_side_is_asked_for_before_anything_starts(tmp_path, arguments, sentence):
    done = in_process(tmp_path, "ab", *arguments)
    assert (done.code, done.out, done.err) == (2, "", f"dlbench: {sentence}\n")


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_keeps_what_was_measured_gives_no_verdict_and_cleans_up(checkout, temporary, signals):
    suite = front_door.suite(checkout.parent, f'workload = "waits_for"\naxes.file = "{checkout / "go"}"')
    (checkout / "plug" / "sides.py").write_text((PLUGINS / "pretend.py").read_text())
    git(checkout, "commit", "-q", "-a", "-m", "waits")
    arguments = ("ab", f"../{suite}", "-o", "../o.jsonl", *QUICKLY, "plug/sides.py", "--a", "ref=main", "--b", "ref=main")
    process = front_door.start(*arguments, cwd=checkout, variables={"TMPDIR": str(temporary)})
    deadline = time.monotonic() + 60
    while not (checkout.parent / "o.jsonl").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    assert len(list(temporary.glob("dlbench-*"))) == 2
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert signals == 2 or "interrupted, so there is no verdict; for one on what was measured: dlbench compare ../o.jsonl --by run" in err
    assert list(temporary.glob("dlbench-*")) == []
    assert lines(checkout.parent / "o.jsonl")[0]["kind"] == "header"
