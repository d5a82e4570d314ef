#!/usr/bin/env bash
# Make an ensemble of models that multi30k.sh trained, and distil one model from it (Kim and Rush 2016). The model trains on the
# given translations and on the ensemble's. Run it again to continue.
#   distil.sh TEXT OUT TARGET SYSTEM [fairseq-train options]
# The arguments are those of multi30k.sh, which must have run with each seed. Set in the environment:
#   RUNS="a b c"   the ensemble's folders in OUT (default: TARGET-SYSTEM-1, -2 and -3)
#   NAME=plain     write OUT/plain-ensemble/ and OUT/distilled-plain/; needed for other RUNS or other subwords (MERGES, DROPOUT)
#   SEED=2         seed of the distilled model; the ensemble's translation stays the same
#   UPDATES        updates of the distilled model (default: twice those of multi30k.sh)
# Other variables, such as LENPEN, go to the training. OUT/TARGET-SYSTEM-ensemble/ gets the ensemble's scores and its translation
# of the training text. OUT/distilled-TARGET-SYSTEM/ has the layout of an OUT of multi30k.sh.
set -euo pipefail
if [ $# -lt 4 ]; then echo "usage: distil.sh TEXT OUT TARGET SYSTEM [fairseq-train options]" >&2; exit 2; fi
text=$1 out=$2 target=$3 system=$4 here=$(dirname "$0")
name=${NAME:-$target-$system} teacher=$out/$name-ensemble distilled=$out/distilled-$name
prepared=$out/$target-${MERGES:-10000}${DROPOUT:+-$DROPOUT-${SEGMENTATIONS:-8}}
both=$distilled/$target # the text with the given translations and the ensemble's
read -ra runs <<< "${RUNS:-$target-$system-1 $target-$system-2 $target-$system-3}"
paths=()
for run in "${runs[@]}"; do paths+=("$out/$run/average.pt"); done
path=$(IFS=:; echo "${paths[*]}")

source "$here/../common/lock.sh"
lock "$teacher" # if started with several seeds, one process translates
source "$here/../common/settings.sh"
same_settings "$teacher" "RUNS=${runs[*]} PREPARED=${prepared##*/}" is NAME "$teacher/valid.csv" # its first file
for subset in test train; do
  [ -e "$teacher/$subset.scores" ] || LENPEN="" SUBSET=$subset "$here/translate.sh" "$prepared" "$teacher" "$target" "$path"
done
if [ ! -e "$both" ]; then
  rm -rf "$both.part"
  mkdir -p "$both.part"
  for language in en "$target"; do
    for name in val test_2016_flickr test_2017_flickr test_2017_mscoco; do
      [ ! -e "$text/$name.$language" ] || cp "$text/$name.$language" "$both.part"
    done
  done
  cat "$prepared/train.en" "$prepared/train.en" > "$both.part/train.en"
  cat "$prepared/train.$target" "$teacher/train.txt" > "$both.part/train.$target"
  mv "$both.part" "$both"
fi
unlock
unset NAME # multi30k.sh would use it, too
UPDATES=${UPDATES:-14528} "$here/multi30k.sh" "$both" "$distilled" "$target" "$system" "${@:5}"
