"""String transduction reads tables and writes strings, with fairseq's commands and with ``strings``."""

import dataclasses
import errno
import os
import random
import re
import signal
import subprocess
import sys
import time
import unicodedata
from argparse import Namespace
from functools import cache
from pathlib import Path

import pytest
import torch
from corpus import SIZES, USER_DIR, pipe_of, run
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationTask
from hypothesis import given
from hypothesis import strategies as st

from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants.tasks import CharTranslationTask, StringDictionary, StringTransductionTask
from fairseq_attnvariants.tasks.exact_match import ExactMatchScorer, counts, edits
from fairseq_attnvariants.tasks.string_dictionary import write
from fairseq_attnvariants.tasks.string_transduction import StringTransductionConfig
from fairseq_attnvariants.tasks.tsv import (
    SEPARATORS,
    Columns,
    Row,
    Table,
    find_split,
    never_separated,
    read_table,
    symbols,
    tags,
)
from fairseq_attnvariants_cli.checks import DEMANDS, Subject
from fairseq_attnvariants_cli.subcommands.strings import Options
from fairseq_attnvariants_cli.systems import string_tables, transduction
from fairseq_attnvariants_cli.text.files import UserError
from fairseq_attnvariants_cli.text.generated import Hypothesis, Sentence

commands = pytest.mark.commands
PLAIN = Columns()
FAMILY, FLAG = "👩‍👩‍👧", "🇮🇸"  # one grapheme cluster each, of several code points


def test_a_development_set_is_the_validation_set(tmp_path):
    (tmp_path / "dev.tsv").touch()
    assert find_split(str(tmp_path), "valid") == str(tmp_path / "dev.tsv")
    (tmp_path / "valid.tsv").touch()
    assert find_split(str(tmp_path), "valid") == str(tmp_path / "valid.tsv")


class TestTables:
    def read(self, folder, content, columns=PLAIN, **options):
        path = folder / "table.tsv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_table(str(path), columns, **options).rows

    def test_rows(self, tmp_path):
        """A byte order mark, Windows line ends, spaces at ends and a missing last line end do not change the rows."""
        plain = self.read(tmp_path, "talo\ttalossa\nyö\työssä\n")
        assert [row[:2] for row in plain] == [("talo", "talossa"), ("yö", "yössä")]
        for same in (
            "\ufefftalo\ttalossa\r\nyö\työssä\r\n",
            " talo \t talossa\nyö\työssä",
            "talo\ttalossa\nyö\työssä\n\n",
        ):
            assert self.read(tmp_path, same) == plain
        assert self.read(tmp_path, unicodedata.normalize("NFD", "talo\ttalossa\nyö\työssä\n")) == plain

    def test_columns(self, tmp_path):
        [row] = self.read(tmp_path, "talo\tN;INE(SG)\ttalossa\n", Columns(1, 3, 2))
        assert row == ("talo", "talossa", ("INE", "INE(SG)", "N"))
        [blind] = self.read(tmp_path, "talo\tN;INE(SG)\n", Columns(1, 3, 2), with_targets=False)
        assert blind == ("talo", None, row.features)
        assert self.read(tmp_path, "talo\t\ttalossa\n", Columns(1, 3, 2))[0].features == ()
        assert self.read(tmp_path, "talo\u00a0\t\u3000auto \n")[0] == ("talo", "auto", ())

    def test_a_column_of_targets_that_is_empty_is_none(self, tmp_path):
        for content in ("a\t\tN\nb\t\tN\n", "a\t \tN\n"):
            found = self.read(tmp_path, content, Columns(1, 2, 3), with_targets=False)
            assert {row.target for row in found} == {None} and found[0].features == ("N",)
        with pytest.raises(ConfigurationError, match="line 2: the target, column 2, is empty"):
            self.read(tmp_path, "a\tb\nb\t\n", with_targets=False)

    @pytest.mark.parametrize("content, columns, said", [
        ("a\tb\na\tb\tc\n", Columns(), "line 2: 3 columns, and line 1 has 2"),
        ("a\tb\na\n", Columns(), "line 2: 1 columns, and line 1 has 2"),
        ("a\tb\n\na\tb\n", Columns(), "line 2: an empty line: take it out"),
        ("\na\tb\n", Columns(), "line 1: an empty line: take it out"),
        ("a\tb\na\t\n", Columns(), "line 2: the target, column 2, is empty"),
        ("a\tb\n \tb\n", Columns(), "line 2: the source, column 1, is empty"),
        ("a\tb\nb\tc\rd\n", Columns(), "line 2: a carriage return within the line"),
        (b"a\tb\na\t\xff\n", Columns(), "line 2: not UTF-8: save it as UTF-8"),
        ("a\tb\n", Columns(1, 3), "2 columns, and --target-column is 3"),
        ("a\tb\n", Columns(1, 2, 3), "2 columns, and --features-column is 3"),
        ("a\tb\tN(SG\n", Columns(1, 2, 3), r"line 1: the parentheses of the features 'N\(SG' do not match"),
        ("", Columns(), "has no lines"),
    ])  # fmt: skip
    def test_what_is_refused(self, tmp_path, content, columns, said):
        with pytest.raises(ConfigurationError, match=f"table.tsv.*{said}"):
            self.read(tmp_path, content, columns)

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(ConfigurationError, match="nowhere: No such file"):
            read_table(str(tmp_path / "nowhere"), Columns())

    def test_symbols(self):
        assert symbols(f"e\u0301{FAMILY}{FLAG}") == ["é", FAMILY, FLAG]
        assert symbols("t͡s  a e\u0301", " ") == ["t͡s", "a", "é"]
        assert symbols("Abu Dabi") == list("Abu Dabi") and symbols("a|b c", "|") == ["a", "b c"]
        assert symbols("é한", "NFD") == ["e", "\u0301", *"\u1112\u1161\u11ab"]

    @pytest.mark.parametrize("text, expected", [
        ("N;ABL(PL;PSS(2,PL))", "ABL ABL(PL) N PSS PSS(2) PSS(PL)"),
        ("V;NOM(1,SG);ACC(3,PL)", "ACC ACC(3) ACC(PL) NOM NOM(1) NOM(SG) V"),
        ("N;AT+ABL(PL)", "AT+ABL AT+ABL(PL) N"),
        ("PL;N; N", "N PL"),
        ("", ""),
    ])  # fmt: skip
    def test_tags(self, text, expected):
        """Tags are a set; joined with semicolons, they give the same set."""
        assert tags(text) == tuple(expected.split()) == tags(";".join(expected.split()))

    @pytest.mark.parametrize("text", ["N(", "N)", "(PL)", "A(B", "A(B))", "A;(B)"])
    def test_tags_that_do_not_match(self, text):
        with pytest.raises(ConfigurationError, match="do not match"):
            tags(text)


