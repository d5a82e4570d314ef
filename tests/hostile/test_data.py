"""Wrong data folders and command lines are refused in one sentence, before anything is written."""

import contextlib
import os
import shutil
import sys

import corpus
import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.data import Dictionary, LanguagePairDataset, indexed_dataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_attnvariants.patches.environment import check_environment
from fairseq_attnvariants.patches.messages.data import check_binarised, check_dictionary, check_lengths, find_languages
from fairseq_attnvariants.patches.training.alignments import load_langpair_dataset
from fairseq_attnvariants.registry import ConfigurationError

pytestmark = [pytest.mark.hostile, pytest.mark.filterwarnings("ignore")]  # stock fairseq has many


@pytest.fixture
def folder(binarised, tmp_path):
    """A copy of the corpus, which tests damage."""
    return shutil.copytree(binarised, tmp_path / "bin")


@pytest.fixture(scope="module")
def raw(binarised):
    return corpus.preprocess(binarised.parent, "raw", "--joined-dictionary", "--dataset-impl", "raw")


@pytest.fixture
def refused(tmp_path):
    """A function that runs a command, which has to end in one sentence, without a traceback, and leave no files."""

    def run(message, command, *arguments, stdin=None):
        if command == "fairseq-train":
            arguments = corpus.train_arguments(arguments[0], tmp_path / "run", "--max-update", "2", *arguments[1:])
        done = corpus.run(command, *arguments, check=False, stdin=stdin)
        last = done.stderr.splitlines()[-1]
        assert done.returncode != 0 and last.startswith(f"{command}: error: ") and message in last, done.stderr
        assert "Traceback" not in done.stderr and not list(tmp_path.glob("run/*"))

    return run


def test_a_refusal_by_a_module_of_fairseq_is_a_sentence(monkeypatch, capsys):
    """``python -m fairseq_cli.train`` and ``strings``, which starts it, print no traceback either."""
    monkeypatch.setattr(sys, "argv", ["/site-packages/fairseq_cli/train.py"])
    sys.excepthook(ConfigurationError, ConfigurationError("--arch x: no"), None)
    assert capsys.readouterr().err == "fairseq-train: error: --arch x: no\n"


def touch(folder, *names):
    for name in names:
        (folder / name).touch()


def test_languages_of_a_folder(tmp_path):
    """Names of languages may have hyphens; given languages narrow the choice, in either direction."""
    touch(tmp_path, *(f"dict.{language}.txt" for language in ("zh-Hans", "en", "de")))
    with pytest.raises(ConfigurationError, match="unclear, it has no binarised text: give both, as -s and -t"):
        find_languages(str(tmp_path), None, None)
    touch(tmp_path, "preprocess.log", "train.zh-Hans-en.en.idx", "a-b.txt", "x.zh-en.y")
    assert find_languages(str(tmp_path), None, None) == ("zh-Hans", "en")
    assert find_languages(str(tmp_path), "en", None) == ("en", "zh-Hans")
    touch(tmp_path, "valid.de-en.de")
    assert find_languages(str(tmp_path), "de", None) == ("de", "en")
    for given in ((None, None), ("en", None), (None, "en")):
        with pytest.raises(ConfigurationError, match="unclear, it has de-en, zh-Hans-en: give both"):
            find_languages(str(tmp_path), *given)
    with pytest.raises(ConfigurationError, match="-t fr: .* has no dict.fr.txt, it has de-en"):
        find_languages(str(tmp_path), "en", "fr")
    with pytest.raises(ConfigurationError, match="there is no data folder"):
        find_languages(str(tmp_path / "none"), "en", "fr")
    with pytest.raises(
        ConfigurationError, match=r"no data folder none in .* \(hydra changes the folder: give it an abs"
    ):
        find_languages("none", "en", "fr")


def rename(folder, source):
    """Rename the source language of the corpus."""
    for path in folder.glob("*xx*"):
        path.rename(folder / path.name.replace("xx", source))


def test_trainings_on_the_right_languages(binarised, folder, refused, tmp_path):
    rename(folder, "zh-Hans")
    corpus.train_here(*corpus.train_arguments(folder, tmp_path / "hyphen", "--max-update", "1"))
    assert (tmp_path / "hyphen" / "checkpoint_last.pt").exists()
    shutil.copytree(binarised, folder, dirs_exist_ok=True)
    refused("it has xx-yy, zh-Hans-yy: give both, as -s and -t", "fairseq-train", folder)


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def change(path, kind, at, value):
    """Write one number into a file, at a byte."""
    content = bytearray(path.read_bytes())
    number = np.array(value, kind).tobytes()
    content[at : at + len(number)] = number
    path.write_bytes(content)


