"""Plans of cases: those of suites, checked by the signatures of their workloads, and those of the self-test."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dlbench.core.errors import SuiteError, UsageError, nearest
from dlbench.core.model import ACCELERATOR, CPU_AXES, DEVICE_KINDS, OWN, Case, Parameter, ParamValue, Policy, Signature, kind_of
from dlbench.harness.plan.suite import Bench, Suite, axis_values

MAX_CASES = 200_000
"""More would take weeks to measure; a suite that plans more is a mistake."""

_SETUP_S = 0.3
"""Set-up of a case in a round, for `case_s`: a fork, and building a model."""
_WARMUP_S = 0.2
"""Least warm-up on a CPU, where the policy leaves it open."""

ALL, CORES = "all", "cores"
"""Words on the axes of the CPU that mean numbers of this machine: see `with_core_counts`."""

Signatures = Mapping[str, Signature]
Suites = Sequence[Suite]
_Words = Mapping[ParamValue, Iterable[ParamValue]]
"""Words that an axis may have, and the values that each stands for."""


def workload_names(suites: Suites) -> tuple[str, ...]:
    """Return each workload that the suites name, once."""
    return tuple(dict.fromkeys(bench.workload for suite in suites for bench in suite.benches))


def with_settings(suites: Suites, settings: Sequence[str], signatures: Signatures) -> tuple[Suite, ...]:
    """Apply ``axis=v1,v2`` settings: they replace, or add, the axis in every bench whose workload has that parameter.

    Raises UsageError for a setting that can't be read or that no workload has, SuiteError for an invalid value or an unknown workload.
    """
    texts_of_axis: dict[str, list[str]] = {}  # two settings of one axis add up
    for setting in settings:
        axis, _, texts = setting.partition("=")
        if not axis or not texts:
            raise UsageError(f"--set {setting}: write axis=value or axis=value,value")
        texts_of_axis.setdefault(axis, []).extend(texts.split(","))
    parameter_names = {parameter.name for _, _, signature in _benches(suites, signatures) for parameter in signature.parameters}
    for axis in texts_of_axis:
        if axis in parameter_names:
            continue
        if axis in CPU_AXES:  # every workload but those with ranks has these
            raise UsageError(f"--set {axis}: ranks share the cores among themselves; leave it out for workloads with ranks")
        raise UsageError(f"--set {axis}: no workload of {_names(suites)} has such a parameter{nearest(axis, sorted(parameter_names))}")

    def with_new_axes(bench: Bench) -> Bench:
        axes = dict(bench.axes)
        for axis, texts in texts_of_axis.items():
            if parameter := signatures[bench.workload].parameter(axis):
                where = f"--set {axis}={','.join(texts)} ({bench.workload})"
                values = axis_values(map(parameter.parse, texts), where)
                axes[axis] = tuple(_checked(parameter, value, where, signatures) for value in values)
        return replace(bench, axes=axes)

    return _with_benches(suites, with_new_axes)


def _with_benches(suites: Suites, change: Callable[[Bench], Bench]) -> tuple[Suite, ...]:
    return tuple(replace(suite, benches=tuple(map(change, suite.benches))) for suite in suites)


def with_user_names(suites: Suites, signatures: Signatures, files: Sequence[str]) -> tuple[Suite, ...]:
    """Replace the value ``own`` of an axis by all values that the user defines for that parameter.

    If the user defines none, the value is left out. An axis without values goes, or its whole bench if the parameter has no default.
    A bench with ``own`` takes the place of the benches without it that its workload has, if the user defines a value for each of its axes.
    Raises SuiteError if none of a suite's benches with ``own`` is left; it says what the user's ``files`` lack.
    """
    return tuple(replace(suite, benches=tuple(_with_user_names(suite, signatures, files))) for suite in suites)


class _FilledBench(NamedTuple):
    """A bench of a suite, and its axes with the user's values in place of ``own``."""

    where: str
    bench: Bench
    signature: Signature
    axes: Mapping[str, tuple[ParamValue, ...]]

    @property
    def has_own(self) -> bool:
        """Whether any axis had ``own``."""
        return self.axes != self.bench.axes

    def has_user_value(self) -> bool:
        """Whether the user defines a value for any axis that had ``own``."""
        return any(values and values != self.bench.axes[axis] for axis, values in self.axes.items())

    def undefined_axis(self) -> str | None:
        """Return the first axis that is left without values and whose parameter has no default; None if there is none."""
        for axis, values in self.axes.items():
            parameter = self.signature.parameter(axis)
            if not values and parameter and parameter.default is None:
                return axis
        return None


