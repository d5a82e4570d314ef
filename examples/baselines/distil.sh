#!/usr/bin/env bash
# An ensemble of what multi30k.sh trained, and one model distilled from it (Kim and Rush 2016): trained on the text with the
# ensemble's translation of its sources beside the given one. Started again, it goes on where it stopped.
#   distil.sh TEXT OUT TARGET SYSTEM [fairseq-train options]
# Arguments are those of multi30k.sh, which was run with each seed. RUNS="a b c" in the environment are its folders in OUT,
# by default TARGET-SYSTEM-1, -2 and -3; the rest of its environment, such as LENPEN, goes to the training, whose updates are
# twice as many unless UPDATES says otherwise.
# OUT/TARGET-SYSTEM-ensemble/ gets the ensemble's scores and its translation of the training text; OUT/distilled-TARGET-SYSTEM/
# is another OUT of multi30k.sh. With NAME=plain they are OUT/plain-ensemble/ and OUT/distilled-plain/; other RUNS, or another
# text in subwords (MERGES, DROPOUT), need a NAME of their own. SEED=2 is another seed of the model, of the same translation.
set -euo pipefail
if [ $# -lt 4 ]; then echo "usage: distil.sh TEXT OUT TARGET SYSTEM [fairseq-train options]" >&2; exit 2; fi
text=$1 out=$2 target=$3 system=$4 here=$(dirname "$0")
name=${NAME:-$target-$system} teacher=$out/$name-ensemble distilled=$out/distilled-$name
prepared=$out/$target-${MERGES:-10000}${DROPOUT:+-$DROPOUT-${SEGMENTATIONS:-8}}
both=$distilled/$target # the text with the translations beside the given ones
read -ra runs <<< "${RUNS:-$target-$system-1 $target-$system-2 $target-$system-3}"
paths=()
for run in "${runs[@]}"; do paths+=("$out/$run/average.pt"); done
path=$(IFS=:; echo "${paths[*]}")

source "$here/../common/lock.sh"
lock "$teacher" # started with several seeds, one translates
source "$here/../common/settings.sh"
same_settings "$teacher" "RUNS=${runs[*]} PREPARED=${prepared##*/}" is NAME "$teacher/valid.csv" # the first that is made
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
unset NAME # of the ensemble alone
UPDATES=${UPDATES:-14528} "$here/multi30k.sh" "$both" "$distilled" "$target" "$system" "${@:5}"
