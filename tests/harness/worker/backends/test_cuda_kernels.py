import pytest

from dlbench.harness.worker.backends.builtin import has_kernels


@pytest.mark.parametrize(
    ("arch", "built_for", "runs"),
    [
        ("sm_90", ["sm_80", "sm_90"], True),
        ("sm_86", ["sm_80", "sm_90"], True),
        ("sm_89", ["sm_86"], True),
        ("sm_80", ["sm_86"], False),
        ("sm_75", ["sm_80", "sm_90"], False),
        ("sm_120", ["sm_80", "sm_90"], False),
        ("sm_120", ["sm_80", "sm_90", "compute_90"], True),
        ("sm_75", ["sm_80", "compute_80"], False),
        ("sm_90", ["sm_90a"], True),
        ("sm_100", ["sm_90a", "compute_90a"], False),
        ("sm_103", ["sm_100f"], True),
        ("sm_103", ["sm_100a"], False),
        ("sm_120", ["compute_100f"], False),
        ("sm_121", ["sm_120"], True),
        ("sm_90", [], True),
        ("sm_90", ["sm_80", "something new"], True),
        ("gfx90a:sramecc+:xnack-", ["gfx900", "gfx90a"], True),
        ("gfx1030", ["gfx900", "gfx90a"], False),
        ("gfx1030", ["gfx90a", "gfx10-3-generic"], True),
        ("gfx90a:sramecc+:xnack-", ["gfx90a:xnack-"], True),
        ("gfx1030", [], True),
    ],
)
def test_whether_code_runs_on_a_device(arch, built_for, runs):
    assert has_kernels(arch, built_for) is runs