def _with_user_names(suite: Suite, signatures: Signatures, files: Sequence[str]) -> Iterator[Bench]:
    """Yield the benches of one suite that stay, with the user's values for ``own``; `with_user_names` has the rules and the errors."""
    benches: list[_FilledBench] = []
    for where, bench, signature in _benches([suite], signatures):
        # For each parameter that users can define values of: the word `own`, and what it stands for.
        words_of_axis: dict[str, _Words] = {each.name: {OWN: each.user} for each in signature.parameters if each.user is not None}
        axes = {axis: _expanded(values, words_of_axis.get(axis, {})) for axis, values in bench.axes.items()}
        benches.append(_FilledBench(where, bench, signature, axes))
    workloads_without_own = {each.bench.workload for each in benches if not each.has_own}
    fully_defined_workloads = {each.bench.workload for each in benches if each.has_own and all(each.axes.values())}
    first_lack = ""  # the lack of the first bench that is left out while no bench without `own` measures its workload
    measures_own = False  # whether a bench that stays measures something of the user's
    for each in benches:
        bench = each.bench
        if not each.has_own and bench.workload in fully_defined_workloads:
            continue  # a bench with the user's own takes its place
        if undefined := each.undefined_axis():
            lack = f"{each.where}: {undefined} = {OWN} means one of your own, and there is none"
            if bench.workload not in workloads_without_own:
                first_lack = first_lack or lack
            elif each.has_user_value():  # such as a network, but no data: the bench without `own` would not measure that network
                raise SuiteError(f"{lack}; put @dlbench.data above a function that returns batches (docs/feeding.md shows one)")
            continue  # this bench lacks a value, and is left out
        # An axis may name something of the user's without a change here: --set model=NAME names a network. And where a network brings
        # its own optimizer, the user's value is itself called `own`.
        measures_own |= each.has_own or any(parameter.user for parameter in each.signature.parameters if parameter.name in each.axes)
        yield replace(bench, axes={axis: values for axis, values in each.axes.items() if values})
    if not first_lack or measures_own:
        return
    if files:  # the user gave some, but nothing that they define is measured
        right = "put @dlbench.network(inputs=…, classes=…) above the function that returns yours (dlbench new example.py shows one)"
        raise SuiteError(f"{', '.join(files)}: no network is registered there; {right}")
    raise SuiteError(f"{first_lack}; name a file that has it: dlbench run mine.py (docs/my-network.md shows one)")


def _expanded(values: Iterable[ParamValue], words: _Words) -> tuple[ParamValue, ...]:
    """Return the values of an axis, without repetitions, with all that a word stands for in place of it."""
    return tuple(dict.fromkeys(each for value in values for each in words.get(value, [value])))


def with_core_counts(suites: Suites, cores: int, cpus: int) -> tuple[Suite, ...]:
    """Replace the words ``all`` and ``cores`` on the axes of the CPU by numbers of this machine.

    The word ``cores`` stands for the number of physical cores. For threads ``all`` stands for 1, 2, 4 … up to that number, and for the
    number of logical ``cpus`` if there are more; for instances it stands for those of 1, 2, 4 … that divide the cores evenly.
    """
    doublings = [*(2**power for power in range(cores.bit_length())), cores]  # 1, 2, 4, 6 for six cores; `_expanded` drops repetitions
    words_of_axis: dict[str, _Words] = {
        "threads": {ALL: [*doublings, max(cores, cpus)], CORES: [cores]},
        "instances": {ALL: [count for count in doublings if cores % count == 0], CORES: [cores]},
    }

    def with_numbers(bench: Bench) -> Bench:
        return replace(bench, axes={axis: _expanded(values, words_of_axis.get(axis, {})) for axis, values in bench.axes.items()})

    return _with_benches(suites, with_numbers)


