"""Demands on training: gradients, number types, and what a checkpoint keeps."""

import os
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.trainer import Trainer
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_attnvariants.nn.fast.graphs import leaves
from fairseq_attnvariants.nn.layer_norm import at_least_float32

from ..systems.user_dirs import last_in_user_dir
from .demand import ATOL, RTOL, close, demand, finite
from .outcome import Broken, NotApplicable, quiet
from .returns import said
from .subject import Pairs, Subject, attention

STEPS = (1e-6, 1e-5, 1e-4, 1e-3)  # of finite differences; components that stay in float32 need the larger ones
ENOUGH = 3  # the test stops after this number of parameters with a gradient that is wrong by more than rounding
AGREEMENT = 3e-3
ROUNDED = 0.1  # error of a gradient that rounding to float32 may cause
SEEDS = (1, 2, 3)  # of values and of dropout, which at small widths may drop all effects of a parameter
ATTENTION = "attn", "word_attn", "head_attn"  # outputs of this package's models other than loss terms
EVEN = ["NO POP QUA", "ON SUN ROT", "US TON VOW"]  # targets without padding, in words or in letters


def loss(model: Any, pairs: Pairs, seed: int = 1, with_attention: bool = False) -> Tensor:
    """Return a smooth number that depends on all outputs of the model, including the terms of its extra costs.

    The targets must not have padding, because its embedding is trained differently.
    """
    terms = getattr(model, "cost_terms", [])
    torch.manual_seed(seed)
    made = model(pairs.source, pairs.lengths, pairs.previous, **({"with_cost_terms": True} if terms else {}))
    scores = at_least_float32(made[0])
    values = [scores, *(made[1][term][0] for term in terms)]
    if hasattr(model, "cost_terms"):  # a model of this package, whose components may make further terms
        values += [made[1][name][0] for name in made[1] if name not in (*terms, *ATTENTION)]
    weights = attention(made)
    if with_attention and weights is not None:
        values.append(weights)
    generator = torch.Generator().manual_seed(2)
    total = scores.logsumexp(-1).sum()
    for value in values:
        total = total + (value * torch.randn(value.shape, generator=generator).to(value)).sum()
    return total


def trained_parameters(model: Any) -> dict[str, Tensor]:
    """Return all parameters except frozen ones, and the copies that fairseq's Transformer keeps for fast inference."""
    layers = [part for part in model.modules() if isinstance(part, TransformerEncoderLayerBase)]
    copies = {id(parameter) for layer in layers for parameter in layer.parameters(recurse=False)}
    return {name: each for name, each in model.named_parameters() if each.requires_grad and id(each) not in copies}


@demand
def parameters(subject: Subject) -> None:
    """Test targets of several words, and of none. A gradient may be zero, but not with every seed.

    Demand: every parameter gets a gradient, and trains
    Otherwise: training on several devices hangs or stops at a parameter without gradient; one whose gradient is always
        zero is dead weight
    """
    model, pairs = subject.model().train(), subject.pairs(targets=EVEN)
    wanted = trained_parameters(model)
    for batch in (pairs, pairs._replace(previous=pairs.previous[:, :1])):
        model.zero_grad(set_to_none=True)
        torch.manual_seed(1)
        scores = subject.forward(model, batch).scores
        _all_known(scores, model)
        scores[..., 4].sum().backward()
        _no_names("without a gradient", [name for name, parameter in wanted.items() if parameter.grad is None])
    moved = set()
    for seed in SEEDS:
        model = subject.model(seed).train()
        loss(model, pairs, seed).backward()
        moved |= {name for name, each in model.named_parameters() if each.grad is not None and each.grad.any()}
    _no_names("whose gradient is zero", [name for name in wanted if name not in moved])


def _all_known(output: Tensor, model: Any) -> None:
    """Refuse tensors that get a gradient and are not parameters."""
    known = {*model.parameters()}
    for leaf in leaves([output]):
        if leaf not in known:
            raise Broken(
                f"a tensor of the shape {said(leaf)} gets a gradient and is no parameter, so it neither trains nor "
                "is saved: make it a torch.nn.Parameter, and a list of modules a torch.nn.ModuleList"
            )


def _no_names(what: str, names: list[str]) -> None:
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise Broken(f"parameters {what}: {', '.join(names[:3])}{more}")


@demand
def gradients(subject: Subject) -> None:
    """Test every parameter, each along a random direction, with the same dropout each time.

    Demand: gradients are those that finite differences give in float64
    Otherwise: training follows something else than its loss
    """
    model, pairs = subject.model().double().train(), subject.pairs(targets=EVEN)
    weights = subject.forward(model, pairs).attention
    # weights that are rounded to float32 have no slope in such small steps
    with_attention = weights is not None and weights.requires_grad and not weights.float().double().equal(weights)
    value = loss(model, pairs, with_attention=with_attention)
    finite(value, "outputs")
    value.backward()
    generator = torch.Generator().manual_seed(3)
    wanted = [(name, each, each.grad) for name, each in trained_parameters(model).items() if each.grad is not None]
    for name, _, gradient in wanted:
        finite(gradient, f"gradients of {name}")
    least = 1e-3 * max(float(gradient.norm()) for _, _, gradient in wanted)
    wrong: dict[str, float] = {}
    for name, parameter, gradient in wanted:
        along = torch.randn(parameter.shape, generator=generator, dtype=torch.double)
        along /= along.norm()
        expected = float((gradient * along).sum())
        errors = []
        for step in STEPS:
            slope = difference(parameter, step * along, lambda: float(loss(model, pairs, 1, with_attention))) / step
            errors.append(abs(slope - expected) / max(abs(slope), abs(expected), least))
            if errors[-1] < AGREEMENT:
                break
        else:
            wrong[name] = min(errors)
        if sum(error >= ROUNDED for error in wrong.values()) == ENOUGH:
            break
    if wrong:
        name = max(wrong, key=wrong.__getitem__)
        with Rounding() as rounding:
            loss(model, pairs, with_attention=with_attention)
        if rounding.places and wrong[name] < ROUNDED:
            raise NotApplicable(
                f"this is measured in float64, which is rounded to float32{rounding.places[0]}: write "
                "at_least_float32(values), or make tensors by new_zeros from those that they meet"
            )
        raise Broken(f"the gradient of {name} is off by {wrong[name]:.2g} of itself")


