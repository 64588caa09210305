"""Which tests prove which equation: chapter → the equation's tag → tests, as file::function or file::function[case].

A case is a part of what pytest puts in brackets after a test's name. tests/test_ledger.py finds every tagged equation
of every chapter here, and every test named here; `make ledger` demands that each has run and passed.
"""

PROOFS: dict[str, dict[str, list[str]]] = {
    "01_attention": {
        "1": [
            "test_attention.py::test_attention_equals_torch",
            "test_attention.py::test_attention_is_the_weighted_mean_written_as_loops",
        ],
        "2": ["test_attention.py::test_gaussian_attention_is_kernel_regression_written_as_loops"],
    },
    "02_scale": {
        "1": ["test_attention.py::test_unit_variance_queries_and_keys_give_unit_variance_scores"],
        "2": ["test_equations.py::test_the_slope_of_a_softmax_is_diag_w_minus_w_w"],
    },
    "03_self_attention": {
        "1": ["test_self_attention.py::test_the_head_is_the_equation"],
        "2": ["test_self_attention.py::test_the_head_is_the_equation"],
        "3": ["test_equations.py::test_keys_that_carry_half_their_square_make_attention_a_gaussian_kernel"],
        "4": ["test_self_attention.py::test_permuted_tokens_give_permuted_outputs_and_weights"],
    },
    "04_multihead": {
        "1": [
            "test_equations.py::test_the_projection_is_a_sum_over_heads",
            "test_multihead.py::test_property[multihead_equals_torch]",
        ],
        "2": [
            "test_equations.py::test_the_projection_is_a_sum_over_heads",
            "test_multihead.py::test_the_constructions_agree_in_outputs_and_gradients[HeadShapedAttention]",
        ],
        "3": ["test_equations.py::test_attention_costs_4td2_and_2t2d_multiplications"],
        "4": ["test_equations.py::test_the_quadratic_part_costs_as_much_as_the_maps_at_twice_the_width"],
    },
    "05_transformer": {
        "1": ["test_transformer.py::test_property[sincos_equals_formula]"],
        "2": ["test_equations.py::test_moving_on_by_k_positions_turns_each_pair_of_a_code"],
        "3": ["test_transformer.py::test_the_feed_forward_is_the_equation"],
        "4": [
            "test_transformer.py::test_the_encoder_layer_equals_torchs",
            "test_encoder.py::test_layer_norm_divides_by_the_biased_variance",
        ],
    },
    "06_patches": {
        "1": [
            "test_patches.py::test_property[patchify_equals_loops]",
            "test_patches.py::test_property[convolution_equals_linear]",
        ],
    },
    "07_embedding": {
        "1": [
            "test_embedding.py::test_property[embedding_equals_equation_1]",
            "test_vit.py::test_property[vit_equals_equations_1_to_4]",
        ],
    },
    "08_encoder": {
        "2": [
            "test_encoder.py::test_the_block_is_equations_2_and_3",
            "test_encoder.py::test_the_block_equals_torchs_pre_norm_layer",
            "test_vit.py::test_property[vit_equals_equations_1_to_4]",
        ],
        "3": [
            "test_encoder.py::test_the_block_is_equations_2_and_3",
            "test_encoder.py::test_the_block_equals_torchs_pre_norm_layer",
            "test_encoder.py::test_the_mlp_is_two_linear_maps_with_an_exact_gelu_between",
            "test_vit.py::test_property[vit_equals_equations_1_to_4]",
        ],
    },
    "09_vit": {
        "4": [
            "test_vit.py::test_property[vit_equals_equations_1_to_4]",
            "test_vit.py::test_scores_are_the_head_on_the_features",
        ],
    },
    "10_training": {
        "1": ["test_equations.py::test_cross_entropy_is_the_logarithm_of_the_probability"],
        "2": ["test_equations.py::test_sigmoid_cross_entropy_is_a_question_for_each_class"],
        "3": ["test_equations.py::test_adam_is_two_running_means"],
        "4": ["test_training.py::test_property[warmup_cosine_equals_formula]"],
    },
    "12_data": {"1": ["test_equations.py::test_a_convolution_moves_with_its_picture"]},
    "13_attention_maps": {
        "1": ["test_attention_maps.py::test_rollout_is_the_product_over_blocks_written_as_loops"],
        "2": ["test_attention_maps.py::test_gradient_weighted_attention_is_the_sum_over_paths_written_as_loops"],
    },
    "17_distillation": {
        "1": [
            "test_distillation.py::test_soft_distillation[two_classes_by_hand]",
            "test_distillation.py::test_soft_distillation[gradient_is_the_difference_of_probabilities]",
        ],
        "2": ["test_distillation.py::test_hard_distillation_by_hand"],
        "3": [
            "test_distillation.py::test_the_model_is_its_equations",
            "test_distillation.py::test_hard_distillation_with_a_token_by_hand",
        ],
    },
    "18_heads": {
        "1": ["test_heads.py::test_the_right_implementation_passes[any_heatmap_means_its_centre_of_mass]"],
        "2": [
            "test_equations.py::test_the_loss_of_a_heatmap_has_cells_for_classes",
            "test_heads.py::test_the_right_implementation_passes[target_equals_gaussian]",
        ],
        "3": ["test_heads.py::test_the_right_implementation_passes[hidden_layer_equals_formula]"],
    },
    "20_speed": {
        "1": [
            "test_costs.py::test_the_products_are_those_that_torch_counts",
            "test_costs.py::test_attention_costs_what_is_quadratic",
        ],
        "2": ["test_costs.py::test_a_roof_has_two_sides"],
        "3": ["test_costs.py::test_the_blocks_keep_what_the_formula_says"],
    },
}
