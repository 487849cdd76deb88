"""Records PyTorch's training losses on MNIST, the reference that the tests compare with, into
torch_losses.json; rerun: `python tests/reference/record_torch.py PATH_TO_MNIST_FOLDER`.
"""

import argparse
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from inputs import Layer, batch_indices, cnn_weights, mlp_weights
from numpy.typing import NDArray

STEPS = 100
BATCH_SIZE = 128
OUTPUT = Path(__file__).with_name("torch_losses.json")

Params = dict[str, torch.Tensor]
MakeOptimizer = Callable[[Sequence[torch.Tensor]], torch.optim.Optimizer]


class Model(NamedTuple):
    """How to start a network and how to run it on images shaped [batch, 28, 28]."""

    start: Callable[[torch.dtype], Params]
    logits: Callable[[Params, torch.Tensor], torch.Tensor]


class Run(NamedTuple):
    """One training run; the gradients' global norm is clipped to clip_norm if given."""

    model: Model
    optimizer: MakeOptimizer
    clip_norm: float | None = None


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of bytes in a gzipped IDX file."""
    data = gzip.decompress(path.read_bytes())
    if data[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is not an IDX file of unsigned bytes")
    rank = data[3]
    shape = np.frombuffer(data, ">u4", count=rank, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape.tolist())


def to_params(prefix: str, layers: list[Layer], dtype: torch.dtype) -> Params:
    """Trainable tensors of the layers, named like `0.w` behind the prefix."""
    return {
        f"{prefix}{index}.{name}": torch.tensor(value, dtype=dtype, requires_grad=True)
        for index, layer in enumerate(layers)
        for name, value in layer.items()
    }


def start_mlp(dtype: torch.dtype) -> Params:
    """The MLP's parameters before training."""
    return to_params("", mlp_weights(), dtype)


def start_cnn(dtype: torch.dtype) -> Params:
    """The CNN's parameters before training, its kernels still HWIO."""
    weights = cnn_weights()
    return {
        **to_params("conv.", weights["conv"], dtype),
        **to_params("dense.", weights["dense"], dtype),
    }


def mlp_logits(params: Params, images: torch.Tensor) -> torch.Tensor:
    """Class scores of the MLP."""
    x = images.flatten(1)
    x = F.relu(x @ params["0.w"] + params["0.b"])
    x = F.relu(x @ params["1.w"] + params["1.b"])
    return x @ params["2.w"] + params["2.b"]


def cnn_logits(params: Params, images: torch.Tensor) -> torch.Tensor:
    """Class scores of the CNN."""
    x = images.unsqueeze(1)
    for layer in ("conv.0", "conv.1"):
        kernel = params[f"{layer}.w"].permute(3, 2, 0, 1)
        x = F.max_pool2d(F.relu(F.conv2d(x, kernel, params[f"{layer}.b"], padding="same")), 2)
    x = x.permute(0, 2, 3, 1).flatten(1)
    x = F.relu(x @ params["dense.0.w"] + params["dense.0.b"])
    return x @ params["dense.1.w"] + params["dense.1.b"]


def adam(params: Sequence[torch.Tensor]) -> torch.optim.Optimizer:
    """Adam at learning rate 1e-3."""
    return torch.optim.Adam(params, lr=1e-3)


def adamw(params: Sequence[torch.Tensor]) -> torch.optim.Optimizer:
    """AdamW at learning rate 1e-3 that decays every parameter, biases too."""
    return torch.optim.AdamW(params, lr=1e-3, weight_decay=1e-2)


def sgd(params: Sequence[torch.Tensor]) -> torch.optim.Optimizer:
    """Plain gradient descent at learning rate 0.1."""
    return torch.optim.SGD(params, lr=0.1)


def sgd_momentum(params: Sequence[torch.Tensor]) -> torch.optim.Optimizer:
    """Gradient descent at learning rate 0.05 with momentum 0.9."""
    return torch.optim.SGD(params, lr=0.05, momentum=0.9)


MLP = Model(start_mlp, mlp_logits)
CNN = Model(start_cnn, cnn_logits)

RUNS = {
    "mlp_adam": Run(MLP, adam),
    "mlp_sgd": Run(MLP, sgd),
    "mlp_adamw": Run(MLP, adamw),
    "mlp_sgd_momentum": Run(MLP, sgd_momentum),
    "mlp_adam_clipped": Run(MLP, adam, clip_norm=0.5),
    "cnn_adam": Run(CNN, adam),
    "cnn_sgd": Run(CNN, sgd),
}


def train(
    run: Run, images: NDArray[np.uint8], labels: NDArray[np.uint8], dtype: torch.dtype
) -> tuple[list[float], Params]:
    """The loss before each update, and the parameters after the last one."""
    params = run.model.start(dtype)
    tensors = list(params.values())
    optimizer = run.optimizer(tensors)
    losses = []
    for rows in batch_indices(STEPS, BATCH_SIZE):
        x = torch.tensor(images[rows]).to(dtype) / 255
        y = torch.tensor(labels[rows], dtype=torch.int64)
        loss = F.cross_entropy(run.model.logits(params, x), y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        if run.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(tensors, run.clip_norm)
        optimizer.step()
    return losses, params


def l2_norms(params: Params) -> dict[str, float]:
    """The L2 norm of each parameter, summed in float64."""
    return {name: value.detach().double().norm().item() for name, value in params.items()}


def record(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> dict[str, Any]:
    """All runs' losses in float32 and float64, and the float32 runs' final norms."""
    losses: dict[str, list[float]] = {}
    norms: dict[str, dict[str, float]] = {}
    for name, run in RUNS.items():
        losses[name], params = train(run, images, labels, torch.float32)
        norms[name] = l2_norms(params)
        losses[f"{name}_float64"], _ = train(run, images, labels, torch.float64)
    return {
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "steps": STEPS,
        "batch_size": BATCH_SIZE,
        "losses": losses,
        "final_norms": norms,
    }


def main() -> None:
    """Reads the folder's training files and writes the recording beside this script."""
    parser = argparse.ArgumentParser(description="Record PyTorch's training losses on MNIST.")
    parser.add_argument(
        "folder",
        type=Path,
        help="holds train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz",
    )
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch.use_deterministic_algorithms(True)
    # NNPACK, taken for convolutions where oneDNN is missing, leaves rounding noise where blank
    # pixels give exactly 0; ReLU passes gradients through the noise that is positive.
    torch.backends.nnpack.set_flags(False)
    images = read_idx(folder / "train-images-idx3-ubyte.gz")
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz")
    OUTPUT.write_text(json.dumps(record(images, labels), indent=1) + "\n")


if __name__ == "__main__":
    main()
