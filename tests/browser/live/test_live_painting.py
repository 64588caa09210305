"""A browser learns to paint: gradients, steps, running mean and walks are torch's, and the figure shows them."""

import base64
import json

import numpy as np
import pytest
import torch
from browser import WATCH
from safetensors.torch import save

from vitbook.engine import average
from vitbook.painting import Painter, guided_guess, on_the_path, velocity_loss, walk
from vitbook.runtime import seed_everything
from vitbook.training import parameter_groups
from vitbook.vit import CONFIGS
from vitbook_workshop.live import figures
from vitbook_workshop.live.bundles import worker_source
from vitbook_workshop.live.figure_data import packed_digits


def painter() -> Painter:
    """A model whose every tensor has a gradient: a fresh one's last map is zero."""
    seed_everything(0)
    model = Painter(CONFIGS["vit_digits"])
    torch.nn.init.normal_(model.to_pixels.weight, std=0.1)
    torch.nn.init.normal_(model.classes.weight, std=0.5)
    torch.nn.init.normal_(model.backbone.embedding.positions.pos_embed, std=0.5)
    return model


def batches(count: int) -> list[tuple[torch.Tensor, ...]]:
    """Images, noise, times and classes, one of them none, and one time beyond 0.95."""
    made = []
    for _ in range(count):
        t, labels = torch.rand(32), torch.arange(32) % 11
        t[0] = 0.99
        made.append((torch.randn(32, 1, 8, 8).tanh(), torch.randn(32, 1, 8, 8), t, labels))
    return made


def follow(browser, tmp_path, model, rates, given):
    """What the thread answers, with tensors by the names that they have in Python."""
    posted = "self.postMessage = (message) => { self.posted = message; };"
    page = tmp_path / "page.html"
    page.write_text(f"<!DOCTYPE html><meta charset=utf-8><script>{posted}{worker_source('paint')}</script>")
    browser.open(page)
    names = ("images", "noise", "times", "labels")
    packed = [{name: one.flatten().tolist() for name, one in zip(names, batch, strict=True)} for batch in given]
    question = dict(kind="follow", rates=rates, batches=packed)
    question |= dict(tensors=base64.b64encode(save(model.state_dict())).decode())
    got = browser.page.evaluate(
        """async ([data, question]) => {
            await onmessage({ data });
            for (const batch of question.batches) {
                batch.images = Float32Array.from(batch.images);
                batch.noise = Float32Array.from(batch.noise);
            }
            await onmessage({ data: question });
            const text = (x) => Array.from(new Uint8Array(x.buffer), (byte) => String.fromCharCode(byte)).join("");
            return JSON.stringify(self.posted, (_, x) => ArrayBuffer.isView(x) ? btoa(text(x)) : x);
        }""",
        [dict(kind="begin", **packed_digits()), question],
    )
    got = json.loads(got)
    assert got.get("error") is None, got["error"]
    result = got["result"]

    def numbers(text: str) -> torch.Tensor:
        return torch.from_numpy(np.frombuffer(base64.b64decode(text), np.float32).copy()).double()

    for part in ("gradients", "weights", "mean"):
        result[part] = {name: numbers(packed) for name, packed in result[part]}
    result["walked"] = [{name: numbers(packed) for name, packed in step.items()} for step in result["walked"]]
    return result


def named(model: Painter) -> dict[str, torch.nn.Parameter]:
    return {name.removeprefix("backbone."): parameter for name, parameter in model.named_parameters()}


def loss_of(model: Painter, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    images, noise, t, labels = (part.double() if part.is_floating_point() else part for part in batch)
    z = on_the_path(images, noise, t)
    return velocity_loss(model(z, t, labels), images, z, t)


def test_the_gradient_of_every_tensor_is_that_of_torch_in_float64_and_so_is_a_walk(browser, tmp_path):
    model, given = painter(), batches(1)
    got = follow(browser, tmp_path, model, [], given)
    model = model.double()
    loss = loss_of(model, given[0])
    loss.backward()
    assert got["losses"] == [pytest.approx(loss.item(), abs=1e-5, rel=1e-5)]
    assert got["gradients"].keys() == named(model).keys()
    for name, parameter in named(model).items():
        torch.testing.assert_close(got["gradients"][name], parameter.grad.flatten(), atol=1e-5, rtol=1e-5, msg=name)
        assert parameter.grad.abs().max() > 1e-4
    noise = given[0][1][:1].double()
    walked = walk(lambda z, t: guided_guess(model, z, t, torch.tensor([3]), 2.0), noise, 4)
    for mine, (_, z, guess) in zip(got["walked"], walked, strict=True):
        torch.testing.assert_close(mine["z"], z.flatten(), atol=1e-4, rtol=0)
        torch.testing.assert_close(mine["guess"], guess.flatten(), atol=1e-4, rtol=0)


def test_twenty_steps_and_their_running_mean_lead_where_torch_goes(browser, tmp_path):
    model, given = painter(), batches(20)
    rates = [1e-3 * (i + 1) / 20 for i in range(20)]
    got = follow(browser, tmp_path, model, rates, given)
    model, mean = model.double(), painter().double()
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.01), betas=(0.9, 0.95))
    for step, (rate, batch, mine) in enumerate(zip(rates, given, got["losses"], strict=True), start=1):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        average(mean, model, min(0.99, (1 + step) / (10 + step)))
        assert mine == pytest.approx(loss.item(), rel=1e-3)
    for theirs, ours in ((got["weights"], named(model)), (got["mean"], named(mean))):
        for name, parameter in ours.items():
            mine, expected = theirs[name], parameter.data.flatten()
            if name.endswith("qkv.bias"):  # a key bias's gradient is rounding alone, which Adam enlarges
                mine, expected = (bias[torch.arange(192) // 64 != 1] for bias in (mine, expected))
            torch.testing.assert_close(mine, expected, atol=1e-3, rtol=0, msg=name)


def test_a_painter_is_trained_stopped_and_asked(browser, tmp_path):
    figures.paint().save(tmp_path / "paint.html")
    browser.screen(360, 740, phone=True)
    browser.open(tmp_path / "paint.html")
    at = browser.page.locator
    at(".live-start").click()
    at(".progress").evaluate(WATCH, ["Epoch 2 of", "[name=stop]"])
    at("[name=train]").click()
    at("[name=train]:enabled").wait_for()
    painted = at(".epochs canvas[aria-label^=After]").count()
    assert 3 <= painted < at(".epochs canvas").count() == 13
    at(".sentence:not(:empty)").wait_for()
    assert at(".walked canvas").count() == 20
    last = "(canvas) => Array.from(canvas.getContext('2d').getImageData(0, 0, 8, 8).data)"
    before = at(".walked canvas").last.evaluate(last)
    at("[name=class]").select_option("0")
    at(".sentence", has_text="A 0, in 10 steps with guidance 2.").wait_for()
    assert at(".walked canvas").last.evaluate(last) != before
    at("[name=steps]").select_option("25")
    at(".sentence", has_text="in 25 steps").wait_for()
    assert at(".walked canvas").count() <= 24
    at("[name=guidance]").select_option("0")
    at(".sentence", has_text="Any digit").wait_for()
    at("[name=again]").click()
    assert browser.page.evaluate("document.documentElement.scrollWidth") <= 360 and browser.errors == []
