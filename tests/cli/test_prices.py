"""Options of prices: where they may stand, which goes first, and what makes no sense of them."""

import json

import front_door
import made_up
import pytest

from dlbench.core.model import Status

LIKE = "write for example 2.50, cuda=2.50 or cuda:0=2.50"


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
        ("--price-per-hour -3", f"--price-per-hour': '-3' is not an amount of money from 0 to 1e12; {LIKE}"),
        ("--price-per-kwh nan", f"--price-per-kwh': 'nan' is not an amount of money from 0 to 1e12; {LIKE}"),
        ("--price inf", f"--price': 'inf' is not an amount of money from 0 to 1e12; {LIKE}"),
        ("--price 1e400", "'1e400' is not an amount of money from 0 to 1e12"),
        ("--price-per-hour 2,50", "'2,50' is not an amount of money"),
        ("--price-per-hour ٣", "'٣' is not an amount of money"),
        ("--price-per-hour cuda=", f"'cuda=' has no number behind its =; {LIKE}"),
        ("--price-per-hour =2", f"'=2' names no device in front of its =; {LIKE}"),
        ("--price-per-hour cuda:=2", "'cuda:=2' names no device in front of its ="),
        (f"--price {'9' * 300}", f"'{'9' * 39}…' is not an amount of money"),
        ("--price 1 --years 0", "--years': '0' is not a number of years above 0, up to 100; write for example 4, cuda=4 or cuda:0=4"),
        ("--price 1 --hours-per-day 24.5", "'24.5' is not a number of hours above 0, up to 24; write for example 8"),
        (f"--currency {'x' * 300}", f"--currency': '{'x' * 39}…' is no label of a currency: 1 to 8 printable characters, such as EUR"),
        ("--currency \x1b[31m", "'[31m' is no label of a currency"),
        ("--samples 0", "--samples'"),
        ("--price-per-hour 1 --price-per-hour 2", "--price-per-hour: a number for all devices is given twice; give it once"),
        ("--price-per-hour cpu=1 --price-per-hour cpu=2", "--price-per-hour: cpu is given twice; give it once"),
        ("--price-per-hour xpu=2", "--price-per-hour xpu=2: no row of these files is of xpu; they have cpu, cuda:0"),
        ("--price cuda:3=2", "--price cuda:3=2: no row of these files is of cuda:3; they have cpu, cuda:0"),
        ("--years 4", "--years spreads what a device costs to buy over its use; give --price, too"),
        ("--currency EUR", "--currency is a label of amounts; give --price-per-hour, --price-per-kwh or --price, too"),
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
        ("price-per-hour = -1", f"price-per-hour: '-1' is not an amount of money from 0 to 1e12; {LIKE}"),
        ("price-per-hour = nan", "price-per-hour: 'nan' is not an amount of money from 0 to 1e12"),
        ("price = 'cuda='", f"price: 'cuda=' has no number behind its =; {LIKE}"),
        ("years = 0", "years: '0' is not a number of years above 0, up to 100"),
        ("hours-per-day = 25", "hours-per-day: '25' is not a number of hours above 0, up to 24"),
        (f"currency = '{'x' * 300}'", f"currency: '{'x' * 39}…' is no label of a currency: 1 to 8 printable characters, such as EUR"),
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
    defaults = '[show]\nprice-per-hour = ["cuda=2.5", "cpu=0.125", "xpu=7"]\ncurrency = "EUR"\n'
    document = ("--topic", "cost", "--format", "json")
    done = show(*document, defaults=defaults)
    assert money(done) == {"cuda:0": 2.5, "cpu": 0.125}
    assert "note: --price-per-hour xpu=7: no row of these files is of xpu; they have cpu, cuda:0" in " ".join(done.err.split())
    assert money(show(*document, "--price-per-hour", "3", defaults=defaults)) == {"cuda:0": 3, "cpu": 3}
    assert money(show(*document, defaults="[show]\nprice-per-hour = 4\n")) == {"cuda:0": 4, "cpu": 4}


def test_a_device_that_was_absent_is_none_of_those_that_a_price_can_be_of(tmp_path):
    absent = made_up.ended(made_up.case("matmul", device="accelerator", n=8), Status.SKIPPED, "this machine has no accelerator; it has cpu")
    on_cpu = [each for each in made_up.both_kinds() if each.case.device == "cpu"]
    made_up.write(tmp_path / "run.jsonl", [*on_cpu, absent])
    done = front_door.in_process(tmp_path, "show", "run.jsonl", "--price-per-hour", "cuda=2.50")
    assert (done.code, done.err) == (2, "dlbench: --price-per-hour cuda=2.5: no row of these files is of cuda; they have cpu\n")


def test_the_page_has_the_money_and_its_currency_as_text(show, tmp_path):
    done = show("--price-per-hour", "2", "--currency", "<b>&x", command="report")
    assert done.code == 0, done.err
    page = (tmp_path / "run.html").read_text()
    assert "What training costs, in &lt;b&gt;&amp;x" in page
    assert "<b>&x" not in page


def test_a_label_in_square_brackets_is_no_markup_of_the_terminal(show):
    done = show("--topic", "cost", "--price-per-hour", "2", "--currency", "[red]x")
    assert "What training costs, in [red]x" in done.out
    done = show("--answers", "--format", "md", "--price-per-hour", "2", "--currency", "*|`x")
    assert "in \\*\\|\\`x" in done.out or "in \\*&#124;\\`x" in done.out
