# shellcheck shell=bash
# fetch SUM URL FILE: fetch FILE, unless it is there and complete. A file gets its name only if its SHA-256 is SUM. Source this file.
fetch() {
  if sha256sum --check --status <<< "$1  $3" 2> /dev/null; then return; fi
  curl --fail --silent --show-error --location --retry 5 --output "$3.part" "$2"
  if ! sha256sum --check --status <<< "$1  $3.part"; then
    rm "$3.part"
    echo "${0##*/}: $2 is not what was measured with (its checksum differs)" >&2; exit 1
  fi
  mv "$3.part" "$3"
}
