#!/usr/bin/env bash
# Translate a test set with the best checkpoint and score it.
#   evaluate.sh words|bpe|characters PREPARED OUT SOURCE TARGET [fairseq-generate options]
# PREPARED was written by prepare_*.sh, OUT by train.sh. In the environment: SUBSET=test1 takes another test set,
# SACREBLEU="--lowercase" gives options to sacrebleu, REFERENCES="FILE ..." replaces PREPARED/SUBSET.TARGET.
# Writes OUT/SUBSET.txt, for words also OUT/SUBSET.replaced.txt with the UNKs replaced, and OUT/SUBSET.scores.
set -euo pipefail
if [ $# -lt 5 ]; then
  echo "usage: evaluate.sh words|bpe|characters PREPARED OUT SOURCE TARGET [fairseq-generate options]" >&2; exit 2
fi
unit=$1 prepared=$2 out=$3 source=$4 target=$5 subset=${SUBSET:-test}
shift 5
case $unit in
  words) options=(--print-alignment) ;;
  bpe) options=(--remove-bpe) ;;
  characters) options=(--task char_translation) ;;
  *) echo "evaluate.sh: '$unit' is none of words, bpe and characters" >&2; exit 2 ;;
esac
read -ra measures <<< "${SACREBLEU-}"
read -ra references <<< "${REFERENCES:-}"
[ ${#references[@]} -gt 0 ] || references=("$prepared/$subset.$target")

fairseq-generate "$prepared/bin" --user-dir "$(fairseq-attnvariants user-dir)" --path "$out/checkpoint_best.pt" \
  --source-lang "$source" --target-lang "$target" --gen-subset "$subset" --batch-size 40 "${options[@]}" "$@" \
  > "$out/$subset.part"
mv "$out/$subset.part" "$out/$subset.generated"
grep ^H- "$out/$subset.generated" | LC_ALL=C sort -V | cut -f 3 > "$out/$subset.txt"
systems=("$out/$subset.txt")
if [ "$unit" = words ]; then
  lexicon=()
  [ ! -e "$prepared/lexicon.tsv" ] || lexicon=(--lexicon "$prepared/lexicon.tsv")
  fairseq-attnvariants replace-unk "$out/$subset.generated" --source "$prepared/$subset.$source" "${lexicon[@]}" \
    --output "$out/$subset.replaced.txt"
  systems+=("$out/$subset.replaced.txt")
fi
sacrebleu "${references[@]}" -i "${systems[@]}" -m bleu chrf ter -w 2 -f text --tokenize none --force \
  "${measures[@]}" | tee "$out/$subset.scores"
