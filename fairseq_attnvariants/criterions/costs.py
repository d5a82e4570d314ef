"""Label-smoothed cross-entropy with the papers' costs, each with a weight; see :mod:`.losses`."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

import torch
from fairseq import metrics
from fairseq.criterions import label_smoothed_cross_entropy as stock
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from torch import Tensor

from ..architectures.options import Described, flag
from ..registry import ConfigurationError, at_least
from . import losses
from .student_forcing import own_previous

logger = logging.getLogger(__name__)

NAME = "label_smoothed_cross_entropy_with_costs"
NORM = ChoiceEnum(["squared", "plain"])
CONDITION = "a model with a condition, such as --arch conddec or --decoder-condition"
BRIDGE = "a model with a direct bridge, such as --arch bridge_direct or --bridge-direct hard"
ATTENTION = "a model that returns its attention in training, as all of this package do"
EQUAL = 10  # first batches with equal predictions, after which a model counts as one without dropout
ALIGNMENTS = "--load-alignments and, in the data folder, the training text's, from fairseq-preprocess --align-suffix"


@dataclass
class CostsConfig(Described, stock.LabelSmoothedCrossEntropyCriterionConfig):
    """The stock criterion's options, and a weight for each loss; None is 1 if the model has the component, else 0.

    Args:
        step_decay_weight: weight of the step-decay loss, 1/T Σ ||Δsd|| (default: 1 for CondDec)
        step_decay_norm: sum these norms as in the paper, or their squares, which favour equal steps
        left_over_weight: weight of the left-over loss, ||sd_T|| (default: 1 for CondDec)
        bridging_weight: weight of the embedding loss, Σ ||W x - e(y)||² (default: 1 for models with a direct bridge)
        bridging_norm: sum the squared norms or the plain ones
        bridging_unit_length: scale target embeddings to length 1 in the embedding loss: short ones do not lower it
        coverage_weight: weight of the coverage loss, Σ min(w, c) (See et al. 2017)
        alignment_weight: weight of guided alignment, -Σ log w of the words linked by --load-alignments
        rdrop_weight: weight of R-Drop, ½ (KL(P‖Q) + KL(Q‖P)) between two passes with different dropout
            (Liang et al. 2021)
        student_forcing: share of the previous target symbols that are the model's own predictions in training
            (Bengio et al. 2015); 1 is student forcing
    """

    step_decay_weight: Optional[float] = None
    step_decay_norm: NORM = "plain"  # type: ignore[valid-type]
    left_over_weight: Optional[float] = None
    bridging_weight: Optional[float] = None
    bridging_norm: NORM = "squared"  # type: ignore[valid-type]
    bridging_unit_length: bool = False
    coverage_weight: float = 0.0
    alignment_weight: float = 0.0
    rdrop_weight: float = 0.0
    student_forcing: float = 0.0


class Batch(NamedTuple):
    """The inputs of a cost for one batch."""

    term: Tensor
    """the model's output that the cost reads"""
    mask: Tensor
    """True at real target tokens, ``B x T``"""
    sample: dict[str, Any]
    model: Any
    cfg: CostsConfig


class Cost(NamedTuple):
    """A term of the loss."""

    weight: str
    """the option that is its weight"""
    term: str
    """the key of the model's output that it reads"""
    needs: str
    """a description of models with this output, for messages"""
    unit: str
    """the count that logs divide it by, ``nsentences`` or ``ntokens``"""
    total: Callable[[Batch], Tensor]
    """its sum over a batch"""
    settings: tuple[str, ...] = ()
    """its other options"""
    links: bool = False
    """whether it also reads the word alignments of the text"""


COSTS = {
    "decay_loss": Cost(
        "step_decay_weight", "conditions", CONDITION, "nsentences",
        lambda batch: losses.step_decay(batch.term, batch.mask, batch.cfg.step_decay_norm == "squared"),
        settings=("step_decay_norm",),
    ),
    "left_loss": Cost(
        "left_over_weight", "conditions", CONDITION, "nsentences",
        lambda batch: losses.left_over(batch.term, batch.mask),
    ),
    "bridging_loss": Cost(
        "bridging_weight", "bridged", BRIDGE, "ntokens",
        lambda batch: losses.bridging(
            batch.term, batch.model.decoder.embed_tokens(batch.sample["target"]), batch.mask,
            batch.cfg.bridging_norm == "squared", batch.cfg.bridging_unit_length,
        ),
        settings=("bridging_norm", "bridging_unit_length"),
    ),
    "coverage_loss": Cost(
        "coverage_weight", "attn", ATTENTION, "ntokens",
        lambda batch: losses.coverage(batch.term, batch.mask),
    ),
    "alignment_loss": Cost(
        "alignment_weight", "attn", ATTENTION, "ntokens",
        lambda batch: losses.alignment(batch.term, batch.sample.get("alignments"), batch.sample.get("align_weights")),
        links=True,
    ),
}  # fmt: skip


