"""``dlbench new``: the file of a network of one's own, to be filled in."""

import shlex
from importlib.util import find_spec
from pathlib import Path

import click

from dlbench.cli.options import OUTPUT_FILE
from dlbench.cli.output_files import check_writable, create
from dlbench.cli.terminal import say
from dlbench.core.errors import UsageError

_HEAD = '''"""A network of mine, measured by `dlbench run {file}`: put yours in its place."""

import dlbench
'''
_KINDS = {
    "images": """from torch import nn


# inputs: the shape of one image, without the batch.
# classes: it is trained by cross-entropy of its output, (batch, classes).
@dlbench.network(inputs=(3, 64, 64), classes=10)
def my_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
""",
    "tokens": """import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 128)
        layer = nn.TransformerEncoderLayer(128, nhead=4, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # (batch, seq)
        return self.head(self.encoder(self.embedding(tokens)).mean(dim=1))


# inputs: random token ids, (batch, seq). classes: it is trained by cross-entropy.
# optimizer: the one that you train with; without one it is SGD with momentum.
@dlbench.network(
    inputs=dlbench.Tokens(seq=64, vocabulary=1000),
    classes=4,
    optimizer=torch.optim.AdamW,
)
def my_network() -> nn.Module:
    return Classifier()
""",
    "example": """import torch
from torch import nn


def a_batch(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    \"\"\"Return inputs and targets; several inputs are a tuple or a dictionary.\"\"\"
    return torch.randn(batch, 16, 128), torch.rand(batch, 1)


# loss: of the network's output and these targets.
@dlbench.network(example=a_batch, loss=nn.MSELoss())
def my_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 128, 1),
    )
""",
}


@click.command("new")
@click.argument("file", metavar="FILE.py", type=OUTPUT_FILE)
@click.option("--inputs", type=click.Choice(list(_KINDS)), default="images", show_default=True, help="What the network takes.")
def new_command(file: Path, inputs: str) -> None:
    """Write the file of a network of your own, with an example in its place.

    The file runs as it is. --inputs example is for a network that takes anything else than one image or a sequence of tokens: the file
    then has a function that returns a batch.

    \b
      dlbench new mine.py
      dlbench new mine.py --inputs tokens
    """
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise UsageError(f"{file}: the file becomes a module of Python; call it like a name that ends in .py, such as mine.py")
    check_writable(file)
    # A run imports it by this name.
    if find_spec(file.stem):
        raise UsageError(f"{file}: Python has a module '{file.stem}' already, which this one would hide; choose another name")
    create(file, f"{_HEAD.format(file=file)}{_KINDS[inputs]}".encode())
    say(f"wrote {file}; put your network into it, then: dlbench run {shlex.quote(str(file))}")
