"""`evenkeel prices check` says what each price pays for."""

import argparse
from pathlib import Path

import pytest

from evenkeel_collector.commands.prices import PRICES

READ = 'source = "lease"\nread = 2026-11-20\n'


@pytest.mark.parametrize(
    ("energy", "said"),
    [
        ("", "own: 2.5 EUR per engine-hour; lease"),
        ("kwh = 0.25\n", "own: 2.5 EUR per engine-hour, 0.25 per measured kWh; lease"),
        ("kwh = 0.25\nwatts = 2000\n", "own: 3 EUR per engine-hour, energy included; lease"),
    ],
    ids=["none", "measured", "stated"],
)
def test_a_price_says_how_energy_is_paid_for(
    energy: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(
        f'currency = "EUR"\n[[engine]]\nname = "own"\nengine_hour = 2.5\n{energy}{READ}'
    )
    assert said in check(file, capsys)


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        (
            "input = 3\noutput = 4\n",
            "output 4 USD per million tokens "
            "(no cost if a request has cached input or cache write tokens); lease",
        ),
        (
            "input = 3\noutput = 4\ncached_input = 0.3\n",
            "output 4 USD per million tokens (no cost if a request has cache write tokens); lease",
        ),
        (
            "input = 3\noutput = 4\ncached_input = 0.3\ncache_write = 3\n",
            "output 4 USD per million tokens; lease",
        ),
    ],
    ids=["two", "one", "none"],
)
def test_kinds_of_tokens_without_a_price_are_named(
    prices: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(f'[[model]]\nname = "*"\n{prices}{READ}')
    assert said in check(file, capsys)


def check(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what the command prints about a price file."""
    parser = argparse.ArgumentParser()
    PRICES.configure(parser)
    args = parser.parse_args(["check", str(file)])
    assert args.run(args) == 0
    return capsys.readouterr().out
