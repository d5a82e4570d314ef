"""The static search finds what fairseq's search finds, on a CPU, too, and no step of it waits for a GPU.

Tests of the graphs need a GPU: ``tests/test_gpu.py``.
"""

import argparse
import gc
import logging
import types
from itertools import product
from unittest import mock

import kernels
import pytest
import torch
from conftest import COMPOSED, Task, batch, build, dictionary
from corpus import USER_DIR
from fairseq import options as flags
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.lstm import LSTMModel
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.token_generation_constraints import pack_constraints
from fairseq_cli import generate
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.models import AttentionRNNModel, static_search
from fairseq_attnvariants.models.static_search import Beams, StaticSearch, StaticSearchWithAlignment
from fairseq_attnvariants.nn.histories import HISTORIES, CoverageHistory
from fairseq_attnvariants.tasks.shortlist import Candidate, Shortlist, ShortlistGenerator

TARGET = Task().target_dictionary
ALL = [*VARIANTS, *COMPOSED]
OPTIONS = {
    "none": {},
    "lenpen": dict(len_penalty=0.3),
    "unnormalized": dict(normalize_scores=False),
    "unkpen": dict(unk_penalty=5.0),
    "for unk": dict(unk_penalty=-5.0),
    "min-len": dict(min_len=7),
    "min-len is max-len": dict(min_len=12),
    "max-len": dict(max_len_a=0.5, max_len_b=3),
    "max-len 0": dict(max_len_b=0, min_len=0),
    "max-len of the model": dict(max_len=4),
    "temperature": dict(temperature=1.7),
    "suppressed": dict(tokens_to_suppress=("v1", "v2")),
    "eos": dict(eos=4),
}
BEAMS = 1, 3, 5


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(StaticSearch, "device_type", "cpu")


def made_of(*lengths, **options):
    tokens, lengths, _ = batch(lengths, (2,) * len(lengths), **options)
    return {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}


SAMPLE = made_of(5, 3, 1, 9)


def same(found, expected, exactly=False):
    """Assert that sentences have the same hypotheses, in the same order."""
    near = dict(rtol=0, atol=0) if exactly else dict(rtol=1e-4, atol=1e-5)
    assert len(found) == len(expected)
    for own, others in zip(found, expected):
        assert [one["tokens"].tolist() for one in own] == [other["tokens"].tolist() for other in others]
        for one, other in zip(own, others):
            assert one.keys() == other.keys()
            for key in ("score", "positional_scores", "attention"):
                torch.testing.assert_close(one[key], other[key], **near)
            assert [*map(list, one["alignment"])] == [*map(list, other["alignment"])]


def both(models, sample=SAMPLE, target=TARGET, exactly=False, given={}, **options):  # noqa: B006
    """Return what the static search finds; assert that fairseq's search finds the same."""
    options = dict(max_len_b=12) | options
    expected = SequenceGenerator(models, target, **options).generate(models, sample, **given)
    with mock.patch.object(SequenceGenerator, "_generate", side_effect=AssertionError("fairseq's own search")):
        found = StaticSearch(models, target, **options).generate(models, sample, **given)
    same(found, expected, exactly)
    return found


def ready(name, **options):
    return build(name, scale=0.5, **options).eval()


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_every_architecture(name):
    model = ready(name)
    for beam in BEAMS:
        both([model], beam_size=beam)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options(options):
    for name, beam in (("rnnsearch", 5), ("coverage", 1), ("coverage", 3)):
        both([ready(name)], beam_size=beam, **options)


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    dict(coverage_penalty=0.6), dict(decoder_layers=2), dict(copying=True), dict(attention_window="monotone"),
    dict(attention_normalizer="sparsemax"), dict(attention_score="multihead", attention_dim=6, attention_heads=2),
    dict(decoder_transition="stacked"), dict(share_decoder_input_output_embed=True), dict(context_gate="both"),
    dict(search_dtype="bfloat16"), dict(layer_norm="all"), dict(attention_history="context+coverage_gru"),
], ids=lambda options: " ".join(options))  # fmt: skip
def test_options_of_models(options):
    for name, beam in product(("rnnsearch", "dl4mt"), BEAMS):
        both([ready(name, **options)], beam_size=beam)


