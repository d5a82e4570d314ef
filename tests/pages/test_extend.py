"""Examples of parts outside of the package check, train, resume and translate by ``--user-dir``."""

import ast
import importlib
import re

import corpus
import pytest
import torch
from conftest import Task, batch, build, outside
from corpus import ROOT

from fairseq_attnvariants.nn.cells import AdaptiveGRUCell, GRUCell
from fairseq_attnvariants.nn.init import Scheme
from fairseq_attnvariants.registry import ConfigurationError

pytestmark = pytest.mark.docs

EXTEND = ROOT / "examples" / "extend"
COSINE, SHARP = EXTEND / "cosine_decay", EXTEND / "sharp_attention"
DOUBLED = EXTEND / "doubled_gru"


@pytest.mark.parametrize("folder", [COSINE, SHARP], ids=lambda folder: folder.name)
def test_the_page_shows_the_whole_file(folder):
    code = (folder / "__init__.py").read_text()
    assert f"```python\n{code}```" in (ROOT / "docs" / "extend.md").read_text()
    assert len([line for line in code.splitlines() if line]) < 50


def test_what_the_examples_import_stays():
    """The page lists all names that examples import, and all listed names exist."""
    page = (ROOT / "docs" / "extend.md").read_text().partition("## What stays")[2]
    rows = re.findall(r"^\| `(fairseq_attnvariants[\w.]*)` \| (.*) \|$", page, re.MULTILINE)
    listed = {(module, name) for module, cell in rows for name in re.findall(r"`(\w+)`", cell)}
    assert all(hasattr(importlib.import_module(module), name) for module, name in listed)
    for file in EXTEND.glob("*/__init__.py"):
        nodes = [*ast.walk(ast.parse(file.read_text()))]
        imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module.startswith("fairseq_")]
        assert {(node.module, alias.name) for node in imports for alias in node.names} <= listed


@pytest.mark.more
def test_the_example_is_exported():
    """The test of the page leaves out this demand."""
    check = "check", "--user-dir", COSINE, "--arch", "cosine_decay", "--demand", "exported"
    assert corpus.run("fairseq-attnvariants", *check).stdout.endswith("all hold\n")


CONTROLS = "--encoder-cell", "doubled_gru", "--decoder-cell", "doubled_carry_gru"


@pytest.mark.exhaustive
def test_the_controls_are_exported():
    check = "check", "--user-dir", DOUBLED, "--arch", "dl4mt", *CONTROLS, "--demand", "exported"
    assert corpus.run("fairseq-attnvariants", *check).stdout.endswith("all hold\n")


def test_the_controls():
    """Weighted parameters start doubled, with the same random numbers, and with g = 1/2 a step is the plain GRU's."""
    with outside(DOUBLED) as package:
        found = []
        for kind in (AdaptiveGRUCell, package.DoubledGRUCell, package.DoubledCarryGRUCell):
            torch.manual_seed(1)
            cell = kind({"x": 3}, 4)
            with torch.no_grad():
                cell.initialise(Scheme(gate_bias=1.0))
            found.append([parameter.clone() for parameter in cell.parameters()])
        for adaptive, doubled, carry in zip(*found):
            assert doubled.equal(carry) and doubled[:12].equal(2 * adaptive[:12]) and doubled[12:].equal(adaptive[12:])
        plain, control = GRUCell({"x": 3}, 4), package.DoubledCarryGRUCell({"x": 3}, 4)
        with torch.no_grad():
            for base, parameter in zip(plain.parameters(), control.parameters()):
                parameter.zero_()[: len(base)] = 2 * base.uniform_(-1, 1)
        x, h = torch.randn(2, 3), torch.randn(2, 4)
        torch.testing.assert_close(control(h, x=x), plain(h, x=x))
        for changed, options in (("layer-norm", dict(layer_norm="all")), ("context-gate", dict(context_gate="both"))):
            with pytest.raises(ConfigurationError, match=f"doubled_gru .* which --{changed} .*: leave one of them out"):
                build("dl4mt", decoder_cell="doubled_gru", **options)
        build("dl4mt", decoder_cell="doubled_gru", layer_norm="encoder")


