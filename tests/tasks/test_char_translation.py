import argparse
import re
import warnings
from types import SimpleNamespace

import pytest
import sacrebleu
import torch
from conftest import build
from corpus import SIZES, USER_DIR, run
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterionConfig
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fairseq import metrics
    from fairseq.criterions.cross_entropy import CrossEntropyCriterion
    from fairseq.data import Dictionary
    from fairseq.dataclass.configs import GenerationConfig
    from fairseq.tasks.translation import TranslationTask

from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.models.fingerprint import fingerprint
from fairseq_attnvariants.models.hub import Hub
from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants.tasks import CharacterDictionary, CharTranslationTask
from fairseq_attnvariants.tasks.char_translation import CharTranslationConfig
from fairseq_attnvariants.tasks.character_dictionary import single_spaced, to_characters

ANY = st.text(st.characters(exclude_categories=("Cs",)))
# white space in Python, or invisible, but characters here
ODD = "\u00a0\u0085\u2028\u2029\u3000\ufeff\u200b\x00\x1c\x1f"
TEXT = st.text(st.sampled_from("ab<s>#é\u0301猫🐈" + ODD + "  \t\n\r\v\f"))


def with_spaces(text):
    """Join runs of white space as bytes.split finds them, which knows only ASCII's."""
    return b" ".join(text.encode().split()).decode()


class TestText:
    @given(ANY)
    def test_nothing_but_white_space_changes(self, text):
        assert single_spaced(text) == with_spaces(text) == "".join(to_characters(text))

    def test_a_character_is_a_code_point(self):
        assert to_characters("\te\u0301 \t \u00a0猫🐈<s>\n") == list("e\u0301 \u00a0猫🐈<s>")


def dictionary(text="", **finalize):
    result = CharacterDictionary()
    result.encode_line(text)
    result.finalize(padding_factor=1, **finalize)
    return result


