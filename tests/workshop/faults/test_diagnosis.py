"""A right model passes clean, whoever wrote it; a broken one is told what is wrong with it, and nothing else."""

from types import SimpleNamespace

import elsewhere
import held_out
import pytest
import torch
import ways
from gallery import IMAGE, RIGHT, WRONG, OwnViT, TorchViT, galleries, shape_for, tutorial_patches, unfolded_patches
from small_models import HEIGHT, WIDTH, C, D, K, P, small_config
from styles import TWICE_WRONG, UNSEEN, HfViT, TimmViT
from test_mistakes import ONLY_IN_TRAINING
from torch import nn
from unlearned import RIGHT_UNLEARNED, TWICE_UNLEARNED, WRONG_UNLEARNED

from vitbook.vit import VisionTransformer
from vitbook_workshop.faults.diagnosis import OF_A_MODEL, diagnose, examine, repeatable
from vitbook_workshop.faults.mistakes import IN_A_VIT, MISTAKES, broken_vit
from vitbook_workshop.faults.model_under_test import ModelUnderTest

PAGES = "https://vitbook.github.io/vitbook"
pytestmark = pytest.mark.door  # the models are anybody's


def failures(model: nn.Module, *given, **how) -> dict:
    """The findings of the questions that a model fails, by name."""
    return {finding.name: finding for finding in examine(model, *given, **how) if finding.result == "FAILED"}


# Right models


@pytest.mark.parametrize("build", galleries(RIGHT, held_out.RIGHT, RIGHT_UNLEARNED))
def test_a_right_model_passes_clean(build, capsys, request):
    name = request.node.callspec.id
    diagnose(build(), shape_for(name), K)
    report = capsys.readouterr().out
    assert not any(word in report for word in ("FAILED", "Suspect", "STOPPED", "ERROR"))
    unlike = name == "linear attention"  # where no softmax makes the weights
    assert ("Not wholly examined" if unlike else "Nothing found in ") in report
    assert unlike or report.count("not asked") <= 10


@pytest.mark.parametrize("build", galleries(ways.RIGHT))
def test_however_attention_is_written_it_is_seen_in_all_blocks(build):
    model = build()
    with repeatable():
        tested = ModelUnderTest(model, ways.shape_for(model), K)
        assert tested.attention_seen == (3, 3) and not tested.recorded.lost
    assert not failures(model, ways.shape_for(model), K)


@pytest.mark.parametrize("build", galleries(elsewhere.RIGHT))
def test_wherever_weights_come_from_a_right_model_is_not_accused(build):
    assert not failures(build(), elsewhere.SHAPE, K)


