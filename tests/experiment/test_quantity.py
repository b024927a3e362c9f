from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopscope.experiment import quantity
from loopscope.experiment.quantity import DURATION, FREQUENCY, RATE, RATIO, SIZE, QuantityError


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("2.1ms", DURATION, 2_100_000),
        ("0.3us", DURATION, 300),
        ("1\u00b5s", DURATION, 1_000),
        ("1\u03bcs", DURATION, 1_000),
        ("2min", DURATION, 120_000_000_000),
        ("1h", DURATION, 3_600_000_000_000),
        ("0ms", DURATION, 0),
        ("9223372036854775807ns", DURATION, 2**63 - 1),
        ("6B", SIZE, 6),
        ("1kB", SIZE, 1000),
        ("1KiB", SIZE, 1024),
        ("1.5MiB", SIZE, 1_572_864),
        ("100Mbit", RATE, 100_000_000),
        ("1Gbit/s", RATE, 10**9),
        ("0.5Hz", FREQUENCY, Fraction(1, 2)),
        ("1kHz", FREQUENCY, 1000),
        ("0.1%", RATIO, 1000),
        ("1.5ppm", RATIO, Fraction(3, 2)),
    ],
)
def test_values_are_exact(text, dimension, value):
    assert quantity.parse(text, dimension) == value


@pytest.mark.parametrize(
    ("given_", "dimension", "message", "hint"),
    [
        (5, DURATION, "has no unit: write a duration such as 5ms", None),
        (2.5, DURATION, "has no unit", None),
        ("5", SIZE, "has no unit: write a size such as 1500B", None),
        ("5 ms", DURATION, "space", "5ms"),
        ("5MS", DURATION, "not a unit", "5ms"),
        ("5sec", DURATION, "not a unit", "5s"),
        ("5KB", SIZE, "not a unit", "5kB"),
        ("5Hz", DURATION, "is a frequency: write a duration", None),
        ("0.1ns", DURATION, "not a whole number of ns", None),
        ("1.5B", SIZE, "not a whole number of B", None),
        ("-5ms", DURATION, "not a duration", None),
        ("1:30", DURATION, "not a duration", None),
        ("ms", DURATION, "not a duration", None),
        ("", DURATION, "not a duration", None),
        ("9223372036854775808ns", DURATION, "too large", None),
        ("9" * 5000 + "ns", DURATION, "not a duration", None),
        (True, DURATION, "should be a duration", None),
        (None, DURATION, "should be a duration", None),
        (["5ms"], DURATION, "should be a duration", None),
    ],
)
def test_refusals_say_what_to_write(given_, dimension, message, hint):
    with pytest.raises(QuantityError) as refused:
        quantity.parse(given_, dimension)
    assert message in refused.value.message
    assert refused.value.hint == hint


@given(st.integers(0, 2**63 - 1), st.sampled_from([DURATION, SIZE, RATE]))
def test_whole_values_come_back(value, dimension):
    assert quantity.parse(quantity.format(value, dimension), dimension) == value


@given(st.integers(0, 10**12), st.integers(0, 3), st.sampled_from([FREQUENCY, RATIO]))
def test_decimal_values_come_back(digits, places, dimension):
    value = Fraction(digits, 10**places)
    assert quantity.parse(quantity.format(value, dimension), dimension) == value


@given(
    st.decimals(0, 10**5, places=6),
    st.sampled_from([(d, unit) for d in quantity.DIMENSIONS for unit in d.units]),
)
def test_a_decimal_means_itself_times_its_unit(number, dimension_and_unit):
    dimension, unit = dimension_and_unit
    exact = Fraction(Decimal(number)) * dimension.units[unit]
    text = f"{number:f}{unit}"
    if dimension.whole and exact.denominator != 1:
        with pytest.raises(QuantityError, match="whole number"):
            quantity.parse(text, dimension)
    elif exact > 2**63 - 1:
        with pytest.raises(QuantityError, match="too large"):
            quantity.parse(text, dimension)
    else:
        assert quantity.parse(text, dimension) == exact


@pytest.mark.parametrize(
    ("value", "text"),
    [(5_000_000, "5ms"), (2_100_000, "2.1ms"), (0, "0ns"), (90_000_000_000, "1.5min")],
)
def test_format_reads_well(value, text):
    assert quantity.format(value, DURATION) == text
