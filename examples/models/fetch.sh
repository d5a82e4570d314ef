#!/usr/bin/env bash
# Fetch the Japanese-English corpus of the public repository odashi/small_parallel_enja, at the commit of our measurements.
#   fetch.sh OUT
# OUT gets train, dev and test, .ja and .en. Complete files stay, and others are fetched again. A file gets its name only if its
# checksum is right. ENJA in the environment names another place, such as file:///folder.
set -euo pipefail
if [ $# -ne 1 ]; then echo "usage: fetch.sh OUT" >&2; exit 2; fi
site=${ENJA:-https://raw.githubusercontent.com/odashi/small_parallel_enja/312408a11c5fbcbc09443bebb18121f7efdcd61e}
sums="
04a2673449770657fd5e3b963cb856be3130923212b6db8ac7eaeef18f06c041 dev.en
cd534f56b8639dc130f86a365e5ec0aa70042000bdd740a622fbbf8b6be4acca dev.ja
45edb380749ec2b49cca7618fc5a7595fc9f791180672ba466b90c873a4aa8bf test.en
d37dc460a81b064e4106c8913eb11fa300da05cf3f58a7a5bbfec7e20947ddef test.ja
148b05dcd28638fe20ee84f2b1127001c80982be352007dda241fb759adadc76 train.en
fc81a1434349ec98a449d7ae9cd2530057f689637684ecfed3501ea6a8a07ecc train.ja
"
source "$(dirname "$0")/../common/fetch.sh"
mkdir -p "$1"
while read -r sum file; do fetch "$sum" "$site/$file" "$1/$file"; done < <(grep . <<< "$sums")
