"""The live figures in Firefox, from a file: the model says what torch says, and the digits are learned."""

import base64
import json
import re
import shutil

import pytest
import torch
from browser import WATCH
from firefox import Firefox, find_firefox

from vitbook._common.images import decode_image
from vitbook.pretrained import load_pretrained
from vitbook_workshop.live import figure_data, figures

pytestmark = pytest.mark.slow
ROOT = "document.querySelector('.vitbook-live').shadowRoot?.firstElementChild.shadowRoot"


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    program = find_firefox()
    if program is None:
        pytest.skip("no Firefox on the path; FIREFOX can name one")
    profile = tmp_path_factory.mktemp("firefox")
    running = Firefox(program, profile)
    yield running
    running.close()
    shutil.rmtree(profile, ignore_errors=True)


def start(firefox: Firefox, figure: figures.LiveFigure, path) -> None:
    figure.save(path)
    firefox.open(path)
    firefox.until("!document.querySelector('.live-start').disabled")
    firefox.value("document.querySelector('.live-start').click()")
    firefox.until(f"{ROOT}?.querySelector('[data-first]') && {ROOT}.host.hidden === false")


def test_the_kingfisher_is_named_with_the_probability_that_torch_gives(firefox, tmp_path):
    trained, photograph = load_pretrained("vitbook:cifar10"), figure_data.album()[0]
    image = decode_image(base64.b64decode(photograph["src"].partition(",")[2]), photograph["name"])
    with torch.no_grad():
        shares = trained.model(trained.preprocessing(image))[0].softmax(dim=-1)
    start(firefox, figures.ask(), tmp_path / "ask.html")
    said = firefox.value(f"{ROOT}.querySelector('.sentence').textContent")
    name, share = re.fullmatch(r"The model says (\w+) \(([\d.]+)\s%\)\.", said).groups()
    assert name == trained.class_names[shares.argmax()] == "bird"
    assert float(share) / 100 == pytest.approx(shares.max().item(), abs=1e-3)


def test_three_epochs_are_learned(firefox, tmp_path):
    start(firefox, figures.train(), tmp_path / "train.html")
    progress = f"{ROOT}.querySelector('.progress')"
    watch = json.dumps(f"({WATCH})({progress}, ['Epoch 3 of', '[name=stop]'])")
    firefox.value(f"document.head.append(Object.assign(document.createElement('script'), {{ text: {watch} }}))")
    firefox.value(f"{ROOT}.querySelector('[name=train]').click()")
    firefox.until(f"{ROOT}.querySelector('[name=train]').disabled === false")
    texts = [text for text, _ in json.loads(firefox.value(f"{progress}.dataset.said"))]
    loss = [float(re.search(r"loss ([\d.]+)", text)[1]) for text in texts if re.match("Epoch [13] of", text)]
    assert 2 < loss[0] < 2.6 and loss[1] < loss[0]