def check(suites: Suites, signatures: Signatures, kinds: Sequence[str] = DEVICE_KINDS) -> None:
    """Check every bench by the signature of its workload, and its devices by the ``kinds`` of device, those of plugins included.

    Raises SuiteError, with place and nearest valid name, for an unknown workload, parameter or kind of device, for an invalid value of
    a parameter, and for a parameter that has neither default nor axis.
    """
    for suite in suites:
        _check_devices(suite.devices, kinds, suite.origin)
    for where, bench, signature in _benches(suites, signatures):
        _check_devices(bench.devices, kinds, where)
        for axis, values in bench.axes.items():
            parameter = signature.parameter(axis)
            if parameter is None:
                near = nearest(axis, [each.name for each in signature.parameters])
                raise SuiteError(f"{where}: no parameter is called '{axis}'{near}")
            for value in values:
                _checked(parameter, value, where, signatures)
        for parameter in signature.parameters:
            if parameter.required and parameter.name not in bench.axes:
                raise SuiteError(f"{where}: '{parameter.name}' has no default; add axes.{parameter.name}, {parameter.wanted()}")


def _check_devices(names: Sequence[str], kinds: Sequence[str], where: str) -> None:
    for name in names:
        kind, colon, index = name.partition(":")
        valid_index = not colon or (kind != "cpu" and index.isdecimal())
        if name != ACCELERATOR and (kind not in kinds or not valid_index):
            near = nearest(ACCELERATOR if name == "gpu" else name, [*kinds, ACCELERATOR])  # in letters "xpu" would be the nearest
            raise SuiteError(f"{where}, devices: no device is called '{name}'{near}")


def count(suites: Suites, devices: Sequence[str], *, include_absent: bool = True) -> int:
    """Return the highest number of cases there can be, by multiplication: a case that two benches share counts twice."""
    return sum(
        len(_resolved(suite, bench, devices, include_absent)) * math.prod(map(len, bench.axes.values()))
        for suite in suites
        for bench in suite.benches
    )


def plan(
    suites: Suites,
    signatures: Signatures,
    devices: Sequence[str],
    *,
    only: Callable[[str], bool] | None = None,
    include_absent: bool = True,
) -> Iterator[Case]:
    """Yield the cases of suites that `check` accepted, in order, each case once.

    ``devices`` are the ids that take part; a suite's own ``devices`` choose among them. With ``include_absent`` a device that a suite
    names has cases even if it is absent: the runner skips them with a reason. It is false where the user chose the devices. ``only``
    returns whether to plan a case, by its id.

    Raises SuiteError before the first case for more than ``MAX_CASES``, and UsageError at the end if there was none.
    """
    total = count(suites, devices, include_absent=include_absent)
    if total > MAX_CASES:
        raise SuiteError(
            f"{_names(suites)} would plan {total:,} cases, and {MAX_CASES:,} is the limit; shorten an axis, for example with --set"
        )
    planned_ids = set[str]()
    for suite in suites:
        for bench in suite.benches:
            signature = signatures[bench.workload]
            axes: dict[str, list[ParamValue]] = {}
            for name, values in bench.axes.items():
                if parameter := signature.parameter(name):
                    # Checking once more makes an integer a float if the parameter is a number.
                    axes[name] = [_checked(parameter, value, name, signatures) for value in values]
            for device in _devices_of(suite, bench, signatures, devices, include_absent):
                # A thread count changes nothing on an accelerator: its cases would be equal.
                varied = {name: values for name, values in axes.items() if device == "cpu" or name != "threads"}
                for combination in itertools.product(*varied.values()):
                    case = Case.of(suite.name, signature, dict(zip(varied, combination, strict=True)), device)
                    if case.id not in planned_ids and (only is None or only(case.id)):
                        planned_ids.add(case.id)
                        yield case
    if not planned_ids and only:
        raise UsageError(f"{_names(suites)} plans no case that -k selects; loosen it (dlbench list SUITE shows the ids)")
    if not planned_ids:
        nothing = f"{_names(suites)} plans no case on {', '.join(devices)}, as it names other devices"
        raise UsageError(f"{nothing}; leave --device out, or measure where they are")