class TestDictionary:
    @pytest.mark.parametrize("separator", ["", " ", "|", "NFD"])
    @given(texts=st.lists(st.text(st.sampled_from("ab e\u0301한កា\u00a0\u2028|🇮🇸" + FAMILY), min_size=1), min_size=1))
    def test_text_to_numbers_to_text(self, separator, texts, tmp_path_factory):
        found = [symbols(text.strip(), separator) for text in texts]
        saved, file = StringDictionary.of(found, separator), str(tmp_path_factory.getbasetemp() / "dict.source.txt")
        saved.save(file)
        loaded = StringDictionary.load(file)
        assert (loaded.symbols, loaded.separator) == (saved.symbols, separator)
        for text in found:
            line = unicodedata.normalize("NFC", "".join(text)) if separator == "NFD" else separator.join(text)
            if symbols(line.strip(), separator) == text:
                assert loaded.string(loaded.encode_line(line)) == line

    def test_features(self):
        words, features = StringDictionary.of([[*"talo", "[SG]"]], ""), Dictionary()
        for name in ("N", "t", "INE(SG)", "é"):
            features.add_symbol(name)
        words.add_features(features)
        one, other = (words.encode_line(f"talo\t{tags}") for tags in ("INE(SG);N;XX", "N;INE(SG)"))
        assert one.equal(other) and len(one) == 2 + 4 + 1
        assert words.string(one) == "talo\tN;INE(SG)" and words.encode_line(words.string(one)).equal(one)
        assert words[words.encode_line("t\te\u0301")[0]] == "[é]"
        assert words[words.encode_line("t\tt")[0]] == "[t]" and words.encode_line("[t]")[1] == words.index("t")
        assert words.feature("SG") == words.letter("[N]") == words.unk() != words.feature("N")
        assert words.split("talo\tN") == list("talo") and words.string(words.encode_line("talo")) == "talo"

    def test_features_that_are_left_out_or_missing_are_said(self, caplog):
        words, features = StringDictionary.of(["talo"], ""), Dictionary()
        features.add_symbol("N")
        words.add_features(features)
        words.encode_line("talo\tN")
        assert not caplog.text
        words.encode_line("talo\tN;XX")
        assert "left out, since training has not seen it: XX" in caplog.text
        words.encode_line("talo\t")
        words.encode_line("talo N")
        words.encode_line("talo N")
        assert caplog.text.count("'talo N' has no features: they come after a tab") == 1 == caplog.text.count("no feat")

    def test_columns_are_named_where_there_are_more_than_two(self, tmp_path):
        (tmp_path / "train.tsv").write_text("ab\tN;PL\tb\n")
        options = dict(data=str(tmp_path), train_subset="train")
        with pytest.raises(ConfigurationError, match="train.tsv has 3 columns: give --source-column, --target-column"):
            StringTransductionTask.setup_task(StringTransductionConfig(**options))
        StringTransductionTask.setup_task(StringTransductionConfig(**options, target_column=3))

    def test_a_full_disk_leaves_nothing(self, tmp_path, monkeypatch):
        def save(dictionary, path):
            Path(path).write_text("<space> 0\n")
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(StringDictionary, "save", save)
        with pytest.raises(ConfigurationError, match="dict.source.txt cannot be written: No space left on device"):
            write(StringDictionary(), str(tmp_path / "dict.source.txt"))
        assert not [*tmp_path.iterdir()]

    def test_another_dictionary_is_refused(self, tmp_path):
        (tmp_path / "dict.source.txt").write_text("<space> 0\na 1\n")
        with pytest.raises(ConfigurationError, match="dict.source.txt: this dictionary was not written by"):
            StringTransductionTask.load_dictionary(str(tmp_path / "dict.source.txt"))

    @pytest.mark.parametrize("name", ["source", "target", "features"])
    def test_a_damaged_dictionary_is_refused(self, tmp_path, name):
        (tmp_path / "train.tsv").write_text("ab\tb\tN;PL\n")
        options = dict(data=str(tmp_path), features_column=3, train_subset="train")
        StringTransductionTask.setup_task(StringTransductionConfig(**options))
        with open(tmp_path / f"dict.{name}.txt", "a") as dictionary:
            dictionary.write("zz\n")
        with pytest.raises(ConfigurationError, match=f"dict.{name}.txt: Incorrect dictionary format"):
            StringTransductionTask.setup_task(StringTransductionConfig(**options))
        (tmp_path / f"dict.{name}.txt").write_bytes(b"caf\xe9 1\n")
        with pytest.raises(ConfigurationError, match="not UTF-8") as refused:
            StringTransductionTask.setup_task(StringTransductionConfig(**options))
        assert str(refused.value).count(f"dict.{name}.txt") == 1

    @pytest.mark.parametrize("feature, said", [
        ("V", r"train.tsv, line 2: the feature V is \[V\] in the dictionary, and so is a symbol of the sources"),
        ("<s>", "train.tsv, line 2: the features have <s>, a symbol of fairseq's own"),
    ])  # fmt: skip
    def test_a_feature_that_would_be_another_symbol_is_refused(self, tmp_path, feature, said):
        (tmp_path / "train.tsv").write_text(f"a b\tb\tN\n[V] a\tb\tPST;{feature}\n")
        options = dict(data=str(tmp_path), source_separator="space", features_column=3, train_subset="train")
        with pytest.raises(ConfigurationError, match=said):
            StringTransductionTask.setup_task(StringTransductionConfig(**options))
        assert [path.name for path in tmp_path.iterdir()] == ["train.tsv"]

    def test_a_column_without_features_is_refused(self, tmp_path):
        (tmp_path / "train.tsv").write_text("ab\tb\t\n")
        options = dict(data=str(tmp_path), features_column=3, train_subset="train")
        with pytest.raises(ConfigurationError, match="train.tsv has no features: leave --features-column out"):
            StringTransductionTask.setup_task(StringTransductionConfig(**options))
        assert [path.name for path in tmp_path.iterdir()] == ["train.tsv"]

    def test_features_that_the_dictionary_lacks(self, tmp_path, caplog):
        """Unknown features are refused in training, and counted elsewhere, as unknown symbols are."""
        (tmp_path / "train.tsv").write_text("ab\tb\tN;PL\n")
        options = dict(data=str(tmp_path), features_column=3, train_subset="train", required_seq_len_multiple=1)
        task = StringTransductionTask.setup_task(StringTransductionConfig(**options))
        for name in ("train", "test"):
            (tmp_path / f"{name}.tsv").write_text("ab\tb\tN\nab\tb\tN;SG\n")
        with pytest.raises(ConfigurationError, match="line 2: the source has a feature that .*features.txt lacks"):
            task.load_dataset("train")
        with caplog.at_level("INFO"):
            task.load_dataset("test")
        assert "test.tsv: 1 of 2 sources have features unseen in training" in caplog.text

    @pytest.mark.parametrize("special", ["<s>", "<pad>", "</s>", "<unk>"])
    def test_symbols_of_fairseqs_own_are_unseen_ones(self, special):
        """Padding within a source would be masked, and EOS would cut a reference. An exported folder reads UNK, too."""
        words = StringDictionary.of([["a", "b"]], " ")
        assert words.encode(["a", special]) == [words.index("a"), words.unk()]
        assert words.encode_line(f"a {special}").tolist() == [words.index("a"), words.unk(), words.eos()]


class TestScores:
    @pytest.mark.parametrize(
        "one, other, count", [("kitten", "sitting", 3), ("", "ab", 2), ("ab", "ba", 2), ("a", "a", 0)]
    )
    def test_edits(self, one, other, count):
        assert edits(one, other) == edits(other, one) == count

    def test_an_unknown_symbol_is_never_right(self):
        scorer = ExactMatchScorer(None)
        for reference, hypothesis in (([4, 5, 2], [4, 5, 2]), ([4, 3, 2], [4, 3, 2]), ([4, 5, 6, 2], [4, 2])):
            scorer.add(torch.tensor(reference), torch.tensor(hypothesis))
        # EOS, which is always there, is no symbol
        assert scorer.result_string() == "accuracy = 33.33, WER = 66.67, SER = 42.86 (1 of 3 right)"
        assert counts("ab", "ab") == {"_right": 1, "_strings": 1, "_edits": 0, "_symbols": 2}


def prepared(data, **more):
    """Return the job of a folder's tables, without training."""
    options = {field.name: getattr(Options, field.name, None) for field in dataclasses.fields(Options)}
    train, dev, test = (str(data / f"{name}.tsv") for name in ("train", "valid", "test"))
    options |= dict(output=str(data / "out"), others=[], seeds=[1], train=train, dev=dev, test=[test])
    return transduction.prepare(Namespace(**{**options, **more}))


