"""Search with a shortlist equals the stock search of a model that gives other words no probability."""

import argparse

import pytest
import torch
from conftest import Task, build, dictionary
from corpus import USER_DIR, pipe_of, reversed_links, run
from corpus import WORDS as CORPUS
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models.lstm import LSTMModel, base_architecture
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.token_generation_constraints import pack_constraints
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.tasks.shortlist import Candidate, Shortlist, ShortlistGenerator, cut, read_candidates
from fairseq_attnvariants.tasks.shortlist_translation import ShortlistTranslationConfig, ShortlistTranslationTask

WORDS = 37  # target words: no other size here is as large
SOURCE, TARGET = dictionary(), dictionary(WORDS - 4, "v")
ON_WORDS = [name for name in VARIANTS if not name.startswith("ava")]
# source words have three of v0 .. v5 each, in turn
ROWS = [Candidate(f"w{i}", f"v{(i + k) % 6}", 10 - k, 0.5 - k / 10) for i in range(20) for k in range(3)]


def lstm(seed, tied=False):
    torch.manual_seed(seed)
    cfg = argparse.Namespace(
        encoder_embed_dim=8, encoder_bidirectional=True, decoder_out_embed_dim=8 if tied else 6,
        criterion="cross_entropy", share_decoder_input_output_embed=tied,
    )  # fmt: skip
    base_architecture(cfg)
    cfg.encoder_hidden_size = cfg.decoder_hidden_size = cfg.decoder_embed_dim = 8
    model = LSTMModel.build_model(cfg, Task(SOURCE, TARGET))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5)
    return model


def models(name, count=1, **options):
    made = [
        lstm(seed) if name == "lstm" else build(name, Task(SOURCE, TARGET), seed, 0.5, **options)
        for seed in range(count)
    ]
    for model in made:
        torch.manual_seed(3)
        layer = vars(model.decoder)["_modules"].get("output_projection") or model.decoder.fc_out
        torch.nn.init.normal_(layer.bias)
    return [model.eval() for model in made]


def stock(models_, **options):
    """Return fairseq's generator, as its commands build it."""
    task = argparse.Namespace(target_dictionary=TARGET)
    options = {"beam": 4, "max_len_b": 8, **options}
    return FairseqTask.build_generator(task, models_, argparse.Namespace(**options))


def short(models_, size=2, frequent=0, **options):
    return ShortlistGenerator(stock(models_, **options), Shortlist(iter(ROWS), SOURCE, TARGET, size, frequent))


def allowed(sample, size=2, least=8):
    """Return the symbols of the list, computed in another way."""
    words = {SOURCE[token] for token in sample["net_input"]["src_tokens"].flatten().tolist()}
    own = {f"v{(int(word[1:]) + k) % 6}" for word in words if word[0] == "w" for k in range(size)}
    counts = {f"v{i}": sum(row.links for row in ROWS if row.target == f"v{i}") for i in range(WORDS - 4)}
    frequent = sorted(counts, key=lambda word: (-counts[word], int(word[1:])))[:least]
    return {*range(4), *(TARGET.index(word) for word in own), *(TARGET.index(word) for word in frequent)}


def forbid(models_, symbols):
    """Give all other symbols no probability."""
    for model in models_:
        layer = vars(model.decoder)["_modules"].get("output_projection") or model.decoder.fc_out
        absent = sorted(set(range(WORDS)) - set(symbols))
        with torch.no_grad():
            layer.bias[absent] = -torch.inf
    return models_


def assert_equal(found, expected, exactly=False):
    tolerances = dict(rtol=0, atol=0) if exactly else {}
    for one, other in zip(found, expected, strict=True):
        assert [h["tokens"].tolist() for h in one] == [h["tokens"].tolist() for h in other]
        for hypothesis, reference in zip(one, other):
            for key in ("score", "positional_scores", "attention"):
                torch.testing.assert_close(hypothesis[key], reference[key], **tolerances)
            assert len(hypothesis["alignment"]) == len(reference["alignment"])
            assert [list(map(int, pair)) for pair in hypothesis["alignment"]] == [
                list(map(int, pair)) for pair in reference["alignment"]
            ]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ON_WORDS, "lstm"])
