"""Numbers as text and back, at the edge."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.core import units
from dlbench.core.prices import PerDevice, Prices, parse_price

SCALE = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}


def test_durations_are_read_and_what_is_none_is_refused_by_name() -> None:
    read = {"90": 90, "90s": 90, "1.5m": 90, "500ms": 0.5, "2h": 7200, " 3s ": 3, "0.25": 0.25}
    assert {text: units.parse_duration(text) for text in read} == read
    for text in ("", "0", "0ms", "-1s", "1e3", "1 s", "s", "3 days", "nan", "inf", "9" * 400, ".5", "1.s"):
        with pytest.raises(ValueError, match=f"^'{text}' is not a duration; write for example 90s, 1.5m, 500ms or 2h"):
            units.parse_duration(text)


@given(st.text(max_size=12))
def test_any_text_is_a_positive_duration_or_refused(text: str) -> None:
    try:
        seconds = units.parse_duration(text)
    except ValueError:
        return
    assert 0 < seconds < math.inf


@given(st.floats(1e-12, 1e15) | st.floats(-1e15, -1e-12))
def test_three_digits_are_right_to_half_a_unit_of_the_third_and_have_no_exponent(value: float) -> None:
    text = units.three_digits(value)
    assert "e" not in text
    assert float(text) == pytest.approx(value, rel=0.00501)


@given(st.floats(1e-9, 1e6) | st.floats(1e6, 1e12))
def test_seconds_read_back(value: float) -> None:
    words = units.seconds(value).split(" ")
    numbers, names = words[::2], words[1::2]
    read = sum(float(number) * SCALE[unit] for number, unit in zip(numbers, names, strict=True))
    assert read == pytest.approx(value, rel=0.0501 if value >= 600 else 0.00501)
    assert value >= 599.5 or len(numbers[0].replace(".", "").lstrip("0")) == 3


@pytest.mark.parametrize(
    ("function", "texts"),
    [
        ("three_digits", "1.234: 1.23, 12.34: 12.3, 123.4: 123, 1234: 1230, 9.996: 10.0, 0.01234: 0.0123, 0: 0, 1.797e308: inf"),
        ("seconds", "0: 0 ns, 41e-9: 41.0 ns, 999.4e-9: 999 ns, 999.6e-9: 1.00 µs, 12.34e-3: 12.3 ms, -0.5: -500 ms, 59.96: 60.0 s"),
        ("seconds", "599: 599 s, 600: 10 min, 7169: 119 min, 7200: 2 h, 19200: 5 h 20 min, 172799: 2 days, 273600: 3 days 4 h"),
        ("seconds", "3542400: 41 days, inf: inf s"),
        ("flop_rate", "340e9: 340 GFLOP/s, 1: 1.00 FLOP/s, 999.6: 1.00 kFLOP/s, 999.4: 999 FLOP/s, 1e18: 1.00 EFLOP/s, 2e21: 2000 EFLOP/s"),
        ("integer_rate", "838e12: 838 TOP/s"),
        ("byte_rate", "12.5e9: 12.5 GB/s"),
        ("item_rate", "1234: 1.23 k/s, 0.5: 0.500 /s"),
        ("hertz", "1.98e9: 1.98 GHz"),
        ("percent", "0.1234: 12.3 %"),
        ("byte_count", "0: 0 B, 1023: 1023 B, 1023.6: 1.00 KiB, 1024: 1.00 KiB, 1610612736: 1.50 GiB, 1073636966: 1.00 GiB"),
        ("fraction", "0: 0.0 %, 0.1234: 12.3 %, 0.00095: 0.1 %, 0.00094: 0.09 %, -2.4e-4: -0.02 %, 9.5e-5: 0.01 %, 9.4e-5: 9.4e-05"),
        ("clock_time", "65: 1:05, 3725: 1:02:05, -1: 0:00, 59.6: 1:00"),
    ],
)
def test_numbers_as_text(function: str, texts: str) -> None:
    pairs = [pair.partition(": ") for pair in texts.split(", ")]
    assert [getattr(units, function)(float(value)) for value, _, _ in pairs] == [text for _, _, text in pairs]


@given(st.text())
def test_text_from_a_file_becomes_one_printable_line(text: str) -> None:
    assert units.one_line(text).isprintable()
    assert units.one_line("red \x1b[31m\nnext\u202e line") == "red [31m next line"


PRICE = {
    "2.50/h": ("", 2.5, True, None, ""),
    " cuda=2.50EUR/h ": ("cuda", 2.5, True, None, "EUR"),
    "kwh=0.30": ("kwh", 0.3, False, None, ""),
    "cuda:0=$1600": ("cuda:0", 1600.0, False, None, "$"),
    "cuda=1600/4y/8h": ("cuda", 1600.0, False, 4 * 365 * 8, ""),
    "0": ("", 0.0, False, None, ""),
    "1/100y/24h": ("", 1.0, False, 876_000, ""),
    "1000000000000": ("", 1e12, False, None, ""),
    "$1EUR": "is no price",
    "-1": "is no price",
    "1e3": "is no price",
    "1/0y/8h": "years must be above 0, up to 100",
    "1/101y/8h": "years must be above 0, up to 100",
    "1/1y/24.1h": "hours must be above 0, up to 24",
    "1000000000001": "amount must be from 0 up to 1e.12",
    "kwh=1/h": "a kWh is neither rented nor used for years",
    "KWH=1/1y/1h": "a kWh is neither rented nor used for years",
}


@pytest.mark.parametrize("text", PRICE)
def test_a_price_is_read_or_refused(text: str) -> None:
    if isinstance(PRICE[text], tuple):
        assert parse_price(text) == PRICE[text]
    else:
        with pytest.raises(ValueError, match=PRICE[text]):
            parse_price(text)


def test_prices_of_several_devices_are_summed_and_of_electricity_are_by_the_kilowatt() -> None:
    price, hours = PerDevice({"cuda": 1000.0, "cuda:1": 500.0}), PerDevice({"": 100.0, "cuda:1": 25.0})
    prices = Prices(per_hour=PerDevice({"": 2.0}), per_kwh=0.3, price=price, use_hours=hours)
    pair = ("cuda:0", "cuda:1")
    assert (prices.rent(pair), prices.to_buy(pair), prices.spread(pair), prices.electricity(500)) == (4.0, 1500.0, 30.0, 0.15)
    assert (Prices().rent(pair), prices.to_buy(("cpu",)), prices.spread(("cpu",)), Prices().electricity(500)) == (None,) * 4