SIZES, FIRST = 26, "train.xx-yy.yy"  # where the lengths begin in an index; the file that is damaged
DAMAGE = {
    "index cut off": (lambda d: cut(d / f"{FIRST}.idx"), "train.xx-yy.yy.idx is damaged or cut off"),
    "index empty": (lambda d: (d / f"{FIRST}.idx").write_bytes(b""), "is no index that fairseq-preprocess writes"),
    "index a stub": (lambda d: (d / f"{FIRST}.idx").write_bytes(b"MMIDIDX\0\0\1"), "idx is damaged or cut off"),
    "index a text": (lambda d: (d / f"{FIRST}.idx").write_text("a b c"), "is no index that fairseq-preprocess writes"),
    "index of numbers unknown": (lambda d: change(d / f"{FIRST}.idx", "u1", 17, 99), "idx is damaged or cut off"),
    "index of no version": (lambda d: change(d / f"{FIRST}.idx", "u1", 9, 2), "idx is damaged or cut off"),
    "length below zero": (lambda d: change(d / f"{FIRST}.idx", "i4", SIZES, -3), "train.xx-yy.yy.idx is damaged"),
    "length without end": (lambda d: change(d / f"{FIRST}.idx", "i4", SIZES, 1 << 30), "train.xx-yy.yy.idx is damaged"),
    "text cut off": (lambda d: cut(d / f"{FIRST}.bin"), "train.xx-yy.yy.bin is cut off, or train.xx-yy.yy.idx is that"),
    "text empty": (lambda d: (d / f"{FIRST}.bin").write_bytes(b""), "train.xx-yy.yy.bin is cut off"),
    "text of valid": (lambda d: shutil.copy(d / "valid.xx-yy.yy.bin", d / f"{FIRST}.bin"), "is that of another text"),
    "index of valid": (lambda d: shutil.copy(d / "valid.xx-yy.yy.idx", d / f"{FIRST}.idx"), "is that of another text"),
    "split of valid": (
        lambda d: [shutil.copy(d / f"valid.xx-yy.yy.{end}", d / f"{FIRST}.{end}") for end in ("idx", "bin")],
        "train.xx-yy has not as many lines in xx as in yy"),
    "symbol unknown": (lambda d: change(d / f"{FIRST}.bin", "u2", 0, 999), "yy, line 1: a symbol that its dictionary"),
    "padding": (lambda d: change(d / f"{FIRST}.bin", "u2", 0, 1), "yy, line 1: <pad>, with which fairseq pads"),
    "index missing": (lambda d: (d / f"{FIRST}.idx").unlink(), "yy.bin is there, and .*yy.idx is not"),
    "text missing": (lambda d: (d / f"{FIRST}.bin").unlink(), "yy.idx is there, and .*yy.bin is not"),
    "source missing": (lambda d: [(d / f"train.xx-yy.xx.{end}").unlink() for end in ("idx", "bin")],
        "no split 'train' of xx-yy, but test, valid: correct --train-subset"),
}  # fmt: skip


def load_split(folder, split="train", kind=None, **more):
    cfg = TranslationConfig(data=str(folder), dataset_impl=kind, required_seq_len_multiple=1, **more)
    task = TranslationTask.setup_task(cfg)
    task.load_dataset(split)
    return task


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_files_are_named(folder, kind):
    damage, message = DAMAGE[kind]
    damage(folder)
    with pytest.raises(ConfigurationError, match=message):
        load_split(folder)


def test_a_sentence_without_a_symbol_is_refused(folder):
    """It would also crash fairseq's BLEU (``Segmentation fault``), which reads before the beginning to find an end."""
    prefix = str(folder / "valid.xx-yy.yy")
    builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", 16)
    for line in range(12):
        builder.add_item(torch.IntTensor([2] if line != 4 else []))
    builder.finalize(f"{prefix}.idx")
    with pytest.raises(ConfigurationError, match="valid.xx-yy.yy, line 5: no symbol"):
        load_split(folder, "valid")


def test_symbols_that_are_not_printed_are_told(folder, caplog):
    change(folder / f"{FIRST}.bin", "u2", 0, 0)
    load_split(folder)
    assert "train.xx-yy.yy, line 1: <s> is one of fairseq's symbols" in caplog.text