class TestDictionary:
    @given(TEXT)
    def test_text_to_indices_to_text(self, text):
        characters = dictionary(text)
        assert characters.string(characters.encode_line(text, add_if_not_exist=False)) == with_spaces(text)

    @given(known=ANY, text=ANY)
    def test_a_file_keeps_everything(self, known, text, tmp_path_factory):
        file = str(tmp_path_factory.getbasetemp() / "dict.txt")
        saved = dictionary(known)
        saved.save(file)
        loaded = CharacterDictionary.load(file)
        assert (loaded.symbols, loaded.count[4:]) == (saved.symbols, saved.count[4:])
        for read in (loaded, CharacterDictionary.load(file)):
            assert torch.equal(read.encode_line(text, add_if_not_exist=False), saved.encode_line(text, None, False))

    def test_the_file_can_be_read_by_eye_and_by_stock_fairseq(self, tmp_path):
        characters = dictionary("a  b a")
        characters.save(str(tmp_path / "dict.txt"))
        assert (tmp_path / "dict.txt").read_text() == "<space> 3\na 2\nb 1\n"
        stock = Dictionary.load(str(tmp_path / "dict.txt"))
        assert stock.index("<space>") == characters.space() and stock.index("b") == characters.index("b")
        # so that a model is refused if --task char_translation is missing
        assert not torch.equal(fingerprint(stock), fingerprint(characters))

    def test_unknown_characters(self):
        characters = dictionary("ab")
        replaced = []
        ids = characters.encode_line("a?b", add_if_not_exist=False, consumer=lambda *pair: replaced.append(pair))
        a, b, unk = characters.index("a"), characters.index("b"), characters.unk()
        assert ids.tolist() == [a, unk, b, characters.eos()] and replaced == [("a", a), ("?", unk), ("b", b)]
        assert characters.string(ids) == "a<unk>b"
        assert characters.string(ids, escape_unk=True) == "a<<unk>>b"
        assert characters.string(ids, unk_string="") == "ab"

    def test_orders_and_ends(self):
        characters = dictionary("abc")
        backwards = characters.encode_line("abc", reverse_order=True, append_eos=False)
        assert characters.string(backwards) == "cba" and len(backwards) == 3
        assert characters.encode_line("").tolist() == [characters.eos()]

    def test_text_has_single_spaces_and_needs_no_post_processing(self):
        characters = dictionary("ab_@@ ")
        spaced = torch.tensor([4, 4, characters.index("a"), 4, 4, characters.index("b"), 4, 2])
        assert characters.string(spaced) == "a b"
        assert characters.string(torch.stack([spaced, spaced])) == "a b\na b"
        for kind in ("@@ ", "sentencepiece", "letter"):
            ids = characters.encode_line("a@@ b_ a")
            assert characters.string(ids, kind) == "a@@ b_ a"

    def test_the_space_is_always_there(self):
        characters = dictionary("aaabbc", threshold=2, nwords=6)
        assert characters.symbols[4:] == [" ", "a"] and characters.space() == 4

    @pytest.mark.parametrize("content", ["the 10\nof 5\n", "", "a 5\n"])
    def test_dictionaries_of_words_are_refused(self, content, tmp_path):
        (tmp_path / "dict.txt").write_text(content)
        with pytest.raises(ValueError, match="not with '<space> COUNT'.*--task char_translation"):
            CharacterDictionary.load(str(tmp_path / "dict.txt"))
        words, characters = CharTranslationTask.load_dictionary(str(tmp_path / "dict.txt")), dictionary("ab")
        for source, target, subwords, message in (
            (words, characters, False, "the source dictionary of data is not one of characters.*--source-subwords"),
            (characters, words, False, "the target dictionary of data is not one of characters"),
            (words, words, True, "the target dictionary of data is not one of characters"),
            (characters, characters, True, "the source dictionary of data is one of characters.*--source-subwords"),
        ):
            with pytest.raises(ValueError, match=message):
                CharTranslationTask(CharTranslationConfig(data="data", source_subwords=subwords), source, target)

    def test_a_space_without_a_count_is_refused(self, tmp_path):
        (tmp_path / "dict.txt").write_text("<space> a\n")
        with pytest.raises(ValueError, match="begins with '<space> a' and not with '<space> COUNT'"):
            CharacterDictionary.load(str(tmp_path / "dict.txt"))


class TestBuildDictionary:
    ALPHABET = [chr(0x4E00 + i) for i in range(400)]

    @pytest.fixture
    def file(self, tmp_path):
        """Text of 400 characters, earlier ones more frequent, without spaces."""
        lines = ["".join(self.ALPHABET[:n]) for n in range(1, 401)]
        (tmp_path / "text").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return str(tmp_path / "text")

    def test_the_300_most_frequent(self, file):
        symbols = CharTranslationTask.build_dictionary([file]).symbols
        assert symbols[4:] == [" ", *self.ALPHABET[:299]]

    def test_another_number(self, file):
        assert len(CharTranslationTask.build_dictionary([file], nwords=24)) == 24
        assert len(CharTranslationTask.build_dictionary([file], nwords=1000, padding_factor=1)) == 405

    def test_the_frequent_ones_of_all_files(self, file, tmp_path):
        """The first character occurs 400 times, and each later one once less than the one before."""
        found = CharTranslationTask.build_dictionary([file], threshold=390, padding_factor=1)
        assert found.symbols[4:] == [" ", *self.ALPHABET[:11]]
        (tmp_path / "more").write_text(self.ALPHABET[50] * 100 + "\n", encoding="utf-8")
        found = CharTranslationTask.build_dictionary([file, str(tmp_path / "more")], threshold=390, padding_factor=1)
        assert found.symbols[4:] == [" ", self.ALPHABET[50], *self.ALPHABET[:11]]


def task(alphabet="ab ", **options):
    cfg = CharTranslationConfig(train_subset="train", **options)
    return CharTranslationTask(cfg, dictionary(alphabet), dictionary(alphabet))


