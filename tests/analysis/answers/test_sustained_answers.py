"""What answers say of sustained steps: how far short measurements are off, in health."""

from dataclasses import replace

import made_up
import pytest

from dlbench.core.conditions import Throttling

KEPT = (0.90, 0.91, 0.89, 0.92, 0.88, 0.90)


def test_health_says_how_far_the_burst_was_too_good_and_from_when_on(asked):
    steps = [*made_up.sustained("training", "cuda:0", KEPT, watts=300), *made_up.sustained("inference", "cpu", [1.0] * 6, batch=16)]
    answer = asked(steps, workloads=made_up.SUSTAINED)["health"]
    assert answer["sentences"][-1] == "sustained_training resnet18 batch=128 fp32, cuda:0: kept 90.0 % (88.0…92.0 %), fell after 20.0 s."
    (table,) = (each for each in answer["tables"] if each["title"] == "Burst against steady throughput")
    rows = [[each[name] for name in ("place", "sustained.kept", "sustained.low", "sustained.high")] for each in table["rows"]]
    assert rows == [["cuda:0", pytest.approx(0.9), pytest.approx(0.88), pytest.approx(0.92)], ["cpu", 1.0, 1.0, 1.0]]
    shown = [[each[name] for name in ("rate.items_per_s", "sustained.burst", "sustained.onset_s")] for each in table["rows"]]
    assert shown == [[pytest.approx(900), 1000, pytest.approx(20)], [1000, 1000, None]]
    assert [each["energy.watts"] for each in table["rows"]] == [pytest.approx(300), None]
    (drawn,) = answer["figures"]
    lines = [tuple(each[name] for name in ("sustained.line", "place", "sustained.at", "sustained.share")) for each in drawn["rows"]]
    passed, kept = [at / 6 for at in range(1, 7)], (1, 1, 0.9, 0.9, 0.9, 0.9)
    assert lines[:6] == [("sustained_training resnet18 b128", "cuda:0", *each) for each in zip(passed, kept, strict=True)]
    assert lines[6:] == [("sustained_inference resnet18 b16", "cpu", at, 1) for at in passed]


@pytest.mark.parametrize(
    ("points", "onset_s"),
    [
        ([100, 99, 98, 97, 96, 95, 94, 93, 92, 91], 24),  # 97 is the last within 3 %
        ([100, 100, 80, 100, 100, 80, 80, 100, 80, 80], 30),  # single points are held up, or go on, by chance
        ([90] * 10, 0),  # from the first second on, which was faster by itself
        ([80, 80, 80, 80, 80, 100, 100, 100, 100, 100], None),  # not by its series, which are of a second
    ],
)
def test_the_onset_is_the_last_time_that_throughput_was_near_its_burst(asked, points, onset_s):
    steps = [
        made_up.with_values(each, items_per_s=points, burst_items_per_s=100.0, steady_items_per_s=80.0)
        for each in made_up.sustained("training", "cpu", [0.8] * 6)
    ]
    answer = asked(steps, workloads=made_up.SUSTAINED)["health"]
    (table,) = (each for each in answer["tables"] if each["title"] == "Burst against steady throughput")
    assert table["rows"][0]["sustained.onset_s"] == (onset_s if onset_s is None else pytest.approx(onset_s))


def test_a_workload_of_others_need_tell_no_series(asked):
    declared = made_up.SUSTAINED["sustained_training"]
    told = {**declared, "values": [each for each in declared["values"] if each["name"] != "items_per_s"]}
    steps = [
        made_up.with_values(each, burst_items_per_s=10.0, steady_items_per_s=9.0) for each in made_up.sustained("training", "cpu", [1])
    ]
    answer = asked(steps, workloads={"sustained_training": told})["health"]
    (table,) = (each for each in answer["tables"] if each["title"] == "Burst against steady throughput")
    assert [(each["sustained.burst"], each["sustained.kept"]) for each in table["rows"]] == [(10.0, 0.9)]
    assert answer["figures"] == []


def test_a_machine_that_throttles_while_that_is_measured_is_not_unusable(asked):
    hot = Throttling(reasons=("hw_thermal_slowdown",))
    steps = [replace(each, throttling=hot) for each in made_up.sustained("training", "cuda:0", KEPT, watts=300)]
    assert asked(steps, workloads=made_up.SUSTAINED)["health"]["headline"] == "1 of 1 case throttled"
