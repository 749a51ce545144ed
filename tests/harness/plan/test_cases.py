"""Cases of suites: which, in which order, and one exact sentence for each mistake."""

import itertools

import pytest

from dlbench.core.errors import SuiteError, UsageError
from dlbench.core.model import CPU_AXES, DEVICE_KINDS, Parameter, Policy, Signature
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan.suite import Bench, Suite


def number(name, required=False, default=None, kind="integer", minimum=1):
    return Parameter(name, kind, required, default, minimum=minimum)


DTYPE = Parameter("dtype", "text", required=False, default="fp32", choices=("fp32", "bf16"))
MODEL = Parameter("model", "text", True, choices=("alexnet", "vgg16"))
SIGNATURES = {
    signature.name: signature
    for signature in (
        Signature("matmul", "Multiply.", (number("n", required=True), number("m"), number("batch", default=1), DTYPE)),
        Signature("train_step", "Train.", (MODEL, DTYPE)),
        Signature("spin", "Wait.", (number("seconds", default=0.001, kind="number", minimum=0),)),
        Signature("noop", "Nothing.", ()),
        Signature("together", "Compute as ranks.", (number("ranks", required=True),)),
        Signature("call", "Call.", tuple(map(number, CPU_AXES))),
    )
}
NOOP = Bench("noop", {})


def suite(*benches, name="s", devices=(), policy=None):
    return Suite(name, "", benches, devices, policy or Policy(), origin=f"{name}.toml")


def ids(*suites, devices=("cpu",), **options):
    planning.check(suites, SIGNATURES)
    return [case.id for case in planning.plan(suites, SIGNATURES, devices, **options)]


def test_a_case_knows_its_suite_device_and_every_parameter_and_an_integer_becomes_a_number():
    mine = suite(Bench("matmul", {"n": (64,)}), Bench("spin", {"seconds": (2,)}), name="mine")
    case, spin = planning.plan([mine], SIGNATURES, ["cuda:1"])
    assert (case.suite, case.workload, case.device) == ("mine", "matmul", "cuda:1")
    assert case.params == {"n": 64, "batch": 1, "dtype": "fp32"}
    assert repr(spin.params) == "{'seconds': 2.0}"


CARDS = ["cuda:0", "cuda:1"]
ABSENT = suite(Bench("noop", {}, ("cpu", "cuda", "xpu:1")))
ACCELERATORS = suite(NOOP, Bench("spin", {}, ("accelerator",)))


@pytest.mark.parametrize(
    ("planned", "devices", "include_absent", "noops", "spins"),
    [
        # A bench chooses its devices before its suite does.
        (suite(NOOP, Bench("spin", {}, ("cpu", "cuda:1", "cuda")), devices=("cuda",)), ["cpu", *CARDS], True, CARDS, ["cpu", *CARDS[::-1]]),
        # A device that is absent has its cases unless the user chose others.
        (ABSENT, ["cpu"], True, ["cpu", "cuda", "xpu:1"], []),
        (ABSENT, ["cpu"], False, ["cpu"], []),
        # Accelerators of any kind have their cases, and where there is none so has the word.
        (ACCELERATORS, ["cpu"], True, ["cpu"], ["accelerator"]),
        (ACCELERATORS, ["cpu"], False, ["cpu"], []),
        (ACCELERATORS, ["cpu", *CARDS, "xpu:0"], True, ["cpu", *CARDS, "xpu:0"], [*CARDS, "xpu:0"]),
        (ACCELERATORS, ["mps"], False, ["mps"], ["mps"]),
    ],
)
def test_on_which_devices_a_bench_has_cases(planned, devices, include_absent, noops, spins):
    expected = [*(f"noop[]@{each}" for each in noops), *(f"spin[]@{each}" for each in spins)]
    assert ids(planned, devices=devices, include_absent=include_absent) == expected
    assert planning.count([planned], devices, include_absent=include_absent) == len(expected)


def test_planned_ids_are_the_products_of_the_axes_each_once():
    products = [Bench("matmul", {"n": (1, 2), "dtype": ("fp32", "bf16")}, ("cpu",)), Bench("matmul", {"n": (2, 3)}, ("cuda", "cpu"))]
    suites = suite(*products), suite(Bench("spin", {"seconds": (1, 1.0000001)}, ("cuda:1",)), Bench("matmul", {"n": (1,)}, ("cpu",)))
    on_cpu = [f"matmul[n={n},dtype={dtype}]@cpu" for n, dtype in itertools.product((1, 2), ("fp32", "bf16"))]
    on_cards = [f"matmul[n={n},dtype=fp32]@{card}" for card, n in itertools.product(CARDS, (2, 3))]
    spins = [f"spin[seconds={seconds}]@cuda:1" for seconds in ("1", "1.0000001")]
    assert ids(*suites, devices=["cpu", *CARDS]) == [*on_cpu, *on_cards, "matmul[n=3,dtype=fp32]@cpu", *spins]
    assert planning.count(suites, ["cpu", *CARDS]) == 4 + 6 + 2 + 1


