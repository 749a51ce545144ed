"""A machine beside the reference runs that come with dlbench: copies of an earlier file, made slower, renamed or of another day."""

import json

import front_door
import made_up
import pytest

from dlbench.analysis.read.runs import ReferenceRun
from dlbench.core.model import Status

REFERENCE = front_door.FILES / "intel-xeon-processor" / "quick.jsonl"
XEON = "Intel(R) Xeon(R) Processor, 2 threads"


@pytest.fixture
def health(tmp_path):
    """The answer on health of a copy of the reference run, each case as many times as slow."""

    def ask(slower=lambda case: 1.0, edit=lambda lines: None, began="2026-12-01T00:00:00+00:00"):
        lines = front_door.lines(REFERENCE)
        lines[0]["environment"]["provenance"]["utc"] = began
        for line in lines:
            if line["kind"] == "measurement":
                line["samples"]["block_s"] = [slower(line["case"]["id"]) * each for each in line["samples"]["block_s"]]
        edit(lines)
        (tmp_path / "mine.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        done = front_door.in_process(tmp_path, "show", "mine.jsonl", "--topic", "all", "--format", "json")
        assert done.code == 0, done.err
        return json.loads(done.out)["answers"][-1]

    return ask


def beside(answer):
    (found,) = [table for table in answer["tables"] if table["title"].startswith("Beside reference runs")]
    return found


def line(answer):
    return answer["headline"], answer["qualifier"], answer["tags"]


def test_as_fast_as_the_same_hardware_is_normal(health):
    answer = health()
    assert answer["sentences"][-1].startswith("train_step alexnet batch=8 fp32: ratio 1.00 × (")
    assert line(answer) == ("usable; 6 of 14 cases noisy", "no difference shown to the reference", [])
    rows = beside(answer)["rows"]
    assert len(rows) == 14
    assert {(round(row["ratio.speedup"], 6), row["reference.off"]) for row in rows} == {(1.0, None)}
    assert beside(answer)["notes"] == [f"there: {XEON}, intel-xeon-processor (cnn, quick), measured 2026-11-21"]


def test_what_is_off_is_counted_and_the_farthest_named(health):
    factors = {"matmul[n=512,dtype=fp32]@cpu": 3.0, "train_step[model=alexnet,batch=8,dtype=fp32]@cpu": 2.0}
    answer = health(lambda case: factors.get(case, 1.0))
    assert line(answer) == ("0.333× as fast as this hardware elsewhere", "matmul n=512", [])
    off = {row["case.id"]: round(row["ratio.speedup"], 6) for row in beside(answer)["rows"] if row["reference.off"]}
    assert off == {case: pytest.approx(1 / factor, abs=1e-6) for case, factor in factors.items()}


def rename(lines, name, threads=2):
    lines[0]["devices"][0]["name"] = name
    for line in lines[1:]:
        if line["kind"] == "measurement":
            line |= {"device_name": name, "threads": threads}


@pytest.mark.parametrize(("name", "threads"), [("AMD EPYC 7B13", 2), ("Intel(R) Xeon(R) Processor", 16)])
def test_other_hardware_stands_beside_no_reference(health, name, threads):
    answer = health(lambda case: 4.0, lambda lines: rename(lines, name, threads))
    assert not [table for table in answer["tables"] if table["title"].startswith("Beside reference runs")]
    assert f"no other reference run has a case of cpu ({name}, {threads} threads); dlbench contribute makes one" in answer["weaknesses"]
    assert line(answer) == ("usable; 6 of 14 cases noisy", "", [])


def test_a_processor_of_the_same_name_with_other_units_is_another(health):
    def older(lines):
        lines[0]["environment"]["identity"]["cpu"]["isa"] = "AVX2"

    answer = health(lambda case: 4.0, older)
    assert not [table for table in answer["tables"] if table["title"].startswith("Beside reference runs")]


def test_the_slowest_kind_of_work_qualifies_the_headline_where_nothing_is_off(health):
    answer = health(lambda case: 1.2 if case.startswith("infer_step") else 1.0)
    assert line(answer)[1] == "inference 0.833× the reference"


def test_a_reference_run_is_not_held_against_itself(monkeypatch, health, earlier_files):
    own = tuple(run for run in earlier_files if run.machine == REFERENCE.parent.name)
    monkeypatch.setattr("dlbench.analysis.answers.health.reference_runs", lambda: own)
    began = front_door.lines(REFERENCE)[0]["environment"]["provenance"]["utc"]
    answer = health(began=began)
    assert not [table for table in answer["tables"] if table["title"].startswith("Beside reference runs")]
    assert f"no other reference run has a case of cpu ({XEON}); dlbench contribute makes one" in answer["weaknesses"]


def test_of_another_kind_of_device_or_other_workloads_the_first_line_alone_is_read(monkeypatch, asked):
    monkeypatch.setattr("dlbench.analysis.answers.health.rows_of", lambda runs: pytest.fail("read"))
    on_gpu = made_up.rounds_of(made_up.case("matmul", "cuda:0", n=512, dtype="fp32"), made_up.flat(made_up.SEVEN))
    other_work = made_up.rounds_of(made_up.case("mine", "cpu", n=512, dtype="fp32"), made_up.flat(made_up.SEVEN))
    weakness = "no other reference run has a case of cuda:0 (NVIDIA H200) and 1 more; dlbench contribute makes one"
    assert weakness in asked([*on_gpu, *other_work])["health"]["weaknesses"]


def test_of_a_damaged_reference_what_is_whole_counts(monkeypatch, health, tmp_path):
    path = tmp_path / "damaged" / "quick.jsonl"
    path.parent.mkdir()
    header, *rest = REFERENCE.read_text().splitlines(keepends=True)
    path.write_text("".join([header, "no JSON\n", *rest]))
    monkeypatch.setattr("dlbench.analysis.answers.health.reference_runs", lambda: (ReferenceRun(path, json.loads(header)),))
    whole = health(began="2026-12-02T00:00:00+00:00")
    assert beside(whole)["rows"]


def test_a_second_machine_on_which_all_failed_has_no_part_in_it(asked):
    case = made_up.case("matmul", "cpu", n=512, dtype="fp32")
    timed = [made_up.renamed(each, "Intel(R) Xeon(R) Processor", 2) for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN))]
    machine = {"identity": front_door.lines(REFERENCE)[0]["environment"]["identity"]}
    health = asked(timed, [made_up.ended(case, Status.CRASHED, "gone")], environment=machine)["health"]
    assert line(health)[:2] == ("1 of 2 cases failed", "matmul n=512: gone")
    assert [row["place"] for row in beside(health)["rows"]] == ["cpu (run0)"]
