"""What is written of networks that users bring: their counts against published ones, their times, and what is null and why."""

import re

import made_up
import pytest

from benchmarks import networks
from dlbench.core.errors import Unknown
from dlbench.core.model import Status
from dlbench.core.store import load

pytestmark = pytest.mark.real

UNKNOWN = {
    "bytes": [Unknown.BYTES_NOT_COUNTED.reason(text="no formula for lstm (LSTM)")],
    "check": [{"part": "fp64", **Unknown.TOO_LONG.reason(seconds=2.5, seconds_most=1.0)}],
}
COMMITTED = sorted(networks.FOLDER.glob("*.jsonl"))


def measured(name, flops=2e9, **more):
    case = made_up.case("infer_step", model=name, batch=1)
    return made_up.rounds_of(case, [[0.25]], **{"items": 1, "flops": flops, "missing_reasons": {}, **more})[0]


def test_each_network_has_its_counts_its_times_and_what_is_null():
    failed = made_up.ended(made_up.case("train_step", model="mine", batch=8), Status.OOM, "out of memory")
    found = [measured("mine", missing_reasons=UNKNOWN), measured("mobilenet_v2", 601_548_544), failed]
    rows, missing_reasons = networks.tables(found, {"mine": 1234, "mobilenet_v2": 3_504_872})
    assert rows.splitlines()[2:] == [
        "| mine | 1,234 | 2,000,000,000 |  |  | oom | 250 ms |  |",
        "| mobilenet_v2 | 3,504,872 | 601,548,544 | 601,548,544 |  |  | 250 ms |  |",
    ]
    assert missing_reasons.splitlines()[2:] == [
        "| bytes | its bytes are unknown: no formula for lstm (LSTM) | mine |",
        "| check | fp64: it would take longer than 1 s | mine |",
        "| train_step | out of memory | mine |",
    ]


@pytest.mark.parametrize(("flops", "wrong"), [(601_548_544, []), (610_000_000, ["mobilenet_v2"]), (None, ["mobilenet_v2"])])
def test_a_count_is_held_to_one_per_cent_of_the_published_one(monkeypatch, flops, wrong):
    monkeypatch.setattr(networks, "PUBLISHED", {"mobilenet_v2": 601_548_544})
    assert networks.wrong_counts([measured("mobilenet_v2", flops)]) == wrong


def test_networks_of_our_own_stand_beside_those_of_transformers():
    table = networks.agreement([networks.Apart("bert_base", 0.0, 2.93e-15, 4.7e-15), networks.Apart("gpt2", 1.06e-7, 0.0, 4e-8)])
    assert table.splitlines()[2:] == ["| bert_base | 0.0e+00 | 2.9e-15 | 4.7e-15 |", "| gpt2 | 1.1e-07 | 0.0e+00 | 4.0e-08 |"]


def table_of(page):
    """The lines of the first table that `make networks` wrote."""
    return page.partition("`make networks`. -->\n")[2].lstrip().partition("\n\n")[0].splitlines()


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_every_network_has_every_row_and_counts_as_published(path):
    found = load(path).measurements
    cases = {(each.case.params["model"], each.case.workload, each.case.params["batch"]) for each in found if each.status is Status.OK}
    names = re.findall(r"^def (\w+)\(\) -> nn.Module:", networks.PLUGIN.read_text(), re.MULTILINE)
    assert cases == {(name, *step) for name in names for step in networks.STEPS}
    assert networks.wrong_counts(found) == []
    page = networks.PAGE.read_text()
    rows, _ = networks.tables(found, dict.fromkeys(names, 0))
    # Weights are counted where transformers is; everything else is in the file.
    assert rows.splitlines() == [re.sub(r"^(\| \w+ \|) [\d,]+ ", r"\1 0 ", line) for line in table_of(page)]
