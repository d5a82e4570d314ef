#!/usr/bin/env bash
# Make words for fairseq from parallel text, and the table of translations that replaces UNKs.
#   prepare_words.sh small|paper CORPUS OUT SOURCE TARGET       (text.sh explains these)
# small: lowercased, words that occur 3 times, training sentences of up to 100 words
# paper: 30,000 words per language, training sentences of up to 50 words
# The table, lexicon.tsv, needs eflomal (the extra "align"). Set in the environment: ALIGNMENTS=FILE to use existing alignments of
# OUT/train.*, such as the train.align of an earlier run; LEXICON=no to make no table.
set -euo pipefail
source "$(dirname "$0")/text.sh"
align=(--save-alignments train.align)
if [ -n "${ALIGNMENTS-}" ]; then
  align=(--alignments "$(realpath "$ALIGNMENTS")")
elif [ "${LEXICON-}" != no ] && ! python -c 'import eflomal' 2> /dev/null; then
  echo "prepare_words.sh: no eflomal here: pip install 'eflomal>=2', or LEXICON=no to go without a table" >&2; exit 1
fi

case $size in
  small) begin 100; binarise "" --thresholdsrc 3 --thresholdtgt 3 ;;
  paper) begin 50; binarise "" --nwordssrc 30000 --nwordstgt 30000 ;;
esac
if [ "${LEXICON-}" != no ]; then
  fairseq-attnvariants lexicon "train.$source" "train.$target" --output lexicon.tsv "${align[@]}"
fi
finish