def policy_of(suites: Suites, signatures: Signatures, devices: Sequence[str]) -> Policy:
    """Return the policy that all the suites agree on; where they differ, the default one holds for the whole run.

    A suite's budget is for one device. The returned policy has it as many times as there are devices that the benches run on.
    """
    policies = {suite.policy for suite in suites}
    policy = policies.pop() if len(policies) == 1 else Policy()
    if policy.budget_s is None:
        return policy
    measured_devices = {
        device
        for suite in suites
        for bench in suite.benches
        for device in _devices_of(suite, bench, signatures, devices, include_absent=False)
    }
    return replace(policy, budget_s=policy.budget_s * len(measured_devices))


def forecast_s(suite: Suite, devices: Sequence[str]) -> float:
    """Guess the seconds of a suite on these devices from its file alone: its budget for each that it is measured on, or else its rounds."""
    policy = policy_of([suite], {}, devices)
    return policy.budget_s or estimate(policy, count([suite], devices, include_absent=False))


def policy_of_tries(policy: Policy) -> Policy:
    """Return how a try of a search is measured: as briefly as its memory and a rough time allow."""
    return replace(policy, min_blocks=1, round_s=min(policy.round_s, 0.2), max_warmup_s=min(policy.max_warmup_s, 1.0))


def case_s(policy: Policy) -> float:
    """Forecast from the policy alone how long a case takes in a round: set-up, warm-up and blocks, 1.5 s by default."""
    warmup_s = _WARMUP_S if policy.warmup_s is None else policy.warmup_s
    return min(_SETUP_S + warmup_s + policy.round_s, policy.timeout_s)


def estimate(policy: Policy, cases: int, tries: int = 0) -> float:
    """Forecast how long so many cases take, and so many tries of searches, which are made once and only while the budget lasts.

    A budget cuts later rounds, never the first, and what it leaves makes them longer.
    """
    round_s = cases * case_s(policy)
    whole_s = policy.rounds * round_s + tries * case_s(policy_of_tries(policy))
    if policy.budget_s is None:
        return whole_s
    return max(round_s, min(whole_s, policy.budget_s))


def _benches(suites: Suites, signatures: Signatures) -> Iterator[tuple[str, Bench, Signature]]:
    """Yield every bench with its name for errors (``sweep.toml, bench 2 (matmul)``) and its workload's signature, or raise SuiteError."""
    for suite in suites:
        for number, bench in enumerate(suite.benches, 1):
            where, workload = f"{suite.origin}, bench {number}", bench.workload
            if workload not in signatures:
                near = nearest(workload, sorted(signatures))
                raise SuiteError(f"{where}: no workload is called '{workload}'{near} (one of your own comes with its FILE.py)")
            yield f"{where} ({workload})", bench, signatures[workload]


def _checked(parameter: Parameter, value: ParamValue, where: str, signatures: Signatures) -> ParamValue:
    """Return the value as the parameter takes it: an integer becomes a float if the parameter is a number.

    A word that `with_user_names` or `with_core_counts` will replace stays as it is. Raises SuiteError for an invalid value. The error
    suggests the nearest valid name, or tells which other workload takes the value.
    """
    if (value == OWN and parameter.user is not None) or (value in (ALL, CORES) and parameter.name in CPU_AXES):
        return value
    try:
        checked = parameter.check(value)
    except ValueError as error:
        if parameter.choices and isinstance(value, str):
            # Another workload may take the value for its parameter of the same name.
            namesakes = {each.name: each.parameter(parameter.name) for each in signatures.values()}
            takers = [workload for workload, namesake in namesakes.items() if namesake and value in namesake.choices]
            if takers:
                more = f" and {len(takers) - 1} more" if len(takers) > 1 else ""
                hint = f" here, only in {takers[0]}{more}; valid: {', '.join(parameter.choices)}"
            else:
                hint = nearest(value, list(parameter.choices), least=_LEAST_LIKENESS)
            raise SuiteError(f"{where}: no {parameter.name} is called '{value}'{hint}") from error
        raise SuiteError(f"{where}: {parameter.name} must be {error}") from error
    return value if checked is None else checked  # `check` returns None only for None, which no axis has


