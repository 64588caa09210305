"""The figure "Ask it" in a browser, from a file: what it says is what the model says, by mouse, touch and keyboard."""

import base64
import io
import re
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from asking import CELLS, Figure, asked, close, logits, photograph, place, without_heads
from PIL import Image

from vitbook._common.images import decode_image
from vitbook.attention_maps import logit_lens, residual_stream, rollout
from vitbook.pretrained import Preprocessing, Pretrained, load_pretrained
from vitbook.vit import create_vit
from vitbook_workshop.live import bundles, figure_data, figures

FIGURE = ".vitbook-live"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("live") / "ask.html"
    figures.ask().save(path)
    return path


@pytest.fixture(scope="module")
def trained() -> Pretrained:
    return load_pretrained("vitbook:cifar10")


@pytest.fixture
def figure(browser, page):
    browser.screen()
    figure = Figure(browser, page)
    yield figure
    assert browser.errors == []


def test_untouched_it_says_what_torch_says_for_every_class_and_head(figure, trained):
    shares, weights = asked(trained)
    close(figure.shares("untouched"), shares)
    close(figure.shares("changed"), shares)
    k = shares.argmax()
    assert figure.says() == f"The model says {trained.class_names[k]} ({100 * shares[k]:.1f} %)."
    for label, row in zip(figure.heads("untouched"), weights[:, :, 0].flatten(0, 1), strict=True):
        largest = place(trained, row.argmax().item())
        assert label.partition(": ")[2] == f"most on {largest}, {100 * row.max():.1f}\u00a0%"


def test_it_asks_for_a_prediction_before_it_shows_what_a_change_does(figure, trained):
    page, bird = figure.page, trained.class_names[asked(trained)[0].argmax()]
    page.locator("[name=shuffle]").select_option("after")
    page.locator("[name=stays]").wait_for()
    assert page.locator("[data-column=changed] .bars").is_hidden() and figure.says() == ""
    page.locator("[name=stays]").click()
    assert figure.says().startswith(f"As you said. The answer stays {bird}: ")
    moved = float(re.search(r"moves by ([\d.e+-]+)\.$", figure.says())[1])
    assert moved < 1e-4, "attention has no order"
    close(figure.shares("changed"), asked(trained)[0])
    for _ in range(3):
        page.locator("[name=shuffle]").select_option("pixels")
        page.locator("[name=again]").click()
        page.locator("[name=stays]").click()
        after = trained.class_names[figure.shares("changed").argmax()]
        if after == bird:
            assert figure.says().startswith(f"As you said. The answer stays {bird}: ")
        else:
            assert figure.says().startswith(f"Not as you said. The answer changes from {bird} ")
    page.locator("[name=reset]").click()
    assert figure.says().startswith("The model says ")


def test_heads_are_removed_and_put_back(figure, trained):
    config = trained.model.config
    number = 2 * config.num_heads + 1
    figure.page.locator("[data-column=untouched] .heads button").nth(number).click()
    figure.page.locator("[name=remove]").click()
    figure.page.locator("[name=show]").click()
    assert figure.heads("changed")[number].startswith("Block 2, head 1, removed")
    without = asked(without_heads(trained, (2, 1)))[0]
    close(figure.shares("changed"), without)
    figure.page.locator("[name=remove]").click()
    close(figure.shares("changed"), asked(trained)[0])
    figure.switch("block", value="0")
    close(figure.shares("changed"), asked(without_heads(trained, *((0, head) for head in range(config.num_heads))))[0])
    figure.page.locator("[name=reset]").click()
    figure.settle()
    figure.control("each").click()
    figure.page.locator(".drop").last.wait_for()
    drops = [float(text.replace("−", "-")) for text in figure.page.locator(".drop").all_inner_texts()]
    before = asked(trained)[0]
    assert len(drops) == config.depth * config.num_heads
    assert drops[number] == pytest.approx(100 * (without - before)[before.argmax()].item(), abs=0.06)


