"""Colours, theme and style sheet of the dashboard, light and dark.

Categories use the palette of Okabe and Ito (2008), which stays distinguishable under the common
kinds of colour blindness. Percentiles are one hue in three strengths, so lightness alone
distinguishes them. Colour never carries a state alone; the text always names it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STYLE_SHEET = Path(__file__).parent / "assets" / "style.css"
LOGO = Path(__file__).parent / "assets" / "logo.svg"


@dataclass(frozen=True, slots=True)
class Palette:
    """One theme's colours.

    Attributes:
        page: Background of the page.
        card: Background of cards and fields.
        text: Text; `muted` is secondary text.
        line: Borders and grid lines.
        accent: Links and switches.
        queue: The queue phase; `prefill` and `decode` are the others. The same on every page.
        recomputed: Prompts processed again after an eviction.
        ok: Successful requests; `error`, `aborted` and `shed` are the other outcomes.
        good: Needs no attention; `warning` may need it soon, `bad` needs it now.
        heat: One hue, from few to many.
        categories: For unordered things; distinguishable under colour blindness.
        ramps: p50, p95 and p99 of each measure, palest first.
    """

    page: str
    card: str
    text: str
    muted: str
    line: str
    accent: str
    queue: str
    prefill: str
    decode: str
    recomputed: str
    ok: str
    error: str
    aborted: str
    shed: str
    good: str
    warning: str
    bad: str
    heat: tuple[str, str, str]
    categories: tuple[str, ...]
    ramps: dict[str, tuple[str, str, str]]


LIGHT = Palette(
    page="#F5F7F9",
    card="#FFFFFF",
    text="#16202C",
    muted="#566373",
    line="#DCE2E9",
    accent="#00678C",
    queue="#E69F00",
    prefill="#56B4E9",
    decode="#009E73",
    recomputed="#9C1C1C",
    ok="#9AA7B5",
    error="#D55E00",
    aborted="#CC79A7",
    shed="#5B4B8A",
    good="#00795A",
    warning="#9A6700",
    bad="#B84A00",
    heat=("#DCEBF5", "#56A5D6", "#00345A"),
    categories=(
        "#0072B2",
        "#E69F00",
        "#009E73",
        "#CC79A7",
        "#56B4E9",
        "#D55E00",
        "#5B4B8A",
        "#A89A00",
        "#16202C",
    ),
    ramps={
        "ttft": ("#A9D3EC", "#3D97CF", "#004C7A"),
        "itl": ("#A5DCCB", "#2BA884", "#00533C"),
        "tpot": ("#E7BCD3", "#C2689A", "#6E2550"),
        "tokens": ("#F3D08A", "#D98F00", "#7A4D00"),
        "stall": ("#E7BCD3", "#C2689A", "#6E2550"),
        "queue": ("#F3D08A", "#D98F00", "#7A4D00"),
        "e2e": ("#C7CED6", "#7E8B99", "#2C3947"),
    },
)

DARK = Palette(
    page="#0D131A",
    card="#151D27",
    text="#E6ECF2",
    muted="#93A1B1",
    line="#27323F",
    accent="#5CBFE3",
    queue="#E69F00",
    prefill="#56B4E9",
    decode="#1DB88C",
    recomputed="#E61740",
    ok="#66758A",
    error="#F0762B",
    aborted="#D98BB6",
    shed="#9C8BD6",
    good="#3CCB9F",
    warning="#F0B43C",
    bad="#FF8A45",
    heat=("#1B3447", "#2F86BD", "#D3EEFF"),
    categories=(
        "#56B4E9",
        "#E69F00",
        "#1DB88C",
        "#D98BB6",
        "#3D97CF",
        "#F0762B",
        "#9C8BD6",
        "#F0E442",
        "#E6ECF2",
    ),
    ramps={
        "ttft": ("#2F7199", "#3D97CF", "#A6DAF7"),
        "itl": ("#1F7F64", "#25A57F", "#9BE8CE"),
        "tpot": ("#8A4A6C", "#C2689A", "#F4BBDA"),
        "tokens": ("#876016", "#D99A1F", "#FFDC94"),
        "stall": ("#8A4A6C", "#C2689A", "#F4BBDA"),
        "queue": ("#876016", "#D99A1F", "#FFDC94"),
        "e2e": ("#566578", "#8B9AAD", "#DCE4EC"),
    },
)


def palette(theme: str | None) -> Palette:
    """Return the palette for Streamlit's theme type; an unknown type gets the light one."""
    return DARK if theme == "dark" else LIGHT


def style(colours: Palette) -> str:
    """Return the style sheet, with the theme's colours as CSS variables."""
    variables = "".join(
        f"--ek-{name}:{getattr(colours, name)};"
        for name in Palette.__slots__
        if isinstance(getattr(colours, name), str)
    )
    return f"<style>:root{{{variables}}}\n{STYLE_SHEET.read_text(encoding='utf-8')}</style>"


def theme_options() -> dict[str, str]:
    """Return Streamlit's theme settings as option → value."""
    options = {
        "theme.baseRadius": "8px",
        "theme.baseFontSize": "15",
        "theme.showWidgetBorder": "true",
        "theme.headingFontWeights": "[600,600,600,600,600,600]",
        "theme.headingFontSizes": '["1.6rem","1.25rem","1.05rem","1rem","0.95rem","0.9rem"]',
    }
    for name, colours in (("light", LIGHT), ("dark", DARK)):
        options |= {
            f"theme.{name}.primaryColor": colours.accent,
            f"theme.{name}.backgroundColor": colours.page,
            f"theme.{name}.secondaryBackgroundColor": colours.card,
            f"theme.{name}.textColor": colours.text,
            f"theme.{name}.linkColor": colours.accent,
            f"theme.{name}.borderColor": colours.line,
        }
    return options
