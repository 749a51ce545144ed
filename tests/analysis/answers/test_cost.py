"""What training costs in time, energy and money, by hand and by simulation: rented or bought, on one device and on several."""

import math
import re
from dataclasses import replace

import made_up
import pytest
from costs import IMAGENET, IMAGES, OWN, SUSTAINED, steps, sustained, weaknesses, window
from plain_answers import columns_of, head_of, rows_of

from dlbench.analysis.answers import answers
from dlbench.analysis.answers.engine.costs import Hour
from dlbench.analysis.read.table import collect
from dlbench.core import units
from dlbench.core.prices import NO_PRICES, Prices

PARALLEL = {"values": [], "parallel": {"step": "training", "independent": ["replicas"]}, "tags": ["training"]}
BOTH = {"train_step": IMAGENET, "mine": SUSTAINED}


def metered(measured, watts):
    return [replace(each, energy=window(each, watts)) for each in measured]


@pytest.fixture
def cost(shown):
    """The answer at the prices of these options, where devices take so many watts."""
    return lambda found, *options, watts=None, **header: shown("cost", metered(found, watts) if watts else found, *options, **header)


def test_what_it_says(scenes):
    # 90 epochs of ImageNet in 19,200 s, and in 41 days.
    gpu, cpu = (IMAGES * 90 / total for total in (19_200, 41 * 86_400))
    forward = [each for model, rate in (("resnet50", 1000), ("resnet18", 2000)) for each in steps(rate, workload="infer_step", model=model)]
    found = {
        "ResNet-50 on a card and on a CPU": [*steps(gpu, layout="channels_last"), *steps(cpu, "cpu", dtype="fp32")],
        "three networks, of one two batches": [
            *steps(6400), *steps(800, batch=8), *steps(3200, model="vgg16"), *steps(64_000, model="alexnet"),
        ],
        "a network of one's own comes first": [*steps(6400, model="mine"), *steps(6400)],
        "two cards and a CPU": [
            *steps(6400), *[replace(each, case=made_up.case("train_step", "cuda:1", **each.case.params)) for each in steps(3200)],
            *steps(64, "cpu"),
        ],
        "inference alone, metered": metered(forward, 500),
        "inference alone, of which nothing is known": forward,
    }  # fmt: skip
    scenes("cost", "cost", found, workloads={"infer_step": {**IMAGENET, "tags": ["inference", "imagenet"]}})


def test_the_line_on_a_screen(tmp_path, transcript):
    """Without one's own network it is of the most familiar, and beside an accelerator only if samples are asked for."""

    def line(title):
        steps_of, _, asked_for = title.partition(": ")
        cases = [each.split() for each in steps_of.split(", ")]
        rows = [each for model, rate, device in cases for each in steps(int(rate), device, model=model)]
        path = made_up.write(tmp_path / f"{len([*tmp_path.iterdir()])}.jsonl", rows)
        results = replace(collect([path]), prices=Prices(samples=1000, epochs=3) if asked_for else NO_PRICES)
        (found,) = (each for each in answers(results) if each.question.topic == "cost")
        return f"{found.label} {found.lines[0][0] if found.lines else None}"

    transcript("cost-on-a-screen", 5, line)


def test_slow_calls_are_paid_for_and_decide_which_step_trains_fastest(asked):
    # The median of the first is 10 ms, and its mean 20.
    stalls = [replace(each, samples=replace(each.samples, block_s=(0.01, 0.01, 0.04))) for each in steps(6400, layout="nchw")]
    even = steps(64 / 0.015, layout="channels_last")
    (row,) = asked([*stalls, *even])["cost"]["tables"][0]["rows"]
    assert (row["train.choice"], row["train.items_per_s"]) == ("batch=64 bf16 channels_last", pytest.approx(64 / 0.015))
    (row,) = asked(stalls)["cost"]["tables"][0]["rows"]
    assert (row["rate.items_per_s"], row["train.items_per_s"]) == (pytest.approx(64 / 0.01), pytest.approx(64 / 0.02))
    assert (row["train.seconds"], row["train.high"]) == (pytest.approx(50_000 * 0.02 / 64),) * 2


