"""Stock fairseq's commands end to end, in subprocesses, on a tiny corpus."""

import math
import re
import shutil

import pytest
import torch
from corpus import USER_DIR, hydra_arguments, reversed_links, run, train_arguments, train_here

from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.patches.loading.checkpoints import load

pytestmark = pytest.mark.commands

SMOOTHED = ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"]


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """The folder of a run over two epochs of 15 updates."""
    folder = tmp_path_factory.mktemp("trained")
    run("fairseq-train", *train_arguments(data, folder, "--max-epoch", "2", "--patience", "5", *SMOOTHED))
    return folder


def weights(path):
    return torch.load(path, weights_only=True)["model"]


def generate(data, path, *more, check=True):
    arguments = [data, "--user-dir", USER_DIR, "--path", path, "--gen-subset", "test", "--cpu", "--batch-size", "5"]
    return run("fairseq-generate", *arguments, *more, check=check)


def lines(text, mark):
    """Return ``{sentence: [fields, ...]}`` of the lines that begin with a mark."""
    found = {}
    for line in text.splitlines():
        if re.match(rf"{mark}-\d+\t", line):
            head, *fields = line.split("\t")
            found.setdefault(int(head.split("-")[1]), []).append(fields)
    return found


def test_resuming_changes_nothing(data, trained, tmp_path):
    """A run that stops in the middle of an epoch and resumes ends in the weights of a run without a stop."""
    stop = ["--max-update", "20", "--save-interval-updates", "20"]
    run("fairseq-train", *train_arguments(data, tmp_path, *stop, *SMOOTHED))
    again = run("fairseq-train", *train_arguments(data, tmp_path, "--max-epoch", "2", *SMOOTHED))
    assert "Loaded checkpoint" in again.stdout + again.stderr
    expected, found = weights(trained / "checkpoint_last.pt"), weights(tmp_path / "checkpoint_last.pt")
    assert expected.keys() == found.keys()
    for name in expected:
        assert torch.equal(expected[name], found[name]), name


@pytest.mark.parametrize("patience", [0, 1])
def test_resuming_keeps_what_a_plateau_has_seen(data, tmp_path, patience):
    """A checkpoint is written before the scheduler sees the epoch's loss; here only a tenth of the best is better."""
    plateau = ["--lr-scheduler", "reduce_lr_on_plateau", "--lr", "0.1"]
    plateau += ["--lr-threshold", "0.9", "--lr-patience", str(patience)]
    for folder, epochs in (("whole", "6"), *(("resumed", str(k)) for k in range(1, 7))):
        run("fairseq-train", *train_arguments(data, tmp_path / folder, "--max-epoch", epochs, *SMOOTHED, *plateau))
    whole, resumed = (
        torch.load(tmp_path / name / "checkpoint_last.pt", weights_only=True) for name in ("whole", "resumed")
    )
    rates = [state["last_optimizer_state"]["param_groups"][0]["lr"] for state in (whole, resumed)]
    assert rates[0] == rates[1] < 0.1
    for name, value in whole["model"].items():
        assert torch.equal(value, resumed["model"][name]), name


def test_generation(data, trained):
    best = trained / "checkpoint_best.pt"
    output = generate(data, best, "--beam", "3", "--nbest", "2", "--print-alignment").stdout
    assert set(lines(output, "H")) == set(range(12)) and all(len(rows) == 2 for rows in lines(output, "H").values())
    assert "Generate test with beam=3: BLEU4" in output


def test_alignments_do_not_depend_on_the_batch(data, trained):
    best = trained / "checkpoint_best.pt"
    common = ["--print-alignment", "--score-reference"]
    together, alone = (lines(generate(data, best, *common, "--batch-size", size).stdout, "A") for size in (12, 1))
    assert together == alone and len(alone) == 12


def test_prefix(data, trained):
    """With ``--prefix-size`` each translation begins as its reference does."""
    output = generate(data, trained / "checkpoint_best.pt", "--prefix-size", "1").stdout
    for sentence, [[reference]] in lines(output, "T").items():
        word = reference.split()[0]
        assert word.startswith("<") or lines(output, "H")[sentence][0][1].split()[0] == word


def test_ensemble(data, trained):
    paths = f"{trained}/checkpoint1.pt:{trained}/checkpoint2.pt"
    output = generate(data, paths, "--beam", "2", "--print-alignment").stdout
    assert len(lines(output, "H")) == 12 and len(lines(output, "A")) == 12


