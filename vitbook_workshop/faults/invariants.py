"""What must hold of a Vision Transformer, one entry each: in words, and as what asks it of a part, a model or a run.

The package's tests ask it of each part, and of the wrong variants in `mistakes`, which name what catches them;
`diagnose` asks it of a model, `watch` of a training run. A new entry needs a check, and a wrong variant that fails it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vitbook.data import Dataset
from vitbook_workshop.faults import checks_of_data as data
from vitbook_workshop.faults import checks_of_learning as learning
from vitbook_workshop.faults import checks_of_models as models
from vitbook_workshop.faults import checks_of_operations as operations
from vitbook_workshop.faults import checks_of_parts as parts
from vitbook_workshop.faults import checks_of_precision as precision
from vitbook_workshop.faults import checks_of_procedures as methods
from vitbook_workshop.faults import checks_of_training as training
from vitbook_workshop.faults.loop_recorder import LoopRecorder
from vitbook_workshop.faults.model_under_test import ModelUnderTest


@dataclass(frozen=True)
class MustHold:
    """One thing that must hold, and the checks of it, which have its name; at least one is there."""

    about: str  # what must hold
    where: str  # the section that explains it, as a link from another chapter
    suspect: str = ""  # what to suspect where it does not; of parts, the mistakes say it
    likely: str = ""  # why a failure is likely a mistake and not certainly; "" if it is certainly one
    # of a function or class that implements a part of this package; raises AssertionError
    of_part: Callable[[Callable], None] | None = None
    # of anybody's model, of a training loop, of a data set; these raise Failed or NotAsked
    of_model: Callable[[ModelUnderTest], str | None] | None = None
    of_training: Callable[[LoopRecorder], None] | None = None
    of_data: Callable[[Dataset], None] | None = None

    @property
    def name(self) -> str:
        """That of its checks; the key in `INVARIANTS`."""
        return next(check.__name__ for check in self.checks)

    @property
    def checks(self) -> list[Callable]:
        """Those that it has."""
        return [check for check in (self.of_part, self.of_model, self.of_training, self.of_data) if check]


def _of_part(check: Callable[[Callable], None], where: str, about: str) -> MustHold:
    return MustHold(about, where, of_part=check)


_OF_MODELS = [
    # From outside: what goes in and comes out, its parameters, its logits
    MustHold(
        "images (B, C, H, W) go in, and logits (B, K) come out",
        "09_vit.ipynb#the-four-equations-together",
        suspect="a size fixed at some number, a head for other classes, or more than the logits returned.",
        of_model=models.logits_come_out,
    ),
    MustHold(
        "logits carry a gradient to what is to be trained",
        "10_training.ipynb#the-loop-bare",
        suspect="forward runs under torch.no_grad() or torch.inference_mode(), or detaches what it returns.",
        of_model=models.logits_carry_a_gradient,
    ),
    MustHold(
        "forward leaves the images as they are",
        "10_training.ipynb#the-loop-bare",
        suspect="an operation in place on what forward gets: x -= mean, x.div_(), normalize(inplace=True), or noise"
        " added in training. The caller's next step gets other images.",
        of_model=models.images_stay_as_they_are,
    ),
    MustHold(
        "any number of images makes a batch",
        "07_embedding.ipynb#a-token-that-speaks-for-the-image",
        suspect="a class token or positions with the batch size in their shape; they should be (1, …) and expand.",
        of_part=parts.every_batch_size_will_do,
        of_model=models.every_batch_size_will_do,
    ),
    MustHold(
        "a backward pass runs through it",
        "10_training.ipynb#the-loop-bare",
        suspect="an operation of the model's own whose backward pass fails: it cannot be trained.",
        of_part=parts.backward_runs,
        of_model=learning.backward_runs,
    ),
    MustHold(
        "in float64 it calculates in float64",
        "07_embedding.ipynb#four-ways-to-say-where",
        suspect="a tensor made inside forward without dtype and device of x, or kept as a plain attribute: use"
        " register_buffer, or x.new_zeros and the like.",
        of_model=precision.float64_works,
    ),
    MustHold(
        "other images get other logits",
        "07_embedding.ipynb#a-token-that-speaks-for-the-image",
        suspect="a class token that never sees the patches, as under attention over the batch, or a head that reads"
        " something else.",
        of_model=models.images_count,
    ),
    MustHold(
        "in evaluation, the same image gets the same logits",
        "08_encoder.ipynb#dropout-and-where-it-goes",
        suspect="F.dropout, which does not know of eval(): use nn.Dropout or pass training=self.training.",
        of_part=parts.evaluation_is_deterministic,
        of_model=models.evaluation_is_deterministic,
    ),
    MustHold(
        "in evaluation, an image's logits do not depend on the others in its batch",
        "09_vit.ipynb#one-image-does-not-touch-another",
        suspect="attention over the batch (nn.MultiheadAttention and nn.TransformerEncoder without batch_first=True), a"
        " softmax over dim=0, a reshape that mixes images, one image's class token for all, or batch statistics.",
        of_part=parts.images_do_not_mix,
        of_model=models.images_do_not_mix,
    ),
    MustHold(
        "in evaluation, an image gets the same logits at every place of a batch",
        "07_embedding.ipynb#equation-1-complete",
        suspect="something is indexed by the image in the batch: positions pe[:x.size(0)], made for (T, B, D), on"
        " tokens (B, T, D), or a class token for each place. It should be x + pe[:, :x.size(1)].",
        of_model=models.places_in_a_batch_are_alike,
    ),
    MustHold(
        "the order of the patches counts, if it is meant to",
        "07_embedding.ipynb#a-bag-of-patches",
        suspect="positions are missing, or they are added to something that is thrown away (dropout on x instead of x +"
        " positions).",
        of_part=parts.order_counts,
        of_model=models.order_counts,
    ),
    MustHold(
        "every pixel counts",
        "06_patches.ipynb#how-many-and-how-long",
        suspect="a slice that cuts too much away, or a patch size that does not divide the sizes: a remainder is"
        " dropped.",
        of_model=models.every_pixel_counts,
    ),
    MustHold(
        "every parameter has a part in the logits",
        "04_multihead.ipynb#what-w_o-is-for",
        suspect="a layer that is made and never called, such as an output projection, a last LayerNorm or positions.",
        of_part=parts.parameters_play_a_part,
        of_model=models.parameters_play_a_part,
    ),
    MustHold(
        "the class token and the positions are learned",
        "07_embedding.ipynb#equation-1-complete",
        suspect="a buffer or a plain tensor, drawn once or 0, where an nn.Parameter is meant.",
        of_model=learning.class_token_and_positions_are_learned,
    ),
    MustHold(
        "what is learned is registered",
        "08_encoder.ipynb#the-encoder",
        suspect="layers in a Python list or dict (use nn.ModuleList), or a tensor that is no nn.Parameter: the"
        " optimizer, state_dict() and to() do not see them.",
        of_model=models.learned_things_are_registered,
    ),
    MustHold(
        "every dropout acts",
        "01_attention.ipynb#dropout-on-the-weights",
        suspect="a probability that nothing reads.",
        of_part=parts.every_dropout_acts,
        of_model=models.every_dropout_acts,
    ),
    MustHold(
        "the blocks start with different weights",
        "08_encoder.ipynb#the-encoder",
        suspect="blocks copied from one, by copy.deepcopy or by nn.TransformerEncoder: draw their weights separately.",
        of_part=parts.blocks_start_different,
        of_model=models.blocks_start_different,
    ),
    MustHold(
        "the gains of norms start at 1",
        "08_encoder.ipynb#layernorm-by-hand",
        suspect="a loop that draws every parameter, those of the norms too: a gain near 0 makes its tokens vanish. Draw"
        " what has two axes or more (p.ndim > 1), and leave the norms as they are.",
        likely="a model that was trained has other gains, and is to be asked as one",
        of_part=parts.norms_start_at_one,
        of_model=models.norms_start_at_one,
    ),
    MustHold(
        "logits are no probabilities",
        "10_training.ipynb#how-wrong-is-an-answer",
        suspect="a softmax in the model. F.cross_entropy has one itself; twice, the loss cannot come near 0.",
        of_part=parts.logits_are_no_probabilities,
        of_model=models.logits_are_no_probabilities,
    ),
    MustHold(
        "no dropout acts on the logits",
        "08_encoder.ipynb#dropout-and-where-it-goes",
        suspect="a dropout after the head: a logit that is dropped is 0, and its class neither right nor wrong. It"
        " belongs before the last linear map.",
        of_part=parts.no_logit_is_dropped,
        of_model=learning.no_logit_is_dropped,
    ),
    MustHold(
        "it runs under autocast",
        "11_engine.ipynb#fewer-bits",
        suspect="tensors of two dtypes meet: one is made inside forward with a dtype of its own, or written into in"
        " place.",
        of_model=precision.autocast_works,
    ),
    MustHold(
        "it can be exported",
        "09_vit.ipynb#the-four-equations-together",
        suspect="forward depends on the numbers in a tensor: .item(), an if, or a loop over them.",
        likely="torch.export knows no loops over data, and a model may well need them",
        of_model=models.export_works,
    ),
    MustHold(
        "the first loss is near ln K",
        "10_training.ipynb#the-first-loss-is-ln-k",
        suspect="a head or tokens that start too large: a last LayerNorm that is missing, weights drawn too wide.",
        of_part=parts.first_loss_is_near_ln_k,
        of_model=models.first_loss_is_near_ln_k,
    ),
    MustHold(
        "a few images can be learned by heart",
        "10_training.ipynb#the-loop-bare",
        suspect="anything that hinders learning: a softmax before the loss, a part without gradient, a scale that"
        " leaves no slope, images all alike.",
        of_model=models.one_batch_can_be_learned,
    ),
    # From inside: patches, attention and blocks, as its operations compute them
    MustHold(
        "every token belongs to one rectangle of the image",
        "06_patches.ipynb#view-does-not-cut",
        suspect="an image cut by view or reshape alone: the axes have to be exchanged before they are joined.",
        of_model=operations.a_token_is_a_rectangle,
    ),
    MustHold(
        "an image has several tokens",
        "06_patches.ipynb#how-many-and-how-long",
        suspect="a patch as large as the image, or an image flattened into one vector: attention has nothing to choose"
        " from.",
        of_model=operations.an_image_has_several_tokens,
    ),
    MustHold(
        "heads get whole tokens, and give them back",
        "04_multihead.ipynb#cutting-queries-keys-and-values-into-heads",
        suspect="view(B, h, T, D_h) without a transpose, heads joined without one, or a fused kernel fed"
        " (B, T, h, D_h).",
        of_model=operations.heads_keep_tokens_whole,
    ),
    MustHold(
        "each head sees whole tokens",
        "04_multihead.ipynb#cutting-queries-keys-and-values-into-heads",
        suspect="tokens are cut into heads before the linear maps and not after them: each head has a slice to read.",
        likely="it is cheaper, and may be meant",
        of_model=operations.heads_see_whole_tokens,
    ),
    MustHold(
        "a linear map mixes what the heads give",
        "04_multihead.ipynb#what-w_o-is-for",
        suspect="no output projection: each head writes into its own part of a token, and no other.",
        likely="it runs without one, and may be meant to",
        of_model=operations.heads_are_joined_by_a_map,
    ),
    MustHold(
        "each query's weights sum to 1",
        "01_attention.ipynb#all-queries-at-once-by-matrices",
        suspect="a softmax over the queries (dim=-2) or the batch (dim=0) instead of the keys (dim=-1), or weights"
        " changed after the softmax: scaled, or masked.",
        of_part=parts.weights_sum_to_one,
        of_model=operations.weights_sum_to_one,
    ),
    MustHold(
        "dot products are divided by √ of what they run over, D_h",
        "02_scale.ipynb#which-d",
        suspect="no scale, √D for √D_h, times in place of over, a scale after the softmax or twice; or heads never"
        " split.",
        of_model=operations.scores_are_scaled,
    ),
    MustHold(
        "queries and keys are both turned by their places, or neither are",
        "21_modern.ipynb#a-position-is-a-rotation",
        suspect="a rotation (RoPE) of the queries alone, or of the keys.",
        of_part=methods.queries_and_keys_are_turned_alike,
        of_model=operations.queries_and_keys_are_turned_alike,
    ),
    MustHold(
        "before training, attention is spread over several keys",
        "02_scale.ipynb#no-slope-left",
        suspect="queries and keys that start too large: weights drawn with a standard deviation of 1, by torch.randn,"
        " where 0.02 or 1/√D is usual. A softmax so sharp has hardly a slope.",
        likely="an attention may be meant to start at one place",
        of_part=parts.attention_starts_soft,
        of_model=operations.attention_starts_soft,
    ),
    MustHold(
        "every token may look at every other",
        "05_transformer.ipynb#what-must-not-be-seen",
        suspect="a causal mask, as in a language model. The patches of an image have no past and no future.",
        of_model=operations.tokens_see_the_later_ones,
    ),
    MustHold(
        "each block adds to what was there",
        "08_encoder.ipynb#equation-2",
        suspect="a residual connection is missing: x = x + attention(norm(x)), x = x + mlp(norm(x)).",
        of_model=operations.blocks_add,
    ),
    MustHold(
        "each layer has weights of its own",
        "08_encoder.ipynb#the-encoder",
        suspect="one block in a loop, `for _ in range(depth): x = block(x)`: it is one layer, taken several times.",
        likely="ALBERT shares its weights so on purpose",
        of_model=operations.layers_have_weights_of_their_own,
    ),
    MustHold(
        "one nonlinearity stands in an MLP, between its two maps",
        "08_encoder.ipynb#equation-3",
        suspect="GELU is missing: two linear maps in a row are no more than one.",
        of_model=operations.mlps_have_an_activation,
    ),
    MustHold(
        "attention and MLP both get normalized tokens",
        "08_encoder.ipynb#before-or-after-pre-norm-and-post-norm",
        suspect="a LayerNorm is missing: x + attention(norm(x)), then x + mlp(norm(x)).",
        likely="one of the two is normalized, the other is not",
        of_model=operations.both_branches_get_normalized_tokens,
    ),
    MustHold(
        "each token is normalized separately, over its D numbers",
        "08_encoder.ipynb#layernorm-by-hand",
        of_part=parts.each_token_is_normalized,
        of_model=operations.each_token_is_normalized,
    ),
    MustHold(
        "the head gets normalized tokens",
        "09_vit.ipynb#equation-4",
        suspect="the last LayerNorm is missing: in a pre-norm encoder the tokens grow with every block.",
        of_model=operations.head_gets_normalized_tokens,
    ),
    MustHold(
        "the head reads the class token, or all patches alike",
        "09_vit.ipynb#one-vector-for-an-image-the-class-token-or-the-mean",
        suspect="a wrong index: a class token put in front is z[:, 0], and where there is none, the mean is over all of"
        " z.",
        of_model=operations.patches_are_read_alike,
    ),
    MustHold(
        "it is Equations 1 to 4",
        "09_vit.ipynb#the-four-equations-together",
        suspect="several mistakes at once, or one that has no name yet. Fix what is named above, and ask again.",
        of_part=parts.equations_hold,
        of_model=operations.equations_hold,
    ),
]

_OF_PARTS = [  # in the order of the book
    _of_part(parts.attention_equals_torch, "01_attention.ipynb#all-queries-at-once-by-matrices",
             "attention is torch's, masks and all"),
    _of_part(parts.hidden_keys_do_not_leak, "01_attention.ipynb#looking-away-a-mask",
             "a key hidden from all queries has weight 0, and no influence"),
    _of_part(parts.multihead_equals_torch, "04_multihead.ipynb#three-ways-to-write-it",
             "multi-head attention is torch's, masks and all"),
    _of_part(parts.tokens_have_no_order, "03_self_attention.ipynb#what-it-cannot-know",
             "permuted tokens give permuted outputs"),
    _of_part(parts.only_the_past_is_seen, "05_transformer.ipynb#what-must-not-be-seen",
             "a causal mask shows each position itself and what is before it"),
    _of_part(parts.only_words_are_seen, "05_transformer.ipynb#what-must-not-be-seen",
             "a padding mask shows the words, and no padding"),
    _of_part(parts.the_future_does_not_leak, "05_transformer.ipynb#what-must-not-be-seen",
             "later words change nothing of what comes before them"),
    _of_part(parts.padding_does_not_leak, "05_transformer.ipynb#what-must-not-be-seen",
             "more padding behind a source changes nothing"),
    _of_part(parts.sincos_equals_formula, "05_transformer.ipynb#where-a-letter-stands",
             "sines and cosines are those of the formula"),
    _of_part(parts.patchify_equals_loops, "06_patches.ipynb#cutting-by-hand",
             "every pixel is where loops put it"),
    _of_part(parts.unpatchify_undoes_patchify, "06_patches.ipynb#cutting-by-hand",
             "patches put together are the image"),
    _of_part(parts.convolution_equals_linear, "06_patches.ipynb#the-same-map-as-a-convolution",
             "the convolution is the linear map of patches"),
    _of_part(parts.embedding_equals_equation_1, "07_embedding.ipynb#equation-1-complete",
             "the embedding is Equation 1"),
    _of_part(parts.sizes_follow_the_arguments, "08_encoder.ipynb#how-large-is-a-block",
             "a block has as many parameters as its sizes ask for"),
    _of_part(parts.block_equals_torch, "08_encoder.ipynb#the-whole-block",
             "a block is torch's pre-norm layer"),
    _of_part(parts.mean_pooling_ignores_the_class_token,
             "09_vit.ipynb#one-vector-for-an-image-the-class-token-or-the-mean", "the mean is of the patches alone"),
    _of_part(methods.epoch_equals_the_bare_loop, "10_training.ipynb#the-loop-bare",
             "an epoch is the bare loop: zero, forward, backward, clip, step"),
    _of_part(methods.evaluation_counts_each_example_once, "10_training.ipynb#how-wrong-is-an-answer",
             "each example counts once, in whatever batch"),
    _of_part(methods.evaluation_leaves_the_mode, "10_training.ipynb#the-loop-bare",
             "after an evaluation the model trains or evaluates as before"),
    _of_part(methods.decay_is_decoupled, "10_training.ipynb#adamw-and-which-weight-decay",
             "a matrix shrinks by 1 − lr·decay each step"),
    _of_part(methods.warmup_cosine_equals_formula, "10_training.ipynb#how-fast-to-learn-and-when",
             "the rate rises in a line and falls as a cosine"),
    _of_part(methods.rollout_is_a_walk, "13_attention_maps.ipynb#through-all-blocks-rollout",
             "rows of a rollout are shares, and tokens that do not mix stay"),
    _of_part(methods.every_image_has_its_own_map, "13_attention_maps.ipynb#a-map-for-each-photograph",
             "each image's map is made of its own attention"),
    _of_part(methods.turning_keeps_norms_and_offsets, "21_modern.ipynb#a-position-is-a-rotation",
             "rotations keep lengths, and scores depend on offsets alone"),
    _of_part(methods.angles_tell_offsets_apart, "21_modern.ipynb#rows-and-columns",
             "angles are the same where rows and columns are as far apart, and only there"),
    _of_part(methods.scores_are_bounded, "21_modern.ipynb#scores-with-a-bound",
             "no score exceeds √D_h, however large the tokens"),
    _of_part(methods.registers_leave_no_trace, "21_modern.ipynb#tokens-for-nothing",
             "registers are no copies, and no part of the features"),
    _of_part(methods.patches_find_their_way_back, "22_mae.ipynb#the-way-back",
             "visible patches return to their places, hidden ones to the others"),
    _of_part(methods.hidden_patches_are_told_apart, "22_mae.ipynb#the-decoder",
             "no two hidden patches are painted alike"),
    _of_part(methods.only_hidden_patches_count, "22_mae.ipynb#only-what-is-hidden-counts",
             "the loss is the mean over the hidden patches"),
    _of_part(methods.a_common_answer_is_taken_away, "23_dino.ipynb#no-centering-one-answer-for-all",
             "what all images share, the center, counts nothing"),
    _of_part(methods.a_teacher_is_as_sure_as_told, "23_dino.ipynb#no-sharpening-no-answer-at-all",
             "a teacher's answers are as sharp as its temperature says"),
    _of_part(methods.a_view_is_not_its_own_teacher, "23_dino.ipynb#pairs-of-views",
             "the loss is the mean over pairs of different views"),
    _of_part(methods.a_round_cloud_is_left_alone, "23_dino.ipynb#the-short-way",
             "normal vectors cost least; smaller and larger ones cost more"),
    _of_part(methods.lengths_do_not_count, "24_contrastive.ipynb#one-space-for-both",
             "cosines do not change with the lengths of vectors"),
    _of_part(methods.both_sides_choose, "24_contrastive.ipynb#the-softmax-loss",
             "every image chooses a caption, and every caption an image"),
    _of_part(methods.every_pair_is_asked, "24_contrastive.ipynb#the-sigmoid-loss",
             "all B² pairs are asked, and their sum is divided by B"),
    _of_part(methods.the_scale_stays_positive, "24_contrastive.ipynb#temperature-and-bias",
             "whatever is learned, a larger cosine is a larger logit"),
    _of_part(methods.other_images_do_not_count, "24_contrastive.ipynb#names-instead-of-a-head",
             "an image's probabilities are those that it has alone"),
    _of_part(methods.packed_images_stay_apart, "25_tokens.ipynb#several-images-in-one-row",
             "packed into a row, an image gets what it gets alone"),
    _of_part(methods.a_merged_key_counts_for_its_parts, "25_tokens.ipynb#one-key-for-many",
             "equal keys give the same merged as one by one"),
    _of_part(methods.merging_keeps_the_sum, "25_tokens.ipynb#merge-what-is-similar",
             "merged tokens times their sizes add up to what they did before"),
    _of_part(methods.windows_are_looked_into, "25_tokens.ipynb#windows",
             "attention in windows is full attention, masked to them"),
    _of_part(methods.half_a_step_is_the_largest_error, "26_export.ipynb#eight-bits-for-a-weight",
             "in eight bits no weight is off by more than half a step of its row"),
    _of_part(methods.others_to_test_do_not_count, "27_at_work.ipynb#what-belongs-together-stays-together",
             "what is done to a test image does not depend on the others"),
    _of_part(methods.no_image_is_on_both_sides, "27_at_work.ipynb#what-belongs-together-stays-together",
             "every image is in one part, once"),
    _of_part(methods.every_class_counts_alike, "27_at_work.ipynb#class-by-class",
             "more images of a class do not make it count more"),
    _of_part(methods.a_path_leads_from_noise_to_the_image, "29_painting.ipynb#a-straight-path",
             "at t = 0 there is noise, at t = 1 the image"),
    _of_part(methods.no_time_outweighs_all_others, "29_painting.ipynb#a-loss-for-the-velocity",
             "the loss is that of the velocity, and no time weighs more than 400"),
    _of_part(methods.guidance_leads_to_the_class, "29_painting.ipynb#guidance",
             "guidance leads from the guess of no class to that of the class, and beyond"),
    _of_part(methods.the_running_mean_is_kept, "29_painting.ipynb#train-it",
             "what paints is the running mean of the weights"),
]  # fmt: skip

_OF_TRAINING = [  # and of what a model is trained on
    MustHold(
        "the loss gets what it expects: logits, or for F.nll_loss their log_softmax",
        "10_training.ipynb#how-wrong-is-an-answer",
        suspect="a softmax before F.cross_entropy, which applies one itself, or F.nll_loss without log_softmax.",
        of_training=training.loss_gets_logits,
    ),
    MustHold(
        "labels are 0 … K − 1",
        "10_training.ipynb#how-wrong-is-an-answer",
        suspect="labels counted from 1, a head for another number of classes, or a mark for 'no label' left in.",
        of_training=training.labels_are_in_range,
    ),
    MustHold(
        "batches mix the classes",
        "10_training.ipynb#the-loop-bare",
        suspect="a loader without shuffle=True over images sorted by class.",
        of_training=training.batches_mix_classes,
    ),
    MustHold(
        "the first loss is no more than ln K",
        "10_training.ipynb#the-first-loss-is-ln-k",
        suspect="logits that start too large: a head drawn too wide, no last LayerNorm, or a trained head whose"
        " classes are in another order.",
        of_training=training.first_loss_is_not_above_ln_k,
    ),
    MustHold(
        "losses and gradients are finite",
        "11_engine.ipynb#fewer-bits",
        suspect="a learning rate too large, a square root or logarithm at 0, or numbers too large for float16.",
        of_training=training.all_is_finite,
    ),
    MustHold(
        "images are normalized once",
        "15_pretrained.ipynb#which-mean-and-standard-deviation",
        suspect="no division by 255, no mean and standard deviation, or both twice, in the data set and in the loop.",
        of_training=training.images_are_normalized_once,
    ),
    MustHold(
        "labels match the images: neighbors among the images agree on them more than by chance",
        "10_training.ipynb#images-to-learn-from-and-images-to-be-judged-by",
        suspect="labels shuffled separately from the images, or the two read in different orders.",
        of_training=training.labels_match_images,
        of_data=data.labels_match_images,
    ),
    MustHold(
        "copies of an image have the same label",
        "10_training.ipynb#images-to-learn-from-and-images-to-be-judged-by",
        suspect="images saved in several classes' folders, or labels that were shuffled.",
        of_data=data.copies_have_one_label,
    ),
    MustHold(
        "the learning rate is not far too large",
        "10_training.ipynb#how-fast-to-learn-and-when",
        suspect="a learning rate ten to a hundred times too large, or no warm-up.",
        of_training=training.rate_is_not_too_large,
    ),
    MustHold(
        "the learning rate is not far too small",
        "10_training.ipynb#how-fast-to-learn-and-when",
        suspect="a learning rate a hundred times too small, or meant for another optimizer.",
        of_training=training.rate_is_not_too_small,
    ),
    MustHold(
        "the schedule moves at the right moments",
        "10_training.ipynb#how-fast-to-learn-and-when",
        suspect="scheduler.step() in the wrong place: it belongs after optimizer.step(), once per batch or once per"
        " epoch, in the unit in which its length is given.",
        of_training=training.schedule_fits,
    ),
    MustHold(
        "weight decay is for matrices alone",
        "10_training.ipynb#adamw-and-which-weight-decay",
        suspect="model.parameters() in one group. `vitbook.training.parameter_groups` makes two.",
        of_part=methods.only_matrices_decay,
        of_training=training.only_matrices_decay,
    ),
    MustHold(
        "gradients start from zero at each step",
        "10_training.ipynb#the-loop-bare",
        suspect="no optimizer.zero_grad().",
        of_training=training.gradients_are_zeroed,
    ),
    MustHold(
        "gradients are not always shortened to a fraction",
        "10_training.ipynb#the-loop-bare",
        suspect="a clip_grad_norm_ with a limit too small, or clip_grad_value_: the size of a gradient has no effect.",
        of_training=training.gradients_are_not_always_clipped,
    ),
    MustHold(
        "every parameter is trained that is meant to be",
        "10_training.ipynb#the-loop-bare",
        suspect="parameters left out of the optimizer, frozen, cut off by detach(), or replaced after it was built.",
        of_training=training.parameters_are_trained,
    ),
    MustHold(
        "the model trains in training mode",
        "08_encoder.ipynb#dropout-and-where-it-goes",
        suspect="model.eval() for validation, and no model.train() after it.",
        of_training=training.trains_in_training_mode,
    ),
    MustHold(
        "the model is evaluated in evaluation mode",
        "08_encoder.ipynb#dropout-and-where-it-goes",
        suspect="no model.eval() before validation: dropout stays on.",
        of_training=training.evaluates_in_evaluation_mode,
    ),
]

INVARIANTS = {must_hold.name: must_hold for must_hold in [*_OF_MODELS, *_OF_PARTS, *_OF_TRAINING]}
