"""Options of prices: where they may stand, which goes first, and what makes no sense of them."""

import json

import front_door
import made_up
import pytest

from dlbench.core.model import Status


@pytest.fixture
def show(tmp_path):
    """The command on a file of training steps, with what it says beside the file and its options."""
    made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())

    def call(*options, defaults="", command="show"):
        (tmp_path / "dlbench.toml").write_text(defaults)
        return front_door.in_process(tmp_path, command, "run.jsonl", *options)

    return call


REFUSED = (
    "-3/h | nan | 2,50 | ٣ | cuda= | =2 | cuda:=2 | cuda=2/d | cuda=9/4y | EUR2EUR | \x1b[31m2 | 1/0y/8h | 1/4y/24.5h | kwh=1/h | "
    f"{'9' * 300} | 1/h --price 2/h | cpu=1 --price cpu=2 | kwh=1 --price kwh=2 | cpu=1EUR --price cuda=2USD | xpu=2/h | cuda:3=2"
).split(" | ")
"""Prices that make no sense."""


def test_what_makes_no_sense_is_one_sentence(show, tmp_path, snapshot):
    said = {}
    for options in (*(f"--price {each}" for each in REFUSED), "--samples 0", "--epochs 4"):
        done, page = (show(*options.split(" "), command=command) for command in ("show", "report"))
        assert (done.code, done.out, page.code, page.out) == (2, "", 2, "")
        assert done.err.replace("dlbench show", "dlbench report") == page.err
        said[options.replace("\x1b", "ESC")] = done.err.splitlines()[-1]
    for options in ("--by dtype", "--format csv", "--topic batch"):  # a default rests where no answer on cost is shown
        assert show(*options.split(), defaults="[show]\nprice = 1\n").code == 0
        said[f"{options} --price 1"] = show(*options.split(), "--price", "1").err
    for line in ("price = -1", "price = ['cuda=']", "samples = 3"):
        said[f"dlbench.toml: [show] {line}"] = show(defaults=f"[show]\n{line}\n").err
    absent = made_up.ended(made_up.case("matmul", device="accelerator", n=8), Status.SKIPPED, "this machine has no accelerator; it has cpu")
    on_cpu = [each for each in made_up.both_kinds() if each.case.device == "cpu"]
    made_up.write(tmp_path / "absent.jsonl", [*on_cpu, absent])
    (tmp_path / "dlbench.toml").unlink()
    said["a device that was absent"] = front_door.in_process(tmp_path, "show", "absent.jsonl", "--price", "cuda=2.50/h").err
    assert "\x1b" not in "".join(said.values())
    assert not list(tmp_path.glob("*.html"))
    snapshot("prices-refused", front_door.under_titles(said))


def money(done):
    assert done.code == 0, done.err
    tables = json.loads(done.out)["answers"][0]["tables"]
    return {row["place"]: row["cost.per_hour"] for each in tables for row in each["rows"] if "cost.per_hour" in row}


def test_defaults_hold_where_the_command_line_says_nothing_and_may_name_devices_of_other_machines(show):
    defaults = '[show]\nprice = ["cuda=2.5/h", "cpu=0.125EUR/h", "xpu=7/h"]\n'
    document = ("--topic", "cost", "--format", "json")
    done = show(*document, defaults=defaults)
    assert money(done) == {"cuda:0": 2.5, "cpu": 0.125}
    assert "note: --price xpu=: no row of these files is of xpu; they have cpu, cuda:0" in " ".join(done.err.split())
    assert money(show(*document, "--price", "3/h", defaults=defaults)) == {"cuda:0": 3, "cpu": 3}
    assert money(show(*document, defaults="[show]\nprice = '4/h'\n")) == {"cuda:0": 4, "cpu": 4}


def test_a_currency_is_text_on_the_page_and_no_markup_of_the_terminal(show, tmp_path):
    done = show("--price", "2<b>&x/h", command="report")
    assert done.code == 0, done.err
    page = (tmp_path / "run.html").read_text()
    assert ("What it costs, in &lt;b&gt;&amp;x" in page, "<b>&x" in page) == (True, False)
    assert "What it costs, in [red]x" in show("--topic", "cost", "--price", "[red]x2/h").out
    done = show("--topic", "all", "--format", "md", "--price", "2*|`x/h")
    assert "in \\*\\|\\`x" in done.out or "in \\*&#124;\\`x" in done.out
