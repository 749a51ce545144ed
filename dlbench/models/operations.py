"""Operations and bytes of a step of any network, counted for each operator of ATen that it runs, forward and backward, on shapes alone.

torch's fake tensors compute nothing but report the network's device, so attention and autocast choose the operators that they run there.
A call on such shapes takes milliseconds and no memory.
"""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


def tensors_of(tree: Any) -> tuple[Tensor, ...]:
    """Return the tensors in nested tuples and dictionaries, in order."""
    return tuple(each for each in tree_leaves(tree) if isinstance(each, Tensor))


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor without its numbers."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Return the shape of a tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)

    def meta(self) -> Tensor:
        """Return a tensor of this shape on the meta device."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")

    def fake(self, mode: FakeTensorMode) -> Tensor:
        """Return a fake tensor of this shape: on the meta device, but reporting its own."""
        return FakeTensor(mode, self.meta(), self.device)


def shapes_of(mode: FakeTensorMode, network: nn.Module, given: Any) -> tuple[Any, ...]:
    """Return a copy of a network, followed by copies of its arguments ``given``; fake tensors replace all their tensors, in any container.

    A fake tensor has the shape of the tensor that it replaces, and reports the same device. If that is the meta device, it reports the
    device of the network's other tensors instead.

    The network is copied because a call may leave its tensors in the network. Torch's ``functional_call`` would not do: a recurrent layer
    has its weights in a list, too, where ``functional_call`` does not replace them.
    """
    network = getattr(network, "_orig_mod", network)  # the network that torch.compile wraps, as the wrapper would compile this call, too
    tensors = tensors_of([vars(each) for each in network.modules()])
    network_device = next((each.device for each in tensors if not each.is_meta), torch.device("cpu"))

    def shape_of(tensor: Tensor) -> Tensor:
        shape = FakeTensor(mode, Shape.of(tensor).meta(), network_device if tensor.is_meta else tensor.device)
        if isinstance(tensor, nn.Parameter):
            shape._is_param = True  # by which torch knows a parameter; nn.Parameter would copy the tensor
        return shape.requires_grad_(tensor.requires_grad)

    # deepcopy looks here for the copies that it has made already. So it takes the fake tensors, and spends no memory on real copies.
    copies: dict[int, Any] = {id(each): shape_of(each) for each in tensors}
    return deepcopy(network, copies), *tree_map_only(Tensor, shape_of, given)


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
"""Operators of ATen that compute no products, without the underscore of operators in place."""


FASTER_CONVOLUTION = 4
"""How many times fewer operations the fastest algorithm in use takes for a convolution: Winograd's F(4 x 4, 3 x 3) multiplies 36 times
where the formula says 144 (Lavin and Gray, https://arxiv.org/abs/1509.09308, section 4)."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Operations and bytes of one step of a network."""

    flops: int | None = None
    """Operations of its products, such as matrix products and convolutions, one multiply-add being two."""
    bytes: int | None = None
    """Bytes of the operands and the results of all its operators, each run alone: from memory to memory, as in eager mode.

    Caches that hold a tensor from one operator to the next, and kernels that fuse several, move less; kernels that need scratch memory, or
    read a tensor several times as normalisation does, move more."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Why a count is None, such as ``no formula for aten._fft_r2c``."""


Step = Callable[..., Any]
"""A step of a network, given as the first argument, on what it is called with."""


@torch.inference_mode(mode=False)  # in which no tensor needs a gradient
def count_step(step: Step, network: nn.Module, *given: Any) -> Counted:
    """Count the operations and bytes of ``step(network, *given)``, called on shapes and a copy of the network.

    A step that fails is called once more as if it were being compiled: networks such as those of transformers then leave out shortcuts
    that depend on numbers.
    """
    first = _count_once(step, network, given, compiling=False)
    if "bytes" not in first.unknown:
        return first
    second = _count_once(step, network, given, compiling=True)
    return first if second.bytes is None else second


def _count_once(step: Step, network: nn.Module, given: Sequence[Any], *, compiling: bool) -> Counted:
    counter = StepCounter()
    try:
        network, *given = shapes_of(counter.fake, network, given)
        with _plain_operators(compiling), counter:
            step(network, *given)
    except Exception as error:  # noqa: BLE001  # whatever a network raises without numbers
        first_line = str(error).strip().partition("\n")[0]
        reason = f"it does not run on shapes alone, without numbers: {type(error).__name__}: {first_line}".rstrip(": ")
        return Counted(unknown={"flops": counter.reason or reason, "bytes": reason})
    if counter.reason:
        return Counted(None, counter.bytes, {"flops": counter.reason})
    return Counted(counter.flops, counter.bytes)


class StepCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """A counter below autograd, where functions and their gradients have become operators of ATen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.flops = self.bytes = 0
        self.fake = FakeTensorMode(allow_fallback_kernels=False, allow_non_fake_inputs=True)
        self._uncounted: dict[str, None] = {}  # a set that keeps its order
        self._results: dict[Hashable, Any] = {}
        """Shapes of operators' results, by `_key`: finding them takes most of the time, and networks have many equal layers. Without
        numbers the result of a view may be a new tensor."""

    @property
    def reason(self) -> str | None:
        """Why operations are unknown: some operators may compute products and have no formula. None where all are known."""
        return f"no formula for {', '.join(self._uncounted)}" if self._uncounted else None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, as nothing compiles here: else torch would import its compiler to keep it from this mode."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator of ATen on fake tensors, and count its operations and bytes; torch calls this for each operator."""
        if func is torch.ops.prim.device.default:  # autograd asks each tensor for its device, which computes and moves nothing
            return args[0].fake_device
        kwargs = kwargs or {}
        name = _name(func)
        is_attention = "attention" in name
        has_formula = is_attention or name in _PRODUCTS
        if not has_formula and not _is_productless(func):
            # It may consist of other operators: in inference mode torch has not taken it apart. Then each of its parts is counted.
            with self:  # torch leaves the mode before it calls this, so it would not see the parts
                output = func.decompose(*args, **kwargs)
            if output is not NotImplemented:  # it had parts
                return output
            self._uncounted[str(func._overloadpacket)] = None  # it may compute products, and nothing tells how many
        output = self._run(func, args, kwargs)
        if not func.is_view and name not in _MOVE_NOTHING:
            arguments = {**dict(zip(_arguments(func), args, strict=False)), **kwargs}
            self.bytes += _moved_bytes(func, arguments, tensors_of(output))
        if has_formula:
            self.flops += _attention_flops(name, args) if is_attention else _product_flops(name, args, output)
        return output

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator on fake tensors, or make its results of shapes that an equal call had."""
        key = None if func._schema.is_mutable else _key((func, args, *sorted(kwargs.items())))
        if key in self._results:
            return tree_map_only(Shape, lambda each: each.fake(self.fake), self._results[key])
        if key and _name(func) in _QUICKER_ON_META and args[5] is not False:  # in inference the shapes depend on the device
            output = func(*tree_map_only(Tensor, lambda each: Shape.of(each).meta(), args))
            output = tree_map_only(Tensor, lambda each: FakeTensor(self.fake, each, args[0].device), output)
        else:
            with self.fake:
                output = func(*args, **kwargs)
        if key:
            self._results[key] = tree_map_only(Tensor, Shape.of, output)
        return output


def _key(value: Any) -> Hashable:
    """Return a key of what the shapes of an operator's results depend on; None where they may depend on anything else."""
    if isinstance(value, Tensor):
        return Shape.of(value) if isinstance(value, FakeTensor) and value.constant is None else None
    if not isinstance(value, list | tuple):
        return type(value), value  # 1 equals 1.0, and gives results of another type
    parts = tuple(map(_key, value))
    return None if None in parts else parts


_QUICKER_ON_META = ("native_batch_norm", "native_batch_norm_backward")
"""Operators that fake tensors would first decompose, which would take most of the time of a deep network."""

_PRODUCTS = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "_scaled_mm", "convolution"), 0),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "addmv", "convolution_backward"), 1),
}
"""Operators of ATen whose operations are counted, and the position of the first of their two operands among the arguments."""