def test_money_is_what_it_is_by_hand(cost, transcript):
    def money(title):
        name, rate, watts, options = re.fullmatch("(.*): (.*) /s, (.*) W, (.*)", title).groups()
        mine = steps(float(rate), model="mine" if "50,000" in name else "resnet50")
        answer = cost(mine, *options.split(), watts=None if watts == "no" else int(watts), workloads={"train_step": IMAGENET})
        rows = [row for row in rows_of(answer, "What it costs") if row["cost.payment"] == re.match(r"\w+", name)[0]]
        row = next(row for row in rows if "ImageNet" not in name or "ImageNet" in row["cost.samples"])
        hour, thousand, whole = (f"{row[f'cost.{each}']:.3f}" for each in ("per_hour", "of_1000", "of_all"))
        return f"{row['cost.payment']}: {hour} an hour, {thousand} for 1,000, {whole} in all"

    transcript("money-by-hand", 19, money)


def test_the_interval_of_money_is_that_of_the_throughput(cost):
    answer = cost(steps(100), *OWN.split(), "--price", "100EUR/h")
    row = rows_of(answer, "What it costs, in EUR")[0]
    ends = [row[f"cost.of_all{end}"] for end in ("_low", "", "_high")]
    assert ends == pytest.approx([97, 100, 103])  # the rounds are 3 % to either side
    assert [row[f"cost.of_1000{end}"] for end in ("_low", "_high")] == [pytest.approx(97 / 360), pytest.approx(103 / 360)]
    assert answer["headline"] == "60 min, 100.00 EUR for 10 × 36,000 images"
    few = cost(steps(100, seconds=made_up.SEVEN[:5]), *OWN.split(), "--price", "100/h")
    assert columns_of(rows_of(few, "What it costs")[:1], "cost.of_all_low", "cost.of_all_high") == [(None, None)]


def test_electricity_and_energy_follow_from_the_power(cost):
    answer = cost(steps(100), *OWN.split(), "--price", "kwh=0.60", watts=500)
    assert answer["headline"] == "60 min (58…62), 0.30 for 10 × 36,000 images"
    assert cost(steps(100), *OWN.split(), watts=500)["headline"] == "60 min (58…62), 1.80 MJ for 10 × 36,000 images"
    row = answer["tables"][0]["rows"][0]
    assert (row["train.joules_1000"], row["train.joules"]) == (pytest.approx(5000), pytest.approx(0.5 * 3.6e6))
    assert answer["sentences"][0] == (
        "resnet50, batch=64 bf16: samples 100 /s, energy of 1000 5.00 kJ (4.85…5.15 kJ), time to train 60 min (58…62 min), energy 1.80 MJ."
    )
    assert not weaknesses(answer, "metered")


def test_a_sustained_step_counts_before_a_faster_one_that_was_short(cost):
    answer = cost([*steps(120), *sustained(100, 110)], *OWN.split(), "--price", "2/h", workloads=BOTH)
    assert answer["headline"].startswith("60 min (58…62), 2.00")
    (found,) = columns_of(answer["tables"][0]["rows"], "train.seconds", "train.low", "train.high")
    assert found == pytest.approx((3600, 3600 / 1.03, 3600 / 0.97))


