"""More devices, more cores, several programs at once, and requests that are served."""

import made_up
import pytest
from plain_answers import columns_of

from dlbench.core import model
from dlbench.core.declarations import Declaration, Value
from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Status
from dlbench.core.units import Unit
from dlbench.harness.worker import registry
from dlbench.workloads import serving

registry.load_builtins()
LOOPS = {name: model.declaration_to_json(registry.get(name).signature.declared) for name in ("closed_loop", "open_loop")}


def steps(seconds, ranks, device="cuda:0", form="ddp", threads=1):
    case = made_up.case("data_parallel", device, form=form, model="resnet18", batch=32, ranks=ranks, scaling="weak")
    return made_up.around(case, seconds, items=ranks * 32, threads=threads)


DDP = [*steps(1.0, 1), *steps(1.25, 2), *steps(1.6, 4)]
FSDP = [*steps(1.0, 1, form="fsdp"), *steps(2.5, 2, form="fsdp")]


def test_what_devices_says(scenes):
    found = {
        "two forms on up to four devices": [*DDP, *FSDP],
        "ranks that share a CPU, and replicas": [
            *steps(1.0, 1, "cpu", threads=2), *steps(1.6, 2, "cpu"), *steps(1.0, 2, "cpu", form="replicas"),
        ],
        "two machines": ([*steps(1.0, 1), *steps(1.6, 2)], [*steps(1.0, 1), *steps(1.25, 2)]),
        "no base": steps(1.0, 2),
    }  # fmt: skip
    heads = {
        "a loss": [*steps(1.0, 1), *steps(2.5, 2)],
        "perhaps no gain": [*steps(1.0, 1), *steps(2.0, 2)],
        "few rounds": [each for each in DDP[:14] if each.round < 3],
        "few rounds of two forms": [each for each in [*DDP, *FSDP] if each.round < 4],
        "a long name": [*steps(1.0, 1, form="f" * 200), *steps(1.25, 2, form="f" * 200)],
    }
    scenes("more-devices", "devices", found, heads)


def timed(seconds, used, **axes):
    """An inference step with so many threads, in as many instances as the axes say."""
    case = made_up.case("infer_step", "cpu", model="resnet18", batch=8, **axes)
    return made_up.around(case, seconds, items=8 * axes.get("instances", 1), threads=used)


def of_threads(**seconds):
    return [each for name, took in seconds.items() for each in timed(took, int(name[1:]), threads=int(name[1:]))]


