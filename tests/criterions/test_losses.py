"""The costs and the criterions on numbers that can be checked by hand."""

import math
from types import SimpleNamespace

import pytest
import torch
from conftest import Task, batch, build, dictionary
from fairseq import metrics, utils
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
)
from fairseq.data.language_pair_dataset import collate
from fairseq.models.lstm import LSTMDecoder, LSTMEncoder, LSTMModel
from fairseq.models.transformer import TransformerConfig, TransformerModel
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from torch.distributions import Categorical, kl_divergence

from fairseq_attnvariants.criterions.costs import each_twice, output_named
from fairseq_attnvariants.criterions.losses import (
    alignment,
    bridging,
    coverage,
    left_over,
    step_decay,
    symmetric_divergence,
)


def test_fertility_costs_by_hand():
    """Feng et al. 2016 section 5 on two sentences of 2 and 1 steps; values at padding never count."""
    conditions = torch.tensor(
        [
            [[3.0, 4.0], [0.0, 4.0], [0.0, 1.0]],  # moves by 3 and by 3; 1 is left over
            [[6.0, 8.0], [0.0, 0.0], [50.0, 50.0]],  # moves by 10; nothing is left over
        ]
    )
    mask = torch.tensor([[True, True], [True, False]])
    torch.testing.assert_close(step_decay(conditions, mask), torch.tensor((3.0 + 3.0) / 2 + 10.0))
    torch.testing.assert_close(step_decay(conditions, mask, squared=True), torch.tensor((9.0 + 9.0) / 2 + 100.0))
    torch.testing.assert_close(left_over(conditions, mask), torch.tensor(1.0), rtol=1e-5, atol=1e-5)


def test_only_squared_steps_cost_least_when_they_are_equal():
    even, uneven = torch.tensor([[[4.0], [3.0], [2.0]], [[4.0], [4.0], [2.0]]]).split(1)
    mask = torch.ones(1, 2, dtype=torch.bool)
    torch.testing.assert_close(step_decay(even, mask), step_decay(uneven, mask))
    assert step_decay(even, mask, squared=True) < step_decay(uneven, mask, squared=True)


def test_coverage_by_hand():
    """See et al. 2017, eq. 12; the second sentence has one target word, so nothing was covered before."""
    weights = torch.tensor(
        [[[0.5, 0.5, 0.0], [0.9, 0.1, 0.0], [0.0, 0.2, 0.8]], [[1.0, 0, 0], [1.0, 0, 0], [1.0, 0, 0]]]
    )
    mask = torch.tensor([[True, True, True], [True, False, False]])
    torch.testing.assert_close(coverage(weights, mask), torch.tensor((0.5 + 0.1) + (0.0 + 0.2 + 0.0)))


def test_padding_before_the_words_covers_nothing():
    """Stock models have it there with ``--left-pad-target``."""
    weights, mask = torch.rand(1, 3, 4), torch.tensor([[True, True, False]])
    torch.testing.assert_close(coverage(weights.roll(1, 1), mask.roll(1, 1)), coverage(weights, mask))


def test_alignment_by_hand():
    """Links of step 0 and of step 3, the second of row 1, whose two links count half each; a weight of 0 costs much."""
    weights = torch.tensor([[[0.5, 0.5], [0.0, 1.0]], [[0.3, 0.7], [0.25, 0.75]]], requires_grad=True)
    links, shares = torch.tensor([[1, 0], [0, 3], [1, 3]]), torch.tensor([1.0, 0.5, 0.5])
    expected = -math.log(0.5) - 0.5 * math.log(0.25) - 0.5 * math.log(0.75)
    torch.testing.assert_close(alignment(weights, links, shares), torch.tensor(expected))
    cost = alignment(weights, torch.tensor([[0, 1]]), torch.ones(1))
    cost.backward()
    assert 20 < cost < 40 and weights.grad.isfinite().all() and alignment(weights, None, None) == 0


