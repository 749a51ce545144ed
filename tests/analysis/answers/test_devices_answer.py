import made_up


def steps(seconds, ranks, device="cuda:0", form="ddp", threads=1):
    case = made_up.case("data_parallel", device, form=form, model="resnet18", batch=32, ranks=ranks, scaling="weak")
    times = made_up.flat([seconds * each for each in made_up.SEVEN])
    return made_up.rounds_of(case, times, items=ranks * 32, threads=threads)


def test_the_way_that_brings_the_most_and_what_the_others_do(asked):
    ddp = [*steps(1.0, 1), *steps(1.25, 2), *steps(1.6, 4)]
    measured = [*ddp, *steps(1.0, 1, form="fsdp"), *steps(2.5, 2, form="fsdp")]
    answer = asked(measured)["devices"]
    assert answer["sentences"] == [
        "A second GPU buys 1.60 × (1.54…1.66), 4 GPUs 2.50 × (2.40…2.60): data_parallel ddp resnet18 batch=32, weak, the most of 2 ways.",
        "Of 3 cases of several ranks 2 help, 1 slow down.",
    ]
    (few, _) = asked([each for each in measured if each.round < 4])["devices"]["sentences"]
    assert few.startswith("A second GPU buys 1.60 × (no interval before 5 rounds), 4 GPUs 2.50 ×")
    assert answer["weaknesses"] == [
        "5 of 5 cases it rests on are noisy",
        "the way was chosen for bringing the most: its intervals allow for that, but its ratios are on the high side",
    ]
    (table,) = answer["tables"]
    assert [row["scaling.verdict"] for row in table["rows"]] == ["base", "helps", "helps", "base", "slows"]


def test_the_only_way_of_too_few_rounds_says_how_many_it_takes(asked):
    few = [each for each in [*steps(1.0, 1), *steps(1.25, 2)] if each.round < 3]
    assert asked(few)["devices"]["sentences"] == [
        "A second GPU buys 1.60 × (no interval before 4 rounds): data_parallel ddp resnet18 batch=32, weak."
    ]


def test_a_form_that_shares_nothing_is_no_answer_and_a_cpu_says_nothing_of_accelerators(asked):
    measured = [*steps(1.0, 1, "cpu", threads=2), *steps(1.6, 2, "cpu"), *steps(1.0, 2, "cpu", form="replicas")]
    answer = asked(measured)["devices"]
    assert answer["sentences"] == [
        "2 ranks of 1 core do 1.25 × (1.21…1.29) the work of one rank with 2 cores: data_parallel ddp resnet18 batch=32, weak."
    ]
    assert answer["weaknesses"][-1] == "ranks on a CPU share its cores, which says nothing of accelerators"


def test_without_a_base_nothing_is_said(asked):
    answer = asked(steps(1.0, 2))["devices"]
    assert (answer["kind"], answer["command"]) == ("missing", "dlbench run scaling")
    assert answer["reason"] == "no case of several ranks went well beside the same work of one rank"
