"""Mistakes of a user: one sentence with place and remedy, and the right exit code."""

import json
import re
import shlex

import front_door
import made_up
import pytest
import shared_hosts
from front_door import dlbench, refusal, under_titles

from dlbench.analysis.export import tabular

HEADER = '{"kind":"header","schema":1,"policy":{},"devices":[],"environment":{}}\n'

OPTIONS = [
    "run cnn --set layout=nhwc",
    "run cnn --set mode=freeze",
    "run cores --set instances=0",
    "run scaling --set threads=2",
    "run quick --device gpux",
    "run matmul --set dtype=fp31",
    "run self --budget soon",
    "run self --rounds 0",
    "run self --gate --rounds 3",
    "run quick --resume x.jsonl",
    "run --resume missing.jsonl",
    "run self missing.py",
    "devices mine",
    "run self -o .",
    "run self -o typo/dir/x.jsonl",
    "run self -o file/mine.jsonl",
    f"run self -o {'a' * 300}",
    "ab self --b same --junit typo/x.xml",
    "run mine.toml",
]


def test_wrong_options(tmp_path, snapshot):
    (tmp_path / "file").write_text("")
    texts = {words: refusal(shared_hosts.dlbench(*shlex.split(words), cwd=tmp_path)) for words in OPTIONS}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    snapshot("wrong-options", under_titles(texts))


SUITES = [
    '[[bench]]\nworkload = "matmull"\n',
    '[[bench]]\nworkload = "matmul"\naxes.N = 4\n',
    '[[bench]]\nworkload = "matmul"\naxes.n = "big"\n',
    '[[bench]]\nworkload = "matmul"\naxes.n = []\n',
    '[[bench]]\nworkload = "matmul"\n',
    '[[bench]\nworkload = "matmul"\n',
    '[[bench]]\nworkload = "matmul"\naxes.n = 4\ndevices = ["gpu9"]\n',
    'devices = ["gpu"]\n[[bench]]\nworkload = "noop"\n',
    'devices = []\n[[bench]]\nworkload = "noop"\n',
    '[policy]\nrounds = 0\n[[bench]]\nworkload = "noop"\n',
    "",
]


def test_wrong_suites(tmp_path, snapshot):
    texts = {}
    for text in SUITES:
        (tmp_path / "s.toml").write_text(text)
        texts[repr(text)] = refusal(shared_hosts.dlbench("run", "s.toml", cwd=tmp_path))
    snapshot("wrong-suites", under_titles(texts))


FILES = {
    "nothing": b"",
    "a word": b"hello\n",
    "no text": b"\x00\xff\x00",
    "other JSON": b'{"benchmarks": []}\n',
    "another schema": b'{"kind":"header","schema":99}\n',
    "half a header": b'{"kind":"header","schema":1,"dl',
    "deep": b"[" * 100_000 + b"\n",
    "a header without suites": HEADER.encode(),
}


def test_wrong_result_files(tmp_path, snapshot):
    texts = {}
    for what, content in FILES.items():
        (tmp_path / "f.jsonl").write_bytes(content)
        for command in ("show", "run --resume")[what == "a header without suites" :]:
            texts[f"{command} {what}"] = refusal(shared_hosts.dlbench(*command.split(), "f.jsonl", cwd=tmp_path))
        assert (tmp_path / "f.jsonl").read_bytes() == content
    snapshot("wrong-files", under_titles(texts))


@pytest.mark.parametrize(
    ("package", "command", "sentence"),
    [
        ("torch", ("run", "self"), "torch is not installed for "),
        ("click", ("list",), "the package 'click' is not installed here; pip install . adds what is missing\n"),
    ],
)
def test_a_missing_package_is_a_sentence(tmp_path, package, command, sentence):
    """Installed without its dependencies, or run from a bare checkout where one is missing."""
    for name in ("dlbench", "suites"):
        (tmp_path / name).symlink_to(front_door.ROOT / name)
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{package}'\", name='{package}')\n")
    done = dlbench(*command, cwd=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"dlbench: {sentence}")


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
    expected = json.dumps(json.loads(harmless.out)) if form == "json" else harmless.out
    words, expected_words = (re.sub('["─]', "", text).split() for text in (inside(hostile.out), expected))
    assert words == expected_words
