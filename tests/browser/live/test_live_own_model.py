"""`explore` makes "Ask it" of any model and images."""

import pytest
import torch
import torch.nn.functional as F
from asking import CELLS, Figure, asked, close, without_heads
from explored import PREPARE, photos, small_vit, still
from PIL import Image
from torch.testing import assert_close

from vitbook.attention_maps import logit_lens, recorded_attention, residual_stream
from vitbook.modern import ModernConfig, ModernViT
from vitbook.pretrained import Preprocessing, Pretrained
from vitbook_workshop.live.your_model import explore

TITLES = ("<i>portrait</i>", "</script>flower")
CLASSES = ("cat", "dog", "$& {query}", "<b>owl</b>")


def test_the_page_says_of_each_image_what_torch_says_and_of_another_size_too(browser, tmp_path):
    browser.screen()
    for size, note in {(12, 20): "", (16, 12): "Positions were resized from 3×5 to 4×3 patches."}.items():
        prepare = Preprocessing(PREPARE.mean, PREPARE.std, size)
        explore(small_vit(), photos(), prepare, titles=TITLES, class_names=CLASSES).save(tmp_path / "page.html")
        model = small_vit()
        if note:
            model.resize(size)
        figure = Figure(browser, tmp_path / "page.html")
        for image, title in zip(photos(), TITLES, strict=True):
            choice = figure.page.locator("[name=photo]").nth(TITLES.index(title))
            assert choice.get_attribute("aria-label") == title
            choice.check()
            figure.page.wait_for_function(f"() => location.hash.includes('photo=image-{TITLES.index(title)}')")
            with torch.no_grad(), recorded_attention(model) as weights:
                shares = model(prepare(image))[0].softmax(dim=-1)
            close(figure.shares("untouched"), shares)
            said = figure.says()
            assert said == f"The model says {CLASSES[shares.argmax()]} ({100 * shares.max():.1f} %)."
            largest = torch.stack(weights)[:, 0, :, 0].flatten(0, 1).amax(dim=-1)
            labels = [float(label.rpartition(", ")[2].partition("\u00a0")[0]) for label in figure.heads("untouched")]
            assert_close(torch.tensor(labels), 100 * largest, atol=0.06, rtol=0)
        assert figure.page.locator(".speed").inner_text().startswith(note or "One answer took ")
    assert browser.errors == []


def test_without_classes_it_says_how_similar_the_features_stay(browser, tmp_path):
    browser.screen()
    trained, image = Pretrained(small_vit(num_classes=0), PREPARE, None, "vitbook", ()), photos()[0]
    inputs = PREPARE(image)
    figure = explore(trained.model, photos(), PREPARE)
    assert "The model has no classes; it gives 24 features." in still(figure)
    figure.save(tmp_path / "page.html")
    figure = Figure(browser, tmp_path / "page.html")
    assert figure.says() == "The model gives 24 features and no class."
    figure.page.locator(".more summary").click()
    for selector in (".bars", "label:has([name=predict])", ".predict"):
        assert figure.page.locator(selector).first.is_hidden()
    figure.page.locator("[data-column=untouched] .heads button").nth(4).click()
    figure.page.locator("[name=remove]").click()
    without = without_heads(trained, (1, 1)).model
    with torch.no_grad():
        before, after = trained.model(inputs)[0], without(inputs)[0]
        lens = logit_lens(without, residual_stream(without, inputs))[:, 0]
    cosine, moved = F.cosine_similarity(before, after, dim=0), (after - before).abs().max()
    assert figure.says() == (
        f"The model gives 24 features and no class. Changed and original ones have a cosine of {cosine:.3f}; the "
        f"feature that moves most moves by {moved:.2f}."
    )
    figure.page.locator(".lens summary").click()
    shown = figure.page.locator(".lens tbody td:last-child").all_inner_texts()
    numbers = torch.tensor([float(text.replace("−", "-")) for text in shown])
    assert_close(numbers, F.cosine_similarity(lens, before, dim=-1), atol=6e-4, rtol=0)
    figure.page.locator("[name=reset]").click()
    figure.settle()
    figure.control("each").click()
    figure.page.locator(".drop").last.wait_for()
    assert float(figure.page.locator(".drop").nth(4).inner_text()) == pytest.approx(cosine.item(), abs=0.006)
    assert browser.errors == []


def test_registers_are_asked_and_are_no_patches(browser, tmp_path):
    browser.screen()
    torch.manual_seed(1)
    size = dict(image_size=(12, 20), patch_size=4, num_classes=4, dim=24, depth=2, num_heads=3, mlp_dim=48)
    model = ModernViT(ModernConfig(**size, registers=2, rotary_base=100.0, norm="rms", swiglu=True)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    explore(model, photos(), PREPARE).save(tmp_path / "page.html")
    figure = Figure(browser, tmp_path / "page.html")
    image = Image.fromarray(photos()[0].permute(1, 2, 0).numpy())
    shares, weights = asked(Pretrained(model, PREPARE, None, "vitbook", ()), image)
    close(figure.shares("untouched"), shares)
    names = ["the class token", "register 0", "register 1"]
    names += [f"row {row}, column {column}" for row in range(3) for column in range(5)]

    def most(row: torch.Tensor) -> str:
        return f"{names[row.argmax()]}, {100 * row.max():.1f}\u00a0%"

    labels = [label.partition(": most on ")[2] for label in figure.heads("untouched")]
    assert labels == [most(row) for row in weights[:, :, 0].flatten(0, 1)]
    figure.page.locator("[data-column=untouched] .heads button").nth(3).click()
    caption = figure.page.locator(".caption")
    for press, token in (("[data-patch='7']", 3 + 7), ("[name=token] >> nth=2", 2)):
        figure.page.locator(press).click()
        row = weights[1, 0, token]
        said = f"Block 1, head 0. The brighter a patch, the more {names[token]} attends to it. Most: {most(row)}."
        assert caption.inner_text() == said
        shown = [label.rpartition(": ")[2].partition("\u00a0")[0] for label in figure.page.evaluate(CELLS)]
        assert_close(torch.tensor([float(share) for share in shown]), 100 * row[3:], atol=0.06, rtol=0)
    assert "query=2" in figure.page.evaluate("location.hash")
    figure.page.locator("[name=mode][value=cover]").check()
    figure.page.locator("[data-patch='7']").click()
    figure.page.locator("[name=show]").click()
    inputs = PREPARE(photos()[0])
    inputs[..., 4:8, 8:12] = 0
    with torch.no_grad():
        close(figure.shares("changed"), model(inputs)[0].softmax(dim=-1))
    assert browser.errors == []
