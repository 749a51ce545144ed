"""Numbers as text and back, at the edge."""

import math
from collections.abc import Callable

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


def test_numbers_as_text(transcript: Callable[..., None]) -> None:
    def text(title: str) -> str:
        function, value = title.split()
        return str(getattr(units, function)(float(value)))

    transcript("numbers-as-text", 53, text)


@given(st.text())
def test_text_from_a_file_becomes_one_printable_line(text: str) -> None:
    assert units.one_line(text).isprintable()
    assert units.one_line("red \x1b[31m\nnext\u202e line") == "red [31m next line"


def test_a_price_is_read_or_refused(transcript: Callable[..., None]) -> None:
    def read(text: str) -> str:
        try:
            return repr(parse_price(text))
        except ValueError as error:
            return str(error)

    transcript("prices", 17, read)


def test_prices_of_several_devices_are_summed_and_of_electricity_are_by_the_kilowatt() -> None:
    price, hours = PerDevice({"cuda": 1000.0, "cuda:1": 500.0}), PerDevice({"": 100.0, "cuda:1": 25.0})
    prices = Prices(per_hour=PerDevice({"": 2.0}), per_kwh=0.3, price=price, use_hours=hours)
    pair = ("cuda:0", "cuda:1")
    assert (prices.rent(pair), prices.to_buy(pair), prices.spread(pair), prices.electricity(500)) == (4.0, 1500.0, 30.0, 0.15)
    assert (Prices().rent(pair), prices.to_buy(("cpu",)), prices.spread(("cpu",)), Prices().electricity(500)) == (None,) * 4
