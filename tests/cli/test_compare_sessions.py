"""``dlbench compare`` of what other tools measured: a folder is a side, and each file in it a round."""

import json

import front_door
import made_up
import pytest

SEVEN = made_up.SEVEN
NODE = {"node": "one", "system": "Linux", "release": "6.1", "machine": "x86_64", "python_version": "3.11.7"}
SORT, JOIN = "tests/test_text.py::test_sort[100]", "tests/test_text.py::test_join"
TOO_FEW = "too few rounds, 6 of {tool} in the new file: a verdict takes 7 a side"


def pytest_benchmark(times, node=NODE, version="5.3.1", saved=True, date="2026-11-23"):
    """What ``--benchmark-json`` writes of benchmarks by their full names; without its data what ``--benchmark-save`` does."""

    def stats(seconds):
        data = [seconds * factor for factor in (1.0, 0.99, 1.01)]
        return {"min": min(data), "median": seconds, "rounds": 3, "iterations": 10, **({"data": data} if saved else {})}

    return {
        "machine_info": {**node, "cpu": {"brand_raw": "Xeon", "count": 2, "hz_actual_friendly": "2.3 GHz"}},
        "commit_info": {"id": "unversioned"},
        "benchmarks": [
            {"group": None, "name": name.rpartition("::")[2], "fullname": name, "params": None, "stats": stats(seconds)}
            for name, seconds in times.items()
        ],
        "datetime": f"{date}T12:00:00.000000+00:00",
        "version": version,
    }


def pyperf(times, host="one", date=None):
    """What pyperf writes: three processes a benchmark, whose middle value is the time that is asked for."""
    when = {"date": f"{date} 12:00:00.000000"} if date else {}
    benchmarks = [
        {"metadata": {"name": name, **when}, "runs": [{"values": [seconds * factor] * 2} for factor in (1.0, 0.99, 1.01)]}
        for name, seconds in times.items()
    ]
    return {"version": "1.0", "metadata": {"hostname": host, "unit": "second"}, "benchmarks": benchmarks}


def write(path, name, content):
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text(content if isinstance(content, str) else json.dumps(content))


def sessions(path, side, tool, times, factors=SEVEN, **fields):
    for number, factor in enumerate(factors):
        write(path, f"{side}/{number}.json", tool({name: seconds * factor for name, seconds in times.items()}, **fields))


def compare(path, *arguments):
    done = front_door.in_process(path, "compare", "base", "new", "--format", "json", *arguments)
    return done, {row["compare.case"]: row for row in json.loads(done.out)} if done.out else {}


@pytest.mark.parametrize("tool", [pytest_benchmark, pyperf])
def test_each_file_of_a_folder_is_a_round(tmp_path, tool):
    sessions(tmp_path, "base", tool, {SORT: 1e-3, JOIN: 2e-3})
    sessions(tmp_path, "new", tool, {SORT: 1e-3, JOIN: 3e-3})
    done, rows = compare(tmp_path)
    assert done.code == 3
    assert {case: row["compare.verdict"] for case, row in rows.items()} == {f"{SORT}@cpu": "same", f"{JOIN}@cpu": "slower"}
    assert [row["base.rounds"] for row in rows.values()] == [7, 7]
    assert [row["base.median_s"] for row in rows.values()] == pytest.approx([2e-3, 1e-3])
    assert [row["new.run"] for row in rows.values()] == ["new", "new"]
    assert not any("which machine" in line for line in done.err.splitlines())


def test_what_was_saved_without_its_data_has_its_median(tmp_path):
    for side in ("base", "new"):
        sessions(tmp_path, side, pytest_benchmark, {SORT: 1e-3}, saved=False)
    done, rows = compare(tmp_path)
    assert (done.code, rows[f"{SORT}@cpu"]["compare.verdict"], rows[f"{SORT}@cpu"]["base.median_s"]) == (0, "same", pytest.approx(1e-3))


