"""A training that resumes within an epoch gets exactly the batches that remain.

Stock fairseq counts the batches of an epoch and continues at that number.  With ``--skip-remainder-batch`` it takes the
number of the remaining batches for that of all.  With another ``--update-freq`` it loses the last batches and repeats
the epoch.  With batches made in another way (``--batch-size``, ``--max-tokens``, data, seed, number of processes) the
number means other sentences.  In an epoch after ``--curriculum`` it shuffles only if it resumes there.
"""

import logging
import pickle
import zlib
from typing import Any

from fairseq.data.iterators import CountingIterator, EpochBatchIterator, GroupedIterator, _chunk_iterator

from ...registry import ConfigurationError
from ..replaced import replaces

logger = logging.getLogger(__name__)


@replaces(EpochBatchIterator, "_get_iterator_for_epoch")
def get_iterator_for_epoch(begin, self, epoch, shuffle, fix_batches_to_gpus=False, offset=0):
    """Shuffle exactly the epochs that are to be shuffled, and leave out only the last batch of the complete epoch."""
    if getattr(self, "dataloader", None) is not None:
        self.batch_sampler.shuffle = shuffle  # the sampler is used again in each epoch
    skip, self.skip_remainder_batch = self.skip_remainder_batch, False
    batches = begin(self, epoch, shuffle, fix_batches_to_gpus, offset)
    self.skip_remainder_batch = skip
    if skip and batches is not None and (offset == 0 or offset < len(batches) - 1):
        batches.take(len(batches) - 1)
    return batches


@replaces(EpochBatchIterator, "state_dict")
def state_dict(save, self) -> dict[str, Any]:
    """Save what determines the batches; fairseq saves only their number."""
    return {**save(self), "batches": batches_of(self)}


@replaces(EpochBatchIterator, "load_state_dict")
def load_state_dict(restore, self, state_dict) -> None:
    """Start the epoch again if its batches differ from the checkpoint's."""
    done = state_dict.get("iterations_in_epoch", 0)
    now = batches_of(self)
    if done and (state_dict.get("batches", now) != now or done >= len(self)):
        logger.warning(
            f"the batches of epoch {state_dict['epoch']} are not those of the checkpoint, such as with another "
            "--batch-size: the epoch starts again, so that no sentence is left out"
        )
        state_dict = {**state_dict, "iterations_in_epoch": 0}
    restore(self, state_dict)


def batches_of(iterator: EpochBatchIterator) -> dict[str, Any]:
    """Return what determines an epoch's batches: a checksum of their sentences, the seed, the number of processes."""
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
    """Make groups of the batches that remain, from any position in the epoch.

    Raises:
        ConfigurationError: ``--skip-remainder-batch`` leaves no group in a complete epoch.
    """
    done = iterable.n
    left = len(iterable) - done
    skip_remainder_batch &= not (done and left < chunk_size)  # a resumed epoch has at least one update
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