def test_a_patch_is_asked_and_covered_by_keyboard_alone(figure, trained):
    page, press, config = figure.page, figure.browser.press, trained.model.config
    columns = trained.model.embedding.grid[1]
    page.locator("[data-patch='0']").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "Enter"):
        press(key)
    patch = 2 * columns + 1
    row = rollout(asked(trained)[1][:, None])[0, 1 + patch]
    row[[0, 1 + patch]] = 0  # the most of the other patches
    assert page.locator(".caption").inner_text() == (
        "All blocks at once. The brighter a patch, the more of it reaches row 2, column 1 by attention. "
        f"Most: {place(trained, row.argmax().item())}, {100 * row.max():.1f}\u00a0%."
    )
    page.locator("[name=mode][value=cover]").focus()
    press("Space")
    page.locator(f"[data-patch='{patch}']").focus()
    press("Enter")
    page.locator("[name=show]").wait_for()
    page.locator("[name=show]").focus()
    press("Enter")
    size = config.patch_size
    image = trained.preprocessing(photograph())
    image[:, :, 2 * size : 3 * size, size : 2 * size] = 0
    with torch.no_grad():
        close(figure.shares("changed"), trained.model(image)[0].softmax(dim=-1))


def test_head_and_lens_are_opened_in_numbers(figure, trained):
    figure.page.locator(".steps summary").click()
    figure.page.locator(".lens summary").click()
    cells = figure.page.locator(".steps tbody tr").first.locator("td").all_inner_texts()
    last, captured = trained.model.encoder.blocks[-1].attn, {}
    hook = last.register_forward_pre_hook(lambda module, arguments: captured.update(x=arguments[0]))
    with torch.no_grad():
        trained.model(trained.preprocessing(photograph()))
        hook.remove()
        q, k, _ = last.project(captured["x"])
    shares, weights = asked(trained)
    key = weights[-1, 0, 0].argmax()
    dot = (q[0, 0, 0] @ k[0, 0, key]).item()
    assert [float(cell.partition("\u00a0")[0]) for cell in cells] == [
        pytest.approx(dot, abs=0.006),
        pytest.approx(dot / q.shape[-1] ** 0.5, abs=0.006),
        pytest.approx(100 * weights[-1, 0, 0, key].item(), abs=0.06),
    ]
    said = figure.page.locator(".lens tbody tr").last.locator("td").first.inner_text()
    assert said == f"{trained.class_names[shares.argmax()]}, {100 * shares.max():.1f}\u00a0%"


def test_the_blocks_are_gone_through_with_the_answer_so_far_and_the_tokens_that_are_alike(figure, trained):
    page, columns, depth = figure.page, trained.model.embedding.grid[1], trained.model.config.depth
    with torch.no_grad():
        states = residual_stream(trained.model, trained.preprocessing(photograph()))
        so_far = logit_lens(trained.model, states)[:, 0].softmax(dim=-1)
    page.locator("[name=mode][value=alike]").check()
    page.locator("[data-patch='19']").click()
    page.locator("[name=after]").focus()
    figure.browser.press("Home")
    for after in range(depth + 1):
        stage = f"after block {after - 1}" if after else "before block 0"
        share, k = so_far[after].max(dim=0)
        said = page.locator("output").inner_text().replace("\u00a0", " ")
        assert said == f"{stage}: {trained.class_names[k]}, {100 * share:.1f} %"
        cosines = F.cosine_similarity(states[after, 0, 20], states[after, 0, 1:], dim=-1)
        labels = [label.rpartition(": ")[2].replace("−", "-") for label in page.evaluate(CELLS)]
        torch.testing.assert_close(torch.tensor([float(label) for label in labels]), cosines, atol=0.0051, rtol=0)
        cosines[19] = -1
        most = cosines.argmax().item()
        assert page.locator(".caption").inner_text() == (
            f"{stage.capitalize()}. The brighter a patch, the more similar its token is to that of "
            f"row {19 // columns}, column {19 % columns}, by the cosine. "
            f"Most: {place(trained, most + 1)}, {cosines[most]:.2f}."
        )
        figure.browser.press("ArrowRight")
    assert "query=20&view=alike" in page.evaluate("location.hash")


# What the page gives the model, and what the model says
LISTEN = """
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (question) {
  if (question.kind === "see") window.seen = question.image;
  if (question.kind === "ask") {
    const own = ({ data: { id, result } }) => id === question.id && (window.logits = [...result.logits]);
    this.addEventListener("message", own);
  }
  post.call(this, question);
};
"""

