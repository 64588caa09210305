"""The started figure "Ask it" in a browser, and what torch says in its place: what the tests of `ask` share."""

import base64
from copy import deepcopy
from dataclasses import replace

import torch

from vitbook._common.images import decode_image
from vitbook.attention_maps import recorded_attention
from vitbook.pretrained import Pretrained
from vitbook_workshop.live import figure_data

CELLS = """() => [...document.querySelector(".vitbook-live").shadowRoot.firstElementChild.shadowRoot
    .querySelectorAll("[role=gridcell]")].map((cell) => cell.ariaLabel)"""


class Figure:
    """The started figure, and what torch says in its place."""

    def __init__(self, browser, page, address=""):
        self.browser, self.page = browser, browser.page
        browser.errors.clear()
        self.page.goto(page.as_uri() + address)
        if not address:
            self.page.locator(".live-start").click()
        self.settle()

    def settle(self) -> None:
        """Wait until the model has answered."""
        self.page.locator(".figure[aria-busy=false]").wait_for()

    def says(self) -> str:
        self.settle()
        return self.page.locator(".sentence").inner_text().replace("\u00a0", " ")

    def shares(self, column: str) -> torch.Tensor:
        """The probabilities that a column shows, as shares."""
        self.settle()
        texts = self.page.locator(f"[data-column={column}] .bars b").all_inner_texts()
        return torch.tensor([float(text.partition("\u00a0")[0]) / 100 for text in texts])

    def heads(self, column: str) -> list[str]:
        self.settle()
        return self.page.evaluate(
            """(column) => [...document.querySelector(".vitbook-live").shadowRoot.firstElementChild.shadowRoot
                .querySelectorAll(`[data-column=${column}] .heads button`)].map((button) => button.ariaLabel)""",
            column,
        )

    def control(self, name: str):
        """A control, unfolded where it is folded away."""
        control = self.page.locator(f"[name={name}]")
        if not control.is_visible():
            self.page.locator(".more summary").click()
        return control

    def switch(self, name: str, **option) -> None:
        """Change something, and let the figure show at once what it does."""
        control = self.control(name)
        control.select_option(**option) if option else control.click()
        self.page.locator("[name=show]").click()


def photograph(name: str = "bird_kingfisher"):
    src = next(one["src"] for one in figure_data.album() if one["name"] == name)
    return decode_image(base64.b64decode(src.partition(",")[2]), name)


@torch.no_grad()
def asked(trained: Pretrained, image=None) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities (K,) and attention weights (L, h, T, T)."""
    with recorded_attention(trained.model) as weights:
        shares = trained.model(trained.preprocessing(image or photograph()))[0].softmax(dim=-1)
    return shares, torch.stack(weights)[:, 0]


def logits(trained: Pretrained, image) -> torch.Tensor:
    with torch.no_grad():
        return trained.model(trained.preprocessing(image))[0]


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=6e-4, rtol=0)  # shown in tenths of a per cent


def place(trained: Pretrained, token: int) -> str:
    """A token as the figure names it."""
    columns = trained.model.embedding.grid[1]
    return f"row {(token - 1) // columns}, column {(token - 1) % columns}" if token else "the class token"


def without_heads(trained: Pretrained, *heads: tuple[int, int]) -> Pretrained:
    """The model without some heads, each (block, head): their columns of W_O are zero."""
    model = deepcopy(trained.model)
    width = model.config.dim // model.config.num_heads
    for block, head in heads:
        model.encoder.blocks[block].attn.proj.weight.data[:, head * width : (head + 1) * width] = 0
    return replace(trained, model=model)
