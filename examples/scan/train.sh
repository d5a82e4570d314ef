#!/usr/bin/env bash
# Train one system, translate the test set and score it. Run it again to continue.
#   train.sh PREPARED OUT ARCH [fairseq-train options]
set -euo pipefail
if [ $# -lt 3 ]; then echo "usage: train.sh PREPARED OUT ARCH [fairseq-train options]" >&2; exit 2; fi
prepared=$1 out=$2 arch=$3
shift 3
common=$(dirname "$0")/../common
source "$common/small.sh"
source "$common/generate.sh"
small subwords "$arch"
"$common/train.sh" "$prepared/bin" "$out" "$arch" "${options[@]}" --dropout 0.2 --label-smoothing 0 --batch-size 128 \
  --max-epoch 15 "$@"
generate "$prepared/bin" "$out/test" --path "$out/checkpoint_last.pt" --beam 1 --batch-size 128 --max-len-a 6 --max-len-b 10
fairseq-attnvariants score "$out/test.txt" --reference "$prepared/test.out" --tokenize none \
  --source "$prepared/test.in" | tee "$out/test.scores"
