"""One graph of a model: n-best lists, scores and attention are those of fairseq's search."""

import logging
import re
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import COMPOSED, SPACE, Task, build

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.nn.attention import Softmax
from fairseq_attnvariants.nn.readout import Prediction
from fairseq_attnvariants.nn.state import tensors
from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants.tasks.shortlist import Candidate, Shortlist

loop = pytest.importorskip("fairseq_attnvariants.deploy.loop", reason="needs the extra export")
import onnx_ir as ir  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from fairseq_attnvariants.deploy import graphs, int8, proof, refusal, search  # noqa: E402

pytestmark = pytest.mark.slow

# copying, a history, and cells, weighting and directions that ONNX lacks
ADAPTIVE = dict(encoder_cell="adaptive_gru", decoder_cell="adaptive_gru", adaptive_output=True)
LAYERED = dict(attention_via=True, encoder_layers=2, coverage_penalty=0.6)
CROSSED = dict(encoder_layers=3, encoder_reads="other", residuals=2)
MADE = {
    "adaptive_pointer_generator": ("pointer_generator", ADAPTIVE),
    "layered_dl4mt": ("dl4mt", LAYERED),
    "crossed_dl4mt": ("dl4mt", CROSSED),
}
# an export takes ten seconds; together, these cover the parts above, segments, several layers, and a part that carries
# None before the first step and a tensor later; test_export.py covers two levels
SAMPLE = {"char2char", "hard_monotone", *MADE}
NAMES = [
    pytest.param(name, marks=() if name in SAMPLE else pytest.mark.exhaustive) for name in [*VARIANTS, *COMPOSED, *MADE]
]
SEARCHES = [proof.Search(beam=4, max_len_b=12), proof.Search(beam=1, max_len_b=5, lenpen=0.6, unkpen=-3.0, min_len=3)]


def sources(model):
    """Return sources of several lengths, an empty one among them."""
    return proof.random_sources(model, [2] if model.encoder.space is None else [SPACE, 2], 8)


def batches(model):
    """Return batches of both halves of the sources, with each search."""
    return [proof.Batch(sources(model)[k::2], search) for k in range(2) for search in SEARCHES]


@cache
def exported(name):
    """Return a model and its graph."""
    name, options = MADE.get(name, (name, {}))
    model = build(name, scale=0.5, **options).eval()
    return model, loop.export(model)


@pytest.mark.more
@pytest.mark.parametrize("name", NAMES)
def test_the_graph_is_the_model(name):
    model, graph = exported(name)
    _, found = proof.proved(graph, model, batches(model))
    assert found.equal == found.lists == 16
    assert max(found.score, found.attention) < 1e-5
    levels_of_words = model.cfg.attention_via and model.encoder.space is not None  # levels of layers have no columns
    outputs = [value.name for value in graph.graph.outputs]
    assert ("word_attention" in outputs) == (levels_of_words and not model.cfg.attention_via_words_alone)


@pytest.mark.more
def test_searches_that_few_ask_for():
    """Scores are sums, translations have no symbol except EOS, or the beam is the widest, which reads every symbol."""
    model, graph = exported("hard_monotone")
    searches = [proof.Search(3, max_len_b=6, lenpen=2.0, normalize=False), proof.Search(2, max_len_b=0, min_len=0)]
    searches.append(proof.Search(search.largest_beam(model.decoder.dictionary), max_len_b=5, min_len=3))
    found = proof.proved(graph, model, [proof.Batch(sources(model), each) for each in searches])[1]
    assert found.equal == found.lists == 24 and max(found.score, found.attention) < 1e-5


