"""fairseq's task trains one model of several language pairs."""

import os
import random
import re
import subprocess
from argparse import Namespace

import corpus
import pytest
from corpus import ROOT
from fairseq import options
from omegaconf import OmegaConf

from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.patches.messages.overrides import warn_of_unknown
from fairseq_attnvariants.registry import ConfigurationError

pytestmark = pytest.mark.docs

RECIPE = ROOT / "examples" / "multilingual" / "run.sh"


@pytest.mark.parametrize("task", ["multilingual_translation", "semisupervised_translation"])
def test_a_task_of_other_architectures_is_refused(task):
    with pytest.raises(ConfigurationError, match=f"--task {task} .* use --task translation_multi_simple_epoch"):
        arguments = ["data", "--task", task, "--lang-pairs", "xx-yy", "--arch", "dl4mt", "--batch-size", "8"]
        options.parse_args_and_arch(options.get_training_parser(), arguments)


def test_an_option_of_this_task_can_be_overridden(caplog):
    """The task's options are a Namespace, and subcommands override the data folder in it."""
    configuration = {"task": Namespace(data="bin"), "dataset": OmegaConf.create({"batch_size": 8})}
    warn_of_unknown(configuration, {"data": "elsewhere"})
    assert not caplog.text
    warn_of_unknown(configuration, {"dataa": "elsewhere"})
    assert "no option 'dataa' to override (did you mean data?)" in caplog.text


@pytest.mark.more
def test_the_recipe(tmp_path, warm):
    """One pair reverses lines, the other replaces a letter; a token selects the target language."""
    generator = random.Random(1)
    for split, count in (("train", 200), ("val", 12), ("test", 12)):
        lines = [" ".join(generator.choices(corpus.WORDS, k=generator.randint(1, 4))) for _ in range(count)]
        written = {"xx": lines, "yy": [line[::-1] for line in lines], "zz": [line.replace("e", "u") for line in lines]}
        for language, text in written.items():
            (tmp_path / f"{split}.{language}").write_text("".join(line + "\n" for line in text))
    widths = [f"{side}-{width}" for side in ("encoder", "decoder") for width in ("embed-dim", "hidden-size")]
    sizes = " ".join(f"--{width} 24" for width in widths)
    more = f"{sizes} --dropout 0 --lr 1e-2 --batch-size 10 --max-epoch 10 --cpu --num-workers 0"
    path = os.pathsep.join(map(str, (warm, corpus.SCRIPTS, os.environ["PATH"])))
    environment = {**os.environ, "PATH": path, "OPTIONS": more, "MERGES": "60", "OMP_NUM_THREADS": "1"}
    command = ["bash", RECIPE, tmp_path, tmp_path / "out", "xx", "yy", "zz"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert re.findall("^== xx-(..)", done.stdout, flags=re.MULTILINE) == ["yy", "zz"]
    for language in ("yy", "zz"):
        folder, expected = tmp_path / "out" / "together", (tmp_path / f"test.{language}").read_text().splitlines()
        generated = (folder / f"{language}.generated").read_text()
        sources = re.findall(r"^S-[0-9]+\t(.*)$", generated, flags=re.MULTILINE)
        assert len(sources) == 12 and all(source.startswith(f"__{language}__ ") for source in sources)
        found = (folder / f"{language}.txt").read_text().splitlines()
        assert sum(one == other for one, other in zip(found, expected, strict=True)) > 6
    model, data = tmp_path / "out" / "together" / "checkpoint_best.pt", tmp_path / "out" / "text" / "bin"
    attention = ["fairseq-attnvariants", "attention", data, "--path", model, "--cpu", "--output", tmp_path / "a.png"]
    done = corpus.run(*attention, "--source", tmp_path / "test.xx", "--reference", tmp_path / "test.yy", check=False)
    assert done.returncode == 2 and "whose language token a subcommand does not add to --source" in done.stderr
    with pytest.raises(ValueError, match="checkpoint_best.pt in .* is of several pairs .* use fairseq-generate"):
        model, data = (str(tmp_path / "out" / folder) for folder in ("together", "text/bin"))
        AttentionRNNModel.from_pretrained(model, "checkpoint_best.pt", data)
