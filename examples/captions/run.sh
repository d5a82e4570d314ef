#!/usr/bin/env bash
# Train, translate and measure one system of the captions' table. Run it again to continue.
#   run.sh TEXT OUT SYSTEM SEED
# TEXT    made by ../common/fetch_multi30k.sh TEXT en de
# SYSTEM  a system of systems.sh; those that continue rnnsearch_star train it first, if necessary
# OUT     gets SYSTEM/SEED/ with checkpoints, average.pt, translations and, from measure.sh, measured/
# Set UPDATES=3632 in the environment for another number of updates; it needs another OUT.
set -euo pipefail
if [ $# -ne 4 ]; then echo "usage: run.sh TEXT OUT SYSTEM SEED" >&2; exit 2; fi
text=$1 out=$2 system=$3 seed=$4 here=$(dirname "$0") updates=${UPDATES:-3632}
source "$here/systems.sh"
if [ -z "${systems[$system]-}" ]; then
  echo "run.sh: '$system' is none of ${groups[*]}" >&2; exit 2
fi
if [[ ! $seed =~ ^[1-9][0-9]*$ ]]; then echo "run.sh: SEED '$seed' is no number from 1 on" >&2; exit 2; fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
train() {  # train UPDATES SYSTEM [fairseq-train options]
  TUNE=no UPDATES=$1 SEED=$seed NAME=$2/$seed "$here/../baselines/multi30k.sh" "$text" "$out" de "${systems[$2]}" \
    --compute-dtype bfloat16 "${@:3}"
}
case $system in
  *_more)
    train "$updates" rnnsearch_star
    train $((updates / 2)) "$system" --lr 1e-3 --warm-start "$out/rnnsearch_star/$seed/average.pt" ;;
  *) train "$updates" "$system" ;;
esac
"$here/measure.sh" "$out/de-10000" "$out/$system/$seed"
