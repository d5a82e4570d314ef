# shellcheck shell=bash
# A folder keeps what it was made with, and what is made otherwise needs another one; sourced.
# same_settings FOLDER SETTINGS WORDS OUT [BEGUN] keeps SETTINGS in FOLDER/settings. Until the file BEGUN is there (default: the
# settings themselves) it replaces them. After that it refuses other settings; with BEGUN and no settings it accepts any. WORDS, such
# as "has runs", and OUT, the argument that names the folder, are for the message.
same_settings() {
  local kept=$1/settings
  if [ ! -e "${5:-$kept}" ]; then
    echo "$2" > "$kept"
  elif [ -e "$kept" ] && [ "$(< "$kept")" != "$2" ]; then
    echo "${0##*/}: $1 $3 of $(< "$kept"), and not of $2: give another $4" >&2; exit 2
  fi
}

# kept_text OUT SETTINGS ends the script if the folder OUT is there, and refuses one that was made with other settings. Otherwise it
# begins OUT.part, which gets the settings, too.
kept_text() {
  if [ -e "$1" ]; then
    same_settings "$1" "$2" is OUT "$1"
    echo "$1 is there and stays as it is"; exit
  fi
  rm -rf "$1.part"
  mkdir -p "$1.part"
  echo "$2" > "$1.part/settings"
}
