"""What the answer on cost says of what stays open: amounts without electricity, and devices without a price."""

from dataclasses import replace

import pytest
from costs import IMAGENET, SUSTAINED, rows_of, steps, sustained, weaknesses


def test_amounts_without_electricity_beside_others_with_it_are_named(cost):
    header = {"workloads": {"train_step": IMAGENET, "mine": SUSTAINED}}
    measured = [*steps(100), *sustained(100, 100, watts=300, model="resnet18")]
    answer = cost(measured, *["--price", "9110.4/4y/24h", "--price", "kwh=0.3"], **header)
    rows = {row["param.model"]: (row["cost.per_hour"], row["cost.electricity"]) for row in rows_of(answer, "What training costs")}
    assert rows == {"resnet50": (pytest.approx(0.26), None), "resnet18": (pytest.approx(0.35), pytest.approx(0.09))}
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


def test_a_price_of_electricity_that_changes_nothing_is_told(cost):
    answer = cost(steps(100), "--price", "1/h", "--price", "kwh=0.3", watts=300)
    assert weaknesses(answer, "electricity") == [
        "--price kwh= changes no amount here, as rent includes electricity: give what a bought device costs, cuda=1600/4y/8h"
    ]
    assert [row["cost.electricity"] for row in rows_of(answer, "What training costs")] == [None, None]
    planned = ("--price", "9", "--price", "cpu=9/4y/8h", "--price", "kwh=1")
    bought = cost([*steps(100), *steps(10, "cpu")], *planned)
    assert weaknesses(bought, "electricity", "is open: say") == [
        "what cuda:0, bought, costs an hour is open: say for how long it is used, --price cuda=1600/4y/8h",
        "electricity is left out for resnet50 on cuda:0, resnet50 on cpu: nothing metered these steps: dlbench run sustained",
    ]
