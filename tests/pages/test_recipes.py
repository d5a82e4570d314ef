"""The recipes of ``examples/``: scripts run, fairseq accepts their options, configurations have the same settings."""

import os
import re
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import corpus
import hydra
import pytest
from corpus import ROOT
from fairseq import options
from fairseq.dataclass.initialize import hydra_init
from fairseq_cli.hydra_train import _hydra_main
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

pytestmark = pytest.mark.more

EXAMPLES = ROOT / "examples"
TINY = ["--max-update", "2", "--cpu", "--num-workers", "0", "--batch-size", "8"]

# folder, size, configuration of the same setting, architectures
SETTINGS = [
    ("distortion_fertility", "small", None, "inputfeed hybridatt1 hybridatt2 recatt rnnatt conddec_rnnatt"),
    ("distortion_fertility", "paper", "paper", "recatt rnnsearch"),
    ("adaptive_weighting", "small", None, "dl4mt adaptive_gru adaptive_output adaptive_both"),
    ("adaptive_weighting", "en-de", "en-de", "adaptive_both"),
    ("adaptive_weighting", "zh-en", "zh-en", "adaptive_both"),
    ("bridging", "small", None, "rnnsearch_star bridge_direct"),
    ("bridging", "paper", "paper", "bridge_target bridge_source"),
    ("attention_via_attention", "small", None, "ava lstm"),
    ("attention_via_attention", "paper", "paper", "ava ava_encs ava_deep"),
]
CONFIGURATIONS = [(folder, name) for folder, _, name, _ in SETTINGS if name]


def put(path, *lines):
    """Write a command."""
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(stat.S_IRWXU)


