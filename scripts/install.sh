#!/bin/sh
# install.sh BINARY: lays out bin/monotron's kind of binary with its links, manual pages,
# completions and unit under $DESTDIR$PREFIX. install.sh -u removes the same files.
# MONOTRON: the program to ask for pages and completions, BINARY itself unless it is for
# another machine. Called by make install, make uninstall and scripts/dist.sh.
set -eu
cd "$(dirname "$0")/.."
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}$prefix
links="pretrain_gpt preprocess_data preprocess_data_fast"
units=$root/lib/systemd/system
[ "$prefix" != /usr ] || units=${DESTDIR:-}/lib/systemd/system

if [ "$1" = -u ]; then
  for name in monotron pretrain_gpt.py $links; do rm -f "$root/bin/$name"; done
  rm -f "$root"/share/man/man1/monotron.1 "$root"/share/man/man1/monotron-*.1
  for name in $links; do rm -f "$root/share/man/man1/$name.1"; done
  rm -f "$root/share/bash-completion/completions/monotron" "$root/share/zsh/site-functions/_monotron" \
    "$root/share/fish/vendor_completions.d/monotron.fish" "$units/monotron-serve.service"
  for name in $links; do rm -f "$root/share/bash-completion/completions/$name"; done
  rm -rf "$root/share/doc/monotron"
  exit 0
fi

binary=$1
case ${MONOTRON:-$binary} in /*) ask=${MONOTRON:-$binary} ;; *) ask=$PWD/${MONOTRON:-$binary} ;; esac
install -d "$root/bin" "$root/share/man/man1" "$root/share/doc/monotron" "$root/share/bash-completion/completions" \
  "$root/share/zsh/site-functions" "$root/share/fish/vendor_completions.d"
install -m 755 "$binary" "$root/bin/monotron"
install -m 755 scripts/packaging/pretrain_gpt.py "$root/bin/pretrain_gpt.py"
install -m 644 LICENSE README.md CHANGELOG.md "$root/share/doc/monotron/"
"$ask" man >"$root/share/man/man1/monotron.1"
for name in $("$ask" --generate-bash-completion); do
  case $name in
  help | h | -*) ;;
  pretrain_gpt | preprocess_data | preprocess_data_fast) "$ask" man "$name" >"$root/share/man/man1/$name.1" ;;
  *) "$ask" man "$name" >"$root/share/man/man1/monotron-$name.1" ;;
  esac
done
"$ask" completion bash >"$root/share/bash-completion/completions/monotron"
"$ask" completion zsh >"$root/share/zsh/site-functions/_monotron"
"$ask" completion fish >"$root/share/fish/vendor_completions.d/monotron.fish"
for name in $links; do
  ln -sfn monotron "$root/bin/$name"
  ln -sfn monotron "$root/share/bash-completion/completions/$name"
done
if [ "${UNIT:-yes}" = yes ]; then
  install -d "$units"
  sed "s|/usr/bin/monotron|$prefix/bin/monotron|" scripts/packaging/monotron-serve.service >"$units/monotron-serve.service"
  chmod 644 "$units/monotron-serve.service"
fi