# A file comes by mouse, or from the clipboard
HAND_OVER = """([kind, content, name]) => {
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type: "image/png" }));
  const root = document.querySelector(".vitbook-live").shadowRoot.firstElementChild.shadowRoot;
  const options = { dataTransfer: transfer, bubbles: true, cancelable: true };
  const drag = (type) => root.querySelector(".figure").dispatchEvent(new DragEvent(type, options));
  const paste = () => document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer }));
  return kind === "paste" ? paste() : drag("dragover") || drag("drop"); // false: the browser does not open it itself
}"""


@pytest.fixture
def listened(browser, page):
    """The figure, with `seen` and `logits` in the page."""
    browser.screen(390, 844, phone=True)
    browser.before_each_page(LISTEN)
    figure = Figure(browser, page)
    yield figure
    assert browser.errors == []


def encoded(image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def give(figure: Figure, name: str, content: bytes) -> None:
    """Choose a file."""
    figure.page.locator("[name=file]").set_input_files(dict(name=name, mimeType="image/*", buffer=content))
    figure.page.wait_for_function("() => location.hash.includes('photo=own')")
    figure.settle()


def notice(figure: Figure, name: str, content: bytes) -> str:
    """What is said of a file."""
    figure.page.locator("[name=file]").set_input_files(dict(name=name, mimeType="image/*", buffer=content))
    said = figure.page.locator(".notice:not(:empty)")
    said.wait_for()
    figure.settle()
    return said.inner_text()


def test_a_drawing_is_answered_as_torch_answers_it(listened, browser, trained):
    page, at = listened.page, listened.page.locator
    browser.tap(at("[name=draw]"))
    at("[name=paper]").fill("#99ccff")
    page.wait_for_function("() => location.hash.includes('photo=drawing')")
    listened.settle()
    for color, corners in {"#cc0000": [(0.1, 0.7), (0.9, 0.7)], "#ffffff": [(0.2, 0.2), (0.4, 0.3)]}.items():
        at("[name=ink]").fill(color)
        browser.draw(at(".pad"), corners)
        listened.settle()
    at(".pad").focus()
    for key in ("Space", *["ArrowDown"] * 3, "Space", *["ArrowRight"] * 4):
        browser.press(key)
    listened.settle()
    image = torch.tensor(page.evaluate("[...seen.data]"), dtype=torch.uint8).view(256, 256, 4)[..., :3]
    paper, red, white = (tuple(bytes.fromhex(color)) for color in ("99ccff", "cc0000", "ffffff"))
    places = {(250, 5): paper, (179, 128): red, (64, 77): white, (100, 128): white, (124, 192): paper}
    assert {place: tuple(image[place].tolist()) for place in places} == places
    expected = logits(trained, Image.fromarray(image.numpy()))
    torch.testing.assert_close(torch.tensor(page.evaluate("logits")), expected, atol=1e-5, rtol=0)
    share, k = expected.softmax(dim=0).max(dim=0)
    assert at(".said").inner_text() == f"The model says {trained.class_names[k]}, {100 * share:.1f}\u00a0%."
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    browser.tap(at("[name=clear]"))
    listened.settle()
    blank = logits(trained, Image.new("RGB", (256, 256), paper))
    torch.testing.assert_close(torch.tensor(page.evaluate("logits")), blank, atol=1e-5, rtol=0)


def test_the_readers_own_file_is_answered_as_in_python_chosen_dropped_or_pasted(listened, trained):
    page, image = listened.page, photograph("cat_kitten").resize((301, 222)).rotate(90, expand=True)
    file = encoded(image, "PNG")
    give(listened, "mine.png", file)
    chosen = page.evaluate("logits")
    torch.testing.assert_close(torch.tensor(chosen), logits(trained, image), atol=1e-5, rtol=0)
    for kind in ("drop", "paste"):
        page.locator("[name=photo]").first.check()
        page.wait_for_function("() => !location.hash.includes('photo=own')")
        listened.settle()
        assert page.evaluate("logits") != chosen
        assert page.evaluate(HAND_OVER, [kind, base64.b64encode(file).decode(), "mine.png"]) is (kind == "paste")
        page.wait_for_function("() => location.hash.includes('photo=own')")
        listened.settle()
        assert page.evaluate("logits") == chosen


@pytest.mark.slow
def test_a_model_of_86_million_parameters_in_float32_answers(browser, tmp_path):
    browser.context.set_default_timeout(600_000)  # milliseconds; there are 460 MB to read
    browser.screen()
    browser.before_each_page(LISTEN)
    torch.manual_seed(0)
    model = create_vit("vit_b_16").eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    large = Pretrained(model, Preprocessing((0.5,) * 3, (0.5,) * 3, (224, 224)), None, "vitbook", ())
    figures.ask(large, figure_data.album()[:1]).save(tmp_path / "large.html")
    figure = Figure(browser, tmp_path / "large.html")
    expected = logits(large, photograph())
    torch.testing.assert_close(torch.tensor(figure.page.evaluate("logits")), expected, atol=1e-5, rtol=0)
    assert browser.errors == []


def test_a_file_that_is_none_or_too_large_is_refused_and_the_answer_stays(listened, trained):
    before = listened.says()
    assert notice(listened, "letter.png", b"Dear reader") == "letter.png is not an image that this browser can read."
    assert (
        notice(listened, "cut.png", encoded(photograph(), "PNG")[:40])
        == "cut.png is not an image that this browser can read."
    )
    huge = encoded(Image.new("1", (10_000, 6_001)), "PNG")
    assert notice(listened, "huge.png", huge) == (
        "huge.png has 10000×6001 pixels, more than this page takes: scale it down first."
    )
    assert listened.says() == before


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_of_an_animated_image_the_first_frame_is_seen_and_that_is_said(listened, trained, kind):
    first, second = (photograph(name).resize((64, 64)) for name in ("cat_kitten", "horse_nokota"))
    lossless = dict(lossless=True) if kind == "WEBP" else {}
    still = encoded(first, kind, **lossless)
    give(listened, "still", still)
    assert listened.page.locator(".notice").inner_text() == ""
    moving = encoded(first, kind, save_all=True, append_images=[second], duration=50, loop=0, **lossless)
    assert notice(listened, "moving", moving) == "An animated image: the model sees its first frame."
    expected = logits(trained, decode_image(moving, "moving"))
    torch.testing.assert_close(torch.tensor(listened.page.evaluate("logits")), expected, atol=1e-5, rtol=0)


def test_of_a_jpeg_for_print_it_says_that_colors_can_differ(listened):
    assert notice(listened, "print.jpg", encoded(photograph().convert("CMYK"), "JPEG")).startswith(
        "A JPEG for print (CMYK)"
    )


# The camera's tracks, as `tracks`
FILM = """
window.tracks = [];
const getUserMedia = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
navigator.mediaDevices.getUserMedia = async (wanted) => {
  const stream = await getUserMedia(wanted);
  tracks.push(...stream.getTracks());
  return stream;
};
"""
AS_PNG = """() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: seen.width, height: seen.height });
  canvas.getContext("2d").putImageData(new ImageData(seen.data, seen.width), 0, 0);
  return canvas.toDataURL();
}"""
OVER = "() => tracks.every((track) => track.readyState === 'ended')"
HIDE = """
Object.defineProperty(document, "hidden", { value: true, configurable: true });
document.dispatchEvent(new Event("visibilitychange"));
delete document.hidden;
"""


@pytest.fixture
def visited(browser, page):
    """The figure's page as a server would send it: there it may use the camera, where the reader agrees."""
    address = "http://localhost/ask.html"
    browser.context.route(address, lambda route: route.fulfill(path=page))
    browser.screen(390, 844, phone=True)
    return SimpleNamespace(as_uri=lambda: address)


def film(figure: Figure) -> None:
    """Open the camera."""
    figure.page.locator("[name=camera]").click()
    figure.page.locator("[name=take]:focus").wait_for()


def test_what_the_camera_sees_is_answered_as_in_python_and_the_camera_is_off(browser, visited, trained):
    browser.context.grant_permissions(["camera"])
    browser.before_each_page(LISTEN + FILM)
    figure = Figure(browser, visited)
    page, at = figure.page, figure.page.locator
    film(figure)
    assert at("[name=camera]").get_attribute("aria-expanded") == "true"
    assert page.evaluate("tracks.map((track) => `${track.kind} ${track.readyState}`)") == ["video live"]
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash.includes('photo=own')")
    figure.settle()
    assert page.evaluate(OVER) and at(".camera").is_hidden() and at("[name=camera]:focus").count()
    image = Image.open(io.BytesIO(base64.b64decode(page.evaluate(AS_PNG).partition(",")[2]))).convert("RGB")
    assert len(image.getcolors()) > 2
    expected = logits(trained, image)
    torch.testing.assert_close(torch.tensor(page.evaluate("logits")), expected, atol=1e-5, rtol=0)
    assert browser.errors == []


def test_whatever_closes_the_camera_stops_it(browser, visited):
    browser.context.grant_permissions(["camera"])
    browser.before_each_page(FILM)
    figure = Figure(browser, visited)
    page, at = figure.page, figure.page.locator
    ends = dict(
        cancel=lambda: at("[name=cancel]").click(),
        button=lambda: at("[name=camera]").click(),
        escape=lambda: page.keyboard.press("Escape"),
        photograph=lambda: at("[name=photo]").nth(1).check(),
        hidden=lambda: page.evaluate(HIDE),
        removed=lambda: at(FIGURE).evaluate("(host) => host.remove()"),
    )
    for count, (name, end) in enumerate(ends.items(), start=1):
        film(figure)
        assert page.evaluate("tracks.length") == count and not page.evaluate(OVER)
        end()
        page.wait_for_function(OVER)
        assert name == "removed" or at(".camera").is_hidden()
        assert name in ("photograph", "removed") or at("[name=camera]:focus").count(), name
    assert browser.errors == []


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("", "This page may not use the camera: you or the browser's settings say no."),
        ("NotFoundError", "The browser finds no camera."),
        ("NotReadableError", "The camera could not be started: it is busy."),
    ],
)
def test_why_there_is_no_image_is_said_and_the_answer_stays(browser, visited, way, said):
    if way:
        reject = f"() => Promise.reject(new DOMException('it is busy', '{way}'))"
        browser.before_each_page(f"navigator.mediaDevices.getUserMedia = {reject}")
    figure = Figure(browser, visited)
    before = figure.says()
    figure.page.locator("[name=camera]").click()
    notice = figure.page.locator(".notice:not(:empty)")
    notice.wait_for()
    assert notice.inner_text() == said
    assert figure.page.locator(".camera").is_hidden() and figure.says() == before and browser.errors == []


