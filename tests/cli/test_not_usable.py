"""Runs most of whose cases disturbed in most rounds: everything that is made from them says so first."""

import csv
import io
import json
from dataclasses import replace

import front_door
import made_up
import pytest
import shared_hosts

from dlbench.analysis.answers import topics as topics_asked
from dlbench.analysis.answers.engine.question import WORTH_IT
from dlbench.cli import session
from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.model import Status
from dlbench.harness.probe.programs import OtherPrograms
from dlbench.harness.probe.sampler import Monitor

CALM, LOST, HOT = Throttling(waiting=0.0), Throttling(waiting=0.5), Throttling(thermal=0.5)
AGAIN = "stop what else runs, and measure again: dlbench run quick"
THREE = f"not usable: 3 of 4 cases disturbed in most rounds; {AGAIN}"


def measured(lost, *, how=LOST, cases=4, rounds=7):
    """Cases that were held back in so many rounds each, as ``lost`` says of the first ones, and the others in none."""
    counts = [*lost, *[0] * (cases - len(lost))]
    return [
        replace(each, throttling=how if each.round < count else CALM)
        for n, count in enumerate(counts)
        for each in made_up.rounds_of(made_up.case("matmul", n=8 + n, dtype="fp32"), made_up.flat(made_up.SEVEN[:rounds]))
    ]


FEW_BLOCKS = f"{front_door.HASTY}max_blocks = 9\n"
"""Too few for a round to rest on undisturbed blocks alone, however quiet this machine is."""


def first_line(folder, *arguments):
    return front_door.in_process(folder, *arguments).out.splitlines()[0]


