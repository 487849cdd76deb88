"""The commands' options as frozen dataclasses, which tyro turns into flags."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

__all__ = ["COMMANDS", "Evaluate", "Predict", "Resume", "Train", "Verify"]

_Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
_Text = Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]
_Count = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")]
_Number = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")]
_Widths = Annotated[
    tuple[int, ...] | None, tyro.conf.arg(metavar="INT [INT ...]", help_behavior_hint="")
]
_Data = Annotated[
    str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA", help_behavior_hint="")
]
_Run = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help_behavior_hint="")]
_Files = Annotated[
    tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE", help_behavior_hint="")
]
_Progress = Literal["auto", "rich", "plain", "none"]


@dataclass(frozen=True)
class Train:
    """Train a network on some data, and keep the run in a folder.

    Example: purefit train mnist --epochs 10
    """

    data: _Data = None
    """mnist (comes with the package), openml:NAME (from the network), or a file FILE.npz with the
    arrays x_train, y_train and, if you have them, x_test, y_test."""
    model: str = "mlp"
    """mlp, cnn, or FILE.py:NAME for your own: a function without arguments that gives any model
    that pf.fit takes, or the model itself."""
    hidden: _Widths = None
    """Widths of the hidden layers: 256 128 for the mlp, one width (128) for the cnn."""
    channels: _Widths = None
    """Channels of the cnn's convolutions (32 64)."""
    config: _Text = None
    """A TOML file with any of these settings, such as the run.toml of an earlier run; flags go
    before it."""
    out: _Text = None
    """Folder of the run; a new one below runs/ if not given."""
    seed: int = 0
    """Seed of all randomness: the same seed gives the same bits."""
    epochs: int = 10
    """Passes over the training data."""
    batch_size: int = 128
    """Examples in a step; the last batch of an epoch is as short as it comes."""
    optimizer: str = "adam"
    """adam, adamw or sgd."""
    schedule: str = "constant"
    """constant or warmup_cosine."""
    loss: str = "cross_entropy"
    """cross_entropy (class labels) or mean_squared_error (numbers)."""
    learning_rate: _Number = None
    """Step size; 0.001 for adam and adamw, 0.01 for sgd if not given."""
    weight_decay: _Number = None
    """Decoupled weight decay of adamw, on matrices only (0.01)."""
    momentum: _Number = None
    """Momentum of sgd (0)."""
    b1: _Number = None
    """Decay of Adam's first moment (0.9)."""
    b2: _Number = None
    """Decay of Adam's second moment (0.999)."""
    eps: _Number = None
    """Adam's epsilon (1e-8)."""
    clip_norm: _Number = None
    """Scale gradients down to this global norm; no clipping if not given."""
    dropout: _Number = None
    """Probability of dropping a hidden unit while training; none if not given."""
    warmup: _Number = None
    """Fraction of all steps in which warmup_cosine rises (0.05)."""
    final_scale: _Number = None
    """Where warmup_cosine ends, as a fraction of the learning rate (0)."""
    shuffle: bool = True
    """Draw a new order of the examples for every epoch."""
    drop_remainder: bool = False
    """Leave out the short last batch."""
    scale_bytes: bool = True
    """Divide uint8 inputs by 255."""
    eval_batch_size: int = 1000
    """Examples in one call of an evaluation."""
    mode: str = "auto"
    """How steps are compiled: scan, unroll, step, or auto to choose by the model and the device."""
    unroll: int = 8
    """Steps in one program in mode unroll."""
    save_every_epochs: Annotated[int | None, tyro.conf.arg(metavar="INT")] = 1
    """Save after every so many epochs; None for only at the end."""
    save_every_steps: _Count = None
    """Save after every so many steps."""
    save_every_seconds: _Number = None
    """Save every so many seconds."""
    keep_last: int = 2
    """How many of the newest saved steps are kept."""
    keep_best: bool = True
    """Keep the best epoch's step too."""
    progress: _Progress = "auto"
    """What is written to standard error: a bar, plain lines, or nothing."""
    json: _Flag = False
    """End with one JSON object on standard output."""


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped, from its newest verified step.

    Example: purefit resume runs/mnist-mlp-20260101-120000
    """

    run: _Run
    """The run folder."""
    model: _Text = None
    """FILE.py:NAME again, if the run had a model of your own: a folder never names code."""
    progress: _Progress = "auto"
    """What is written to standard error: a bar, plain lines, or nothing."""
    json: _Flag = False
    """End with one JSON object on standard output."""


@dataclass(frozen=True)
class Evaluate:
    """Give the loss and the accuracy of a saved run on data with known answers.

    Example: purefit evaluate runs/mnist-mlp-20260101-120000
    """

    run: _Run
    """The run folder."""
    data: _Text = None
    """Other data than the run's own, as for train."""
    split: Literal["test", "train"] = "test"
    """Which part of the data."""
    which: Literal["last", "best"] = "last"
    """The newest saved step, or the best epoch's."""
    model: _Text = None
    """FILE.py:NAME again, if the run had a model of your own."""
    json: _Flag = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class Predict:
    """Predict with a saved run: images (PNG, JPEG) or arrays (.npy, .npz).

    Example: purefit predict runs/mnist-mlp-20260101-120000 three.png
    """

    run: _Run
    """The run folder."""
    files: _Files = ()
    """Images, or arrays of one example or of several along the first axis."""
    which: Literal["last", "best"] = "last"
    """The newest saved step, or the best epoch's."""
    resize: _Flag = False
    """Resample images to the size that the model was trained on."""
    invert: _Flag = False
    """Swap dark and bright; MNIST is white on black."""
    model: _Text = None
    """FILE.py:NAME again, if the run had a model of your own."""
    json: _Flag = False
    """Print one JSON object instead of lines."""


@dataclass(frozen=True)
class Verify:
    """Prove on this machine that a run resumes bit for bit.

    Trains a short copy of the run twice: once to the end, and once killed with SIGKILL at a random
    step and resumed; then compares the hashes of the final states.

    Example: purefit verify runs/mnist-mlp-20260101-120000
    """

    run: _Run
    """The run folder whose settings are used; it is only read."""
    epochs: int = 2
    """Epochs of the short copy."""
    kills: int = 1
    """How often the second copy is killed."""
    seed: _Count = None
    """Seed of the random steps; drawn anew if not given."""
    model: _Text = None
    """FILE.py:NAME again, if the run had a model of your own."""
    json: _Flag = False
    """Print one JSON object instead of text."""


COMMANDS: Any = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Predict, tyro.conf.subcommand("predict")]
    | Annotated[Verify, tyro.conf.subcommand("verify")]
)