def loaded(folder, sources, targets, split="train", **options):
    """Return a task with one split, read from raw text."""
    for side, lines in (("xx", sources), ("yy", targets)):
        (folder / f"{split}.xx-yy.{side}").write_text("".join(line + "\n" for line in lines))
    options |= dict(data=str(folder), source_lang="xx", target_lang="yy", dataset_impl="raw")
    translation = task(required_seq_len_multiple=1, **options)
    translation.load_dataset(split)
    return translation


class TestSpaceBeforeEOS:
    def test_sources_for_inference(self):
        """Every source ends in one space and EOS, even if its tokens are used repeatedly, and its size counts them."""
        translation = task()
        tokens, lengths = translation.get_interactive_tokens_and_lengths(["ab", "", " a b "], lambda line: line)
        for _ in range(2):
            dataset = translation.build_dataset_for_inference(tokens, lengths)
            batch = dataset.collater([dataset[i] for i in range(3)])
            rows = [row[row != 1].tolist() for row in batch["net_input"]["src_tokens"]]
            a, b = (translation.source_dictionary.index(character) for character in "ab")
            assert sorted(rows, key=len) == [[4, 2], [a, b, 4, 2], [a, 4, b, 4, 2]]
            assert dataset.sizes.tolist() == batch["net_input"]["src_lengths"].sort().values[[1, 0, 2]].tolist()

    @pytest.mark.parametrize("truncate,lengths", [(False, [2, 5, 13]), (True, [2, 5, 6])])
    def test_loaded_sources(self, truncate, lengths, tmp_path):
        lines = ["", "a \tb", "abababababa"]
        options = dict(truncate_source=truncate, max_source_positions=6)
        translation = loaded(tmp_path, lines, lines, **options)
        dataset, room = translation.dataset("train"), (lengths[-1], 20)
        assert sorted(translation.filter_indices_by_size(dataset.ordered_indices(), dataset, room, False)) == [0, 1, 2]
        assert [len(dataset[i]["source"]) for i in range(3)] == lengths
        assert all(dataset[i]["source"][-2:].tolist() == [4, 2] for i in range(3))
        assert [dataset[i]["target"].tolist().count(4) for i in range(3)] == [0, 1, 0]
        if not truncate:
            assert dataset.sizes.tolist() == [[2, 1], [5, 4], [13, 12]]
            assert [dataset.size(i) for i in range(3)] == [(2, 1), (5, 4), (13, 12)]

    def test_buckets_are_refused(self):
        with pytest.raises(ValueError, match="--num-batch-buckets does not work"):
            task(num_batch_buckets=4)