class Rounding(TorchDispatchMode):
    """Notes the places, in a user's code, where values in float64 become float32 while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: Any = None) -> Any:
        """Run the operation, and note its place if it rounds."""
        made = function(*arguments, **(named or {}))
        copied = COPIES.get(function)  # the place of the argument that is copied
        rounded = copied is not None and made.dtype == torch.float32 and arguments[copied].dtype == torch.float64
        if rounded and (place := last_in_user_dir(traceback.extract_stack())):
            self.places.append(place)
        return made


COPIES = {torch.ops.aten._to_copy.default: 0, torch.ops.aten.copy_.default: 1}


@torch.no_grad()
def difference(parameter: Tensor, by: Tensor, value: Callable[[], float]) -> float:
    """Return half of the difference between the values with ``by`` added to a parameter and subtracted from it."""
    start = parameter.detach().clone()
    ends = []
    for sign in (1, -1):
        parameter.copy_(start + sign * by)
        ends.append(value())
    parameter.copy_(start)
    return (ends[0] - ends[1]) / 2


@demand
def half(subject: Subject) -> None:
    """Run a batch, and its backward pass.

    Demand: outputs and gradients stay finite in bfloat16 and in float16
    Otherwise: --bf16 or --fp16 ends in NaN, or not at all
    """
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        model = subject.untouched().to(dtype).train()
        pairs = subject.pairs()
        output = model(pairs.source, pairs.lengths, pairs.previous)[0]
        if output.dtype not in (dtype, torch.float32):
            raise Broken(f"in {name} the model returns {str(output.dtype).removeprefix('torch.')}")
        finite(output, f"outputs in {name}")
        output.float().logsumexp(-1).sum().backward()
        for parameter_name, parameter in model.named_parameters():
            if parameter.grad is not None:
                finite(parameter.grad, f"gradients of {parameter_name} in {name}")


def trainer(subject: Subject) -> Trainer:
    """Return fairseq's trainer, with a new model."""
    with quiet():
        criterion = subject.task.build_criterion(subject.cfg.criterion)
        made = Trainer(subject.cfg, subject.task, subject.model(), criterion)
        made.lr_step_begin_epoch(1)
    return made


def train(training: Trainer, subject: Subject, updates: range) -> None:
    """Make some updates, with two batches in turn; if an update fails, fairseq writes ``crash.pt``."""
    with quiet(), tempfile.TemporaryDirectory() as training.cfg.checkpoint.save_dir:
        for update in updates:
            pairs = subject.pairs() if update % 2 else subject.pairs(targets=["POP", "ON NO", "TON"])
            training.train_step([pairs.sample])


def stored(training: Trainer, folder: str) -> str:
    """Save a checkpoint, and return its path."""
    path = os.path.join(folder, "checkpoint.pt")
    with quiet():
        training.consolidate_optimizer()
        training.save_checkpoint(path, {"train_iterator": {"epoch": 1}, "val_loss": None})
    return path


def same_model(subject: Subject, found: Any, expected: Any, how: str, rtol: float = RTOL, atol: float = ATOL) -> None:
    """Refuse a model whose parameters or log-probabilities differ from the expected model's."""
    wanted = trained_parameters(expected)
    for name, value in trained_parameters(found).items():
        close(value, wanted[name], f"values of {name}", rtol=0, atol=0)
    with torch.no_grad():
        first, second = (subject.forward(model.eval(), subject.pairs()).scores for model in (found, expected))
    close(first, second, f"log-probabilities {how}", rtol, atol)


@demand
def saved(subject: Subject) -> None:
    """Save and load a checkpoint by fairseq's functions, after two updates.

    Demand: a checkpoint loads, with the same bits, and gives the same
    Otherwise: the model that is translated with is not the one that was trained, or its checkpoint cannot be loaded
    """
    training = trainer(subject)
    train(training, subject, range(2))
    with tempfile.TemporaryDirectory() as folder, quiet():
        [loaded], _, _ = checkpoint_utils.load_model_ensemble_and_task([stored(training, folder)], task=subject.task)
    same_model(subject, loaded, training.model, "as loaded and as saved")


@demand
def resumed(subject: Subject) -> None:
    """Compare four updates with two and two, with the dropout of the options.

    Demand: a training that is interrupted and resumed ends in the same bits
    Otherwise: an interruption changes the result: something that training changes is not in the checkpoint
    """
    whole = trainer(subject)
    train(whole, subject, range(4))
    first, second = trainer(subject), trainer(subject)
    train(first, subject, range(2))
    with tempfile.TemporaryDirectory() as folder, quiet():
        second.load_checkpoint(stored(first, folder))
    train(second, subject, range(2, 4))
    same_model(subject, second.model, whole.model, "as resumed and as trained at once", rtol=0, atol=0)