@pytest.mark.slow
@pytest.mark.parametrize("strength", [0.0, 0.6])
def test_ensembles(strength):
    models = [ready(name, seed=k, coverage_penalty=strength) for k, name in enumerate(("dl4mt", "rnnsearch", "recatt"))]
    for beam in BEAMS:
        both(models, beam_size=beam)
        both(models[::-1][:2], beam_size=beam, temperature=0.8)


@pytest.mark.parametrize("bias", [30.0, 3.0, -3.0, -30.0])
@pytest.mark.parametrize("beam", BEAMS)
def test_sentences_that_end_at_once_or_never(bias, beam):
    model = ready("dl4mt")
    model.decoder.output_projection.bias.data[TARGET.eos()] = bias
    lengths = {len(own[0]["tokens"]) for own in both([model], beam_size=beam, min_len=0)}
    assert lengths == {1} or bias < 30
    assert lengths == {13} or bias > -30


def test_padding_on_the_right_and_a_single_sentence():
    model = ready("dl4mt")
    for sample in (made_of(4, 7, 2, left=False), made_of(6), made_of(1)):
        both([model], sample, beam_size=4)
    both([model], beam_size=4, given=dict(bos_token=TARGET.index("v3")))


@pytest.mark.parametrize("words", [0, 1, 2, 8])
@pytest.mark.parametrize("beam", [1, 2, 5, 200])
def test_beams_as_wide_as_the_vocabulary(words, beam):
    """fairseq limits the beam to the vocabulary without one symbol; the first step has few candidates."""
    task = Task(target=dictionary(words, "v"))
    model = build("rnnsearch", task, scale=0.5).eval()
    found = both([model], target=task.target_dictionary, beam_size=beam, max_len_b=5)
    assert len(found[0]) == min(beam, words + 3)


def test_probabilities_that_are_none():
    """Words with a NaN are left out; if all have one, there is an error, as in fairseq, and no translation."""
    model = ready("rnnsearch")
    model.decoder.output_projection.bias.data[[5, 9]] = torch.nan
    logits = model.get_normalized_probs  # softmax would make all of them NaN
    with mock.patch.object(model, "get_normalized_probs", lambda output, *more, **named: logits(
        (output[0].nan_to_num(-50), output[1]), *more, **named).masked_fill(output[0].isnan(), torch.nan)
    ):  # fmt: skip
        both([model], beam_size=3)
    for kind, said in ((SequenceGenerator, None), (StaticSearch, "probabilities are not numbers$")):
        with pytest.raises(AssertionError, match=said):
            kind([model], TARGET, beam_size=3, max_len_b=5).generate([model], SAMPLE)


def test_what_another_search_kept_is_not_used_for_other_symbols_or_parameters():
    model = ready("dl4mt")
    both([model], beam_size=3)
    both([model], beam_size=3, eos=4)
    layer = model.decoder.output_projection
    layer.weight.data = layer.weight.data.clone()
    both([model], beam_size=3)
    assert len(static_search._beams[model.decoder]) == 3


@pytest.mark.slow
def test_batches_in_turn_in_the_same_tensors():
    """Batches have other words and shapes, come after a change of parameters in place, and in another number type."""
    model = ready("adaptive_both", coverage_penalty=0.3)
    samples = made_of(5, 3, 1, 9), made_of(9, 2, 4, 4, seed=2), made_of(8, 2), made_of(2, 8, seed=3)
    for _ in range(2):
        for sample in samples:
            both([model], sample, beam_size=3)
    assert len(static_search._beams[model.decoder]) == 2
    for options in (dict(unk_penalty=3.0, min_len=3), dict(max_len_b=20, len_penalty=2)):
        both([model], beam_size=3, **options)
    assert len(static_search._beams[model.decoder]) == 2  # the steps do not contain these options
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-1)
    both([model], samples[1], beam_size=3)
    assert len(static_search._beams[model.decoder]) == 2
    both([model.double()], samples[1], beam_size=3)
    assert len(static_search._beams[model.decoder]) == 3


