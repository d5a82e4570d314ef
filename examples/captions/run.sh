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
known "$system" "$seed"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
train() {  # train UPDATES SYSTEM [fairseq-train options]
  TUNE=no UPDATES=$1 SEED=$seed NAME=$2/$seed "$here/../baselines/multi30k.sh" "$text" "$out" de "${systems[$2]}" \
    --compute-dtype bfloat16 "${@:3}"
}
trainings
"$here/measure.sh" "$out/de-10000" "$out/$system/$seed"