@pytest.mark.parametrize("numbers", [[0], [0, 0, 1]])
def test_alignments_that_are_no_pairs_are_refused(folder, numbers):
    prefix = str(folder / "train.align.xx-yy")
    builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap")
    for _ in range(120):
        builder.add_item(torch.IntTensor(numbers))
    builder.finalize(f"{prefix}.idx")
    with pytest.raises(ConfigurationError, match="train.align.xx-yy.bin holds no links"):
        load_split(folder, load_alignments=True)
    cut(folder / "train.align.xx-yy.bin")
    with pytest.raises(ConfigurationError, match="train.align.xx-yy.bin is cut off"):
        load_split(folder, load_alignments=True)


def test_raw_text_is_named(raw, binarised, tmp_path):
    with pytest.raises(ConfigurationError, match="xx is raw text: give --dataset-impl raw"):
        load_split(raw)
    with pytest.raises(ConfigurationError, match="idx is no raw text: leave --dataset-impl raw out"):
        load_split(binarised, kind="raw")
    spoilt = shutil.copytree(raw, tmp_path / "raw")
    lines = (spoilt / "train.xx-yy.xx").read_bytes().splitlines(keepends=True)
    for bad, said in ((b"ant \xff\n", "not UTF-8 .*: save it as UTF-8"), (b"ant\rbee\n", "a carriage return")):
        (spoilt / "train.xx-yy.xx").write_bytes(b"".join([lines[0], bad, *lines[2:]]))
        with pytest.raises(ConfigurationError, match=f"train.xx-yy.xx, line 2: {said}"):
            load_split(spoilt, kind="raw")
    (spoilt / "train.xx-yy.xx").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(ConfigurationError, match="has not as many lines in xx as in yy"):
        load_split(spoilt, kind="raw")


@pytest.mark.parametrize("kind", ["raw", "mmap"])
@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_training_needs_targets(raw, binarised, refused, tmp_path, kind, split):
    spoilt = shutil.copytree(raw if kind == "raw" else binarised, tmp_path / "data")
    for path in spoilt.glob(f"{split}.xx-yy.yy*"):
        path.unlink()
    refused(f"the split '{split}' has no target", "fairseq-train", spoilt, "--dataset-impl", kind)


def test_an_empty_text_is_refused(raw, refused, tmp_path):
    spoilt = shutil.copytree(raw, tmp_path / "data")
    for language in ("xx", "yy"):
        (spoilt / f"valid.xx-yy.{language}").write_text("")
    refused("valid.xx-yy has no lines", "fairseq-train", spoilt, "--dataset-impl", "raw")


@pytest.mark.parametrize("more, message", [
    (("--valid-subset", "valid,valid1"), "no split 'valid1' of xx-yy, but test, train, valid"),
    (("--valid-subset", "valid, test"), "no split ' test' of xx-yy"),
    (("--valid-subset", "valid,"), "no split '' of xx-yy"),
    (("--max-tokens", "5"), "valid.xx-yy has 6 symbols in its source, with the end of the sentence, and --max-"),
    (("--max-tokens", "50", "--max-tokens-valid", "5"), "--max-tokens (in validation --max-tokens-valid) is 5: "),
    (("--max-target-positions", "5"), "has 6 symbols in its target, with the end of the sentence, and --max-target"),
    (("--max-tokens", "1"), "is short enough for --max-tokens (in validation --max-tokens-valid)"),
    (("--max-target-positions", "1"), "no line of {}: train.xx-yy is short enough for --max-target-positions"),
])  # fmt: skip
def test_a_training_that_could_not_validate_does_not_begin(binarised, refused, more, message):
    refused(message.format(binarised), "fairseq-train", binarised, *more)


def test_the_limit_of_a_trained_model_is_named_as_such(binarised):
    """The message names the option for a trained model, since larger options of the task do not change its limit."""
    task = load_split(binarised, "valid", "mmap")
    with pytest.raises(
        ConfigurationError, match=r"--max-source-positions \(of a trained model also by --model-o.* is 3"
    ):
        task.get_batch_iterator(task.dataset("valid"), max_positions=(3, 1024))


def test_arguments_without_names_are_those_of_stock_fairseq(binarised):
    task = load_split(binarised, "train", "mmap")
    batches = task.get_batch_iterator(task.dataset("train"), None, 9, None, False, 4).frozen_batches
    assert {len(batch) for batch in batches} == {8}