def _product_flops(name: str, args: Sequence[Any], output: Any) -> int:
    """Return the operations of a matrix product or convolution, from the arguments and output of ATen's operator ``name``.

    A multiply-add counts as two operations, and as eight where the numbers are complex. The backward pass of a convolution takes as many
    operations as the forward pass for each gradient that is wanted: that of the input and that of the weight.
    """
    position = _PRODUCTS[name]
    first, second = args[position : position + 2]
    # The numbers below are positions of further arguments in ATen's schema of the operator.
    if name == "convolution":
        multiply_adds = _convolution_multiply_adds(first, second, output, transposed=args[6])
    elif name == "convolution_backward":
        output_gradient = args[0]  # of the output's shape
        wanted_gradients = sum(args[10][:2])  # two flags: whether the gradient of the input is wanted, and that of the weight
        multiply_adds = wanted_gradients * _convolution_multiply_adds(first, second, output_gradient, transposed=args[7])
    else:
        columns = second.shape[-1] if second.dim() > 1 else 1
        multiply_adds = first.numel() * columns
    return 2 * multiply_adds * (4 if first.is_complex() else 1)


def _convolution_multiply_adds(x: Tensor, weight: Tensor, output: Tensor, *, transposed: bool) -> int:
    """Return the multiply-adds of a convolution: a filter is applied for each number of the output, or if transposed of the input."""
    return (x if transposed else output).numel() * prod(weight.shape[1:])


