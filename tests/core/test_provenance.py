"""Differences between two fingerprints, each named by its path."""

import pytest

from dlbench.core.machine import differences


def environment(memory_gib=10, kernel="5.15.0-91-generic", virtual=None, **cpu):
    identity = {"cpu": {"name": "a", "memory_gib": memory_gib, **cpu}, "virtual": virtual}
    return {"identity": identity, "stack": {"kernel": kernel, "versions": {"torch": "2.6"}}}


VIRTUAL = "identity.virtual: True against unknown"
MEMORY, KERNEL = "identity.cpu.memory_gib: 10 against {}", "stack.kernel: '5.15.0-91-generic' against {}"


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        pytest.param({}, {}, [], id="files that say little"),
        pytest.param({}, {"identity": None, "stack": {"driver": None}}, [], id="unknown on both sides"),
        pytest.param({"stack": {"driver": "575"}}, {"stack": {"driver": None}}, ["stack.driver: '575' against unknown"], id="on one"),
        pytest.param(environment(), environment(12, "5.15.0-107-generic"), [], id="a fifth more memory, and a kernel built anew"),
        pytest.param(environment(), environment(8, "5.15.0"), [], id="a fifth less"),
        pytest.param(environment(), environment(13), [MEMORY.format(13)], id="more than that"),
        pytest.param(environment(), environment(10**400), [MEMORY.format(10**400)], id="more than a float holds"),
        pytest.param(environment(), environment(None), [MEMORY.format("unknown")], id="unknown memory"),
        pytest.param(environment(), environment(kernel="5.15.1-91"), [KERNEL.format("'5.15.1-91'")], id="another kernel"),
        pytest.param(environment(), environment(kernel=None), [KERNEL.format("unknown")], id="unknown kernel"),
        pytest.param(environment(), environment(name="b"), ["identity.cpu.name: 'a' against 'b'"], id="another processor"),
        # A virtual machine is given memory as it uses it.
        pytest.param(environment(virtual=True), environment(126, virtual=True), [], id="virtual"),
        pytest.param(environment(virtual=False), environment(126, virtual=False), [MEMORY.format(126)], id="not virtual"),
        pytest.param(environment(virtual=True), environment(126), [MEMORY.format(126), VIRTUAL], id="virtual once"),
    ],
)
def test_what_one_machine_may_change_between_two_runs(before, now, found):
    assert differences(before, now, but_for_restarts=True) == found
    assert MEMORY.format(12) in differences(environment(), environment(12))
