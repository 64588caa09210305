"""A small SVG builder: boxes with textures, arrows, and labels with italic letters and subscripts."""

import re
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from html import escape

from vitbook_workshop.drawings.palette import PALETTE, style

WIDTH = 360  # of every drawing: about a phone's column, so that _SIZE is as small as letters get
_SIZE = 12.5  # of labels; a phone shows them at about 12 px
_STROKE = 1.5
TINTS = {"ink": 0, "muted": 0.06}  # how far a box is filled; the other roles 0.14
_SMALLEST = 11.75  # of subscripts
_SANS = "system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif"
_SERIF = "STIX Two Math,Cambria Math,Times New Roman,serif"
Point = tuple[float, float]


class Drawing:
    """What a notebook shows as an SVG, and as its alternative text where it cannot.

    It is drawn with calls that name what is to be seen and in which role of the palette.
    """

    def __init__(self, height: float, title: str, alt: str, on_screen: int = 540):
        """height: in units, of which the width has WIDTH; on_screen: the width in pixels, if there is room."""
        self.height, self.title, self.alt, self.on_screen = height, title, alt, on_screen
        self.parts: list[str] = []
        self.lit = True

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"image/svg+xml": self.svg(), "text/plain": self.alt}

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="vit-drawing" viewBox="0 0 {WIDTH} {self.height:g}" '
            f'width="{self.on_screen}" role="img" aria-label="{escape(self.alt)}" style="max-width:100%;height:auto" '
            f'font-family="{_SANS}" font-size="{_SIZE}" '
            f'stroke-linecap="round" stroke-linejoin="round">\n'
            f"<title>{escape(self.title)}</title>\n<desc>{escape(self.alt)}</desc>\n"
            f"<style>{style('.vit-drawing')}.vit-drawing{{font-family:var(--pst-font-family-base,{_SANS})}}</style>\n"
        )
        page = _element("rect", width=WIDTH, height=self.height, rx=8, fill=PALETTE["paper"].light)
        return "\n".join([head + page, *self.parts, "</svg>"])

    @contextmanager
    def muted(self, muted: bool = True):
        """What is drawn within is gray, without textures."""
        before, self.lit = self.lit, self.lit and not muted
        yield
        self.lit = before

    def add(self, tag: str, inside: str = "", **attributes: object) -> None:
        self.parts.append(_element(tag, inside, **attributes))

    def color(self, role: str) -> str:
        return PALETTE[role if self.lit or role == "paper" else "muted"].light

    # Shapes

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        role: str = "ink",
        words: str = "",
        r: float = 4,
        solid: bool = False,
    ) -> None:
        """A rectangle in a role's color and texture, with words in its middle."""
        color, texture = self.color(role), "solid" if solid else PALETTE[role].texture if self.lit else ""
        size = dict(x=x, y=y, width=w, height=h, rx=r)
        self.add("rect", **size, fill=self.color("paper"))
        opacity = 1 if texture == "solid" else TINTS.get(role, 0.14) if self.lit else 0
        self.add("rect", **size, fill=color, fill_opacity=opacity, stroke=color, stroke_width=_STROKE)
        if texture == "dots":
            spots = [(x + a, y + b) for a in _spread(w) for b in _spread(h)]
            self.add("path", d="".join(f"M{a:g} {b:g}h.01" for a, b in spots), stroke=color, stroke_width=1.8)
        elif strokes := _hatching(x, y, w, h, texture):
            self.add("path", d=strokes, stroke=color, stroke_width=0.9)
        for line, words_of_line in enumerate(lines := words.split("\n")):
            middle = y + h / 2 + (line - (len(lines) - 1) / 2) * 1.2 * _SIZE
            self.text(x + w / 2, middle + 0.35 * _SIZE, words_of_line, "paper" if texture == "solid" else "ink")

    def outline(self, x: float, y: float, w: float, h: float, r: float = 2) -> None:
        """A frame around something."""
        self.add("rect", x=x, y=y, width=w, height=h, rx=r, fill="none", stroke=self.color("ink"), stroke_width=2.5)

    def cells(self, x: float, y: float, rows: int, columns: int, role: str, cell: float = 14) -> None:
        """A matrix as a table of cells."""
        self.box(x, y, columns * cell, rows * cell, role, r=2)
        inner = [f"M{x + i * cell:g} {y:g}v{rows * cell:g}" for i in range(1, columns)]
        inner += [f"M{x:g} {y + i * cell:g}h{columns * cell:g}" for i in range(1, rows)]
        line = self.color("paper" if PALETTE[role].texture == "solid" else role)
        self.add("path", d="".join(inner), stroke=line, stroke_width=1)

    def line(
        self, *points: Point, role: str = "ink", width: float = _STROKE, arrow: bool = False, dashed: bool = False
    ) -> None:
        """A line through points, with a head at its end if it is an arrow."""
        color, points = self.color(role), list(points)
        tip = points[-1]
        if arrow:
            (x0, y0), (x1, y1) = points[-2:]
            length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
            u, v, long, half = (x1 - x0) / length, (y1 - y0) / length, 4 + 2 * width, 2 + 1.2 * width
            back = (x1 - long * u, y1 - long * v)
            corners = [tip, (back[0] - half * v, back[1] + half * u), (back[0] + half * v, back[1] - half * u)]
            points[-1] = back
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in _rounded(points))
        dashes = {"stroke_dasharray": "1 4"} if dashed else {}
        self.add("path", d=path, fill="none", stroke=color, stroke_width=width, **dashes)
        if arrow:
            self.add("polygon", points=" ".join(f"{x:g},{y:g}" for x, y in _rounded(corners)), fill=color)

    def plus(self, x: float, y: float) -> None:
        """The circled plus where a branch joins the residual stream."""
        ink = self.color("ink")
        self.add("circle", cx=x, cy=y, r=8, fill=self.color("paper"), stroke=ink, stroke_width=_STROKE)
        self.add("path", d=f"M{x - 4:g} {y:g}h8M{x:g} {y - 4:g}v8", stroke=ink, stroke_width=_STROKE)

    def dot(self, x: float, y: float, role: str, r: float = 5) -> None:
        self.add("circle", cx=x, cy=y, r=r, fill=self.color(role), stroke=self.color("paper"), stroke_width=_STROKE)

    # Words

    def text(
        self, x: float, y: float, words: str, role: str = "ink", size: float = _SIZE, anchor: str = "middle", **style
    ) -> None:
        """One line of words; `$q_1$` within is set as a formula."""
        if words:
            style = dict(x=x, y=y, fill=self.color(role), font_size=size, text_anchor=anchor) | style
            self.add("text", _typeset(words, size), **style)

    def photo(self, x: float, y: float, side: float, n: int) -> None:
        """A bird on a branch, for a photograph, cut into n × n patches."""
        ink = self.color("token")
        self.box(x, y, side, side, "token", r=0)
        scale = f"translate({x:g} {y:g}) scale({side / 96:g})"
        bird = "M14 35 42 33C46 20 62 17 70 27C76 35 75 48 68 57C62 65 54 68 46 70L32 86 28 83 38 66C36 56 38 45 43 39Z"
        self.add("path", d=bird, transform=scale, fill=ink, fill_opacity=0.75)
        self.add("path", d="M4 82C30 76 60 76 92 70", transform=scale, fill="none", stroke=ink, stroke_width=3)
        self.add("circle", cx=x + 0.56 * side, cy=y + 0.31 * side, r=0.03 * side, fill=self.color("paper"))
        step = side / n
        grid = "".join(f"M{x + i * step:g} {y:g}v{side:g}M{x:g} {y + i * step:g}h{side:g}" for i in range(1, n))
        self.add("path", d=grid, stroke=self.color("paper"), stroke_width=2)
        self.add("path", d=grid, stroke=ink, stroke_width=0.8)