def test_places_that_one_search_leaves_empty_are_used_in_the_next():
    """The first search ends while a place of the beam is empty, and EOS takes this place in the second one."""
    task = Task(target=dictionary(0))
    model, eos = build("rnnsearch", task, scale=0.1).eval(), task.target_dictionary.eos()
    model.decoder.output_projection.bias.data[eos] = -3.0
    for longest in (0, 5):
        found = both([model], target=task.target_dictionary, beam_size=3, max_len_b=longest, min_len=0)
    assert all([eos] in [one["tokens"].tolist() for one in sentence] for sentence in found)
    assert len(static_search._beams[model.decoder]) == 1


def test_symbols_that_one_search_suppresses_come_in_the_next():
    """Both searches use the same tensors."""
    model = ready("dl4mt")
    best = both([model], beam_size=3)[0][0]["tokens"].tolist()
    words = {TARGET[symbol] for symbol in best if symbol >= TARGET.nspecial}
    assert words
    both([model], beam_size=3, tokens_to_suppress=sorted(words))
    both([model], beam_size=3)
    assert len(static_search._beams[model.decoder]) == 1


@pytest.mark.slow
def test_what_a_graph_has_in_it_besides_tensors():
    """Each number, of the search or of a part, needs another graph; tune sets the strength of the penalty."""
    model = ready("dl4mt", coverage_penalty=0.3)
    changes = [
        lambda: None,
        lambda: setattr(model.decoder, "coverage_penalty", 0.9),
        lambda: setattr(model.decoder, "projects_annotations", False),
        lambda: setattr(model.decoder.network.transition.attention.normalizer, "temperature", 0.5),
        lambda: setattr(model.decoder.search_dtype, "dtype", "bfloat16"),
    ]
    for number, change in enumerate(changes, start=1):
        change()
        both([model], beam_size=3)
        both([model], beam_size=3)
        assert len(static_search._beams[model.decoder]) == number
    both([model], beam_size=3, temperature=0.5)
    both([model], beam_size=2)
    assert len(static_search._beams[model.decoder]) == len(changes) + 2


def test_tensors_of_inference_mode_are_its_own():
    """Outside of inference mode nothing may be written into such tensors."""
    model = ready("dl4mt")
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode):
        with mode():
            both([model], beam_size=3)


@pytest.mark.slow
@pytest.mark.parametrize("limit,value", [("KEPT", 2), ("MEMORY", 4000)])
def test_the_last_used_shapes_are_kept(limit, value, monkeypatch):
    monkeypatch.setattr(static_search, limit, value)
    model, made = ready("rnnsearch"), []
    monkeypatch.setattr(static_search, "Beams", lambda *given: made.append(given) or Beams(*given))
    for length in (3, 5, 3, 7, 3, 5):
        both([model], made_of(length), beam_size=2)
    assert len(made) == 4 and len(static_search._beams[model.decoder]) == 2


@pytest.mark.slow
def test_a_model_is_not_kept():
    def number():
        gc.collect()
        return len(static_search._beams)

    model, before = ready("dl4mt"), number()
    both([model], beam_size=2)
    assert number() == before + 1
    del model
    assert number() == before


