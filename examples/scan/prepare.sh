#!/usr/bin/env bash
# Make data for fairseq from SCAN's commands and actions.
#   prepare.sh TRAIN TEST OUT      TRAIN and TEST are SCAN's files, with "IN: command OUT: actions" per line
# OUT gets {train,valid,test}.{in,out} and bin/, and appears when it is complete. Every 20th line of TRAIN is for validation.
set -euo pipefail
if [ $# -ne 3 ]; then echo "usage: prepare.sh TRAIN TEST OUT" >&2; exit 2; fi
out=${3%/}
source "$(dirname "$0")/../common/lock.sh"
source "$(dirname "$0")/../common/settings.sh"
lock "$(dirname "$out")"
kept_text "$out" scan "$1" "$2"
split() {  # split PREFIX: write SCAN's lines to PREFIX.in and PREFIX.out
  awk -F ' OUT: ' -v prefix="$1" '{ sub("^IN: ", "", $1); print $1 > (prefix ".in"); print $2 > (prefix ".out") }'
}
awk 'NR % 20 != 0' "$1" | split "$out.part/train"
awk 'NR % 20 == 0' "$1" | split "$out.part/valid"
split "$out.part/test" < "$2"
fairseq-preprocess --source-lang in --target-lang out --trainpref "$out.part/train" --validpref "$out.part/valid" \
  --testpref "$out.part/test" --destdir "$out.part/bin"
mv "$out.part" "$out"
