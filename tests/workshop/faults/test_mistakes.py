"""Each mistake is wrong, is called like the right code, and breaks what it says it breaks."""

import re

import pytest
import torch
from small_models import differ, images, small_config

from vitbook.vit import VisionTransformer
from vitbook_workshop.faults.invariants import INVARIANTS
from vitbook_workshop.faults.mistakes import IN_A_VIT, MISTAKES, as_class, broken_vit
from vitbook_workshop.faults.mistakes.card import SAID

CAUGHT = [(mistake, name) for mistake in MISTAKES.values() for name in mistake.caught_by]
every_mistake = pytest.mark.parametrize("mistake", MISTAKES.values(), ids=lambda mistake: mistake.name)


def said(value) -> str:
    return value if isinstance(value, str) else value.name


@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize(("mistake", "name"), CAUGHT, ids=said)
def test_what_it_breaks_is_seen_in_it_and_not_in_the_right_code(mistake, name):
    check = INVARIANTS[name].of_part
    check(mistake.instead_of)
    with pytest.raises(AssertionError):
        check(mistake.variant)


def test_nothing_is_said_of_a_mistake_that_is_not_there():
    assert SAID.keys() == MISTAKES.keys()


@every_mistake
def test_what_is_said_of_it_is_whole(mistake):
    assert mistake.caught_by
    for text in (mistake.symptom, mistake.cause):
        assert text[0].isupper() and text[-1] in ".]", text
    assert mistake.symptom != mistake.cause
    assert re.fullmatch(r"|[\w.-]+/[\w.-]+/((issues|pull)/\d+|blob/[0-9a-f]{40}/.+)", mistake.found)
    assert (mistake.source == "our own") == (not mistake.found) and "blob" not in mistake.source


def test_without_a_mistake_the_model_is_right():
    assert type(broken_vit(small_config())) is VisionTransformer


@pytest.mark.parametrize("name", IN_A_VIT)
def test_a_broken_model_has_the_mistake_and_the_class_is_whole_again_afterwards(name):
    right, wrong = as_class(MISTAKES[name])
    settings = dict(dropout=0.1, attention_dropout=0.1)
    modules = list(broken_vit(small_config(**settings), name).modules())
    assert any(isinstance(module, wrong) or type(module).__name__ == wrong.__name__ for module in modules)
    assert not any(type(module) is right for module in modules)
    assert all(type(module) is not wrong for module in broken_vit(small_config()).modules())


ONLY_IN_TRAINING = {
    "AttentionDropoutUnread",
    "WeightsChangedInPlace",
    "ClassTokenNeverLearned",
    "PositionsNeverLearned",
}
ONLY_IN_TRAINING |= {"PatchesUnderNoGrad", "BlocksAreCopies", "AttentionIsCopied", "DropoutOnTheLogits"}
ONLY_IN_TRAINING |= {"AttentionStartsOneHot", "OneNormForTwoPlaces", "NormsDrawnLikeMatrices"}


@pytest.mark.door  # some of the shapes are wrong
@pytest.mark.parametrize("name", sorted(set(IN_A_VIT) - ONLY_IN_TRAINING))
def test_a_broken_model_gives_other_logits(name):
    config = small_config(pool="mean") if "Mean" in name else small_config()
    wrong, right = broken_vit(config, name).double().eval(), VisionTransformer(config).double().eval()
    with torch.no_grad():
        for parameter in wrong.parameters():
            parameter.normal_()
        theirs, ours = wrong.state_dict(), right.state_dict()
        for key in ours:
            if theirs[key].shape == ours[key].shape:
                ours[key].copy_(theirs[key])
        x = images().double()
        assert differ(wrong(x), right(x))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("everything_decays", "unknown mistake of a Vision Transformer 'everything_decays'"),
        ("mask_added_as_zero_and_one", "There are softmax_over_the_queries"),
        ("heads_not_split", "did you mean 'HeadsNotSplit'"),
    ],
)
def test_what_is_no_mistake_of_a_model_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        broken_vit(small_config(), name)
