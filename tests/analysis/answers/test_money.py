"""What training costs, by hand and by simulation: rented, bought, in electricity, on one device and on several."""

import math
from dataclasses import replace

import made_up
import pytest
from costs import IMAGENET, IMAGES, OWN, SUSTAINED, rows_of, steps, sustained, weaknesses

from dlbench.analysis.answers.engine.costs import Hour
from dlbench.core import units

PARALLEL = {"values": [], "parallel": {"step": "training", "independent": ["replicas"]}, "tags": ["training"]}


# Samples a second, watts, options; then by hand what an hour costs, 1000 samples, and all of it, each to the cent.
BY_HAND = {
    "rented for an hour": (100, None, f"{OWN} --price 2.50/h", "rented", (2.5, 0.01, 2.5)),
    "rented for ten hours": (10, None, f"{OWN} --price 2.50/h", "rented", (2.5, 0.07, 25.0)),
    "rented at a third of the rate": (300, None, f"{OWN} --price 1/h", "rented", (1.0, 0.0, 0.33)),
    "rented for nothing": (100, None, f"{OWN} --price 0/h", "rented", (0, 0, 0)),
    "rented, its power in the rent": (100, 700, f"{OWN} --price 2.50/h --price kwh=0.40", "rented", (2.5, 0.01, 2.5)),
    "rented, for a kind": (100, None, f"{OWN} --price 9/h --price cuda=3.60/h", "rented", (3.6, 0.01, 3.6)),
    "rented, for one device": (100, None, f"{OWN} --price 9/h --price cuda=8/h --price cuda:0=7.20/h", "rented", (7.2, 0.02, 7.2)),
    "rented, one epoch": (100, None, "--samples 7200000 --price 2/h", "rented", (2.0, 0.01, 40.0)),
    "rented, dear": (100, None, f"{OWN} --price 98.76/h", "rented", (98.76, 0.27, 98.76)),
    "rented, ImageNet": (IMAGES / 40, None, "--price 3/h", "rented", (3.0, 0.0, 3.0)),
    "rented, 50,000 samples": (1000, None, "--price 3.60/h", "rented", (3.6, 0.0, 0.05)),
    "electricity alone": (100, 500, f"{OWN} --price kwh=0.30", "electricity", (0.15, 0.0, 0.15)),
    "electricity, 10 h at 700 W": (10, 700, f"{OWN} --price kwh=0.25", "electricity", (0.18, 0.0, 1.75)),
    "bought, a tenth of an hour's use": (100, None, f"{OWN} --price 29200/4y/8h", "bought", (2.5, 0.01, 2.5)),
    "bought, day and night": (100, None, f"{OWN} --price 26280/3y/24h", "bought", (1.0, 0.0, 1.0)),
    "bought, half a year": (100, None, f"{OWN} --price 3650/0.5y/10h", "bought", (2.0, 0.01, 2.0)),
    "bought, with electricity": (100, 700, f"{OWN} --price 29200/4y/8h --price kwh=0.40", "bought", (2.78, 0.01, 2.78)),
    "bought, ten hours": (10, 1000, f"{OWN} --price 14600/5y/4h --price kwh=0.30", "bought", (2.3, 0.06, 23)),
    "bought, a gift with a bill": (100, 250, f"{OWN} --price 0/1y/1h --price kwh=0.20", "bought", (0.05, 0.0, 0.05)),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_money_is_to_the_cent_what_it_is_by_hand(cost, name):
    rate, watts, options, way, amounts = BY_HAND[name]
    alone = "50,000" in name
    measured = steps(rate, model="mine" if alone else "resnet50")
    answer = cost(measured, *options.split(), watts=watts, workloads={"train_step": IMAGENET})
    rows = [row for row in rows_of(answer, "What it costs") if row["cost.payment"] == way]
    row = next(row for row in rows if "ImageNet" not in name or "ImageNet" in row["cost.samples"])
    found = [row[f"cost.{name}"] for name in ("per_hour", "of_1000", "of_all")]
    assert found == [pytest.approx(each, abs=0.005001) for each in amounts]
    assert found[-1] == pytest.approx(amounts[-1], abs=0.004)
    assert len(BY_HAND) == 19


def test_the_interval_of_money_is_that_of_the_throughput(cost):
    answer = cost(steps(100), *OWN.split(), "--price", "100EUR/h")
    row = rows_of(answer, "What it costs, in EUR")[0]
    ends = [row[f"cost.of_all{end}"] for end in ("_low", "", "_high")]
    assert ends == [pytest.approx(97), pytest.approx(100), pytest.approx(103)]  # the rounds are 3 % to either side
    assert [row[f"cost.of_1000{end}"] for end in ("_low", "_high")] == [pytest.approx(97 / 360), pytest.approx(103 / 360)]
    assert answer["headline"] == "60 min, 100.00 EUR for 10 × 36,000 images"
    assert answer["sentences"][0] == "resnet50, batch=64 bf16: samples 100 /s, time to train 60 min (58…62 min)."
    few = cost(steps(100, seconds=made_up.SEVEN[:5]), *OWN.split(), "--price", "100/h")
    row = rows_of(few, "What it costs")[0]
    assert (row["cost.of_all_low"], row["cost.of_all_high"]) == (None, None)


def test_electricity_and_energy_follow_from_the_power(cost):
    answer = cost(steps(100), *OWN.split(), "--price", "kwh=0.60", watts=500)
    assert answer["headline"] == "60 min (58…62), 0.30 for 10 × 36,000 images"
    assert cost(steps(100), *OWN.split(), watts=500)["headline"] == "60 min (58…62), 1.80 MJ for 10 × 36,000 images"
    row = answer["tables"][0]["rows"][0]
    assert (row["train.joules_1000"], row["train.joules"]) == (pytest.approx(5000), pytest.approx(0.5 * 3.6e6))
    assert answer["sentences"][0] == (
        "resnet50, batch=64 bf16: samples 100 /s, energy of 1000 5.00 kJ (4.85…5.15 kJ), time to train 60 min (58…62 min), energy 1.80 MJ."
    )
    assert not [each for each in answer["weaknesses"] if "metered" in each]


def test_a_sustained_step_counts_before_a_faster_one_that_was_short(cost):
    header = {"workloads": {"train_step": IMAGENET, "mine": SUSTAINED}}
    answer = cost([*steps(120), *sustained(100, 110)], *OWN.split(), "--price", "2/h", **header)
    assert answer["headline"].startswith("60 min (58…62), 2.00")
    row = answer["tables"][0]["rows"][0]
    assert row["train.seconds"] == pytest.approx(3600)
    assert [row["train.low"], row["train.high"]] == [pytest.approx(3600 / 1.03), pytest.approx(3600 / 0.97)]


def test_inference_has_the_energy_and_the_money_of_1000_samples(cost):
    forward = {**IMAGENET, "tags": ["inference", "imagenet"]}
    header = {"workloads": {"train_step": IMAGENET, "infer_step": forward}}
    answer = cost([*steps(100), *steps(1000, workload="infer_step")], "--price", "3.6/h", watts=500, **header)
    (row,) = rows_of(answer, "Inference on 1000 samples")
    money = next(row for row in rows_of(answer, "What it costs") if row["cost.samples"] == "inference on 1,000 images")
    ends = [money[f"cost.of_all{end}"] for end in ("_low", "", "_high")]
    assert (row["inference.joules_1000"], ends) == (pytest.approx(500), pytest.approx([0.00097, 0.001, 0.00103]))
    assert answer["sentences"][-1] == ("resnet50, batch=64 bf16: samples 1.00 k/s, energy of 1000 500 J (485…515 J), cost 0.00100.")
    assert not rows_of(cost([*steps(100), *steps(1000, workload="infer_step")], **header), "Inference")


def test_without_power_or_prices_the_answer_says_what_would_give_them(cost):
    plain = cost(steps(100))
    assert plain["qualifier"] == "resnet50 b64 bf16"
    assert plain["weaknesses"][-2:] == [
        "energy is open: nothing metered these steps: dlbench run sustained",
        "money is open: give --price, such as cuda=2.50/h",
    ]
    bought = cost(steps(100), "--price", "30000", "--price", "kwh=0.3")["weaknesses"]
    assert "what cuda:0, bought, costs an hour is open: say for how long it is used, --price cuda=1600/4y/8h" in bought
    assert "electricity is left out for resnet50 on cuda:0: nothing metered these steps: dlbench run sustained" in bought
    of_one = cost([*steps(100), *steps(1, "cpu")], "--price", "cuda=2/h")
    assert of_one["weaknesses"][-1] == "without a price: cpu; give --price cpu=AMOUNT/h"


def test_sustained_inference_alone_has_its_energy_and_money(cost):
    forward = {"workloads": {"mine": {**SUSTAINED, "tags": ["inference", "imagenet"]}}}
    measured = [*sustained(1000, 1000, watts=500), *sustained(2000, 2000, watts=500, model="resnet18")]
    answer = cost(measured, **forward)
    assert (answer["headline"], answer["qualifier"]) == ("250 J for 1000 samples of inference", "resnet18 b64 bf16")
    assert answer["sentences"] == ["resnet18, batch=64 bf16: samples 2.00 k/s, energy of 1000 250 J (242…258 J), cost 250 J."]
    assert answer["weaknesses"][0] == "no training step of a published network was measured: dlbench run cnn"
    priced = cost(measured[:7], "--price", "3.6/h", **forward)
    assert (priced["headline"], priced["qualifier"]) == ("0.00100 for 1000 samples of inference", "resnet50 b64 bf16")
    assert [each["title"] for each in priced["tables"]] == ["What it costs", "Inference on 1000 samples"]
    assert cost(sustained(1000, 1000), **forward)["kind"] == "missing"


def test_over_several_devices_time_and_money_count_all_of_them(cost):
    together = [
        *steps(360, workload="data_parallel", form="ddp", ranks=4),
        *steps(400, workload="data_parallel", form="replicas", ranks=4),
    ]
    priced = ("--price", "2/h", "--price", "cuda:1=3/h", "--price", "10000/1y/10h")
    header = {"workloads": {"train_step": IMAGENET, "data_parallel": PARALLEL}}
    answer = cost([*steps(100), *together], *OWN.split(), *priced, **header)
    found = [(row["train.ranks"], row["train.choice"], row["train.seconds"]) for row in answer["tables"][0]["rows"]]
    assert found == [(None, "batch=64 bf16", pytest.approx(3600)), (4, "batch=64 bf16 ddp", pytest.approx(1000))]
    money = [row for row in rows_of(answer, "What it costs") if row["train.ranks"] == 4 and "36,000" in row["cost.samples"]]
    assert [(row["cost.payment"], row["cost.per_hour"], row["cost.of_all"]) for row in money] == [
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
    options = f"--price {rent}/h --price 12000/{years}y/{hours}h --price kwh=0.40"
    answer = cost(steps(100), *options.split(), watts=700)
    (row,) = rows_of(answer, "Rent or buy")
    after, planned = simulated(1_200_000, round(rent * 100), 28), int(years * 365 * hours)
    assert (after is not None and after < planned) is (cheaper == "buying")
    assert row["buy.share"] == (pytest.approx(after / planned, rel=1e-3) if after else None)
    assert row["buy.hours"] == (pytest.approx(after, abs=1) if after else None)
    assert max(len(each.split()) for each in (*answer["sentences"], *answer["weaknesses"])) <= 25


@pytest.mark.parametrize(
    ("options", "watts", "hours"),
    [
        ("--price 0 --price 0/h", None, None),
        ("--price 1 --price 100/h", None, 0.01),
        ("--price 30 --price 20/h", None, 1.5),
        ("--price 0 --price 0/h --price kwh=1", 500, None),
    ],
)
def test_what_costs_nothing_is_never_earned(cost, options, watts, hours):
    (row,) = rows_of(cost(steps(100), *options.split(), watts=watts), "Rent or buy")
    assert row["buy.hours"] == (hours and pytest.approx(hours))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00"), (0.00123, "0.00123"), (0.0994, "0.0994"), (0.0996, "0.10"), (0.456, "0.46"), (1234.5, "1,234.50")],
)
def test_an_amount_is_told_to_the_cent_and_what_is_less_than_a_tenth_in_three_digits(value, text):
    assert units.money(value) == text


@pytest.mark.parametrize(
    ("joules", "text"), [(0.0123, "0.0123 J"), (312, "312 J"), (3.5e6, "3.50 MJ"), (3.6e6, "1.00 kWh"), (1.3e10, "3610 kWh")]
)
def test_energy_is_told_in_kilowatt_hours_from_one_on(joules, text):
    assert units.energy(joules) == text


def test_amounts_without_electricity_beside_others_with_it_are_named(cost):
    header = {"workloads": {"train_step": IMAGENET, "mine": SUSTAINED}}
    measured = [*steps(100), *sustained(100, 100, watts=300, model="resnet18")]
    answer = cost(measured, *["--price", "9110.4/4y/24h", "--price", "kwh=0.3"], **header)
    rows = {row["param.model"]: row["cost.per_hour"] for row in rows_of(answer, "What it costs")}
    assert rows == {"resnet50": pytest.approx(0.26), "resnet18": pytest.approx(0.35)}
    assert weaknesses(answer, "electricity") == [
        "electricity is left out for resnet50 on cuda:0: nothing metered these steps: dlbench run sustained"
    ]


def test_where_a_sustained_step_could_not_be_metered_its_own_reason_stands(cost):
    measured = [replace(each, missing_reasons={"energy": [{"reason": "no_meter_of_instance"}]}) for each in sustained(100, 110)]
    answer = cost([*measured, *steps(10, "cpu")], "--price", "kwh=0.3", workloads={"train_step": IMAGENET, "mine": SUSTAINED})
    assert weaknesses(answer, "electricity", "without a price") == [
        "electricity is left out for resnet50 on cuda:0: a MIG instance has no meter of its own",
        "electricity is left out for resnet50 on cpu: nothing metered these steps: dlbench run sustained",
    ]
    alone = cost(measured, "--price", "kwh=0.3", workloads={"mine": SUSTAINED})
    assert weaknesses(alone, "electricity") == ["electricity is left out for resnet50 on cuda:0: a MIG instance has no meter of its own"]
