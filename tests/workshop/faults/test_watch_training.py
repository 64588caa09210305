"""`watch` finds what is wrong with a training loop, says nothing of right ones, and leaves nothing behind."""

import copy

import loops
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

from vitbook.data import Dataset, Split
from vitbook_workshop.faults.checks.data import neighbors_agree
from vitbook_workshop.faults.diagnose_on_data import examine_on_data
from vitbook_workshop.faults.findings import Failed
from vitbook_workshop.faults.watch_training import watch

WRONG = {name: (question, run) for question, runs in loops.WRONG.items() for name, run in runs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", loops.RIGHT)
@pytest.mark.filterwarnings("ignore")
def test_right_loops_raise_no_alarm(name):
    assert not loops.RIGHT[name]().failures


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.filterwarnings("ignore")
def test_each_fault_is_named(name):
    question, run = WRONG[name]
    failures = {finding.name: finding for finding in loops.reported(run).failures}
    assert question in failures
    diverged = {"all_is_finite", "rate_is_not_too_large"}  # one follows from the other
    assert set(failures) <= ({question} | diverged if question in diverged else {question})
    assert failures[question].certainty in ("certain", "likely") and failures[question].reason


@pytest.mark.slow
def test_it_says_where_nan_began():
    runs = loops.WRONG["all_is_finite"]
    details = [
        next(finding.details for finding in runs[name]().failures if finding.name == "all_is_finite")
        for name in ("NaN in the forward pass", "NaN in the backward pass", "NaN in an image")
    ]
    assert "forward pass of step 30: it begins in middle (Breaking)" in details[0]
    assert "backward pass of step 30" in details[1] and "nearest to the logits is that of norm" in details[1]
    assert "the images themselves" in details[2]


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_behind(error):
    model, loss, step = loops.ViT(), torch._C._nn.cross_entropy_loss, lr_scheduler.LRScheduler.step
    optimizer = loops.adamw(model)
    before = [dict(vars(thing)) for thing in (optimizer, *model.modules())]
    hooks = [len(x) for thing in before for name, x in thing.items() if "hooks" in name and x is not None]
    with pytest.raises(error) if error else watch(model, optimizer), watch(model, optimizer):
        F.cross_entropy(model(loops.IMAGES[:4]), loops.LABELS[:4]).backward()
        assert torch._C._nn.cross_entropy_loss is not loss
        optimizer.step()
        if error:
            raise error
    after = [vars(thing) for thing in (optimizer, *model.modules())]
    assert hooks == [len(x) for thing in after for name, x in thing.items() if "hooks" in name and x is not None]
    assert not any(p._backward_hooks or p._post_accumulate_grad_hooks for p in model.parameters())
    assert torch._C._nn.cross_entropy_loss is loss and lr_scheduler.LRScheduler.step is step


def test_the_run_is_the_same_with_it_and_without():
    weights = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = loops.ViT()
        optimizer = loops.adamw(model)
        data = list(loops.batches(steps=5))
        with watch(model, optimizer) if watched else torch.enable_grad():
            for images, labels in data:
                optimizer.zero_grad()
                F.cross_entropy(model(images), labels).backward()
                optimizer.step()
        weights.append(nn.utils.parameters_to_vector(model.parameters()))
    assert torch.equal(*weights)


def test_the_report_can_be_read():
    text = str(loops.train(loops.SoftmaxViT()))
    assert "FAILED" in text and "chapters/10_training.html#how-wrong-is-an-answer" in text
    assert "No" not in text.splitlines()[0] and "1 of" in text.splitlines()[-1]


@pytest.mark.door
def test_it_wants_a_model_and_an_optimizer():
    with pytest.raises(TypeError, match="model"), watch(F.cross_entropy, loops.adamw(loops.ViT())):
        pass
    with pytest.raises(TypeError, match="optimizer"), watch(loops.ViT(), 0.1):
        pass


# A model on a data set


def few(labels, images=None) -> Dataset:
    split = loops.DIGITS.train
    train = Split(split.images if images is None else images, labels)
    return Dataset("few", train, loops.DIGITS.test, loops.DIGITS.class_names)


def failures(*args, **kwargs) -> set[str]:
    return {finding.name for finding in examine_on_data(*args, **kwargs) if finding.result == "FAILED"}


@pytest.mark.slow
@pytest.mark.parametrize("model", [None, loops.ViT()], ids=["ours", "theirs"])
def test_a_right_model_on_right_data_passes(model):
    before = copy.deepcopy(model)
    findings = examine_on_data(model, loops.DIGITS, steps=30)
    assert not [finding for finding in findings if finding.result == "FAILED"]
    assert {"labels_match_images", "one_batch_can_be_learned", "first_loss_is_not_above_ln_k"} <= {
        f.name for f in findings
    }
    if model:
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before.parameters(), strict=True))


@pytest.mark.slow
def test_faults_of_data_and_model_are_named():
    labels = loops.DIGITS.train.labels
    copies = loops.DIGITS.train.images.clone()
    copies[:50] = copies[50:100]
    assert failures(loops.ViT(), few(loops.SHUFFLED), steps=20) == {"labels_match_images"}
    assert failures(loops.ViT(), few(labels, copies), steps=20) == {"copies_have_one_label"}
    assert failures(loops.SoftmaxViT(), loops.DIGITS, steps=20) >= {"loss_gets_logits", "one_batch_can_be_learned"}
    assert failures(loops.ViT(classes=7), loops.DIGITS, steps=20) == {"labels_are_in_range"}
    assert "parameters_are_trained" in failures(loops.DetachedViT(), loops.DIGITS, steps=20)


def test_copies_of_an_image_are_no_neighbors():
    images, labels = loops.IMAGES[:300].repeat(3, 1, 1, 1), loops.SHUFFLED[:300].repeat(3)
    neighbors_agree(loops.IMAGES, loops.LABELS)
    with pytest.raises(Failed) as failure:
        neighbors_agree(images, labels)
    assert failure.value.likely