class Eager:
    """The steps of a graph, computed by PyTorch, with the methods of ONNX Runtime's sessions."""

    def __init__(self, model):
        self.model = graphs.prepared(model)
        self.model.encoder = model.encoder  # PyTorch cannot compute ONNX's recurrent operators

    def get_outputs(self):
        return [SimpleNamespace(name=name) for name in graphs.RECORD]

    @torch.no_grad()
    def run(self, _, inputs):
        source, beam, *limits = (torch.from_numpy(inputs[name]) for name in graphs.INPUTS)
        projects = graphs.projecting_decoder(self.model)
        step, read = graphs.First(self.model, projects)(source, torch.arange(int(beam)), *limits)
        following = graphs.Following(self.model, projects, (step, read))
        records = [step.record]
        for number in range(max(int(limits[0].max()), 1)):
            step = following(torch.tensor(number), *limits, *tensors((*step[1:4], read)))
            records.append(step.record)
            if not step.going:
                break
        return [torch.stack(column).numpy() for column in zip(*records)]


@pytest.mark.parametrize("bias", [0.0, 2.0, 30.0])
def test_the_search_is_fairseqs(bias):
    """Sentences of a batch end late, at different steps, or at once."""
    model = build("dl4mt", scale=0.5).eval()
    model.decoder.output_projection.bias.data[model.decoder.dictionary.eos()] = bias
    widest = search.largest_beam(model.decoder.dictionary)
    searches = [
        *SEARCHES,
        proof.Search(beam=3, max_len_b=6, lenpen=2.0, normalize=False),
        proof.Search(beam=2, max_len_b=0, min_len=0),
        proof.Search(beam=4, max_len_b=9, min_len=4, unkpen=3.0),
        proof.Search(widest, max_len_b=5, min_len=3),
    ]
    found = proof.prove(Eager(model), model, [proof.Batch(sources(model), each) for each in searches])
    assert found.equal == found.lists == 48 and found.translations == 1
    assert max(found.score, found.attention) < 1e-5


def test_the_first_hypotheses_that_end_are_ordered_by_their_scores():
    """A third one in a beam of two is left out, though it is the best."""
    steps = dict(  # of one sentence, in a beam of two
        words=[[5, 6], [7, 8], [9, 9]], parents=[[0, 0], [0, 1], [0, 0]], scores=[[-1, -2], [-2.5, -2.6], [-4, -4]],
        ended=[[0, 0], [1, 0], [1, 1]], ended_parents=[[0, 0], [1, 0], [0, 1]],
        ended_scores=[[0, 0], [-2.4, 0], [-3, -2.7]],
    )  # fmt: skip
    out = {name: np.array(rows)[:, None] for name, rows in steps.items()}
    out["attention"] = np.arange(24.0).reshape(3, 1, 2, 4)
    found = search.hypotheses(out, sentence=0, length=3, eos=2, lenpen=1)
    assert [(one.score, one.symbols, one.sums) for one in found] == [
        (-1.0, [5, 7, 2], [-1, -2.5, -3]),
        (-1.2, [6, 2], [-2, -2.4]),
    ]
    assert np.stack(found[0].attention).tolist() == [[0, 1, 2], [8, 9, 10], [16, 17, 18]]
    assert np.stack(found[1].attention).tolist() == [[0, 1, 2], [12, 13, 14]]
    sums = search.hypotheses(out, sentence=0, length=3, eos=2, lenpen=1, normalize=False)
    assert [one.score for one in sums] == [-2.4, -3.0]


def test_a_search_never_writes_padding():
    target = Task().target_dictionary
    scores = torch.zeros(1, 1, len(target))
    scores[..., target.pad()] = 9.0
    none = torch.zeros(1, 2, dtype=torch.long)
    before = search.Beam(none, torch.zeros(1, 1), none[:, 0])
    limits = search.Limits(torch.tensor([9]), torch.tensor(1), torch.tensor(0.0))
    after, *_ = search.Select(target)(scores, before, none[:, 0] > 0, torch.tensor(0), limits)
    assert not (after.words == target.pad()).any()