class Waits(TorchDispatchMode):
    """Refuse operators that wait for a GPU, or make a shape from computed values, and count launches."""

    launches = 0

    NAMES = "_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "unique", "repeat_interleave"

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        name = operator.overloadpacket.__name__
        masks = [
            index for index in (args[1] if name in ("index", "index_put_") else ())
            if index is not None and index.dtype == torch.bool
        ]  # fmt: skip
        assert not masks and not any(one in name for one in self.NAMES), f"{name} waits"
        assert name != "lift_fresh", "a tensor is made of numbers of the host"
        self.launches += not operator.is_view
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize("name,most", [("rnnsearch", 87), ("dl4mt", 88), ("recatt", 89), ("ava", 104)])
def test_launches_of_a_step(name, most, monkeypatch):
    """A graph has one launch for all of them, but the GPU still runs them one after another."""
    counted, plain = set(), Beams.make_step

    def make_step(beams, search):
        with Waits() as waits:
            plain(beams, search)
        counted.add(waits.launches)

    monkeypatch.setattr(Beams, "make_step", make_step)
    kernels.on_gpu(monkeypatch)
    both([ready(name)], beam_size=5)
    assert max(counted) <= most


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [0.0, 0.5])
@pytest.mark.parametrize("name", ALL)
def test_no_step_waits(name, penalty, monkeypatch):
    """Every step writes into the same tensors, too."""
    kernels.on_gpu(monkeypatch)
    plain, addresses = Beams.make_step, set()

    def make_step(beams, search):
        with Waits():
            plain(beams, search)
        held = [beams.words, beams.totals, beams.idle, beams.step, *beams.notes, *beams.ended, beams.count, beams.done]
        held += [tensor for run in beams.runs for tensor in static_search.tensors(run[1:])]
        addresses.add(tuple(tensor.data_ptr() for tensor in held))

    with mock.patch.object(Beams, "make_step", make_step):
        both([ready(name, coverage_penalty=penalty)], beam_size=3)
    assert len(addresses) == 1


def test_what_waits_is_found():
    value = torch.ones(3)
    for wait in (lambda: bool(value[0]), lambda: value[value > 0], lambda: torch.tensor([1.0]), lambda: value.unique()):
        with pytest.raises(AssertionError, match=" waits|numbers of the host"), Waits():
            wait()