@pytest.mark.parametrize(("tool", "name"), [(pytest_benchmark, "pytest-benchmark"), (pyperf, "pyperf")])
def test_fewer_than_seven_files_end_with_4_and_the_reason(tmp_path, tool, name):
    sessions(tmp_path, "base", tool, {SORT: 1e-3})
    sessions(tmp_path, "new", tool, {SORT: 9e-3}, SEVEN[:6])
    done, rows = compare(tmp_path)
    row = rows[f"{SORT}@cpu"]
    assert (done.code, row["compare.verdict"], row["compare.note"]) == (4, "incomparable", TOO_FEW.format(tool=name))


def test_a_benchmark_that_only_some_rounds_have_holds_the_others_back_nowhere(tmp_path):
    sessions(tmp_path, "base", pytest_benchmark, {SORT: 1e-3, JOIN: 2e-3})
    sessions(tmp_path, "new", pytest_benchmark, {SORT: 1e-3, JOIN: 2e-3})
    write(tmp_path, "new/3.json", pytest_benchmark({SORT: 1e-3}))
    done, rows = compare(tmp_path)
    assert {case: (row["compare.verdict"], row["compare.note"]) for case, row in rows.items()} == {
        f"{SORT}@cpu": ("same", None),
        f"{JOIN}@cpu": ("incomparable", TOO_FEW.format(tool="pytest-benchmark")),
    }
    assert (done.code, compare(tmp_path, "--strict")[0].code) == (0, 4)


@pytest.mark.parametrize("tool", [pytest_benchmark, pyperf])
def test_folders_more_than_an_hour_apart_are_undecided_for_whoever_is_strict(tmp_path, tool):
    for day in ("21", "22"):  # the base is of two days, the new side of another, which begins a day after the last of the base
        for number in range(4):
            write(tmp_path, f"base/{day}-{number}.json", tool({SORT: SEVEN[number]}, date=f"2026-11-{day}"))
    sessions(tmp_path, "new", tool, {SORT: 1.0}, date="2026-11-23")
    done, _ = compare(tmp_path, "--strict")
    assert done.code == 4
    assert "more than an hour from base, which ends --strict with 4: new (24 h)" in done.err
    sessions(tmp_path, "new", tool, {SORT: 1.0}, date="2026-11-22")
    done, _ = compare(tmp_path, "--strict")
    assert done.code == 0
    assert "more than an hour" not in done.err
    assert "in time is unknown" not in done.err


def test_machines_that_differ_are_noted(tmp_path):
    sessions(tmp_path, "base", pytest_benchmark, {SORT: 1e-3})
    sessions(tmp_path, "new", pytest_benchmark, {SORT: 1e-3}, node={**NODE, "node": "two"})
    write(tmp_path, "new/3.json", pytest_benchmark({SORT: 1e-3}, node={**NODE, "node": "two", "python_version": "3.12.1"}))
    done, _ = compare(tmp_path)
    assert done.code == 0
    assert done.err.splitlines()[1:3] == [
        "note: the rounds of new are of different machines or software: machine.python: '3.11.7' against '3.12.1'",
        "note: base and new are of different machines or software: machine.host: 'one' against 'two'",
    ]