class TestLengths:
    @pytest.fixture
    def kept(self, tmp_path):
        """Return a function that says which pairs of some lengths are kept."""

        def keep(lengths, split, ignore, trains=True, **options):
            translation = loaded(tmp_path, *(["a" * n for n in side] for side in zip(*lengths)), split, **options)
            if trains:
                translation.build_criterion(
                    LabelSmoothedCrossEntropyCriterionConfig(_name="label_smoothed_cross_entropy")
                )
            dataset = translation.dataset(split)
            limits = translation.max_positions()
            return sorted(translation.filter_indices_by_size(dataset.ordered_indices(), dataset, limits, ignore))

        return keep

    def test_training_leaves_out_what_is_longer_than_300_characters(self, kept):
        lengths = [(300, 300), (301, 3), (3, 301), (0, 0)]
        assert kept(lengths, "train", True) == [0, 3]
        assert kept(lengths, "train", True, max_train_characters=3) == [3]
        assert kept(lengths, "train", True, max_train_characters=0) == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="--max-train-characters 1 leaves no pair of train: make it larger, or 0"):
            kept(lengths[:3], "train", True, max_train_characters=1)

    @pytest.mark.parametrize("split,ignore", [("valid", False), ("valid", True), ("train", False)])
    def test_validation_and_generation_do_not(self, kept, split, ignore):
        assert kept([(301, 301), (9998, 9999)], split, ignore) == [0, 1]

    def test_translating_the_training_text_does_not(self, kept):
        assert kept([(301, 301), (9998, 9999)], "train", True, trains=False) == [0, 1]
        with pytest.raises(ValueError, match="--max-train-characters must be at least 0, not -1"):
            task(max_train_characters=-1)

    def test_what_is_longer_than_the_positions_is_refused(self, kept):
        with pytest.raises(Exception, match="Size of sample #0 is invalid"):
            kept([(9999, 3)], "valid", False)

    @pytest.mark.parametrize("given,expected", [
        (GenerationConfig(), (3, 200)),
        (argparse.Namespace(beam=1), (3, 200)),
        (OmegaConf.structured(GenerationConfig()), (3, 200)),
        (GenerationConfig(max_len_b=199), (0, 199)),
        (GenerationConfig(max_len_a=1.5), (1.5, 200)),
        (argparse.Namespace(max_len_b=50), (0, 50)),
    ])  # fmt: skip
    def test_limit_of_generation(self, given, expected):
        before = str(given)
        translation = task()
        generator = translation.build_generator([build("rnnsearch", translation)], given)
        assert (generator.max_len_a, generator.max_len_b) == expected and str(given) == before

    def test_a_generator_gets_all_that_it_is_given(self):
        translation, allowed = task(), lambda batch, prefix: [4]
        model = build("rnnsearch", translation)
        for options, named in (
            (GenerationConfig(), dict(prefix_allowed_tokens_fn=allowed)),
            (argparse.Namespace(prefix_allowed_tokens_fn=allowed), {}),
        ):
            generator = translation.build_generator([model], options, **named)
            assert generator.search.prefix_allowed_tokens_fn is allowed

    def test_constraints_are_those_of_the_dataset(self):
        translation = task()
        tokens, lengths = translation.get_interactive_tokens_and_lengths(["a", "b"], lambda line: line)
        constraints = torch.tensor([[1, 5, 2], [0, 0, 0]])
        dataset = translation.build_dataset_for_inference(tokens, lengths, constraints)
        assert dataset.collater([dataset[0], dataset[1]])["constraints"].tolist() == constraints.tolist()

    def test_generation_beyond_200_symbols(self):
        """A translation that a model never ends stops at the limit, not at 200."""
        translation = task()
        model = build("rnnsearch", translation)
        model.decoder.output_projection.bias.data[translation.target_dictionary.index("a")] = 50
        generator = translation.build_generator([model], GenerationConfig(beam=1))
        tokens, sizes = translation.get_interactive_tokens_and_lengths(["ab" * 10], lambda line: line)
        dataset = translation.build_dataset_for_inference(tokens, sizes)
        [[best]] = translation.inference_step(generator, [model], dataset.collater([dataset[0]]))
        assert translation.target_dictionary.string(best["tokens"]) == "a" * (3 * 22 + 200)


HYPOTHESES = ["the cat sat", "", "a dog runs in the park .", "x", "un élan et une bête ici"]
REFERENCES = ["the cat sat down", "nothing here", "a dog runs in the big park .", "x", "un élan et une bête là"]