RDROP = "rdrop_loss"


@register_criterion(NAME, dataclass=CostsConfig)
class LabelSmoothedCrossEntropyWithCosts(stock.LabelSmoothedCrossEntropyCriterion):
    """In training, the sum of the tokens' loss and weighted costs.

    In validation the costs are measured and logged, and ``loss`` is the tokens' loss alone.  Costs also count the
    tokens that ``--ignore-prefix-size`` excludes from the tokens' loss.  A cost is measured if its weight is above 0,
    or if the model makes the cost's term only for costs.  Guided alignment is measured only in texts with links.

    With R-Drop (Liang et al. 2021) a batch in training has each sentence twice, and dropout makes the two predictions
    differ.  The loss is half of their equation 4: the mean of both losses, costs included, plus half the weight times
    the divergence of the predictions.  So the tokens' loss and the costs count as they do without R-Drop.
    """

    def __init__(self, cfg: CostsConfig, task):  # fairseq passes arguments by the names in the signature
        super().__init__(task, cfg.sentence_avg, cfg.label_smoothing, cfg.ignore_prefix_size, cfg.report_accuracy)
        self.cfg = cfg
        self.checked: set[bool] = set()  # True once a model was checked in training, False in validation
        self.linked: dict[bool, bool] = {}
        self.equal: int | None = 0  # first batches with equal predictions; None after one with different predictions
        for name in (*(cost.weight for cost in COSTS.values()), "rdrop_weight"):
            given = getattr(cfg, name)
            if given is not None:
                at_least(0).check(given, flag(name))
        if not 0 <= cfg.student_forcing <= 1:
            raise ConfigurationError(f"--student-forcing must be from 0 to 1, not {cfg.student_forcing}")

    def check_model(self, model) -> None:
        """Refuse options of costs whose inputs the model or the data lack.

        Raises:
            ConfigurationError: an input of a cost is missing, and its weight is given and above 0, or one of its
                settings is not the default.
        """
        has = {"attn", *getattr(model, "cost_terms", ())}
        for cost in COSTS.values():
            given = getattr(self.cfg, cost.weight)
            if cost.term not in has:
                for option in (cost.weight, *cost.settings):
                    value = getattr(self.cfg, option)
                    if value and value != getattr(CostsConfig, option):
                        raise _refusal(option, value, cost.needs)
            if given and cost.links and model.training:
                if isinstance(self.task, TranslationMultiSimpleEpochTask):
                    raise ConfigurationError(
                        f"{flag(cost.weight)} {given}: --task translation_multi_simple_epoch puts a token before "
                        "sources and leaves links where they were: leave it out, or train one pair"
                    )
                if not self._linked(training=True):
                    raise _refusal(cost.weight, given, ALIGNMENTS)
        self.checked.add(model.training)

    def forward(self, model, sample, reduce=True):
        """Return the loss, the sample size and the logging output, as fairseq's criterions do.

        Raises:
            ConfigurationError: see :meth:`check_model`; or the model returns no attention, or R-Drop compares equal
                predictions, or student forcing cannot search.
        """
        if model.training not in self.checked:
            self.check_model(model)
        sentences, tokens = len(sample["target"]), sample["ntokens"]
        if self.cfg.student_forcing and model.training:
            inputs, given = sample["net_input"], 1 + self.ignore_prefix_size
            previous = own_previous(model, inputs, self.cfg.student_forcing, given)
            sample = {**sample, "net_input": {**inputs, "prev_output_tokens": previous}}
        twice = bool(self.cfg.rdrop_weight and model.training)
        if twice:
            sample = each_twice(sample)
        with_terms = {"with_cost_terms": True} if hasattr(model, "cost_terms") else {}
        net_output = model(**sample["net_input"], **with_terms)
        lprobs, target = self.get_lprobs_and_target(model, net_output, sample)
        loss, nll_loss = stock.label_smoothed_nll_loss(lprobs, target, self.eps, self.padding_idx, reduce)
        logged = {"nll_loss": nll_loss.data}
        for name, weight, total in self._costs(model, sample, net_output[1]):
            loss = loss + weight * total if model.training else loss
            logged[name] = total.data
        if self.report_accuracy:
            logged["n_correct"], logged["total"] = self.compute_accuracy(model, net_output, sample)
        if twice:
            pairs = lprobs.unflatten(0, (sentences, 2, -1))  # B x 2 x T x V
            self._check_dropout(pairs)
            real = target.view(sentences, 2, -1)[:, 0].ne(self.padding_idx)
            divergence = losses.symmetric_divergence(pairs, real)
            loss = (loss + self.cfg.rdrop_weight * divergence) / 2
            logged = {**{name: value / 2 for name, value in logged.items()}, RDROP: divergence.data}
        logging_output = {
            "loss": loss.data,
            **logged,
            "ntokens": tokens,
            "nsentences": sentences,
            "sample_size": sentences if self.sentence_avg else tokens,
        }
        return loss, logging_output["sample_size"], logging_output

    def _costs(self, model: Any, sample: dict[str, Any], extra: Any) -> Iterator[tuple[str, float, Tensor]]:
        """Yield the name, the weight and the sum of each measured cost."""
        own, mask = getattr(model, "cost_terms", ()), sample["target"].ne(self.padding_idx)
        for name, cost in COSTS.items():
            given, makes = getattr(self.cfg, cost.weight), cost.term in own
            term: Any = output_named(extra, cost.term)
            weight = float(makes) if given is None else given
            if weight and term is None:
                raise _refusal(cost.weight, weight, cost.needs)
            if makes or weight and (not cost.links or self._linked(model.training)):
                yield name, weight, cost.total(Batch(term, mask, sample, model, self.cfg))

    def _check_dropout(self, pairs: Tensor) -> None:
        """Refuse R-Drop if both predictions were equal in all of the first batches; one may be equal by chance."""
        if self.equal == EQUAL:
            needs = "dropout, such as --dropout 0.3: this model predicts the same twice"
            raise ConfigurationError(f"{flag('rdrop_weight')} {self.cfg.rdrop_weight} needs {needs}; or leave it out")
        if self.equal is not None:
            self.equal = self.equal + 1 if torch.equal(pairs[:, 0], pairs[:, 1]) else None

    def _linked(self, training: bool) -> bool:
        """Whether the training text, or in validation any other text, has links; a batch without links is no error."""
        if training not in self.linked:
            subset = getattr(getattr(self.task, "cfg", None), "train_subset", "train")
            texts = [pairs for name, pairs in self.task.datasets.items() if (name == subset) == training]
            self.linked[training] = any(len(pairs) and "alignment" in pairs[0] for pairs in texts)
        return self.linked[training]

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """Log the tokens' loss as the stock criterion does, and the costs per sentence or per token."""
        super().reduce_metrics(logging_outputs)
        for name, unit in (*((name, cost.unit) for name, cost in COSTS.items()), (RDROP, "ntokens")):
            if any(name in log for log in logging_outputs):
                total, count = (sum(log.get(key, 0) for log in logging_outputs) for key in (name, unit))
                metrics.log_scalar(name, total / max(count, 1), count, round=3)


