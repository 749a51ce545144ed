"""Mistakes of a user: one sentence with place and remedy, and the right exit code."""

import json
import lzma

import front_door
import made_up
import pytest
import shared_hosts
from front_door import dlbench

from dlbench.analysis.export import tabular

HEADER = '{"kind":"header","schema":1,"policy":{},"devices":[],"environment":{}}\n'


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("run", "cnn", "--set", "layout=nhwc"), 2, "(train_step): no layout is called 'nhwc'; valid: nchw, channels_last"),
        (("run", "qick"), 2, "no suite is called 'qick'; did you mean 'quick'?"),
        (("run", "cnn", "--set", "mode=freeze"), 2, "no mode is called 'freeze'; valid: eager, compile, graph, autotune"),
        (("run", "cores", "--set", "instances=0"), 2, "--set instances=0 (infer_step): instances must be a positive integer, not 0"),
        (("run", "scaling", "--set", "threads=2"), 2, "--set threads: no workload of scaling has such a parameter; valid: "),
        (("run", "quick", "--device", "cuda:9"), 69, "cuda"),
        (("run", "quick", "--device", "gpux"), 2, "gpux"),
        (("run", "self", "--set", "nn=3"), 2, "--set nn: no workload of self has such a parameter; valid: instances, seconds, threads"),
        (("run", "matmul", "--set", "n=-4"), 2, "--set n=-4 (matmul): n must be a positive integer, not -4"),
        (("run", "matmul", "--set", "dtype=fp31"), 2, "dtype"),
        (("run", "matmul", "-k", "nothing_has_this"), 2, "plans no case"),
        (("run", "matmul", "-k", "(fp32"), 2, "-k"),
        (("run", "self", "--budget", "soon"), 2, "'soon' is not a duration; write for example 90s, 1.5m, 500ms or 2h"),
        (("run", "self", "--rounds", "0"), 2, "--rounds"),
        (("run", "self", "--gate", "--rounds", "3"), 2, "--gate chooses the rounds itself"),
        (("run", "quick", "--resume", "x.jsonl"), 2, "--resume goes on with what the file planned"),
        (("run", "--resume", "missing.jsonl"), 2, "cannot read missing.jsonl: No such file or directory"),
        (("run", "self", "missing.py"), 2, "there is no file missing.py; give the path of one that ends in .py"),
        (("devices", "mine"), 2, "there is no file mine; give the path of one that ends in .py"),
        (("run", "self", "-o", "."), 2, "File '.' is a directory."),
        (("run", "self", "-o", "typo/dir/x.jsonl"), 2, "there is no folder typo/dir to write x.jsonl in; make it, or choose another"),
        (
            ("ab", "self", "--b", "same", "--junit", "typo/x.xml"),
            2,
            "there is no folder typo to write x.xml in; make it, or choose another",
        ),
        (("show", "missing.jsonl"), 2, "cannot read missing.jsonl: No such file or directory"),
        (("frobnicate",), 2, "frobnicate"),
        (("run", "mine.toml"), 2, "cannot read mine.toml: No such file or directory"),
    ],
)
def test_wrong_options(tmp_path, arguments, code, sentence):
    done = shared_hosts.dlbench(*arguments, cwd=tmp_path)
    assert (done.code, done.out) == (code, "")
    assert sentence in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[[bench]]\nworkload = "matmull"\n', "s.toml, bench 1: no workload is called 'matmull'; did you mean 'matmul'?"),
        ('[[bench]]\nworkload = "matmul"\naxes.N = 4\n', "s.toml, bench 1 (matmul): no parameter is called 'N'"),
        ('[[bench]]\nworkload = "matmul"\naxes.n = "big"\n', "s.toml, bench 1 (matmul): n must be a positive integer, not 'big'"),
        ('[[bench]]\nworkload = "matmul"\naxes.n = []\n', "the list is empty"),
        ('[[bench]]\nworkload = "matmul"\n', "'n' has no default; add axes.n, a positive integer"),
        ('[[bench]\nworkload = "matmul"\n', "s.toml: not valid TOML: "),
        ('[[bench]]\nworkload = "matmul"\naxes.n = 4\ndevices = ["gpu9"]\n', "gpu9"),
        ('devices = ["gpu"]\n[[bench]]\nworkload = "noop"\n', "s.toml, devices: no device is called 'gpu'; did you mean 'accelerator'?"),
        ('devices = []\n[[bench]]\nworkload = "noop"\n', "s.toml"),
        ('[policy]\nrounds = 0\n[[bench]]\nworkload = "noop"\n', "rounds"),
        ("", "s.toml: has no bench"),
    ],
)
def test_wrong_suites(tmp_path, text, sentence):
    (tmp_path / "s.toml").write_text(text)
    done = shared_hosts.dlbench("run", "s.toml", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "f.jsonl is empty; give a file that dlbench run wrote"),
        (b"hello\n", "f.jsonl, line 1: no dlbench header; give a file that dlbench run wrote"),
        (b"\x00\xff\x00", "f.jsonl, line 1: no dlbench header; give a file that dlbench run wrote"),
        (b'{"benchmarks": []}\n', "f.jsonl, line 1: no dlbench header; give a file that dlbench run wrote"),
        (b'{"kind":"header","schema":99}\n', "f.jsonl has schema 99, and dlbench reads schema 1 alone"),
        (b'{"kind":"header","schema":1,"dl', "f.jsonl, line 1: no dlbench header; give a file that dlbench run wrote"),
        (lzma.compress(b"{}\n"), "f.jsonl, line 1: no dlbench header; give a file that dlbench run wrote"),
        (b"[" * 100_000 + b"\n", "f.jsonl, line 1: no dlbench header; give a file that dlbench run wrote"),
    ],
)
@pytest.mark.parametrize("command", [("show", "f.jsonl"), ("run", "--resume", "f.jsonl")])
def test_wrong_result_files(tmp_path, content, sentence, command):
    (tmp_path / "f.jsonl").write_bytes(content)
    done = shared_hosts.dlbench(*command, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.count("\n") == 1
    assert (tmp_path / "f.jsonl").read_bytes() == content


def test_a_header_that_lacks_what_resuming_needs(tmp_path):
    (tmp_path / "f.jsonl").write_text(HEADER)
    done = shared_hosts.dlbench("run", "--resume", "f.jsonl", cwd=tmp_path)
    assert done.code == 2
    assert "f.jsonl, line 1: the header lacks what a run needs to go on ('suites'); start a new run" in done.err


def test_an_output_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    for output, code, sentence in (
        ("file/mine.jsonl", 2, "there is no folder file to write mine.jsonl in; make it, or choose another"),
        ("file/in/mine.jsonl", 2, "there is no folder file/in to write mine.jsonl in; make it, or choose another"),
        ("a" * 300, 74, f"cannot write {'a' * 300}: File name too long"),
    ):
        done = shared_hosts.dlbench("run", "self", "-o", output, cwd=tmp_path)
        assert (done.code, done.err) == (code, f"dlbench: {sentence}\n")


def test_a_machine_without_torch_is_told_so(tmp_path):
    """An import that fails as it does where torch is missing."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")\n")
    for name in ("dlbench", "suites"):
        (tmp_path / name).symlink_to(front_door.ROOT / name)
    done = dlbench("run", "self", cwd=tmp_path)
    assert done.code == 2
    assert "torch is not installed for" in done.err
    assert done.err.count("\n") == 1


def test_a_missing_package_is_a_sentence(tmp_path):
    """Installed without its dependencies, or run from a bare checkout where one is missing."""
    for name in ("dlbench", "suites"):
        (tmp_path / name).symlink_to(front_door.ROOT / name)
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError(\"No module named 'click'\", name='click')\n")
    done = dlbench("list", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err == "dlbench: the package 'click' is not installed here; pip install . adds what is missing\n"


HOSTILE = "=</script><script>alert(1)</script><!--\"'`&|![x](http://e)\x1b[31m\u202e\n" + "y" * 10_000
"""Markup, quotes, a formula, an escape sequence, a mark of the direction of writing, a line break, and much of it."""


HARMLESS = "9xxxxxxxx"


@pytest.mark.parametrize("form", ["csv", "json", "md", "table"])
def test_hostile_names_change_nothing_but_their_own_text_in_any_format(tmp_path, form):
    """What is printed is that of harmless names, with those names in place of the others."""

    def shown(name):
        case = made_up.case("matmul", suite=name, n=3, text=name)
        measured = made_up.rounds_of(case, made_up.flat(made_up.SEVEN), device_name=name)
        made_up.write(tmp_path / name[:1] / "run.jsonl", measured)
        return shared_hosts.dlbench("show", "run.jsonl", "--format", form, cwd=tmp_path / name[:1])

    harmless, hostile = shown(HARMLESS), shown(HOSTILE)
    assert (hostile.code, hostile.err) == (0, "")
    assert "\x1b" not in hostile.out
    assert ("\u202e" in hostile.out) is (form == "json")  # data for programs is what the file says
    line = HOSTILE.replace("\x1b", "").replace("\u202e", "").rstrip().replace("\n", " ")
    inside = {
        "csv": lambda text: text.replace(line, HARMLESS).replace(line.replace('"', '""'), HARMLESS).replace(f"'{HARMLESS}", HARMLESS),
        "json": lambda text: json.dumps(json.loads(text)).replace(json.dumps(HOSTILE)[1:-1], HARMLESS),
        "md": lambda text: text.replace(tabular.markdown(HOSTILE), HARMLESS),
        "table": lambda text: text.replace(line, HARMLESS),
    }[form]
    one, other = inside(hostile.out), json.dumps(json.loads(harmless.out)) if form == "json" else harmless.out
    assert [row.split() for row in one.replace('"', "").replace("─", "").splitlines()] == [
        row.split() for row in other.replace('"', "").replace("─", "").splitlines()
    ]