ONE_FILE = pytest_benchmark({SORT: 1e-3})
EDITED = "the file was edited or is not pytest-benchmark's"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.jsonl", "{}", "new holds x.jsonl, of dlbench, and files of pytest-benchmark; give a folder that holds those of one tool"),
        ("x.json", pyperf({SORT: 1.0}), "new holds files of pyperf and of pytest-benchmark; give a folder that holds those of one tool"),
        (
            "x.json",
            "[]",
            "new/x.json is of another kind than the files of pytest-benchmark in the same folder; give a folder that holds only those",
        ),
        ("x.json", '{"machine_info": {', "new/x.json, line 1: not JSON; the file was cut, edited or damaged"),
        *(
            ("x.json", {**ONE_FILE, "version": version}, f"new/x.json: its version is {said}; dlbench reads 3 to 5 of pytest-benchmark")
            for version, said in [("2.5.0", "'2.5.0'"), ([5], "a list"), (None, "null")]
        ),
        ("x.json", {**ONE_FILE, "benchmarks": {}}, f"new/x.json: its benchmarks must be a list; {EDITED}"),
        ("x.json", {**ONE_FILE, "benchmarks": []}, "new/x.json has no benchmarks; give a file of a session that ran some"),
        ("x.json", {**ONE_FILE, "benchmarks": [3]}, f"new/x.json, benchmark 1: a benchmark must be an object; {EDITED}"),
        ("x.json", {**ONE_FILE, "benchmarks": [{"stats": {"data": [1.0]}}]}, f"new/x.json, benchmark 1: it has no fullname; {EDITED}"),
        (
            "x.json",
            {**ONE_FILE, "benchmarks": ONE_FILE["benchmarks"] * 2},
            "new/x.json, benchmark 2: another one has the same name; give each a name of its own",
        ),
        *(
            ("x.json", {**ONE_FILE, "benchmarks": [{"fullname": SORT, "stats": stats}]}, f"new/x.json, benchmark 1: {wrong}")
            for stats, wrong in [
                ({}, f"its data must be a list of seconds; {EDITED}"),
                ({"data": []}, f"its data must be a list of seconds; {EDITED}"),
                ({"data": [-1.0]}, f"its data must be a list of seconds; {EDITED}"),
                ({"data": [1.0], "iterations": 0}, "iterations must be a positive integer, not '0'"),
                ([], f"its stats must be an object; {EDITED}"),
            ]
        ),
    ],
)
def test_a_mixture_and_a_damaged_file_are_one_sentence(tmp_path, name, content, sentence):
    for side in ("base", "new"):
        sessions(tmp_path, side, pytest_benchmark, {SORT: 1e-3})
    write(tmp_path, f"new/{name}", content)
    done, _ = compare(tmp_path)
    assert (done.code, done.err) == (2, f"dlbench: {sentence}\n")


def test_a_folder_of_result_files_keeps_its_meaning(tmp_path):
    case = made_up.case("matmul", n=1)
    for name in ("base", "new/one", "new/two"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        made_up.write(tmp_path / f"{name}.jsonl", made_up.rounds_of(case, made_up.flat(SEVEN)))
    write(tmp_path, "new/notes.json", "{}")
    done = front_door.in_process(tmp_path, "compare", "base.jsonl", "new", "--format", "json")
    assert [row["new.run"] for row in json.loads(done.out)] == ["one", "two"]


def test_what_pytest_benchmark_itself_writes_is_read(tmp_path):
    """The fields that a session of the installed version writes, of which `pytest_benchmark` above has those that are read."""
    stats = pytest.importorskip("pytest_benchmark.stats")
    fixture_fields = {"min", "median", "rounds", "iterations", "data"}
    metadata = stats.Metadata.__new__(stats.Metadata)
    for name in ("group", "params", "param", "cprofile_stats"):
        setattr(metadata, name, None)
    metadata.name, metadata.fullname, metadata.extra_info, metadata.options, metadata.iterations = "test_join", JOIN, {}, {}, 10
    metadata.stats = stats.Stats()
    metadata.update(0.01)
    written = metadata.as_dict()
    assert fixture_fields <= written["stats"].keys()
    content = {**pytest_benchmark({}), "benchmarks": [json.loads(json.dumps(written))]}
    write(tmp_path, "run.json", content)
    done = front_door.in_process(tmp_path, "show", "run.json", "--format", "json")
    (row,) = json.loads(done.out)
    assert (row["case.id"], row["time.median_s"], row["time.blocks"]) == (f"{JOIN}@cpu", 0.001, 1)


def test_a_file_that_is_there_twice_is_no_round_of_its_own(tmp_path):
    for side in ("base", "new"):
        sessions(tmp_path, side, pytest_benchmark, {SORT: 1.0})
    write(tmp_path, "new/copy.json", (tmp_path / "new" / "0.json").read_text())
    done, _ = compare(tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "new/0.json and copy.json hold the same session; leave one of them out, as each file counts as a round of its own" in done.err