def test_where_the_browser_has_no_cameras_none_is_offered(browser, visited):
    browser.before_each_page("Object.defineProperty(navigator, 'mediaDevices', { value: undefined })")
    figure = Figure(browser, visited)
    assert figure.page.locator("[name=draw]").is_visible() and figure.page.locator("[name=camera]").is_hidden()
    assert "camera" not in figure.page.locator(".photographs p >> nth=0").inner_text()
    assert browser.errors == []


def test_the_address_holds_what_is_shown(browser, page, trained):
    browser.screen()
    figure = Figure(browser, page, "#ask:photo=horse_nokota&open=changed.3.2&removed=0.0,0.1&query=20")
    close(figure.shares("untouched"), asked(trained, photograph("horse_nokota"))[0])
    assert [label[:24] for label in figure.heads("changed")[:2]] == [
        "Block 0, head 0, removed",
        "Block 0, head 1, removed",
    ]
    says = f"Changed, block 3, head 2. The brighter a patch, the more {place(trained, 20)} attends to it."
    assert figure.page.locator(".caption").inner_text().startswith(says)
    assert "removed=0.0,0.1" in figure.page.evaluate("location.hash")
    nonsense = "#ask:photo=../x&open=changed.99.9&removed=77.7,x&query=-1&covered=999,a&seed=NaN&shuffle=all"
    close(Figure(browser, page, "?again" + nonsense).shares("untouched"), asked(trained)[0])
    assert browser.errors == []


