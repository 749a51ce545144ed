"""``dlbench ab`` by the front door: real processes on two sides, real git references, a real second interpreter."""

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


def reported(folder, name):
    """The values that an experiment returned, by side."""
    values = [(each["side"], each["values"][name]) for each in measurements(folder / "o.jsonl") if name in each.get("values", {})]
    return {side: [value for of_side, value in values if of_side == side] for side, _ in values}


@pytest.fixture(scope="module")
def slowed(tmp_path_factory):
    """One A/B in which b takes a tenth longer, confirmed; five rounds are enough for one case with times."""
    folder = tmp_path_factory.mktemp("slowed")
    benches = ('workload = "takes"\naxes.ms = [1, 2]', 'workload = "tells"')
    differs = ("--b", "env=TAKES_TIMES=1.1", "--b", "env=API_TOKEN=hush")
    options = ("--rounds", "5", "--seed", "3", "--confirm", "--junit", "o.xml", "-k", "not ms=2")
    return ab(folder, SCRIPTED, SIDES, *differs, *options, benches=benches, run=shared_hosts.dlbench), folder


def test_a_side_that_is_slower_is_found_confirmed_and_fails_with_3(slowed):
    done, folder = slowed
    assert done.code == 3, done.err
    rows = [re.split(r"  +", line.strip()) for line in done.out.splitlines()]
    assert rows[4] == ["takes ms=1", "1.00 ms", "1.10 ms", "+10.0 %", "+10.0 %", "0.0238", "slower"]
    (reason,) = [line for line in done.out.splitlines() if line.startswith("takes ms=1: ")]
    assert reason.endswith("measured again; the first rounds said slower by +10.0 %")  # after what else this machine did, if anything
    assert rows[-1] == ["1 slower, 1 inconclusive; exit 3"]
    for text in (
        "measuring again, in 5 fresh rounds: takes[ms=1]@cpu",
        "note: the sides differ, a against b: side.environ.TAKES_TIMES: nothing against '1.1'; ",
        "round 1 of 5, 3 cases left: ",
        "saved in o.jsonl",
    ):
        assert text in done.err
    assert "slower by +10.0 %" in (folder / "o.xml").read_text()


def test_one_file_has_both_sides_round_by_round(slowed):
    _, folder = slowed
    header, *rest, footer = lines(folder / "o.jsonl")
    assert (header["planned"], header["policy"]["rounds"], header["order"], footer["rounds"]) == ({"count": 4}, 5, "balanced", 10)
    order = [(each["round"], each["side"], each["case"]["workload"]) for each in rest if each["kind"] == "measurement"]
    turns = [order[at : at + 4] for at in range(0, 20, 4)]
    for number, turn in enumerate(turns):
        assert sorted(turn) == [(number, side, workload) for side in "ab" for workload in ("takes", "tells")]
        assert turn[0][2] == turn[1][2]  # both sides of a case one right after the other
    began = [{workload: side for _, side, workload in reversed(turn)} for turn in turns]
    for even, odd in (began[:2], began[2:4]):
        assert {workload: {even[workload], odd[workload]} for workload in even} == {"takes": {"a", "b"}, "tells": {"a", "b"}}
    assert len({turn[0][1] for turn in turns} | {turn[2][1] for turn in turns}) == 2
    assert [number for number, *_ in order[20:]] == [number for number in range(5, 10) for _ in range(2)]
    assert {each[1:] for each in order[20:]} == {("a-confirm", "takes"), ("b-confirm", "takes")}


