"""Reading a suite: what it says, which built-in benches it takes in, what ``-k`` selects, and one exact sentence for each mistake."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.core.errors import SuiteError, UsageError
from dlbench.core.model import Policy, Signature, value_text
from dlbench.harness.plan import suite as suites
from dlbench.harness.plan.cases import check
from dlbench.harness.plan.suite import Bench, Suite, compile_expression, load, parse

names = st.text(st.characters(categories=("Ll", "Lu", "Nd"), include_characters="_-"), min_size=1, max_size=8)
printable = st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" ", exclude_characters=","), min_size=1, max_size=8)
values = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), printable)
axes = st.dictionaries(names, st.lists(values, min_size=1, max_size=3, unique_by=value_text).map(tuple), max_size=2)
devices = st.lists(st.sampled_from(["cpu", "accelerator", "cuda", "cuda:13", "xpu:1"]), unique=True, max_size=3).map(tuple)
positive = st.floats(0, exclude_min=True, allow_nan=False, allow_infinity=False)
policies = st.builds(Policy, rounds=st.integers(1, 7), budget_s=st.none() | positive, warmup_s=st.none() | positive)
metrics = st.dictionaries(st.sampled_from(["time", "memory"]), st.floats(1e-4, 0.99) | st.sampled_from(["5%", "150 %"]), max_size=2)
anything = st.builds(
    Suite,
    name=names,
    about=st.text(max_size=20).map(lambda text: " ".join(text.split())),
    benches=st.lists(st.builds(Bench, workload=printable, axes=axes, devices=devices), min_size=1, max_size=2).map(tuple),
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
        for table in ("policy", "thresholds"):
            yield f"[{table}]"
            yield from (f"{key} = {text(value)}" for key, value in data.get(table, {}).items())
        for bench in data["bench"]:
            yield "[[bench]]"
            yield from (f"{key} = {text(bench[key])}" for key in ("workload", "devices") if key in bench)
            yield from (f"axes.{text(name)} = {text(each)}" for name, each in bench.get("axes", {}).items())

    return "\n".join(lines())


@settings(max_examples=25)
@given(anything)
def test_a_suite_survives_json_and_toml(suite):
    for again in (Suite.from_json(json.loads(json.dumps(suite.to_json(), allow_nan=False))), parse(as_toml(suite), f"{suite.name}.toml")):
        assert again == suite
        assert [list(bench.axes) for bench in again.benches] == [list(bench.axes) for bench in suite.benches]


@settings(max_examples=30)
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
        axes.batch = [8, 8, 8.0]
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
    suite = parse(NOOP, "/home/somebody/mine.toml")
    assert "somebody" not in json.dumps(suite.to_json())
    recorded = Suite.from_json(suite.to_json())
    assert recorded.origin == "suite mine"
    with pytest.raises(SuiteError, match=r"^suite mine, bench 1 \(noop\): no parameter is called 'n'"):
        check([replace(recorded, benches=(Bench("noop", {"n": (1,)}),))], {"noop": Signature("noop", "Nothing.", ())})


BENCH, NOOP = '[[bench]]\nworkload = "matmul"\n', '[[bench]]\nworkload = "noop"\n'
VALUES = ("[]", "[[1]]", "nan", f"{2**63}", "'a,b'", "''", '"a\\nb"', "07:32:00")
EXPONENTS = ("", "pow = [1, 2]", *(f"pow2 = {each}" for each in ("6", "[6]", "[13, 6]", "[0, 41]", "[-1, 4]", "[1.0, 4]")))
POLICIES = (
    *("policy = 3", "policy.round = 3", "policy.x = 3", "policy.rounds = 0", "policy.min_blocks = 2.5", "policy.budget_s = '3m'"),
    *("policy.timeout_s = inf", "policy.round_s = true", "policy.target = -0.1"),
)
THRESHOLDS = ("", ".tiem = 0.1", ".time = -0.1", ".time = nan", ".matmull.time = 0.1", ".matmul.memory = 0")
MISTAKES = (
    *("", "bench = []", "bench = 1", '[bench]\nworkload = "noop"', "[[bench]]\nn = 1", "[[bench]]\nworkload = 3"),
    *(f"{BENCH}{more}" for more in ("[[bench]]\naxes.n = 1", "axes = 3", *(f"axes.n = {value}" for value in VALUES))),
    *(f"{BENCH}axes.n = {{ {each} }}" for each in EXPONENTS),
    *(f"{head}\n{BENCH}" for head in ("abuot = 'x'", "about = 1", "devices = []", "devices = 'cpu'", *POLICIES)),
    *(f"thresholds{each or ' = 3'}\n{BENCH}" for each in THRESHOLDS),
    *("include = 'matmul'", "about = 'x'\nbench", "\n\nabout 1\n", "x = " + "[" * 20_000),
)
RULE = "words are joined by 'and', 'or', 'not' and parentheses, and have letters, digits and _=.:@[],-+/"
EXPRESSIONS = (
    *("", "   ", "vgg and", "or vgg", "vgg resnet", "vgg)", "vgg)or(cuda", "(vgg", "()", "vgg (cuda)", "vgg*", "!x", "a if b else c"),
    *(opening * 100_000 + "vgg" for opening in ("(", "not ")),
)


def sentence(function, *arguments):
    with pytest.raises((SuiteError, UsageError)) as caught:
        function(*arguments)
    return str(caught.value)


def test_a_mistake_is_one_sentence(snapshot, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("latin.toml").write_bytes(b"# one\n# M\xfcnchen\n")
    Path("big.toml").write_bytes(b"#" * (2**20 + 1))
    Path("folder.toml").mkdir()
    Path("self.toml").write_text(BENCH)
    unread = (["quikc"], ["gone.toml"], ["folder.toml"], ["latin.toml"], ["big.toml"], ["self", "./self.toml"])
    headers = ({"bench": []}, {"name": "mine", "bench": [{"workload": "noop", "axes": {"n": []}}]})
    scenes = [(text[:80].strip(), sentence(parse, text, "s.toml")) for text in MISTAKES]
    scenes += [(" ".join(files), sentence(suites.load_all, files)) for files in unread]
    scenes += [(f"header {header}", sentence(Suite.from_json, header)) for header in headers]
    snapshot("suite-mistakes", "".join(f"{given}\n    {said}\n" for given, said in scenes))
    columns = {}
    for text in EXPRESSIONS:
        begun, _, column = sentence(compile_expression, text).removesuffix(f": {RULE}").rpartition(", column ")
        assert begun == f"-k '{text}'"
        columns[text] = int(column)
    assert [columns[text] for text in ("", "vgg and", "or vgg", "(vgg", "a if b else c")] == [1, 8, 1, 1, 3]


def test_a_path_is_read_and_a_name_is_looked_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_bytes(b"\xef\xbb\xbf" + BENCH.encode())
    assert load("mine.toml") == Suite("mine", "", (Bench("matmul", {}),))
    assert [suite.name for suite in suites.load_all(["self", "mine.toml", "self"])] == ["self", "mine"]


def test_a_wheel_holds_its_suites_and_a_star_stands_for_those_that_have_a_place_by_that(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "dlbench"
    for name, head in (("first", "place_in_full = 1"), ("another", "place_in_full = 2"), ("apart", ""), ("every", 'include = "*"')):
        (package / "suites").mkdir(parents=True, exist_ok=True)
        (package / "suites" / f"{name}.toml").write_text(head if "*" in head else f'{head}\n[[bench]]\nworkload = "{name}"\n')
    (package.parent / "suites").mkdir()
    (package.parent / "suites" / "strange.toml").write_text(BENCH)
    monkeypatch.setattr("dlbench.core.files.PACKAGE", package)
    assert suites.builtin_names() == ["another", "apart", "every", "first"]
    assert [bench.workload for bench in load("every").benches] == ["first", "another"]


def test_included_benches_follow_its_own():
    mine = parse(f'include = "*"\n{NOOP}', "mine.toml")
    assert mine.benches == (Bench("noop", {}), *load("full").benches)
    assert mine.policy == Policy()


words = st.text("abAB01_=.:@[],-", min_size=1, max_size=2)
trees = st.recursive(
    words,
    lambda inner: st.tuples(st.just("not"), inner) | st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
    max_leaves=8,
)
LEVEL = {"or": 0, "and": 1, "not": 2}


def rendered(tree, level=0):
    """Write a tree with no more parentheses than it needs."""
    if isinstance(tree, str):
        return tree
    operator, operands = tree
    inner = LEVEL[operator]
    text = f"not {rendered(operands, inner)}" if operator == "not" else f" {operator} ".join(rendered(each, inner + 1) for each in operands)
    return f"({text})" if inner < level else text


def evaluated(tree, case_id):
    if isinstance(tree, str):
        return tree.lower() in case_id.lower()
    operator, operands = tree
    if operator == "not":
        return not evaluated(operands, case_id)
    return {"and": all, "or": any}[operator]([evaluated(each, case_id) for each in operands])


@settings(max_examples=40)
@given(trees, st.text("abAB01_=.:@[],-", max_size=6))
def test_an_expression_selects_what_its_tree_says(tree, case_id):
    assert compile_expression(rendered(tree))(case_id) == evaluated(tree, case_id)


SELECTING = ("resnet18", "RESNET", "not vgg", "batch=8,dtype=bf16]@cuda:0", "(vgg or resnet)and(cuda)", "not vgg and not cpu", "  cuda  ")
OTHERS = ("vgg", "not not vgg", "vgg or resnet and cpu", "not (vgg or cuda)", "android or ornot", " or ".join(["vgg"] * 1000))


def test_expressions_that_people_write():
    case_id = "train_step[model=resnet18,batch=8,dtype=bf16]@cuda:0"
    assert [text for text in (*SELECTING, *OTHERS) if compile_expression(text)(case_id)] == list(SELECTING)
    assert compile_expression("not " * 50 + "cuda")(case_id)
