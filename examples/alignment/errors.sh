#!/usr/bin/env bash
# Link the words of a test set by the attention of a system's best checkpoint, and compare the links with gold links.
#   errors.sh PREPARED OUT GOLD SOURCE TARGET [options of fairseq-attnvariants aer]
# PREPARED was made by prepare_bpe.sh, OUT by train.sh. Set CHECKPOINT=average.pt to read another checkpoint of OUT.
# The script writes OUT/test.align and OUT/test.soft.
set -euo pipefail
if [ $# -lt 5 ]; then echo "usage: errors.sh PREPARED OUT GOLD SOURCE TARGET [aer options]" >&2; exit 2; fi
prepared=$1 out=$2 gold=$3 source=$4 target=$5
shift 5
fairseq-attnvariants align "$prepared/bin" --path "$out/${CHECKPOINT:-checkpoint_best.pt}" --remove-bpe \
  ${USER_DIR:+--user-dir "$USER_DIR"} \
  --source "$prepared/bpe.test.$source" --reference "$prepared/bpe.test.$target" \
  --output "$out/test.align" --soft "$out/test.soft"
fairseq-attnvariants aer "$gold" --hard "$out/test.align" --soft "$out/test.soft" \
  --text "$prepared/test.$source" "$prepared/test.$target" "$@"