class TestScores:
    """BLEU and chrF of validation are those of the full corpus, for any division into batches and processes."""

    def reduced(self, translation, steps):
        with metrics.aggregate() as found:
            for outputs in steps:
                translation.reduce_metrics(outputs, CrossEntropyCriterion(translation, False))
        return found

    @given(st.lists(st.integers(0, 2), min_size=5, max_size=5), st.booleans())
    def test_batches_and_processes(self, cut, by_processes):
        translation = task()
        outputs = []
        for part in range(3):
            chosen = [i for i in range(5) if cut[i] == part]
            if chosen:
                texts = [HYPOTHESES[i] for i in chosen], [REFERENCES[i] for i in chosen]
                counts = {key: n for score in translation.scores for key, n in score.counts(*texts).items()}
                outputs.append({"loss": 0.0, "ntokens": 1, "nsentences": 1, "sample_size": 1, **counts})
        if by_processes:  # as fairseq sums them, in float64
            outputs = [{key: torch.tensor(float(sum(log[key] for log in outputs))).double() for key in outputs[0]}]
        found = self.reduced(translation, [[log] for log in outputs]).get_smoothed_values()
        assert found["bleu"] == round(sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score, 2) > 0
        assert found["chrf"] == round(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score, 2) > 0

    def test_tokens_are_scored_as_they_are(self):
        """--eval-tokenized-bleu does this."""
        texts, found = (["the cat sat down."], ["the cat sat down ."]), []
        for tokenized in (False, True):
            translation = task(eval_tokenized_bleu=tokenized)
            counts = translation.scores[0].counts(*texts)
            log = {"loss": 0.0, "ntokens": 1, "nsentences": 1, "sample_size": 1, **counts}
            found.append(self.reduced(translation, [[log]]).get_smoothed_values()["bleu"])
        assert found[0] == 100 > found[1] > 0

    def test_training_logs_neither(self):
        log = {"loss": 0.0, "ntokens": 1, "nsentences": 1, "sample_size": 1}
        assert not {"bleu", "chrf"} & set(self.reduced(task(), [[log]]))

    def test_meters_are_plain_numbers(self):
        translation = task()
        counts = {key: torch.tensor(2.0) for score in translation.scores for key in score.keys}
        log = {"loss": 0.0, "ntokens": 1, "nsentences": 1, "sample_size": 1, **counts}
        state = self.reduced(translation, [[log]]).state_dict()
        kept = {key: meter["sum"] for _, key, _, meter in state if key.startswith("_")}
        assert len(kept) == 28 and set(map(type, kept.values())) == {int}

    def test_an_unknown_character_is_never_right(self, monkeypatch):
        translation = task(eval_bleu=True)
        characters = translation.target_dictionary
        unknown = characters.encode_line("a?b", add_if_not_exist=False)
        monkeypatch.setattr(translation, "inference_step", lambda *_: [[{"tokens": unknown}]])
        translation.sequence_generator = translation.tokenizer = None
        sample = {"target": torch.stack([unknown])}
        _, _, log = translation.valid_step(sample, torch.nn.Identity(), lambda model, sample: (0.0, 1, {}))
        assert [log[f"_chrf_{i}"] for i in range(3)] == [3, 3, 2]  # hypothesis, reference, matches
        assert log["_bleu_2"] == 0

    def test_text_is_detokenised_and_shown(self, monkeypatch, caplog):
        """The best hypothesis and the target are detokenised; --eval-bleu-print-samples logs the first sentence."""
        translation = task(eval_bleu=True, eval_bleu_print_samples=True)
        first, second = (translation.target_dictionary.encode_line(text, add_if_not_exist=False) for text in "ab")
        monkeypatch.setattr(translation, "inference_step", lambda *_: [[{"tokens": first}, {"tokens": second}]])
        translation.sequence_generator, translation.tokenizer = None, SimpleNamespace(decode=str.upper)
        assert translation._translate({"target": torch.stack([second])}, None) == (["A"], ["B"])
        assert [record.message for record in caplog.records][-2:] == ["example hypothesis: A", "example reference: B"]


