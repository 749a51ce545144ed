"""Options of prices: where they may stand, which goes first, and what makes no sense of them."""

import json

import front_door
import made_up
import pytest

from dlbench.core.model import Status

LIKE = "write for example cuda=2.50/h for rent, kwh=0.30, cuda=1600 to buy, or cuda=1600/4y/8h for its use: 4 years, 8 hours a day"


@pytest.fixture
def show(tmp_path):
    """The command on a file of training steps, with what it says beside the file and its options."""
    made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())

    def call(*options, defaults="", command="show"):
        (tmp_path / "dlbench.toml").write_text(defaults)
        return front_door.in_process(tmp_path, command, "run.jsonl", *options)

    return call


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--price -3/h", f"--price': '-3/h' is no price; {LIKE}"),
        ("--price nan", f"--price': 'nan' is no price; {LIKE}"),
        ("--price 2,50", f"'2,50' is no price; {LIKE}"),
        ("--price ٣", "'٣' is no price"),
        ("--price cuda=", "'cuda=' is no price"),
        ("--price =2", "'=2' is no price"),
        ("--price cuda:=2", "'cuda:=2' is no price"),
        ("--price cuda=2/d", "'cuda=2/d' is no price"),
        ("--price cuda=9/4y", "'cuda=9/4y' is no price"),
        ("--price EUR2EUR", "'EUR2EUR' is no price"),
        ("--price \x1b[31m2", "'[31m2' is no price"),
        (f"--price {'9' * 30}", f"'{'9' * 30}': amount must be from 0 up to 1e+12"),
        ("--price 1/0y/8h", "'1/0y/8h': years must be above 0, up to 100"),
        ("--price 1/4y/24.5h", "'1/4y/24.5h': hours must be above 0, up to 24"),
        ("--price kwh=1/h", "'kwh=1/h': a kWh is neither rented nor used for years; write kwh=0.30"),
        ("--samples 0", "--samples'"),
        ("--price 1/h --price 2/h", "--price: an hour of all devices has two prices; give one"),
        ("--price cpu=1 --price cpu=2", "--price: cpu has two prices; give one"),
        ("--price kwh=1 --price kwh=2", "--price: kwh has two prices; give one"),
        ("--price cpu=1EUR --price cuda=2USD", "--price: amounts are in EUR and USD, which dlbench can't convert; give all in one"),
        ("--price xpu=2/h", "--price xpu=: no row of these files is of xpu; they have cpu, cuda:0"),
        ("--price cuda:3=2", "--price cuda:3=: no row of these files is of cuda:3; they have cpu, cuda:0"),
        ("--epochs 4", "--epochs says how often a training passes over --samples; give that, too"),
    ],
)
@pytest.mark.parametrize("command", ["show", "report"])
def test_what_makes_no_sense_is_one_sentence(show, tmp_path, command, options, said):
    done = show(*options.split(" "), command=command)
    assert (done.code, done.out) == (2, "")
    assert said in " ".join(done.err.split())
    assert "\x1b" not in done.err
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize("options", ["--by dtype", "--format csv", "--topic batch"])
def test_where_no_answer_on_cost_is_shown_a_price_that_was_typed_is_refused_and_a_default_rests(show, options):
    said = "prices are shown by the answers on cost, serving and speed-up alone; leave out --price, or give --topic cost"
    assert said in " ".join(show(*options.split(), "--price", "1").err.split())
    assert show(*options.split(), defaults="[show]\nprice = 1\n").code == 0


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("price = -1", f"price: '-1' is no price; {LIKE}"),
        ("price = ['cuda=']", "price: 'cuda=' is no price"),
        ("samples = 3", "samples: --samples can't have a default, as it may change what a gate lets pass, or what a single call is to do"),
    ],
)
def test_a_default_that_makes_no_sense_is_one_sentence_with_its_place(show, key, said):
    done = show(defaults=f"[show]\n{key}\n")
    assert (done.code, done.out) == (2, "")
    assert f"dlbench: dlbench.toml, [show] {said}" in " ".join(done.err.split())


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


def test_a_device_that_was_absent_is_none_of_those_that_a_price_can_be_of(tmp_path):
    absent = made_up.ended(made_up.case("matmul", device="accelerator", n=8), Status.SKIPPED, "this machine has no accelerator; it has cpu")
    on_cpu = [each for each in made_up.both_kinds() if each.case.device == "cpu"]
    made_up.write(tmp_path / "run.jsonl", [*on_cpu, absent])
    done = front_door.in_process(tmp_path, "show", "run.jsonl", "--price", "cuda=2.50/h")
    assert (done.code, done.err) == (2, "dlbench: --price cuda=: no row of these files is of cuda; they have cpu\n")


def test_the_page_has_the_money_and_its_currency_as_text(show, tmp_path):
    done = show("--price", "2<b>&x/h", command="report")
    assert done.code == 0, done.err
    page = (tmp_path / "run.html").read_text()
    assert "What it costs, in &lt;b&gt;&amp;x" in page
    assert "<b>&x" not in page


def test_a_label_in_square_brackets_is_no_markup_of_the_terminal(show):
    done = show("--topic", "cost", "--price", "[red]x2/h")
    assert "What it costs, in [red]x" in done.out
    done = show("--topic", "all", "--format", "md", "--price", "2*|`x/h")
    assert "in \\*\\|\\`x" in done.out or "in \\*&#124;\\`x" in done.out
