"""The labels beside a chart, in a real browser."""

import pytest
from playwright.sync_api import Browser

from evenkeel_dashboard.draw.appearance import LIGHT, style
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.pages.alerts.figure import timeline_chart
from evenkeel_dashboard.pages.alerts.model import Bar

LONG = "support-answers-start-in-time/premium-customers-of-europe · ticket"


@pytest.mark.parametrize("name", ["chat · page", "cut-answers/support · ticket", LONG])
@pytest.mark.parametrize("width", [1440, 700, 390])
def test_a_long_label_stays_beside_its_chart(browser: Browser, name: str, width: int) -> None:
    chart = timeline_chart([Bar(name, "firing", 0, 60_000, False)], Window(0, 600_000, 60), LIGHT)
    page = browser.new_page(viewport={"width": width, "height": 400})
    # As Streamlit has it; the margin is that of a card.
    page.set_content(
        f"{style(LIGHT)}<style>* {{ box-sizing: border-box }}</style>"
        f"<div style='margin: 0 2rem'>{chart.markup('alerts')}</div>"
    )
    label, plot = (page.locator(each).bounding_box() for each in (".ek-ys span", ".ek-plot svg"))
    chart_box = page.locator(".ek-chart").bounding_box()
    assert label is not None and plot is not None and chart_box is not None
    # A card has 1 rem of padding.
    assert label["x"] >= chart_box["x"] - 8
    assert label["x"] + label["width"] == pytest.approx(plot["x"], abs=1)
    page.close()