def test_settings_replace_an_axis_where_it_stands_and_add_it_behind():
    before = suite(Bench("matmul", {"dtype": ("fp32",), "n": (64,)}), Bench("train_step", {"model": ("alexnet",)}), NOOP)
    (after,) = planning.with_settings([before], ["dtype=bf16,fp32", "batch=2", "batch=4"], SIGNATURES)
    assert [list(bench.axes.items()) for bench in after.benches] == [
        [("dtype", ("bf16", "fp32")), ("n", (64,)), ("batch", (2, 4))],
        [("model", ("alexnet",)), ("dtype", ("bf16", "fp32"))],
        [],
    ]
    assert before.benches[0].axes == {"dtype": ("fp32",), "n": (64,)}


WRONG_SETTINGS = ("n", "n=", "=3", "bacth=1", "x=1", "n=-4", "n=4,four", "dtype=fp31", "dtype=x", "seconds=1")
N1 = {"n": (1,)}
WRONG_BENCHES = (
    *(("matmull", {}), ("x", {}), ("train_step", {"modl": ("alexnet",)}), ("noop", N1), ("matmul", {"m": (1,)}), ("train_step", {})),
    *(("matmul", {"n": (64, 0)}), ("matmul", {"n": (True,)}), ("matmul", {**N1, "dtype": ("fp16",)}), ("matmul", {**N1, "dtype": (16,)})),
    *(("spin", {"seconds": (0,)}), ("together", {"ranks": (2,), "threads": (1,)})),
)
WRONG_DEVICES = ("coda", "cpu:0", "accelerators", "accelerator:0", "cuda:", "pretent:1", "gpu")
KINDS = (*DEVICE_KINDS, "pretend")
HUGE = suite(Bench("matmul", {"n": tuple(range(1, 2001)), "m": tuple(range(1, 1002))}))


def sentence(function, *arguments, **options):
    with pytest.raises((SuiteError, UsageError)) as caught:
        function(*arguments, **options)
    return str(caught.value)


def test_a_mistake_is_one_sentence(snapshot):
    one = [suite(Bench("matmul", {"n": (64,)}))]
    scenes = [(f"--set {each}", sentence(planning.with_settings, one, [each], SIGNATURES)) for each in WRONG_SETTINGS]
    ranks = [suite(Bench("together", {"ranks": (2,)}))]
    scenes += [("--set threads=1", sentence(planning.with_settings, ranks, ["threads=1"], SIGNATURES))]
    scenes += [(f"{name} {axes}", sentence(planning.check, [suite(NOOP, Bench(name, axes))], SIGNATURES)) for name, axes in WRONG_BENCHES]
    scenes += [
        (f"devices of the suite: {each}", sentence(planning.check, [suite(devices=(each,))], SIGNATURES, KINDS)) for each in WRONG_DEVICES
    ]
    planning.check([suite(devices=("cpu", "cuda", "cuda:1", "accelerator", "pretend", "pretend:0"))], SIGNATURES, KINDS)
    scenes += [("no such plugin: pretend", sentence(planning.check, [suite(devices=("pretend",))], SIGNATURES))]
    scenes += [("devices of a bench: coda", sentence(planning.check, [suite(Bench("noop", {}, ("coda",)))], SIGNATURES))]
    scenes += [("too many", sentence(lambda: next(planning.plan([HUGE], SIGNATURES, ["cpu"]))))]
    scenes += [("-k vgg", sentence(ids, suite(NOOP), only=lambda case_id: "vgg" in case_id))]
    scenes += [("--device cpu", sentence(ids, suite(Bench("noop", {}, ("cuda",))), include_absent=False))]
    snapshot("plan-mistakes", "".join(f"{given}\n    {said}\n" for given, said in scenes))


def policy_of(*suites, devices=("cpu",)):
    return planning.policy_of(suites, SIGNATURES, devices)


def test_the_policy_of_a_run_is_what_its_suites_agree_on():
    brief = suite(NOOP, policy=Policy(round_s=0.3))
    assert [policy_of(brief, brief), policy_of(brief, suite(NOOP))] == [brief.policy, Policy()]


@pytest.mark.parametrize(
    ("benches", "named", "expected_s"),
    [
        ([NOOP], (), 240.0),
        ([NOOP], ("cuda", "xpu"), 180.0),
        ([NOOP, Bench("matmul", {"n": (8,)}, ("cuda:1",))], ("cpu",), 120.0),
        ([Bench("together", {"ranks": (2,)})], (), 120.0),  # one of those that compute together
        ([NOOP], ("xpu",), 0.0),
    ],
)
def test_the_budget_of_a_suite_is_that_of_each_device_that_takes_part(benches, named, expected_s):
    brief = suite(*benches, devices=named, policy=Policy(budget_s=60))
    assert policy_of(brief, devices=["cpu", *CARDS, "cuda:2"]) == Policy(budget_s=expected_s)


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
    counted = planning.with_core_counts([suite(Bench("call", axes))], cores, cpus)
    shared = [each.replace("threads=2,", "").replace("@cpu", "@cuda:0") for each in planned if "instances" in each]
    assert ids(*counted, devices=["cpu", "cuda:0"]) == [*planned, *(shared or ["call[]@cuda:0"])]
