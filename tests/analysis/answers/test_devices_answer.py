import made_up
import pytest


def steps(seconds, ranks, device="cuda:0", form="ddp", threads=1):
    case = made_up.case("data_parallel", device, form=form, model="resnet18", batch=32, ranks=ranks, scaling="weak")
    times = made_up.flat([seconds * each for each in made_up.SEVEN])
    return made_up.rounds_of(case, times, items=ranks * 32, threads=threads)


def line(answer):
    return tuple(answer[each] for each in ("headline", "qualifier", "tags"))


def test_the_way_that_brings_the_most_and_what_the_others_do(asked):
    ddp = [*steps(1.0, 1), *steps(1.25, 2), *steps(1.6, 4)]
    measured = [*ddp, *steps(1.0, 1, form="fsdp"), *steps(2.5, 2, form="fsdp")]
    answer = asked(measured)["devices"]
    qualifier = "data_parallel ddp resnet18 b32, weak"
    assert line(answer) == ("2 ranks 1.60× one (1.54…1.66), 4 ranks 2.50×", qualifier, ["estimate"])
    assert answer["sentences"] == [
        "data_parallel ddp resnet18 batch=32, weak: ranks 2, speed-up 1.60 × (1.54…1.66), efficiency 80.0 %, verdict helps.",
        "data_parallel ddp resnet18 batch=32, weak: ranks 4, speed-up 2.50 × (2.40…2.60), efficiency 62.5 %, verdict helps.",
    ]
    assert answer["weaknesses"] == []
    (table,) = answer["tables"]
    assert [row["scaling.verdict"] for row in table["rows"]] == ["base", "helps", "helps", "base", "slows"]
    ends = [(row["scaling.speedup_low"], row["scaling.speedup_high"]) for row in table["rows"][1:3]]
    assert ends == [pytest.approx((1.5378, 1.6646), abs=1e-4), pytest.approx((2.4029, 2.6010), abs=1e-4)]
    few = asked([each for each in measured if each.round < 4])["devices"]
    assert line(few) == ("2 ranks 1.60× one, 4 ranks 2.50×", qualifier, ["few rounds", "estimate"])


@pytest.mark.parametrize(
    ("seconds", "headline", "tags"),
    [
        (2.5, "no gain: 0.800× (0.776…0.825) with 2 ranks", []),
        (2.0, "no gain shown with 2 ranks", ["noisy"]),
    ],
)
def test_a_way_that_gains_nothing_says_so_first(asked, seconds, headline, tags):
    answer = asked([*steps(1.0, 1), *steps(seconds, 2)])["devices"]
    assert line(answer) == (headline, "data_parallel ddp resnet18 b32, weak", tags)


def test_the_only_way_of_too_few_rounds_is_not_the_best_of_any(asked):
    few = [each for each in [*steps(1.0, 1), *steps(1.25, 2)] if each.round < 3]
    answer = asked(few)["devices"]
    assert line(answer) == ("2 ranks 1.60× one", "data_parallel ddp resnet18 b32, weak", ["few rounds"])


def test_of_two_machines_the_one_that_gains_most_is_named_and_a_long_form_is_cut(asked):
    form = "f" * 200
    answer = asked([*steps(1.0, 1), *steps(1.6, 2)], [*steps(1.0, 1), *steps(1.25, 2)])["devices"]
    assert line(answer)[:2] == ("2 ranks 1.60× one (1.55…1.65)", "ddp resnet18 b32 on run1 and 1 more")
    assert line(asked([*steps(1.0, 1, form=form), *steps(1.25, 2, form=form)])["devices"])[1] == f"{'f' * 37}…"


def test_a_form_that_shares_nothing_is_no_answer_and_a_cpu_says_nothing_of_accelerators(asked):
    measured = [*steps(1.0, 1, "cpu", threads=2), *steps(1.6, 2, "cpu"), *steps(1.0, 2, "cpu", form="replicas")]
    answer = asked(measured)["devices"]
    assert line(answer)[0] == "2 ranks 1.25× one (1.21…1.29)"
    assert answer["tags"] == ["estimate"]
    assert answer["sentences"] == [
        "data_parallel ddp resnet18 batch=32, weak: ranks 2, speed-up 1.25 × (1.21…1.29), efficiency 125.0 %, verdict scales."
    ]


def test_without_a_base_nothing_is_said(asked):
    answer = asked(steps(1.0, 2))["devices"]
    assert (answer["kind"], answer["command"]) == ("missing", "dlbench run scaling")
    assert answer["reason"] == "no work went well both on several ranks and on one"
