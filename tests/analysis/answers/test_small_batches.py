import made_up
import pytest


def training(batch, norm="batch", rate=0.1, device="cpu", **values):
    case = made_up.case("small_batch", device, batch=batch, norm=norm, learning_rate=rate)
    rounds = made_up.rounds_of(case, [[1.0]] * 7)
    return [
        made_up.without_rounds(made_up.with_values(each, **{**values, "sample_s": values["sample_s"] * factor}))
        for each, factor in zip(rounds, made_up.SEVEN, strict=True)
    ]


def test_what_a_small_batch_costs_is_a_ratio_and_divergence_stands_beside_it(asked):
    answer = asked(
        [
            *training(1, sample_s=5e-4, accuracy=0.1, diverged_at=320),
            *training(64, sample_s=1e-4, accuracy=0.9),
            *training(1, rate=0.01, sample_s=6e-4, accuracy=0.8),
            *training(64, rate=0.01, sample_s=1e-4, accuracy=0.5),
        ]
    )["batch"]
    assert (answer["headline"], answer["qualifier"], answer["tags"]) == (
        "batch 1 costs 6.00× batch 64 (5.82…6.19)",
        "small_batch batch learning_rate=0.01",
        [],
    )
    assert answer["sentences"] == [
        "small_batch batch learning_rate=0.01: batch 1, a sample 600 µs, ratio 6.00 × (5.82…6.19), accuracy 80.0 %.",
    ]
    (table,) = answer["tables"]
    assert [repr(row["small.batch"]) for row in table["rows"]] == ["1", "64", "1", "64"]
    assert [row["small.diverged_at"] for row in table["rows"]] == [None, None, 320, None]
    assert [row["ratio.speedup"] for row in table["rows"]] == pytest.approx([6, 1, 5, 1])


def test_it_stands_beside_the_throughput_of_other_work(asked):
    steps = [
        each
        for batch in (1, 8)
        for each in made_up.rounds_of(made_up.case("train_step", model="a", batch=batch, dtype="fp32"), [[1.0]] * 7, items=batch)
    ]
    answer = asked([*steps, *training(1, sample_s=5e-4, accuracy=0.9), *training(8, sample_s=1e-4, accuracy=0.9)])["batch"]
    assert answer["headline"] == "8 is the largest measured; more may help"
    assert answer["sentences"][-1].startswith("small_batch batch learning_rate=0.1: batch 1, a sample 500 µs, ratio 5.00 ×")
    assert len(answer["tables"]) == 2


@pytest.mark.parametrize("odd", [0.0, -1.0, 1e308])
def test_odd_numbers_of_an_edited_file_do_no_harm(asked, odd):
    rows = [*training(1, sample_s=odd, accuracy=1e9, diverged_at=-5), *training(64, sample_s=1e-4, accuracy=0.9)]
    assert asked(rows)["batch"]


def test_one_batch_is_no_comparison(asked):
    assert asked(training(1, sample_s=1.0, accuracy=0.5))["batch"]["command"] == "dlbench run batch"


def test_a_cost_whose_interval_holds_1_is_no_ratio(asked):
    answer = asked([*training(1, sample_s=1e-4, accuracy=0.9), *training(64, sample_s=1e-4, accuracy=0.9)])["batch"]
    assert (answer["headline"], answer["tags"]) == ("batch 1 or 64: no difference shown", ["noisy"])
