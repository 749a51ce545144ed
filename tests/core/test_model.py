"""Cases and works by what they say of themselves."""

from dlbench.core.model import Case, Work


def test_instances_handle_what_one_does_as_many_times():
    three = Case("w[]@cpu", "s", "w", {"instances": 3, "threads": 2}, "cpu")
    assert (three.ranks, three.instances, three.threads) == (3, 3, 2)
    found = Work(call=list, items=4, flops=10.0, bytes=0).counts(three)
    assert found == {"items": 12, "flops": 30.0, "least_flops": None, "bytes": 0, "least_bytes": None}
