# shellcheck shell=bash
# A folder keeps its settings, and other settings need another folder. Source this file.
# same_settings FOLDER SETTINGS WORDS OUT [BEGUN] keeps SETTINGS in FOLDER/settings. It replaces them until the file BEGUN is there
# (default: the settings themselves), and then refuses others. If BEGUN is there without settings, it accepts any. The message says
# WORDS, such as "has runs", and OUT, the argument that names the folder.
same_settings() {
  local kept=$1/settings
  if [ ! -e "${5:-$kept}" ]; then
    echo "$2" > "$kept"
  elif [ -e "$kept" ] && [ "$(< "$kept")" != "$2" ]; then
    echo "${0##*/}: $1 $3 of $(< "$kept"), and not of $2: give another $4" >&2; exit 2
  fi
}

# valid_name CORPUS SOURCE prints the name of CORPUS's validation text: valid, as split.py calls it, or val.
valid_name() {
  if [ -e "$1/val.$2" ] || [ ! -e "$1/valid.$2" ]; then echo val; else echo valid; fi
}

# kept_text OUT SETTINGS FILE... ends the script if the folder OUT is there. It refuses an OUT that was made with other settings or
# FILEs; the FILEs may have moved, or be gone. If there is no OUT, it begins OUT.part and writes the settings there.
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
