# shellcheck shell=bash
# The options of the sizes "small" and "paper". The recipes' train.sh sources this file; options on their command line replace them.
# paper [BEAM]: set `options` to those that the papers' trainings on words share. With BEAM, validation computes BLEU with this beam.
# small words|subwords ARCH: set `options` for fairseq-train and Multi30k's sentences. Models of words start from N(0, 0.05²) and train
# for 6 epochs; models of subwords start from N(0, 0.1²) and train for 8.
paper() {
  # shellcheck disable=SC2034  # options are used where this is sourced
  options=(--batch-size 80 --sentence-avg --validate-interval-updates 5000 --save-interval-updates 5000 --keep-interval-updates 1)
  if [ $# -gt 0 ]; then
    options+=(--eval-bleu --eval-tokenized-bleu --eval-bleu-args "{\"beam\": $1, \"unnormalized\": true}"
              --best-checkpoint-metric bleu --maximize-best-checkpoint-metric)
  fi
}
small() {
  # shellcheck disable=SC2034  # options are used where this is sourced
  options=(--encoder-embed-dim 128 --decoder-embed-dim 128 --dropout 0.3 --label-smoothing 0.1 --optimizer adam --lr 1e-3
           --batch-size 80)
  local deviation=0.1 epochs=8 side
  if [ "$1" = words ]; then deviation=0.05 epochs=6; fi
  options+=(--max-epoch "$epochs")
  case $2 in
    transformer*) # fairseq's model, in the size of LividWo/Revisit-MMT's Transformer-Tiny
      for side in encoder decoder; do
        options+=("--$side-layers" 4 "--$side-ffn-embed-dim" 256 "--$side-attention-heads" 4)
      done
      return ;;
    lstm) options+=(--encoder-bidirectional --decoder-out-embed-dim 128) ;; # fairseq's model
    *) options+=(--init-std "$deviation") ;;
  esac
  options+=(--encoder-hidden-size 256 --decoder-hidden-size 256)
}
