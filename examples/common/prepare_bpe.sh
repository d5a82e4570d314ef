#!/usr/bin/env bash
# Parallel text -> joint byte-pair encoding for fairseq.
#   prepare_bpe.sh small|paper CORPUS OUT SOURCE TARGET       (text.sh says what these are)
# small: lowercased, 4,000 merges
# paper: 30,000 merges, training sentences of up to 60 subwords
# MERGES=10000 in the environment is another number of merges, JOINED=yes one dictionary for both languages;
# ALIGN=yes also links the subwords of the training text (eflomal), for guided alignment.
set -euo pipefail
source "$(dirname "$0")/text.sh"
case $size in
  small) merges=${MERGES:-4000} ;;
  paper) merges=${MERGES:-30000} ;;
esac
begin 0
subword-nmt learn-joint-bpe-and-vocab --input "train.$source" "train.$target" -s "$merges" -o codes \
  --write-vocabulary "vocab.$source" "vocab.$target"
for language in "$source" "$target"; do
  for split in train valid "${tests[@]}"; do
    subword-nmt apply-bpe -c codes --vocabulary "vocab.$language" --vocabulary-threshold 1 \
      < "$split.$language" > "bpe.$split.$language"
  done
done
if [ "$size" = paper ]; then
  python "$common/clean.py" bpe.train short "$source" "$target" --longest 60
  for language in "$source" "$target"; do mv "short.$language" "bpe.train.$language"; done
fi
options=()
if [ "${ALIGN-}" = yes ]; then
  fairseq-attnvariants lexicon "bpe.train.$source" "bpe.train.$target" --output lexicon.tsv \
    --save-alignments bpe.train.align
  options+=(--align-suffix align)
fi
if [ "${JOINED-}" = yes ]; then options+=(--joined-dictionary); fi
binarise bpe. "${options[@]}"
finish
