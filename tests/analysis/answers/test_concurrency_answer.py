import made_up
import pytest

from dlbench.core import model
from dlbench.core.declarations import Declaration, Value
from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Status
from dlbench.core.units import Unit

TOLD = (
    Value("all", Unit.ITEMS_PER_S, "higher", role="at_once"),
    Value("turns", Unit.ITEMS_PER_S, role="in_turn"),
    Value("shares", Unit.FRACTION, series=True, role="kept"),
    Value("gained", Unit.FRACTION, "higher", role="efficiency"),
)
PARAMETERS = {"networks": {"spread": ""}, "launch": {"spread": ""}}
WORKLOADS = {"several": model.declaration_to_json(Declaration(tags=("training",), values=TOLD, parameters=PARAMETERS))}


def several(gain, number, device="cuda:0", rounds=7, **params):
    """Rounds in which so many do so many times what one does, 3 % to either side."""
    case = made_up.case("several", device, model="resnet18", batch=8, **params)
    return [
        Measurement(
            case,
            at,
            Status.OK,
            device_name=made_up.NAMES[device],
            threads=2,
            memory=Memory(5 << 20, 6 << 20, 3 << 20),
            values={"all": 100.0 * gain * each, "turns": 100.0, "shares": [gain / number] * number, "gained": (gain - 1) / (number - 1)},
        )
        for at, each in enumerate(made_up.SEVEN[:rounds])
    ]


@pytest.fixture
def answered(asked):
    return lambda *measured: asked([each for some in measured for each in some], workloads=WORKLOADS)["concurrency"]


@pytest.mark.parametrize(
    ("measured", "headline"),
    [
        ([several(1.5, 2, networks=2), several(1.8, 4, networks=4), several(1.6, 4, instances=4)], "4 at once 1.80× one after the other"),
        ([several(0.8, 2, networks=2)], "one after the other; 2 at once 0.800×"),
        ([several(1.0, 2, networks=2)], "no gain shown with 2 at once"),
        ([several(1.9, 2, "cpu", networks=2), several(1.2, 2, networks=2)], "2 at once 1.20× one after the other"),
    ],
)
def test_the_number_that_brings_the_most_is_told_of_an_accelerator_first(answered, measured, headline):
    assert answered(*measured)["headline"].startswith(headline)


def test_what_each_loses_and_the_memory_of_all_stand_in_the_table(answered):
    (table,) = answered(several(1.5, 2, networks=2), several(1.2, 3, instances=3))["tables"]
    names = ("at_once.number", "value.all", "at_once.loses", "at_once.efficiency", "at_once.memory_bytes")
    rows = [[row[name] for name in names] for row in table["rows"]]
    assert rows == [pytest.approx([2, 150, 0.25, 0.5, 5 << 20]), pytest.approx([3, 120, 0.6, 0.1, 15 << 20])]
    assert [row["ratio.speedup"] for row in table["rows"]] == pytest.approx([1.5, 1.2])


def test_few_rounds_have_a_tag_and_no_interval(answered):
    found = answered(several(1.5, 2, rounds=2, networks=2))
    assert (found["headline"], found["tags"]) == ("2 at once 1.51× one after the other", ["few rounds"])


def test_other_rows_answer_nothing(asked):
    found = asked(made_up.both_kinds())["concurrency"]
    assert (found["kind"], found["command"]) == ("missing", "dlbench run concurrency")
