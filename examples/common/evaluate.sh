#!/usr/bin/env bash
# Translate test sets with the best checkpoint, and score the translations.
#   evaluate.sh words|bpe|characters PREPARED OUT SOURCE TARGET [fairseq-generate options]
# PREPARED was made by prepare_*.sh, OUT by train.sh. Set in the environment:
#   CHECKPOINT=average.pt       another checkpoint of OUT
#   SUBSET="test test1"         these test sets; they are also scored together, as "all"
#   SACREBLEU="--chrf-beta 3"   options of sacrebleu
#   COPIED=yes                  the model of words was trained with --copying
#   USER_DIR=FOLDER             the folder of a custom architecture
# The script writes OUT/SUBSET.txt, for words also OUT/SUBSET.replaced.txt with the UNKs replaced, and OUT/SUBSET.scores. It scores
# against PREPARED/SUBSET.TARGET and further references there. It also writes OUT/all.SOURCE and OUT/all.TARGET.
set -euo pipefail
if [ $# -lt 5 ]; then
  echo "usage: evaluate.sh words|bpe|characters PREPARED OUT SOURCE TARGET [fairseq-generate options]" >&2; exit 2
fi
unit=$1 prepared=$2 out=$3 source=$4 target=$5
shift 5
read -ra subsets <<< "${SUBSET:-test}"
read -ra measures <<< "${SACREBLEU-}"
kinds=(txt) longest=2  # longest translation: this times the source's symbols, plus ten; a longer one is a loop
case $unit in
  words)
    options=(--print-alignment) kinds+=(replaced.txt)
    [ "${COPIED-}" != yes ] || options+=(soft) ;;
  bpe) options=(--remove-bpe) ;;
  characters)
    options=(--task char_translation)
    case " $* " in *" --source-subwords "*) longest=12 ;; esac ;;
  *) echo "evaluate.sh: '$unit' is none of words, bpe and characters" >&2; exit 2 ;;
esac

source "$(dirname "$0")/generate.sh"
source "$(dirname "$0")/yes.sh"
yes_or_no COPIED

translate() {  # translate SUBSET [fairseq-generate options]
  local subset=$1 lexicon=()
  generate "$prepared/bin" "$out/$subset" --path "$out/${CHECKPOINT:-checkpoint_best.pt}" \
    --source-lang "$source" --target-lang "$target" --gen-subset "$subset" --batch-size 40 "${options[@]}" \
    --max-len-a "$longest" --max-len-b 10 "${@:2}"
  if [ "$unit" = words ]; then
    [ ! -e "$prepared/lexicon.tsv" ] || lexicon=(--lexicon "$prepared/lexicon.tsv")
    [ "${COPIED-}" != yes ] || lexicon+=(--copied "$prepared/bin/dict.$target.txt")
    fairseq-attnvariants replace-unk "$out/$subset.generated" --source "$prepared/$subset.$source" "${lexicon[@]}" \
      --output "$out/$subset.replaced.txt"
  fi
}

references() {  # references PREFIX: print the languages of all references of a test set, such as en, en1 and en2
  local file
  for file in "$1.$target" "$1.$target"[1-9]; do [ ! -e "$file" ] || echo "${file##*.}"; done
}

score() {  # score FOLDER SUBSET: score the translations against the references in FOLDER
  local languages
  readarray -t languages <<< "$(references "$1/$2")"
  echo "== $2"
  sacrebleu "${languages[@]/#/"$1/$2."}" -i "${kinds[@]/#/"$out/$2."}" -m bleu chrf ter -w 2 -f text --tokenize none --force \
    "${measures[@]}" | tee "$out/$2.scores.part"
  mv "$out/$2.scores.part" "$out/$2.scores"
}

join() {  # join FOLDER ENDING: join FOLDER/SUBSET.ENDING of all test sets in OUT/all.ENDING
  for subset in "${subsets[@]}"; do cat "$1/$subset.$2"; done > "$out/all.$2"
}

for subset in "${subsets[@]}"; do
  if [ "$(references "$prepared/$subset")" != "$(references "$prepared/${subsets[0]}")" ]; then
    echo "evaluate.sh: $subset has other references than ${subsets[0]}, with which it would be joined: call it once for each" >&2
    exit 2
  fi
done
for subset in "${subsets[@]}"; do
  translate "$subset" "$@"
  score "$prepared" "$subset"
done
if [ ${#subsets[@]} -gt 1 ]; then
  for kind in "${kinds[@]}"; do join "$out" "$kind"; done
  for language in "$source" $(references "$prepared/${subsets[0]}"); do join "$prepared" "$language"; done
  score "$out" all
fi