def test_interactive_with_constraints_and_odd_lines(data, trained):
    """Empty lines, unknown words, tabs and spaces are translated like any other."""
    common = [data, "--user-dir", USER_DIR, "--path", trained / "checkpoint_best.pt", "--cpu", "--beam", "2"]
    process = run("fairseq-interactive", *common, stdin="ant bee\n\nzebra\n  cat \t dog \n")
    assert len(lines(process.stdout, "H")) == 4
    process = run("fairseq-interactive", *common, "--constraints", "--beam", "5", stdin="ant bee\telk\ncat\tfox\n")
    found = lines(process.stdout, "H")
    assert "elk" in found[0][0][1].split() and "fox" in found[1][0][1].split()


def test_validate(data, trained):
    process = run(
        "fairseq-validate", data, "--user-dir", USER_DIR, "--path", trained / "checkpoint_best.pt", "--task",
        "translation", "--batch-size", "4", "--cpu",
    )  # fmt: skip
    loss = re.search(r"valid .*\| loss ([\d.]+)", process.stdout + process.stderr)
    assert float(loss[1]) == pytest.approx(load(trained / "checkpoint_best.pt")["extra_state"]["best"], abs=2e-3)


def test_hub_interface_and_kinds_of_search(data, trained, caplog):
    given = dict(checkpoint_file="checkpoint_best.pt", data_name_or_path=str(data), user_dir=USER_DIR)
    hub = AttentionRNNModel.from_pretrained(str(trained), **given, coverage_penality=0.0)
    assert "no option 'coverage_penality' to override (did you mean coverage_penalty?)" in caplog.text
    assert caplog.text.count("to override") == 1
    assert isinstance(hub.translate("ant bee cat", beam=3), str)
    for search in (
        dict(beam=2),
        dict(beam=30),  # wider than the dictionary
        dict(beam=4, diverse_beam_groups=2),
        dict(beam=3, sampling=True, sampling_topk=3),
        dict(beam=1, sampling=True, sampling_topp=0.5),
    ):
        assert len(hub.translate(["ant", "bee cat", ""], **search)) == 3


def test_hydra_gives_the_same_model(data, tmp_path):
    """``model._name=ARCH`` and ``--arch ARCH`` end in equal weights, and an override is honoured."""
    more = ["model.decoder_hidden_size=12", "optimization.max_update=4", "lr_scheduler._name=inverse_sqrt"]
    more += ["+lr_scheduler.warmup_updates=2", "distributed_training.distributed_world_size=1"]
    run("fairseq-hydra-train", *hydra_arguments(data, tmp_path / "hydra", *more, arch="conddec_recatt"), cwd=tmp_path)
    more = ["--decoder-hidden-size", "12", "--max-update", "4", *SMOOTHED]
    more += ["--lr-scheduler", "inverse_sqrt", "--warmup-updates", "2"]
    run("fairseq-train", *train_arguments(data, tmp_path / "flags", *more, arch="conddec_recatt"))
    by_hydra, by_flags = (weights(tmp_path / name / "checkpoint_last.pt") for name in ("hydra", "flags"))
    assert by_hydra.keys() == by_flags.keys()
    for name in by_flags:
        assert torch.equal(by_hydra[name], by_flags[name]), name


@pytest.mark.parametrize("full", [False, True])
def test_a_refusal_by_hydra_is_a_sentence(full, data, tmp_path):
    """There is a traceback only if HYDRA_FULL_ERROR is set."""
    result = run(
        "fairseq-hydra-train", "--config-dir", f"{USER_DIR}/config", "--config-name", "train",
        f"common.user_dir={USER_DIR}", f"task.data={data}", "common.cpu=true", "model.encoder_layers=0", cwd=tmp_path,
        check=False, environment={"HYDRA_FULL_ERROR": "1"} if full else None,
    )  # fmt: skip
    assert result.returncode == 1 and "--encoder-layers must be at least 1, not 0" in result.stderr
    assert ("Traceback" in result.stderr) == full


def rdrop(arch, data, folder, *more):
    """Return the arguments of a training with R-Drop."""
    criterion = ["--criterion", "label_smoothed_cross_entropy_with_costs", "--label-smoothing", "0.1"]
    more = [*criterion, "--rdrop-weight", "5", "--dropout", "0.3", "--decoder-out-embed-dim", "16", *more]
    return train_arguments(data, folder, *more, arch=arch)