ODD_LINES = ["", "\tant   bee ", "e\u0301lan élan", "5\u00a0km", "a\u2028b\u0085c", "猫🐈 猫", "<unk> </s> <space> #"]
TARGET = "die Ameise 猫 é."
SPLITS = {
    "train": [("ant bee", TARGET)] * 40 + [(line, line) for line in ODD_LINES] + [("x" * 301, "x")],
    "valid": [("ant bee", TARGET), ("bee ant", "die Ameise und 猫 é ."), ("x y" * 150, "die Ameise"), ("", "")],
    "test": [(line, line) for line in ODD_LINES],
}
TASK = ["--user-dir", USER_DIR, "--task", "char_translation"]
# more than fairseq's 200 symbols would be slow, because the model has not yet learned to stop
SHORT = ["--max-len-a", "0", "--max-len-b", "30"]


def preprocess(folder, *more):
    for split, lines in SPLITS.items():
        for side, text in zip(("xx", "yy"), zip(*lines)):
            (folder / f"{split}.{side}").write_text("".join(line + "\n" for line in text), encoding="utf-8")
    prefixes = [f"--{split}pref={folder / split}" for split in SPLITS]
    run("fairseq-preprocess", *TASK, "-s", "xx", "-t", "yy", *prefixes, "--destdir", folder / "bin", *more)
    return folder / "bin"


def train(data, save_dir, *more, arch="rnnsearch"):
    arguments = [data, *TASK, "--arch", arch, *SIZES, "--save-dir", save_dir, "--seed", "5"]
    arguments += ["--optimizer", "adam", "--lr", "0.03", "--clip-norm", "1", "--batch-size", "2", "--cpu"]
    arguments += ["--batch-size-valid", "3", "--log-format", "simple", "--num-workers", "0", "--eval-bleu"]
    arguments += ["--eval-bleu-args", '{"beam": 1, "max_len_a": 0, "max_len_b": 30}']
    arguments += ["--best-checkpoint-metric", "chrf", "--maximize-best-checkpoint-metric"]
    process = run("fairseq-train", *arguments, *more)
    return process.stdout + process.stderr


def validated(log, metric):
    return [float(score) for score in re.findall(rf"on 'valid' subset.* \| {metric} ([\d.]+)", log)]


def generate(data, path, *more):
    return run("fairseq-generate", data, *TASK, "--path", path, "--cpu", "--batch-size", "3", *SHORT, *more).stdout