@pytest.mark.parametrize("width", [360, 390])
def test_a_phone_shows_all_of_it_and_answers_a_finger(browser, page, trained, width):
    browser.screen(width, 740, phone=True)
    figure = Figure(browser, page)
    assert figure.page.evaluate("document.documentElement.scrollWidth") <= width
    box = figure.page.locator("[data-column=untouched] .heads button").first.bounding_box()
    assert min(box["width"], box["height"]) >= 24
    browser.tap(figure.page.locator("[data-patch='17']"))
    assert f"the more of it reaches {place(trained, 18)}" in figure.page.locator(".caption").inner_text()
    browser.screen()


def test_without_scripts_there_is_a_still_with_words(browser, page):
    browser.scripts(run=False)
    browser.page.goto(page.as_uri())
    assert_still(browser.page)
    assert browser.page.locator(".live-start").is_hidden()
    browser.scripts(run=True)


@pytest.mark.parametrize("lack", ["WebAssembly.validate = () => false", "delete window.WebAssembly"])
@pytest.mark.parametrize("name", ["ask", "train", "query"])
def test_a_browser_without_webassembly_or_its_simd_keeps_the_still_and_says_so(browser, tmp_path, name, lack):
    """Except of a figure that computes without it."""
    getattr(figures, name)().save(tmp_path / "page.html")
    browser.before_each_page(lack)
    browser.open(tmp_path / "page.html")
    if name == "query":
        browser.page.locator(".live-start").click()
        browser.page.locator(".sentence:not(:empty)").wait_for()
    else:
        said = browser.page.locator(".invitation", has_text="This browser lacks what the figure computes with")
        said.wait_for()
        assert said.inner_text() == "This browser lacks what the figure computes with: WebAssembly and its SIMD."
        assert browser.page.locator(f"{FIGURE} img").is_visible()
    assert browser.page.locator("button:visible").count() == 0 or name == "query"
    assert browser.errors == []


