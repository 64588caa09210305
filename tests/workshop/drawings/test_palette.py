"""The color language against WCAG 2.2 and color blindness."""

from itertools import combinations

import numpy as np
import pytest

from vitbook_workshop.drawings.palette import PALETTE, style

ROLES = ("query", "key", "value", "token", "class", "position")  # of vectors

# Linear RGB as somebody without red or green cones sees it: Machado, Oliveira and Fernandes 2009, severity 1.
SIGHT = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
}
TO_CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
TO_OKLAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def linear(color: str) -> np.ndarray:
    rgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)


def contrast(a: str, b: str) -> float:
    dark, light = sorted(linear(color) @ (0.2126, 0.7152, 0.0722) for color in (a, b))
    return (light + 0.05) / (dark + 0.05)


def difference(a: str, b: str, sight: str) -> float:
    """Distance in Oklab (Ottosson 2020), where black and white are 1 apart."""
    seen = [np.clip(np.array(SIGHT[sight]) @ linear(color), 0, 1) for color in (a, b)]
    first, second = (np.array(TO_OKLAB) @ np.cbrt(np.array(TO_CONES) @ color) for color in seen)
    return float(np.linalg.norm(first - second))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("role", [role for role in PALETTE if role != "paper"])
def test_words_in_each_color_can_be_read(role: str, theme: str) -> None:
    assert contrast(getattr(PALETTE[role], theme), getattr(PALETTE["paper"], theme)) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("pair", list(combinations(ROLES, 2)), ids="-".join)
def test_two_roles_are_told_apart_by_color(pair: tuple[str, str], sight: str, theme: str) -> None:
    a, b = (getattr(PALETTE[role], theme) for role in pair)
    assert difference(a, b, sight) >= 0.09


def test_two_roles_are_told_apart_without_color() -> None:
    assert len({PALETTE[role].texture for role in ROLES}) == len(ROLES)


def test_the_style_gives_each_light_color_its_variable() -> None:
    css = style(".x")
    for role, color in PALETTE.items():
        assert f'.x [fill="{color.light}"]{{fill:var(--vit-{role})}}' in css
        assert css.count(f"--vit-{role}:{color.light};") == css.count(f"--vit-{role}:{color.dark};") == 2
    assert len({color.light for color in PALETTE.values()}) == len(PALETTE)