def test_it_is_the_search_of_a_model_without_the_other_words(sample, name):
    found = short(models(name)).generate([], sample)
    assert_equal(found, stock(forbid(models(name), allowed(sample))).generate([], sample))


@pytest.mark.parametrize("options", [
    dict(share_decoder_input_output_embed=True, decoder_out_embed_dim=5), dict(attention_history="coverage")
])  # fmt: skip
def test_tied_embeddings_and_histories(sample, options):
    symbols = allowed(sample) | {36}  # rows that do not adjoin those of the others
    found = short(models("dl4mt", **options)).generate([], sample, bos_token=36)
    assert_equal(found, stock(forbid(models("dl4mt", **options), symbols)).generate([], sample, bos_token=36))


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    dict(print_alignment="hard"), dict(lenpen=0.2, unkpen=1.0), dict(unnormalized=True), dict(min_len=4),
    dict(diverse_beam_groups=2), dict(diversity_rate=0.5), dict(match_source_len=True), dict(no_repeat_ngram_size=2),
    dict(temperature=2.0), dict(beam=1),
])  # fmt: skip
def test_searches_are_the_stock_ones(sample, options):
    least = 2 * options.get("beam", 4)
    expected = stock(forbid(models("dl4mt"), allowed(sample, least=least)), **options).generate([], sample)
    assert_equal(short(models("dl4mt"), **options).generate([], sample), expected)


def test_an_ensemble(sample):
    expected = stock(forbid(models("rnnsearch", 2), allowed(sample))).generate([], sample)
    assert_equal(short(models("rnnsearch", 2)).generate([], sample), expected)


def test_forced_prefixes_are_in_the_list(sample):
    prefix = torch.tensor([[30, 31], [32, 7], [33, 1]])
    symbols = allowed(sample) | set(prefix.flatten().tolist())
    found = short(models("dl4mt")).generate([], sample, prefix_tokens=prefix)
    assert_equal(found, stock(forbid(models("dl4mt"), symbols)).generate([], sample, prefix_tokens=prefix))
    assert all(h["tokens"][:2].tolist() == [30, 31] for h in found[0])


def test_words_that_a_model_can_copy_are_in_the_list(sample, monkeypatch):
    monkeypatch.setitem(globals(), "TARGET", dictionary(WORDS - 4, "v", shared=7))
    words = {SOURCE[token] for token in sample["net_input"]["src_tokens"].flatten().tolist()}
    copied = {TARGET.index(word) for word in words if word[0] == "w" and word in TARGET}
    found = short(models("pointer_generator")).generate([], sample)
    symbols = allowed(sample) | copied
    assert_equal(found, stock(forbid(models("pointer_generator"), symbols)).generate([], sample))
    assert copied & {token for sentence in found for h in sentence for token in h["tokens"].tolist()}


@pytest.mark.parametrize("constraints", ["ordered", "unordered"])
def test_constraints_are_in_the_list(sample, constraints):
    packed = pack_constraints([[torch.tensor([34, 35])], [], [torch.tensor([36]), torch.tensor([5])]])
    found = short(models("dl4mt"), constraints=constraints).generate([], sample, constraints=packed)
    expected = stock(forbid(models("dl4mt"), allowed(sample) | {34, 35, 36, 5}), constraints=constraints)
    assert_equal(found, expected.generate([], sample, constraints=packed))
    assert all({34, 35} <= set(h["tokens"].tolist()) for h in found[0])


def test_a_list_of_all_words_changes_no_bit(sample):
    """A model that is cut to all words except the last gives the same logits, up to rounding."""
    generator = short(models("dl4mt"), frequent=WORDS)
    assert_equal(generator.generate([], sample), stock(models("dl4mt")).generate([], sample), exactly=True)
    [model] = models("dl4mt")
    logits = model.decoder(torch.tensor([[2, 7]]), model.encoder(sample["net_input"]["src_tokens"][:1]))[0]
    some = cut(model, torch.arange(WORDS - 1))
    found = some.decoder(torch.tensor([[2, 7]]), some.encoder(sample["net_input"]["src_tokens"][:1]))[0]
    torch.testing.assert_close(found, logits[..., :-1])


