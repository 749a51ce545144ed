"""A machine beside the reference runs that come with dlbench: copies of an earlier file, made slower, renamed or of another day."""

import json

import front_door
import made_up
import pytest
from plain_answers import head_of, rows_of

from dlbench.analysis.read.runs import ReferenceRun
from dlbench.core.model import Status

REFERENCE = front_door.FILES / "intel-xeon-processor" / "quick.jsonl"
XEON = "Intel(R) Xeon(R) Processor"
BESIDE = "Beside reference runs"
OTHER_DAY = "2026-12-01T00:00:00+00:00"


@pytest.fixture
def health(tmp_path):
    """The answer on health of a copy of the reference run, each case as many times as slow, of a CPU of that name, threads and units."""

    def ask(slower=lambda case: 1.0, name=XEON, threads=2, isa=None, began=OTHER_DAY):
        header, *lines = front_door.lines(REFERENCE)
        header["environment"]["provenance"]["utc"] = began
        header["devices"][0]["name"] = name
        header["environment"]["identity"]["cpu"].update({"isa": isa} if isa else {})
        for line in lines:
            if line["kind"] == "measurement":
                line["samples"]["block_s"] = [slower(line["case"]["id"]) * each for each in line["samples"]["block_s"]]
                line |= {"device_name": name, "threads": threads}
        (tmp_path / "mine.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in (header, *lines)))
        done = front_door.in_process(tmp_path, "show", "mine.jsonl", "--topic", "health", "--format", "json")
        assert done.code == 0, done.err
        return json.loads(done.out)["answers"][0]

    return ask


def test_as_fast_as_the_same_hardware_is_normal(health):
    answer = health()
    assert answer["sentences"][-1].startswith("train_step alexnet batch=8 fp32: ratio 1.00 × (")
    assert head_of(answer) == ("usable; 6 of 14 cases noisy", "no difference shown to the reference", [])
    assert [round(row["ratio.speedup"], 6) for row in rows_of(answer, BESIDE)] == [1.0] * 14
    assert answer["tables"][-1]["notes"] == [f"there: {XEON}, 2 threads, intel-xeon-processor (cnn, quick), measured 2026-11-21"]


def test_the_case_that_is_farthest_off_is_the_headline_and_else_the_slowest_kind_of_work_its_qualifier(health):
    factors = {"matmul[n=512,dtype=fp32]@cpu": 3.0, "train_step[model=alexnet,batch=8,dtype=fp32]@cpu": 2.0}
    answer = health(lambda case: factors.get(case, 1.0))
    assert head_of(answer) == ("0.333× as fast as this hardware elsewhere", "matmul n=512", [])
    slower = {row["case.id"]: row["ratio.speedup"] for row in rows_of(answer, BESIDE) if row["ratio.speedup"] < 0.99}
    assert slower == {case: pytest.approx(1 / factor) for case, factor in factors.items()}
    assert head_of(health(lambda case: 1.2 if case.startswith("infer_step") else 1.0))[1] == "inference 0.833× the reference"


@pytest.mark.parametrize("change", [{"name": "AMD EPYC 7B13"}, {"threads": 16}, {"isa": "AVX2"}], ids=lambda change: next(iter(change)))
def test_other_hardware_stands_beside_no_reference(health, change):
    answer = health(lambda case: 4.0, **change)
    assert not rows_of(answer, BESIDE)
    device = f"{change.get('name', XEON)}, {change.get('threads', 2)} threads"
    assert f"no other reference run has a case of cpu ({device}); dlbench contribute makes one" in answer["weaknesses"]
    assert head_of(answer) == ("usable; 6 of 14 cases noisy", "", [])


def test_a_reference_run_is_not_held_against_itself(monkeypatch, health, earlier_files):
    own = tuple(run for run in earlier_files if run.machine == REFERENCE.parent.name)
    monkeypatch.setattr("dlbench.analysis.answers.health.reference_runs", lambda: own)
    answer = health(began=front_door.lines(REFERENCE)[0]["environment"]["provenance"]["utc"])
    assert not rows_of(answer, BESIDE)
    assert f"no other reference run has a case of cpu ({XEON}, 2 threads); dlbench contribute makes one" in answer["weaknesses"]


def test_of_another_kind_of_device_or_other_workloads_the_first_line_alone_is_read(monkeypatch, asked):
    monkeypatch.setattr("dlbench.analysis.answers.health.rows_of", lambda runs: pytest.fail("read"))
    cases = made_up.case("matmul", "cuda:0", n=512, dtype="fp32"), made_up.case("mine", "cpu", n=512, dtype="fp32")
    weakness = "no other reference run has a case of cuda:0 (NVIDIA H200) and 1 more; dlbench contribute makes one"
    answer = asked([each for case in cases for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN))])["health"]
    assert weakness in answer["weaknesses"]


def test_of_a_damaged_reference_what_is_whole_counts(monkeypatch, health, tmp_path):
    path = tmp_path / "damaged" / "quick.jsonl"
    path.parent.mkdir()
    header, *rest = REFERENCE.read_text().splitlines(keepends=True)
    path.write_text("".join([header, "no JSON\n", *rest]))
    monkeypatch.setattr("dlbench.analysis.answers.health.reference_runs", lambda: (ReferenceRun(path, json.loads(header)),))
    assert rows_of(health(began="2026-12-02T00:00:00+00:00"), BESIDE)


def test_a_second_machine_on_which_all_failed_has_no_part_in_it(asked):
    case = made_up.case("matmul", "cpu", n=512, dtype="fp32")
    timed = [made_up.renamed(each, XEON, 2) for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN))]
    machine = {"identity": front_door.lines(REFERENCE)[0]["environment"]["identity"]}
    answer = asked(timed, [made_up.ended(case, Status.CRASHED, "gone")], environment=machine)["health"]
    assert head_of(answer)[:2] == ("1 of 2 cases failed", "matmul n=512: gone")
    assert [row["place"] for row in rows_of(answer, BESIDE)] == ["cpu (run0)"]
