"""Energy of an item in comparisons: judged by its rounds against a threshold of its own."""

import json
from dataclasses import replace

import made_up
import pytest
from front_door import in_process

SEVEN = (0.90, 0.905, 0.895, 0.91, 0.89, 0.9, 0.9)


@pytest.fixture
def compared(tmp_path):
    """Compares two files of sustained steps that took so many watts, None where nothing metered it; ``edit`` changes the energy of base."""

    def compare(before, after, *options, **edit):
        for name, watts in (("before", before), ("after", after)):
            steps = made_up.sustained("training", "cpu", SEVEN, watts=watts)
            if name == "before" and edit:
                steps = [replace(each, energy=replace(each.energy, **edit)) for each in steps]
            made_up.write(tmp_path / f"{name}.jsonl", steps, workloads=made_up.SUSTAINED)
        done = in_process(tmp_path, "compare", "before.jsonl", "after.jsonl", "--format", "json", *options)
        (case,) = json.loads(done.out)["cases"] if done.out.startswith("{") else json.loads(done.out)
        return done.code, case

    return compare


def test_ten_percent_more_energy_at_the_same_speed_is_a_regression(compared):
    code, case = compared(300, 330)
    assert (code, case["compare.verdict"], case["compare.regressed"]) == (3, "slower", "energy.joules_per_item")


def test_a_larger_threshold_lets_it_pass_and_less_energy_is_better(compared):
    assert compared(300, 330, "--threshold", "energy=20%")[0] == 0


def test_less_energy_is_better(compared):
    code, case = compared(330, 300)
    assert (code, case["compare.verdict"]) == (0, "faster")


def test_energy_that_one_side_did_not_meter_is_not_judged(compared):
    code, case = compared(300, None)
    assert (code, case["compare.verdict"], case["compare.regressed"]) == (0, "same", None)


@pytest.mark.parametrize(
    ("edit", "ends_with", "remark"),
    [
        ({"source": "nvml_power"}, 0, "energy: 0.333 J to 0.367 J (+10.0 %), not judged, as nvml_power metered it and now rapl"),
        ({"joules": 0.0}, 4, "energy: 0 J to 0.367 J, not judged, as a share of zero is no margin"),
    ],
)
def test_energy_of_another_meter_or_of_none_is_not_judged(compared, edit, ends_with, remark):
    code, case = compared(300, 330, **edit)
    assert (code, case["compare.regressed"]) == (ends_with, None)
    assert remark in case["compare.note"]