def write_tables(folder, train=60, features=False, separated=True):
    """Write tables of words of up to four letters; targets double vowels and, with N;PL as features, are reversed."""
    rng = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("valid", 12), ("test", 12)):
        rows = []
        for _ in range(count):
            word = "".join(rng.choices("abcdé", k=rng.randint(1, 4)))
            doubled = [letter * 2 if separated and letter in "aé" else letter for letter in word]
            plural = rng.random() < 0.5
            target = (" " if separated else "").join(reversed(doubled) if plural and features else doubled)
            rows.append([word, f"N;{'PL' if plural else 'ESS(SG)'}", target] if features else [word, target])
        (folder / f"{name}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return folder


SPACED = "--target-separator", "space"
FEATURES = "--target-column", "3", "--features-column", "2"


def arguments(data, save, *more, arch="dl4mt"):
    """Return the arguments of a short fairseq-train."""
    found = [data, "--user-dir", USER_DIR, "--task", "string_transduction", "--arch", arch, *SIZES, "--save-dir", save]
    found += ["--optimizer", "adam", "--lr", "0.02", "--clip-norm", "1", "--batch-size", "8", "--cpu", "--seed", "5"]
    found += ["--init", "uniform", "--dropout", "0", "--log-format", "simple", "--num-workers", "0"]
    found += ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]
    return [*map(str, found), *map(str, more)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of tables and a model that has learned them."""
    folder = write_tables(tmp_path_factory.mktemp("strings") / "data")
    done = run("fairseq-train", *arguments(folder, folder.parent / "run", *SPACED, "--max-epoch", "25"))
    return folder, folder.parent / "run" / "checkpoint_best.pt", done.stdout + done.stderr


GENERATE = "--user-dir", USER_DIR, "--task", "string_transduction", "--cpu", "--num-workers", "0"


@commands
class TestCommands:
    def test_training_chooses_by_accuracy(self, trained):
        data, checkpoint, said = trained
        kept = torch.load(checkpoint, weights_only=True)
        assert kept["extra_state"]["best"] > 80 and "| wer " in said and "| ser " in said
        assert (data / "dict.target.txt").read_text().startswith("<space> 1\n<separator:U+0020> 0\n")
        assert sorted(path.name for path in data.glob("dict*")) == ["dict.source.txt", "dict.target.txt"]

    def test_generation(self, trained):
        """Options of the task need not be repeated; ensembles and n-best lists work."""
        data, checkpoint, _ = trained
        options = "--scoring", "exact_match", "--beam", "3", "--nbest", "2"
        done = run("fairseq-generate", data, *GENERATE, "--path", f"{checkpoint}:{checkpoint}", *options)
        assert done.stdout.count("\nH-") == 24 and "Generate test with beam=3: accuracy = " in done.stdout
        lines = [line.split("\t") for line in done.stdout.splitlines()]
        sources = dict(line for line in lines if line[0][:2] == "S-")
        rows = [line.split("\t") for line in (data / "test.tsv").read_text().splitlines()]
        assert [sources[f"S-{number}"] for number in range(12)] == [source for source, _ in rows]
        targets = dict(line for line in lines if line[0][:2] == "T-")
        assert [targets[f"T-{number}"] for number in range(12)] == [target for _, target in rows]

    def test_subcommands_print_nothing_else(self, trained, tmp_path):
        data, checkpoint, _ = trained
        line = ["align", data, "--path", checkpoint, "--cpu", "--output", tmp_path / "links"]
        done = run("fairseq-attnvariants", *line)
        assert done.stdout == done.stderr == "" and len((tmp_path / "links").read_text().splitlines()) == 12
        done = run("fairseq-attnvariants", *line, "--gen-subset", "tset", check=False)
        assert "has no tset.tsv, but " in done.stderr and "correct --train-subset" in done.stderr

    def test_interactive_and_hub(self, trained):
        data, checkpoint, _ = trained
        done = run("fairseq-interactive", data, *GENERATE, "--path", checkpoint, stdin="abe\u0301\nca\n")
        found = [line.split("\t")[2] for line in done.stdout.splitlines() if line[:2] == "H-"]
        assert "S-0\tabé" in done.stdout and found[0] == "aa b éé" and len(found) == 2
        hub = AttentionRNNModel.from_pretrained(str(checkpoint.parent), checkpoint.name, str(data))
        assert hub.translate(["abe\u0301", "ca"]) == found
        [found] = hub.translate(["a?b"], attention=True)
        assert found.source == ["a", "<unk>", "b", "</s>"]

    def test_resumed_and_with_workers_the_same_bits(self, trained, tmp_path):
        data, _, _ = trained
        for name, updates, more in (("whole", 10, []), ("parts", 4, []), ("parts", 10, ["--num-workers", "2"])):
            more = [*SPACED, "--max-update", updates, *more]
            run("fairseq-train", *arguments(data, tmp_path / name, *more))
        one, other = (
            torch.load(tmp_path / name / "checkpoint_last.pt", weights_only=True) for name in ("whole", "parts")
        )
        assert all(value.equal(other["model"][name]) for name, value in one["model"].items())

    @pytest.mark.parametrize("arch, features", [("hard_monotone", "attended"), ("dl4mt", "prepended")])
    def test_features(self, tmp_path, arch, features):
        """The checkpoint and its export have the columns; a line of fairseq-interactive is a word, a tab and tags."""
        data = write_tables(tmp_path / "data", features=True)
        more = [*SPACED, *FEATURES, "--features", features, "--max-update", "3"]
        run("fairseq-train", *arguments(data, tmp_path / "run", *more, arch=arch))
        options = *GENERATE, "--path", tmp_path / "run" / "checkpoint_last.pt", "--beam", "3", "--nbest", "2"
        found = run("fairseq-generate", data, *options).stdout
        tags = [line.split("\t")[1] for line in (data / "test.tsv").read_text().splitlines()]
        shown = dict(line.split("\t", 1) for line in found.splitlines() if line[:2] == "S-")
        expected = [{"N", "PL"} if tag == "N;PL" else {"N", "ESS", "ESS(SG)"} for tag in tags]
        assert [{*shown[f"S-{number}"].split("\t")[1].split(";")} for number in range(12)] == expected
        exported = tmp_path / "exported"
        run("fairseq-attnvariants", "export", data, "--path", options[-5], "--safetensors", "--output", exported)
        again = "--path", exported / "model.safetensors", "--beam", "3", "--nbest", "2"
        lines = "^[STHDP]-.*"
        same = run("fairseq-generate", data, *GENERATE, *again).stdout
        assert re.findall(lines, same, re.MULTILINE) == re.findall(lines, found, re.MULTILINE) != []
        both = run("fairseq-interactive", data, *options, stdin="ab\tN;ESS(SG)\nab\tESS(SG);N\nab\tN;PL\n").stdout
        one, other, another = ([line for line in both.splitlines() if line[:3] == f"H-{k}"] for k in range(3))
        assert [line[3:] for line in one] == [line[3:] for line in other] != [line[3:] for line in another]

    def test_a_test_set_without_targets(self, trained, tmp_path):
        data, checkpoint, _ = trained
        (data / "blind.tsv").write_text("abc\nca\n")
        done = run("fairseq-generate", data, *GENERATE, "--path", checkpoint, "--gen-subset", "blind")
        assert done.stdout.count("\nH-") == 2 and "\nT-" not in done.stdout

    def test_what_is_refused(self, trained, tmp_path):
        """A refusal is one sentence, before anything is written."""
        data, checkpoint, _ = trained
        broken = write_tables(tmp_path / "broken")
        (broken / "train.tsv").write_text("ab\taa b\nab\n")
        special = write_tables(tmp_path / "special")
        (special / "train.tsv").write_text("ab\ta <s>\n")
        other = write_tables(tmp_path / "other")
        for path in data.glob("dict*"):
            (other / path.name).write_text(path.read_text())
        (other / "train.tsv").write_text("xy\taa b\n")
        for folder, more, said in (
            (special, SPACED, "train.tsv, line 1: the target has <s>, a symbol of fairseq's own"),
            (broken, SPACED, "train.tsv, line 2: 1 columns, and line 1 has 2"),
            (tmp_path / "nowhere", SPACED, "there is no data folder"),
            (tmp_path, SPACED, "has no train.tsv"),
            (other, SPACED, "train.tsv, line 1: the source has a symbol that .*dict.source.txt lacks"),
            (data, ["--target-separator", "none"], "the symbols of .*dict.target.txt are separated by ' '"),
            (data, ["--target-column", "1"], "the columns are source 1, target 1, and two of them are the same"),
            (data, ["--source-column", "0"], "--source-column 0: columns are counted from 1"),
            (data, ["--combine-valid-subsets"], "--combine-valid-subsets: tables are not combined: .* valid,valid1$"),
            (f"{data}:{other}", SPACED, "strings are read from one folder: give one"),
            (data, ["--source-separator", "ab"], "--source-separator 'ab': a separator is one character"),
        ):
            done = run("fairseq-train", *arguments(folder, tmp_path / "run", *more), check=False)
            assert done.returncode and re.search(said, done.stderr.splitlines()[-1]), done.stderr
        assert not [*(tmp_path / "run").glob("*")] and not [*broken.glob("dict*")]
        done = run("fairseq-generate", data, *GENERATE, "--path", checkpoint, "--gen-subset", "dev", check=False)
        assert done.returncode and re.search("has no dev.tsv, but .*test.tsv, train.tsv, valid.tsv", done.stderr)


@pytest.mark.parametrize("words, expected", [
    (["abcé", "bcéa", "ééab", "cabé"], ""),
    ([chr(k) for k in range(0xAC00, 0xAC00 + 588)], "NFD"),  # Hangul's syllables of one initial
    ([f"{letter}{vowel}" for letter in "בגדהוז" for vowel in "\u05b4\u05b5\u05b6\u05b7\u05b8\u05bb"] * 50, "NFD"),
    (["한국", "국어", "말씀", "나라"], ""),  # there are more jamo than syllables
    (["kana", "naka", "anka", "nana"] * 30 + ["é"], ""),
    (["a b", "b a", "a a"], " "),
    (["a\u00a0b", "b\u00a0a"] * 100, ""),  # symbols are separated by a space, and by no other white space
])  # fmt: skip
def test_characters_of_many_fewer_parts_are_decomposed(words, expected):
    table = Table("train.tsv", [Row(word, word) for word in words])
    found = [string_tables.find_separator(table, side) for side in ("source", "target")]
    assert found == [expected] * 2


@pytest.mark.parametrize("updates, rate", [(2000, "4e-3"), (2001, "3e-3")])
@pytest.mark.parametrize("last, told", [("88.0", ""), ("68.5", ""), ("12.5", "fell from 88.5 to 12.5")])
def test_a_training_that_diverges_is_told(tmp_path, monkeypatch, capsys, updates, rate, last, told):
    """The best accuracy may be in the log of a training that is continued."""
    lines = [
        "| valid | epoch 1 | accuracy 88.5 | wer 11.5\n",
        f"| valid | epoch 2 | accuracy {last} | best_accuracy 88.5\n",
    ]
    if updates > 2000:
        (tmp_path / "seed1").mkdir()
        (tmp_path / "seed1" / "train.log").write_text(lines.pop(0))

    def start(command, log, see, mode):
        assert command[command.index("--lr") + 1] == rate
        for line in lines:
            see(line)

    monkeypatch.setattr(transduction, "start", start)
    job = transduction.Job(tmp_path, tmp_path, Columns(), (" ", " "), 800, {}, "user", updates, "", {})
    options = Namespace(arch="dl4mt", cpu=True, others=[], dev="valid.tsv")
    assert transduction.train_seed(job, options, 1) == str(tmp_path / "seed1" / "checkpoint_best.pt")
    said = capsys.readouterr().err
    assert (told in said and "valid.tsv" in said and "try a smaller --lr" in said) if told else "fell" not in said


def test_an_option_that_is_no_text_is_kept(tmp_path, monkeypatch):
    """A file's name may be any bytes; a finished training compares its options."""
    monkeypatch.setattr(transduction, "start", lambda *given: None)
    monkeypatch.setattr(transduction, "model_options", lambda arch: ())
    data, others = write_tables(tmp_path / "words"), ["--tensorboard-logdir", os.fsdecode(b"na\xffme")]
    options = Namespace(arch="dl4mt", cpu=True, others=others, dev="valid.tsv")
    job = prepared(data, updates=2, others=others)
    transduction.train_seed(job, options, 1)
    assert (job.folder / "seed1" / "options.txt").read_text().endswith("'na\\udcffme'\n")
    assert prepared(data, updates=2, others=others).given == job.given


def test_scores_replace_no_table(tmp_path, refusal):
    """The command says so before it trains, and the copies of tables in its folder may be given to it again."""
    copies = prepared(write_tables(tmp_path / "words")).data
    (copies / "test.tsv").rename(copies / "test.csv")
    tables = [str(copies / name) for name in ("train.tsv", "valid.tsv", "test.csv")]
    before = (copies / "test.csv").read_text()
    error = refusal(["strings", *tables, "--output", str(copies.parent), "--table", tables[2], "--updates", "1"])
    assert f"{tables[2]} is an input, too, and would be replaced" in error
    assert (copies / "test.csv").read_text() == before and not [*copies.parent.glob("seed*")]


def test_tables_may_be_streams(tmp_path):
    """Streams can be read only once."""

    def stream(name):
        return pipe_of((data / f"{name}.tsv").read_bytes())

    data = write_tables(tmp_path / "words")
    job = prepared(data, updates=2, train=stream("train"), dev=stream("valid"), test=[stream("test")])
    for name, copied in (("train", "train"), ("valid", "valid"), ("test", [*job.tests][0])):
        assert (job.data / f"{copied}.tsv").read_text() == (data / f"{name}.tsv").read_text()


def strings(folder, *more, **options):
    """Run the subcommand strings on the tables of a folder."""
    tables = [folder / f"{name}.tsv" for name in ("train", "valid", "test")]
    return run("fairseq-attnvariants", "strings", *tables, "--cpu", *more, **options)


QUICK = [*SIZES, "--lr", "0.02", "--batch-size", "8", "--warmup-updates", "0", "--dropout", "0"]


@commands
class TestStrings:
    @pytest.mark.slow
    def test_from_three_tables_to_scores(self, tmp_path):
        data = write_tables(tmp_path / "words")
        more = ["--output", tmp_path / "out", "--seeds", "1", "2", "--updates", "200", "--nbest", "2", *QUICK]
        done = strings(data, *more, "--table", tmp_path / "scores.csv")
        assert (
            "columns: source 1, target 2; symbols of sources: characters, of targets: separated by ' '" in done.stderr
        )
        rows = [line.split(",") for line in (tmp_path / "scores.csv").read_text().splitlines()]
        assert [row[1] for row in rows] == ["model", "seed 1", "seed 2", "mean of seeds", "ensemble"]
        assert float(rows[4][3]) > 40 and float(rows[4][3]) + float(rows[4][4]) == 100
        predicted = [line.split("\t") for line in (tmp_path / "out" / "test.tsv").read_text().splitlines()]
        expected = [line.split("\t") for line in (data / "test.tsv").read_text().splitlines()]
        assert [row[0] for row in predicted] == [row[0] for row in expected] and len(predicted[0]) == 2
        right = sum(row == gold for row, gold in zip(predicted, expected))
        assert float(rows[4][3]) == pytest.approx(100 * right / 12)
        assert len((tmp_path / "out" / "test.nbest.tsv").read_text().splitlines()) == 24
        again = strings(data, *more)
        assert again.stdout == done.stdout

    def test_nothing_is_written_of_tables_that_are_refused(self, tmp_path):
        data = write_tables(tmp_path / "words")
        (data / "test.tsv").write_text("ab\taa bb\nab\t\n")
        done = strings(data, "--output", tmp_path / "out", check=False)
        assert done.returncode == 2 and "test.tsv, line 2: the target, column 2, is empty" in done.stderr
        write_tables(data)
        (data / "train.tsv").write_text("a\tb\tc\td\n")
        done = strings(data, "--output", tmp_path / "out", check=False)
        assert "train.tsv has 4 columns, whose meaning is unclear: give --source-column" in done.stderr
        (data / "train.tsv").write_text("a,b\nc,d\n")
        done = strings(data, "--output", tmp_path / "out", check=False)
        assert "train.tsv has one column: put a tab between source and target" in done.stderr
        done = strings(write_tables(data), "--output", tmp_path / "out", "--max-update", "5", check=False)
        assert "--max-update is not for fairseq-train here: use --updates" in done.stderr
        done = strings(data, "--output", tmp_path / "out", "--disable-validation", check=False)
        assert "--disable-validation: leave it out, because the checkpoint with the highest" in done.stderr
        done = strings(data, "--output", tmp_path / "out", "--source-column", "2", check=False)
        assert "the columns are source 2, target 2, and two of them are the same" in done.stderr
        folders = [tmp_path / name for name in ("own_parts", "own_losses")]
        for folder in folders:
            folder.mkdir()
            (folder / "__init__.py").touch()
        more = [part for folder in folders for part in ("--user-dir", folder)]
        done = strings(data, "--output", tmp_path / "out", *more, check=False)
        assert "fairseq-train reads one --user-dir: give one, whose __init__.py imports the others" in done.stderr
        done = strings(data, "--output", data / "train.tsv", check=False)
        reason = f"--output {data / 'train.tsv'} is no folder, or has a ':' in its name: name another"
        assert done.stderr == f"fairseq-attnvariants strings: {reason}\n"
        done = strings(data, "--output", tmp_path / "a:b", check=False)
        assert "a:b is no folder, or has a ':' in its name" in done.stderr and not (tmp_path / "a:b").exists()
        before = sorted(data.iterdir())
        done = strings(data, "--output", data, check=False)
        assert f"its tables would replace {data / 'test.tsv'}: give another folder" in done.stderr
        words = write_tables(tmp_path / "more" / "data")
        tables = [words / "test.tsv", words / "valid.tsv", data / "test.tsv"]
        (words / "test.tsv").write_text("ab\taa bb\n")
        done = run("fairseq-attnvariants", "strings", *tables, "--output", words.parent, "--cpu", check=False)
        assert f"its tables would replace {words / 'test.tsv'}: give another folder" in done.stderr
        assert (words / "test.tsv").read_text() == "ab\taa bb\n"
        assert sorted(data.iterdir()) == before
        assert not (tmp_path / "out").exists()

    def test_a_table_may_have_the_name_of_a_split(self, tmp_path):
        """fairseq would read a split valid2 as another validation set."""
        data = write_tables(tmp_path / "words")
        tables = [data / "train.tsv", data / "valid.tsv", (data / "test.tsv").rename(data / "valid2.tsv")]
        more = ["--output", tmp_path / "out", "--updates", "2", *QUICK]
        run("fairseq-attnvariants", "strings", *tables, "--cpu", *more)
        assert (tmp_path / "out" / "valid2.tsv").exists()

    def test_other_options_are_refused_and_a_finished_training_keeps_its_log(self, tmp_path):
        data = write_tables(tmp_path / "words")
        new, more = tmp_path / "new.tsv", ["--output", tmp_path / "out", "--updates", "2", *QUICK]
        strings(data, *more)
        log = tmp_path / "out" / "seed1" / "train.log"
        former, kept = log.read_text(), log.stat().st_mtime
        swapped = ["--source-column", "2", "--target-column", "1"]
        for other in (["--dropout", "0.5"], ["--arch", "hard_monotone"], ["--updates", "3"], swapped):
            done = strings(data, *more, *other, check=False)
            assert done.returncode == 2 and "--arch dl4mt --updates 2" in done.stderr
            assert "give the former options, or another --output" in done.stderr and log.stat().st_mtime == kept
        (tmp_path / "out" / "seed1" / "checkpoint_last.pt").unlink()  # a finished training is used without it
        assert "give the former options" in strings(data, *more, "--dropout", "0.5", check=False).stderr
        said = strings(data, *more, "--target-separator", "none", check=False).stderr
        assert "dict.target.txt are separated by ' ': give --target-separator space, or another --output" in said
        new.write_text("ab\nbà\n")
        done = run("fairseq-attnvariants", "strings", data / "train.tsv", data / "valid.tsv", new, "--cpu", *more)
        assert log.read_text() == former and "valid on" in former
        assert "new.tsv: 1 of 2 sources have symbols unseen in training" in done.stderr
        assert "new.tsv, which has no targets to score by, are in" in done.stderr and done.stdout == ""
        assert len((tmp_path / "out" / "new.tsv").read_text().splitlines()) == 2

    def test_a_model_that_copies_writes_letters_that_it_has_not_seen(self, tmp_path):
        """After two updates a model copies at random, and these sources contain only the unseen letter."""
        data, new = write_tables(tmp_path / "words", features=True, separated=False), tmp_path / "new.tsv"
        new.write_text("zzz\tN;PL\n")
        more = ["--output", tmp_path / "out", "--updates", "2", *QUICK, "--arch", "pointer_generator", "--nbest", "2"]
        done = run("fairseq-attnvariants", "strings", data / "train.tsv", data / "valid.tsv", new, "--cpu", *more)
        assert "Warning" not in done.stderr
        source, features, predicted = (tmp_path / "out" / "new.tsv").read_text().rstrip("\n").split("\t")
        assert (source, features) == ("zzz", "N;PL") and "z" in predicted and "<unk>" not in predicted
        for rank, line in enumerate((tmp_path / "out" / "new.nbest.tsv").read_text().splitlines(), start=1):
            assert line.startswith("zzz\tN;PL\t") and line.split("\t")[3] == str(rank) and "<unk>" not in line

    def test_a_source_that_is_too_long_is_refused_before_training(self, tmp_path):
        data, out = write_tables(tmp_path / "words"), tmp_path / "out"
        (data / "test.tsv").write_text("ab\taa bb\nabcde\ta b c d e f g h i j\n")
        more = ["--output", out, "--updates", "2", *QUICK]
        for side, count in (("source", 5), ("target", 10)):
            done = strings(data, *more, f"--max-{side}-positions", str(count), check=False)
            said = (
                f"line 2: the {side} has {count} symbols, and a model reads {count - 1}: leave the line out, or train"
            )
            assert done.returncode == 2 and said in done.stderr and not out.exists()
        strings(data, *more, "--max-source-positions", "6", "--max-target-positions", "11")

    def test_a_table_may_be_corrected_before_anything_is_trained(self, tmp_path):
        """A refused table writes nothing. A table that models were trained on is never replaced."""
        data, out = write_tables(tmp_path / "words", features=True), tmp_path / "out"
        kept = (data / "train.tsv").read_text()
        more = ["--output", out, "--updates", "2", *QUICK, "--source-separator", "space", *SPACED]
        more += ["--source-column", "1", *FEATURES]
        for line, said in (
            ("<s>\tV\tx y", "the source has <s>, a symbol of fairseq's own"),
            ("a\tV\t</s> y", "the target has </s>, a symbol of fairseq's own"),
            ("a\t<pad>\tx y", "the features have <pad>, a symbol of fairseq's own"),
            ("[V]\tV\tx y", "the feature V is [V] in the dictionary, and so is a symbol of the sources"),
        ):
            (data / "train.tsv").write_text(f"{kept}{line}\n")
            done = strings(data, *more, check=False)
            assert done.returncode == 2 and said in done.stderr and not out.exists()
        (data / "train.tsv").write_text(kept)
        strings(data, *more)
        (data / "train.tsv").write_text(kept + "a\tV\tx y\n")
        assert f"{out} was trained on another {data}/train.tsv" in strings(data, *more, check=False).stderr
        for path in (out / "data").glob("dict.*.txt"):
            path.unlink()
        before = (out / "data" / "train.tsv").read_text()
        assert f"{out} was trained on another {data}/train.tsv" in strings(data, *more, check=False).stderr
        assert (out / "data" / "train.tsv").read_text() == before

    def test_tables_of_somebody_else_are_not_replaced(self, tmp_path):
        data, mine = write_tables(tmp_path / "words"), tmp_path / "mine" / "data" / "train.tsv"
        mine.parent.mkdir(parents=True)
        mine.write_text("my own\ttable\n")
        done = strings(data, "--output", tmp_path / "mine", "--updates", "2", *QUICK, check=False)
        assert done.returncode == 2 and f"was trained on another {data}/train.tsv" in done.stderr
        assert mine.read_text() == "my own\ttable\n"

    def test_a_limit_that_is_no_number(self, tmp_path):
        done = strings(
            write_tables(tmp_path / "words"), "--output", tmp_path, "--max-source-positions", "x", check=False
        )
        assert done.returncode == 2 and "usage" not in done.stderr
        assert "argument --max-source-positions: invalid int value: 'x'" in done.stderr

    def test_cells_are_written_as_they_were(self, tmp_path):
        """Only predictions are normalised to NFC."""
        data = write_tables(tmp_path / "words", features=True, separated=False)
        source = unicodedata.normalize("NFD", "éa")
        (data / "test.tsv").write_text(f"{source}\tN;PL\tx\n", encoding="utf-8")
        strings(data, "--output", tmp_path / "out", "--updates", "2", *QUICK)
        assert (tmp_path / "out" / "test.tsv").read_text(encoding="utf-8").startswith(f"{source}\tN;PL\t")

    def test_fairseq_train_says_why(self, tmp_path):
        data = write_tables(tmp_path / "words")
        done = strings(data, "--output", tmp_path / "out", "--arch", "ava", "--encoder-hidden-size", "0", check=False)
        assert done.returncode == 2 and "fairseq-train failed: --encoder-hidden-size" in done.stderr
        assert "--encoder-hidden-size must be at least 1" in done.stderr.splitlines()[-1]
        (data / "train.tsv").write_text("ab\taa bb\n")
        done = strings(data, "--output", tmp_path / "out", check=False)
        assert "was trained on another" in done.stderr

    @pytest.mark.parametrize("arch", ["lstm", "transformer"])
    def test_architectures_of_fairseqs_own(self, tmp_path, arch):
        """They get only the options that they have."""
        data = write_tables(tmp_path / "words", features=True, separated=False)
        small = [] if arch == "lstm" else ["--encoder-layers", "1", "--decoder-layers", "1"]
        done = strings(data, "--output", tmp_path / "out", "--updates", "2", "--arch", arch, *small)
        assert "test     seed 1" in done.stdout
        log = (tmp_path / "out" / "seed1" / "train.log").read_text()
        assert "encoder_embed_dim=64" in log and ("encoder_hidden_size=128" in log) == (arch == "lstm")

    def test_decomposed(self, tmp_path):
        """Syllables unseen in training consist of jamo seen in training; predictions are composed."""
        folder = tmp_path / "words"
        folder.mkdir()
        syllables = [chr(0xAC00 + 31 * k) for k in range(300)]
        for name, words in (("train", syllables[10:]), ("valid", syllables[:5]), ("test", syllables[5:10])):
            (folder / f"{name}.tsv").write_text("".join(f"{word}\t{word}\n" for word in words), encoding="utf-8")
        done = strings(folder, "--output", tmp_path / "out", "--updates", "2", *QUICK)
        assert "symbols of sources: letters, marks and Hangul's jamo, decomposed, of targets: letters" in done.stderr
        data = tmp_path / "out" / "data"
        assert "<separator:NFD> 0" in (data / "dict.source.txt").read_text()
        assert not any(char in (data / "dict.source.txt").read_text() for char in syllables)
        predicted = (tmp_path / "out" / "test.tsv").read_text()
        assert predicted == unicodedata.normalize("NFC", predicted)

    @pytest.mark.slow
    @pytest.mark.more
    def test_interrupted(self, tmp_path):
        """The same command after a kill gives the predictions and weights of an uninterrupted run."""
        data = write_tables(tmp_path / "words")
        tables = [str(data / f"{name}.tsv") for name in ("train", "valid", "test")]
        more = ["--cpu", "--updates", "120", *QUICK, "--output"]
        command = [sys.executable, "-m", "fairseq_attnvariants_cli", "strings", *tables, *more]
        command.append(str(tmp_path / "killed"))
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
        last, end = tmp_path / "killed" / "seed1" / "checkpoint_last.pt", time.monotonic() + 120
        while not last.exists() and time.monotonic() < end and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
        for name in ("killed", "whole"):
            strings(data, *more, tmp_path / name)
        killed, whole = ((tmp_path / name / "test.tsv").read_text() for name in ("killed", "whole"))
        assert killed == whole
        models = [
            torch.load(tmp_path / name / "seed1" / "checkpoint_last.pt", weights_only=True)
            for name in ("killed", "whole")
        ]
        assert all(value.equal(models[1]["model"][name]) for name, value in models[0]["model"].items())


def test_a_task_of_tables_here(tmp_path):
    """Without a command, test the symbols, the counts and the columns that a checkpoint stores."""
    data = write_tables(tmp_path / "data", features=True)
    cfg = StringTransductionConfig(data=str(data), target_column=3, features_column=2, target_separator="space")
    cfg.train_subset, cfg.required_seq_len_multiple = "train", 1
    task = StringTransductionTask.setup_task(cfg)
    task.load_dataset("train")
    task.load_dataset("valid")
    item = task.dataset("train")[0]
    row = (data / "train.tsv").read_text().splitlines()[0].split("\t")
    assert task.source_dictionary.string(item["source"]).partition("\t")[0] == row[0]
    assert task.target_dictionary.string(item["target"]) == row[2]
    assert (data / "dict.features.txt").read_text().split("\n")[0].startswith("N 60")
    later = StringTransductionTask.setup_task(StringTransductionConfig(data=str(data), train_subset="train"))
    with pytest.raises(ConfigurationError, match="has dict.features.txt, .*: give --features-column"):
        later.load_dataset("valid")
    given = dict(source_column=2, target_column=3, features_column=1)
    other = StringTransductionTask.setup_task(StringTransductionConfig(data=str(data), train_subset="train", **given))
    other.load_state_dict(task.state_dict())
    assert other.columns == (2, 3, 1)  # options win
    clashing = StringTransductionTask.setup_task(StringTransductionConfig(data=str(data), source_column=3))
    clashing.load_state_dict(task.state_dict())
    with pytest.raises(
        ConfigurationError, match="the columns are source 3, target 3, features 2, and two of them are the same"
    ):
        clashing.load_dataset("valid")
    later.load_state_dict(task.state_dict())
    later.cfg.required_seq_len_multiple = 1
    later.load_dataset("valid")
    assert all(
        one["source"].equal(other["source"]) for one, other in zip(later.dataset("valid"), task.dataset("valid"))
    )


# demands that features do not affect, and those on users' parts alone
ELSEWHERE = ("compiled", "widths", "saved", "resumed", "in-place", "device")


@pytest.mark.parametrize("kind", [StringTransductionTask, CharTranslationTask, TranslationTask])
def test_validation_of_a_text_without_targets_is_refused(kind):
    """fairseq-validate may be given one, and would stop in the model."""
    with pytest.raises(ConfigurationError, match="a split of --valid-subset has no target, which training and val"):
        kind.valid_step(kind.__new__(kind), {"net_input": {}, "target": None}, None, None)


@cache
def described(arch):
    """Return a small model of sources with features, as ``fairseq-attnvariants check`` builds it."""
    return Subject(arch, ["--task", "string_transduction"])


def test_validation_searches_greedily():
    subject = described("dl4mt")
    with pytest.raises(ConfigurationError, match="--report-accuracy logs .* of single symbols .*: leave it out"):
        subject.task.build_criterion(Namespace(**{**vars(subject.cfg.criterion), "report_accuracy": True}))
    criterion = subject.task.build_criterion(subject.cfg.criterion)
    sample = subject.pairs().sample
    log = subject.task.valid_step(sample, subject.model(), criterion)[2]
    generator = subject.task.generator
    assert (generator.beam_size, generator.max_len_a, generator.max_len_b) == (1, 3, 30) and log["_strings"] == 3
    assert sample["target"].eq(1).any() and log["_symbols"] == sample["target"].gt(2).sum()  # no padding and no EOS


@pytest.mark.slow
@pytest.mark.parametrize("demand", [name for name in DEMANDS if name not in ELSEWHERE])
@pytest.mark.parametrize("arch", ["dl4mt", "ava", "char2char", "pointer_generator", "hard_attention", "hard_monotone"])
def test_contract(arch, demand):
    """Models whose sources have features hold the demands of fairseq."""
    assert described(arch).task.source_dictionary.first_feature
    found = DEMANDS[demand](described(arch))
    assert found.holds is True, found


@pytest.mark.parametrize("rows, updates", [(60, 2000), (2000, 2500)])
def test_a_training_has_twenty_epochs_and_at_least_two_thousand_updates(tmp_path, rows, updates):
    assert prepared(write_tables(tmp_path / "words", rows)).updates == updates


@pytest.mark.parametrize("row, columns", [
    (["talo", "talot"], Columns(1, 2)),
    (["talo", "N;PL", "talot"], Columns(1, 3, 2)),
    (["talo", "talot", "N;PL"], Columns(1, 2, 3)),
])  # fmt: skip
def test_columns_are_those_of_the_shared_tasks(row, columns):
    none = dict.fromkeys(("source_column", "target_column", "features_column"))
    assert string_tables.find_columns([row], Namespace(train="train.tsv", **none)) == columns


def test_scores_of_seeds_their_mean_and_ranks_of_predictions(tmp_path, monkeypatch):
    predicted, tellings = {"a.pt": [("x", "z"), ("z", "y")], "b.pt": [("x", "z"), ("y", "z")]}, []

    def predict(job, options, name, checkpoints, told):
        tellings.append(told)
        lists = ([Hypothesis("", "-1", text, None) for text in texts] for texts in predicted[checkpoints[-1]])
        return [Sentence("", "", None, hypotheses) for hypotheses in lists]

    monkeypatch.setattr(transduction, "predict", predict)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test.tsv").write_text("a\tx\nb\ty\n")
    job = transduction.Job(tmp_path, tmp_path / "data", Columns(), ("", ""), 2, {"test": "test.tsv"}, "user", 1, "", {})
    systems = {"seed 1": ["a.pt"], "seed 2": ["b.pt"], "ensemble": ["a.pt", "b.pt"]}
    rows = [*transduction.results(job, Namespace(seeds=[1, 2], nbest=2, several_answers=False), "test", systems)]
    assert [row[1:4] for row in rows] == [
        ("seed 1", 2, 50), ("seed 2", 2, 100), ("mean of seeds", 2, 75), ("ensemble", 2, 100)
    ]  # fmt: skip
    assert tellings == [True, False, False]  # unseen symbols of a table are reported once
    assert (tmp_path / "test.tsv").read_text() == "a\tx\nb\ty\n"
    assert (tmp_path / "test.nbest.tsv").read_text() == "a\tx\t1\t-1\na\tz\t2\t-1\nb\ty\t1\t-1\nb\tz\t2\t-1\n"
    # ranks of an earlier search would belong to other predictions
    assert [*transduction.results(job, Namespace(seeds=[1, 2], nbest=1, several_answers=False), "test", systems)]
    assert (tmp_path / "test.tsv").exists() and not (tmp_path / "test.nbest.tsv").exists()
    (tmp_path / "data" / "test.tsv").write_text("a\nb\n")  # without targets only the ensemble predicts
    tellings.clear()
    assert not [*transduction.results(job, Namespace(seeds=[1, 2], nbest=1, several_answers=False), "test", systems)]
    assert tellings == [True] and (tmp_path / "test.tsv").read_text() == "a\tx\nb\ty\n"


@pytest.mark.parametrize("several, expected", [
    (False, [5, 40, 60, 100 * (1 + 3 + 2) / (2 + 3 + 3 + 4 + 2)]),
    (True, [3, 200 / 3, 100 / 3, 100 * 2 / (2 + 4 + 2)]),
])  # fmt: skip
def test_a_word_with_several_answers_is_right_if_one_is(several, expected):
    """Words with other features are other words; SER counts the closest answer."""
    rows = [Row("a", "xy", ("N",)), Row("a", "xyz", ("N",)), Row("b", "kkk"), Row("b", "xykl"), Row("a", "xy", ("V",))]
    found = [Sentence("", "", None, [Hypothesis("", "-1", "xy", None)])] * len(rows)
    assert transduction.score(Namespace(separators=("", "")), rows, found, several) == pytest.approx(expected)


def test_several_answers_without_targets_are_refused(tmp_path):
    """The option changes scores alone, and there are none."""
    data = write_tables(tmp_path)
    (data / "blind.tsv").write_text("ab\n")
    tables = [str(data / f"{name}.tsv") for name in ("blind", "test")]
    with pytest.raises(UserError, match="--several-answers is for scores, and no table to predict has targets"):
        prepared(data, several_answers=True, test=tables[:1])
    assert not (data / "out").exists()
    prepared(data, several_answers=True, test=tables)


def test_a_training_validates_forty_times_and_keeps_the_metric_that_is_given(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(transduction, "start", lambda command, *_: commands.append(command))
    job = transduction.Job(tmp_path, tmp_path, Columns(), (" ", " "), 160, {}, "user", 2000, "", {})  # 200 epochs
    for seed, others in enumerate(([], ["--best-checkpoint-metric=wer"])):
        transduction.train_seed(job, Namespace(arch="dl4mt", cpu=True, others=others, dev="valid.tsv"), seed)
    for command in commands:
        assert [command[command.index(f"--{kind}-interval") + 1] for kind in ("validate", "save")] == ["5", "5"]
    assert ["--maximize-best-checkpoint-metric" in command for command in commands] == [True, False]


def test_training_shuffles_and_batches_are_padded_as_asked(tmp_path):
    cfg = StringTransductionConfig(data=str(write_tables(tmp_path)), target_separator="space", train_subset="train")
    cfg.required_seq_len_multiple = 8
    task = StringTransductionTask.setup_task(cfg)
    for split, orders in (("train", 4), ("valid", 1)):
        task.load_dataset(split)
        pairs = task.dataset(split)
        assert len({tuple(pairs.ordered_indices()) for _ in range(4)}) == orders
        assert pairs.collater([pairs[0]])["net_input"]["src_tokens"].size(1) == 8


@pytest.mark.parametrize("cells", [
    [["talo", "N;PL"], ["yö", "N;SG"]],  # features instead of targets
    [["N;PL", "talo", "talot"]],
    [["a;b", "c", "d"], ["e", "f", "g"]],
    [["a", "b;", "c"], ["d", "e", "f"]],
])  # fmt: skip
def test_columns_that_are_not_those_of_the_shared_tasks_are_asked_for(cells):
    none = dict.fromkeys(("source_column", "target_column", "features_column"))
    with pytest.raises(UserError, match="columns, whose meaning is unclear: give --source-column"):
        string_tables.find_columns(cells, Namespace(train="train.tsv", **none))


@pytest.mark.parametrize("name", ["valid", "test"])
@pytest.mark.parametrize("train, other, said", [
    ("ab\taa\n", "ab\tN;PL\taa\n", "has 3 columns, and .*train.tsv has 2: give --source-column"),
    ("ab\taa\tN;PL\n", "ab\tN;PL\taa\n", "has features in column 2, and .*train.tsv in column 3: put the columns"),
    ("ab\taa\tN;PL\n", "ab\tN;PL\n", "has features in column 2, and .*: put .*targets are unknown, keep their column"),
])  # fmt: skip
def test_tables_have_the_columns_that_were_found_in_the_first(tmp_path, name, train, other, said):
    """Features would be read as targets, and scored."""
    for table in ("train", "valid", "test"):
        (tmp_path / f"{table}.tsv").write_text(train)
    assert prepared(tmp_path, output=str(tmp_path / "first"))
    (tmp_path / f"{name}.tsv").write_text(other)
    with pytest.raises(UserError, match=f"{name}.tsv {said}"):
        prepared(tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_semicolon_in_a_word_makes_no_features(tmp_path):
    for table in ("train", "valid", "test"):
        (tmp_path / f"{table}.tsv").write_text("ab\tN;PL\taa\n")
    (tmp_path / "test.tsv").write_text("a;b\tN;PL\taa\n")
    assert prepared(tmp_path).columns == (1, 3, 2)


def test_tables_of_a_language_need_names_that_differ_before_the_ending(tmp_path):
    data = write_tables(tmp_path)
    for name in ("fin.dev", "fin.tst"):
        (data / name).write_bytes((data / "test.tsv").read_bytes())
    with pytest.raises(UserError, match="need different names without their endings, .*fin.dev, .*fin.tst"):
        prepared(data, test=[str(data / "fin.dev"), str(data / "fin.tst")])


def test_a_separator_that_no_string_has_is_told(tmp_path, capsys, caplog):
    """Each string would be one symbol, and no other word could be predicted."""
    prepared(write_tables(tmp_path), target_separator="_")
    said = "no target of .*train.tsv has the separator '_', so each of them is one symbol: is another --target-sep"
    [told] = [line for line in capsys.readouterr().err.splitlines() if "has the separator" in line]
    assert re.match(said, told)
    prepared(tmp_path, output=str(tmp_path / "right"))
    assert "has the separator" not in capsys.readouterr().err
    StringTransductionTask.setup_task(
        StringTransductionConfig(data=str(tmp_path), target_separator="_", train_subset="train")
    )
    assert re.search(said, caplog.text)


def test_letters_and_marks_have_no_separator_that_could_be_missing():
    table = Table("train.tsv", [Row("talo", "talossa", ())])
    assert not [*never_separated(table, [SEPARATORS["decomposed"]] * 2)]
    assert len([*never_separated(table, ["_", " "])]) == 2


def test_features_that_only_a_bar_separates_are_told(tmp_path, capsys, caplog):
    """Each set of Universal Dependencies' features would be one tag, and no other set could be predicted."""
    data, columns = write_tables(tmp_path, features=True), {"features_column": 2, "target_column": 3}
    prepared(data, **columns)
    assert "is one feature" not in capsys.readouterr().err
    table = data / "train.tsv"
    table.write_text(table.read_text().replace("N;PL", "Case=Nom|Number=Plur"))
    prepared(data, output=str(tmp_path / "bars"), **columns)
    said = "'Case=Nom|Number=Plur' is one feature of"
    assert said in capsys.readouterr().err
    StringTransductionTask.setup_task(StringTransductionConfig(data=str(tmp_path), train_subset="train", **columns))
    assert said in caplog.text


@pytest.mark.parametrize("line, told", [
    ("INFO | tasks | valid.tsv: 2 of 2 targets have symbols unseen in training\n", "valid.tsv: 2 of 2"),
    ("WARNING | tasks | 1 samples have invalid sizes and will be skipped, more\n", "1 samples have"),
    ("INFO | train | begin training epoch 2\n", ""),
])  # fmt: skip
def test_rows_that_a_training_cannot_use_are_told(tmp_path, monkeypatch, capsys, line, told):
    monkeypatch.setattr(transduction, "start", lambda command, log, see, mode: see(line))
    job = transduction.Job(tmp_path, tmp_path, Columns(), (" ", " "), 160, {}, "user", 2000, "", {})
    transduction.train_seed(job, Namespace(arch="dl4mt", cpu=True, others=[], dev="valid.tsv"), 1)
    said = capsys.readouterr().err
    assert said.startswith(told) if told else not said


@pytest.mark.parametrize("name, said", [
    ("data/train.tsv", "was trained on another .*train.tsv"),
    ("seed1/options.txt", r"was trained with .*xff, and not with"),
    ("data/dict.source.txt", "dict.source.txt, line 1: not UTF-8"),
    ("data/dict.target.txt", "dict.target.txt, line 1: not UTF-8"),
])  # fmt: skip
def test_damaged_files_of_the_folder_are_refused_in_a_sentence(tmp_path, name, said):
    data = write_tables(tmp_path)
    prepared(data)
    (data / "out" / "seed1").mkdir()
    (data / "out" / "seed1" / "checkpoint_last.pt").touch()
    path = data / "out" / name
    path.write_bytes(b"\xff\n")
    with pytest.raises((UserError, ConfigurationError), match=said):
        prepared(data)
    assert path.read_bytes() == b"\xff\n"


def test_a_table_has_not_the_name_of_anothers_predictions(tmp_path):
    """The predictions of ``--nbest`` would be written over that table's."""
    data = write_tables(tmp_path / "words")
    (data / "test.nbest.tsv").write_bytes((data / "test.tsv").read_bytes())
    with pytest.raises(UserError, match="different names .*, none of them train, valid or NAME.nbest: .*nbest.tsv"):
        prepared(data, test=[str(data / "test.tsv"), str(data / "test.nbest.tsv")])


def test_a_finished_training_without_its_best_checkpoint_goes_on(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(transduction, "start", lambda command, *_: commands.append(command))
    job = transduction.Job(tmp_path, tmp_path, Columns(), (" ", " "), 160, {}, "user", 2000, "", {})
    options = Namespace(arch="dl4mt", cpu=True, others=[], dev="valid.tsv")
    for trained in (1, 2):
        transduction.train_seed(job, options, 1)
        assert len(commands) == trained
    (tmp_path / "seed1" / "checkpoint_best.pt").touch()
    transduction.train_seed(job, options, 1)
    assert len(commands) == 2


@pytest.mark.commands
def test_outputs_that_cannot_be_written_are_named(tmp_path):
    """Errors of a full disk have no name of a file, and those of a folder lack the option."""
    with pytest.raises(UserError, match="/dev/full cannot be written: No space left on device"):
        transduction.start(["platform"], Path("/dev/full"), lambda line: None)
    data = write_tables(tmp_path)
    (data / "out").mkdir()
    (data / "out" / "data").touch()
    with pytest.raises(UserError, match="--output .*out: .*data cannot be written: File exists"):
        prepared(data)


@pytest.mark.commands
def test_a_command_that_is_interrupted_takes_its_process_along(tmp_path, monkeypatch):
    """The process would train on, and write to the folder."""
    (tmp_path / "endless.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def interrupt(line):
        raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        transduction.start(["endless"], tmp_path / "log", interrupt)
    assert time.monotonic() - begun < 50 and (tmp_path / "log").read_text() == "begun\n"