@pytest.fixture(scope="module")
def script(warm):
    """A function that runs a script of ``examples/``."""
    path = os.pathsep.join([str(warm), str(corpus.SCRIPTS), os.environ["PATH"]])

    def run(name, *arguments, check=True, **environment):
        environment = {"PATH": path, **environment}
        return corpus.run(EXAMPLES / name, *arguments, check=check, environment=environment)

    return run


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The corpus, another reference of two of its sets, and alignments of its reversed sentences."""
    folder = tmp_path_factory.mktemp("it's a corpus")
    corpus.write_corpus(folder)
    (folder / "train.align").write_text(corpus.reversed_links(folder / "train.xx"))
    for name in ("test", "valid"):
        (folder / f"{name}.yy1").write_text((folder / f"{name}.yy").read_text().replace("ant", "bee").title())
    return folder


@pytest.fixture(scope="module")
def words(script, text, tmp_path_factory):
    """The corpus as words for fairseq."""
    out = tmp_path_factory.mktemp("words") / "prepared"
    alignments = {"ALIGNMENTS": str(text / "train.align"), "TEST": "test valid"}
    script("common/prepare_words.sh", "small", text, out, "xx", "yy", **alignments)
    return out


@pytest.fixture(scope="module")
def characters(script, text, tmp_path_factory):
    """The corpus as characters for fairseq."""
    out = tmp_path_factory.mktemp("characters") / "prepared"
    script("common/prepare_characters.sh", "paper", text, out, "xx", "yy")
    return out


def test_words(script, words, text, tmp_path):
    """Prepare, train and evaluate, with UNKs replaced, two test sets and two references; finished parts stay."""
    assert (words / "lexicon.tsv").read_text().startswith("ant\tant\t") and not list(words.parent.glob("*.part"))
    again = ["common/prepare_words.sh", "small", text, words, "xx", "yy"]
    assert "stays as it is" in script(*again, TEST="test valid", LEXICON="yes", JOIN="1").stdout
    moved = shutil.copytree(text, tmp_path / "moved")
    assert "stays as it is" in script(*again[:2], moved, *again[3:], TEST="test valid").stdout
    (moved / "train.xx").write_text("another\n")
    done = script(*again[:2], moved, *again[3:], check=False, TEST="test valid")
    assert done.returncode == 2 and "has text of small" in done.stderr and "give another OUT" in done.stderr
    for other in ({"LEXICON": "no"}, {"LOWER": "yes"}, {"TEST": "valid"}):
        done = script(*again, check=False, **{"TEST": "test valid", **other})
        assert done.returncode == 2 and "has text of small xx-yy VALID=valid TEST=test valid, checksum" in done.stderr
        assert "give another" in done.stderr
    script("distortion_fertility/train.sh", "small", words / "bin", tmp_path, "conddec", *TINY)
    evaluate = ["words", words, tmp_path, "xx", "yy", "--beam", "2", "--cpu"]
    printed = script("common/evaluate.sh", *evaluate, SUBSET="test test1", SACREBLEU="--chrf-beta 3").stdout
    assert all(name in printed for name in ("BLEU", "chrF3", "TER", "test1.replaced.txt", "all.replaced.txt"))
    assert printed.count("nrefs:2") == 9  # three measures of three sets
    for name in ("txt", "replaced.txt", "xx", "yy", "yy1"):
        parts = [(tmp_path if name.endswith("txt") else words) / f"{split}.{name}" for split in ("test", "test1")]
        assert (tmp_path / f"all.{name}").read_text() == "".join(part.read_text() for part in parts)
    assert (words / "test1.yy1").read_text() == (text / "valid.yy1").read_text().lower()
    assert "<unk>" not in (tmp_path / "all.replaced.txt").read_text()


def test_bpe(script, text, tmp_path):
    data, out = tmp_path / "prepared", tmp_path / "out"
    script("common/prepare_bpe.sh", "paper", text, data, "xx", "yy", LOWER="yes", JOIN="3")
    lines = (text / "test.yy1").read_text().lower().splitlines()
    joined = [" ".join(lines[first : first + 3]) for first in range(0, len(lines), 3)]
    assert (data / "test.yy1").read_text().splitlines() == joined
    script("adaptive_weighting/train.sh", "small", data / "bin", out, "adaptive_both", *TINY)
    printed = script("common/evaluate.sh", "bpe", data, out, "xx", "yy", "--cpu").stdout
    assert "BLEU" in printed and "@@" not in (out / "test.txt").read_text()


def test_side_by_side(script, text, tmp_path):
    """Three runs prepare the same text at the same time, and one does the work."""
    arguments = ("common/prepare_bpe.sh", "small", text, tmp_path / "new" / "prepared", "xx", "yy")
    with ThreadPoolExecutor() as several:
        runs = [several.submit(script, *arguments) for _ in range(3)]
    assert sum("stays as it is" in run.result().stdout for run in runs) == 2
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["prepared"]


def test_bpe_dropout(script, text, tmp_path):
    """Folders have different segmentations, the same for the same seed, and one dictionary without unknown words."""
    options = {"DROPOUT": "0.4", "SEGMENTATIONS": "3"}
    for name, seed in (("one", {}), ("same", {"SEED": "1"}), ("other", {"SEED": "2"})):
        script("common/prepare_bpe.sh", "small", text, tmp_path / name, "xx", "yy", **options, **seed)
    one = tmp_path / "one"

    def pieces(folder, k, side):
        return (tmp_path / folder / f"dropped{k}.train.{side}").read_text()

    for side in ("xx", "yy"):
        found = [pieces("one", k, side) for k in range(3)]
        words = (one / f"train.{side}").read_text()
        assert [each.replace("@@ ", "") for each in found] == [words] * 3 and len({words, *found}) == 4
        assert found == [pieces("same", k, side) for k in range(3)]
        assert not {*found} & {pieces("other", k, side) for k in range(3)}
        assert len({(folder / f"dict.{side}.txt").read_text() for folder in one.glob("bin*")}) == 1
        for split in ("valid", "test"):
            contents = {(folder / f"{split}.xx-yy.{side}.bin").read_bytes() for folder in one.glob("bin*")}
            assert len(contents) == 1
        known = {line.split()[0] for line in (one / "bin" / f"dict.{side}.txt").read_text().splitlines()}
        assert {*" ".join(found).split()} <= known
    bins = ":".join(str(one / f"bin{k}") for k in range(3))
    longer = ["--max-epoch", "4", "--max-update", "0", "--batch-size", "60", "--cpu", "--num-workers", "0"]
    script("baselines/short.sh", bins, tmp_path / "run", "rnnsearch", *longer)
    log = (tmp_path / "run" / "train.log").read_text()
    read = re.findall(r"(bin\d)/train\.xx-yy\.xx", log)
    assert read[:4] == ["bin0", "bin1", "bin2", "bin0"]


@pytest.mark.parametrize("environment,message", [
    ({"DROPOUT": "0"}, "DROPOUT=0 is no probability between 0 and 1, such as 0.1"),
    ({"DROPOUT": "1.0"}, "DROPOUT=1.0 is no probability"),
    ({"DROPOUT": "0.1", "SEGMENTATIONS": "0"}, "SEGMENTATIONS and SEED are numbers from 1 on"),
    ({"DROPOUT": "0.1", "ALIGN": "yes"}, "ALIGN=yes goes without DROPOUT"),
    ({"SEGMENTATIONS": "4"}, "give DROPOUT=0.1, too"),
])  # fmt: skip
def test_bpe_dropout_refuses(script, text, tmp_path, environment, message):
    arguments = ["small", text, tmp_path / "out", "xx", "yy"]
    process = script("common/prepare_bpe.sh", *arguments, check=False, **environment)
    assert process.returncode == 2 and message in process.stderr and process.stderr.count("\n") == 1
    assert not list(tmp_path.glob("out*"))


def test_characters(script, characters, tmp_path):
    script("attention_via_attention/train.sh", "small", characters / "bin", tmp_path, "ava", *TINY)
    evaluate = ["characters", characters, tmp_path, "xx", "yy", "--beam", "2", "--cpu", "--max-len-b", "9"]
    assert "chrF2" in script("common/evaluate.sh", *evaluate).stdout


@pytest.mark.parametrize("path,arguments,message", [
    ("common/prepare_bpe.sh", ["large", "a", "b", "en", "de"], "usage: prepare_bpe.sh small|paper"),
    ("common/evaluate.sh", ["sounds", "a", "b", "en", "de"], "'sounds' is none of words, bpe and characters"),
    ("bridging/train.sh", ["large", "a", "b", "bridge_target"], "'large' is neither small nor paper"),
    ("bridging/train.sh", ["small"], "usage: train.sh small|paper BIN OUT ARCH"),
    ("baselines/multi30k.sh", ["a", "b", "de"], "usage: multi30k.sh TEXT OUT TARGET SYSTEM"),
    ("common/prepare_test.sh", ["a", "b"], "usage: prepare_test.sh CORPUS PREPARED NAME SOURCE TARGET"),
    ("captions/queue.sh", ["a"], "usage: queue.sh TEXT OUT"),
    ("baselines/distil.sh", ["a", "b", "de"], "usage: distil.sh TEXT OUT TARGET SYSTEM"),
    ("alignment/errors.sh", ["a", "b"], "usage: errors.sh PREPARED OUT GOLD"),
    ("attention_via_attention/download.sh", ["cs", "a"], "download.sh cs OUT CZENG"),
])  # fmt: skip
def test_wrong_arguments(script, path, arguments, message):
    process = script(path, *arguments, check=False)
    assert process.returncode == 2 and message in process.stderr and process.stderr.count("\n") == 1


def test_a_line_feed_alone_ends_a_line(text, tmp_path):
    """Other line separators become spaces, as in fairseq-preprocess; a carriage return at the end is removed."""
    lines = [["a b\r\n", "c\rd\u2028\x85\xa0\x1ce\n", "\re f\n"], ["A\n", "B\n", "C D\r\n"]]
    for side, several in zip(("xx", "yy"), lines):
        (tmp_path / f"in.{side}").write_bytes("".join(several).encode())
    clean = [sys.executable, str(EXAMPLES / "common" / "clean.py"), "in", "out", "xx", "yy"]
    subprocess.run(clean, cwd=tmp_path, check=True)
    assert (tmp_path / "out.xx").read_bytes() == b"a b\nc d e\ne f\n"
    assert (tmp_path / "out.yy").read_bytes() == b"A\nB\nC D\n"
    refused = subprocess.run([*clean, "--join", "0"], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 1 and refused.stderr == "clean.py: --join 0 is not at least 1\n"
    refused = subprocess.run([*clean, "--longest", "-1"], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 1 and refused.stderr == "clean.py: --longest -1 is not at least 0\n"
    (tmp_path / "in.yy").write_bytes(b"A\nB\xff\nC\n")
    refused = subprocess.run(clean, cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 1 and refused.stderr == "clean.py: in.yy, line 2: not UTF-8: save it as UTF-8\n"
    (tmp_path / "in.yy").write_bytes(b"A\nB\n")
    refused = subprocess.run(clean, cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 1 and refused.stderr == "clean.py: in.xx and in.yy do not have equally many lines\n"
    assert (tmp_path / "out.yy").read_bytes() == b"A\nB\nC D\n"  # nothing is half-written
    (tmp_path / "in.yy").unlink()
    refused = subprocess.run(clean, cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 1 and refused.stderr == "clean.py: in.yy: No such file or directory\n"


@pytest.fixture
def tagger(tmp_path):
    """An environment with a tagger for which all words are nouns."""
    (tmp_path / "HanTa").mkdir()
    (tmp_path / "HanTa" / "HanoverTagger.py").write_text(
        "class HanoverTagger:\n"
        "    def __init__(self, model): pass\n"
        "    def tag_sent(self, words, taglevel): return [(word, word, 'NN') for word in words]\n"
    )
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


FILTERS = ["common/tokenise.py", "adaptive_weighting/tag.py"]  # read standard input


@pytest.mark.parametrize("script", FILTERS)
def test_a_reader_may_close_the_pipe(tagger, script):
    head = f"yes | '{sys.executable}' '{EXAMPLES / script}' en | head -n 1"
    done = subprocess.run(head, shell=True, capture_output=True, text=True, env=tagger, timeout=100)
    assert done.stderr == "" and done.stdout in ("y\n", "content\n")


def test_text_to_tag_that_is_not_utf8_is_refused(tagger):
    tag = [sys.executable, EXAMPLES / "adaptive_weighting" / "tag.py", "en"]
    done = subprocess.run(tag, input="für dich\n".encode() + b"f\xe4r\n", capture_output=True, env=tagger)
    said = b"tag.py: line 2 of standard input is not UTF-8: save the text as UTF-8\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, b"content content\n", said)


def test_raw_text_that_is_not_utf8_is_refused():
    tokenise = [sys.executable, str(EXAMPLES / "common" / "tokenise.py"), "en"]
    done = subprocess.run(tokenise, input=b"Hello, you.\nf\xe4r\n", capture_output=True)
    assert (done.returncode, done.stderr) == (1, b"tokenise.py: standard input is not UTF-8: save the text as UTF-8\n")
    done = subprocess.run(tokenise, input="Hello, für.\n".encode(), capture_output=True)
    assert (done.returncode, done.stdout.decode()) == (0, "Hello , für .\n")


def split(folder, *options):
    command = [sys.executable, str(EXAMPLES / "common" / "split.py"), "all", "text", "xx", "yy", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_a_split_shares_no_sentence(tmp_path):
    """No sentence is shared in either language, in any case; repeated pairs are kept once, incomplete ones dropped."""
    pairs = [(f"{'aA'[k % 2]} {k // 2 % 40}", f"b {k % 33}") for k in range(200)] + [("", "b"), ("a", " ")]
    for side, name in enumerate(("all.xx", "all.yy")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    done = split(tmp_path, "--valid", "5", "--test", "6")
    texts = {}
    for name in ("train", "valid", "test"):
        sides = [(tmp_path / "text" / f"{name}.{side}").read_text().splitlines() for side in ("xx", "yy")]
        texts[name] = [*zip(*sides, strict=True)]
    assert [len(texts["valid"]), len(texts["test"])] == [5, 6] and texts["train"]
    kept = [pair for text in texts.values() for pair in text]
    assert len(kept) == len({*kept}) and {*kept} <= {*pairs} and all(side.strip() for pair in kept for side in pair)
    for name, other in (("test", "valid"), ("test", "train"), ("valid", "train")):
        for side in (0, 1):
            assert {pair[side].lower() for pair in texts[name]}.isdisjoint(p[side].lower() for p in texts[other])
    different = len({pair for pair in pairs if all(side.strip() for side in pair)})
    left = different - len(kept)
    counts = f"{different} different pairs: {len(texts['train'])} train, 5 valid, 6 test"
    assert left > 0 and done.stdout == f"{counts}; {left} left out, with a sentence of valid or test\n"
    first = (tmp_path / "text" / "test.xx").read_text()
    assert split(tmp_path, "--valid", "5", "--test", "6").returncode == 0
    assert (tmp_path / "text" / "test.xx").read_text() == first
    assert split(tmp_path, "--valid", "5", "--test", "6", "--seed", "2").returncode == 0
    assert (tmp_path / "text" / "test.xx").read_text() != first


def test_a_split_refuses_what_it_cannot_divide(tmp_path):
    (tmp_path / "all.xx").write_text("a\nb\n")
    assert split(tmp_path).stderr == "split.py: all.yy: No such file or directory\n"
    (tmp_path / "all.yy").write_bytes(b"a\nb\xff\n")
    assert split(tmp_path).stderr == "split.py: all.yy, line 2: not UTF-8: save it as UTF-8\n"
    (tmp_path / "all.yy").write_text("a\n")
    assert split(tmp_path).stderr == "split.py: all.xx has 2 lines, and all.yy has 1\n"
    (tmp_path / "all.yy").write_text("a\nb\n")
    reason = "split.py: 2 different pairs leave none to train: give smaller --valid and --test\n"
    assert split(tmp_path).stderr == reason
    assert split(tmp_path, "--test", "0").stderr == "split.py: --valid and --test are numbers from 1 on\n"
    assert not (tmp_path / "text").exists()
    for side in ("xx", "yy"):
        (tmp_path / f"all.{side}").write_text("a\nb\nc\n")
    (tmp_path / "text").touch()
    assert split(tmp_path, "--valid", "1", "--test", "1").stderr == "split.py: text: File exists\n"


def test_a_split_warns_of_few_pairs_to_train(tmp_path):
    """There are few if more are held out; the texts are still written."""
    for side in ("xx", "yy"):
        (tmp_path / f"all.{side}").write_text("".join(f"{side} {k}\n" for k in range(20)))
    enough, few = (split(tmp_path, "--valid", "5", "--test", test) for test in ("5", "6"))
    assert (enough.returncode, enough.stderr, few.returncode) == (0, "", 0)
    kept = "split.py: warning: training keeps 9 pairs, fewer than valid and test together (11): "
    assert few.stderr == f"{kept}give smaller --valid and --test, or more text\n"
    assert (tmp_path / "text" / "train.xx").read_text().count("\n") == 9


def test_mixed_texts_are_the_same_ones(script, text, characters, tmp_path):
    """Mixed texts keep further references; a training text that was cut on one side is refused."""
    bpe, out = tmp_path / "bpe", tmp_path / "mixed"
    script("common/prepare_bpe.sh", "paper", text, bpe, "xx", "yy")
    script("common/prepare_mixed.sh", bpe, characters, out, "xx", "yy")
    assert (out / "test.yy1").read_bytes() == (characters / "test.yy1").read_bytes()
    cut = (bpe / "bpe.train.xx").read_text().split("\n", 1)[1]
    (bpe / "bpe.train.xx").write_text(cut)
    process = script("common/prepare_mixed.sh", bpe, characters, tmp_path / "other", "xx", "yy", check=False)
    assert process.returncode == 2 and "prepare_mixed.sh: train has other sentences in" in process.stderr


def test_sets_with_other_references_are_not_joined(script, text, tmp_path):
    for name in ("test.yy", "test.yy1", "test1.yy"):
        (tmp_path / name).write_text("a\n")
    evaluate = ["words", tmp_path, tmp_path, "xx", "yy"]
    process = script("common/evaluate.sh", *evaluate, check=False, SUBSET="test test1")
    assert process.returncode == 2 and "evaluate.sh: test1 has other references than test" in process.stderr


def test_a_folder_with_an_ampersand_in_its_name(tmp_path):
    """From bash 5.2 on, an unquoted ``&`` in a replacement is the text that it replaces."""
    folder = tmp_path / "R&D"
    folder.mkdir()
    (folder / "test.yy").write_text("a\n")
    put(tmp_path / "fairseq-generate", "printf 'H-0\\t-1\\ta\\n'")
    put(tmp_path / "sacrebleu", 'printf "%s\\n" "$@" > "$SEEN"')
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SEEN": str(tmp_path / "seen")}
    command = [EXAMPLES / "common" / "evaluate.sh", "bpe", folder, folder, "xx", "yy"]
    subprocess.run(list(map(str, command)), env={**environment, "USER_DIR": "any"}, check=True, capture_output=True)
    reference, _, translation, *_ = (tmp_path / "seen").read_text().split("\n")
    assert (reference, translation) == (f"{folder}/test.yy", f"{folder}/test.txt")


def test_texts_of_different_lengths(script, text, tmp_path):
    (tmp_path / "train.xx").write_text("a\nb\n")
    (tmp_path / "train.yy").write_text("a\n")
    process = script("common/prepare_characters.sh", "small", tmp_path, tmp_path / "out", "xx", "yy", check=False)
    assert process.returncode == 1 and "do not have equally many lines" in process.stderr
    assert not (tmp_path / "out").exists()


def arguments_of(folder, size, arch, tmp_path):
    """Return the arguments with which a ``train.sh`` calls fairseq-train."""
    put(tmp_path / "fairseq-train", 'printf "%s\\0" "$@" > "$SEEN"')
    put(tmp_path / "fairseq-attnvariants", f"echo '{corpus.USER_DIR}'")
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SEEN": str(tmp_path / "seen")}
    command = [EXAMPLES / folder / "train.sh", size, "/bin", tmp_path / f"out-{arch}", arch]
    subprocess.run(list(map(str, command)), env=environment, check=True, capture_output=True)
    return (tmp_path / "seen").read_text().split("\0")[:-1]


def parse(arguments):
    return vars(options.parse_args_and_arch(options.get_training_parser(), arguments))


@pytest.mark.parametrize("folder,size,configuration,archs", SETTINGS)
def test_options(folder, size, configuration, archs, tmp_path):
    """fairseq accepts the arguments of ``train.sh``, and the configuration has the same settings and no others."""
    found = {arch: parse(arguments_of(folder, size, arch, tmp_path)) for arch in archs.split()}
    assert [namespace["arch"] for namespace in found.values()] == list(found)
    if configuration is None:
        return
    flags = next(iter(found.values()))
    groups = OmegaConf.load(EXAMPLES / folder / f"{configuration}.yaml")
    placed = {"user_dir", "data", "save_dir"}
    stated = {}
    for group, settings in OmegaConf.to_container(groups).items():
        for name in set(settings) - placed:
            value = settings[name] if str(settings[name]).startswith("{") else groups[group][name]
            stated[group if name == "_name" else name] = value
    stated["arch"] = stated.pop("model")
    for name, value in stated.items():
        assert flags.get(name) == value, name
    choices = ("arch", "task", "criterion", "optimizer", "lr_scheduler")
    plain = parse(["/bin", *(word for name in choices for word in (f"--{name.replace('_', '-')}", stated[name]))])
    changed = {
        name for name, value in flags.items() if plain.get(name) != value
    }  # a model has only the options that are given
    follows = {"batch_size_valid"}  # the batch size
    assert changed - placed - follows <= set(stated)


@pytest.mark.parametrize("folder,name", CONFIGURATIONS)
def test_configuration(folder, name, words, characters, tmp_path):
    """Each configuration composes and trains two updates, also with optimizers that have no dataclass."""
    prepared = characters if folder == "attention_via_attention" else words
    sizes = {"encoder_embed_dim": 8, "encoder_hidden_size": 8, "decoder_embed_dim": 8, "decoder_hidden_size": 8}
    overrides = [f"+model.{option}={value}" for option, value in sizes.items()]
    if prepared is characters:
        overrides += ["+model.encoder_char_hidden_size=8", "+model.attention_dim=8", "+model.attention_via_dim=8"]
    overrides += [f"common.user_dir={corpus.USER_DIR}", f"task.data={prepared / 'bin'}", "common.cpu=true"]
    overrides += [f"checkpoint.save_dir={tmp_path}", "optimization.max_update=2", "dataset.num_workers=0"]
    GlobalHydra.instance().clear()
    hydra_init(name)
    with hydra.initialize_config_dir(str(EXAMPLES / folder), version_base="1.1"):
        _hydra_main(hydra.compose(name, overrides))
    assert (tmp_path / "checkpoint_last.pt").exists()
