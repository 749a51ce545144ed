"""Differences between two fingerprints, each named by its path."""

import pytest

from dlbench.core.machine import differences


def test_differences_of_files_that_say_little() -> None:
    assert differences({}, {"identity": None, "stack": {"driver": None}}) == []
    assert differences({"stack": {"driver": "575"}}, {"stack": {"driver": None}}) == ["stack.driver: '575' against unknown"]
    assert differences({}, {}) == []


def environment(memory_gib: object = 10, kernel: object = "5.15.0-91-generic", **cpu: object) -> dict[str, object]:
    return {"identity": {"cpu": {"name": "a", "memory_gib": memory_gib, **cpu}}, "stack": {"kernel": kernel, "versions": {"torch": "2.6"}}}


@pytest.mark.parametrize(
    ("now", "found"),
    [
        pytest.param(environment(12, "5.15.0-107-generic"), [], id="a fifth more memory, and a kernel built anew"),
        pytest.param(environment(8, "5.15.0"), [], id="a fifth less"),
        pytest.param(environment(13), ["identity.cpu.memory_gib: 10 against 13"], id="more than that"),
        pytest.param(environment(None), ["identity.cpu.memory_gib: 10 against unknown"], id="unknown memory"),
        pytest.param(environment(kernel="5.15.1-91"), ["stack.kernel: '5.15.0-91-generic' against '5.15.1-91'"], id="another kernel"),
        pytest.param(environment(kernel=None), ["stack.kernel: '5.15.0-91-generic' against unknown"], id="unknown kernel"),
        pytest.param(environment(name="b"), ["identity.cpu.name: 'a' against 'b'"], id="another processor"),
    ],
)
def test_what_one_machine_may_change_between_two_runs(now: dict[str, object], found: list[str]) -> None:
    assert differences(environment(), now, but_for_restarts=True) == found
    assert differences(environment(), environment(12)) == ["identity.cpu.memory_gib: 10 against 12"]


@pytest.mark.parametrize(("virtual", "found"), [((True, True), 0), ((True, False), 2), ((False, False), 1), ((None, True), 2)])
def test_a_virtual_machine_is_given_memory_as_it_uses_it(virtual: tuple[object, object], found: int) -> None:
    a, b = ({"identity": {"virtual": each, "cpu": {"memory_gib": gib}}} for each, gib in zip(virtual, (12, 126), strict=True))
    assert len(differences(a, b, but_for_restarts=True)) == found
    assert "identity.cpu.memory_gib: 12 against 126" in differences(a, b)


def test_memory_of_a_damaged_file_may_be_more_than_a_float_holds() -> None:
    damaged = environment(10**400)
    assert differences(damaged, environment(), but_for_restarts=True) == [f"identity.cpu.memory_gib: {10**400} against 10"]
