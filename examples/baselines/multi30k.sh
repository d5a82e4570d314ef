#!/usr/bin/env bash
# One system on Multi30k from text to scores: prepare, train, average its last ten checkpoints, translate the test set, and
# score it. Started again, it goes on where it stopped.
#   multi30k.sh TEXT OUT TARGET SYSTEM [fairseq-train options]
# TEXT    of ../common/fetch_multi30k.sh TEXT en TARGET; TARGET is de, fr or cs.
# SYSTEM  an architecture: one of this package, or fairseq's lstm or transformer_iwslt_de_en (../common/small.sh has its sizes)
# OUT     gets the text in subwords, and TARGET-SYSTEM-SEED/ with the checkpoints, average.pt, and what translate.sh writes.
#         NAME=plain in the environment is another name for that folder, which other settings, such as another SEED, need.
# In the environment, too: SEED=1; UPDATES=7264; MERGES=10000; DROPOUT=0.1 for BPE-dropout with SEGMENTATIONS=8; LENPEN=1, with
# another one of which the test set is translated anew; SUBSET=valid ends with the validation set's scores, by which to choose.
set -euo pipefail
if [ $# -lt 4 ]; then echo "usage: multi30k.sh TEXT OUT TARGET SYSTEM [fairseq-train options]" >&2; exit 2; fi
text=$1 out=$2 target=$3 system=$4 here=$(dirname "$0")
shift 4
source "$here/../common/lock.sh"
source "$here/../common/settings.sh"
seed=${SEED:-1} merges=${MERGES:-10000}
export UPDATES=${UPDATES:-7264} OMP_NUM_THREADS=1
unset SEED # that of the training is not that of the text
every=$((UPDATES / 24))
if [ "$every" = 0 ]; then echo "multi30k.sh: UPDATES=$UPDATES are too few: 24 are the least" >&2; exit 2; fi

mkdir -p "$out"
prepared=$out/$target-$merges${DROPOUT:+-$DROPOUT-${SEGMENTATIONS:-8}}
run=$out/${NAME:-$target-$system-$seed}

settings="SEED=$seed UPDATES=$UPDATES PREPARED=${prepared##*/} $system${*:+ $*}"
lock "$run" # a training that another process has begun is done first
same_settings "$run" "$settings" "has a training" NAME "$run/checkpoint_last.pt"
unlock

MERGES=$merges JOINED=yes TEST=test_2016_flickr "$here/../common/prepare_bpe.sh" small "$text" "$prepared" en "$target"
bins=("$prepared/bin")
if [ -n "${DROPOUT-}" ]; then bins=("$prepared"/bin[0-9]*); fi

"$here/short.sh" "$(IFS=:; echo "${bins[*]}")" "$run" "$system" --share-all-embeddings --lr 3e-3 --batch-size 64 \
  --seed "$seed" --save-interval-updates "$every" --keep-interval-updates 10 --validate-after-updates $((14 * every)) "$@"
lock "$run" # started twice, the second finds what the first has done
if [ "$run/finished" -nt "$run/average.pt" ]; then
  fairseq-attnvariants average --folder "$run" --last 10 --by updates --output "$run/average.pt"
fi
translate=("$here/translate.sh" "$prepared" "$run" "$target" "$run/average.pt")
if [ "${SUBSET-}" = valid ]; then
  "${translate[@]}"
elif [ "$run/lenpen" -nt "$run/average.pt" ] && [ "$(< "$run/lenpen")" = "${LENPEN:-1}" ]; then
  cat "$run/test.scores"
else
  rm -f "$run/lenpen" # until all is done
  "${translate[@]}"
  echo "${LENPEN:-1}" > "$run/lenpen"
fi
