from dataclasses import replace

import made_up
import pytest

from dlbench.analysis.answers import answers
from dlbench.analysis.read.table import collect
from dlbench.core.conditions import Throttling
from dlbench.core.prices import NO_PRICES, Prices

IMAGES = 1_281_167


def steps(seconds, device="cuda:0", items=64, workload="train_step", **params):
    a_case = made_up.case(workload, device, **{"model": "resnet50", "batch": items, "dtype": "amp_bf16", **params})
    return made_up.rounds_of(a_case, made_up.flat([seconds * each for each in made_up.SEVEN]), items=items, flops=None)


def line(answer):
    return answer["headline"], answer["qualifier"], answer["tags"]


@pytest.fixture
def found_of(tmp_path):
    """The answer on costs to measurements, with prices."""

    def answer(measured, prices=NO_PRICES):
        results = replace(collect([made_up.write(tmp_path / f"run{len([*tmp_path.iterdir()])}.jsonl", measured)]), prices=prices)
        return next(each for each in answers(results) if each.question.topic == "cost")

    return answer


def test_the_time_to_train_is_the_images_of_all_epochs_at_the_measured_rate(asked):
    # 90 epochs in 19,200 s, and in 41 days.
    gpu, cpu = (64 / (IMAGES * 90 / total) for total in (19_200, 41 * 86_400))
    answer = asked([*steps(gpu, layout="channels_last"), *steps(cpu, "cpu", dtype="fp32")])["cost"]
    assert answer["sentences"] == [
        "resnet50, cuda:0, batch=64 amp_bf16 channels_last: samples 6.01 k/s, time to train 8.33 s (8.08…8.58 s).",
        "resnet50, cpu, batch=64 fp32: samples 32.5 /s, time to train 26 min (25…26 min).",
        "resnet50, cuda:0, batch=64 amp_bf16 channels_last: samples 6.01 k/s, time to train 5 h 20 min (5 h 10 min…5 h 30 min).",
    ]
    of_gpu = ("8.33 s (8.08…8.58) for 50,000 images, resnet50", "resnet50 b64 amp_bf16 channels_last", ["estimate"])
    assert line(answer) == of_gpu
    few, table = answer["tables"]
    assert [row["train.seconds"] for row in few["rows"]] == [pytest.approx(50_000 * each / 64) for each in (gpu, cpu)]
    assert [(row["place"], row["train.epochs"], row["train.seconds"], row["train.took"]) for row in table["rows"]] == [
        ("cuda:0", 90, pytest.approx(19_200), None),
        ("cpu", 90, pytest.approx(41 * 86_400), None),
    ]
    assert [row["train.low"] for row in table["rows"]] == [pytest.approx(0.97 * 19_200), pytest.approx(0.97 * 41 * 86_400)]
    assert answer["weaknesses"] == [
        "reading and decoding images, validation, checkpoints and clocks that change over hours are left out",
        "whether training converges in another precision or at another batch is open: see --topic precision",
        "energy is open: nothing metered these steps: dlbench run sustained",
        "money is open: give --price, such as cuda=2.50/h",
    ]


def test_of_a_network_the_fastest_row_counts_and_beside_another_stands_what_it_took_its_authors(asked):
    fast, slow = steps(0.01, items=64), steps(0.01, items=8)
    answer = asked([*fast, *slow, *steps(0.02, model="vgg16"), *steps(0.001, model="alexnet")])["cost"]
    assert line(answer)[:2] == ("7.81 s (7.58…8.05) for 50,000 images, resnet50", "resnet50 b64 amp_bf16")
    _, table = answer["tables"]
    assert [(row["param.model"], row["train.choice"]) for row in table["rows"]] == [
        ("resnet50", "batch=64 amp_bf16"),
        ("vgg16", "batch=64 amp_bf16"),
        ("alexnet", "batch=64 amp_bf16"),
    ]
    assert "5 to 6 days on two NVIDIA GTX 580: Krizhevsky et al., NIPS 2012, section 5" in table["notes"]


