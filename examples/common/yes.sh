# shellcheck shell=bash
# yes_or_no NAME...: refuses another value than yes and no of these variables; sourced.
yes_or_no() {
  local name
  for name; do
    case ${!name-} in "" | yes | no) ;; *) echo "${0##*/}: $name=${!name} is neither yes nor no" >&2; exit 2 ;; esac
  done
}
