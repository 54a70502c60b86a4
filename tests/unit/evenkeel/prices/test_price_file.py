"""What a price file may say, and the one line that names what is wrong in it."""

import datetime as dt
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.prices.price_file import IdleShare, PriceFile, read_price_file

SOURCED = 'source = "price list"\nread = 2026-11-20\n'
GOOD = f"""\
currency = "EUR"

[exchange.USD]
rate = 0.92
{SOURCED}
[[model]]
name = "large"
input = 2.0
cached_input = 0.5
output = 8
currency = "USD"
until = 2026-07-01
{SOURCED}
[[model]]
name = "large"
input = 3.0
output = 9
from = 2026-07-01
{SOURCED}
[[engine]]
name = "own-*"
gpu_hour = 2.5
gpus = 4
watts = 500
kwh = 0.3
idle = "spread"
{SOURCED}"""


def _read(folder: Path, text: str) -> PriceFile:
    path = folder / "prices.toml"
    path.write_text(text)
    return read_price_file(path, "--prices")


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    file = _read(tmp_path, GOOD)

    assert file.currency == "EUR"
    assert file.rate("USD") == 0.92
    assert file.rate("GBP") is None
    assert file.model[0].valid_until == dt.datetime(2026, 7, 1, tzinfo=dt.UTC)
    assert file.engine[0].idle is IdleShare.SPREAD
    assert file.engine[0].hour == pytest.approx(2.65)


