"""The book's color language: one color and one texture for each kind of vector, on a light page and on a dark one.

Drawings, figures and the site's style sheet take their colors from here. The tests hold the table against WCAG 2.2
(4.5 : 1 on the page, which is enough for words) and against simulated color blindness.
"""

from typing import NamedTuple


class Color(NamedTuple):
    light: str  # on a white page
    dark: str  # on a dark page
    texture: str = ""  # tells it apart without color: lines of one direction, dots, or "solid"


PALETTE = {
    "query": Color("#c2460d", "#e0763a", "rising"),
    "key": Color("#2a6ce0", "#3892fa", "falling"),
    "value": Color("#10815e", "#a9f3b9", "level"),
    "token": Color("#45515f", "#b2b5bb"),
    "class": Color("#bf10a9", "#cf6bb0", "solid"),
    "position": Color("#543f06", "#e3ae3b", "dots"),
    "ink": Color("#1b2430", "#e6eaf0"),  # words and arrows
    "muted": Color("#636b76", "#98a2b0"),  # what is not spoken of just now
    "paper": Color("#ffffff", "#121212"),
}


def variables(theme: str) -> str:
    """CSS variables, `--vit-query` and so on; theme: "light" or "dark"."""
    return "".join(f"--vit-{role}:{getattr(color, theme)};" for role, color in PALETTE.items())


def style(scope: str) -> str:
    """CSS that gives everything in `scope`, drawn in the light colors, those of the theme around it.

    A page that has a switch (`data-theme` on the site, `theme` in Colab) decides; elsewhere the reader's system does.
    """
    chosen = "[data-theme={0}] {1},[theme={0}] {1}"
    themes = (
        f"{scope}{{{variables('light')}}}"
        f"@media (prefers-color-scheme:dark){{{scope}{{{variables('dark')}}}}}"
        f"{chosen.format('light', scope)}{{{variables('light')}}}"
        f"@media screen{{{chosen.format('dark', scope)}{{{variables('dark')}}}}}"
    )
    uses = (
        f'{scope} [{use}="{color.light}"]{{{use}:var(--vit-{role})}}'
        for role, color in PALETTE.items()
        for use in ("fill", "stroke")
    )
    return themes + "".join(uses)