def test_random_sources_fit_into_the_model():
    model = build("rnnsearch", max_source_positions=9)
    found = proof.random_sources(model, [2], 5)
    assert [len(source) for source in found] == [1, 3, 5, 7, 9]
    assert all(source[-1] == 2 and not (source[:-1] < 4).any() for source in found)


def test_the_examples_may_be_longer_than_the_models_sources():
    """A package has the model's own limit."""
    model = build("rnnsearch", max_source_positions=9)
    copied = graphs.prepared(model)
    for sizes in graphs.EXAMPLES:
        source, *_ = loop.example(copied, *sizes)
        with torch.no_grad():
            memory, _ = graphs.started(copied, source)
        assert memory.padding_mask.shape == source.shape and source.size(1) > 9
    assert model.encoder.max_source_positions == 9


def test_an_export_changes_a_copy_alone():
    """The copy is in evaluation mode, whatever the mode of the model."""
    model = build("dl4mt").train()
    before = [type(part) for part in model.modules()]
    copied = graphs.prepared(model)
    assert not copied.training and not copied.encoder.network.training and not copied.decoder.network.training
    assert not any(parameter.requires_grad for parameter in copied.parameters())
    assert all(part.training for part in model.modules()) and [type(part) for part in model.modules()] == before
    assert all(parameter.requires_grad for parameter in model.parameters())


def shortlisted(model, size=1):
    """Return a shortlist with ``size`` of five translations of each source symbol, and with two frequent words."""
    source, target = model.encoder.dictionary, model.decoder.dictionary
    pairs = ((i, k) for i in range(4, len(source)) for k in range(5))
    rows = (Candidate(source[i], target[4 + (7 * i + k) % (len(target) - 4)], 10 - k, 0.5 - k / 10) for i, k in pairs)
    return Shortlist(rows, source, target, size=size, frequent=2)


@pytest.mark.more
@pytest.mark.parametrize("name, size, options", [
    ("dl4mt", 1, dict(share_decoder_input_output_embed=True, decoder_out_embed_dim=5)),
    ("dl4mt", 0, {}),
    pytest.param("adaptive_both", 1, {}, marks=pytest.mark.exhaustive),
])  # fmt: skip
def test_a_shortlist_is_in_the_graph(name, size, options):
    """Lists, scores and attention are those of fairseq's search with the same shortlist, and not without one."""
    model = build(name, scale=0.5, **options).eval()
    shortlist = shortlisted(model, size)
    graph = loop.export(model, shortlist)
    _, found = proof.proved(graph, model, batches(model), shortlist)
    assert found.equal == found.lists == 16 and max(found.score, found.attention) < 1e-5
    assert [value.name for value in graph.graph.inputs] == loop.INPUTS
    short = [proof.Batch([source], proof.Search(beam=2, max_len_b=9)) for source in sources(model)[:3]]
    assert proof.compared(graph, model, short, shortlist)[1].equal == 3 > proof.compared(graph, model, short)[1].equal
    _, found = proof.compared(int8.reduce(graph), model, batches(model), shortlist)
    assert found.translations > 0.5


def test_a_shortlist_of_a_model_that_copies_is_refused():
    model = build("pointer_generator").eval()
    with pytest.raises(ConfigurationError, match="--shortlist: .* copies source words, .*: leave --shortlist out"):
        loop.export(model, shortlisted(model))


def test_a_length_that_is_a_number_is_named(monkeypatch):
    normalize = Softmax.normalize
    monkeypatch.setattr(Softmax, "normalize", lambda self, energies: normalize(self, energies * len(energies)))
    with pytest.raises(ConfigurationError, match=r"len\(tensor\) is .* write tensor.size\(0\) \(.*test_onnx.py, line"):
        loop.export(build("rnnsearch"))