@pytest.fixture(scope="module")
def two(binarised):
    """A folder with ``train`` and ``train1`` of 120 and 12 sentences, ``valid`` and ``valid1`` of 120 and 12."""
    text = binarised.parent
    texts = f"{text / 'train'},{text / 'valid'}"
    prefixes = (f"--trainpref={text / 'train'}", f"--validpref={texts}")
    run = ("fairseq-preprocess", "-s", "xx", "-t", "yy", *prefixes, "--destdir", text / "two", "--joined-dictionary")
    corpus.run(*run)
    for path in (text / "two").glob("valid1.*"):
        shutil.copy(path, path.with_name(path.name.replace("valid1", "train1")))
    return text / "two"


@pytest.mark.parametrize("more, sentences", [
    (("--valid-subset", "valid,valid1"), (132, 120, 12)),
    (("--combine-valid-subsets",), (132, 132)),
    (("--ignore-unused-valid-subsets", "--upsample-primary", "2"), (252, 120)),
])  # fmt: skip
def test_several_texts_train_and_validate(two, tmp_path, monkeypatch, more, sentences):
    """Stock fairseq refuses a second text in ``--valid-subset``, and combines several with -1 times the first one."""
    sizes, batches = {}, FairseqTask.get_batch_iterator

    def get_batch_iterator(self, dataset, *arguments, **named):
        sizes[id(dataset)] = len(dataset)
        return batches(self, dataset, *arguments, **named)

    monkeypatch.setattr(FairseqTask, "get_batch_iterator", get_batch_iterator)
    corpus.train_here(*corpus.train_arguments(two, tmp_path, "--max-update", "1", *more))
    assert tuple(sizes.values()) == sentences and (tmp_path / "checkpoint_best.pt").exists()


def test_a_text_for_validation_that_is_not_named_is_refused(two, tmp_path):
    with pytest.raises(ValueError, match=r"Valid paths \['valid1'\] will be ignored"):
        corpus.train_here(*corpus.train_arguments(two, tmp_path))


def test_validation_needs_no_task(runs):
    path = runs.rnnsearch / "checkpoint1.pt"
    common = (runs.data, "--user-dir", corpus.USER_DIR, "--path", path, "--batch-size", "8", "--cpu")
    done = corpus.run("fairseq-validate", *common)
    assert "valid on 'valid' subset" in done.stdout


def test_validation_leaves_out_what_is_too_long_for_a_batch(binarised, tmp_path):
    more = ("--max-tokens", "50", "--max-tokens-valid", "5", "--skip-invalid-size-inputs-valid-test")
    corpus.train_here(*corpus.train_arguments(binarised, tmp_path, "--max-update", "1", *more))
    assert (tmp_path / "checkpoint_best.pt").exists()


def test_translations_of_lines_that_are_too_long(runs, refused):
    """fairseq-interactive has no line numbers, so the message has the first words."""
    common = (runs.data, "--user-dir", corpus.USER_DIR, "--path", runs.rnnsearch / "checkpoint1.pt")
    long = "bee ant " * 600
    refused(
        "line that begins with 'bee ant bee ant bee' has 1201", "fairseq-interactive", *common, stdin=f"ant\n{long}\n"
    )
    refused("test.xx-yy has 7 symbols in its source", "fairseq-generate", *common, "--max-tokens", "5")


def test_language_models(runs, refused):
    path = runs.rnnsearch / "checkpoint1.pt"
    common = (runs.data, "--user-dir", corpus.USER_DIR, "--path", path, "--lm-path", path)
    refused("is read only by fairseq-generate", "fairseq-interactive", *common, stdin="ant\n")
    refused("is no language model, but a AttentionRNNModel", "fairseq-generate", *common, "--batch-size", "8")


def parsed(data, *more):
    parser = options.get_interactive_generation_parser()
    return options.parse_args_and_arch(parser, [str(data), "--path", __file__, *more])


def test_tokenizers_get_their_languages(binarised):
    cfg = convert_namespace_to_omegaconf(parsed(binarised, "--tokenizer", "moses"))
    assert (cfg.tokenizer.source_lang, cfg.tokenizer.target_lang) == ("xx", "yy")