def of_instances(**seconds):
    return [each for name, took in seconds.items() for each in timed(took, 8 // int(name[1:]), instances=int(name[1:]))]


def test_the_fewest_threads_that_are_enough_and_the_processes_that_do_most(scenes):
    heads = {
        "all threads gain": of_threads(t1=8.0, t2=4.0, t4=2.0),
        "two are enough": of_threads(t1=8.0, t2=4.0, t4=4.0, t8=4.0),
        "one is enough": of_threads(t1=8.0, t2=9.0),
        "two processes gain": of_instances(i1=1.0, i2=1.5, i4=4.0),
        "two processes lose": of_instances(i1=1.0, i2=4.0),
        "perhaps no gain": of_instances(i1=1.0, i2=2.0),
        "rows without the axis, or with one number alone": [*timed(1.0, 2), *of_threads(t4=2.0), *of_instances(i2=1.0)],
    }
    scenes("cores", "cores", {}, heads)


VALUES = (
    Value("all", Unit.ITEMS_PER_S, "higher", role="at_once"),
    Value("turns", Unit.ITEMS_PER_S, role="in_turn"),
    Value("shares", Unit.FRACTION, series=True, role="kept"),
    Value("gained", Unit.FRACTION, "higher", role="efficiency"),
)
SEVERAL = {"several": model.declaration_to_json(Declaration(tags=("training",), values=VALUES, parameters={"networks": {"spread": ""}}))}


def several(gain, number, device="cuda:0", rounds=7, **params):
    """Rounds in which so many do so many times what one does, 3 % to either side."""
    case, memory = made_up.case("several", device, model="resnet18", batch=8, **params), Memory(5 << 20, 6 << 20, 3 << 20)
    shared = {"turns": 100.0, "shares": [gain / number] * number, "gained": (gain - 1) / (number - 1)}
    values = [{"all": 100.0 * gain * each, **shared} for each in made_up.SEVEN[:rounds]]
    given = {"device_name": made_up.NAMES[device], "threads": 2, "memory": memory}
    return [Measurement(case, at, Status.OK, values=each, **given) for at, each in enumerate(values)]


def test_the_number_at_once_that_brings_the_most_is_of_an_accelerator_first(scenes):
    heads = {
        "a gain": [*several(1.5, 2, networks=2), *several(1.8, 4, networks=4), *several(1.6, 4, instances=4)],
        "a loss": several(0.8, 2, networks=2),
        "perhaps no gain": several(1.0, 2, networks=2),
        "a CPU that gains more": [*several(1.9, 2, "cpu", networks=2), *several(1.2, 2, networks=2)],
        "few rounds": several(1.5, 2, rounds=2, networks=2),
    }
    scenes("at-once", "concurrency", {}, heads, workloads=SEVERAL)


def test_what_each_loses_and_the_memory_of_all_stand_in_the_table(asked):
    (table,) = asked([*several(1.5, 2, networks=2), *several(1.2, 3, instances=3)], workloads=SEVERAL)["concurrency"]["tables"]
    names = ("at_once.number", "value.all", "at_once.loses", "at_once.efficiency", "at_once.memory_bytes", "ratio.speedup")
    rows = columns_of(table["rows"], *names)
    assert rows == [pytest.approx((2, 150, 0.25, 0.5, 5 << 20, 1.5)), pytest.approx((3, 120, 0.6, 0.1, 15 << 20, 1.2))]


def served(call_s, batch, device="cpu", *, rounds=7, within=1.0, calls=662, bound_ms=100.0, **params):
    """A round for each of seven, in which calls took about so long."""
    bound = {} if bound_ms is None else {"bound_ms": bound_ms}
    case = made_up.case("closed_loop", device, "serving", **{"model": "resnet18", "batch": batch, "dtype": "fp32", **bound, **params})
    found = []
    for number, each in enumerate(made_up.SEVEN[:rounds]):
        values = {f"p{percent}_s": call_s * each for percent in serving.PERCENTS if calls >= serving.times_for(percent)}
        values |= {"items_per_s": batch / call_s / each, "calls": float(calls), **({"within": within} if bound else {})}
        found.append(Measurement(case, number, Status.OK, device_name=made_up.NAMES[device], threads=2, values=values, items=batch))
    return found


def searched(held, failed, saturation, device="cpu"):
    """A search for the highest rate of requests that come when they like."""
    case = made_up.case("open_loop", device, "serving", model="resnet18", bound_ms=100, dtype="fp32")
    values = {"saturation_per_s": saturation, "highest_per_s": held, "failing_per_s": failed, "curve_s": (0.03, 0.04, 0.06, 0.08)}
    given = {"device_name": made_up.NAMES[device], "threads": 2, "items": 1, "found": {"rate": held}}
    return [Measurement(case, 0, Status.OK, values=values, **given)]


SERVED = [
    *served(0.025, 1),
    *served(0.2, 8, within=0.0, calls=100),
    *served(0.3, 16, within=0.0, calls=60),
    *served(0.002, 1, "cuda:0", copies="pageable"),
    *served(0.04, 128, "cuda:0", within=0.995, copies="pageable"),
    *served(0.032, 128, "cuda:0"),
    *served(0.05, 1, bound_ms=300.0, model="resnet50", calls=120),
]


def test_what_serving_says(scenes):
    found = {
        "a card held against a CPU within the same bound": SERVED,
        "requests that come when they like": [*searched(28.0, 30.5, 40.0), *searched(950.0, 980.0, 1000.0, "cuda:0")],
    }
    scenes("served", "serving", found, workloads=LOOPS)


@pytest.mark.parametrize(
    ("measured", "headline", "second"),
    [
        (SERVED[:14], "40.0/s within 100 ms at batch 1", "service: batch 8 takes 200 ms"),
        # Seconds are how long it is measured, and no setting of a server.
        ([*SERVED[:7], *served(0.2, 8, within=0.0, seconds=12)], "40.0/s within 100 ms at batch 1", "service: batch 8 takes 200 ms"),
        (SERVED[7:14], "none within 100 ms is shown; 40.0/s at batch 8", "service: batch 8 takes 200 ms"),
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
def test_what_is_served_at_most_and_why_no_more(answer_objects, measured, headline, second):
    answer = answer_objects(measured, workloads=LOOPS)["serving"]
    assert (answer.headline, answer.lines[1][0]) == (headline, second)
    assert ("few rounds" in answer.tags) is (len(measured) < 6)


def test_with_prices_a_thousand_requests_cost_what_their_time_costs(shown):
    answer = shown("serving", SERVED, "--price", "cpu=0.36EUR/h", workloads=LOOPS)
    rows = {(row["case.id"], row["place"]): row["serving.paid"] for table in answer["tables"] for row in table["rows"]}
    assert rows["closed_loop[model=resnet18,batch=1,dtype=fp32,bound_ms=100.0]", "cpu"] == "0.00250 EUR"  # 25 s of 3600 s at 0.36 EUR
    assert [place for (_, place), paid in rows.items() if paid] == ["cpu"] * 4
