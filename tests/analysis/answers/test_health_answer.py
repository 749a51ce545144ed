from dataclasses import replace

import made_up

from dlbench.core.conditions import Throttling
from dlbench.core.model import Status


def products(*seconds, device="cuda:0", **fields):
    return [
        each
        for n, second in enumerate(seconds)
        for each in made_up.rounds_of(made_up.case("matmul", device, n=n, dtype="fp32"), made_up.flat([second] * 7), **fields)
    ]


def test_a_quiet_machine_shows_no_sign_and_says_what_share_of_its_peak_it_reaches(asked):
    answer = asked(products(1.0, 2.0, flops=33.5e12))["health"]
    assert answer["sentences"] == [
        "No sign of trouble in 2 cases.",
        "cuda:0 reaches 50.0 % of its published peak in matmul n=0 fp32 "
        "(arithmetic: 67.0 TFLOP/s, dense fp32 on the ordinary cores of NVIDIA H200).",
    ]
    assert answer["weaknesses"] == [
        "no reference run has a case of cuda:0 (NVIDIA H200); dlbench contribute makes one",
        "one file says nothing of other days: dlbench compare",
    ]


def test_of_two_devices_with_a_peak_the_second_is_said_to_be_in_the_table(asked):
    answer = asked(*(products(1.0, flops=33.5e12) for _ in range(2)))["health"]
    assert len(answer["sentences"]) == 2
    assert "1 more device: in the table only" in answer["weaknesses"]
    assert answer["cases"] == ["matmul[n=0,dtype=fp32]@cuda:0"]


def test_signs_are_counted_and_what_can_not_be_true_is_no_share(asked):
    hot = [replace(each, throttling=Throttling(thermal=0.25)) for each in products(1.0, flops=6.7e12)]
    fast = [replace(each, case=made_up.case("conv2d", "cuda:0", dtype="fp32")) for each in products(1.0, flops=670e12)]
    failed = made_up.ended(made_up.case("matmul", "cpu", n=9), Status.FAILED, "it broke")
    oom = made_up.ended(made_up.case("matmul", "cpu", n=10), Status.OOM, "full")
    answer = asked([*hot, *fast, failed, oom])["health"]
    assert answer["sentences"][0] == "Signs of trouble among 3 cases: 1 failed or crashed, 1 implausible, 1 throttled."
    assert answer["sentences"][1].startswith("cuda:0 reaches 10.0 % of its published peak in matmul n=0 fp32 ")
    trouble, _ = answer["tables"]
    assert [(row["place"], row["sign"], row["cases"], row["measured"]) for row in trouble["rows"]] == [
        ("cuda:0", "implausible", 1, 2),
        ("cuda:0", "throttled", 1, 2),
        ("cpu", "failed or crashed", 1, 1),
    ]


def test_of_many_files_the_one_that_stands_out_is_named(asked):
    answer = asked(*([*products(factor, flops=None)] for factor in (1.0, 1.0, 1.0, 1.0, 1.0, 1.5)))["health"]
    (sentence,) = answer["sentences"]
    assert sentence == (
        "No sign of trouble in 6 cases; run5 is slower than others with NVIDIA H200 in 1 of 1 case, "
        "most in matmul[n=0,dtype=fp32]@cuda:0: +50.0 % of their median time."
    )


def test_few_files_are_too_few_and_a_cpu_has_no_peak(asked):
    answer = asked(products(1.0, device="cpu"), products(1.5, device="cpu"))["health"]
    assert answer["sentences"] == [
        "No sign of trouble in 2 cases; 2 files with AMD EPYC 7B13: too few to tell what stands out; it takes 5 with the same case."
    ]
    assert answer["weaknesses"] == [
        "no published peak of these devices is known for what was measured",
        "no reference run has a case of cpu (AMD EPYC 7B13, 2 threads, run0) or cpu (AMD EPYC 7B13, 2 threads, run1); "
        "dlbench contribute makes one",
    ]


def test_nothing_measured_is_no_answer(asked):
    answer = asked([made_up.ended(made_up.case("matmul", n=1), Status.UNSUPPORTED, "no")])["health"]
    assert (answer["reason"], answer["command"]) == ("no case was measured", "dlbench run")
