"""A training that goes on within an epoch gets the batches that it has not had yet, all of them.

Stock fairseq counts the batches of an epoch and goes on at that number.  With ``--skip-remainder-batch`` it counts
those that are left as if they were all; with another ``--update-freq`` it loses the last and repeats the epoch; with
batches made in another way (``--batch-size``, ``--max-tokens``, data, seed, number of processes) the number means
other sentences.  And in an epoch after ``--curriculum`` it shuffles only if it went on from a checkpoint there.
"""

import logging
import pickle
import zlib
from typing import Any, Dict

from fairseq.data.iterators import CountingIterator, EpochBatchIterator, GroupedIterator, _chunk_iterator

from ...registry import ConfigurationError
from ..replaced import replaces

logger = logging.getLogger(__name__)


@replaces(EpochBatchIterator, "_get_iterator_for_epoch")
def get_iterator_for_epoch(begin, self, epoch, shuffle, fix_batches_to_gpus=False, offset=0):
    """Shuffle each epoch as it is asked for, and leave out the last batch of the whole epoch alone."""
    if getattr(self, "dataloader", None) is not None:
        self.batch_sampler.shuffle = shuffle  # it is kept from epoch to epoch
    skip, self.skip_remainder_batch = self.skip_remainder_batch, False
    batches = begin(self, epoch, shuffle, fix_batches_to_gpus, offset)
    self.skip_remainder_batch = skip
    if skip and batches is not None and not 0 < offset >= len(batches) - 1:
        batches.take(len(batches) - 1)
    return batches


@replaces(EpochBatchIterator, "state_dict")
def state_dict(save, self) -> Dict[str, Any]:
    """Keep what determines the batches, of which fairseq keeps a number."""
    return {**save(self), "batches": batches_of(self)}


@replaces(EpochBatchIterator, "load_state_dict")
def load_state_dict(restore, self, state_dict) -> None:
    """Start the epoch again if its batches differ."""
    done = state_dict.get("iterations_in_epoch", 0)
    now = batches_of(self)
    if done and (state_dict.get("batches", now) != now or done >= len(self)):
        logger.warning(
            f"the batches of epoch {state_dict['epoch']} are not those of the checkpoint, such as with another "
            "--batch-size: the epoch starts again, so that no sentence is left out"
        )
        state_dict = {**state_dict, "iterations_in_epoch": 0}
    restore(self, state_dict)


def batches_of(iterator: EpochBatchIterator) -> Dict[str, Any]:
    """Return what determines an epoch's batches: a checksum of their sentences, the seed, the processes."""
    batches = iterator.frozen_batches
    made = getattr(iterator, "_checksum", None)
    if made is None or made[0] is not batches:
        total = 0
        for batch in batches:
            total = zlib.crc32(pickle.dumps(batch), total)
        made = iterator._checksum = batches, total
    return {"checksum": made[1], "seed": iterator.seed, "processes": iterator.num_shards}


@replaces(GroupedIterator, "__init__")
def group(plain, self, iterable: CountingIterator, chunk_size: int, skip_remainder_batch: bool = False) -> None:
    """Make groups of the batches that are left, wherever they begin.

    Raises:
        ConfigurationError: ``--skip-remainder-batch`` leaves none of a whole epoch.
    """
    done = iterable.n
    left = len(iterable) - done
    skip_remainder_batch &= not (done and left < chunk_size)  # an epoch that goes on has one update at least
    groups = left // chunk_size if skip_remainder_batch else -(-left // chunk_size)
    if skip_remainder_batch:
        if not groups:
            raise ConfigurationError(
                f"--skip-remainder-batch leaves out the last batch and the last group of --update-freq {chunk_size}, "
                "and an epoch has no others: leave it out, or use smaller batches"
            )
        iterable.take(done + groups * chunk_size)
    start = -(-done // chunk_size)
    batches = _chunk_iterator(iterable, chunk_size, skip_remainder_batch)
    CountingIterator.__init__(self, batches, start=start, total=start + groups)
    self.chunk_size = chunk_size
    logger.info(f"{groups} updates to the end of the epoch")