@pytest.mark.parametrize("cost, shapes", [
    (step_decay, [(2, 4, 3)]),
    (left_over, [(2, 4, 3)]),
    (bridging, [(2, 3, 4), (2, 3, 4)]),
    (coverage, [(2, 3, 5)]),
])  # fmt: skip
def test_gradients(cost, shapes):
    torch.manual_seed(1)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    given = [torch.rand(shape, dtype=torch.double, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(lambda *values: cost(*values, mask), given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gradients_are_finite_when_the_condition_does_not_move(dtype):
    conditions = torch.zeros(2, 4, 3, requires_grad=True, dtype=dtype)
    mask = torch.ones(2, 3, dtype=torch.bool)
    (step_decay(conditions, mask) + left_over(conditions, mask)).backward()
    assert conditions.grad.isfinite().all()


def test_a_row_without_real_tokens_costs_nothing():
    conditions, mask = torch.randn(1, 3, 2), torch.zeros(1, 2, dtype=torch.bool)
    assert step_decay(conditions, mask) == 0 and left_over(conditions, mask) == 0


@pytest.mark.parametrize("squared,expected", [(True, 25.0 + 4.0), (False, 5.0 + 2.0)])
def test_bridging_by_hand(squared, expected):
    bridged = torch.tensor([[[3.0, 4.0], [1.0, 3.0], [9.0, 9.0]]])
    target = torch.tensor([[[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]])
    distance = bridging(bridged, target, torch.tensor([[True, True, False]]), squared)
    torch.testing.assert_close(distance, torch.tensor(expected))


def test_symmetric_divergence():
    """The divergence is torch's, in both directions, without padding; gradients equal finite differences."""
    pairs = torch.randn(3, 2, 4, 7, dtype=torch.double, requires_grad=True).log_softmax(-1)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)
    one, other = (Categorical(logits=part) for part in pairs.unbind(1))
    expected = ((kl_divergence(one, other) + kl_divergence(other, one))[mask]).sum() / 2
    torch.testing.assert_close(symmetric_divergence(pairs, mask), expected)
    assert symmetric_divergence(pairs[:, :1].expand_as(pairs), mask) == 0
    logits = torch.randn(3, 2, 4, 5, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda pairs: symmetric_divergence(pairs.log_softmax(-1), mask), logits)


class Model(torch.nn.Module):
    """A model with uniform predictions over ``V`` words, and with given terms of costs."""

    def __init__(self, size, **terms):
        super().__init__()
        self.size, self.cost_terms, self.terms = size, list(terms), {name: [value] for name, value in terms.items()}
        self.decoder = torch.nn.Module()
        self.decoder.embed_tokens = torch.nn.Embedding.from_pretrained(torch.zeros(size, 2))

    def forward(self, prev_output_tokens, with_cost_terms):
        return torch.zeros(*prev_output_tokens.shape, self.size), self.terms

    def get_normalized_probs(self, net_output, log_probs):
        return torch.log_softmax(net_output[0], -1)

    def get_targets(self, sample, net_output):
        return sample["target"]


def criterion(kind, **options):
    """Return the criterion whose name ends in ``kind``; the first pairs of ``datasets`` may have links."""
    name = "label_smoothed_cross_entropy_with_" + kind
    cfg = CRITERION_DATACLASS_REGISTRY[name]()
    for option, value in {"label_smoothing": 0.1, "sentence_avg": False, "datasets": {}, **options}.items():
        setattr(cfg, option, value)
    task = Task()
    task.datasets = cfg.datasets
    return CRITERION_REGISTRY[name].build_criterion(cfg, task)


TARGET = torch.tensor([[4, 2], [2, 1]])  # of 2 and 1 tokens, padded to 2
SAMPLE = {"net_input": {"prev_output_tokens": TARGET}, "target": TARGET, "ntokens": 3}


def criterion_value(kind, training=True, terms=None, **options):
    """Return the costs, the sample size and the log of a criterion."""
    model = Model(len(Task().target_dictionary), **terms or {}).train(training)
    loss, size, log = criterion(kind, **options)(model, SAMPLE)
    tokens = 3 * math.log(model.size)  # for any smoothing, if all words are equally likely
    assert log["nll_loss"] == pytest.approx(tokens) and log["ntokens"] == 3 and log["nsentences"] == 2
    return loss.item() - tokens, size, log


CONDITIONS = torch.tensor([[[3.0, 4.0], [0.0, 4.0], [0.0, 1.0]], [[6.0, 8.0], [0.0, 0.0], [50.0, 50.0]]])
BRIDGED = torch.tensor([[[3.0, 4.0], [0.0, 2.0]], [[1.0, 0.0], [70.0, 70.0]]])
LINKED = dict.fromkeys(["train", "valid"], [{"alignment": 0}])
ATTENTION = torch.tensor([[[0.5, 0.5], [0.25, 0.75]], [[1.0, 0.0], [1.0, 0.0]]])


@pytest.mark.parametrize("kind", ["fertility", "costs"])
@pytest.mark.parametrize("norm,decay", [("plain", 13.0), ("squared", 109.0)])
def test_fertility_criterion_by_hand(kind, norm, decay):
    given = dict(terms=dict(conditions=CONDITIONS), step_decay_weight=2.0, left_over_weight=0.5, step_decay_norm=norm)
    costs, size, log = criterion_value(kind, **given)
    assert costs == pytest.approx(2.0 * decay + 0.5 * 1.0, abs=1e-4) and size == 3
    assert (log["decay_loss"].item(), log["left_loss"].item()) == pytest.approx((decay, 1.0), abs=1e-4)
    costs, size, log = criterion_value(kind, training=False, sentence_avg=True, **given)
    assert costs == pytest.approx(0, abs=1e-5) and size == 2 and log["decay_loss"].item() == pytest.approx(decay)


@pytest.mark.parametrize("kind", ["bridging", "costs"])
@pytest.mark.parametrize("norm,distance", [("squared", 25.0 + 4.0 + 1.0), ("plain", 5.0 + 2.0 + 1.0)])
def test_bridging_criterion_by_hand(kind, norm, distance):
    costs, _, log = criterion_value(kind, terms=dict(bridged=BRIDGED), bridging_weight=3.0, bridging_norm=norm)
    assert costs == pytest.approx(3.0 * distance, rel=1e-5)
    assert log["bridging_loss"].item() == pytest.approx(distance)


@pytest.mark.parametrize("norm,distance", [("squared", 9.0 + 0.0 + 0.36), ("plain", 3.0 + 0.0 + 0.6)])
@pytest.mark.parametrize("length", [5.0, 0.05])
def test_bridging_criterion_with_targets_of_unit_length(norm, distance, length):
    """The distance does not depend on the length of the target embeddings, which point to (0.6, 0.8)."""
    bridged = torch.tensor([[[2.4, 3.2], [0.6, 0.8]], [[0.6, 0.2], [70.0, 70.0]]])
    model = Model(9, bridged=bridged)
    model.decoder.embed_tokens.weight.copy_(torch.tensor([0.6, 0.8]) * length)
    _, _, log = criterion("bridging", bridging_norm=norm, bridging_unit_length=True)(model, SAMPLE)
    assert log["bridging_loss"].item() == pytest.approx(distance, rel=1e-5)


def test_bridging_moves_target_embeddings():
    model = Model(9, bridged=BRIDGED)
    weight = model.decoder.embed_tokens.weight.requires_grad_()
    [gradient] = torch.autograd.grad(criterion("costs")(model, SAMPLE)[0], weight)
    torch.testing.assert_close(gradient[4], -2 * BRIDGED[0, 0])


def test_costs_are_logged_per_sentence_or_token():
    terms = dict(conditions=CONDITIONS, bridged=BRIDGED, attn=ATTENTION)
    log = criterion_value("costs", terms=terms, coverage_weight=1.0)[2]
    with metrics.aggregate() as logged:
        criterion("costs").reduce_metrics([{**log, "alignment_loss": torch.tensor(6.0)}])
    found = logged.get_smoothed_values()
    expected = dict(decay_loss=13 / 2, left_loss=1 / 2, bridging_loss=30 / 3, coverage_loss=0.75 / 3)
    expected["alignment_loss"] = 6 / 3
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-3)


def test_all_costs_add_up():
    """A cost with a weight of 0 is measured, too."""
    terms = dict(conditions=CONDITIONS, bridged=BRIDGED, attn=ATTENTION)
    weights = dict(step_decay_weight=2.0, left_over_weight=0, bridging_weight=3.0, coverage_weight=4.0)
    costs, _, log = criterion_value("costs", terms=terms, **weights)
    assert costs == pytest.approx(2.0 * 13.0 + 3.0 * 30.0 + 4.0 * 0.75, rel=1e-5)
    assert log["coverage_loss"].item() == pytest.approx(0.75) and log["left_loss"].item() == pytest.approx(
        1.0, abs=1e-4
    )


@pytest.mark.parametrize("kind", ["costs", "fertility", "bridging"])
@pytest.mark.parametrize("terms,costs", [
    (dict(conditions=CONDITIONS), 14.0),
    (dict(bridged=BRIDGED), 30.0),
    (dict(conditions=CONDITIONS, bridged=BRIDGED), 44.0),
    (dict(attn=ATTENTION), 0.0),
])  # fmt: skip
def test_without_a_weight_a_model_has_the_costs_of_its_paper(kind, terms, costs, caplog):
    """Models of a sweep can share a criterion: a cost for which a model has no terms is 0, and is not logged.

    Two deprecated names do the same, with a warning.
    """
    found, _, log = criterion_value(kind, terms=terms)
    assert found == pytest.approx(costs, abs=1e-4)
    assert ("bridging_loss" in log) == ("bridged" in terms)
    warned = "deprecated: use --criterion label_smoothed_cross_entropy_with_costs" in caplog.text
    assert warned == (kind != "costs")


@pytest.mark.parametrize("kind,terms,weights,message", [
    ("fertility", {}, dict(step_decay_weight=1.0), "--step-decay-weight 1.0 needs a model with a condition"),
    ("costs", {}, dict(left_over_weight=1), "--left-over-weight 1 needs a model with a condition"),
    ("bridging", dict(conditions=CONDITIONS), dict(bridging_weight=1), "--bridging-weight 1 needs .* bridge_direct"),
    ("costs", {}, dict(bridging_unit_length=True), "--bridging-unit-length needs a model with a direct bridge"),
    ("costs", {}, dict(bridging_norm="plain"), "--bridging-norm plain needs a model with a direct bridge"),
    ("costs", dict(bridged=BRIDGED), dict(step_decay_norm="squared"), "--step-decay-norm squared needs a model with a"),
    ("costs", {}, dict(coverage_weight=2), "--coverage-weight 2 needs a model that returns its attention"),
    ("costs", {}, dict(alignment_weight=1, datasets=LINKED), "--alignment-weight 1 needs a model that returns"),
    ("costs", dict(attn=ATTENTION), dict(alignment_weight=1), "--alignment-weight 1 needs --load-alignments"),
    ("costs", dict(attn=ATTENTION), dict(alignment_weight=1, datasets={"train": [{}], "valid": [{"alignment": 0}]}),
     "--alignment-weight 1 needs --load-alignments"),
    ("costs", {}, dict(coverage_weight=-1), "--coverage-weight must be at least 0, not -1"),
    ("costs", {}, dict(coverage_weight=math.nan), "--coverage-weight must be at least 0, not nan"),
    ("costs", {}, dict(coverage_weight=math.inf), "--coverage-weight must be at least 0, not inf"),
])  # fmt: skip
def test_a_weight_without_its_part_is_refused_by_name(kind, terms, weights, message):
    with pytest.raises(ValueError, match=message):
        criterion_value(kind, terms=terms, **weights)


def aligned(rows=slice(None), times=1):
    """Return a batch with links as fairseq collates it, with source padding on the left."""
    source, lengths, previous = batch(lengths=(5, 3, 4), target_lengths=(4, 6, 3))
    links = [[[0, 0], [1, 0], [2, 3]], [[2, 5]], [[1, 2], [3, 2]]]
    pairs = [
        {"id": row, "source": source[row, -n:], "alignment": torch.tensor(links[row]),
         "target": torch.cat([previous[row, 1:][previous[row, 1:].ne(1)], torch.tensor([2])])}
        for row, n in enumerate(lengths.tolist())
    ]  # fmt: skip
    return collate([pair for pair in pairs[rows] for _ in range(times)], 1, 2, left_pad_source=True)


@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_sums_do_not_depend_on_how_sentences_are_divided(training, sentence_avg):
    """Gradients and logs of a batch equal those of its parts, which --update-freq and several processes add up.

    They are also the same if batches are logged one after the other, as in an epoch.
    """
    weights = dict.fromkeys(["step_decay_weight", "left_over_weight", "bridging_weight", "coverage_weight"], 0.5)
    options = dict(alignment_weight=0.5, datasets=LINKED, sentence_avg=sentence_avg)
    own = criterion("costs", **weights, **options)
    model = build("conddec", scale=0.5, bridge_source=True, bridge_direct="hard").double().train(training)
    found = []
    for parts in ([slice(0, 3)], [slice(0, 1), slice(1, 3)]):
        losses, sizes, logs = zip(*(own(model, aligned(rows)) for rows in parts))
        gradients = torch.autograd.grad(sum(losses), list(model.parameters()), allow_unused=True)
        for updates in ([logs], [[log] for log in logs]):
            with metrics.aggregate() as logged:
                for update in updates:
                    own.reduce_metrics(update)
            gradients = [g for g in gradients if g is not None]
            found.append((sum(losses), sum(sizes), gradients, dict(logged.get_smoothed_values())))
    for other in found[1:]:
        torch.testing.assert_close(found[0][:3], other[:3])
        assert found[0][3] == pytest.approx(other[3], abs=1e-3)
    assert {"decay_loss", "left_loss", "bridging_loss", "coverage_loss", "alignment_loss", "nll_loss"} <= {*found[0][3]}
    assert found[0][1] == (3 if sentence_avg else 16)


def test_the_stock_criterion_guides_alignment_to_the_same():
    """Gradients equal those of label_smoothed_cross_entropy_with_alignment with the same weight."""
    model, sample = build("rnnsearch", scale=0.5).double(), aligned()
    stock = LabelSmoothedCrossEntropyCriterionWithAlignment(Task(), False, 0.1, 0.7)
    own = criterion("costs", alignment_weight=0.7, datasets=LINKED)
    expected, found = (torch.autograd.grad(kind(model, sample)[0], list(model.parameters())) for kind in (stock, own))
    torch.testing.assert_close(found, expected)
    plain = torch.autograd.grad(criterion("costs")(model, sample)[0], list(model.parameters()))
    assert not torch.allclose(plain[0], found[0])


def test_validation_text_without_links_logs_no_alignment_loss():
    model = build("rnnsearch", scale=0.5).double()
    for links, logged in (([{"alignment": 0}], True), ([{}], False)):
        own = criterion("costs", alignment_weight=0.7, datasets={**LINKED, "valid": links})
        assert "alignment_loss" in own(model.train(), aligned())[2]
        assert ("alignment_loss" in own(model.eval(), aligned())[2]) == logged


def test_a_model_of_fairseqs_own_may_be_given_what_it_has():
    class Stock(Model):
        def __init__(self, attention):
            super().__init__(21)
            del self.cost_terms
            self.attention = attention

        def forward(self, prev_output_tokens):
            return torch.zeros(*prev_output_tokens.shape, self.size), {"attn": [self.attention]}

    assert criterion("costs", coverage_weight=1.0)(Stock(ATTENTION), SAMPLE)[2]["coverage_loss"].item() == 0.75
    with pytest.raises(ValueError, match="--coverage-weight 1.0 needs"):
        criterion("costs", coverage_weight=1.0)(Stock(None), SAMPLE)


def stock(name, dropout):
    """Return fairseq's ``lstm`` or ``transformer`` with small sizes, and predictions that are not all equal."""
    torch.manual_seed(0)
    words = dictionary()
    if name == "lstm":
        rates = dict(dropout_in=dropout, dropout_out=dropout)
        encoder = LSTMEncoder(words, 6, 8, bidirectional=True, **rates)
        decoder = LSTMDecoder(words, 6, 8, 6, encoder_output_units=16, **rates)
        return larger(LSTMModel(encoder, decoder))
    cfg = TransformerConfig()
    cfg.dropout, cfg.share_all_embeddings, cfg.max_source_positions, cfg.max_target_positions = dropout, True, 64, 64
    for side in (cfg.encoder, cfg.decoder):
        side.embed_dim, side.ffn_embed_dim, side.layers, side.attention_heads = 8, 16, 2, 2
    cfg.decoder.input_dim = cfg.decoder.output_dim = 8
    return larger(TransformerModel.build_model(cfg, Task(words, words)))


def larger(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5)
    return model.double()


SYSTEMS = {
    "lstm": lambda dropout: stock("lstm", dropout),
    "transformer": lambda dropout: stock("transformer", dropout),
    "conddec": lambda dropout: build("conddec", scale=0.5, dropout=dropout).double(),
}


def measured(kind, model, sample):
    """Return the loss, the gradients and the log, from the same random numbers every time."""
    torch.manual_seed(3)
    loss, size, log = kind(model, sample)
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return loss, [gradient for gradient in gradients if gradient is not None], log


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("sentence_avg", [False, True])
def test_rdrop(name, sentence_avg, monkeypatch):
    """The loss is half of equation 4 of Liang et al. 2021, word by word, from two predictions for each sentence."""
    monkeypatch.setattr(utils, "log_softmax", lambda logits, dim, **_: logits.log_softmax(dim))  # fairseq's is float32
    model, sample = SYSTEMS[name](0.4).train(), aligned()
    own = criterion("costs", rdrop_weight=3.0, sentence_avg=sentence_avg, step_decay_weight=None, left_over_weight=None)
    loss, gradients, log = measured(own, model, sample)

    torch.manual_seed(3)
    terms = {"with_cost_terms": True} if name == "conddec" else {}
    output = model(**{k: v.repeat_interleave(2, 0) for k, v in sample["net_input"].items()}, **terms)
    mask = sample["target"].ne(1)
    predictions = [Categorical(logits=output[0][k::2][mask]) for k in range(2)]
    words = predictions[0].logits.size(-1)
    wanted = torch.full((int(mask.sum()), words), 0.1 / (words - 1), dtype=torch.double)
    wanted[range(len(wanted)), sample["target"][mask]] = 0.9  # label smoothing
    expected = sum(-(wanted * each.logits).sum() for each in predictions) / 2
    if terms:
        conditions = [output[1]["conditions"][0][k::2] for k in range(2)]
        expected = expected + sum(step_decay(each, mask) + left_over(each, mask) for each in conditions) / 2
    divergence = (kl_divergence(*predictions) + kl_divergence(*reversed(predictions))).sum() / 2
    expected = expected + 3.0 / 2 * divergence
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(log["rdrop_loss"], divergence.data)
    words_loss = -sum(each.log_prob(sample["target"][mask]).sum() for each in predictions) / 2
    torch.testing.assert_close([log["loss"], log["nll_loss"]], [loss.data, words_loss.data])
    assert divergence > 0.01 and log["ntokens"] == 16 and log["sample_size"] == (3 if sentence_avg else 16)
    gradients_expected = torch.autograd.grad(expected, list(model.parameters()), allow_unused=True)
    torch.testing.assert_close(gradients, [gradient for gradient in gradients_expected if gradient is not None])
    with metrics.aggregate() as logged:
        own.reduce_metrics([log, log])
    assert logged.get_smoothed_values()["rdrop_loss"] == pytest.approx(divergence.item() / 16, abs=1e-3)


def test_each_twice_is_what_fairseq_makes_of_twice_the_sentences():
    def links(sample):
        pairs = sample["alignments"].tolist()
        return sorted((*pair, weight) for pair, weight in zip(pairs, sample["align_weights"].tolist()))

    found, expected = each_twice(aligned()), aligned(times=2)
    assert links(found) == links(expected) and found["target"].equal(expected["target"])
    for name, value in expected["net_input"].items():
        assert found["net_input"][name].equal(value), name


@pytest.mark.parametrize("name", ["lstm", "transformer"])
@pytest.mark.parametrize("training", [True, False])
def test_without_a_weight_it_is_the_stock_criterion(name, training):
    model, sample = SYSTEMS[name](0.4).train(training), aligned()
    plain = LabelSmoothedCrossEntropyCriterion(Task(), False, 0.1, report_accuracy=True)
    expected, found = (measured(kind, model, sample) for kind in (plain, criterion("costs", report_accuracy=True)))
    torch.testing.assert_close(found[:2], expected[:2], rtol=0, atol=0)
    assert found[2] == expected[2] and "rdrop_loss" not in found[2]


def test_attention_by_itself_in_place_of_a_list(monkeypatch):
    """fairseq's lightconv returns such attention in validation."""
    model, sample = SYSTEMS["transformer"](0.0).eval(), aligned()
    costs = criterion("costs", coverage_weight=1.0)
    expected = costs(model, sample)
    forward = model.forward

    def bare(**inputs):
        output, extra = forward(**inputs)
        return output, {"attn": extra["attn"][0]}

    monkeypatch.setattr(model, "forward", bare)
    found = costs(model, sample)
    assert found[0].equal(expected[0]) and found[2]["coverage_loss"] == expected[2]["coverage_loss"] > 0


def test_links_of_many_pairs_are_refused():
    costs = criterion("costs", alignment_weight=0.5)
    costs.task = TranslationMultiSimpleEpochTask.__new__(TranslationMultiSimpleEpochTask)
    with pytest.raises(ValueError, match="--alignment-weight 0.5: --task translation_multi_simple_epoch puts a token"):
        costs(SYSTEMS["conddec"](0.0).train(), aligned())


@pytest.mark.parametrize("name", SYSTEMS)
def test_validation_has_each_sentence_once(name):
    model, rows = SYSTEMS[name](0.4), []
    model.register_forward_hook(lambda _, inputs, output: rows.append(len(output[0])))
    log = criterion("costs", rdrop_weight=3.0)(model.eval(), aligned())[2]
    assert rows == [3] and "rdrop_loss" not in log
    criterion("costs", rdrop_weight=3.0)(model.train(), aligned())
    assert rows == [3, 6]


@pytest.mark.parametrize("name", SYSTEMS)
def test_rdrop_without_dropout_is_refused(name):
    own, model = criterion("costs", rdrop_weight=3.0), SYSTEMS[name](0.0).train()
    for _ in range(10):  # word dropout may keep all words of a small batch
        own(model, aligned())
    seen = criterion("costs", rdrop_weight=3.0)
    for rate in (0.4, *[0.0] * 11):  # one batch that differs shows that there is dropout
        seen(SYSTEMS[name](rate).train(), aligned())
    with pytest.raises(ValueError, match="--rdrop-weight 3.0 needs dropout, such as --dropout 0.3"):
        own(model, aligned())
    with pytest.raises(ValueError, match="--rdrop-weight must be at least 0, not -1"):
        criterion("costs", rdrop_weight=-1)


def test_outputs_are_in_lists_or_bare_or_alone():
    """This package's models, fairseq's lightconv and its lstm return attention in these three ways."""
    found = torch.ones(1, 2, 3)
    for extra in ({"attn": [found]}, {"attn": found}, found):
        assert output_named(extra, "attn") is found and output_named(extra, "word_attn") is None
    for extra in ({"attn": []}, {"attn": None}, {}, None):
        assert output_named(extra, "attn") is None


def test_padding_in_half_precision_costs_nothing_at_unit_length():
    """The embedding of padding is zero, and has no direction."""
    bridged, target = torch.tensor([[[0.6, 0.8], [9.0, 9.0]]]).half(), torch.tensor([[[3.0, 4.0], [0.0, 0.0]]]).half()
    cost = bridging(bridged, target, torch.tensor([[True, False]]), unit_length=True)
    torch.testing.assert_close(cost, torch.tensor(0.0), rtol=0, atol=1e-5)


def test_a_validation_before_the_training_checks_nothing_of_the_training():
    own, model = criterion("costs", alignment_weight=0.7, datasets={"train": [{}]}), build("rnnsearch").double()
    own(model.eval(), aligned())
    with pytest.raises(ValueError, match="--alignment-weight 0.7 needs --load-alignments"):
        own(model.train(), aligned())


def test_links_are_those_of_the_text_that_is_trained_on():
    """The text to train on may have another name than ``train``."""
    own = criterion("costs", alignment_weight=0.7, datasets={"mine": [{"alignment": 0}], "valid": [{}]})
    own.task.cfg = SimpleNamespace(train_subset="mine")
    model = build("rnnsearch", scale=0.5).double()
    assert "alignment_loss" in own(model.train(), aligned())[2]
    assert "alignment_loss" not in own(model.eval(), aligned())[2]


@pytest.mark.parametrize("valid", [[], [{}]])
def test_validation_alone_needs_no_links(valid):
    """fairseq-validate may read a guided checkpoint and texts without links, even an empty text."""
    own = criterion("costs", alignment_weight=0.7, datasets={**LINKED, "valid": valid})
    assert "alignment_loss" not in own(build("rnnsearch", scale=0.5).double().eval(), aligned())[2]


def test_the_accuracy_of_rdrop_is_of_each_token_once():
    model, sample = SYSTEMS["lstm"](0.4).train(), aligned()
    _, _, log = measured(criterion("costs", rdrop_weight=3.0, report_accuracy=True), model, sample)
    torch.manual_seed(3)
    output, _ = model(**{name: value.repeat_interleave(2, 0) for name, value in sample["net_input"].items()})
    target = sample["target"].repeat_interleave(2, 0)
    correct = (output.argmax(2).eq(target) & target.ne(1)).sum()
    assert log["total"] == log["ntokens"] == 16 and log["n_correct"] == correct / 2 > 0
