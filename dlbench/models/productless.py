"""Operators of ATen that are known to compute no products, beyond views and those that torch itself calls pointwise.

A list of what is known: whatever a later torch brings is uncounted, and named, until somebody looks at it.
"""

_BY_KIND = {
    "fills and random numbers": (
        "arange bartlett_window bernoulli blackman_window cauchy _efficientzerotensor empty empty_like empty_permuted empty_strided "
        "exponential eye fft_fftfreq fft_rfftfreq fill full full_like geometric hamming_window hann_window kaiser_window linspace "
        "log_normal logspace multinomial new_empty new_empty_strided new_full new_ones new_zeros normal normal_functional ones "
        "ones_like poisson rand rand_like randint randint_like randn randn_like random randperm range scalar_tensor tril_indices "
        "triu_indices uniform zero zeros zeros_like"
    ),
    "movement": (
        "alias as_strided_scatter block_diag cat channel_shuffle _chunk_cat clone col2im complex constant_pad_nd copy detach "
        "diag_embed diagonal_scatter embedding flip gather im2col index index_copy index_fill index_put _index_put_impl index_select "
        "_lazy_clone lift lift_fresh masked_fill masked_scatter masked_select _pack_padded_sequence _pin_memory pixel_shuffle "
        "pixel_unshuffle polar put reflection_pad1d reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad1d "
        "replication_pad2d replication_pad3d _reshape_copy resize resize_as roll rot90 scatter select_scatter set slice_scatter "
        "split_with_sizes_copy stack take _to_copy tril triu _unsafe_index _unsafe_index_put _unsafe_masked_index unsafe_split "
        "unsafe_split_with_sizes _unsafe_view"
    ),
    "comparisons of a whole, sorting and counting": (
        "allclose _assert_async _assert_scalar _assert_tensor_metadata bincount bucketize equal _functional_assert_async histc "
        "is_same_size isin kthvalue _linalg_check_errors _local_scalar_dense mode multinomial nonzero nonzero_static searchsorted sort "
        "_fused_sdp_choice sym_numel sym_size sym_stride topk _unique _unique2 unique_consecutive unique_dim"
    ),
    "gradients whose operators are called otherwise than those that they are of": (
        "diagonal_backward embedding_dense embedding_sparse evenly_distribute mkldnn_max_pool nll_loss nll_loss2d select select_backward "
        "slice slice_backward _thnn_fused_gru_cell _thnn_fused_lstm_cell unfold value_selecting_reduction"
    ),
    "notes for a profiler": ("profiler::_record_function_enter_new profiler::_record_function_exit"),
    "sums and other reductions, also such as go along a dimension": (
        "all amax amin aminmax any argmax argmin count_nonzero cummax _cummax_helper cummin _cummin_helper cumprod cumsum dist "
        "_embedding_bag _embedding_bag_forward_only embedding_renorm index_add index_reduce _is_all_true _is_any_true "
        "linalg_vector_norm _logcumsumexp logcumsumexp logsumexp max mean median min nanmedian nansum norm prod renorm scatter_add "
        "scatter_reduce segment_reduce std std_mean sum trace var var_mean"
    ),
    "normalisation and softmax": (
        "_batch_norm_no_update batch_norm_update_stats _batch_norm_with_update cudnn_batch_norm _fused_rms_norm _log_softmax "
        "_masked_softmax miopen_batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
        "native_group_norm native_layer_norm _safe_softmax _softmax _weight_norm_interface"
    ),
    "activations, dropout and losses": (
        "binary_cross_entropy binary_cross_entropy_with_logits copysign _ctc_loss floor_divide _fused_dropout gcd gelu glu hardswish "
        "heaviside huber_loss lcm linalg_cross log_sigmoid_forward mish mse_loss multi_margin_loss multilabel_margin_loss_forward "
        "native_dropout nll_loss2d_forward nll_loss_forward _prelu_kernel rrelu_with_noise rsub smooth_l1_loss soft_margin_loss "
        "threshold xlogy"
    ),
    "pooling and interpolation": (
        "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d avg_pool2d avg_pool3d fractional_max_pool2d "
        "fractional_max_pool3d grid_sampler_2d grid_sampler_3d max_pool2d_with_indices max_pool3d_with_indices max_unpool2d "
        "max_unpool3d upsample_bicubic2d _upsample_bicubic2d_aa upsample_bilinear2d _upsample_bilinear2d_aa upsample_linear1d "
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
        "_upsample_nearest_exact3d upsample_trilinear3d"
    ),
    "quantisation that computes in floating point, as in training for it": (
        "fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask"
    ),
}
PRODUCTLESS = frozenset(name for names in _BY_KIND.values() for name in names.split())
"""Names without the underscore of those in place."""
