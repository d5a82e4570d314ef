"""The coverage penalty of a search equals loops over words (Wu et al. 2016, equation 14)."""

import contextlib
import math

import pytest
import torch
from conftest import COMPOSED, Task, batch, build
from fairseq.dataclass.configs import GenerationConfig
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_attnvariants.architectures.derived import ConfigurationError
from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.tasks.shortlist import Candidate, Shortlist, ShortlistGenerator

STRENGTH, LENPEN = 0.7, 0.8


def search(models, beam=4, **options):
    options = dict(beam_size=beam, max_len_b=4, len_penalty=LENPEN, **options)
    return SequenceGenerator(models, Task().target_dictionary, **options)


@pytest.fixture
def sample():
    tokens, lengths, _ = batch((14, 6, 3))
    return {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}


def penalty(attention, tokens):
    """Return the penalty of attention, ``S x T``."""
    total = 0.0
    for token, weights in zip(tokens.tolist(), attention.tolist()):
        if token != 1:
            total += math.log(min(max(sum(weights), 0.01), 1.0))
    return total


@pytest.mark.slow
@pytest.mark.parametrize("name", [*VARIANTS, *COMPOSED])
def test_a_score_is_probabilities_and_the_penalty(name, sample):
    """Each hypothesis of a beam has the score of forced decoding plus the penalty of its attention."""
    model = build(name, scale=0.5, coverage_penalty=STRENGTH).eval()
    tokens, lengths = sample["net_input"].values()
    least = []
    for row, hypotheses in enumerate(search([model]).generate([model], sample)):
        for hypothesis in hypotheses:
            words = hypothesis["tokens"]
            previous = torch.cat([words[-1:], words[:-1]])[None]
            output = model(tokens[row : row + 1], lengths[row : row + 1], previous)
            logs = model.get_normalized_probs(output, log_probs=True)[0].gather(1, words[:, None]).sum().item()
            least.append(penalty(hypothesis["attention"], tokens[row]))
            total = hypothesis["score"].item() * len(words) ** LENPEN
            assert total == pytest.approx(logs + STRENGTH * least[-1], rel=1e-4, abs=1e-3)
            assert total == pytest.approx(hypothesis["positional_scores"].sum().item(), rel=1e-4, abs=1e-4)
    assert min(least) < -0.1


def test_probabilities_have_no_penalty(sample):
    """A step's logarithms have the penalty, the same for all words."""
    model = build("dl4mt", scale=0.5, coverage_penalty=STRENGTH).eval()
    encoded = model.encoder(**sample["net_input"])
    step = model.decoder(torch.full((3, 1), 2), encoded, incremental_state={})
    plain, penalised = (model.get_normalized_probs(step, log_probs) for log_probs in (False, True))
    torch.testing.assert_close(plain.sum(2), torch.ones(3, 1))
    added = penalised - plain.log()
    assert added.lt(0).all()
    torch.testing.assert_close(added, step[1]["coverage_penalty"][0].unsqueeze(1).expand_as(added))


def test_it_prefers_hypotheses_that_cover_more(sample):
    covered = []
    for strength in (0.0, 5.0):
        model = build("dl4mt", scale=1.0, coverage_penalty=strength).eval()
        found = search([model]).generate([model], sample)[0][0]
        covered.append(penalty(found["attention"], sample["net_input"]["src_tokens"][0]))
    assert covered[1] > covered[0] + 0.1


def test_ensembles_and_shortlists(sample):
    """Results equal those of models that give other words no probability."""
    task, found = Task(), []
    pairs = iter([Candidate("w1", "v1", 1, 1.0)])
    shortlist = Shortlist(pairs, task.source_dictionary, task.target_dictionary, size=1, frequent=0)
    listed = shortlist.symbols(sample["net_input"]["src_tokens"], least=8).tolist()
    absent = [symbol for symbol in range(len(task.target_dictionary)) if symbol not in listed]
    assert absent
    for short in (True, False):
        models = [build("dl4mt", seed=seed, scale=0.5, coverage_penalty=STRENGTH).eval() for seed in range(2)]
        generator = search(models)
        if short:
            generator = ShortlistGenerator(generator, shortlist)
        else:
            for model in models:
                model.decoder.output_projection.bias.data[absent] = -1e9
        found.append(generator.generate([], sample))
    for one, other in zip(*found, strict=True):
        assert [h["tokens"].tolist() for h in one] == [h["tokens"].tolist() for h in other]
        torch.testing.assert_close([h["score"] for h in one], [h["score"] for h in other])


def test_the_order_of_an_ensemble_does_not_matter(sample):
    models = [build("dl4mt", seed=seed, scale=0.5, coverage_penalty=STRENGTH).eval() for seed in range(2)]
    one, other = (search(several).generate([], sample) for several in (models, models[::-1]))
    for row, same in zip(one, other):
        scores = [[hypothesis["score"].item() for hypothesis in several] for several in (row, same)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_sampling_is_refused(runs):
    """Samples would be drawn from probabilities that the penalty has changed."""
    task = TranslationTask.setup_task(TranslationConfig(data=str(runs.data), source_lang="xx", target_lang="yy"))
    for strength in (0.0, STRENGTH):
        models = [build("dl4mt", task), build("dl4mt", task, coverage_penalty=strength)]
        refused = pytest.raises(ConfigurationError, match="--sampling draws from probabilities")
        for sampling in (False, True):
            with refused if sampling and strength else contextlib.nullcontext():
                task.build_generator(models, GenerationConfig(sampling=sampling))


def test_below_zero():
    with pytest.raises(ConfigurationError, match="--coverage-penalty must be 0"):
        build("dl4mt", coverage_penalty=-0.1)
