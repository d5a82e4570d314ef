#!/usr/bin/env bash
# Train one system, translate the test set and score it. Started again, it goes on where it stopped.
#   train.sh PREPARED OUT ARCH [fairseq-train options]
set -euo pipefail
if [ $# -lt 3 ]; then echo "usage: train.sh PREPARED OUT ARCH [fairseq-train options]" >&2; exit 2; fi
prepared=$1 out=$2 arch=$3
shift 3
common=$(dirname "$0")/../common
source "$common/small.sh"
source "$common/hypotheses.sh"
small subwords "$arch"
"$common/train.sh" "$prepared/bin" "$out" "$arch" "${options[@]}" --dropout 0.2 --label-smoothing 0 --batch-size 128 \
  --max-epoch 15 "$@"
fairseq-generate "$prepared/bin" --user-dir "${USER_DIR:-$(fairseq-attnvariants user-dir)}" --path "$out/checkpoint_last.pt" \
  --beam 1 --batch-size 128 --max-len-a 6 --max-len-b 10 > "$out/test.part"
mv "$out/test.part" "$out/test.generated"
hypotheses "$out/test.generated" > "$out/test.out"
fairseq-attnvariants score "$out/test.out" --reference "$prepared/test.out" --tokenize none \
  --source "$prepared/test.in" | tee "$out/test.scores"