def test_inference_has_the_energy_and_the_money_of_1000_samples(cost):
    header = {"workloads": {"train_step": IMAGENET, "infer_step": {**IMAGENET, "tags": ["inference", "imagenet"]}}}
    answer = cost([*steps(100), *steps(1000, workload="infer_step")], "--price", "3.6/h", watts=500, **header)
    (row,) = rows_of(answer, "Inference on 1000 samples")
    money = next(row for row in rows_of(answer, "What it costs") if row["cost.samples"] == "inference on 1,000 images")
    ends = [money[f"cost.of_all{end}"] for end in ("_low", "", "_high")]
    assert (row["inference.joules_1000"], ends) == (pytest.approx(500), pytest.approx([0.00097, 0.001, 0.00103]))
    assert answer["sentences"][-1] == "resnet50, batch=64 bf16: samples 1.00 k/s, energy of 1000 500 J (485…515 J), cost 0.00100."
    assert not rows_of(cost([*steps(100), *steps(1000, workload="infer_step")], **header), "Inference")
    alone = {"workloads": {"mine": {**SUSTAINED, "tags": ["inference", "imagenet"]}}}
    priced = cost(sustained(1000, 1000, watts=500), "--price", "3.6/h", **alone)
    assert head_of(priced)[:2] == ("0.00100 for 1000 samples of inference", "resnet50 b64 bf16")
    assert cost(sustained(1000, 1000), **alone)["kind"] == "missing"


UNMETERED, MIG = "nothing metered these steps: dlbench run sustained", "a MIG instance has no meter of its own"
NO_METER = [replace(each, missing_reasons={"energy": [{"reason": "no_meter_of_instance"}]}) for each in sustained(100, 110)]
LEFT_OUT = "electricity is left out for resnet50 on"
USE = "what cuda:0, bought, costs an hour is open: say for how long it is used, --price cuda=1600/4y/8h"


@pytest.mark.parametrize(
    ("measured", "options", "cautions"),
    [
        (steps(100), "", [f"energy is open: {UNMETERED}", "money is open: give --price, such as cuda=2.50/h"]),
        (steps(100), "--price 30000 --price kwh=0.3", [USE, f"{LEFT_OUT} cuda:0: {UNMETERED}"]),
        # Amounts without electricity beside others with it are named, with the reason of a meter that there is not.
        (
            [*steps(100), *sustained(100, 100, watts=300, model="resnet18")],
            "--price 9110.4/4y/24h --price kwh=0.3",
            [f"{LEFT_OUT} cuda:0: {UNMETERED}"],
        ),
        ([*NO_METER, *steps(10, "cpu")], "--price kwh=0.3", [f"{LEFT_OUT} cuda:0: {MIG}", f"{LEFT_OUT} cpu: {UNMETERED}"]),
        (NO_METER, "--price kwh=0.3", [f"{LEFT_OUT} cuda:0: {MIG}"]),
    ],
)
def test_what_is_open_is_said_with_what_would_give_it(cost, measured, options, cautions):
    answer = cost(measured, *options.split(), workloads=BOTH)
    assert weaknesses(answer, "electricity", "is open")[-len(cautions) :] == cautions


def test_over_several_devices_time_and_money_count_all_of_them(cost):
    together = [each for form, rate in (("ddp", 360), ("replicas", 400))
                for each in steps(rate, workload="data_parallel", form=form, ranks=4)]  # fmt: skip
    priced = ("--price", "2/h", "--price", "cuda:1=3/h", "--price", "10000/1y/10h")
    header = {"workloads": {"train_step": IMAGENET, "data_parallel": PARALLEL}}
    answer = cost([*steps(100), *together], *OWN.split(), *priced, **header)
    found = columns_of(answer["tables"][0]["rows"], "train.ranks", "train.choice", "train.seconds")
    assert found == [(None, "batch=64 bf16", pytest.approx(3600)), (4, "batch=64 bf16 ddp", pytest.approx(1000))]
    money = [row for row in rows_of(answer, "What it costs") if row["train.ranks"] == 4 and "36,000" in row["cost.samples"]]
    assert columns_of(money, "cost.payment", "cost.per_hour", "cost.of_all") == [
        ("rented", pytest.approx(9), pytest.approx(2.5)),
        ("bought", pytest.approx(40_000 / 3650), pytest.approx(40_000 / 3650 / 3.6)),
    ]
    assert answer["sentences"][1] == "resnet50, batch=64 bf16 ddp: samples 360 /s, time to train 17 min (16…17 min)."
    assert answer["headline"].startswith("60 min (58…62), 2.00")
    several = cost(together, *OWN.split(), "--price", "2/h", **header)  # where one alone was not measured
    assert several["headline"].startswith("17 min (16")