WRONG = {
    "one table of a list": (
        '[model]\nname = "large"\n',
        "prices.toml:1 (--prices): model is one table, expected a list; tables in a list begin "
        "with [[model]]",
    ),
    "unknown key": (
        f'[[model]]\nname = "a"\nimput = 1\ninput = 1\n{SOURCED}',
        ":3 (--prices): model.0.imput is not a",
    ),
    "no source": (
        '[[model]]\nname = "a"\ninput = 1\nread = 2026-01-01\n',
        "model.0.source is miss",
    ),
    "below 0": (f'[[model]]\nname = "a"\ninput = -1\n{SOURCED}', ":3 (--prices): model.0.input: "),
    "not a number": (f'[[model]]\nname = "a"\noutput = nan\n{SOURCED}', ":3 (--prices): model.0.o"),
    "no price": (f'[[model]]\nname = "a"\n{SOURCED}', "it has no price: give 'input' and 'output'"),
    "two rents": (
        f'[[engine]]\nname = "a"\ngpu_hour = 1\nengine_hour = 1\n{SOURCED}',
        "give either 'engine_hour' or 'gpu_hour'",
    ),
    "half of energy": (
        f'[[engine]]\nname = "a"\nengine_hour = 1\nwatts = 5\n{SOURCED}',
        "'watts' needs 'kwh'",
    ),
    "date as text": (
        f'[[model]]\nname = "a"\ninput = 1\nfrom = "2026-01-01"\n{SOURCED}',
        ":4 (--prices): model.0.from: expected a date such as 2026-01-31, without quotes",
    ),
    "ends before it begins": (
        f'[[model]]\nname = "a"\ninput = 1\nfrom = 2026-02-01\nuntil = 2026-01-01\n{SOURCED}',
        ":5 (--prices): model.0.until: it is not after 'from'",
    ),
    "overlap": (
        f'[[model]]\nname = "a"\ninput = 1\n{SOURCED}\n[[model]]\nname = "a"\ninput = 2\n{SOURCED}',
        "prices.toml:7 (--prices): two prices of 'a' are valid at the same time",
    ),
    "foreign currency": (
        f'[[model]]\nname = "a"\ninput = 1\ncurrency = "JPY"\n{SOURCED}',
        "is in JPY, the bill in USD; add [exchange.JPY]",
    ),
    "not TOML": ("[[model]\n", "is not TOML"),
    "a truth value": (f'[[model]]\nname = "a"\ninput = true\n{SOURCED}', "model.0.input: "),
    "a number as text": (f'[[model]]\nname = "a"\ninput = "1"\n{SOURCED}', "model.0.input: "),
    "too large for a float": (
        f'[[model]]\nname = "a"\ninput = 1{"0" * 400}\n{SOURCED}',
        ":3 (--prices): model.0.input is an integer of more than 64 bits",
    ),
    "thousands of digits in another base": (
        f'[[model]]\nname = "a"\ninput = 0x1{"0" * 5000}\n{SOURCED}',
        ":3 (--prices): model.0.input is an integer of more than 64 bits",
    ),
    "thousands of digits": (
        f'[[model]]\nname = "a"\ninput = 1{"0" * 5000}\n{SOURCED}',
        "prices.toml (--prices) has a number of thousands of digits",
    ),
    "nested": (f"a = {'[' * 20000}{']' * 20000}", "is nested too deeply"),
    "a year that the store cannot hold": (
        f'[[model]]\nname = "a"\ninput = 1\nfrom = 0001-01-01T00:00:00+14:00\n{SOURCED}',
        ":4 (--prices): model.0.from: the year is not from 1971 to 2105",
    ),
    "a far end": (
        f'[[model]]\nname = "a"\ninput = 1\nuntil = 9999-12-31\n{SOURCED}',
        "model.0.until: the year is not from",
    ),
    "read at a moment": (
        '[[model]]\nname = "a"\ninput = 1\nsource = "s"\nread = 2026-01-01T10:00:00Z\n',
        "model.0.read: expected a date such as 2026-01-31, without quotes",
    ),
    "a rate of the bill's currency": (
        f"[exchange.USD]\nrate = 2\n{SOURCED}",
        ":1 (--prices): USD is the bill's currency and has no exchange rate",
    ),
    "too many": (
        "\n".join(f'[[model]]\nname = "m{i}"\ninput = 1\n{SOURCED}' for i in range(2_001)),
        "prices.toml (--prices): 2,001 prices, at most 2,000",
    ),
    "a part of a second, which the store does not keep": (
        f'[[model]]\nname = "a"\ninput = 1\nfrom = 2026-02-01T00:00:00.5Z\n{SOURCED}',
        ":4 (--prices): model.0.from: expected whole seconds",
    ),
    "too high in the bill's currency": (
        f'currency = "VND"\n[exchange.USD]\nrate = 26000\n{SOURCED}\n'
        f'[[model]]\nname = "a"\noutput = 1e6\ncurrency = "USD"\n{SOURCED}',
        ":7 (--prices): the price of 'a' is 2.6e+10 VND, expected at most 1e+09",
    ),
    "too high with its energy": (
        f'[[engine]]\nname = "a"\nengine_hour = 1e9\nwatts = 1e6\nkwh = 1\n{SOURCED}',
        "the price of 'a' is 1e+09 USD, expected",
    ),
    "measured energy too high in the bill's currency": (
        f'currency = "VND"\n[exchange.USD]\nrate = 26000\n{SOURCED}\n'
        f'[[engine]]\nname = "a"\nengine_hour = 1\nkwh = 1e5\ncurrency = "USD"\n{SOURCED}',
        ":7 (--prices): the price of 'a' is 2.6e+09 VND, expected at most 1e+09",
    ),
    "overlap in time zones": (
        f'[[model]]\nname = "a"\ninput = 1\nuntil = 2026-02-01T00:00:00-05:00\n{SOURCED}\n'
        f'[[model]]\nname = "a"\ninput = 2\nfrom = 2026-02-01\n{SOURCED}',
        "two prices of 'a' are valid at the same time",
    ),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_is_named_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _read(tmp_path, text)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    assert _read(tmp_path, f"\ufeff{GOOD}").currency == "EUR"
    with pytest.raises(ConfigurationError, match=r":7 .*two prices"):
        _read(tmp_path, f"\ufeff{WRONG['overlap'][0]}")