def test_what_grows_from_step_to_step_is_named(monkeypatch):
    """A readout may carry a growing tensor, another type than at first, or nothing any more."""
    model = build("rnnsearch")
    for grow, said in (
        (lambda carried: torch.cat([carried, carried], dim=1), "N x 1 (float32) .* N x 2 (float32) "),
        (lambda carried: carried.long(), "N x 1 (float32) .* N x 1 (int64) "),
        (lambda carried: None, "N x 1 (float32) after its first step and nothing after its second"),
    ):

        def predict(self, features, project, steps, grow=grow):
            later = steps.carried is not None
            carried = grow(steps.carried) if later else features[:, 0, :1]
            return Prediction(project(features), carried=carried)

        monkeypatch.setattr(type(model.decoder.network.readout), "predict", predict)
        with pytest.raises(ConfigurationError, match=re.escape(said).replace(r"\.\*", ".*")):
            loop.export(model)


def test_an_export_that_fails_leaves_everything_as_it_was(monkeypatch):
    """A method of PyTorch's tensors, and the levels of the loggers, are restored."""
    monkeypatch.setattr(loop, "_export", lambda *_: 1 / 0)
    loggers = [logging.getLogger(name) for name in loop.TALKATIVE]
    before = torch.Tensor.__len__, [logger.level for logger in loggers]
    with pytest.raises(ConfigurationError, match="it cannot be exported: division by zero"):
        loop.export(build("rnnsearch"))
    assert (torch.Tensor.__len__, [logger.level for logger in loggers]) == before


def test_a_broken_constraint_is_told_by_what_it_is():
    error = ValueError(
        "Constraints violated (batch)! For more information, run with TORCH_LOGS\n  - Not all are valid\n"
    )
    assert refusal.why(error) == "Not all are valid"


@pytest.mark.more
@pytest.mark.parametrize("what", ["attention", "score"])
def test_what_is_no_number_is_seen(monkeypatch, what):
    model, graph = exported("char2char")
    made = proof.hypotheses

    def spoilt(one):
        none = {"attention": [row * np.float32(np.nan) for row in one.attention], "score": float("nan")}
        return one._replace(**{what: none[what]})

    monkeypatch.setattr(proof, "hypotheses", lambda *given: [spoilt(one) for one in made(*given)])
    alone = [batch._replace(search=batch.search._replace(beam=1)) for batch in batches(model)[:1]]
    seen = proof.compared(graph, model, alone)[1]
    assert seen.equal == seen.lists and not seen.holds and seen.where


@pytest.mark.more
def test_every_weight_is_there_once():
    model, graph = exported("adaptive_pointer_generator")
    numbers = sum(value.const_value.size for value in graph.graph.initializers.values())
    own = sum(parameter.numel() for parameter in model.parameters())
    assert numbers < 1.2 * own + 500


@pytest.mark.more
@pytest.mark.parametrize("name", [*MADE, "gnmt_v2"])  # the additive score, and the one with a normalised vector
def test_no_product_is_by_a_vector(name):
    """ONNX Runtime takes six times as long for a vector as for a matrix of one column."""
    products = [node for node in exported(name)[1].graph.all_nodes() if node.op_type == "MatMul"]
    assert products and all(len(node.inputs[1].shape) > 1 for node in products if node.inputs[1].shape is not None)


@pytest.mark.more
def test_eight_bits_do_not_depend_on_the_batch(monkeypatch):
    monkeypatch.setattr(int8, "SMALLEST", 1)
    model, graph = exported("adaptive_pointer_generator")
    content, found = proof.compared(int8.reduce(graph), model, batches(model))
    assert found.translations > 0.6
    whole, _ = proof.proved(graph, model, batches(model))
    assert len(content) - len(whole) < 60_000  # of nodes; the weights are a quarter
    session, given = proof.session(content), sources(model)
    together = proof.translate(session, given, 1, SEARCHES[0])
    for number, source in enumerate(given):
        alone = proof.translate(session, [source], 1, SEARCHES[0])
        one = proof.hypotheses(alone, 0, len(source), 2, 1.0)
        other = proof.hypotheses(together, number, len(source), 2, 1.0)
        assert [symbols for _, symbols, _, _ in one] == [symbols for _, symbols, _, _ in other]
        assert np.allclose([sums for _, _, sums, _ in one][0], [sums for _, _, sums, _ in other][0], atol=1e-6)


