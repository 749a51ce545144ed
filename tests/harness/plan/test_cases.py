"""Cases of suites: which, in which order, and one exact sentence for each mistake."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.core.errors import SuiteError, UsageError
from dlbench.core.model import DEVICE_KINDS, Parameter, Policy, Signature, value_text
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan.suite import Bench, Suite

DTYPE = Parameter("dtype", "text", required=False, default="fp32", choices=("fp32", "bf16"))
SIGNATURES = {
    signature.name: signature
    for signature in (
        Signature(
            "matmul",
            "Multiply.",
            (
                Parameter("n", "integer", required=True, minimum=1),
                Parameter("m", "integer", required=False, minimum=1),
                Parameter("batch", "integer", required=False, default=1, minimum=1),
                DTYPE,
            ),
        ),
        Signature("train_step", "Train.", (Parameter("model", "text", True, choices=("alexnet", "vgg16")), DTYPE)),
        Signature("spin", "Wait.", (Parameter("seconds", "number", required=False, default=0.001, minimum=0),)),
        Signature("noop", "Nothing.", ()),
        Signature("together", "Compute as ranks.", (Parameter("ranks", "integer", required=True, minimum=1),)),
    )
}


def suite(*benches, name="s", devices=()):
    return Suite(name, "", benches, devices, origin=f"{name}.toml")


def ids(*suites, devices=("cpu",), **options):
    planning.check(suites, SIGNATURES)
    return [case.id for case in planning.plan(suites, SIGNATURES, devices, **options)]


def test_a_case_knows_its_suite_device_and_every_parameter():
    (case,) = planning.plan([suite(Bench("matmul", {"n": (64,)}), name="mine")], SIGNATURES, ["cuda:1"])
    assert (case.suite, case.workload, case.device) == ("mine", "matmul", "cuda:1")
    assert case.params == {"n": 64, "batch": 1, "dtype": "fp32"}


def test_an_integer_becomes_a_number_where_one_is_wanted():
    (case,) = planning.plan([suite(Bench("spin", {"seconds": (2,)}))], SIGNATURES, ["cpu"])
    assert case.params == {"seconds": 2.0}
    assert type(case.params["seconds"]) is float


def test_a_bench_chooses_its_devices_before_its_suite_does():
    chosen = suite(Bench("noop", {}), Bench("spin", {}, ("cpu", "cuda:1", "cuda")), devices=("cuda",))
    assert ids(chosen, devices=["cpu", "cuda:0", "cuda:1"]) == [
        "noop[]@cuda:0",
        "noop[]@cuda:1",
        "spin[]@cpu",
        "spin[]@cuda:1",
        "spin[]@cuda:0",
    ]


def test_a_device_that_is_absent_has_its_cases_unless_the_user_chose_others():
    wanted = suite(Bench("noop", {}, ("cpu", "cuda", "xpu:1")))
    assert ids(wanted) == ["noop[]@cpu", "noop[]@cuda", "noop[]@xpu:1"]
    assert ids(wanted, include_absent=False) == ["noop[]@cpu"]
    assert planning.count([wanted], ["cpu"]) == 3
    assert planning.count([wanted], ["cpu"], include_absent=False) == 1


def test_accelerators_of_any_kind_have_their_cases_and_where_there_is_none_so_has_the_word():
    wanted = suite(Bench("noop", {}), Bench("spin", {}, ("accelerator",)))
    assert ids(wanted, devices=["cpu"]) == ["noop[]@cpu", "spin[]@accelerator"]
    assert ids(wanted, devices=["cpu"], include_absent=False) == ["noop[]@cpu"]
    assert ids(wanted, devices=["cpu", "cuda:0", "cuda:1", "xpu:0"]) == [
        *(f"noop[]@{device}" for device in ("cpu", "cuda:0", "cuda:1", "xpu:0")),
        *(f"spin[]@{device}" for device in ("cuda:0", "cuda:1", "xpu:0")),
    ]
    assert ids(wanted, devices=["mps"], include_absent=False) == ["noop[]@mps", "spin[]@mps"]
    assert [planning.count([wanted], devices) for devices in (["cpu"], ["cpu", "cuda:0"])] == [2, 3]


some_axes = st.fixed_dictionaries(
    {"n": st.lists(st.integers(1, 3), min_size=1, unique=True)},
    optional={
        "m": st.lists(st.integers(1, 3), min_size=1, unique=True),
        "batch": st.lists(st.integers(1, 2), min_size=1, unique=True),
        "dtype": st.lists(st.sampled_from(DTYPE.choices), min_size=1, unique=True),
    },
)
some_devices = st.lists(st.sampled_from(["cpu", "cuda", "cuda:0", "cuda:1", "xpu"]), unique=True, max_size=2).map(tuple)
matmuls = st.builds(
    lambda axes, devices: Bench("matmul", {name: tuple(each) for name, each in axes.items()}, devices), some_axes, some_devices
)
durations = st.lists(st.sampled_from([1, 0.001, 1.0000001, 2.5]), min_size=1, unique_by=value_text)
spins = st.builds(lambda values: Bench("spin", {"seconds": tuple(values)}), durations)
some_suites = st.lists(st.lists(matmuls | spins, min_size=1, max_size=4).map(lambda benches: suite(*benches)), min_size=1, max_size=3)


@given(some_suites)
def test_planned_ids_are_the_products_of_the_axes_each_once(suites):
    present = ["cpu", "cuda:0", "cuda:1"]
    meant = {"cuda": ["cuda:0", "cuda:1"]}
    expected: dict[str, None] = {}
    for each in itertools.chain.from_iterable(one.benches for one in suites):
        for device in dict.fromkeys(itertools.chain.from_iterable(meant.get(name, [name]) for name in each.devices or present)):
            for values in itertools.product(*each.axes.values()):
                params = dict(zip(each.axes, values, strict=True))
                expected[planning.Case.of("s", SIGNATURES[each.workload], params, device).id] = None
    found = [case.id for case in planning.plan(suites, SIGNATURES, present)]
    assert found == list(expected)
    assert len(found) <= planning.count(suites, present)


def test_settings_replace_an_axis_where_it_stands_and_add_it_behind():
    before = suite(Bench("matmul", {"dtype": ("fp32",), "n": (64,)}), Bench("train_step", {"model": ("alexnet",)}), Bench("noop", {}))
    (after,) = planning.with_settings([before], ["dtype=bf16,fp32", "batch=2,4"], SIGNATURES)
    assert [list(bench.axes.items()) for bench in after.benches] == [
        [("dtype", ("bf16", "fp32")), ("n", (64,)), ("batch", (2, 4))],
        [("model", ("alexnet",)), ("dtype", ("bf16", "fp32"))],
        [],
    ]
    assert before.benches[0].axes == {"dtype": ("fp32",), "n": (64,)}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["n"], "--set n: write axis=value or axis=value,value"),
        (["n="], "--set n=: write axis=value or axis=value,value"),
        (["=3"], "--set =3: write axis=value or axis=value,value"),
        (["n=1,2", "n=3"], "--set n=3: n is set already; write --set n=1,2,3"),
        (["bacth=1"], "--set bacth: no workload of s has such a parameter; did you mean 'batch'?"),
        (["x=1"], "--set x: no workload of s has such a parameter; valid: batch, dtype, m, n"),
        (["n=-4"], "--set n=-4 (matmul): n must be a positive integer, not -4"),
        (["n=4,four"], "--set n=4,four (matmul): n must be a positive integer, not 'four'"),
        (["n=4,4"], "--set n=4,4 (matmul): 4 stands there twice; write each value once"),
        (["dtype=fp31"], "--set dtype=fp31 (matmul): no dtype is called 'fp31'; valid: fp32, bf16"),
        (["dtype=x"], "--set dtype=x (matmul): no dtype is called 'x'; valid: fp32, bf16"),
    ],
)
def test_a_wrong_setting_is_one_sentence(settings, sentence):
    with pytest.raises(UsageError) as caught:
        planning.with_settings([suite(Bench("matmul", {"n": (64,)}))], settings, SIGNATURES)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("bench", "sentence"),
    [
        (
            Bench("matmull", {}),
            "s.toml, bench 2: no workload is called 'matmull'; did you mean 'matmul'? (one of your own comes with its FILE.py)",
        ),
        (
            Bench("x", {}),
            "s.toml, bench 2: no workload is called 'x'; valid: matmul, noop, spin, together, train_step "
            "(one of your own comes with its FILE.py)",
        ),
        (Bench("train_step", {"modl": ("alexnet",)}), "s.toml, bench 2 (train_step): no parameter is called 'modl'; did you mean 'model'?"),
        (Bench("noop", {"n": (1,)}), "s.toml, bench 2 (noop): no parameter is called 'n'"),
        (Bench("matmul", {"m": (1,)}), "s.toml, bench 2 (matmul): 'n' has no default; add axes.n, a positive integer"),
        (Bench("train_step", {}), "s.toml, bench 2 (train_step): 'model' has no default; add axes.model, one of alexnet, vgg16"),
        (Bench("matmul", {"n": (64, 0)}), "s.toml, bench 2 (matmul): n must be a positive integer, not 0"),
        (Bench("matmul", {"n": (True,)}), "s.toml, bench 2 (matmul): n must be a positive integer, not True"),
        (Bench("matmul", {"n": (1,), "dtype": ("fp16",)}), "s.toml, bench 2 (matmul): no dtype is called 'fp16'; valid: fp32, bf16"),
        (Bench("matmul", {"n": (1,), "dtype": (16,)}), "s.toml, bench 2 (matmul): dtype must be one of fp32, bf16, not 16"),
        (Bench("spin", {"seconds": (0,)}), "s.toml, bench 2 (spin): seconds must be a number above 0, not 0"),
    ],
)
def test_what_no_workload_takes_is_one_sentence(bench, sentence):
    with pytest.raises(SuiteError) as caught:
        planning.check([suite(Bench("noop", {}), bench)], SIGNATURES)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("where", "word", "sentence"),
    [
        ("suite", "coda", "s.toml, devices: no device is called 'coda'; did you mean 'cuda'?"),
        ("bench", "cpu:0", "s.toml, bench 1 (noop), devices: no device is called 'cpu:0'; did you mean 'cpu'?"),
        ("suite", "accelerators", "s.toml, devices: no device is called 'accelerators'; did you mean 'accelerator'?"),
        ("suite", "accelerator:0", "s.toml, devices: no device is called 'accelerator:0'; did you mean 'accelerator'?"),
        ("bench", "cuda:", "s.toml, bench 1 (noop), devices: no device is called 'cuda:'; did you mean 'cuda'?"),
        ("suite", "pretent:1", "s.toml, devices: no device is called 'pretent:1'; did you mean 'pretend'?"),
    ],
)
def test_a_device_of_no_kind_that_there_is_is_one_sentence(where, word, sentence):
    named = suite(Bench("noop", {}, devices=(word,) if where == "bench" else ()))
    kinds = (*DEVICE_KINDS, "pretend")
    with pytest.raises(SuiteError) as caught:
        planning.check([replace(named, devices=(word,)) if where == "suite" else named], SIGNATURES, kinds)
    assert str(caught.value) == sentence


def test_the_kinds_that_there_are_can_be_named_with_and_without_a_number():
    named = replace(suite(Bench("noop", {})), devices=("cpu", "cuda", "cuda:1", "accelerator", "pretend", "pretend:0"))
    planning.check([named], SIGNATURES, (*DEVICE_KINDS, "pretend"))
    with pytest.raises(SuiteError, match="no device is called 'pretend'; valid: cpu, cuda, mps, xpu, accelerator"):
        planning.check([named], SIGNATURES)


def test_too_many_cases_are_refused_at_once():
    huge = suite(Bench("matmul", {"n": tuple(range(1, 2001)), "m": tuple(range(1, 1002))}))
    assert planning.count([huge], ["cpu", "cuda:0"]) == 4_004_000
    with pytest.raises(SuiteError) as caught:
        planning.plan([huge], SIGNATURES, ["cpu"])
    assert str(caught.value) == "s would plan 2,002,000 cases, and 200,000 is the limit; shorten an axis, for example with --set"


def test_a_plan_without_cases_is_a_sentence():
    with pytest.raises(UsageError) as caught:
        ids(suite(Bench("noop", {})), only=lambda case_id: "vgg" in case_id)
    assert str(caught.value) == "s plans no case that -k selects; loosen it (dlbench list SUITE shows the ids)"
    with pytest.raises(UsageError) as caught:
        ids(suite(Bench("noop", {}, ("cuda",))), include_absent=False)
    assert str(caught.value) == "s plans no case on cpu, as it names other devices; leave --device out, or measure where they are"


def test_the_policy_of_a_run_is_what_its_suites_agree_on():
    brief = Suite("a", "", (Bench("noop", {}),), policy=Policy(round_s=0.3))
    assert policy_of(brief) == policy_of(brief, brief) == Policy(round_s=0.3)
    assert policy_of(brief, suite(Bench("noop", {}))) == Policy()


def policy_of(*suites, devices=("cpu",)):
    return planning.policy_of(suites, SIGNATURES, devices)


@pytest.mark.parametrize(
    ("benches", "named", "expected_s"),
    [
        pytest.param([Bench("noop", {})], (), 240.0, id="each device"),
        pytest.param([Bench("noop", {})], ("cuda", "xpu"), 180.0, id="those of them that the suite names"),
        pytest.param([Bench("noop", {}), Bench("matmul", {"n": (8,)}, ("cuda:1",))], ("cpu",), 120.0, id="those of all benches"),
        pytest.param([Bench("together", {"ranks": (2,)})], (), 120.0, id="one of those that compute together"),
        pytest.param([Bench("noop", {})], ("xpu",), 60.0, id="none of them here"),
    ],
)
def test_the_budget_of_a_suite_is_that_of_each_device_that_takes_part(benches, named, expected_s):
    brief = Suite("a", "", tuple(benches), named, policy=Policy(budget_s=60))
    assert policy_of(brief, devices=["cpu", "cuda:0", "cuda:1", "cuda:2"]) == Policy(budget_s=expected_s)


@pytest.mark.parametrize(
    ("policy", "cases", "expected_s"),
    [
        (Policy(), 10, 7 * 10 * 1.5),
        (Policy(round_s=0.3), 10, 7 * 10 * 0.8),
        (Policy(rounds=1, warmup_s=0.5), 2, 2 * 1.8),
        (Policy(timeout_s=1), 10, 7 * 10 * 1.0),
        (Policy(budget_s=60), 10, 60.0),
        (Policy(budget_s=60), 100, 150.0),
    ],
)
def test_the_estimate_follows_the_policy(policy, cases, expected_s):
    assert planning.estimate(policy, cases) == pytest.approx(expected_s)


CPU_AXES = tuple(Parameter(name, "integer", required=False, minimum=1) for name in ("threads", "instances"))
ANYWHERE = {**SIGNATURES, "call": Signature("call", "Call.", CPU_AXES)}


@pytest.mark.parametrize(
    ("axes", "cores", "cpus", "planned"),
    [
        ({"threads": ("all",)}, 2, 2, ["call[threads=1]@cpu", "call[threads=2]@cpu"]),
        ({"threads": ("all",)}, 6, 12, [f"call[threads={count}]@cpu" for count in (1, 2, 4, 6, 12)]),
        ({"instances": ("all",)}, 6, 12, [f"call[instances={count}]@cpu" for count in (1, 2, 6)]),
        ({"threads": ("cores", 3)}, 8, 16, ["call[threads=8]@cpu", "call[threads=3]@cpu"]),
        ({"threads": (2,), "instances": (1, 2)}, 8, 16, ["call[threads=2,instances=1]@cpu", "call[threads=2,instances=2]@cpu"]),
        ({}, 8, 16, ["call[]@cpu"]),
    ],
)
def test_an_axis_of_the_cpu_is_counted_on_the_machine_and_an_accelerator_has_no_threads(axes, cores, cpus, planned):
    written = [suite(Bench("call", axes))]
    planning.check(written, ANYWHERE)
    counted = planning.with_core_counts(written, cores, cpus)
    found = [case.id for case in planning.plan(counted, ANYWHERE, ["cpu", "cuda:0"])]
    shared = [each.replace("threads=2,", "").replace("@cpu", "@cuda:0") for each in planned if "instances" in each]
    assert found == [*planned, *(shared or ["call[]@cuda:0"])]


def test_ranks_share_the_cores_themselves():
    why = "ranks share the cores among themselves, so it is no axis of a workload that has them; leave it out there"
    with pytest.raises(SuiteError) as raised:
        planning.check([suite(Bench("together", {"ranks": (2,), "threads": (1,)}))], SIGNATURES)
    assert str(raised.value) == f"s.toml, bench 1 (together), axis threads: {why}"
    with pytest.raises(UsageError) as refused:
        planning.with_settings([suite(Bench("together", {"ranks": (2,)}))], ["threads=1"], SIGNATURES)
    assert str(refused.value) == f"--set threads: {why}"