@pytest.mark.parametrize("more, message", [
    (("--bpe", "subword_nmt"), "--bpe subword_nmt needs --bpe-codes"),
    (("--bpe", "fastbpe"), "--bpe fastbpe needs --bpe-codes"),
    (("--bpe", "sentencepiece"), "--bpe sentencepiece needs --sentencepiece-model"),
    (("--bpe", "characters"), "--bpe characters has no configuration"),
    (("--left-pad-source", "false"), "a switch takes no True or False"),
    (("--left-pad-source", "False"), "a switch takes no True or False"),
    (("--no-such-option", "1"), "unrecognized arguments: --no-such-option 1\n"),
    (("--num-shards", "2", "--shard-id", "1"), "fairseq 0.12.2 ignores them, and each process would"),
    (("--path", f"{__file__}:nothing.pt"), "--path nothing.pt: there is no such file; several are separated by ':'\n"),
    (("--path", f"{__file__}:"), "has an empty name before or after ':': remove the ':'\n"),
    (("--path", f"{__file__},nothing.pt"), "nothing.pt: there is no such file; several are separated by ':'\n"),
    (("--path", corpus.USER_DIR), f"--path {corpus.USER_DIR} is a folder: name a checkpoint in it, such as "),
])  # fmt: skip
def test_what_a_command_line_lacks_is_asked_for(binarised, capsys, more, message):
    with pytest.raises(SystemExit):
        parsed(binarised, *more)
    assert message in capsys.readouterr().err


def test_a_tokenizer_without_languages_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        parsed(tmp_path, "--tokenizer", "moses")
    assert "--tokenizer moses: which languages" in capsys.readouterr().err


@pytest.mark.parametrize("content, message", [
    (b"ant 3\nant 7\n", "line 2: the word ant is there already"),
    (b"ant 3\n<pad> 7\n", "line 2: the word <pad> is there already, or a symbol of fairseq's"),
    (b"ant 3\nbee\n", "line 2: not a word and its count"),
    (b"ant 3\nbee many\n", "line 2: not a word and its count"),
    (b"ant 3\n\xff 7\n", "line 2: not UTF-8"),
    (b"ant 3\nbee\rcat 7\n", "line 2: a carriage return"),
    (b"\xef\xbb\xbfant 3\n", "line 1: a byte order mark"),
])  # fmt: skip
def test_dictionaries_that_fairseq_cannot_read(folder, content, message):
    """fairseq-preprocess writes the first one from a --srcdict with ``#fairseq:overwrite``."""
    (folder / "dict.yy.txt").write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"dict.yy.txt, {message}"):
        load_split(folder)


