"""What storage supplies beside what steps consume, whatever the workloads and their parameters are called."""

import made_up
import pytest

from dlbench.core.model import Status

DECLARED = {
    "shelf": {"tags": ["supply", "pictures"], "values": [], "parameters": {"from": {"supply": "disk"}}},
    "eat": {"tags": ["training", "pictures"], "values": []},
    "drink": {"tags": ["training"], "values": []},
    "look": {"tags": ["inference", "pictures"], "values": []},
}


def rows(workload, seconds, device="cpu", items=64, **params):
    rounds = made_up.flat([seconds * factor for factor in made_up.SEVEN])
    return made_up.rounds_of(made_up.case(workload, device, **params), rounds, items=items, flops=None, bytes=items * 1000)


def found(asked, *measurements):
    return asked([each for some in measurements for each in some], workloads=DECLARED)["bottleneck"]


def test_each_step_stands_beside_the_slowest_and_the_fastest_way_to_read_from_storage(asked):
    answer = found(
        asked,
        rows("shelf", 1.0, **{"from": "disk"}, way="hops"),
        rows("shelf", 0.5, **{"from": "disk"}, way="walks"),
        rows("shelf", 0.25, **{"from": "disk"}, way="runs"),
        rows("shelf", 0.001, **{"from": "memory"}, way="runs"),
        rows("eat", 0.5, device="cuda:0", batch=64),
        rows("eat", 8.0, batch=64),
        rows("drink", 0.5, batch=64),
        rows("look", 0.5, batch=64),
    )
    assert answer["sentences"] == [
        "eat batch=64, cuda:0, shelf disk hops: items 128 /s (124…132 /s), ratio 0.500 × (0.481…0.520), supply 64.0 /s, need 128 /s.",
    ]
    assert (answer["headline"], answer["qualifier"]) == ("storage feeds 0.500× (0.481…0.520) the need", "eat b64")
    (table,) = [each for each in answer["tables"] if each["title"] == "Throughput by how a step gets its batch"]
    assert [(row["pair.case"], row["place"], row["feeding.way"]) for row in table["rows"]] == [
        ("eat[batch=64]", "cuda:0", "shelf disk hops"),
        ("eat[batch=64]", "cuda:0", "shelf disk runs"),
        ("eat[batch=64]", "cpu", "shelf disk hops"),
        ("eat[batch=64]", "cpu", "shelf disk runs"),
    ]
    assert [row["ratio.speedup"] for row in table["rows"]] == pytest.approx([0.5, 2, 8, 32])


def test_where_the_interval_holds_1_both_rates_stand_in_place_of_their_ratio(asked):
    answer = found(asked, rows("shelf", 1.0, **{"from": "disk"}, way="hops"), rows("eat", 1.0, batch=64))
    assert (answer["headline"], answer["tags"]) == ("storage feeds 64.0/s, the step needs 64.0/s", ["noisy"])


def test_samples_of_a_network_stand_beside_its_own_steps_alone(asked):
    answer = found(
        asked,
        rows("shelf", 1.0, **{"from": "disk"}),
        rows("shelf", 2.0, **{"from": "disk"}, model="mine"),
        rows("eat", 0.5, model="mine"),
        rows("eat", 0.25, model="other"),
    )
    (table,) = [each for each in answer["tables"] if each["title"] == "Throughput by how a step gets its batch"]
    assert [(row["pair.case"], row["place"], row["feeding.way"]) for row in table["rows"]] == [
        ("eat[model=other]", "cpu", "shelf disk"),
        ("eat[model=mine]", "cpu", "shelf disk mine"),
    ]
    alone = found(asked, rows("shelf", 2.0, **{"from": "disk"}, model="mine"), rows("eat", 0.25, model="other"))
    assert alone["headline"] == "storage feeds 32.0/s at worst"


def test_of_too_few_rounds_it_says_how_many_an_interval_takes(asked):
    few = [each for each in rows("shelf", 0.5, **{"from": "disk"}) + rows("eat", 1.0) if each.round < 3]
    answer = found(asked, few)
    assert (answer["headline"], answer["tags"]) == ("storage feeds 2.00× the need", ["few rounds"])


def test_without_a_step_the_rates_alone_are_told_and_odd_rows_break_nothing(asked):
    case = made_up.case("shelf", **{"from": "disk"}, way="crawls")
    odd = made_up.rounds_of(made_up.case("shelf", **{"from": 3}, way="flies"), [[1.0]] * 2, items=1e12)
    nothing = made_up.rounds_of(made_up.case("shelf", **{"from": "disk"}, way="idles"), [[0.0]] * 2)
    ended = [made_up.ended(case, Status.FAILED, "gone")]
    answer = found(asked, ended, odd, nothing, rows("shelf", 1.0, **{"from": "disk"}, way="hops"), rows("drink", 1.0))
    assert answer["headline"].startswith("storage feeds 64.0/s")
    assert answer["qualifier"] == "shelf disk hops"
    assert answer["sentences"][0] == "shelf disk hops: items 64.0 /s (62.1…66.0 /s)."
    assert found(asked, odd, nothing)["question"]
