from dataclasses import replace

import made_up
import pytest

from dlbench.core.conditions import Throttling
from dlbench.core.model import Status


def products(*seconds, device="cuda:0", **fields):
    return [
        each
        for n, second in enumerate(seconds)
        for each in made_up.rounds_of(made_up.case("matmul", device, n=n, dtype="fp32"), made_up.flat([second] * 7), **fields)
    ]


def line(answer):
    return answer["headline"], answer["qualifier"], answer["tags"]


def test_a_quiet_machine_shows_no_sign_and_says_what_share_of_its_peak_it_reaches(asked):
    answer = asked(products(1.0, 2.0, flops=33.5e12))["health"]
    assert answer["sentences"] == [
        "no trouble: cases 0, measured 2.",
        "matmul n=0 fp32: peak 50.0 %, of arithmetic: 67.0 TFLOP/s, dense fp32 on the ordinary cores of NVIDIA H200.",
    ]
    assert line(answer) == ("usable; no trouble in 2 cases", "50.0 % of the published peak", [])
    assert answer["weaknesses"] == [
        "no other reference run has a case of cuda:0 (NVIDIA H200); dlbench contribute makes one",
        "one file says nothing of other days: dlbench compare",
    ]


def test_of_two_devices_with_a_peak_the_lower_one_is_told(asked):
    answer = asked(products(1.0, flops=33.5e12), products(1.0, flops=6.7e12))["health"]
    assert [row["place"] for row in answer["tables"][1]["rows"]] == ["cuda:0 (run1)", "cuda:0 (run0)"]
    assert answer["cases"] == ["matmul[n=0,dtype=fp32]@cuda:0"]
    assert line(answer) == ("usable; no trouble in 2 cases", "cuda:0: 10.0 % of the published peak", [])


def test_signs_are_counted_and_what_can_not_be_true_is_no_share(asked):
    hot = [replace(each, throttling=Throttling(thermal=0.25)) for each in products(1.0, flops=6.7e12)]
    fast = [replace(each, case=made_up.case("conv2d", "cuda:0", dtype="fp32")) for each in products(1.0, flops=670e12)]
    failed = made_up.ended(made_up.case("matmul", "cpu", n=9), Status.FAILED, "it broke")
    oom = made_up.ended(made_up.case("matmul", "cpu", n=10), Status.OOM, "full")
    answer = asked([*hot, *fast, failed, oom])["health"]
    assert answer["sentences"][:2] == [
        "failed: cases 1, measured 3, such as matmul n=9.",
        "implausible: cases 1, measured 3, such as conv2d fp32.",
    ]
    assert line(answer) == ("1 of 3 cases failed", "matmul n=9: it broke", [])
    trouble, peaks = answer["tables"]
    assert [tuple(row[name] for name in ("sign", "cases", "measured", "case.id")) for row in trouble["rows"]] == [
        ("failed", 1, 3, "matmul[n=9]"),
        ("implausible", 1, 3, "conv2d[dtype=fp32]"),
        ("throttled", 1, 3, "matmul[n=0,dtype=fp32]"),
    ]
    assert [row["rate.peak_fraction"] for row in peaks["rows"]] == [pytest.approx(0.1)]


def test_of_many_files_the_one_that_stands_out_is_named(asked):
    answer = asked(*([*products(factor, flops=None)] for factor in (1.0, 1.0, 1.0, 1.0, 1.0, 1.5)))["health"]
    assert answer["weaknesses"][0] == (
        "run5 is slower than others with NVIDIA H200 in 1 of 1 case, most in matmul[n=0,dtype=fp32]@cuda:0: +50.0 % of their median"
    )
    assert line(answer) == ("1.50× the time of others of its kind", "run5", [])
    (outlier,) = answer["tables"][-1]["rows"]
    assert (outlier["outlier.file"], outlier["case.id"]) == ("run5", "matmul[n=0,dtype=fp32]@cuda:0")
    assert outlier["outlier.times"] == pytest.approx(1.5)


def test_few_files_are_too_few_and_a_cpu_has_no_peak(asked):
    answer = asked(products(1.0, device="cpu"), products(1.5, device="cpu"))["health"]
    assert answer["weaknesses"] == [
        "2 files with AMD EPYC 7B13: too few to compare; it takes 5 with the same case",
        "no published peak of these devices is known for what was measured",
        "no other reference run has a case of cpu (AMD EPYC 7B13, 2 threads, run0) and 1 more; dlbench contribute makes one",
    ]


def test_the_headline_has_the_gravest_sign_and_says_usable_while_the_numbers_stand(asked):
    hot, lost = Throttling(thermal=0.25), Throttling(waiting=0.5, stolen=0.0)

    def of(throttling, *seconds, good=()):
        spoiled = [replace(each, throttling=throttling) for each in products(*seconds, flops=None)]
        return line(asked([*spoiled, *products(*good, device="cpu", flops=None)])["health"])

    assert of(lost, 1.0, 2.0, good=[1.0]) == ("not usable: 2 of 3 disturbed", "", [])
    assert of(hot, 1.0) == ("not usable: 1 of 1 throttled", "", [])
    assert of(lost, 1.0, good=[1.0]) == ("usable; 1 of 2 cases disturbed", "", [])
    assert of(hot, 1.0, good=[1.0]) == ("1 of 2 cases throttled", "matmul n=0", [])
    noisy = made_up.rounds_of(made_up.case("matmul", n=1), made_up.flat([1.0, 2.0] * 4))
    assert line(asked(noisy)["health"]) == ("usable, but 1 of 1 case noisy", "", [])


def test_one_file_of_several_that_is_not_usable_is_named(asked):
    spoiled = [replace(each, throttling=Throttling(waiting=0.5, stolen=0.0)) for each in products(1.0, flops=None)]
    assert line(asked(products(1.0, 2.0, flops=None), spoiled)["health"]) == ("not usable: 1 of 3 cases", "run1", [])