def test_a_stock_lstm_without_a_vocabulary_layer_is_cut(sample):
    """With tied embeddings, the model multiplies by their matrix."""
    model, source = lstm(0, tied=True).eval(), sample["net_input"]
    assert not hasattr(model.decoder, "fc_out")
    some, previous = cut(model, torch.arange(WORDS - 1)), torch.tensor([[2, 7]] * 3)
    whole, found = (one(source["src_tokens"], source["src_lengths"], previous)[0] for one in (model, some))
    torch.testing.assert_close(found, whole[..., :-1])
    model.decoder.adaptive_softmax = torch.nn.Module()  # its clusters are ranges of words
    with pytest.raises(ValueError, match="--shortlist cannot cut the vocabulary of a LSTMDecoder"):
        cut(model, torch.arange(WORDS - 1))


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {}, dict(sampling=True), dict(sampling=True, sampling_topk=9), dict(sampling=True, sampling_topp=0.9)
])  # fmt: skip
def test_what_cannot_come_is_never_chosen(sample, options):
    symbols = allowed(sample, least=9 if "sampling_topk" in options else 8)
    [model] = models("dl4mt")
    with torch.no_grad():
        model.decoder.output_projection.bias[sorted(set(range(WORDS)) - symbols)] = 50.0  # stock search chooses them
    for _ in range(5):
        found = short([model], **options).generate([], sample)
        assert {t for sentence in found for h in sentence for t in h["tokens"].tolist()} <= symbols
    free = stock([model], **options).generate([], sample)
    assert not {t for sentence in free for h in sentence for t in h["tokens"].tolist()} <= symbols


def test_a_list_has_as_many_words_as_sampling_takes(sample):
    generator = short(models("dl4mt"), sampling=True, sampling_topk=WORDS - 6, beam=1, max_len_b=2)
    assert len(generator.generate([], sample)) == 3


@pytest.mark.parametrize("name", ["dl4mt", "lstm"])
def test_nothing_has_the_size_of_the_vocabulary(sample, name):
    sizes = set()

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            sizes.update(result.shape if torch.is_tensor(result) else ())
            return result

    generator = short(models(name))
    with Sizes():
        generator.generate([], sample)
    assert sizes and WORDS not in sizes and WORDS + 4 not in sizes
    with Sizes():
        stock(models(name)).generate([], sample)
    assert WORDS in sizes


def test_the_models_stay_as_they_were(sample):
    made = models("dl4mt")
    before, generator = stock(made).generate([], sample), short(made)
    generator.generate([], sample)
    assert_equal(stock(made).generate([], sample), before, exactly=True)
    assert generator.generator.vocab_size == WORDS


def test_the_likeliest_and_the_most_frequent():
    rows = [
        Candidate("w0", "v9", 1, 0.1),
        Candidate("w0", "v7", 9, 0.9),
        Candidate("w1", "v8", 5, 1.0),
        Candidate("w1", "strange", 5, 1.0),
    ]
    shortlist = Shortlist(iter(rows), SOURCE, TARGET, 1, 2)

    def words(*sources):
        symbols = shortlist.symbols(torch.tensor([SOURCE.index(source) for source in sources]))
        return [TARGET[symbol] for symbol in symbols.tolist()[4:]]

    assert words("w0") == words("w1") == words("w0", "w1") == ["v7", "v8"]  # the two most linked are in every list
    assert shortlist.by_frequency[4:8].tolist() == [TARGET.index(word) for word in ("v7", "v8", "v9", "v0")]
    assert len(shortlist.by_frequency) == WORDS == len(set(shortlist.by_frequency.tolist()))


