# shellcheck shell=bash
# generate DATA NAME [fairseq-generate options]: writes NAME.generated, what fairseq-generate prints, and NAME.txt, the translations
# in the order of the text; sourced. USER_DIR in the environment is the folder of an architecture of your own.
generate() {
  fairseq-generate "$1" --user-dir "${USER_DIR:-$(fairseq-attnvariants user-dir)}" "${@:3}" > "$2.part"
  mv "$2.part" "$2.generated"
  grep ^H- "$2.generated" | LC_ALL=C sort -V | cut -f 3 > "$2.txt"
}
