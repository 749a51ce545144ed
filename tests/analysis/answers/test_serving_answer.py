"""Serving: rates within a bound, at which batch and on which device, what is lacking for percentiles, and what ends it."""

import json

import front_door
import made_up
import pytest
from plain_answers import plain

from dlbench.core import model
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status
from dlbench.harness.worker import registry
from dlbench.workloads import serving

registry.load_builtins()
DECLARED = {name: model.declaration_to_json(registry.get(name).signature.declared) for name in ("closed_loop", "open_loop")}
NAMES = {"cpu": made_up.CPU, "cuda:0": made_up.GPU}


def served(call_s, batch, device="cpu", *, rounds=7, within=1.0, calls=662, bound_ms=100.0, **params):
    """A round for each of seven, in which calls took about so long."""
    bound = {} if bound_ms is None else {"bound_ms": bound_ms}
    case = made_up.case("closed_loop", device, "serving", **{"model": "resnet18", "batch": batch, "dtype": "fp32", **bound, **params})
    found = []
    for number, each in enumerate(made_up.SEVEN[:rounds]):
        values = {f"p{percent}_s": call_s * each for percent in serving.PERCENTS if calls >= serving.times_for(percent)}
        values |= {"items_per_s": batch / call_s / each, "calls": float(calls), **({"within": within} if bound else {})}
        found.append(Measurement(case, number, Status.OK, device_name=NAMES[device], threads=2, values=values, items=batch))
    return found


BOTH = [
    *served(0.025, 1),
    *served(0.2, 8, within=0.0, calls=100),
    *served(0.3, 16, within=0.0, calls=60),
    *served(0.002, 1, "cuda:0", copies="pageable"),
    *served(0.04, 128, "cuda:0", within=0.995, copies="pageable"),
    *served(0.032, 128, "cuda:0"),
    *served(0.05, 1, bound_ms=300.0, model="resnet50", calls=120),
]


def test_an_accelerator_is_held_against_the_cpu_within_the_same_bound(told, snapshot):
    snapshot("serving", plain(told(BOTH, workloads=DECLARED)["serving"]))


@pytest.mark.parametrize(
    ("measured", "headline", "second"),
    [
        (BOTH, "3.20 k/s within 100 ms at batch 128; CPU 40.0/s", "80.0× the CPU; no larger batch was measured"),
        (BOTH[:14], "40.0/s within 100 ms at batch 1", "service: batch 8 takes 200 ms"),
        # Seconds are how long it is measured, and no setting of a server.
        (
            [*BOTH[:7], *served(0.2, 8, within=0.0, seconds=12)],
            "40.0/s within 100 ms at batch 1",
            "service: batch 8 takes 200 ms",
        ),
        (BOTH[7:14], "none within 100 ms is shown; 40.0/s at batch 8", "service: batch 8 takes 200 ms"),
        # Of 160 calls 95 % are within the bound, and the interval of that share ends at 90.5 %; of 80 at 87.8 %.
        (served(0.025, 1, rounds=1, within=0.95, calls=160), "40.0/s within 100 ms at batch 1", "no larger batch was measured"),
        (
            served(0.025, 1, rounds=1, within=0.95, calls=80),
            "none within 100 ms is shown; 40.0/s at batch 1",
            "service: batch 1 takes 25.0 ms",
        ),
        # Rounds together have as many calls.
        (served(0.025, 1, rounds=2, within=0.95, calls=80), "39.8/s within 100 ms at batch 1", "no larger batch was measured"),
        (served(0.2, 8, bound_ms=None), "40.0/s at batch 8", "service: batch 8 takes 200 ms"),
    ],
)
def test_what_is_served_at_most_and_why_no_more(told, measured, headline, second):
    answer = told(measured, workloads=DECLARED)["serving"]
    assert (answer.headline, answer.lines[1][0]) == (headline, second)
    assert ("few rounds" in answer.tags) is (len(measured) < 6)


def test_with_prices_a_thousand_requests_cost_what_their_time_costs(tmp_path):
    made_up.write(tmp_path / "run.jsonl", BOTH, workloads=DECLARED)
    options = ["--topic", "serving", "--price", "cpu=0.36EUR/h", "--format", "json"]
    answer = json.loads(front_door.in_process(tmp_path, "show", "run.jsonl", *options).out)["answers"][0]
    rows = {(row["case.id"], row["place"]): row["serving.paid"] for table in answer["tables"] for row in table["rows"]}
    assert rows["closed_loop[model=resnet18,batch=1,dtype=fp32,bound_ms=100.0]", "cpu"] == "0.00250 EUR"  # 25 s of 3600 s at 0.36 EUR
    assert [place for (_, place), paid in rows.items() if paid] == ["cpu"] * 4


def searched(held, failed, saturation, device="cpu"):
    """A search for the highest rate of requests that come when they like."""
    case = made_up.case("open_loop", device, "serving", model="resnet18", bound_ms=100, dtype="fp32")
    values = {"saturation_per_s": saturation, "highest_per_s": held, "failing_per_s": failed, "curve_s": (0.03, 0.04, 0.06, 0.08)}
    found = {"rate": held}
    return [Measurement(case, 0, Status.OK, device_name=NAMES[device], threads=2, values=values, items=1, found=found)]


def test_an_open_loop_says_which_rate_is_kept_and_whether_requests_queue(told, snapshot):
    measured = [*searched(28.0, 30.5, 40.0), *searched(950.0, 980.0, 1000.0, "cuda:0")]
    snapshot("serving-open", plain(told(measured, workloads=DECLARED)["serving"]))