def test_ranks_that_share_a_cpu_are_no_devices(cost):
    ranks = steps(10, "cpu", workload="data_parallel", form="ddp", ranks=2)
    header = {"workloads": {"train_step": IMAGENET, "data_parallel": PARALLEL}}
    assert cost(ranks, **header)["kind"] == "missing"
    beside = cost([*steps(5, "cpu"), *ranks], *OWN.split(), "--price", "1/h", **header)
    assert [row["cost.of_all"] for row in rows_of(beside, "What it costs")][:1] == [pytest.approx(20)]
    assert len(beside["cases"]) == 1


def simulated(price, rent, electricity):
    """Hours after which somebody who pays rent by the hour has paid as much as somebody who bought, all in cents; None for never."""
    rented, bought, hours = 0, price, 0
    while rented < bought and hours < 100_000:
        rented, bought, hours = rented + rent, bought + electricity, hours + 1
    return hours if rented >= bought else None


@pytest.mark.parametrize(
    ("price", "rent", "electricity"),
    [(300_000, 250, 28), (300_000, 50, 0), (1_999, 3, 1), (100, 100, 0), (99_999, 777, 776), (5_000, 20, 20), (5_000, 20, 28), (0, 5, 1)],
)
def test_the_price_is_earned_when_a_simulation_says_so(price, rent, electricity):
    hours, simulation = Hour(rent / 100, None, electricity / 100, price / 100).hours, simulated(price, rent, electricity)
    assert (hours if hours is None else math.ceil(round(hours, 6))) == simulation


@pytest.mark.parametrize(
    ("rent", "years", "hours", "cheaper"),
    [(2.50, 4, 8, "buying"), (2.50, 4, 1, "renting"), (0.20, 4, 24, "renting"), (20, 0.5, 24, "buying")],
)
def test_buying_is_cheaper_where_it_was_in_a_simulation_of_the_planned_use(cost, rent, years, hours, cheaper):
    answer = cost(steps(100), *f"--price {rent}/h --price 12000/{years}y/{hours}h --price kwh=0.40".split(), watts=700)
    (row,) = rows_of(answer, "Rent or buy")
    after, planned = simulated(1_200_000, round(rent * 100), 28), int(years * 365 * hours)
    assert (after is not None and after < planned) is (cheaper == "buying")
    assert row["buy.share"] == (pytest.approx(after / planned, rel=1e-3) if after else None)
    assert row["buy.hours"] == (pytest.approx(after, abs=1) if after else None)
    assert max(len(each.split()) for each in (*answer["sentences"], *answer["weaknesses"])) <= 25


def test_what_costs_nothing_is_never_earned(cost):
    prices = {"0 0/h": None, "1 100/h": 0.01, "30 20/h": 1.5, "0 0/h kwh=1": None}
    options = {price: [word for each in price.split() for word in ("--price", each)] for price in prices}
    found = {price: rows_of(cost(steps(100), *each, watts=500), "Rent or buy")[0]["buy.hours"] for price, each in options.items()}
    assert found == pytest.approx(prices)


def test_amounts_are_written_to_the_cent_or_in_three_digits_and_energy_in_kilowatt_hours_from_one_on():
    money = {0: "0.00", 0.00123: "0.00123", 0.0994: "0.0994", 0.0996: "0.10", 0.456: "0.46", 1234.5: "1,234.50"}
    energy = {0.0123: "0.0123 J", 312: "312 J", 3.5e6: "3.50 MJ", 3.6e6: "1.00 kWh", 1.3e10: "3610 kWh"}
    assert [{value: write(value) for value in texts} for write, texts in ((units.money, money), (units.energy, energy))] == [money, energy]
