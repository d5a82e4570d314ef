#!/usr/bin/env bash
# Run fairseq-train with the options that all recipes share. Run it again to continue. After the end, the same command changes nothing
# (fairseq forgets --patience, and adds an update after --stop-time-hours). Other options are refused, unless they add updates.
#   train.sh BIN OUT ARCH [fairseq-train options]
# The criterion is label smoothed cross entropy, with the loss terms of ARCH's paper. On a GPU sentences are padded to multiples of
# 4 words, so that --cuda-graphs, which architectures of the package get, has few shapes to capture. USER_DIR in the environment is
# the folder of a custom architecture; the scripts that translate read it, too.
set -euo pipefail
if [ $# -lt 3 ]; then echo "usage: train.sh BIN OUT ARCH [fairseq-train options]" >&2; exit 2; fi
data=$1 out=$2 arch=$3
shift 3
criterion=label_smoothed_cross_entropy
case $arch in
  conddec* | bridge_direct) criterion+=_with_costs ;;
esac
gpu=()
case " $* " in *" --cpu "*) ;; *) ! command -v nvidia-smi > /dev/null || gpu=(--required-seq-len-multiple 4) ;; esac
case $arch in
  lstm* | transformer*) ;; # fairseq's models
  *)
    set -- --compute-dtype auto "$@"
    case " $* " in *" --compile "*) ;; *) gpu+=(${gpu[@]:+--cuda-graphs}) ;; esac ;;
esac
set -- --arch "$arch" --criterion "$criterion" "$@"
source "$(dirname "$0")/lock.sh"
lock "$out"
IFS=: read -ra parts <<< "$data" # other paths of the same data count as the same command
command=$(printf '%q ' "$(realpath --relative-to="$out" "${parts[@]}" | paste -sd:)" "$@")
case $(cat "$out/finished" 2>/dev/null) in "$command" | "$(printf '%q ' "$data" "$@")")
  echo "this training has ended already, and its weights stay as they are: $out" >&2
  exit 0 ;;
esac
fairseq-train "$data" --user-dir "${USER_DIR:-$(fairseq-attnvariants user-dir)}" --clip-norm 1.0 --seed 1 \
  --distributed-world-size 1 --save-dir "$out" --no-epoch-checkpoints --log-format simple --log-interval 100 \
  "${gpu[@]}" "$@" 2>&1 |
  tee -a "$out/train.log"
# a larger --max-epoch continues a finished training, and another --seed adds no update
if [ -e "$out/finished" ] && [ ! "$out/checkpoint_last.pt" -nt "$out/finished" ]; then
  echo "train.sh: $out has a training of other options, to which these add no update: give another OUT" >&2; exit 2
fi
echo "$command" > "$out/finished"