def test_the_file_says_what_differs_and_no_secret_gives_the_same_verdicts_and_is_not_gone_on_with(slowed):
    done, folder = slowed
    content = (folder / "o.jsonl").read_bytes()
    header = lines(folder / "o.jsonl")[0]
    assert {name: side["side"]["environ"] for name, side in header["sides"].items()} == {
        "a": {},
        "b": {"TAKES_TIMES": "1.1", "API_TOKEN": "…"},
    }
    assert ("stack" in header["environment"], bool(header["sides"]["b"]["stack"]["versions"]["torch"]), b"hush" in content) == (
        False,
        True,
        False,
    )
    again = in_process(folder, "compare", "o.jsonl", "--by", "run")
    assert (again.code, again.out) == (done.code, done.out)
    assert in_process(folder, "compare", "o.jsonl", "--by", "run", "--threshold", "900%").code == 0
    resumed = in_process(folder, "run", "--resume", "o.jsonl")
    assert (resumed.code, "o.jsonl is an A/B, which can't be resumed" in resumed.err) == (2, True)
    assert (folder / "o.jsonl").read_bytes() == content


def test_sides_that_do_not_differ_are_an_a_a_too_few_rounds_are_4_and_the_file_has_the_thresholds_that_were_given(tmp_path):
    given = ("--detect", "40%", "--threshold", "5%", "--threshold", "value=0.2")
    head = "[thresholds]\nthroughput = 0.1\nmemory = 0.1\n"
    done = ab(tmp_path, "--rounds", "1", *given, benches=['workload = "noop"'], head=head, run=shared_hosts.dlbench)
    assert done.code == 4, done.err
    assert "note: nothing that is recorded differs between the sides" in done.err
    assert "11 rounds a side would do: --rounds 11" in done.err
    assert lines(tmp_path / "o.jsonl")[0]["suites"][0]["thresholds"] == {"memory": 0.1, "detect": "40%", "time": "5%", "value": "0.2"}


def test_each_side_has_its_own_process_and_layout_each_round_and_both_the_same_inputs(tmp_path):
    done = ab(tmp_path, SIDES, "--rounds", "2")
    assert done.code == 4, done.err
    pids, seeds, numbers = (reported(tmp_path, name) for name in ("pid", "hash_seed", "first_random"))
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
    # Further rounds come for the one that can't show enough.
    first = [each for each in measurements(tmp_path / "o.jsonl") if each["round"] < 2]
    failed = [("b", "dies", "crashed"), ("b", "raises", "failed")]
    lived = [(side, fate, "ok") for side, fate in (("a", "dies"), ("a", "lives"), ("a", "raises"), ("b", "lives")) for _ in range(2)]
    assert sorted((each["side"], each["case"]["params"]["fate"], each["status"]) for each in first) == sorted([*failed, *lived])