def test_of_several_devices_the_first_and_the_cpu_are_told_and_the_table_has_the_others(asked):
    second = [replace(each, case=made_up.case("train_step", "cuda:1", **each.case.params)) for each in steps(0.02)]
    answer = asked([*steps(0.01), *second, *steps(1.0, "cpu")])["cost"]
    assert [each.partition(":0")[0].partition(",")[2].split(",")[0] for each in answer["sentences"]] == [" cuda", " cpu", " cuda"]
    assert line(answer)[1] == "b64 amp_bf16 on cuda:0 and 1 more"
    assert line(asked(steps(0.02), steps(0.01))["cost"])[1] == "b64 amp_bf16 on run1 and 1 more"
    spoiled = [replace(each, throttling=Throttling(thermal=0.5 * (not each.round))) for each in steps(0.01, mode="m" * 200)]
    marked = line(asked(spoiled)["cost"])
    assert marked[1:] == ("resnet50 b64 amp_bf16…", ["throttled", "estimate"])


def test_a_network_without_a_published_schedule_comes_first_with_what_few_samples_take(asked):
    answer = asked([*steps(0.01, model="mine"), *steps(0.01)])["cost"]
    assert answer["headline"] == "7.81 s (7.58…8.05) for 50,000 images, mine"
    assert [each["title"] for each in answer["tables"]] == [
        "Time to train on 50,000 images: an estimate",
        "Time to train on ImageNet: an estimate",
    ]
    assert [row["param.model"] for row in answer["tables"][0]["rows"]] == ["mine", "resnet50"]
    assert [row["train.seconds"] for row in answer["tables"][0]["rows"]] == [
        pytest.approx(50_000 / row["train.items_per_s"]) for row in answer["tables"][0]["rows"]
    ]


@pytest.mark.parametrize(
    ("devices", "prices", "expected"),
    [
        (
            ("cpu",),
            NO_PRICES,
            ("CPU only?", "mine trains at 64.0 images/s: 50,000 images in 13 min (13)"),
        ),
        (
            ("cuda:0", "cpu"),
            NO_PRICES,
            ("your data", "mine trains at 64.0 images/s: 50,000 images in 13 min (13); 13 min on the CPU"),
        ),
    ],
)
def test_a_line_is_of_ones_own_network(found_of, devices, prices, expected):
    found = found_of([each for device in devices for model in ("mine", "resnet50") for each in steps(1.0, device, model=model)], prices)
    assert (found.label, found.lines[0][0]) == expected


def test_without_one_it_is_of_the_most_familiar_and_beside_an_accelerator_only_if_samples_are_asked_for(found_of):
    measured = [*steps(0.001, model="alexnet"), *steps(1.0), *steps(0.5, model="resnet18")]
    assert found_of(measured).lines == ()
    found = found_of(measured, Prices(samples=1000, epochs=3))
    assert (found.label, found.lines[0][-1]) == ("your data", "46.9 s for 3 × 1,000 images, resnet50")
    on_cpu = [*steps(0.001, "cpu", model="alexnet"), *steps(0.5, "cpu", model="resnet18")]
    assert found_of(on_cpu).lines[0][0].startswith("resnet18 trains at 128 images/s: 50,000 images in 391 s")


def test_slow_calls_are_paid_for_and_decide_which_step_trains_fastest(asked):
    # The median of the first is 10 ms, and its mean 20.
    stalls = [replace(each, samples=replace(each.samples, block_s=(0.01, 0.01, 0.04))) for each in steps(0.01, layout="nchw")]
    even = steps(0.015, layout="channels_last")
    (row,) = asked([*stalls, *even])["cost"]["tables"][0]["rows"]
    assert (row["train.choice"], row["train.items_per_s"]) == ("batch=64 amp_bf16 channels_last", pytest.approx(64 / 0.015))
    (row,) = asked(stalls)["cost"]["tables"][0]["rows"]
    assert (row["rate.items_per_s"], row["train.items_per_s"]) == (pytest.approx(64 / 0.01), pytest.approx(64 / 0.02))
    assert (row["train.seconds"], row["train.high"]) == (pytest.approx(50_000 * 0.02 / 64),) * 2
