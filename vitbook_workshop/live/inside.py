"""The drawing of the whole model, each part of which shows what it holds for a photograph: on the site alone."""

from vitbook_workshop.drawings.model import PARTS
from vitbook_workshop.drawings.svg import WIDTH

MODEL = "cifar10_plain"  # its patches are pixels, as the drawing has them


def inside(svg: str, first: str) -> str:
    """The SVG of `drawings.vit` with a button over each part, and one that starts the figure, in HTML.

    first: the part of `PARTS` that is shown if the reader presses none.
    """
    height = float(svg.partition(f'viewBox="0 0 {WIDTH} ')[2].partition('"')[0])
    buttons = "".join(
        f'<button type="button" hidden data-part="{part}" aria-label="{words}" style="left:{100 * x / WIDTH:.2f}%;'
        f'top:{100 * y / height:.2f}%;width:{100 * w / WIDTH:.2f}%;height:{100 * h / height:.2f}%"></button>'
        for part, (words, (x, y, w, h)) in PARTS.items()
    )
    return (
        f'<div class="vitbook-live" data-figure="inside" data-model="{MODEL}" data-part="{first}">\n'
        '<div class="parts" role="toolbar" '
        f'aria-label="Parts of the drawing; arrow keys move from one to the next">{svg}{buttons}</div>\n'
        '<p class="invitation"><button class="live-start" type="button" disabled style="visibility: hidden">'
        "Look inside: press a part</button></p>\n</div>"
    )
