"""Parameter counts of the published networks, and the bytes of their gradients."""

from collections.abc import Mapping

from dlbench.core.precision import PRECISIONS

PARAMETERS: Mapping[str, int] = {
    "alexnet": 61_100_840,
    "vgg11": 132_863_336,
    "vgg13": 133_047_848,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "inception_v3": 27_161_264,
    "bert_base": 110_106_428,
    "gpt2": 124_439_808,
}
"""By the name that a case gives them, as they are trained; a test counts those of `dlbench.models`."""
_FAMILIAR = ("resnet50", "resnet18")
"""What is most trained among those that suites have."""


def familiarity(model: object) -> int:
    """Return what sorts networks: those first that a reader asks for first, and all others alike."""
    return _FAMILIAR.index(str(model)) if model in _FAMILIAR else len(_FAMILIAR)


def gradient_bytes(model: str, dtype: str, sent_as: str = "full") -> int | None:
    """Return the bytes of gradients of one step; None for another network or precision.

    ``sent_as`` is the precision that they travel in, ``full`` that of the weights.
    """
    precision = PRECISIONS.get(dtype if sent_as == "full" else sent_as)
    return PARAMETERS[model] * precision.bytes if precision and model in PARAMETERS else None