@pytest.mark.parametrize(
    ("lost", "usable"),
    [([4, 7, 5], False), ([4, 4], True), ([3, 3, 3, 3], True), ([7, 3, 3, 3], True)],
    ids=["most cases in most rounds", "half of the cases", "all cases in fewer than half of their rounds", "one case in all rounds"],
)
def test_it_takes_most_rounds_of_most_cases(tmp_path, lost, usable):
    made_up.write(tmp_path / "run.jsonl", [*measured(lost), made_up.ended(made_up.case("matmul", n=99), Status.OOM, "full")])
    done = front_door.in_process(tmp_path, "show", "run.jsonl", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert {row["flag.not_usable"] for row in rows} == {str(not usable).lower()}
    assert [int(row["time.disturbed_rounds"]) for row in rows[:4]] == [*lost, *[0] * (4 - len(lost))]
    assert [line for line in done.err.splitlines() if "not usable" in line] == ([] if usable else [f"note: {THREE}"])
    assert ("not usable" in first_line(tmp_path, "show", "run.jsonl")) is not usable


def test_it_is_the_first_line_of_what_is_shown_answered_and_exported_and_of_the_page(tmp_path):
    made_up.write(tmp_path / "bad.jsonl", measured([7, 7, 7]), environment={"provenance": {"command": [["run"]]}})
    made_up.write(tmp_path / "good.jsonl", measured([7]))
    three = THREE.removesuffix(" quick")
    for more in ((), ("--topic", "all"), ("--by", "n")):
        assert first_line(tmp_path, "show", "bad.jsonl", *more) == three
    assert first_line(tmp_path, "show", "bad.jsonl", "--topic", "all", "--format", "md") == f"**{three}**"
    document = json.loads(front_door.in_process(tmp_path, "show", "bad.jsonl", "--topic", "all", "--format", "json").out)
    assert document["not_usable"] == [three]
    assert [each["question"]["topic"] for each in document["answers"] if each["kind"] == "answer"] == ["health"]
    for to in ("csv", "pyperf", "bencher"):
        done = front_door.in_process(tmp_path, "export", "bad.jsonl", "--to", to)
        assert (done.code, done.err) == (0, f"note: {three}\n")
    for name in ("bad", "good"):
        front_door.in_process(tmp_path, "report", f"{name}.jsonl")
    bad, good = ((tmp_path / f"{name}.html").read_text() for name in ("bad", "good"))
    assert bad.partition("<header>\n")[2].startswith(f'<p class="unusable">{three}</p>\n')
    assert 'class="unusable"' not in good


def lines_of(folder, name):
    """The line of each topic, or label of one, and the first two lines, of what is shown of a file."""
    told = front_door.in_process(folder, "show", name).out.splitlines()
    parts = [line.split("  ", 1) for line in told]
    return {head: " ".join(rest[0].split()) for head, *rest in parts if head in (WORTH_IT, *topics_asked())}, told[:2]


def test_no_line_rests_on_disturbed_cases_and_what_sound_ones_say_stays(tmp_path):
    """The worse the run, the fewer its lines: never a ratio of times that were lost to others."""

    def steps(is_sound):
        return [replace(each, throttling=CALM if is_sound(each.case) else LOST) for each in made_up.both_kinds()]

    made_up.write(tmp_path / "none.jsonl", steps(lambda case: False))
    made_up.write(tmp_path / "some.jsonl", steps(lambda case: case.params["dtype"] == "bf16" and case.params["batch"] == 8))
    made_up.write(tmp_path / "all.jsonl", steps(lambda case: True))
    (none, first), (some, _), (every, _) = (lines_of(tmp_path, f"{name}.jsonl") for name in ("none", "some", "all"))
    assert first[0].startswith("not usable: 8 of 8 cases disturbed in most rounds")
    assert [every[topic].split("×")[0] for topic in (WORTH_IT, "precision")] == ["training 100", "bf16 2.00"]
    assert none == {}
    assert some == {WORTH_IT: "training 80.0× (77.6…82.5) resnet18 b8 bf16 CPU untuned"}
    ends = [front_door.in_process(tmp_path, "show", f"{name}.jsonl").out for name in ("none", "some", "all")]
    parts = [line.split(" · ")[-1] for out in ends for line in out.splitlines() if line.startswith("NVIDIA H200 against ")]
    assert parts == ["not usable: 8 of 8 disturbed", "not usable: 6 of 8 disturbed", "usable"]


def test_of_several_files_and_of_sides_it_says_which(tmp_path):
    made_up.write(tmp_path / "good.jsonl", measured([7]))
    made_up.write(tmp_path / "bad.jsonl", measured([7, 7, 7]))
    sides = [replace(each, side=side) for side, lost in (("a", []), ("b", [7, 7, 7, 7])) for each in measured(lost)]
    made_up.write(tmp_path / "ab.jsonl", sides, sides=made_up.TWO_SIDES)
    named = THREE.replace("not usable: ", "not usable: bad: ")
    assert first_line(tmp_path, "show", "good.jsonl", "bad.jsonl") == named
    assert first_line(tmp_path, "show", "ab.jsonl").startswith("not usable: ab:b: 4 of 4 cases disturbed")
    compared = front_door.in_process(tmp_path, "compare", "good.jsonl", "bad.jsonl", "--report", "c.html")
    assert (compared.code, f"note: {named}" in compared.err.splitlines()) == (0, True)
    html = (tmp_path / "c.html").read_text()
    assert (html.count(named), f'<header>\n<p class="unusable">{named}</p>\n' in html) == (1, True)


def test_the_round_counts_where_the_case_can_not_tell(tmp_path):
    states = [RoundState(number, 9.0, 1.0, 0.0, {}, {}) for number in range(7)]
    blind, seeing = measured([7] * 4, how=Throttling(thermal=0.0)), measured([])
    for name, cases in (("blind", blind), ("seeing", seeing)):
        made_up.write(tmp_path / f"{name}.jsonl", cases, states=states)
    said = "not usable: 4 of 4 cases disturbed in most rounds; stop what else runs, and measure again: dlbench run quick"
    assert first_line(tmp_path, "show", "blind.jsonl") == said
    assert "not usable" not in first_line(tmp_path, "show", "seeing.jsonl")
    others = {"accelerators": {"cuda:0": {"other_processes": 1}}}
    shared = [RoundState(number, 9.0, 0.0, 0.0, others, others) for number in range(7)]
    card = made_up.rounds_of(made_up.case("matmul", "cuda:0", n=8), made_up.flat(made_up.SEVEN), throttling=CALM)
    made_up.write(tmp_path / "shared.jsonl", card, states=shared)
    assert first_line(tmp_path, "show", "shared.jsonl").startswith("not usable: 1 of 1 case disturbed in most rounds; stop")


def test_a_run_says_what_takes_the_cpus_before_it_measures_and_where_it_is_not_usable(tmp_path, monkeypatch):
    front_door.suite(tmp_path, 'workload = "noop"', head=FEW_BLOCKS)
    monkeypatch.setattr(Monitor, "throttling", lambda *_: Throttling(waiting=0.5, thermal=0.0))
    found = "other programs take 1.5 of 2 CPUs: burner"
    before = [f"busy: {found}; times would be too long, and forecasts are those of a quiet machine", f"note: {found}"]
    for name, early, late, expected in (("before", 1.5, 0.0, before), ("meanwhile", 0.1, 1.5, before[1:]), ("never", 0.0, 0.0, [])):
        machine = iter([0.0, 4.0 * early, 4.0 * early + 4.0 * late])
        times = iter([0.0, 4.0, 4.0, 8.0, 8.0])

        def programs(machine=machine, times=times):
            return OtherPrograms(2, lambda: {"burner": next(machine)}, lambda: None, lambda: next(times))

        monkeypatch.setattr(session, "OtherPrograms", programs)
        done = shared_hosts.dlbench("run", "mine.toml", "--device", "cpu", "-o", f"{name}.jsonl", cwd=tmp_path)
        assert (done.code, [line for line in done.err.splitlines() if "burner" in line]) == (0, expected)
        assert "burner" not in (tmp_path / f"{name}.jsonl").read_text()


def test_a_run_ends_with_it_first_and_with_the_exit_code_it_would_have_had(tmp_path, monkeypatch):
    front_door.suite(tmp_path, 'workload = "noop"', 'workload = "matmul"\naxes.n = 8', head=FEW_BLOCKS)
    lines = []
    for name, throttling in (("bad", Throttling(waiting=0.5, thermal=0.0)), ("good", CALM)):
        monkeypatch.setattr(Monitor, "throttling", lambda *_, found=throttling: found)
        done = shared_hosts.dlbench("run", "mine.toml", "--device", "cpu", "-o", f"{name}.jsonl", cwd=tmp_path)
        assert done.code == 0
        lines.append(done.out.splitlines()[0])
    what = "not usable: 2 of 2 cases disturbed in most rounds"
    assert (lines[0], "not usable" in lines[1]) == (
        f"{what}; stop what else runs, and measure again: dlbench run mine.toml --device cpu",
        False,
    )
