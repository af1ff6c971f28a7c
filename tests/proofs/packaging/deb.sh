#!/usr/bin/env bash
# The .deb in a fresh Debian root: it installs, doctor runs, pretrain_gpt trains 5 steps, the
# torchrun script starts it, and it is removed without a trace. Needs root and debootstrap.
# DEB: the package, else it is built; ROOT: a minbase of bookworm, else debootstrap makes it.
source "$(dirname "$0")/../common.sh"
[ "$(id -u)" = 0 ] || { echo "skipped: chroot needs root"; exit 0; }
mirror=${MIRROR:-http://deb.debian.org/debian}
deb=${DEB:-}
if [ -z "$deb" ]; then
  OUT=$work/dist PLATFORMS=linux/amd64 bash scripts/dist.sh >"$work/dist.log" 2>&1 || { tail -5 "$work/dist.log"; echo "FAILED: make dist"; exit 1; }
  deb=$(echo "$work"/dist/*_amd64.deb)
fi
root=${ROOT:-}
if [ -z "$root" ]; then
  command -v debootstrap >/dev/null || { echo "skipped: debootstrap is not here"; exit 0; }
  root=$work/root
  debootstrap --variant=minbase bookworm "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || { tail -3 "$work/debootstrap.log"; echo "FAILED: debootstrap"; exit 1; }
fi
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
if ! mountpoint -q "$root/proc"; then
  mount -t proc proc "$root/proc"
  trap 'umount "$root/proc"; [ -n "${WORK:-}" ] || rm -rf "$work"' EXIT
fi

dpkg-deb --info "$deb" | sed -n 's/^ \(Package\|Version\|Architecture\|Depends\|Recommends\|Installed-Size\):/&/p'
cp "$deb" "$root/monotron.deb"
inside dpkg -i /monotron.deb >"$work/dpkg.log" 2>&1 || { tail -5 "$work/dpkg.log"; echo "FAILED: dpkg -i"; exit 1; }
inside dpkg --verify monotron
files=$(inside dpkg -L monotron | wc -l)
inside monotron --version
inside pretrain_gpt --version
inside monotron doctor || { echo "FAILED: doctor"; exit 1; }
cat >"$root/train.sh" <<'TRAIN'
set -eu
rm -rf /run5 && mkdir /run5 && cd /run5
preprocess_data --input /usr/share/doc/monotron/README.md --input-format text --output-prefix text --tokenizer-type GPT2BPETokenizer --append-eod >/dev/null 2>&1
"$@" --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 4 \
  --train-iters 5 --lr 1e-3 --tokenizer-type GPT2BPETokenizer --data-path text_text_document --split 100,0,0 --eval-iters 0 --log-interval 1 --save ckpt --save-interval 5
TRAIN
inside sh /train.sh pretrain_gpt >"$work/train.log" 2>&1 || { tail -5 "$work/train.log"; echo "FAILED: training"; exit 1; }
[ "$(grep -c 'lm loss: ' "$work/train.log")" = 5 ] || { cat "$work/train.log"; echo "FAILED: not 5 steps"; exit 1; }
grep -o 'iteration  *[0-9]*/ *[0-9]* \|lm loss: [^ ]*' "$work/train.log" | paste - -
inside monotron inspect checkpoint --verify /run5/ckpt | tail -1
inside dpkg -P monotron >/dev/null 2>&1
left=$(find "$root/usr" "$root/etc" "$root/lib/" -name '*monotron*' -o -name 'pretrain_gpt*' -o -name 'preprocess_data*' | wc -l)
[ "$left" = 0 ] || { echo "FAILED: $left files are left"; exit 1; }
echo "deb: installed $files paths, doctor and 5 steps of training ran, nothing is left after dpkg -P"
