"""Reading a suite: what it says, which built-in benches it takes in, what ``-k`` selects, and one exact sentence for each mistake."""

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest

from dlbench.core.errors import SuiteError, UsageError
from dlbench.core.model import Policy, Signature
from dlbench.harness.plan import suite as suites
from dlbench.harness.plan.cases import check
from dlbench.harness.plan.suite import Bench, Suite, compile_expression, load, parse


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
    dense = parse(text, "suites/dense.toml")
    assert dense == Suite(
        name="dense",
        about="Where does the GPU start to win?",
        benches=(Bench("matmul", {"n": (64, 128, 256), "dtype": ("fp64", "fp32"), "batch": (8,)}), Bench("noop", {}, ("cuda:1",))),
        devices=("cpu", "cuda"),
        policy=Policy(rounds=3, timeout_s=5),
        thresholds={"time": 0.05, "noop": {"throughput": "20%"}},
    )
    for suite in (dense, *suites.load_all(suites.builtin_names())):
        again = Suite.from_json(json.loads(json.dumps(suite.to_json(), allow_nan=False)))
        assert again == suite
        assert [list(bench.axes) for bench in again.benches] == [list(bench.axes) for bench in suite.benches]


def test_the_path_of_a_file_stays_out_of_the_header():
    suite = parse(NOOP, "/home/somebody/mine.toml")
    assert "somebody" not in json.dumps(suite.to_json())
    recorded = Suite.from_json(suite.to_json())
    assert recorded.origin == "suite mine"
    with pytest.raises(SuiteError, match=r"^suite mine, bench 1 \(noop\): no parameter is called 'n'"):
        check([replace(recorded, benches=(Bench("noop", {"n": (1,)}),))], {"noop": Signature("noop", "Nothing.", ())})


BENCH, NOOP = '[[bench]]\nworkload = "matmul"\n', '[[bench]]\nworkload = "noop"\n'
RULE = "words are joined by 'and', 'or', 'not' and parentheses, and have letters, digits and _=.:@[],-+/"
EXPRESSIONS = (
    *("", "   ", "vgg and", "or vgg", "vgg resnet", "vgg)", "vgg)or(cuda", "(vgg", "()", "vgg (cuda)", "vgg*", "!x", "a if b else c"),
    *(opening * 100_000 + "vgg" for opening in ("(", "not ")),
)


def sentence(function, *arguments):
    with pytest.raises((SuiteError, UsageError)) as caught:
        function(*arguments)
    return str(caught.value)


def test_a_mistake_is_one_sentence(snapshot, transcript, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("latin.toml").write_bytes(b"# one\n# M\xfcnchen\n")
    Path("big.toml").write_bytes(b"#" * (2**20 + 1))
    Path("folder.toml").mkdir()
    Path("self.toml").write_text(BENCH)
    unread = (["quikc"], ["gone.toml"], ["folder.toml"], ["latin.toml"], ["big.toml"], ["self", "./self.toml"])
    headers = ({"bench": []}, {"name": "mine", "bench": [{"workload": "noop", "axes": {"n": []}}]})
    transcript("suite-mistakes", 46, lambda text: sentence(parse, ast.literal_eval(text), "s.toml"))
    assert sentence(parse, "x = " + "[" * 20_000, "s.toml") == "s.toml: not valid TOML: nested too deeply"
    scenes = [(" ".join(files), sentence(suites.load_all, files)) for files in unread]
    scenes += [(f"header {header}", sentence(Suite.from_json, header)) for header in headers]
    snapshot("suites-not-read", "".join(f"{given}\n    {said}\n" for given, said in scenes))
    columns = {}
    for text in EXPRESSIONS:
        begun, _, column = sentence(compile_expression, text).removesuffix(f": {RULE}").rpartition(", column ")
        assert begun == f"-k '{text}'"
        columns[text] = int(column)
    assert [columns[text] for text in ("", "vgg and", "or vgg", "(vgg", "a if b else c")] == [1, 8, 1, 1, 3]


def test_a_path_is_read_a_name_is_looked_up_and_included_benches_follow_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_bytes(b"\xef\xbb\xbf" + BENCH.encode())
    assert load("mine.toml") == Suite("mine", "", (Bench("matmul", {}),))
    assert [suite.name for suite in suites.load_all(["self", "mine.toml", "self"])] == ["self", "mine"]
    including = parse(f'include = "*"\n{NOOP}', "mine.toml")
    assert (including.benches, including.policy) == ((Bench("noop", {}), *load("full").benches), Policy())


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


SELECTING = ("resnet18", "RESNET", "not vgg", "batch=8,dtype=bf16]@cuda:0", "(vgg or resnet)and(cuda)", "not vgg and not cpu", "  cuda  ")
SELECTING += ("not (vgg and cuda)", "vgg and cpu or cuda", "cuda or cpu and vgg", "not vgg or cuda and cpu", "not not (cuda)", "[Model=")
OTHERS = ("vgg", "not not vgg", "vgg or resnet and cpu", "not (vgg or cuda)", "not vgg and cpu", "cuda and vgg or cpu and resnet")
OTHERS += ("android or ornot", " or ".join(["vgg"] * 1000))


def test_expressions_that_people_write():
    case_id = "train_step[model=resnet18,batch=8,dtype=bf16]@cuda:0"
    assert [text for text in (*SELECTING, *OTHERS) if compile_expression(text)(case_id)] == list(SELECTING)
    assert compile_expression("not " * 50 + "cuda")(case_id)
