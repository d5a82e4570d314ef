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

# valid_name CORPUS SOURCE prints what CORPUS calls its validation text: valid, as split.py does, or val.
valid_name() {
  if [ -e "$1/val.$2" ] || [ ! -e "$1/valid.$2" ]; then echo val; else echo valid; fi
}

# kept_text OUT SETTINGS FILE... ends the script if the folder OUT is there, and refuses one that was made with other settings or of
# other FILEs, which may be somewhere else by now, or gone. Otherwise it begins OUT.part, which gets the settings, too.
kept_text() {
  local out=$1 settings=$2 sum
  sum=$(cat "${@:3}" 2> /dev/null | cksum | cut -d ' ' -f 1) || true
  if [ -e "$out" ]; then
    if [ -e "$3" ]; then same_settings "$out" "$settings, checksum $sum" "has text" OUT "$out"; fi
    echo "$out is there and stays as it is"; exit
  fi
  rm -rf "$out.part"
  mkdir -p "$out.part"
  echo "$settings, checksum $sum" > "$out.part/settings"
}