def lines(output, mark):
    """Return the texts of the lines with a mark, by sentence; a text may contain other line separators."""
    rows = (line.split("\t") for line in output.split("\n") if line.startswith(f"{mark}-"))
    return [text for _, text in sorted((int(head[2:]), fields[-1]) for head, *fields in rows)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return preprocess(tmp_path_factory.mktemp("characters"), "--workers", "2")


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The folder of a training of two epochs, of which the second is resumed, and the two logs."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, train(data, folder, "--max-epoch", "1"), train(data, folder, "--max-epoch", "2")


@pytest.mark.commands
class TestSubwords:
    """Subwords in, characters out, by stock commands."""

    @pytest.fixture(scope="class")
    def data(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("subwords")
        (folder / "codes").write_text("#version: 0.2\na n\nb e\n")
        sides = ["-s", "xx", "-t", "yy", f"--trainpref={folder / 'train'}"]
        for split in ("train", "valid"):
            for side, text in (("xx", "an@@ t be@@ e"), ("yy", TARGET)):
                (folder / f"{split}.{side}").write_text(f"{text}\n" * 8)
        run("fairseq-preprocess", *sides, "--destdir", folder / "subwords", "--only-source", "--dict-only")
        sides += [f"--validpref={folder / 'valid'}", "--srcdict", folder / "subwords" / "dict.xx.txt"]
        run("fairseq-preprocess", *TASK, *sides, "--destdir", folder / "bin")
        return folder

    @pytest.fixture(scope="class")
    def trained(self, data):
        """A checkpoint, and the log with BLEU and chrF."""
        log = train(data / "bin", data / "run", "--source-subwords", "--max-epoch", "12", arch="bpe2char")
        return data / "run" / "checkpoint_best.pt", log

    @pytest.fixture(scope="class")
    def generated(self, data, trained):
        path, _ = trained
        return generate(data / "bin", path, "--source-subwords", "--gen-subset", "valid", "--print-alignment")

    def test_sources_are_as_the_stock_task_has_them(self, trained, generated):
        _, log = trained
        assert max(validated(log, "chrf")) > 50
        assert set(lines(generated, "S")) == {"an@@ t be@@ e"} and set(lines(generated, "T")) == {TARGET}
        links = [link.split("-") for line in lines(generated, "A") for link in line.split()]
        assert {int(source) for source, _ in links} <= set(range(5))  # four subwords and EOS

    def test_raw_text_goes_in(self, data, trained, generated):
        path, _ = trained
        arguments = [data / "bin", *TASK, "--source-subwords", "--path", path, "--cpu", *SHORT]
        arguments += ["--bpe", "subword_nmt", "--bpe-codes", data / "codes"]
        output = run("fairseq-interactive", *arguments, stdin="ant bee\n").stdout
        assert lines(output, "S") == ["an@@ t be@@ e"]
        assert lines(output, "D") == lines(generated, "D")[:1]
        hub = AttentionRNNModel.from_pretrained(
            str(path.parent),
            path.name,
            str(data / "bin"),
            user_dir=USER_DIR,
            bpe="subword_nmt",
            bpe_codes=str(data / "codes"),
        )
        assert hub.translate(["ant bee"], beam=5, max_len_a=0, max_len_b=30) == lines(output, "D")

    def test_it_is_said_where_the_option_is_missing(self, data, trained):
        process = run("fairseq-generate", data / "bin", *TASK, "--path", trained[0], "--cpu", check=False)
        assert "needs --source-subwords" in process.stderr.strip().splitlines()[-1]

    def test_limit_of_generation(self):
        translation = of_subwords()
        generator = translation.build_generator([build("rnnsearch", translation)], GenerationConfig())
        assert (generator.max_len_a, generator.max_len_b) == (12, 200)


@pytest.mark.commands
@pytest.mark.parametrize("arch", ["char2char", "character"])
def test_other_architectures_on_characters(arch, data, tmp_path):
    """Models train, and alignments count a source's symbols: its characters, a space and EOS."""
    small = "--encoder-filters 4-4-4 --encoder-highway-layers 1 --encoder-layers 1 --decoder-layers 2"
    train(data, tmp_path, *small.split(), "--max-update", "3", arch=arch)
    output = generate(data, tmp_path / "checkpoint_last.pt", "--print-alignment", "soft")
    characters = CharacterDictionary.load(str(data / "dict.xx.txt"))
    for source, line in zip(lines(output, "S"), lines(output, "A"), strict=True):
        symbols = len(characters.encode_line(source, add_if_not_exist=False)) + 1
        assert {len(weights.split(",")) for weights in line.split()} == {symbols}


@pytest.mark.commands
class TestCommands:
    def test_workers_change_nothing(self, data, tmp_path):
        alone = preprocess(tmp_path, "--workers", "1")
        for file in sorted(data.glob("*.*")):
            if file.name != "preprocess.log":
                assert (alone / file.name).read_bytes() == file.read_bytes(), file.name

    def test_training_and_resuming(self, trained):
        folder, first, second = trained
        assert "1 samples have invalid sizes and will be skipped" in first
        assert "Loaded checkpoint" in second and "Loaded checkpoint" not in first
        for metric in ("bleu", "chrf"):
            assert len(validated(first, metric)) == len(validated(second, metric)) == 1
        best = max(validated(first, "chrf") + validated(second, "chrf"))
        checkpoint = torch.load(folder / "checkpoint_best.pt", weights_only=True)
        assert checkpoint["extra_state"]["best"] == best > 0

    def test_generation_gives_text_and_the_scores_of_validation(self, data, trained):
        folder, _, log = trained
        output = generate(
            data, folder / "checkpoint2.pt", "--gen-subset", "valid", "--beam", "1", "--scoring", "sacrebleu"
        )
        sources, references = zip(*SPLITS["valid"])
        assert lines(output, "S") == [with_spaces(source).replace("y", "<unk>") for source in sources]
        assert lines(output, "T") == list(references)
        hypotheses = lines(output, "D")
        assert hypotheses == lines(output, "H") == [with_spaces(text) for text in hypotheses]
        [bleu], [chrf] = validated(log, "bleu"), validated(log, "chrf")
        assert bleu == round(sacrebleu.corpus_bleu(hypotheses, [references]).score, 2)
        assert chrf == round(sacrebleu.corpus_chrf(hypotheses, [references]).score, 2) > 0
        assert f"BLEU = {bleu:.2f}" in output

    def test_odd_lines_in_step(self, data, trained):
        output = generate(data, trained[0] / "checkpoint_best.pt", "--post-process", "sentencepiece")
        assert lines(output, "S") == lines(output, "T") == [with_spaces(line) for line in ODD_LINES]

    def test_interactive_and_hub_translate_the_same_text(self, data, trained):
        folder, *_ = trained
        arguments = [data, *TASK, "--path", folder / "checkpoint_best.pt", "--cpu", "--beam", "2", *SHORT]
        output = run("fairseq-interactive", *arguments, stdin="ant\t bee \n\nbee é?\n").stdout
        assert lines(output, "S") == ["ant bee", "", "bee é<unk>"]
        hub = AttentionRNNModel.from_pretrained(str(folder), "checkpoint_best.pt", str(data), user_dir=USER_DIR)
        search = dict(beam=2, max_len_a=0, max_len_b=30)
        assert hub.translate(["ant\t bee ", "", "bee é?"], **search) == lines(output, "D") == lines(output, "H")
        assert any(lines(output, "D"))

    def test_stock_lstm(self, data, tmp_path):
        log = train(data, tmp_path, "--max-update", "2", arch="lstm")
        assert len(validated(log, "chrf")) == 1

    def test_a_folder_of_words_is_refused(self, tmp_path):
        for side in ("xx", "yy"):
            (tmp_path / f"dict.{side}.txt").write_text("ant 5\nbee 4\n")
        sides = ["-s", "xx", "-t", "yy", "--batch-size", "1"]
        saved = ["--save-dir", tmp_path / "run", "--arch", "rnnsearch", "--optimizer", "adam"]
        process = run("fairseq-train", tmp_path, *TASK, *sides, *saved, "--cpu", check=False)
        assert re.search("^fairseq-train: error: .*not one of characters", process.stderr.strip().splitlines()[-1])


def of_subwords():
    source = Dictionary()
    source.add_symbol("ab@@")
    return CharTranslationTask(CharTranslationConfig(source_subwords=True), source, dictionary("ab"))


def test_subwords_are_of_the_source_alone(monkeypatch):
    """The task and the hub leave spaces and "@@ " of targets as they are."""
    bpe = SimpleNamespace(encode=lambda text: f"{text}@@", decode=lambda text: text.replace(" ", ""))
    monkeypatch.setattr(TranslationTask, "build_bpe", lambda task, args: args)
    translation = of_subwords()
    found = translation.build_bpe(bpe)
    assert (found.encode("ab"), found.decode("a b@@ c")) == ("ab@@", "a b@@ c") and translation.build_bpe(None) is None
    hub = object.__new__(Hub)
    hub.__dict__.update(src_dict=Dictionary(), tgt_dict=dictionary("ab"), bpe=bpe, tokenizer=None)
    assert hub.remove_bpe("a b@@ c") == "a b@@ c" and len(hub._encode_target("ab")) == 2
    translation.build_generator([build("rnnsearch", translation)], GenerationConfig(constraints="ordered"))
    with pytest.raises(ConfigurationError, match="--bpe would cut --constraints as it cuts the source"):
        translation.build_bpe(bpe)