@pytest.mark.parametrize("side", [8, 28])
@pytest.mark.parametrize("patches", [tutorial_patches, unfolded_patches])
def test_no_number_of_patches_makes_them_look_scattered(patches, side):
    model = OwnViT(cut=lambda images: images, patches=patches, tokens=(side // P) ** 2)
    assert not failures(model, (C, side, side), K)


def test_rows_of_pixels_are_no_patches_in_gray_images_either():
    def view(images):
        return images.reshape(len(images), 9, P * P)  # rows are 12 wide, and a patch has 16 pixels

    model = OwnViT(cut=view, patches=lambda: nn.Linear(P * P, D), tokens=9)
    assert set(failures(model, (1, 12, 12), K)) == {"a_token_is_a_rectangle"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["class", "torch, mean"])
def test_a_right_model_learns_a_few_images_by_heart(name):
    assert not failures(RIGHT[name](), IMAGE, K, overfit=True)


def test_without_positions_the_order_must_not_count():
    bag = VisionTransformer(small_config(positions="none", pool="mean", class_token=False))
    assert set(failures(bag)) == {"order_counts"}
    assert not failures(bag, order_counts=False)
    assert "something knows" in failures(VisionTransformer(small_config()), order_counts=False)["order_counts"].suspect


def test_a_trained_model_is_not_asked_how_it_started():
    model = VisionTransformer(small_config())
    nn.init.normal_(model.head.weight, std=30)
    assert set(failures(model)) == {"first_loss_is_near_ln_k"}
    assert not failures(model, untrained=False)


def test_a_note_of_a_rate_is_no_dropout():
    model = OwnViT(act=nn.Sequential(nn.GELU(), nn.Dropout(0.1)))
    model.dropout_p, model.drop = 0.1, model.ways.act
    assert not failures(model, IMAGE, K)
    model.dropout_p = 0.2
    assert set(failures(model, IMAGE, K)) == {"every_dropout_acts"}


# The named mistakes


@pytest.mark.parametrize("name", galleries({name: name for name in IN_A_VIT}))
def test_each_mistake_in_a_model_is_reported_as_itself(name):
    findings = failures(broken_vit(small_config(attention_dropout=0.1), name))
    assert set(findings) - {"equations_hold"} == set(MISTAKES[name].seen_in_a_model)
    if name in ONLY_IN_TRAINING:
        assert "equations_hold" not in findings
        return
    mistake, finding = MISTAKES[name], findings["equations_hold"]
    assert finding.details == f"it does what a model does with “{mistake.title}”."
    assert (finding.suspect, finding.where) == (mistake.cause, mistake.where)


def test_attention_over_the_batch_with_a_mean_mixes_images():
    model = broken_vit(small_config(pool="mean"), "BatchTakenForTokens")
    assert set(failures(model)) >= {"images_do_not_mix", "equations_hold"}


def test_several_mistakes_are_each_seen_and_not_taken_for_one():
    findings = failures(broken_vit(small_config(), "HeadsNotSplit", "SoftmaxBeforeCrossEntropy"))
    assert set(findings) == {"scores_are_scaled", "logits_are_no_probabilities", "equations_hold"}
    assert findings["equations_hold"].details == "it is neither those nor any one of the known mistakes."


@pytest.mark.slow
def test_a_softmax_in_the_model_cannot_be_learned_past():
    model = broken_vit(small_config(), "SoftmaxBeforeCrossEntropy")
    assert "one_batch_can_be_learned" in failures(model, overfit=True)


# Mistakes in models that are not this package's


ALL_WRONG = WRONG | TWICE_WRONG | held_out.WRONG | held_out.TWICE_WRONG | WRONG_UNLEARNED | TWICE_UNLEARNED
ALL_UNSEEN = UNSEEN | held_out.UNSEEN


@pytest.mark.parametrize(("build", "causes"), galleries(ALL_WRONG))
def test_mistakes_in_anybodys_model_are_found_and_named(build, causes):
    found = failures(build(), IMAGE, K)
    assert set(found) == set(causes)
    assert all(cause in found[question].suspect for question, cause in causes.items())


@pytest.mark.parametrize(("build", "causes"), galleries(elsewhere.WRONG))
def test_wherever_weights_come_from_a_mistake_is_found_and_named(build, causes):
    found = failures(build(), elsewhere.SHAPE, K)
    assert set(found) == set(causes)
    assert all(cause in found[question].suspect for question, cause in causes.items())


@pytest.mark.parametrize(("build", "causes"), galleries(ways.WRONG))
def test_however_it_is_written_a_mistake_is_found_and_named(build, causes):
    model = build()
    found = failures(model, ways.shape_for(model), K)
    assert set(found) == set(causes)
    assert all(cause in found[question].suspect for question, cause in causes.items())


@pytest.mark.parametrize("build", galleries(ALL_UNSEEN))
def test_where_no_question_can_tell_none_accuses(build):
    assert not failures(build(), IMAGE, K)


def test_a_softmax_hides_no_missing_norm():
    found = failures(TimmViT("no final norm", "softmax"), IMAGE, K)
    assert set(found) == {"head_gets_normalized_tokens", "parameters_play_a_part", "logits_are_no_probabilities"}


def test_height_and_width_exchanged_are_told_from_other_sizes():
    turned, other = (VisionTransformer(small_config(image_size=size)) for size in ((WIDTH, HEIGHT), (16, 16)))
    (finding,) = failures(turned, IMAGE, K).values()
    assert "does not run on 8×12 images, and does on 12×8" in finding.details and "places" in finding.suspect
    (finding,) = failures(other, IMAGE, K).values()
    assert "places" not in finding.suspect


def test_a_model_that_does_not_run_is_asked_no_more(capsys):
    diagnose(nn.Linear(3, K), IMAGE, K)
    report = " ".join(capsys.readouterr().out.split())
    assert "FAILED images (B, C, H, W) go in" in report and "1 of 1 failed." in report
    assert report.count("the model does not run") == len(OF_A_MODEL)


def test_what_ails_a_model_is_not_that_its_device_has_no_float64():
    class OnMps(nn.Linear):
        def to(self, dtype):
            if dtype == torch.float64:
                raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
            return super().to(dtype)

    (finding,) = failures(OnMps(3, K), IMAGE, K).values()
    assert "mat1 and mat2 shapes cannot be multiplied" in finding.details and "MPS" not in finding.details


def test_more_than_logits_returned_is_said():
    class Two(nn.Module):
        def forward(self, images):
            return images, images

    (finding,) = failures(Two(), IMAGE, K).values()
    assert finding.details.startswith(f"logits should have the shape (3, {K}), got a tuple with '0' {(3, *IMAGE)}, ")


@pytest.mark.parametrize("given", [list, lambda x: SimpleNamespace(logits=x), lambda x: None, lambda x: (x.sum(), "")])
def test_what_is_returned_in_training_is_taken_as_it_comes(given):
    class Trains(VisionTransformer):
        def forward(self, images):
            logits = super().forward(images)
            return given(logits) if self.training else logits

    findings = examine(Trains(small_config(dropout=0.1)), IMAGE, K)
    assert not {finding.result for finding in findings} & {"FAILED", "ERROR", "STOPPED", "UNSEEN"}


# The report


def test_the_model_and_the_random_numbers_stay_as_they_were():
    model = VisionTransformer(small_config(dropout=0.1)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    examine(model, overfit=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training and all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_the_report_is_the_same_each_time(capsys):
    model = broken_vit(small_config(), "no_scale")
    reports = []
    for _ in range(2):
        diagnose(model)
        reports.append(capsys.readouterr().out)
    one, other = reports
    assert (
        one == other
        and "attention recognized in 2 of 2 blocks" in one
        and f"Read {PAGES}/chapters/02_scale.html#which-d" in one
    )
    assert "multiplied by 1.000." in " ".join(one.split())


def test_under_no_grad_it_asks_the_same():
    with torch.no_grad():
        assert not failures(VisionTransformer(small_config()).requires_grad_(False))


def test_every_question_can_fail():
    reached = {name for mistake in MISTAKES.values() for name in mistake.seen_in_a_model}
    reached |= {name for _, names in (WRONG | WRONG_UNLEARNED | ways.WRONG).values() for name in names}
    reached |= {
        "logits_come_out",
        "logits_carry_a_gradient",
        "images_stay_as_they_are",
        "one_batch_can_be_learned",
        "equations_hold",
        "autocast_works",
        "export_works",
    }
    assert reached == {must_hold.name for must_hold in OF_A_MODEL}


@pytest.mark.parametrize("given", [(), ((HEIGHT, WIDTH), K), (IMAGE, 0)])
def test_what_is_not_known_has_to_be_given(given):
    with pytest.raises(ValueError, match=r"diagnose needs image_shape \(C, H, W\) and num_classes, got"):
        examine(TorchViT(), *given)


def test_how_sure_it_is_stands_beside_each_failure():
    for mistake, question, certainty in (
        ("softmax_over_the_queries", "weights_sum_to_one", "certain"),
        ("GeluTwice", "mlps_have_an_activation", "likely"),
    ):
        finding = failures(broken_vit(small_config(), mistake))[question]
        assert finding.certainty == certainty and finding.reason


@pytest.mark.slow
def test_a_model_that_reads_its_numbers_cannot_be_exported():
    class Curious(OwnViT):
        def forward(self, images):
            return super().forward(images) * (1 if images.sum().item() > 0 else 1)

    assert "export_works" not in failures(OwnViT(), IMAGE, K, export=True)
    finding = failures(Curious(), IMAGE, K, export=True)["export_works"]
    assert finding.certainty == "likely"


def test_dtypes_that_meet_under_autocast_are_found():
    class Written(OwnViT):
        def forward(self, images):
            logits = super().forward(images)
            logits.new_zeros(1, K, dtype=self.classify.weight.dtype).index_copy_(0, torch.tensor([0]), logits[:1])
            return logits

    assert set(failures(Written(), IMAGE, K)) == {"autocast_works"}


def test_large_models_are_asked_in_float32_with_the_same_answers(monkeypatch):
    monkeypatch.setattr("vitbook_workshop.faults.model_wrapper.LARGE", 0)
    assert not failures(VisionTransformer(small_config()))
    assert set(failures(*(HfViT("no scale", "merge"), IMAGE, K))) == {"scores_are_scaled", "heads_keep_tokens_whole"}


def test_progress_is_told_question_by_question():
    asked = []
    examine(VisionTransformer(small_config()), progress=asked.append)
    assert asked == [must_hold.about for must_hold in OF_A_MODEL]