def test_a_checkpoint_with_a_control_loads_with_its_folder(data, tmp_path):
    arguments = corpus.train_arguments(data, tmp_path, "--max-update", "1", *CONTROLS, arch="dl4mt")
    arguments[arguments.index("--user-dir") + 1] = str(DOUBLED)
    corpus.run("fairseq-train", *arguments)
    generate = [data, "--path", tmp_path / "checkpoint_last.pt", "--cpu", "--user-dir"]
    corpus.run("fairseq-generate", *generate, DOUBLED)
    done = corpus.run("fairseq-generate", *generate, corpus.USER_DIR, check=False)
    said = done.stderr.splitlines()[-1]
    assert done.returncode and "unknown cell 'doubled_gru'" in said and "those that a --user-dir registers" in said


def test_a_cost(data):
    """The cost of spread attention is the entropy that the docstring gives, and the criterion passes the check."""
    options = "--demand", "loss", "saved", "resumed", "--criterion", "sharp_attention"
    done = corpus.run("fairseq-attnvariants", "check", "--user-dir", SHARP, "--arch", "rnnsearch", *options)
    assert done.stdout.endswith("all hold\n")
    with outside(SHARP) as package:
        task, model = Task(), build("rnnsearch", scale=0.5).eval()
        source, lengths, previous = batch()
        sample = {"net_input": dict(src_tokens=source, src_lengths=lengths, prev_output_tokens=previous)}
        sample |= {"target": previous.roll(-1, 1), "ntokens": 1}
        losses = [package.SharpAttention(task, False, 0.1, 0, False, weight)(model, sample)[0] for weight in (0, 0.5)]
        weights = model(**sample["net_input"])[1]["attn"][0][sample["target"].ne(1)].double()
    entropy = -(weights * weights.clamp(min=1e-9).log()).sum()
    torch.testing.assert_close(losses[1] - losses[0], (0.5 * entropy).to(losses[0]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("folder", sorted(EXTEND.glob("*/")), ids=lambda folder: folder.name)
def test_an_example_alone_brings_the_architectures(folder):
    """The example is the only ``--user-dir`` of stock fairseq, which has not imported the package before."""
    assert (
        "--attention-score" in corpus.run("fairseq-train", "--user-dir", folder, "--arch", "rnnsearch", "--help").stdout
    )


def test_the_loss_of_the_page_learns(tmp_path):
    """The printed command learns the quickstart's text in three epochs; a weight of 0.1 would give a loss of 2.9."""
    page = (ROOT / "docs" / "extend.md").read_text().replace("\\\n", "")
    [command] = re.findall(r"^fairseq-train (data-bin .*--criterion sharp_attention .*)$", page, re.MULTILINE)
    corpus.run("python", ROOT / "examples/laboratory/make_corpus.py", "quickstart", "toy", cwd=tmp_path)
    text = [f"--{name}pref=toy/{name}" for name in ("train", "valid", "test")]
    corpus.run("fairseq-preprocess", "-s", "src", "-t", "tgt", *text, "--destdir", "data-bin", cwd=tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = corpus.run("fairseq-train", *command.split(), "--max-epoch", 3, "--log-format", "simple", cwd=tmp_path)
    losses = [
        float(loss) for loss in re.findall(r"valid on 'valid' subset \| loss ([\d.]+)", done.stdout + done.stderr)
    ]
    assert len(losses) == 3 and losses[0] > losses[1] > losses[2] and losses[2] < 2.2


def test_train_resume_translate(data, tmp_path):
    """A resumed training ends in the same bits, with a rate of decay that the checkpoint stores."""

    def train(name, updates):
        arguments = corpus.train_arguments(data, tmp_path / name, "--max-update", updates, arch="cosine_decay")
        arguments[arguments.index("--user-dir") + 1] = str(COSINE)
        corpus.run("fairseq-train", *arguments, "--part-args", '{"decay": {"rate": 0.9}}', cwd=tmp_path)

    for name, updates in (("whole", 6), ("resumed", 3), ("resumed", 6)):
        train(name, updates)
    paths = [tmp_path / name / "checkpoint_last.pt" for name in ("whole", "resumed")]
    whole, resumed = (torch.load(path, weights_only=True) for path in paths)
    assert '"rate": 0.9' in whole["cfg"]["model"]["part_args"]
    assert all(value.equal(resumed["model"][name]) for name, value in whole["model"].items())
    output = corpus.run("fairseq-generate", data, "--user-dir", COSINE, "--path", paths[1], "--cpu").stdout
    assert "BLEU" in output and output.count("\nH-") == 12
