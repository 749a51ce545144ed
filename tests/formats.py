"""Made-up trainings in formats of numbers, with what each of their six seeds ended with, and products with declared errors."""

from collections.abc import Mapping, Sequence
from typing import Any

import made_up

from dlbench.core import model
from dlbench.core.declarations import Declaration, Value
from dlbench.core.measurement import Measurement
from dlbench.core.model import ParamValue, Reported
from dlbench.core.units import Unit

SEEDS = tuple(f"seed {at}" for at in range(6))
OPERANDS = ("random", "columns", "cancelling")
NO_GAPS = (0.0,) * 6
FP32 = (0.62, 0.61, 0.63, 0.60, 0.64, 0.62)
"""Accuracies in fp32."""
CONVERGENCE = model.declaration_to_json(
    Declaration(
        values=(
            Value("accuracy", Unit.FRACTION, "higher", "at its end", True, points=SEEDS, role="seed_accuracy", margin=0.01, paired=True),
            Value("loss", Unit.NUMBER, "lower", series=True, points=SEEDS, role="seed_loss"),
            Value("diverged", Unit.COUNT, "lower", series=True, points=SEEDS, role="seed_diverged"),
            Value("curve", Unit.NUMBER, "lower", series=True, role="loss_curve"),
            Value("weight_bytes", Unit.BYTES, "lower"),
            Value("optimizer_bytes", Unit.BYTES, "lower"),
        ),
        parameters={"format": {"format": "fp32"}},
    )
)
ERRORS = (
    Value("error", Unit.FRACTION, "lower", series=True, points=OPERANDS, role="error"),
    Value("product_error", Unit.FRACTION, "lower", series=True, points=OPERANDS, role="product_error"),
)
MATMUL = model.declaration_to_json(Declaration(values=ERRORS, parameters={"n": {"sweep": ""}}))
DECLARED: Mapping[str, Any] = {"convergence": CONVERGENCE, "matmul": MATMUL}


def training(
    name: str, gaps: Sequence[float] = NO_GAPS, *, loss: float = 0.4, diverged: int = 0, device: str = "cpu", **params: ParamValue
) -> list[Measurement]:
    """One round of a training in a format whose seeds ended so far above fp32."""
    a_case = made_up.case("convergence", device, "convergence", **{"network": "mlp", "format": name, "rate": 0.02, **params})
    (found,) = made_up.rounds_of(a_case, [[1.0]])
    values: dict[str, Reported] = {
        "accuracy": tuple(base + gap for base, gap in zip(FP32, gaps, strict=False)),
        "loss": (loss,) * len(gaps),
        "diverged": tuple(int(at < diverged) for at in range(len(gaps))),
        "curve": (2.0, 1.0, loss),
        "weight_bytes": 4000,
        "optimizer_bytes": 8000,
    }
    return [made_up.without_rounds(made_up.with_values(found, **values))]


def products(dtype: str, seconds: float, error: float, device: str = "cpu", **params: ParamValue) -> list[Measurement]:
    """Seven rounds of a product in a precision with such an error, of which the product alone has a tenth."""
    a_case = made_up.case("matmul", device, "precision", **{"n": 1024, "dtype": dtype, **params})
    rounds = made_up.rounds_of(a_case, made_up.flat([seconds * each for each in made_up.SEVEN]))
    errors = (error, 2 * error, 100 * error)
    return [made_up.with_values(each, error=errors, product_error=tuple(one / 10 for one in errors)) for each in rounds]
