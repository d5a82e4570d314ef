# shellcheck shell=bash
# If a script is started twice, one process works in a folder, and the others wait for it. Source this file.
# lock FOLDER: lock it until the script ends or calls unlock. Scripts that it calls may lock the folder, too.
lock() {
  if [ "${LOCKED-}" = "$1" ]; then return; fi
  mkdir -p "$1"
  exec {locked}< "$1"
  flock --nonblock "$locked" || { echo "waiting for another process that writes to $1" >&2; flock "$locked"; }
  export LOCKED=$1
}
unlock() { exec {locked}<&-; unset LOCKED; }