def test_the_list_has_translations_of_every_sentence_of_a_batch():
    sources = [[SOURCE.index("w0"), SOURCE.pad()], [SOURCE.index("w4"), SOURCE.index("w2")]]
    symbols = Shortlist(iter(ROWS), SOURCE, TARGET, 1, 0).symbols(torch.tensor(sources))
    assert [TARGET[symbol] for symbol in symbols.tolist()[4:]] == ["v0", "v2", "v4"]


@pytest.mark.parametrize("line", ["a b 1 0.5", "a\tb\t1", "a\tb\tone\t0.5", "a\tb\t1\t1.5", "a\tb\t-1\t0.5", ""])
def test_a_table_that_is_none(tmp_path, line):
    (tmp_path / "table").write_text(f"w0\tv0\t1\t0.5\n{line}\n")
    with pytest.raises(ValueError, match="table, line 2: not a source word, a target word, a count and a share"):
        list(read_candidates(tmp_path / "table"))


def test_a_table_may_be_a_stream(tmp_path):
    """A stream is, for example, ``<(zcat shortlist.tsv.gz)``; a folder or a missing file is named."""
    rows = [Candidate("w0", "v0", 1, 1.0), Candidate("w0", "v1", 0, 0.0)]  # the limits of both numbers
    assert list(read_candidates(pipe_of(b"w0\tv0\t1\t1\nw0\tv1\t0\t0\n"))) == rows
    for path, message in ((tmp_path, "Is a directory"), (tmp_path / "none", "there is no such file")):
        with pytest.raises(ValueError, match=message):
            list(read_candidates(path))


def test_a_line_of_other_bytes_is_left_out(tmp_path):
    """No dictionary has its word."""
    (tmp_path / "table").write_bytes(b"w\xff\tv0\t1\t0.5\nw0\tv1\t1\t0.5\n")
    shortlist = Shortlist(read_candidates(tmp_path / "table"), SOURCE, TARGET, 1, 0)
    assert [TARGET[symbol] for symbol in shortlist.symbols(torch.tensor([SOURCE.index("w0")])).tolist()[4:]] == ["v1"]


def test_a_model_that_cannot_be_cut_is_refused_at_the_start():
    model = lstm(0)
    model.decoder.fc_out = torch.nn.Linear(6, WORDS + 1)  # one more row than there are words
    with pytest.raises(ValueError, match="--shortlist cannot cut the vocabulary of a LSTMDecoder"):
        short([model])


def test_a_table_of_other_words():
    with pytest.raises(ValueError, match="no line of the shortlist's table has words of both dictionaries"):
        Shortlist(iter([Candidate("a", "v1", 1, 1.0)]), SOURCE, TARGET, 1, 1)


@pytest.fixture(scope="module")
def table(runs, tmp_path_factory):
    """The shortlist's table of the corpus, whose targets are reversed sources."""
    folder = tmp_path_factory.mktemp("table")
    (folder / "links").write_text(reversed_links(runs.text / "train.xx"))
    names = [runs.text / "train.xx", runs.text / "train.yy", "--alignments", folder / "links"]
    run("fairseq-attnvariants", "lexicon", *names, "--candidates", "3", "--output", folder / "table")
    return folder / "table"


def test_sizes_of_the_list(table):
    words = Dictionary()
    for word in CORPUS:
        words.add_symbol(word)
    for given, expected in (((1, 3), (1, 3)), ((None, None), (50, 100)), ((0, None), (0, 100))):
        sizes = dict(zip(("shortlist_size", "shortlist_frequent"), given))
        cfg = ShortlistTranslationConfig(shortlist=str(table), **sizes)
        shortlist = ShortlistTranslationTask(cfg, words, words).shortlist
        assert (shortlist.candidates.size(1), shortlist.frequent) == expected


