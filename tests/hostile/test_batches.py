"""A training that resumes within an epoch has the batches of one without a stop, and every sentence once."""

import corpus
import pytest
from fairseq.data import ListDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.trainer import Trainer

from fairseq_attnvariants.patches.loading.checkpoints import load

pytestmark = [pytest.mark.hostile, pytest.mark.filterwarnings("ignore")]  # stock fairseq has many

CASES = {
    "plain": [],
    "skip_remainder_batch": ["--skip-remainder-batch"],
    "groups": ["--skip-remainder-batch", "--update-freq", "2"],
    "update_freq": ["--update-freq", "1,2"],
    "curriculum": ["--curriculum", "1"],
    "shards": [],
    "languages": ["--task", "translation_multi_simple_epoch", "--lang-pairs", "xx-yy", "--langs", "xx,yy"],
}


@pytest.fixture
def train(runs, monkeypatch):
    """Train, and return the sentences of every batch; 15 of them are an epoch."""
    step, batches = Trainer.train_step, []

    def noted(self, samples, *more):
        batches.extend(sample["id"].tolist() for sample in samples)
        return step(self, samples, *more)

    monkeypatch.setattr(Trainer, "train_step", noted)

    def run(folder, *more, data=runs.data):
        batches.clear()
        corpus.train_here(*corpus.train_arguments(data, folder, "--disable-validation", *more))
        return [*batches]

    return run


@pytest.mark.parametrize("case", CASES)
def test_stopped_and_whole_have_the_same_batches(runs, train, tmp_path, case):
    data = f"{runs.data}:{runs.data}" if case == "shards" else runs.data
    more = ["--max-epoch", "3", *CASES[case]]
    whole = train(tmp_path / "whole", *more, data=data)
    stopped = []
    for updates in (4, 12, 20, 0):
        stopped += train(tmp_path / "stopped", *more, "--max-update", updates, data=data)
    assert stopped == whole
    one, other = (load(tmp_path / folder / "checkpoint_last.pt")["model"] for folder in ("whole", "stopped"))
    assert all(one[name].equal(other[name]) for name in one)


def test_an_epoch_after_the_curriculum_is_shuffled(train, tmp_path):
    batches = train(tmp_path, "--curriculum", "1", "--max-epoch", "2")
    half = len(batches) // 2
    assert batches[:half] != batches[half:] and sorted(batches[:half]) == sorted(batches[half:])


@pytest.mark.parametrize("more", [["--batch-size", "4"], ["--batch-size", "40"], ["--seed", "6"]], ids=" ".join)
def test_with_other_batches_an_epoch_begins_anew(train, tmp_path, caplog, more):
    """Stock fairseq skips as many of the new batches as there were former ones."""
    done = train(tmp_path, "--max-update", "6")
    batches = train(tmp_path, "--max-epoch", "1", *more)
    assert done and sorted(sum(batches, [])) == [*range(120)]
    assert "the epoch starts again" in caplog.text


def test_a_checkpoint_that_says_nothing_of_its_batches_and_had_more():
    """Checkpoints of stock fairseq are like this; stock fairseq ends such an epoch without a batch."""
    numbers = ListDataset([*range(4)])
    batches = EpochBatchIterator(numbers, numbers.collater, [[0, 1], [2, 3]])
    batches.load_state_dict({"version": 2, "epoch": 1, "iterations_in_epoch": 5, "shuffle": False})
    assert [*batches.next_epoch_itr(shuffle=False)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("more", [[], ["--skip-remainder-batch"]], ids=["all", "skip"])
def test_with_another_update_freq_every_batch_comes_once(train, tmp_path, more):
    first = train(tmp_path, "--max-update", "6")
    then = train(tmp_path, "--max-epoch", "1", "--update-freq", "4", *more)
    sentences = sum(first + then, [])
    assert len(sentences) == len(set(sentences)) and len(first + then) == (14 if more else 15)


def test_an_epoch_without_a_batch_is_refused(train, tmp_path):
    with pytest.raises(ValueError, match="^--skip-remainder-batch leaves out the last batch"):
        train(tmp_path, "--skip-remainder-batch", "--batch-size", "200")
    assert not list(tmp_path.glob("*.pt"))


def iterator(processes=1, batches=((0, 1), (2, 3), (4, 5), (6, 7))):
    numbers = ListDataset([*range(8)])
    return EpochBatchIterator(numbers, numbers.collater, [[*one] for one in batches], num_shards=processes)


def stopped(batches):
    """Return the state within the first epoch, after a batch."""
    next(batches.next_epoch_itr(shuffle=False))
    return batches.state_dict()


def test_with_another_number_of_processes_an_epoch_begins_anew(caplog):
    """With another number of processes, each one would have had other sentences before."""
    other = iterator(processes=2)
    other.load_state_dict(stopped(iterator()))
    assert [*other.next_epoch_itr(shuffle=False)] == [[0, 1], [4, 5]] and "the epoch starts again" in caplog.text


def test_batches_that_are_made_anew_are_looked_at_anew():
    """Data that come in several parts have other batches in the next part."""
    one, other = iterator(), iterator(batches=((7, 6), (5, 4), (3, 2), (1, 0)))
    before, after = stopped(one)["batches"], stopped(other)["batches"]
    one._frozen_batches = tuple(other.frozen_batches)
    assert before != after == one.state_dict()["batches"]


@pytest.mark.parametrize("batches", [((2, 3), (0, 1), (4, 5), (6, 7)), ((0, 2), (1, 3), (4, 5), (6, 7))])
def test_batches_that_differ_in_the_first_sentences_alone_begin_anew(batches, caplog):
    other = iterator(batches=batches)
    other.load_state_dict(stopped(iterator()))
    assert (
        sorted(sum(other.next_epoch_itr(shuffle=False), [])) == [*range(8)] and "the epoch starts again" in caplog.text
    )