def test_a_browser_without_bitmaps_and_canvases_off_the_screen_answers_too(browser, page, trained):
    browser.screen()
    browser.before_each_page("delete window.createImageBitmap; delete window.OffscreenCanvas;")
    close(Figure(browser, page).shares("untouched"), asked(trained)[0])


def assert_still(page) -> None:
    """The photograph, and what the model says of it, as without scripts."""
    assert page.locator(f"{FIGURE} img").is_visible()
    assert "The model says " in page.locator(FIGURE).inner_text()


def test_a_browser_without_threads_keeps_the_still_and_says_why(browser, page):
    browser.before_each_page("delete window.Worker")
    browser.open(page)
    browser.page.locator(".live-start").click()
    browser.page.locator(".live-start", has_text="It could not be started: Worker is not defined.").wait_for()
    assert_still(browser.page)


def test_a_browser_that_is_too_old_for_the_scripts_keeps_the_still(browser, page, tmp_path):
    """Where a script does not parse, none of it runs: here each has a sign that no browser knows."""
    (tmp_path / "old.html").write_text(page.read_text(encoding="utf-8").replace("<script>", "<script>@"))
    browser.open(tmp_path / "old.html")
    assert "Invalid or unexpected token" in browser.errors[0]
    assert_still(browser.page)
    assert browser.page.locator(".live-start").is_hidden()
    for name, script in figures.ask().parts.items():
        (tmp_path / f"{name}.js").write_text("@" if name == "ask" else script)
    (tmp_path / "live.js").write_text(bundles.source("live.js"))
    (tmp_path / "site.html").write_text(f'<!DOCTYPE html>{figures.ask().still}<script src="live.js"></script>')
    browser.open(tmp_path / "site.html")
    browser.page.locator(".live-start").click()
    browser.page.locator(".live-start", has_text="It could not be started: this browser cannot read ask.js.").wait_for()
    assert_still(browser.page)


def test_bars_grow_only_where_motion_is_welcome(browser, page):
    browser.screen()
    figure = Figure(browser, page)
    duration = "getComputedStyle(bar).transitionDuration"
    for motion, expected in {"no-preference": "0.2s", "reduce": "0s"}.items():
        browser.page.emulate_media(reduced_motion=motion)
        assert figure.page.locator(".bars i").first.evaluate(f"(bar) => {duration}") == expected