def test_the_commands(runs, table):
    """Commands print as many translations as requested; with a list of all words, those of the stock task."""
    common = ["--user-dir", USER_DIR, "--path", runs.rnnsearch / "checkpoint_last.pt", "--cpu", "--beam", "2"]
    common += ["--task", "shortlist_translation"]
    lists = ["--shortlist", table, "--shortlist-size", "1", "--shortlist-frequent", "0"]
    generate = run(
        "fairseq-generate", runs.data, *common, *lists, "--batch-size", "1", "--print-alignment", "--nbest", "2"
    )
    hypotheses = [line.split("\t")[2].split() for line in generate.stdout.splitlines() if line.startswith("H-")]
    assert len(hypotheses) == 24 and "A-0\t" in generate.stdout
    interactive = run("fairseq-interactive", runs.data, *common, *lists, stdin="ant bee\ncat\n")
    assert interactive.stdout.count("\nH-") == 2
    plain = run("fairseq-generate", runs.data, *common)
    whole = run("fairseq-generate", runs.data, *common, "--shortlist", table, "--shortlist-frequent", "1000")
    assert [line for line in plain.stdout.splitlines() if line[:2] in ("H-", "P-")] == [
        line for line in whole.stdout.splitlines() if line[:2] in ("H-", "P-")
    ]


@pytest.mark.parametrize("options,message", [
    (["--shortlist-size", "5"], "--shortlist-size changes --shortlist, which is not given"),
    (["--shortlist", "TABLE", "--shortlist-frequent", "-1"], "--shortlist-frequent must be 0 or above, not -1"),
    (["--shortlist", "TABLE", "--score-reference"], "--score-reference reads the whole vocabulary"),
])  # fmt: skip
def test_refusals(runs, table, options, message):
    arguments = ["--user-dir", USER_DIR, "--path", runs.rnnsearch / "checkpoint_last.pt", "--cpu"]
    options = [table if option == "TABLE" else option for option in options]
    result = run("fairseq-generate", runs.data, *arguments, "--task", "shortlist_translation", *options, check=False)
    assert result.returncode and message in result.stderr


def test_what_reads_the_whole_vocabulary_is_refused_from_python(runs, table):
    task = ShortlistTranslationTask.setup_task(
        ShortlistTranslationConfig(data=str(runs.data), shortlist=str(table), source_lang="xx", target_lang="yy")
    )
    allowed = {"prefix_allowed_tokens_fn": lambda batch, prefix: [4]}
    for flag, args, given in (
        ("--lm-path", GenerationConfig(), {"extra_gen_cls_kwargs": {"lm_model": build("dl4mt")}}),
        ("prefix_allowed_tokens_fn", GenerationConfig(), allowed),
        ("prefix_allowed_tokens_fn", argparse.Namespace(**allowed), {}),
    ):
        with pytest.raises(ValueError, match=f"{flag} reads the whole vocabulary"):
            task.build_generator([build("dl4mt")], args, **given)


def test_from_python(runs, table):
    task = {"_name": "shortlist_translation", "shortlist": str(table), "shortlist_size": 1, "shortlist_frequent": 0}
    places = [str(runs.rnnsearch), "checkpoint_last.pt", str(runs.data)]
    hub = AttentionRNNModel.from_pretrained(*places, user_dir=USER_DIR, task=task)
    assert isinstance(hub.task.build_generator(hub.models, hub.cfg.generation), ShortlistGenerator)
    [translation] = hub.translate(["ant bee cat"], beam=1, attention=True)
    assert len(translation.target) == len(translation.attention)


def test_the_first_symbol_is_in_the_list(sample):
    """Some tasks start a target with its language, for example."""
    found = short(models("dl4mt")).generate([], sample, bos_token=36)
    symbols = allowed(sample)
    assert 36 not in symbols
    assert_equal(found, stock(forbid(models("dl4mt"), symbols | {36})).generate([], sample, bos_token=36))


def test_symbols_of_fairseqs_own_are_no_frequent_words():
    rows = [Candidate("w0", "</s>", 99, 0.5), Candidate("w0", "v7", 1, 0.5)]
    shortlist = Shortlist(iter(rows), SOURCE, TARGET, 0, 1)
    assert [TARGET[symbol] for symbol in shortlist.symbols(torch.tensor([5])).tolist()[4:]] == ["v7"]
    assert len(shortlist.by_frequency) == WORDS == len(set(shortlist.by_frequency.tolist()))