@pytest.mark.parametrize("axis, transposed", [(0, 0), (0, 1), (1, 0)])
def test_weights_are_rounded_to_steps_of_their_column_or_row(axis, transposed):
    array = (np.random.default_rng(1).normal(size=(40, 30)) * 10.0 ** np.arange(-4, 2).repeat(5)).astype(np.float32)
    array[7], array[:, 7] = 0, 0
    value = ir.Value(name="w", const_value=ir.tensor(array, name="w"))
    made = int8.Rewriter(ir.Graph([], [], nodes=[])).reduced(value, axis, transposed)
    whole, scales = (one.const_value.numpy() for one in made)
    plain = array.T if transposed else array
    found = (whole.astype(np.float32) - int8.ZERO) * scales
    assert (whole[plain == 0] == int8.ZERO).all() and (scales > 0).all()
    assert (np.abs(found - plain) <= 0.501 * np.abs(plain).max(axis, keepdims=True) / int8.LARGEST).all()


ORDER = dict(MatMul=("rows", "weights"), Gemm=("rows", "weights", "bias"), Gather=("weights", "places"))


def in_eight_bits(*operators):
    """Return the outputs of operators, each a kind and its options, those in eight bits, and their graph."""
    rng = np.random.default_rng(1)
    arrays = dict(weights=rng.normal(size=(20, 20)), bias=rng.normal(size=20), rows=rng.normal(size=(20, 20)))
    arrays["rows"][5] = 0  # as at padding
    given = {name: array.astype(np.float32) for name, array in arrays.items()} | {"places": np.array([3, 0, 19])}
    read = {name for kind, _ in operators for name in ORDER[kind]}
    fed = {name: given[name] for name in read & {"rows", "places"}}
    types = dict(rows=TensorProto.FLOAT, places=TensorProto.INT64)
    inputs = [helper.make_tensor_value_info(name, types[name], array.shape) for name, array in fed.items()]
    constants = [numpy_helper.from_array(given[name], name) for name in sorted(read - {*fed})]
    nodes = [helper.make_node(kind, ORDER[kind], [f"out{i}"], **more) for i, (kind, more) in enumerate(operators)]
    outputs = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in nodes]
    graph = helper.make_graph(nodes, "some", inputs, outputs, constants)
    plain = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))
    reduced = int8.reduce(plain)
    runs = (proof.session(ir.to_proto(one).SerializeToString()).run(None, fed) for one in (plain, reduced))
    return *runs, reduced.graph


@pytest.mark.parametrize("kind, options, small", [
    ("MatMul", {}, True),
    ("Gemm", {}, True),
    ("Gemm", dict(transB=1), True),
    ("Gemm", dict(alpha=0.5), False),
    ("Gemm", dict(beta=0.5), False),
    ("Gemm", dict(transA=1), False),
    ("Gather", {}, True),
    ("Gather", dict(axis=1), False),
])  # fmt: skip
def test_an_operator_of_eight_bits_gives_nearly_the_same(kind, options, small):
    """An operator that has no version of eight bits stays as it was."""
    [wanted], [found], graph = in_eight_bits((kind, options))
    assert any(value.dtype == ir.DataType.UINT8 for value in graph.initializers.values()) == small
    np.testing.assert_allclose(found, wanted, atol=0.2 if small else 0)


def test_operators_that_read_one_matrix_have_scales_of_their_own():
    """Tied embeddings, for example, have a scale for each row as a table, and one for each column in a product."""
    every = [("Gather", {}), ("MatMul", {}), ("Gemm", dict(transB=1))]
    wanted, found, graph = in_eight_bits(*every)
    assert not any(node.op_type in {"MatMul", "Gemm"} for node in graph)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=0.2)