@pytest.mark.parametrize("arch,more", [("conddec", []), ("lstm", []), ("dl4mt", ["--student-forcing", "0.5"])])
def test_rdrop_that_was_stopped(data, tmp_path, arch, more, caplog):
    """A training that resumes within an epoch ends in the same weights; only training logs the divergence."""
    train_here(*rdrop(arch, data, tmp_path / "whole", *more, "--max-update", "20", "--log-interval", "5"))
    logged = [line for line in caplog.messages if "rdrop_loss" in line]
    assert logged and not [line for line in logged if "valid on" in line]
    train_here(*rdrop(arch, data, tmp_path / "parts", *more, "--max-update", "10", "--save-interval-updates", "10"))
    train_here(*rdrop(arch, data, tmp_path / "parts", *more, "--max-update", "20"))
    expected, found = (load(tmp_path / name / "checkpoint_last.pt")["model"] for name in ("whole", "parts"))
    for name in expected:
        assert torch.equal(found[name], expected[name]), name


def test_rdrop_by_hydra(data, tmp_path):
    more = ["criterion._name=label_smoothed_cross_entropy_with_costs", "+criterion.rdrop_weight=5"]
    more += ["model.dropout=0.3", "model.decoder_out_embed_dim=16", "optimization.max_update=2"]
    run("fairseq-hydra-train", *hydra_arguments(data, tmp_path / "hydra", *more, arch="dl4mt"), cwd=tmp_path)
    train_here(*rdrop("dl4mt", data, tmp_path / "flags", "--max-update", "2"))
    by_hydra, by_flags = (weights(tmp_path / name / "checkpoint_last.pt") for name in ("hydra", "flags"))
    for name in by_flags:
        assert torch.equal(by_hydra[name], by_flags[name]), name


def test_fertility_criterion_trains_validates_and_selects(data, tmp_path):
    arguments = train_arguments(
        data, tmp_path, "--max-epoch", "2", "--criterion", "label_smoothed_cross_entropy_with_costs",
        "--label-smoothing", "0.1", "--best-checkpoint-metric", "decay_loss", arch="conddec",
    )  # fmt: skip
    process = run("fairseq-train", *arguments)
    log = process.stdout + process.stderr
    for name in ("decay_loss", "left_loss", "nll_loss", "best_decay_loss"):
        values = re.findall(rf"{name} ([\d.]+)", log)
        assert values and all(math.isfinite(float(value)) for value in values), name
    assert (tmp_path / "checkpoint_best.pt").exists()
    assert len(lines(generate(data, tmp_path / "checkpoint_best.pt").stdout, "H")) == 12


@pytest.mark.parametrize("criterion", [
    ["label_smoothed_cross_entropy_with_alignment", "--alignment-lambda", "1"],  # fairseq's criterion
    ["label_smoothed_cross_entropy_with_costs", "--alignment-weight", "1"],
])  # fmt: skip
def test_guided_alignment(data, tmp_path, criterion):
    """Attention follows the links, to the words of the reversed sentence."""
    for side in ("xx", "yy"):
        shutil.copy(data.parent / f"train.{side}", tmp_path)
    (tmp_path / "train.links").write_text(reversed_links(data.parent / "train.xx"))
    valid = data.parent / "valid"
    files = ["--trainpref", tmp_path / "train", "--validpref", valid, "--testpref", valid, "--align-suffix", "links"]
    files += [f"--{side}dict={data}/dict.{language}.txt" for side, language in (("src", "xx"), ("tgt", "yy"))]
    run("fairseq-preprocess", "-s", "xx", "-t", "yy", *files, "--destdir", tmp_path / "bin")
    guided = ["--load-alignments", "--criterion", *criterion, "--init-std", "0.3", "--max-epoch", "8"]
    log = run("fairseq-train", *train_arguments(tmp_path / "bin", tmp_path, *guided, "--no-epoch-checkpoints")).stdout
    found = [float(value) for value in re.findall(r"\| train \|.*\| alignment_loss ([\d.]+)", log)]
    assert len(found) == 8 and found[-1] < found[0] / 2
    output = generate(
        tmp_path / "bin", tmp_path / "checkpoint_last.pt", "--score-reference", "--print-alignment"
    ).stdout
    right = []
    for sentence, [[pairs]] in lines(output, "A").items():
        last = len(lines(output, "T")[sentence][0][0].split()) - 1
        right += [source == last - target for source, target in (map(int, pair.split("-")) for pair in pairs.split())]
    assert sum(right) > 0.8 * len(right)


def test_costs_left_out_are_warned_of(data, tmp_path):
    log = run("fairseq-train", *train_arguments(data, tmp_path, "--max-update", "2", arch="conddec")).stdout
    assert log.count("--criterion label_smoothed_cross_entropy_with_costs adds them") == 1


