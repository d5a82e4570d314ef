# shellcheck shell=bash
# Of scripts that are started twice one works in a folder, and the others wait for it; sourced.
# lock FOLDER: until the script ends, or unlock; what the script calls may lock the folder, too
lock() {
  if [ "${LOCKED-}" = "$1" ]; then return; fi
  mkdir -p "$1"
  exec {locked}< "$1"
  flock --nonblock "$locked" || { echo "waiting for another process that writes to $1" >&2; flock "$locked"; }
  export LOCKED=$1
}
unlock() { exec {locked}<&-; unset LOCKED; }
