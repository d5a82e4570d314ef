# shellcheck shell=bash
# What the sizes "small" and "paper" mean; sourced by the recipes' train.sh. What follows on a command line wins over it.
# paper [BEAM]: sets `options` to what the papers' trainings on words have in common; with BEAM, BLEU is validated by this beam.
# small words|subwords ARCH: sets `options` to those of fairseq-train. Models of words start from N(0, 0.05²) and have 6 epochs,
# those of subwords from N(0, 0.1²) and have 8; sentences are Multi30k's.
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
    transformer*) # fairseq's own, cut to the size of LividWo/Revisit-MMT's Transformer-Tiny
      for side in encoder decoder; do
        options+=("--$side-layers" 4 "--$side-ffn-embed-dim" 256 "--$side-attention-heads" 4)
      done
      return ;;
    lstm) options+=(--encoder-bidirectional --decoder-out-embed-dim 128) ;; # fairseq's own
    *) options+=(--init-std "$deviation") ;;
  esac
  options+=(--encoder-hidden-size 256 --decoder-hidden-size 256)
}
