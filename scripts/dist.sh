#!/usr/bin/env bash
# Called by make dist: what a release consists of, in $OUT (dist). Two runs of one commit give
# the same bytes (scripts/dist-check.sh). PLATFORMS picks some of linux/amd64, linux/arm64 and
# darwin/arm64. They need a Linux host on amd64 with gcc, linux/arm64 Debian's
# gcc-aarch64-linux-gnu and libc6-dev-arm64-cross, darwin/arm64 pip for python3.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C TZ=UTC GO=${GO:-go}
export GOFLAGS=-trimpath
umask 022
out=$(realpath -m "${OUT:-dist}")
glibc_most=${GLIBC_MOST:-2.34}
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/arm64}
version=$(sh scripts/version.sh)
number=${version#v}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0
cyclonedx=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
tools=${TOOLS_GOCACHE:-$("$GO" env GOCACHE)} # dist-check.sh empties the program's cache, not this one
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
rm -rf "$out"
mkdir -p "$out"

pack() { # folder in $stage: its .tar.gz, with nothing in it that differs between two runs
  tar -C "$stage" --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$1" |
    gzip -n -9 >"$out/$1.tar.gz"
}

compile() { # platform, output
  local cgo=0 cc=gcc # in plain Go, for a platform that is not below
  case $1 in
  linux/amd64) cgo=1 ;;
  linux/arm64) cgo=1 cc=aarch64-linux-gnu-gcc ;;
  darwin/arm64) cgo=1 cc="'$(sh scripts/macos.sh)'" ;; # go splits CC at spaces outside quotes
  esac
  CGO_ENABLED=$cgo CC=$cc GOOS=${1%/*} GOARCH=${1#*/} "$GO" build -buildvcs=false \
    -ldflags "-s -w -buildid= -X monotron/megatron/training.Version=$version" -o "$2" .
}

glibc() { # binary: the least version of glibc that it starts with
  local least
  least=$(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -1)
  [ "$(printf '%s\n' "$least" "$glibc_most" | sort -V | tail -1)" = "$glibc_most" ] ||
    { echo "dist: the program needs glibc $least, docs/install.md promises $glibc_most; build on Debian 12, or set GLIBC_MOST" >&2; return 1; }
  echo "$least"
}

debian() { # arch, binary
  local root=$stage/deb-$1 least
  PREFIX=/usr DESTDIR=$root MONOTRON=$host sh scripts/install.sh "$2"
  gzip -n -9 "$root"/usr/share/man/man1/*.1
  install -m 644 "$stage/THIRD_PARTY_NOTICES" "$root/usr/share/doc/monotron/"
  mv "$root/usr/share/doc/monotron/LICENSE" "$root/usr/share/doc/monotron/copyright"
  install -D -m 644 scripts/packaging/monotron-serve.default "$root/etc/default/monotron-serve"
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  least=$(glibc "$2")
  sed -e "s|\${ARCH}|$1|; s|\${VERSION}|$number|; s|\${ROOT}|$root|; s|\${GLIBC}|$least|" \
    -e "s|\${MTIME}|$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)|" scripts/packaging/nfpm.yaml >"$stage/nfpm-$1.yaml"
  GOCACHE=$tools "$GO" run "$nfpm" package --config "$stage/nfpm-$1.yaml" --packager deb --target "$out/monotron_${number}_linux_$1.deb" >/dev/null
}

archive() { # platform, binary
  local name=monotron_${number}_${1%/*}_${1#*/} unit=no
  [ "${1%/*}" != linux ] || unit=yes
  PREFIX=/ DESTDIR=$stage/$name MONOTRON=$host UNIT=$unit sh scripts/install.sh "$2"
  [ "$unit" = no ] || sed -i 's|//bin/monotron|/usr/local/bin/monotron|' "$stage/$name/lib/systemd/system/monotron-serve.service"
  install -m 644 LICENSE README.md CHANGELOG.md "$stage/THIRD_PARTY_NOTICES" "$stage/$name/"
  pack "$name"
}

sources() { # the tracked files and the modules, to be built without a network
  local name=monotron_${number}_source
  mkdir "$stage/$name"
  git ls-files -z | tar --null -T - -cf - | tar -C "$stage/$name" -xf -
  echo "$number" >"$stage/$name/VERSION"
  "$GO" mod vendor -o "$stage/$name/vendor"
  chmod -R u+rwX,go+rX,go-w "$stage/$name"
  pack "$name"
}

echo "monotron $version, SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH"
host=$stage/monotron-host # of this machine: writes manual pages and completions
compile "linux/$("$GO" env GOHOSTARCH)" "$host"
sh scripts/notices.sh >"$stage/THIRD_PARTY_NOTICES"
for platform in $platforms; do
  binary=$stage/monotron-${platform%/*}-${platform#*/}
  compile "$platform" "$binary"
  archive "$platform" "$binary"
  [ "${platform%/*}" != linux ] || debian "${platform#*/}" "$binary"
done
sources
cp "$stage/THIRD_PARTY_NOTICES" "$out/"
# Its serial number, its time and the version that it makes up for the main module differ
# between two runs or two clones.
GOCACHE=$tools "$GO" run "$cyclonedx" app -json -licenses -noserial -output "$stage/sbom.json" . >"$stage/sbom.log" 2>&1 || { cat "$stage/sbom.log"; exit 1; }
python3 scripts/sbom.py "$stage/sbom.json" "$version" "$SOURCE_DATE_EPOCH" >"$out/monotron_${number}_sbom.cdx.json"
(cd "$out" && sha256sum -- * >SHA256SUMS.tmp && mv SHA256SUMS.tmp SHA256SUMS)
chmod 644 "$out"/*
(cd "$out" && wc -c -- * | sed '$d')