def _attention_flops(name: str, args: Sequence[Any]) -> int:
    """Return the operations of fused attention: queries (…, s, d) by keys (…, t, d), and the weights of that by values (…, t, e).

    Backward, each of these products has one for the gradient of each operand; kernels that recompute some do more.
    """
    is_backward = "backward" in name
    query, key, value = tensors_of(args)[is_backward:][:3]  # backward the gradient of the output comes first
    return 2 * (1 + is_backward) * prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _moved_bytes(func: Any, arguments: Mapping[str, Any], results: Sequence[Tensor]) -> int:
    """Return the bytes that an operator reads from its operands and writes to its results, each tensor once."""
    if not results:  # it only looks something up, such as a tensor's size
        return 0
    written = sum(map(_bytes, results))
    read = {id(each): each for name, value in arguments.items() if name not in _not_read(func) for each in tensors_of(value)}
    return written * (2 if _name(func) in _READ_IN_PART else 1) + sum(map(_bytes, read.values()))


_READ_IN_PART = ("embedding", "gather", "index", "index_select", "_unsafe_index")
"""Operators that read as many bytes from their first operand as they write."""
_MOVE_NOTHING = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view")


@cache
def _not_read(func: Any) -> frozenset[str]:
    """Return the names of the arguments that an operator only writes to, takes the shape of, or reads in part."""
    name, first = func._schema.name.removeprefix("aten::"), next(iter(_arguments(func)), "")
    is_overwritten = name in ("copy_", "fill_", "zero_") or (name.endswith("_") and torch.Tag.nondeterministic_seeded in func.tags)
    takes_shape = name.endswith("_like") or name.startswith("new_")
    skipped = [first] if is_overwritten or takes_shape or name in _READ_IN_PART else []
    return frozenset([*skipped, *(name for name, each in _arguments(func).items() if each.is_out)])


@cache
def _arguments(func: Any) -> Mapping[str, Any]:
    return {each.name: each for each in func._schema.arguments}


def _bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor in memory; one that was expanded has fewer than its shape would take."""
    return prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride) * tensor.element_size()


@cache
def _name(func: Any) -> str:
    """Return an operator's name without the underscore of one in place: without namespace for those of ATen, with it for others."""
    return str(func._schema.name).removeprefix("aten::").rstrip("_")


@cache
def _is_productless(func: Any) -> bool:
    """Return whether an operator, or the one whose gradient it computes, is known to compute no products."""
    forward = re.sub("_backward.*", "", _name(func))
    overloads = getattr(torch.ops.aten, forward, None)
    tags = {tag for name in (overloads.overloads() if overloads else ()) for tag in getattr(overloads, name).tags}
    return func.is_view or not _HARMLESS.isdisjoint((*func.tags, *tags)) or not PRODUCTLESS.isdisjoint((_name(func), forward))


_HARMLESS = {torch.Tag.pointwise, torch.Tag.inplace_view}


@contextmanager
def _plain_operators(compiling: bool) -> Iterator[None]:
    """While entered, make attention and recurrent layers run operators that have a formula, and make checkpoints run their function once.

    A checkpoint would run its function again in the backward pass, and repeated work must not count. ``compiling``: whether torch tells
    networks that they are being compiled.
    """
    # These are switched off: fused layers of torch, oneDNN and cuDNN. Their operators have no formula.
    switches = (
        (torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()),
        (torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled()),
        (torch._C._set_cudnn_enabled, torch._C._get_cudnn_enabled()),
    )
    stand_ins: list[tuple[Any, str, Any]] = [
        (checkpoint, "CheckpointFunction", _NoCheckpoint),
        (checkpoint, "_checkpoint_without_reentrant_generator", _no_checkpoint),
    ]
    if compiling:
        stand_ins.append((torch.compiler, "_is_compiling_flag", True))
    with ExitStack() as stack:  # its callbacks restore everything at the end
        for switch, was_on in switches:
            stack.callback(switch, was_on)
            switch(False)
        for owner, name, stand_in in stand_ins:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, stand_in)
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))  # the counter does not see operators of another thread
        yield


class _NoCheckpoint:
    """A stand-in for the function of a reentrant checkpoint, which switches gradients off in the forward pass."""

    @staticmethod
    def apply(function: Any, preserve_random_state: bool, *args: Any) -> Any:
        """Call the function."""
        return function(*args)


def _no_checkpoint(*given: Any, **more: Any) -> Iterator[None]:
    """Replace the generator that runs around the function of any other checkpoint."""
    yield
