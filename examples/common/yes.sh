# shellcheck shell=bash
# yes_or_no NAME...: refuse a value of these variables that is neither yes nor no. Source this file.
yes_or_no() {
  local name
  for name; do
    case ${!name-} in "" | yes | no) ;; *) echo "${0##*/}: $name=${!name} is neither yes nor no" >&2; exit 2 ;; esac
  done
}
