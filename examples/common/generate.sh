# shellcheck shell=bash
# generate DATA NAME [fairseq-generate options]: write NAME.generated, the output of fairseq-generate, and NAME.txt, the translations
# in the order of the text. USER_DIR in the environment is the folder of a custom architecture. Source this file.
generate() {
  fairseq-generate "$1" --user-dir "${USER_DIR:-$(fairseq-attnvariants user-dir)}" "${@:3}" > "$2.part"
  mv "$2.part" "$2.generated"
  grep ^H- "$2.generated" | LC_ALL=C sort -V | cut -f 3 > "$2.txt"
}
