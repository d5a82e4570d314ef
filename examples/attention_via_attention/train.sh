#!/usr/bin/env bash
# Train one system. Run it again to continue.
#   train.sh small|paper BIN OUT ARCH [fairseq-train options]
# ARCH is ava, ava_encs or ava_deep. small also takes the systems to compare with: char2char and fairseq's lstm on the same
# characters, dl4mt with --encoder-type hierarchical --attention-via, and bpe2char with --source-subwords on the data of
# prepare_mixed.sh.
set -euo pipefail
if [ $# -lt 4 ]; then echo "usage: train.sh small|paper BIN OUT ARCH [fairseq-train options]" >&2; exit 2; fi
size=$1 data=$2 out=$3 arch=$4
shift 4
case $size in
  small)
    options=(--encoder-embed-dim 64 --decoder-embed-dim 64 --encoder-hidden-size 256 --decoder-hidden-size 256
             --dropout 0.2 --label-smoothing 0.1 --optimizer adam --lr 1e-3 --batch-size 80 --max-epoch 8)
    case $arch in
      lstm) options+=(--decoder-out-embed-dim 128 --encoder-bidirectional) ;;
      char2char) options+=(--encoder-filters 20-20-25-25-30-30-30-30 --encoder-hidden-size 128) ;;
      bpe2char) options+=(--encoder-hidden-size 128) ;;
      *) options+=(--decoder-out-embed-dim 128 --encoder-char-hidden-size 128 --attention-dim 128
                   --attention-via-dim 64) ;;
    esac
    if [ "$arch" != lstm ]; then options+=(--init normal --init-std 0.1); fi ;;
  paper)
    case $arch in  # the paper's epochs, rounded up
      ava) epochs=3 ;;
      ava_encs) epochs=4 ;;
      *) epochs=6 ;;
    esac
    # the learning rate of epoch e is 5e-4 * 0.5^(e - 1): --force-anneal is the first epoch with a lower rate
    options=(--criterion cross_entropy --optimizer adam --lr 5e-4 --lr-scheduler fixed --lr-shrink 0.5 --force-anneal 2
             --batch-size 100 --required-batch-size-multiple 1 --sentence-avg --max-epoch "$epochs"
             --validate-interval-updates 10000 --save-interval-updates 10000 --keep-interval-updates 1) ;;
  *) echo "train.sh: '$size' is neither small nor paper" >&2; exit 2 ;;
esac
"$(dirname "$0")/../common/train.sh" "$data" "$out" "$arch" --task char_translation "${options[@]}" "$@"
