"""Notebooks of the first edition that people have saved: all that they import is still importable from there."""

import re

import pytest

FIRST_EDITION = """
vitbook: augment costs distillation heads plotting preprocessing properties
vitbook.attention: attention attention_scores attention_weights fused_attention gaussian_attention
    quickest_attention
vitbook.attention_maps: attention_distance attention_entropy gradient_weighted_attention logit_lens
    only_patches patch_distances patch_filters patch_map position_similarity recorded_attention
    residual_stream rollout
vitbook.augment: random_affine
vitbook.checkpoint: load_checkpoint
vitbook.cnn: SmallCNN
vitbook.data: PHOTOGRAPHS Split album digits load_dataset mean_and_std normalise photograph
vitbook.diagnosis: diagnose examine
vitbook.distillation: DistilledVisionTransformer late_fusion
vitbook.embedding: ImageEmbedding LearnedPositions drop_patches resize_positions sincos_positions_2d
vitbook.encoder: Encoder EncoderBlock MLP
vitbook.engine: TrainConfig batches fit
vitbook.exercises: check
vitbook.explorer: explore
vitbook.features: collect_features feature_colours feature_map neighbour_votes
vitbook.heads: HeatmapHead SegmentationHead soft_argmax
vitbook.layouts: GOOGLE Row TORCHVISION
vitbook.mistakes: MISTAKES broken_vit
vitbook.multihead: HeadShapedAttention ListOfHeads MultiHeadSelfAttention merge_heads split_heads
vitbook.patches: HybridEmbedding PatchEmbedding conv_stem patchify unpatchify
vitbook.pretrained: huggingface_config load_pretrained load_weights to_huggingface to_timm
vitbook.published: ASSETS PUBLISHED
vitbook.runs: RECIPES RECORDED read_run
vitbook.runtime: device has_bfloat16 seed_everything
vitbook.self_attention: SelfAttention
vitbook.source: show_source
vitbook.training: TrainConfig evaluate fit parameter_groups train_epoch warmup_cosine
vitbook.transformer: DecoderLayer EncoderLayer MultiHeadCrossAttention Transformer causal_mask padding_mask
    sincos_positions
vitbook.vit: CONFIGS ViTConfig VisionTransformer create_vit
"""
NAMES = [
    (module, name) for module, names in re.findall(r"(\S+): ([^:]+)(?=\n\S|$)", FIRST_EDITION) for name in names.split()
]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_saved_notebook_imports_it(module: str, name: str):
    exec(f"from {module} import {name}")
