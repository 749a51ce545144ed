"""Health of a machine: its peak, its signs of trouble, sustained steps, and reference runs of the same hardware."""

import json
from dataclasses import replace

import front_door
import made_up
import pytest
from plain_answers import columns_of, head_of, rows_of

from dlbench.analysis.read.runs import ReferenceRun
from dlbench.core.conditions import Throttling
from dlbench.core.model import Status

HOT, LOST = Throttling(thermal=0.25), Throttling(waiting=0.5, stolen=0.0)
KEPT = (0.90, 0.91, 0.89, 0.92, 0.88, 0.90)
STEADY = "Burst against steady throughput"


def products(*seconds, device="cuda:0", throttling=None, **fields):
    """Seven rounds of a product that takes so long, for each of these."""
    cases = [(made_up.case("matmul", device, n=n, dtype="fp32"), made_up.flat([each] * 7)) for n, each in enumerate(seconds)]
    return [replace(each, throttling=throttling) for case, rounds in cases for each in made_up.rounds_of(case, rounds, **fields)]


def of_series(points, **values):
    """Rounds of a training that reports these points."""
    values = {"items_per_s": points, "burst_items_per_s": 100.0, "steady_items_per_s": 80.0, **values}
    return [made_up.with_values(each, **values) for each in made_up.sustained("training", "cpu", [0.8] * 6)]


def test_what_it_says(scenes):
    fast = [replace(each, case=made_up.case("conv2d", "cuda:0", dtype="fp32")) for each in products(1.0, flops=670e12)]
    ended = [made_up.ended(made_up.case("matmul", n=n), *how) for n, how in ((9, (Status.FAILED, "it broke")), (10, (Status.OOM, "full")))]
    found = {
        "a quiet card at half of its peak": products(1.0, 2.0, flops=33.5e12),
        "two machines whose cards reach half and a tenth of it": (products(1.0, flops=33.5e12), products(1.0, flops=6.7e12)),
        "a hot product, one that can't be true, one that failed, and one too large": [
            *products(1.0, flops=6.7e12, throttling=HOT), *fast, *ended,
        ],
        "six files of a kind of which the last takes half as long again": (*[products(1.0, flops=None)] * 5, products(1.5, flops=None)),
        "two CPUs": (products(1.0, device="cpu"), products(1.5, device="cpu")),
        "a training that keeps nine tenths, and an inference that keeps all": [
            *made_up.sustained("training", "cuda:0", KEPT, watts=300), *made_up.sustained("inference", "cpu", [1.0] * 6, batch=16),
        ],
    }  # fmt: skip
    on_cpu, slowed = products(1.0, device="cpu", flops=None), Throttling(reasons=("hw_thermal_slowdown",))
    heads = {
        "most cases disturbed": [*products(1.0, 2.0, throttling=LOST, flops=None), *on_cpu],
        "all cases hot": products(1.0, throttling=HOT, flops=None),
        "half of the cases disturbed": [*products(1.0, throttling=LOST, flops=None), *on_cpu],
        "half of the cases hot": [*products(1.0, throttling=HOT, flops=None), *on_cpu],
        "all cases noisy": made_up.rounds_of(made_up.case("matmul", n=1), made_up.flat([1.0, 2.0] * 4)),
        "the second of two files disturbed": (products(1.0, 2.0, flops=None), products(1.0, throttling=LOST, flops=None)),
        "heat that a sustained step measures": [replace(each, throttling=slowed) for each in made_up.sustained("training", "cuda:0", KEPT)],
    }
    scenes("health", "health", found, heads, workloads=made_up.SUSTAINED)


def test_the_curve_of_a_sustained_step_is_relative_to_its_beginning(asked):
    steps = [*made_up.sustained("training", "cuda:0", KEPT, watts=300), *made_up.sustained("inference", "cpu", [1.0] * 6, batch=16)]
    answer = asked(steps, workloads=made_up.SUSTAINED)["health"]
    drawn = columns_of(answer["figures"][0]["rows"], "sustained.line", "place", "sustained.at", "sustained.share")
    assert drawn == [
        (line, place, at / 6, share)
        for line, place, shares in (
            ("sustained_training resnet18 b128", "cuda:0", (1, 1, 0.9, 0.9, 0.9, 0.9)),
            ("sustained_inference resnet18 b16", "cpu", (1,) * 6),
        )
        for at, share in enumerate(shares, 1)
    ]


@pytest.mark.parametrize(
    ("points", "onset_s"),
    [
        ([100, 99, 98, 97, 96, 95, 94, 93, 92, 91], pytest.approx(24)),  # 97 is the last within 3 %
        ([100, 100, 80, 100, 100, 80, 80, 100, 80, 80], pytest.approx(30)),  # single points are held up, or go on, by chance
        ([90] * 10, 0),  # from the first second on, which was faster by itself
        ([80, 80, 80, 80, 80, 100, 100, 100, 100, 100], None),  # not by its series, which are of a second
    ],
)
def test_the_onset_is_the_last_time_that_throughput_was_near_its_burst(asked, points, onset_s):
    answer = asked(of_series(points), workloads=made_up.SUSTAINED)["health"]
    assert rows_of(answer, STEADY)[0]["sustained.onset_s"] == onset_s


def test_a_series_that_begins_at_zero_has_no_curve(asked):
    assert asked(of_series((0.0, *[1.0] * 7)), workloads=made_up.SUSTAINED)["health"]["figures"] == []


def test_a_workload_of_others_need_report_no_series(asked):
    declared = made_up.SUSTAINED["sustained_training"]
    values = [each for each in declared["values"] if each["name"] != "items_per_s"]
    steps = of_series((), burst_items_per_s=10.0, steady_items_per_s=9.0)
    answer = asked(steps, workloads={"sustained_training": {**declared, "values": values}})["health"]
    assert columns_of(rows_of(answer, STEADY), "sustained.burst", "sustained.kept") == [(10.0, 0.9)]
    assert answer["figures"] == []


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