def test_bridging_criterion_from_a_warm_start(data, trained, tmp_path):
    """Parameters of the baseline are taken, the rest is trained; afterwards its checkpoint is not needed any more."""
    baseline = tmp_path / "baseline.pt"
    shutil.copy(trained / "checkpoint_best.pt", baseline)
    options = ["--bridge-source", "--bridge-direct", "hard", "--warm-start", baseline, "--lr", "1e-9"]
    criterion = ["--criterion", "label_smoothed_cross_entropy_with_costs"]
    arguments = train_arguments(data, tmp_path, *options, *criterion, "--no-epoch-checkpoints")
    log = run("fairseq-train", *arguments, "--max-update", "2").stdout
    assert "not taken   decoder.bridge.projection.weight (not in the checkpoint)" in log
    assert "grown       decoder.network.transition.attention.key.weight (32 of 48 columns taken)" in log
    assert re.search(r"bridging_loss [\d.]+", log)
    before, after = weights(baseline), weights(tmp_path / "checkpoint_last.pt")
    for name, value in before.items():
        grown = after[name] if value.dim() < 2 else after[name][:, : value.size(1)]
        torch.testing.assert_close(grown, value, rtol=0, atol=1e-6)
    baseline.unlink()
    assert len(lines(generate(data, tmp_path / "checkpoint_last.pt").stdout, "H")) == 12
    resumed = run("fairseq-train", *arguments, "--max-update", "3").stdout
    assert "warm start from" not in resumed and "Loaded checkpoint" in resumed


class TestBadInput:
    """Each error ends in one clear sentence, which is fairseq's if it stops before this package's code runs."""

    def failure(self, process):
        """Return the last line of a process that failed."""
        assert process.returncode != 0
        return process.stderr.strip().splitlines()[-1]

    def test_fertility_without_a_condition(self, data, tmp_path):
        more = ["--criterion", "label_smoothed_cross_entropy_with_costs", "--step-decay-weight", "2"]
        process = run("fairseq-train", *train_arguments(data, tmp_path, *more), check=False)
        assert "needs a model with a condition, such as --arch conddec" in self.failure(process)
        assert process.returncode == 1 and "Start iterating over samples" not in process.stdout + process.stderr

    @pytest.mark.parametrize(
        "path,advice", [("nowhere.pt", "there is no such file"), ("", "give both the same widths")]
    )
    def test_warm_start(self, data, trained, tmp_path, path, advice):
        widths = ["--encoder-embed-dim", "9", "--decoder-embed-dim", "9", "--encoder-hidden-size", "9"]
        more = ["--decoder-hidden-size", "9", "--max-update", "1", "--warm-start"]
        path = path or trained / "checkpoint_best.pt"
        process = run("fairseq-train", *train_arguments(data, tmp_path, *widths, *more, path), check=False)
        assert f"--warm-start {path}: " in self.failure(process) and advice in self.failure(process)

    def test_unknown_part(self, data, tmp_path):
        arguments = train_arguments(data, tmp_path, "--attention-history", "memory")
        assert "unknown attention history 'memory'" in self.failure(run("fairseq-train", *arguments, check=False))

    def test_checkpoint_of_another_architecture(self, data, trained, tmp_path):
        more = ["--restore-file", trained / "checkpoint_best.pt", "--max-update", "31"]
        process = run("fairseq-train", *train_arguments(data, tmp_path, *more, arch="dl4mt"), check=False)
        assert "is of another model (--arch is " in self.failure(process)

    def test_truncated_checkpoint_and_what_to_do(self, data, trained, tmp_path):
        """A cut-off checkpoint_last.pt is refused; training goes on from an older one, as the README says."""
        cut = tmp_path / "checkpoint_last.pt"
        cut.write_bytes((trained / "checkpoint_last.pt").read_bytes()[:5000])
        arguments = train_arguments(data, tmp_path, "--max-epoch", "2", *SMOOTHED)
        assert "has no whole one" in self.failure(run("fairseq-train", *arguments, check=False))
        older = ["--restore-file", str(trained / "checkpoint1.pt")]
        run("fairseq-train", *arguments, *older)
        expected, found = weights(trained / "checkpoint_last.pt"), weights(cut)
        assert all(torch.equal(expected[name], found[name]) for name in expected)

    def test_a_save_dir_that_cannot_be_written(self, data, tmp_path):
        (tmp_path / "file").write_text("")
        arguments = train_arguments(data, tmp_path / "file", "--max-update", "1")
        assert "Not a directory" in self.failure(run("fairseq-train", *arguments, check=False))
