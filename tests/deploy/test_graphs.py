"""One graph of a model: n-best lists, scores and attention are those of fairseq's search."""

import os

import pytest
from conftest import COMPOSED, SPACE, build, outside
from corpus import ROOT

from fairseq_attnvariants.architectures.variants import VARIANTS

loop = pytest.importorskip("fairseq_attnvariants.deploy.loop", reason="needs the extra export")
from fairseq_attnvariants.deploy import proof  # noqa: E402

pytestmark = pytest.mark.slow

# between them two levels, copying, segments, a loop of a cell that ONNX has not, histories, bridges and layers above
SAMPLE = ["ava_deep", "char2char", "adaptive_both", "pointer_generator"]
# 20 seconds each, and twice that for deep ones
NAMES = sorted([*VARIANTS, *COMPOSED]) if "TEST_EXPORTS" in os.environ else SAMPLE
SEARCHES = [proof.Search(beam=4, max_len_b=12), proof.Search(beam=1, max_len_b=5, lenpen=0.6, unkpen=0.5, min_len=3)]


def batches(model, ends=(2,)):
    """Sources of several lengths, an empty one among them."""
    sources = proof.random_sources(model, list(ends), 8)
    return [proof.Batch(sources[k::2], search) for k in range(2) for search in SEARCHES]


def prove(model, ends=(2,)):
    """The proof of a model's graph."""
    content, found = proof.proved(loop.export(model), model, batches(model, ends))
    return content, found


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_is_the_model(name):
    model = build(name, scale=0.5).eval()
    ends = (SPACE, 2) if model.encoder.space is not None else (2,)
    _, found = prove(model, ends)
    assert found.equal == found.lists == 16
    assert max(found.score, found.attention) < 1e-5


def test_a_part_that_carries_something_else_at_first():
    """What ``hard_monotone`` has of the words before is None before the first step, and a tensor later."""
    with outside(ROOT / "examples" / "extend" / "hard_attention"):
        model = build("hard_monotone", scale=0.5).eval()
        assert prove(model)[1].equal == 16