def test_both_sides_share_a_device_and_each_has_a_process_there(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "which_process"\naxes.n = [1, 2]', 'workload = "faulty"')
    options = (PRETEND, "--device", "pretend:0", "--isolation", "none", "--rounds", "2", "--seed", "1", "--b", "same")
    done = dlbench("ab", suite, *options, "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 5, done.err
    # The case that faults does so on both sides, one right after the other, and that is no device that fails twice in a row.
    ended = [(each["side"], each["status"]) for each in measurements(tmp_path / "o.jsonl") if each["case"]["workload"] == "faulty"]
    assert sorted(ended) == [("a", "crashed"), ("b", "crashed")]
    pids = reported(tmp_path, "pid")
    assert (len(pids["a"]), len(pids["b"]), {*pids["a"]} & {*pids["b"]}) == (4, 4, set())
    second = {(each["side"], each["values"]["pid"]) for each in measurements(tmp_path / "o.jsonl") if each["round"] == 1}
    assert len(second) == 2  # both cases of a side share its process


def test_a_device_that_one_side_lacks_is_no_silent_pass(tmp_path):
    text = Path(PRETEND).read_text().replace('kind = "pretend"', 'kind = "xpu"')  # a kind that a suite may name
    register = "register_backend(Pretend())"
    (tmp_path / "pretend.py").write_text(text.replace(register, f'if "BARE" not in os.environ:\n    {register}'))
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
    for name in ("plug", "src/mine", "../temporary"):
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
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


BOTH = ("--a", "env=PYTHONPATH=src", "--b", "env=PYTHONPATH=src")
ONCE = ("--rounds", "1", "plug/sides.py")


def left_over(checkout):
    """What the command leaves of its temporary files."""
    return list((checkout.parent / "temporary").glob("dlbench-*"))


def ab_of_states(checkout, *arguments, benches=('workload = "tells"',), run=dlbench, **variables):
    suite = front_door.suite(checkout.parent, *benches)
    command = ("ab", f"../{suite}", "-o", "../o.jsonl", *QUICKLY, *arguments)
    return run(*command, cwd=checkout, variables={"TMPDIR": str(checkout.parent / "temporary"), **variables})


@pytest.mark.parametrize(
    ("references", "states"), [({"a": "state1", "b": "main"}, {"a": [1.0], "b": [2.0]}), ({"a": "HEAD"}, {"a": [2.0], "b": [3.0]})]
)
def test_git_references_are_measured_from_folders_of_their_own_and_files_as_they_are(checkout, references, states):
    before = state_of(checkout)
    options = [word for side, reference in references.items() for word in (f"--{side}", f"ref={reference}")]
    done = ab_of_states(checkout, *ONCE, *BOTH, *options)
    assert done.code == 4, done.err
    assert reported(checkout.parent, "state") == states
    assert (state_of(checkout), left_over(checkout)) == (before, [])
    sides = lines(checkout.parent / "o.jsonl")[0]["sides"]
    for side, reference in references.items():
        recorded = sides[side]["side"]
        assert (recorded["ref"], recorded["commit"]) == (reference, git(checkout, "rev-parse", reference).strip())
    assert str(checkout) not in (checkout.parent / "o.jsonl").read_text()


@pytest.mark.parametrize(("side", "verdict", "code"), [("--a", "new", 4), ("--b", "missing", 5)])
def test_a_workload_that_one_state_of_the_code_lacks_is_a_verdict_and_no_mistake(checkout, side, verdict, code):
    added = "@workload()\ndef added(device: torch.device) -> Work:\n    return Work(call=lambda: None)\n"
    (checkout / "plug" / "sides.py").write_text(f"import torch\nfrom dlbench import Work, workload\n\n\n{added}")
    benches = ('workload = "noop"', 'workload = "added"')
    done = ab_of_states(checkout, *ONCE, *BOTH, side, "ref=main", "--format", "json", benches=benches)
    assert done.code == code, done.err
    assert {row["compare.case"]: row["compare.verdict"] for row in json.loads(done.out)}["added[]@cpu"] == verdict


def test_a_reference_whose_plugin_does_not_import_is_named_without_its_folder(checkout):
    (checkout / "plug" / "sides.py").write_text("import no_such_package\n")
    git(checkout, "commit", "-q", "-a", "-m", "broken")
    error = "plug/sides.py, line 1: ModuleNotFoundError: No module named 'no_such_package'"
    assert ab_of_states(checkout, *ONCE, "--b", "ref=main", *BOTH) == front_door.Done(2, "", f"dlbench: side a: {error}\n")
    git(checkout, "checkout", "-q", "state2")
    assert ab_of_states(checkout, *ONCE, "--b", "ref=main", *BOTH) == front_door.Done(2, "", f"dlbench: side b: {error}\n")


def test_code_of_the_checkout_itself_is_never_measured_in_place_of_a_reference(checkout):
    """As with an editable installation, whose packages come from the checkout whatever the reference."""
    installed = f"{front_door.ROOT}{os.pathsep}{checkout / 'src'}"
    done = ab_of_states(checkout, *ONCE, "--a", "ref=state1", PYTHONPATH=installed)
    assert (done.code, done.out, (checkout.parent / "o.jsonl").exists()) == (2, "", False)
    error = r"^dlbench: side a: module 'mine(\.state)?' was imported from the checkout itself and not from the reference"
    assert re.search(error, done.err)


def test_references_that_make_no_sense(checkout, transcript):
    for path in (checkout / "other.py", checkout.parent / "outside.py"):
        path.write_text("")

    def refused(words):
        done = ab_of_states(checkout, *words.split(), GIT_CEILING_DIRECTORIES=str(checkout.parent))
        assert (left_over(checkout), (checkout.parent / "o.jsonl").exists()) == ([], False)
        return front_door.refusal(done)

    transcript("wrong-references", 4, refused)


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
    found = {name: reported(tmp_path, name)["b"] for name in (*modules, "torch")}
    assert found == {name: [0.0] for name in modules} | {"torch": [1.0]}
    absent = subprocess.run([str(python), "-c", "import click"], capture_output=True, text=True, check=False)
    assert "No module named 'click'" in absent.stderr
    assert "side.python_key: " in done.err
    assert str(tmp_path) not in (tmp_path / "o.jsonl").read_text()


def test_an_interpreter_that_was_asked_for_does_not_import_from_the_folder_of_the_call(tmp_path):
    """Else a package that is checked out there would be measured on both sides, whatever is installed in either."""
    for folder, state in ((".", 3), ("one", 1), ("two", 2)):
        (tmp_path / folder / "installed").mkdir(parents=True)
        (tmp_path / folder / "installed" / "__init__.py").write_text(f"STATE = {state}\n")
    (tmp_path / "mine.py").write_text(Path(SIDES).read_text().replace("STATE = 1", "from installed import STATE"))
    python = f"python={sys.executable}"
    done = ab(tmp_path, "mine.py", "--rounds", "1", "--a", python, "--a", "env=PYTHONPATH=one", "--b", python, "--b", "env=PYTHONPATH=two")
    assert done.code == 4, done.err
    assert reported(tmp_path, "state") == {"a": [1.0], "b": [2.0]}
    error = "mine.py, line 12: ModuleNotFoundError: No module named 'installed'"
    assert dlbench("ab", "self", "mine.py", "--a", python, cwd=tmp_path) == front_door.Done(2, "", f"dlbench: side a: {error}\n")


def test_sides_that_make_no_sense_are_one_sentence(tmp_path, transcript):
    (tmp_path / "empty").touch(mode=0o755)
    for name, text in {
        "old/sitecustomize": "import sys; sys.version_info = (3, 9, 2)",
        "bare/torch": "raise ModuleNotFoundError(\"No module named 'torch'\")",
        "dated/sitecustomize": "import torch; torch.__version__ = '2.5.1'",
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / f"{name}.py").write_text(text)

    def refused(words):
        done = shared_hosts.dlbench("ab", *words.split(), "-o", "o.jsonl", cwd=tmp_path)
        assert not (tmp_path / "o.jsonl").exists()
        return front_door.refusal(done).replace(f"{tmp_path}/", "")

    transcript("wrong-sides", 18, refused)


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_keeps_what_was_measured_gives_no_verdict_and_cleans_up(checkout, signals):
    (checkout / "plug" / "sides.py").write_text((PLUGINS / "pretend.py").read_text())
    git(checkout, "commit", "-q", "-a", "-m", "waits")
    benches = [f'workload = "waits_for"\naxes.file = "{checkout / "go"}"']
    process = ab_of_states(checkout, "plug/sides.py", "--a", "ref=main", "--b", "ref=main", benches=benches, run=front_door.start)
    deadline = time.monotonic() + 60
    while not (checkout.parent / "o.jsonl").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    assert len(left_over(checkout)) == 2
    process.send_signal(signal.SIGINT)
    if signals == 2:  # the second comes when the first has ended the rounds, and before the folders would be removed anyway
        while '{"kind":"round"' not in (checkout.parent / "o.jsonl").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert signals == 2 or "interrupted, so there is no verdict; for one on what was measured: dlbench compare ../o.jsonl --by run" in err
    assert left_over(checkout) == []
    assert (checkout.parent / "o.jsonl").read_text().startswith('{"kind":"header"')  # its last line may be torn by the second
