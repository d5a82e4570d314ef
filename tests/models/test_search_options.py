"""Options of fairseq's search that stock fairseq ignores, or answers with a traceback."""

import argparse
import math
from itertools import product

import pytest
import torch
from conftest import Task, batch, build
from fairseq.dataclass.configs import GenerationConfig
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.fairseq_task import FairseqTask

from fairseq_attnvariants.registry import ConfigurationError

TOKENS, LENGTHS, _ = batch((5, 3, 1, 9), (2, 2, 2, 2))
SAMPLE = {"net_input": {"src_tokens": TOKENS, "src_lengths": LENGTHS}}


def ngrams(words: list[int], n: int) -> list[tuple]:
    return [tuple(words[k : k + n]) for k in range(len(words) - n + 1)]


@pytest.mark.parametrize("n, step", product((1, 2, 3), range(9)))
def test_tokens_that_would_repeat_an_ngram_are_impossible(n, step):
    """All other tokens keep their scores. The search ignores numbers in the memory that are not yet words."""
    torch.manual_seed(step)
    tokens, scores = torch.randint(4, 7, (6, 12)), torch.randn(6, 8)
    found = NGramRepeatBlock(n)(tokens, scores.clone(), 2, 3, step)
    for row, words in enumerate(tokens[:, 1 : step + 1].tolist()):
        for word in range(8):
            repeats = ngrams([*words, word], n)[-1:]
            possible = not repeats or repeats[0] not in ngrams(words, n)
            assert found[row, word] == (scores[row, word] if possible else -math.inf)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_repeat_ngram_size(n):
    """Without it this model repeats itself."""
    model = build("recatt", scale=0.1).eval()

    def repeated(**options):
        generator = SequenceGenerator([model], Task().target_dictionary, 5, max_len_b=12, min_len=9, **options)
        several = [ngrams(one["tokens"].tolist(), n) for beam in generator.generate([], SAMPLE) for one in beam]
        assert len(several) == 20 and all(several)
        return sum(len(one) - len({*one}) for one in several)

    assert repeated() > 0 == repeated(no_repeat_ngram_size=n)


@pytest.mark.parametrize("given, message", [
    (dict(sampling=True, match_source_len=True), "--sampling and --match-source-len are different kinds of search"),
    (dict(diverse_beam_groups=5, constraints="ordered"), "--diverse-beam-groups and --constraints are different"),
    (dict(beam=5, diverse_beam_groups=3), "--diverse-beam-groups 3 does not divide --beam 5: change one of them"),
    (dict(sampling_topk=3), "--sampling-topk is of --sampling: add that"),
    (dict(sampling_topp=0.5), "--sampling-topp is of --sampling: add that"),
    (dict(temperature=0.0), "--temperature 0.0 must be above 0"),
    (dict(lm_weight=0.3), "--lm-weight 0.3 is of --lm-path: add that"),
    (dict(beam=0), "--beam 0 must be at least 1"),
    (dict(nbest=-1), "--nbest -1 must be at least 1"),
    (dict(lenpen=math.nan), "--lenpen nan must be a finite number"),
    (dict(max_len_b=0), "--min-len 1 is more than --max-len-b 0: change one of them"),
    (dict(print_step=True), "--print-step is of models that change a whole translation"),
])  # fmt: skip
def test_options_that_do_not_fit_together(given, message):
    with pytest.raises(ConfigurationError, match=message):
        FairseqTask.build_generator(Task(), [build("dl4mt")], GenerationConfig(**given))


@pytest.mark.parametrize("given", [
    {}, dict(sampling=True, sampling_topk=3), dict(diverse_beam_groups=5), dict(constraints="unordered"),
    dict(match_source_len=True, beam=3), dict(diversity_rate=0.5, temperature=0.1), dict(max_len_b=0, max_len_a=2.0),
])  # fmt: skip
def test_options_that_fit_together(given):
    for args in (GenerationConfig(**given), argparse.Namespace(**given)):
        assert FairseqTask.build_generator(Task(), [build("dl4mt")], args).beam_size == given.get("beam", 5)


def test_constraints_are_read_by_one_command():
    """fairseq-generate, which gives a language model or none, has no constraints for its sentences."""
    args = GenerationConfig(constraints="ordered")
    with pytest.raises(ConfigurationError, match="--constraints are read only by fairseq-interactive: use that"):
        FairseqTask.build_generator(Task(), [build("dl4mt")], args, extra_gen_cls_kwargs={"lm_model": None})
