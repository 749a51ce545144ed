"""Health of a machine: its peak, its signs of trouble, machines like it, and how much a sustained step keeps of its burst."""

from dataclasses import replace

import made_up
import pytest
from plain_answers import columns_of, head_of, rows_of

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
    scenes("health", "health", found, workloads=made_up.SUSTAINED)


NOISY = made_up.rounds_of(made_up.case("matmul", n=1), made_up.flat([1.0, 2.0] * 4))
ON_CPU = products(1.0, device="cpu", flops=None)


@pytest.mark.parametrize(
    ("files", "headline", "qualifier"),
    [
        ([[*products(1.0, 2.0, throttling=LOST, flops=None), *ON_CPU]], "not usable: 2 of 3 disturbed", ""),
        ([products(1.0, throttling=HOT, flops=None)], "not usable: 1 of 1 throttled", ""),
        ([[*products(1.0, throttling=LOST, flops=None), *ON_CPU]], "usable; 1 of 2 cases disturbed", ""),
        ([[*products(1.0, throttling=HOT, flops=None), *ON_CPU]], "1 of 2 cases throttled", "matmul n=0"),
        ([NOISY], "usable, but 1 of 1 case noisy", ""),
        ([products(1.0, 2.0, flops=None), products(1.0, throttling=LOST, flops=None)], "not usable: 1 of 3 cases", "run1"),
    ],
)
def test_the_headline_has_the_gravest_sign_and_says_usable_while_the_numbers_stand(asked, files, headline, qualifier):
    assert head_of(asked(*files)["health"]) == (headline, qualifier, [])


def test_a_machine_that_throttles_while_that_is_measured_is_not_unusable(asked):
    hot = Throttling(reasons=("hw_thermal_slowdown",))
    steps = [replace(each, throttling=hot) for each in made_up.sustained("training", "cuda:0", KEPT, watts=300)]
    assert asked(steps, workloads=made_up.SUSTAINED)["health"]["headline"] == "1 of 1 case throttled"


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


def test_a_workload_of_others_need_report_no_series(asked):
    declared = made_up.SUSTAINED["sustained_training"]
    values = [each for each in declared["values"] if each["name"] != "items_per_s"]
    steps = of_series((), burst_items_per_s=10.0, steady_items_per_s=9.0)
    answer = asked(steps, workloads={"sustained_training": {**declared, "values": values}})["health"]
    assert columns_of(rows_of(answer, STEADY), "sustained.burst", "sustained.kept") == [(10.0, 0.9)]
    assert answer["figures"] == []