def test_an_overwritten_word_is_read(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("ant 3\nant 7 #fairseq:overwrite\n")
    check_dictionary(str(path))
    assert Dictionary.load(str(path)).index("ant") == 5


def test_a_folder_that_was_deleted(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    os.rmdir(tmp_path / "gone")
    with pytest.raises(ImportError, match="the folder in which this was started has been deleted"):
        check_environment()


PLUGIN = """
from fairseq.criterions import register_criterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion, CrossEntropyCriterionConfig

@register_criterion("{name}", dataclass=CrossEntropyCriterionConfig)
class Criterion{number}(CrossEntropyCriterion):
    pass
"""
BOTH = """
from argparse import Namespace

import fairseq_attnvariants
from fairseq.utils import import_user_module

import_user_module(Namespace(user_dir={other!r}))
"""


def test_two_plugins_at_a_time(binarised, tmp_path):
    """One folder imports this package and another plugin's folder, as in docs/messages.md."""
    for number, name in enumerate(("mine", "theirs")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(PLUGIN.format(name=name, number=number))
    with open(tmp_path / "mine" / "__init__.py", "a") as own:
        own.write(BOTH.format(other=str(tmp_path / "theirs")))
    for name in ("mine", "theirs"):
        arguments = corpus.train_arguments(binarised, tmp_path / "run", "--max-update", "1", "--criterion", name)
        arguments[arguments.index(corpus.USER_DIR)] = str(tmp_path / "mine")
        corpus.run("fairseq-train", *arguments, "--no-save")


@pytest.mark.parametrize("symbol,said", [(999, "a symbol that its dictionary does not have"), (0, "<s> is one of")])
def test_a_long_text_is_looked_at_in_pieces(folder, monkeypatch, caplog, symbol, said):
    """A chunk has few tokens here; the message counts lines from the beginning of the text."""
    monkeypatch.setattr("fairseq_attnvariants.patches.messages.data.CHUNK", 5)
    sizes = np.frombuffer((folder / f"{FIRST}.idx").read_bytes(), "i4", 120, SIZES)
    change(folder / f"{FIRST}.bin", "u2", 2 * int(sizes[:6].sum()), symbol)
    refused = pytest.raises(ConfigurationError, match=f"yy, line 7: {said}")
    with refused if symbol else contextlib.nullcontext():
        load_split(folder)
    assert symbol or f"yy, line 7: {said}" in caplog.text


def test_the_first_symbol_that_a_dictionary_lacks_is_refused(folder):
    """A dictionary with one word more would have this symbol."""
    words = len(Dictionary.load(str(folder / "dict.yy.txt")))
    change(folder / f"{FIRST}.bin", "u2", 0, words - 1)
    load_split(folder)
    change(folder / f"{FIRST}.bin", "u2", 0, words)
    with pytest.raises(ConfigurationError, match="yy, line 1: a symbol that its dictionary does not have"):
        load_split(folder)


def test_a_symbol_below_zero_is_refused(tmp_path):
    """Symbols of a large dictionary have four bytes, with a sign."""
    made = indexed_dataset.MMapIndexedDatasetBuilder(str(tmp_path / "text.bin"), dtype=np.int32)
    made.add_item(torch.tensor([-5, 2]))
    made.finalize(str(tmp_path / "text.idx"))
    with pytest.raises(ConfigurationError, match="text, line 1: a symbol that its dictionary does not have"):
        check_binarised(str(tmp_path / "text"), Dictionary())


def test_a_binarised_text_without_a_line_is_refused(tmp_path):
    """numpy cannot map a file of no bytes."""
    indexed_dataset.MMapIndexedDatasetBuilder(str(tmp_path / "text.bin")).finalize(str(tmp_path / "text.idx"))
    with pytest.raises(ConfigurationError, match="text has no lines: run fairseq-preprocess again"):
        check_binarised(str(tmp_path / "text"), Dictionary())


def test_a_line_may_be_as_long_as_the_limit(binarised):
    task = load_split(binarised, "valid", "mmap")
    pairs = task.dataset("valid")
    longest = int(pairs.src_sizes.max())
    batches = task.get_batch_iterator(pairs, max_positions=(longest, longest)).frozen_batches
    assert sorted(np.concatenate(batches)) == [*range(len(pairs))]
    with pytest.raises(ConfigurationError, match=f"has {longest} symbols in its source"):
        task.get_batch_iterator(pairs, max_positions=(longest - 1, longest))


def test_binarised_text_of_another_kind_is_read(folder):
    """``fairseq-preprocess --dataset-impl lazy`` writes it."""
    before = [sentence.tolist() for sentence in load_split(folder, "valid").dataset("valid").tgt]
    prefix = str(folder / "valid.xx-yy.yy")
    builder = indexed_dataset.make_builder(f"{prefix}.bin", "lazy", 16)
    for sentence in before:
        builder.add_item(torch.IntTensor(sentence))
    builder.finalize(f"{prefix}.idx")
    found = load_split(folder, "valid").dataset("valid").tgt
    found.prefetch(range(12))
    assert [found[k].tolist() for k in range(12)] == before


def test_a_text_in_which_one_side_or_the_other_is_too_long_is_refused():
    """``--skip-invalid-size-inputs-valid-test`` would leave out every line of it."""
    pairs = LanguagePairDataset([], np.array([5, 1]), Dictionary(), [], np.array([1, 5]), Dictionary())
    pairs.name, pairs.src = "text", [None, None]
    with pytest.raises(ConfigurationError, match="no line of text is short enough for --max-source-.* and --max-targ"):
        check_lengths(pairs, (3, 3), True, None)
    check_lengths(pairs, (5, 3), True, None)


def test_nothing_is_left_out_where_there_is_no_limit(binarised):
    task = load_split(binarised, "valid", "mmap")
    batches = task.get_batch_iterator(task.dataset("valid"), max_sentences=5, ignore_invalid_inputs=True)
    assert sorted(np.concatenate(batches.frozen_batches)) == [*range(12)]


def test_a_count_may_be_negative(tmp_path):
    """fairseq reads negative counts; other tools may write them to rank units."""
    path = tmp_path / "dict.txt"
    path.write_text("ant -3\n")
    check_dictionary(str(path))
    assert Dictionary.load(str(path)).count[4] == -3


def test_shards_are_left_to_fairseq(binarised):
    """fairseq completes the names of shards."""
    assert parsed(binarised, "--path", "model.pt", "--checkpoint-shard-count", "2").path == "model.pt"


def test_another_error_of_reading_is_not_one_of_lines(binarised):
    def fails(*_, **__):
        raise AssertionError("of somebody else's")

    with pytest.raises(AssertionError, match="^of somebody else's"):
        load_langpair_dataset(fails, str(binarised), "train", "xx", None, "yy")
