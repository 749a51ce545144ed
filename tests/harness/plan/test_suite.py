"""Reading a suite: what it says, and one exact sentence for each mistake."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.core.errors import SuiteError
from dlbench.core.model import Policy, Signature, value_text
from dlbench.harness.plan import suite as suites
from dlbench.harness.plan.cases import check
from dlbench.harness.plan.suite import Bench, Suite, parse

names = st.text(st.characters(categories=("Ll", "Lu", "Nd"), include_characters="_-"), min_size=1, max_size=8)
printable = st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" ", exclude_characters=","), min_size=1, max_size=8)
values = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), printable)
axes = st.dictionaries(names, st.lists(values, min_size=1, max_size=4, unique_by=value_text).map(tuple), max_size=4)
devices = st.lists(st.sampled_from(["cpu", "accelerator", "cuda", "cuda:0", "cuda:13", "mps", "xpu:1"]), unique=True, max_size=3).map(tuple)
positive = st.floats(0, exclude_min=True, allow_nan=False, allow_infinity=False)
policies = st.builds(
    Policy,
    rounds=st.integers(1, 7),
    max_rounds=st.integers(7, 99),
    target=positive,
    budget_s=st.none() | positive,
    timeout_s=positive,
    round_s=positive,
    min_blocks=st.integers(1, 5),
    max_blocks=st.integers(5, 50),
    warmup_s=st.none() | positive,
    max_warmup_s=positive,
    tries=st.integers(1, 5),
)
metrics = st.dictionaries(st.sampled_from(["time", "memory"]), st.floats(1e-4, 0.99) | st.sampled_from(["5%", "150 %"]), max_size=2)
anything = st.builds(
    Suite,
    name=names,
    about=st.text(max_size=20).map(lambda text: " ".join(text.split())),
    benches=st.lists(st.builds(Bench, workload=printable, axes=axes, devices=devices), min_size=1, max_size=3).map(tuple),
    devices=devices,
    policy=policies,
    thresholds=metrics,
)


def as_toml(suite):
    def text(value):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")

    def lines():
        data = suite.to_json()
        yield from (f"{key} = {text(data[key])}" for key in ("about", "devices") if key in data)
        yield "[policy]"
        yield from (f"{key} = {value!r}" for key, value in data["policy"].items())
        yield "[thresholds]"
        yield from (f"{key} = {text(value)}" for key, value in data.get("thresholds", {}).items())
        for bench in data["bench"]:
            yield "[[bench]]"
            yield from (f"{key} = {text(bench[key])}" for key in ("workload", "devices") if key in bench)
            yield from (f"axes.{text(name)} = {text(each)}" for name, each in bench.get("axes", {}).items())

    return "\n".join(lines())


def order_of_axes(suite):
    return [list(bench.axes) for bench in suite.benches]


@given(anything)
def test_a_suite_survives_json(suite):
    again = Suite.from_json(json.loads(json.dumps(suite.to_json(), allow_nan=False)))
    assert again == suite
    assert order_of_axes(again) == order_of_axes(suite)


@given(anything)
def test_a_suite_survives_toml(suite):
    again = parse(as_toml(suite), f"somewhere/{suite.name}.toml")
    assert again == suite
    assert order_of_axes(again) == order_of_axes(suite)


@given(st.text())
def test_text_is_a_suite_or_a_sentence_about_the_file(text):
    try:
        parse(text, "x.toml")
    except SuiteError as error:
        assert str(error).startswith("x.toml")  # most text raises, some does not


def test_what_a_file_says():
    text = """
        about = "Where does the GPU  start to win?"
        devices = ["cpu", "cuda"]
        [policy]
        rounds = 3
        timeout_s = 5
        [thresholds]
        time = 0.05
        [thresholds.noop]
        throughput = "20%"
        [[bench]]
        workload = "matmul"
        axes.n = { pow2 = [6, 8] }
        axes.dtype = ["fp64", "fp32"]
        axes.batch = 8
        [[bench]]
        workload = "noop"
        devices = ["cuda:1"]
    """
    assert parse(text, "suites/dense.toml") == Suite(
        name="dense",
        about="Where does the GPU start to win?",
        benches=(Bench("matmul", {"n": (64, 128, 256), "dtype": ("fp64", "fp32"), "batch": (8,)}), Bench("noop", {}, ("cuda:1",))),
        devices=("cpu", "cuda"),
        policy=Policy(rounds=3, timeout_s=5),
        thresholds={"time": 0.05, "noop": {"throughput": "20%"}},
    )


def test_the_path_of_a_file_stays_out_of_the_header():
    suite = parse('[[bench]]\nworkload = "noop"', "/home/somebody/mine.toml")
    assert "somebody" not in json.dumps(suite.to_json())
    recorded = Suite.from_json(suite.to_json())
    assert recorded.origin == "suite mine"
    with pytest.raises(SuiteError, match=r"^suite mine, bench 1 \(noop\): no parameter is called 'n'"):
        check([replace(recorded, benches=(Bench("noop", {"n": (1,)}),))], {"noop": Signature("noop", "Nothing.", ())})


BENCH = '[[bench]]\nworkload = "matmul"\n'
POLICY_KEYS = ", ".join(each.name for each in fields(Policy))
VALUE = "a value must be an integer of 64 bits, a finite number, text without commas, true or false"
EXPONENTS = "pow2 must be two exponents from 0 to 40, the smaller first, such as [6, 13]"

MISTAKES = {
    "": "s.toml: has no bench; add a [[bench]] with a workload and its axes",
    "bench = []": "s.toml: has no bench; add a [[bench]] with a workload and its axes",
    "bench = 1": "s.toml, bench: must be tables, each under its own [[bench]]",
    '[bench]\nworkload = "noop"': "s.toml, bench: must be tables, each under its own [[bench]]",
    f"abuot = 'x'\n{BENCH}": "s.toml: no key is called 'abuot'; did you mean 'about'?",
    f"about = 1\n{BENCH}": "s.toml, about: must be text, not 1",
    "[[bench]]\nn = 1": "s.toml, bench 1: no key is called 'n'; valid: workload, axes, devices",
    f"{BENCH}[[bench]]\naxes.n = 1": 's.toml, bench 2: needs a workload, such as workload = "matmul"',
    "[[bench]]\nworkload = 3": 's.toml, bench 1: needs a workload, such as workload = "matmul", not 3',
    f"{BENCH}axes = 3": "s.toml, bench 1, axes: must be a table, such as axes.n = [64, 128], not 3",
    f"{BENCH}axes.n = []": "s.toml, bench 1 (matmul), axis n: the list is empty; give it a value, or leave the axis out",
    f"{BENCH}axes.n = [1, 2, 1]": "s.toml, bench 1 (matmul), axis n: 1 stands there twice; write each value once",
    f"{BENCH}axes.s = [1.0, 1]": "s.toml, bench 1 (matmul), axis s: 1 stands there twice; write each value once",
    f"{BENCH}axes.n = [[1]]": f"s.toml, bench 1 (matmul), axis n: {VALUE}, not [1]",
    f"{BENCH}axes.n = nan": f"s.toml, bench 1 (matmul), axis n: {VALUE}, not nan",
    f"{BENCH}axes.n = {2**63}": f"s.toml, bench 1 (matmul), axis n: {VALUE}, not {2**63}",
    f"{BENCH}axes.n = 'a,b'": f"s.toml, bench 1 (matmul), axis n: {VALUE}, not 'a,b'",
    f"{BENCH}axes.n = ''": f"s.toml, bench 1 (matmul), axis n: {VALUE}, not ''",
    f'{BENCH}axes.n = "a\\nb"': f"s.toml, bench 1 (matmul), axis n: {VALUE}, not 'a\\nb'",
    f"{BENCH}axes.n = 07:32:00": f"s.toml, bench 1 (matmul), axis n: {VALUE}, not datetime.time(7, 32)",
    f"{BENCH}axes.n = {{ pow = [1, 2] }}": "s.toml, bench 1 (matmul), axis n: no key is called 'pow'; did you mean 'pow2'?",
    f"{BENCH}axes.n = {{}}": f"s.toml, bench 1 (matmul), axis n: {EXPONENTS}, not None",
    f"{BENCH}axes.n = {{ pow2 = 6 }}": f"s.toml, bench 1 (matmul), axis n: {EXPONENTS}, not 6",
    f"{BENCH}axes.n = {{ pow2 = [6] }}": f"s.toml, bench 1 (matmul), axis n: {EXPONENTS}, not [6]",
    f"{BENCH}axes.n = {{ pow2 = [13, 6] }}": f"s.toml, bench 1 (matmul), axis n: {EXPONENTS}, not [13, 6]",
    f"{BENCH}axes.n = {{ pow2 = [0, 41] }}": f"s.toml, bench 1 (matmul), axis n: {EXPONENTS}, not [0, 41]",
    f"{BENCH}axes.n = {{ pow2 = [-1, 4] }}": f"s.toml, bench 1 (matmul), axis n: {EXPONENTS}, not [-1, 4]",
    f"{BENCH}axes.n = {{ pow2 = [true, 4] }}": f"s.toml, bench 1 (matmul), axis n: {EXPONENTS}, not [True, 4]",
    f"{BENCH}axes.n = {{ pow2 = [1.0, 4] }}": f"s.toml, bench 1 (matmul), axis n: {EXPONENTS}, not [1.0, 4]",
    f"devices = []\n{BENCH}": 's.toml, devices: must be a list such as ["cpu", "cuda"], or left out for every device, not []',
    f"devices = 'cpu'\n{BENCH}": 's.toml, devices: must be a list such as ["cpu", "cuda"], or left out for every device, not \'cpu\'',
    f"policy = 3\n{BENCH}": "s.toml, policy: must be a table, [policy], not 3",
    f"policy.round = 3\n{BENCH}": "s.toml, policy: no key is called 'round'; did you mean 'rounds' or 'round_s'?",
    f"policy.x = 3\n{BENCH}": f"s.toml, policy: no key is called 'x'; valid: {POLICY_KEYS}",
    f"policy.rounds = 0\n{BENCH}": "s.toml, policy: rounds must be a positive integer, not 0",
    f"policy.min_blocks = 2.5\n{BENCH}": "s.toml, policy: min_blocks must be a positive integer, not 2.5",
    f"policy.budget_s = '3m'\n{BENCH}": "s.toml, policy: budget_s must be a positive number of seconds, not '3m'",
    f"policy.timeout_s = inf\n{BENCH}": "s.toml, policy: timeout_s must be a positive number of seconds, not inf",
    f"policy.round_s = true\n{BENCH}": "s.toml, policy: round_s must be a positive number of seconds, not True",
    f"policy.target = -0.1\n{BENCH}": "s.toml, policy: target must be a positive number, not -0.1",
    f"policy.rounds = 30\n{BENCH}": "s.toml, policy: rounds = 30 is more than max_rounds = 20; set both",
    f"policy.max_blocks = 2\n{BENCH}": "s.toml, policy: min_blocks = 3 is more than max_blocks = 2; set both",
    f"thresholds = 3\n{BENCH}": "s.toml, thresholds: must be a table, [thresholds], not 3",
    f"thresholds.tiem = 0.1\n{BENCH}": "s.toml, thresholds: there is no metric 'tiem'; did you mean 'time'?",
    f"thresholds.time = -0.1\n{BENCH}": 's.toml, thresholds: time must be a fraction such as 0.05 or "5%", not -0.1',
    f"thresholds.time = nan\n{BENCH}": 's.toml, thresholds: time must be a fraction such as 0.05 or "5%", not nan',
    f"thresholds.matmull.time = 0.1\n{BENCH}": "s.toml, thresholds: no bench here has the workload 'matmull'; did you mean 'matmul'?",
    f"thresholds.matmul.memory = 0\n{BENCH}": 's.toml, thresholds: matmul: memory must be a fraction such as 0.05 or "5%", not 0',
    "about = 'x'\nbench": "s.toml: not valid TOML: Expected '=' after a key in a key/value pair (at end of document)",
    "\n\nabout 1\n": "s.toml: not valid TOML: Expected '=' after a key in a key/value pair (at line 3, column 7)",
    "x = " + "[" * 20_000: "s.toml: not valid TOML: nested too deeply",
}


@pytest.mark.parametrize(("text", "sentence"), MISTAKES.items())
def test_a_mistake_in_a_file_is_one_sentence(text, sentence):
    with pytest.raises(SuiteError) as caught:
        parse(text, "s.toml")
    assert str(caught.value) == sentence


def test_a_header_without_a_suite_is_a_sentence():
    with pytest.raises(SuiteError) as caught:
        Suite.from_json({"bench": []})
    assert str(caught.value) == "a suite in the result file's header has no name; the file was edited or damaged"
    with pytest.raises(SuiteError) as caught:
        Suite.from_json({"name": "mine", "bench": [{"workload": "noop", "axes": {"n": []}}]})
    assert str(caught.value) == "suite mine, bench 1 (noop), axis n: the list is empty; give it a value, or leave the axis out"


def test_a_path_is_read_and_a_name_is_looked_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_bytes(b"\xef\xbb\xbf" + BENCH.encode())
    assert suites.load("mine.toml") == Suite("mine", "", (Bench("matmul", {}),))
    assert suites.load("self").name == "self"
    assert [suite.name for suite in suites.load_all(["self", "mine.toml", "self"])] == ["self", "mine"]


def test_a_wheel_holds_the_suites_inside_the_package(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "dlbench"
    (package / "suites").mkdir(parents=True)
    (package.parent / "suites").mkdir()
    (package.parent / "suites" / "strange.toml").write_text(BENCH)
    (package / "suites" / "ours.toml").write_text(BENCH)
    monkeypatch.setattr("dlbench.core.files.PACKAGE", package)
    assert suites.builtin_names() == ["ours"]
    assert suites.load("ours").name == "ours"


def test_what_cannot_be_found_or_read_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("latin.toml").write_bytes(b"# one\n# M\xfcnchen\n")
    Path("big.toml").write_bytes(b"#" * (2**20 + 1))
    Path("folder.toml").mkdir()
    Path("other").mkdir()
    Path("self.toml").write_text(BENCH)
    sentences = {
        ("quikc",): "no suite is called 'quikc'; did you mean 'quick'? (a suite of your own is a path that ends in .toml)",
        ("gone.toml",): "cannot read gone.toml: No such file or directory",
        ("folder.toml",): "cannot read folder.toml: Is a directory",
        ("latin.toml",): "latin.toml, line 2: not UTF-8, as TOML has to be; save the file as UTF-8",
        ("big.toml",): "big.toml is larger than 1,048,576 bytes, the most that dlbench reads of a TOML file; shorten it",
        ("self", "./self.toml"): "self.toml and ./self.toml are both called 'self'; rename one of them",
    }
    for arguments, sentence in sentences.items():
        with pytest.raises(SuiteError) as caught:
            suites.load_all(arguments)
        assert str(caught.value) == sentence
