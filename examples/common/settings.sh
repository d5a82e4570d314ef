# shellcheck shell=bash
# A folder keeps what it was made with, and what is made otherwise needs another one; sourced.
# same_settings FOLDER SETTINGS "has runs" OUT [BEGUN]: writes FOLDER/settings until BEGUN is there (default: at once), and refuses
# others afterwards; a folder that had BEGUN before there were settings is taken as it is. OUT is the option that names the folder.
same_settings() {
  local kept=$1/settings
  if [ ! -e "${5:-$kept}" ]; then
    echo "$2" > "$kept"
  elif [ -e "$kept" ] && [ "$(< "$kept")" != "$2" ]; then
    echo "${0##*/}: $1 $3 of $(< "$kept"), and not of $2: give another $4" >&2; exit 2
  fi
}