def _element(tag: str, inside: str = "", **attributes: object) -> str:
    values = {name: f"{value:g}" if isinstance(value, float) else value for name, value in attributes.items()}
    pairs = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in values.items())
    return f"<{tag}{pairs}>{inside}</{tag}>" if inside else f"<{tag}{pairs}/>"


def _rounded(points: Iterable[Point]) -> list[Point]:
    return [(round(x, 2), round(y, 2)) for x, y in points]


def _spread(length: float, step: float = 5) -> Sequence[float]:
    """Places along a length, about `step` apart and away from its ends."""
    count = max(1, round(length / step - 0.5))
    return [length * (i + 0.5) / count for i in range(count)]


def _hatching(x: float, y: float, w: float, h: float, texture: str) -> str:
    """Parallel strokes that fill a rectangle, as a path."""
    if texture == "level":
        return "".join(f"M{x + 2:g} {y + b:g}h{w - 4:g}" for b in _spread(h, 4))
    if texture not in ("rising", "falling"):
        return ""
    strokes = []
    for c in range(5, int(w + h) + 1, 5):  # the diagonal a + b = c, cut at the rectangle's sides
        a0, a1 = max(0.0, c - h), min(w, c)
        if a1 - a0 > 1:
            left, right = (c - a0, c - a1) if texture == "rising" else (h - c + a0, h - c + a1)
            strokes.append(f"M{x + a0:g} {y + left:g}L{x + a1:g} {y + right:g}")
    return "".join(strokes)


def _typeset(words: str, size: float) -> str:
    """Formulas between dollars, as `$W_Q$`: letters italic, the rest upright, what follows _ and ^ small."""
    return "".join(_formula(part, size) if i % 2 else escape(part) for i, part in enumerate(words.split("$")))


def _formula(formula: str, size: float) -> str:
    out = ""
    for shift, group, single, plain in re.findall(r"([_^])(?:\{([^}]*)\}|(.))|([^_^]+)", formula):
        letters = re.sub(r"[A-Za-z]+", r'<tspan font-style="italic">\g<0></tspan>', plain or group or single)
        if shift:
            down = 0.22 * size if shift == "_" else -0.35 * size
            letters = f'<tspan dy="{down:g}" font-size="{max(_SMALLEST, 0.75 * size):g}">{letters}</tspan>'
            letters += f'<tspan dy="{-down:g}">\u200b</tspan>'  # back to the line
        out += letters
    return f'<tspan font-family="{_SERIF}" font-size="{1.12 * size:g}">{out}</tspan>'