def output_named(extra: Any, name: str) -> Tensor | None:
    """Return one of a model's outputs besides the logits, by its name; None if the model lacks it.

    This package's models return each output in a list. Some of fairseq's models return bare tensors, and the ``lstm``
    returns its attention without a name.
    """
    if not isinstance(extra, dict):
        return extra if name == "attn" else None
    found = extra.get(name)
    return (found[0] if found else None) if isinstance(found, (list, tuple)) else found


def each_twice(sample: dict[str, Any]) -> dict[str, Any]:
    """Return a batch with each sentence in two adjacent rows, so that rows are still sorted by falling length.

    Links are pairs of a source position and of a target position in the flattened ``B x T``.
    """
    rows, length = sample["target"].shape

    def repeated(value):
        ours = torch.is_tensor(value) and value.dim() and len(value) == rows
        return value.repeat_interleave(2, 0) if ours else value

    twice = {
        **sample,
        "net_input": {name: repeated(value) for name, value in sample["net_input"].items()},
        "target": repeated(sample["target"]),
    }
    if sample.get("alignments") is not None:
        source, target = sample["alignments"].unbind(1)
        first = target + target // length * length  # the position in row 2r instead of row r
        links = torch.stack([source.repeat(2), torch.cat([first, first + length])], 1)
        twice.update(alignments=links, align_weights=sample["align_weights"].repeat(2))
    return twice


def _refusal(option: str, value: Any, needs: str) -> ConfigurationError:
    given = flag(option) if value is True else f"{flag(option)} {value}"
    return ConfigurationError(f"{given} needs {needs}; leave it out")


class DeprecatedName(LabelSmoothedCrossEntropyWithCosts):
    """A name that the criterion had until 0.3.0."""

    def __init__(self, cfg: CostsConfig, task):
        super().__init__(cfg, task)
        logger.warning(f"this name of the criterion is deprecated: use --criterion {NAME}, which does the same")


for costs in ("Fertility", "Bridging"):  # a checkpoint contains the name of the class
    kind = type(f"LabelSmoothedCrossEntropyWith{costs}", (DeprecatedName,), {})
    register_criterion(f"label_smoothed_cross_entropy_with_{costs.lower()}", dataclass=CostsConfig)(kind)