def test_the_host_looks_every_few_steps(monkeypatch):
    """A sentence of 12 words needs four reads, however many sentences end before."""
    model, looks = ready("dl4mt"), []
    model.decoder.output_projection.bias.data[TARGET.eos()] = -30

    class Looks(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            if operator is torch.ops.aten._local_scalar_dense.default:
                looks.append(operator)
            return operator(*args, **(kwargs or {}))

    search = StaticSearch([model], TARGET, beam_size=3, max_len_b=12)
    begin, before = Beams.begin, []
    monkeypatch.setattr(Beams, "begin", lambda *given: before.extend(looks) or begin(*given))
    monkeypatch.setattr(Beams, "hypotheses", lambda *_: [])
    with Looks():
        search.generate([model], SAMPLE)
    assert len(looks) - len(before) == 4


def test_a_graph_makes_all_steps_but_two_of_the_first_batch(monkeypatch):
    """A function replaces the graph; the first step of a shape runs before it is captured."""
    replayed, eager = [], []

    def captured(step, device):
        eager.append(step)
        step()
        return types.SimpleNamespace(replay=lambda: replayed.append(step) or step())

    monkeypatch.setattr(static_search, "captured", captured)
    model = ready("dl4mt")
    model.decoder.output_projection.bias.data[TARGET.eos()] = -30
    for number, sample in enumerate((SAMPLE, made_of(2, 3, 4, 9, seed=5)), start=1):
        both([model], sample, beam_size=3)
        assert len(eager) == 1 and len(replayed) == 12 * number - 1


class Growing(CoverageHistory):
    """A history that carries more from step to step, which a graph cannot do."""

    def start(self, memory):
        return torch.zeros_like(memory.positions).unsqueeze(1)

    def coverage(self, past):
        return past.carried.sum(1).view(len(past.memory.keys), -1, past.carried.size(2))

    def next(self, past, weights, hidden):
        return torch.cat([past.carried, weights.unsqueeze(1)], dim=1)


def failing(*_):
    raise RuntimeError("operation not permitted when stream is capturing")


@pytest.mark.parametrize("kind", ["grows", "fails"])
def test_what_cannot_be_captured_is_searched_as_ever(kind, monkeypatch, caplog):
    """There is one warning for each model."""
    if kind == "fails":
        monkeypatch.setattr(static_search, "captured", failing)
    with mock.patch.dict(HISTORIES.entries, growing=Growing):
        model = ready("dl4mt", attention_history="growing" if kind == "grows" else "none")
    expected = SequenceGenerator([model], TARGET, beam_size=3, max_len_b=8).generate([model], SAMPLE)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            search = StaticSearch([model], TARGET, beam_size=3, max_len_b=8)
            for _ in range(2):
                same(search.generate([model], SAMPLE), expected, exactly=True)
    why = "changes its shape" if kind == "grows" else "not permitted"
    assert [why in message for message in caplog.messages] == [True]
    assert "search continues without CUDA graphs" in caplog.text


def stock_lstm(target=TARGET):
    options = argparse.Namespace(encoder_embed_dim=6, decoder_embed_dim=6, decoder_out_embed_dim=6, criterion="x")
    return LSTMModel.build_model(options, Task(target=target)).eval()


def generator(models, kind=None, **options):
    """Return the generator that fairseq's commands build."""
    asked = argparse.Namespace(**{"beam": 4, "max_len_b": 8, **options})
    return FairseqTask.build_generator(argparse.Namespace(target_dictionary=TARGET), models, asked, seq_gen_cls=kind)


def several(*names, **options):
    return [ready(name, seed=number, **options) for number, name in enumerate(names)]


def test_who_gets_it():
    own, [other] = several("dl4mt"), [ready("rnnsearch", cuda_graphs=False)]
    assert type(generator(own)) is StaticSearch
    assert type(generator([ready("rnnsearch", cuda_graphs=True), *own])) is StaticSearch
    assert type(generator([other, *own])) is SequenceGenerator
    assert type(generator(own, print_alignment="soft")) is StaticSearchWithAlignment
    assert type(generator([other])) is SequenceGenerator
    assert type(generator([*own, stock_lstm()])) is SequenceGenerator
    assert type(generator([other], print_alignment="hard")) is SequenceGeneratorWithAlignment
    assert not isinstance(generator(own, score_reference=True), SequenceGenerator)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_alignments(kind):
    models = several("dl4mt", "recatt")
    found = generator(models, print_alignment=kind).generate(models, SAMPLE)
    with mock.patch.object(StaticSearch, "device_type", "cuda"):
        same(found, generator(models, print_alignment=kind).generate(models, SAMPLE))
    assert len(found[0][0]["alignment"])


PREFIX = torch.tensor([[6, 7], [5, 1], [8, 9], [4, 1]])
CONSTRAINTS = pack_constraints([[torch.tensor([6, 7])], [], [torch.tensor([8])], []])


@pytest.mark.parametrize("options,given", [
    ({}, dict(prefix_tokens=PREFIX)),
    (dict(constraints="ordered"), dict(constraints=CONSTRAINTS)),
    (dict(sampling=True, sampling_topk=3), {}),
    (dict(diverse_beam_groups=2), {}),
    (dict(diversity_rate=0.5), {}),
    (dict(match_source_len=True), {}),
    (dict(no_repeat_ngram_size=2), {}),
    (dict(prefix_allowed_tokens_fn=lambda *_: [2, 5, 6, 7, 8]), {}),
    (dict(autocast=True), {}),
], ids=lambda one: " ".join(one))  # fmt: skip
def test_what_is_left_to_fairseq(options, given, monkeypatch):
    """Results are those of fairseq's class."""
    models, options, found = several("dl4mt"), {**options}, []
    monkeypatch.setattr(StaticSearch, "_search", lambda *_: pytest.fail("the static search"))
    torch.set_autocast_enabled(options.pop("autocast", False))
    try:
        for kind in (None, SequenceGenerator):
            torch.manual_seed(1)
            search = generator(models, kind, **options)
            assert type(search) is (kind or StaticSearch)
            found.append(search.generate(models, SAMPLE, **given))
    finally:
        torch.set_autocast_enabled(False)
    same(*found, exactly=True)


def test_a_language_model_and_lengths_of_sources_are_left_to_fairseq():
    search = StaticSearch(several("dl4mt"), TARGET, lm_model=torch.nn.Linear(1, 1))
    assert not search._fits(SAMPLE["net_input"]["src_tokens"])
    search.lm_model = None
    assert search._fits(SAMPLE["net_input"]["src_tokens"])
    search.match_source_len = True
    assert not search._fits(SAMPLE["net_input"]["src_tokens"])


def test_a_minimum_above_the_maximum_is_refused_by_fairseq():
    for kind in (SequenceGenerator, StaticSearch):
        with pytest.raises(AssertionError, match="min_len cannot be larger than max_len"):
            kind([ready("dl4mt")], TARGET, max_len_b=3, min_len=5).generate([], SAMPLE)


@pytest.mark.parametrize("frequent", [2, 100])
def test_shortlists(frequent):
    """A shortlist has another vocabulary in each batch, so graphs search only with the full vocabulary."""
    models = several("dl4mt", "rnnsearch")
    task = Task()
    rows = [Candidate("w1", "v1", 1, 1.0), Candidate("w2", "v5", 2, 1.0)]
    lists = Shortlist(iter(rows), task.source_dictionary, task.target_dictionary, 1, frequent)
    found = ShortlistGenerator(generator(models), lists).generate([], SAMPLE)
    for model in models:
        model.cfg.cuda_graphs = False
    same(found, ShortlistGenerator(generator(models), lists).generate([], SAMPLE))
    assert (models[0].decoder in static_search._beams) == (frequent == 100)


def test_a_decoder_of_somebodys_own_that_carries_more():
    [model] = several("dl4mt")

    class Own(type(model.decoder)):
        def reorder_incremental_state(self, incremental_state, new_order):
            super().reorder_incremental_state(incremental_state, new_order)

    model.decoder.__class__ = Own
    assert type(generator([model])) is SequenceGenerator


@pytest.mark.parametrize("graphs", [False, True])
def test_an_override_of_a_trained_model_refuses_it(runs, graphs):
    """``--model-overrides`` of fairseq-generate does the same, since it builds its search in the same way."""
    places = [str(runs.rnnsearch), "checkpoint_last.pt", str(runs.data)]
    hub = AttentionRNNModel.from_pretrained(*places, user_dir=USER_DIR, **({} if graphs else {"cuda_graphs": False}))
    assert (type(hub.task.build_generator(hub.models, hub.cfg.generation)) is StaticSearch) == graphs
    static_search._beams.pop(hub.models[0].decoder, None)
    assert hub.translate("ant bee cat") and (hub.models[0].decoder in static_search._beams) == graphs


@pytest.mark.parametrize("more", [["--nbest", "3"], ["--print-alignment", "hard"], ["--prefix-size", "1"]])
def test_fairseq_generate_prints_the_same(runs, more, capsys):
    """The stock command prints the same with graphs; with prefixes fairseq's search runs."""
    path = runs.rnnsearch / "checkpoint_last.pt"
    found, searched = [], mock.Mock(side_effect=StaticSearch._search)
    for graphs in (False, True):
        line = [runs.data, "--user-dir", USER_DIR, "--path", path, "--cpu", "--max-len-b", "10", *more]
        line += ["--num-workers", "0", *([] if graphs else ["--model-overrides", "{'cuda_graphs': False}"])]
        parsed = flags.parse_args_and_arch(flags.get_generation_parser(), [*map(str, line)])
        with mock.patch.object(StaticSearch, "_search", lambda *given: searched(*given)):
            generate.main(convert_namespace_to_omegaconf(parsed))
        lines = capsys.readouterr().out.splitlines()
        found.append([line for line in lines if line[:2] in ("S-", "T-", "H-", "D-", "P-", "A-")])
    assert len(found[0]) >= 60 and found[0] == found[1]
    assert bool(searched.call_count) == ("--prefix-size" not in more)


@pytest.mark.parametrize("graphs", [False, True])
def test_validation_by_bleu_has_it(runs, graphs):
    task = TranslationTask.setup_task(
        TranslationConfig(data=str(runs.data), source_lang="xx", target_lang="yy", eval_bleu=True, eval_bleu_args="{}")
    )
    cfg = build("rnnsearch", task).cfg
    cfg.cuda_graphs, cfg._name = None if graphs else False, "rnnsearch"
    task.build_model(cfg)
    assert (type(task.sequence_generator) is StaticSearch) == graphs