_LEAST_LIKENESS = 0.8
"""Least similarity of a name that is suggested. For short words less is no typing error: nhwc is the opposite of nchw."""


def _devices_of(suite: Suite, bench: Bench, signatures: Signatures, present: Sequence[str], include_absent: bool) -> tuple[str, ...]:
    """Return the ids of the devices that a bench has cases on. Cases of several ranks have the first device of each kind alone."""
    found = _resolved(suite, bench, present, include_absent)
    signature = signatures.get(bench.workload)
    if signature is None or signature.parameter("ranks") is None:
        return found
    first_of_kind: dict[str, str] = {}
    for device in found:
        first_of_kind.setdefault(kind_of(device), device)
    return tuple(first_of_kind.values())


def _resolved(suite: Suite, bench: Bench, present: Sequence[str], include_absent: bool) -> tuple[str, ...]:
    """Return the ids of the devices that the list of a bench, or else of its suite, names, in that order; all ids without a list."""
    wanted = bench.devices or suite.devices
    if not wanted:
        return tuple(present)
    found: list[str] = []
    for word in wanted:
        if word == ACCELERATOR:
            named = [device for device in present if kind_of(device) != "cpu"]
        else:
            named = [device for device in present if word in (device, kind_of(device))]
        found += named or ([word] if include_absent else [])
    return tuple(dict.fromkeys(found))


def _names(suites: Suites) -> str:
    return " ".join(suite.name for suite in suites)


SELFTEST_ROUNDS = 14
"""Rounds of the self-test: as many as ``dlbench ab`` takes at least, since it is its rule that is tested."""
COPIES = 10
"""Copies of each program in every round: each two of them are one comparison of identical code."""
BUDGET_S = 360.0
"""No round starts that would not end by then; where too few were made, that is the finding."""
SELFTEST_POLICY = Policy(
    rounds=SELFTEST_ROUNDS,
    max_rounds=SELFTEST_ROUNDS,
    budget_s=BUDGET_S,
    min_blocks=40,
    max_blocks=40,
    warmup_s=0.05,
    max_warmup_s=0.15,
    tries=1,
)
"""Forty blocks, which cost 0.1 s: of ten the p10 differs by more between processes, and a real 10 % is seen less often. One try, as how
often a verdict is wrong on a disturbed machine is what is asked."""
SPINS_S = (50e-6, 500e-6, 5e-3)
SLOWER = 10
"""Percent of the time, wasted for real in each call."""


def selftest_cases(signatures: Signatures) -> list[Case]:
    """Return the cases of the self-test, all on the CPU; all of one program are copies, so each round measures them in a row."""
    cases = [Case.of("self", signatures["noop"], {}, "cpu")]
    cases += [Case.of("self", signatures["spin"], {"seconds": seconds}, "cpu") for seconds in SPINS_S]
    slowed = signatures["slowed"]
    program = slowed.parameter("program")
    for name in program.choices if program else ():
        copy = Case.of("self", slowed, {"program": name}, "cpu")
        # The same work under another name is another case: a process and inputs of its own.
        cases += [replace(copy, id=f"{copy.key}#{number}@cpu") for number in range(1, COPIES + 1)]
        for variant, changed in (("slower", {"percent": SLOWER}), ("tail", {"tail": True})):
            case = Case.of("self", slowed, {"program": name, **changed}, "cpu")
            cases.append(replace(case, id=f"{copy.key}#{variant}@cpu"))
    return cases
