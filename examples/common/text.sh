# shellcheck shell=bash
# The first and the last steps of prepare_words.sh, prepare_bpe.sh and prepare_characters.sh. Their arguments are
#   small|paper CORPUS OUT SOURCE TARGET
# CORPUS  folder with train.SOURCE, train.TARGET and the same for val (or valid) and test, in words. More references of a test set
#         are in test.TARGET1, test.TARGET2 and so on
# OUT     gets train.*, valid.*, test.*, the text that was used, and bin/ for fairseq. It appears when it is complete
# Set in the environment:
#   TRAIN, VALID, TEST   names of other files; TEST="newstest2014 newstest2015" makes two test sets, test and test1
#   JOIN=3               join every three neighbouring sentences to one
#   LOWER=yes            lowercase all text, so that all scores are case-insensitive
if [ $# -ne 5 ] || [[ $1 != small && $1 != paper ]]; then
  echo "usage: ${0##*/} small|paper CORPUS OUT SOURCE TARGET" >&2; exit 2
fi
# shellcheck disable=SC2034  # size is used where this is sourced
size=$1 corpus=$2 out=${3%/} source=$4 target=$5 common=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
source "$common/lock.sh"
source "$common/settings.sh"
source "$common/yes.sh"
yes_or_no LOWER JOINED ALIGN LEXICON
VALID=${VALID:-$(valid_name "$corpus" "$source")}
lock "$(dirname "$out")"
# the settings of the text, if they are not the default
settings="$size $source-$target" defaults=(TRAIN=train VALID=val TEST=test JOIN=1 LOWER=no)
case ${0##*/} in
  prepare_words.sh) defaults+=(LEXICON=yes) ;;
  prepare_bpe.sh)
    if [ "$size" = small ]; then defaults+=(MERGES=4000); else defaults+=(MERGES=30000); fi
    defaults+=(JOINED=no ALIGN=no DROPOUT= SEGMENTATIONS=8 SEED=1) ;;
esac
for default in "${defaults[@]}"; do
  name=${default%%=*} value=${default#*=}
  if [ "${!name:-$value}" != "$value" ]; then settings+=" $name=${!name}"; fi
done
kept_text "$out" "$settings" "$corpus/${TRAIN:-train}.$source" "$corpus/${TRAIN:-train}.$target"

# begin LONGEST: write the text, lowercased if small or LOWER=yes, and go to its folder. Training pairs with an empty
# side or more than LONGEST words on a side are left out; 0 keeps all.
begin() {
  local options=(--join "${JOIN:-1}") name split file languages number=0
  [[ $size = paper && ${LOWER-} != yes ]] || options+=(--lower)
  python "$common/clean.py" "$corpus/${TRAIN:-train}" "$out.part/train" "$source" "$target" "${options[@]}" \
    --longest "$1"
  if [ ! -s "$out.part/train.$source" ]; then
    echo "${0##*/}: $corpus/${TRAIN:-train} has no pair that is kept" >&2; exit 2
  fi
  python "$common/clean.py" "$corpus/$VALID" "$out.part/valid" "$source" "$target" "${options[@]}"
  tests=()
  for name in ${TEST:-test}; do
    split=test${tests:+$((number += 1))} languages=("$source" "$target")
    for file in "$corpus/$name.$target"[1-9]; do [ ! -e "$file" ] || languages+=("${file##*.}"); done
    python "$common/clean.py" "$corpus/$name" "$out.part/$split" "${languages[@]}" "${options[@]}"
    tests+=("$split")
  done
  out=$(cd "$out.part/.." && pwd)/${out##*/}
  cd "$out.part" || exit
}

# binarise PREFIX [options of fairseq-preprocess]: make bin/ from PREFIXtrain.*, PREFIXvalid.* and PREFIXtest.*
binarise() {
  local prefix=$1 prefixes=("${tests[@]/#/$1}")
  fairseq-preprocess --source-lang "$source" --target-lang "$target" --trainpref "${prefix}train" \
    --validpref "${prefix}valid" --testpref "$(IFS=,; echo "${prefixes[*]}")" --destdir bin --workers 2 "${@:2}"
}

finish() {
  mv "$out.part" "$out"
}
