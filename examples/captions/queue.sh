#!/usr/bin/env bash
# Train all runs of the captions' table, group by group (systems.sh). In a group, each seed of all systems comes before the next seed.
# Run it again to continue. If you start it twice with one OUT, or with JOBS=12, several runs go on at a time, and no run is done twice.
#   queue.sh TEXT OUT
# Set in the environment: SYSTEMS="rnnsearch recatt" (default: all), SEEDS="1 2 3 4 5 6 7", JOBS=1 (runs at a time),
# RUN=words.sh (default: run.sh).
# A failed run leaves its output in OUT/SYSTEM-SEED.log, and the others go on. Run the queue again to repeat it.
set -euo pipefail
if [ $# -ne 2 ]; then echo "usage: queue.sh TEXT OUT" >&2; exit 2; fi
if [[ ! ${JOBS:-1} =~ ^[1-9][0-9]*$ ]]; then echo "queue.sh: JOBS=$JOBS is no number from 1 on" >&2; exit 2; fi
text=$1 out=$2 here=$(dirname "$0")
source "$here/systems.sh"
mkdir -p "$out"
if [ -n "${SYSTEMS-}" ]; then groups=("$SYSTEMS"); fi
runs=()
for group in "${groups[@]}"; do
  for seed in ${SEEDS:-1 2 3 4 5 6 7}; do
    for system in $group; do runs+=("$system/$seed"); done
  done
done
lane() {
  local failed=0 run held
  for run in "${runs[@]}"; do
    local system=${run%/*} seed=${run#*/}
    exec {held}> "$out/$system-$seed.lock"
    if flock --nonblock "$held" && [ ! -e "$out/$run/measured" ] && [ ! "$out/$system-$seed.failed" -nt "$out/begun" ]; then
      echo "$(date '+%F %T') $system $seed"
      "$here/${RUN:-run.sh}" "$text" "$out" "$system" "$seed" > "$out/$system-$seed.log" 2>&1 || {
        echo "$system $seed failed: see $out/$system-$seed.log" >&2
        touch "$out/$system-$seed.failed"
        failed=1
      }
    fi
    exec {held}>&-
  done
  return $failed
}
touch "$out/begun" # a run that fails after this is not repeated
lanes=() status=0
for ((k = 0; k < ${JOBS:-1}; k++)); do
  lane &
  lanes+=($!)
done
for one in "${lanes[@]}"; do wait "$one" || status=1; done
exit $status
