#!/bin/sh
# Prints the licence texts of Go and of every module that is compiled into the program on
# linux, macOS or Windows. Exit 1 when a module has none.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
echo "monotron contains the following software, under these licences."
modules() {
  for platform in linux/amd64 linux/arm64 darwin/arm64 windows/amd64; do
    GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0 $go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' .
  done | LC_ALL=C sort -u
}
notice() { # name, version, folder
  found=
  for file in "$3"/LICEN[SC]E* "$3"/COPYING* "$3"/NOTICE* "$3"/PATENTS*; do
    [ -f "$file" ] || continue
    case $file in *.go) continue ;; */PATENTS*) ;; *) found=yes ;; esac
    printf '\n======== %s %s: %s\n\n' "$1" "$2" "${file##*/}"
    cat "$file"
  done
  [ -n "$found" ] || { echo "notices: $1 $2 has no licence file; look at $3" >&2; exit 1; }
}
notice "Go" "$($go env GOVERSION)" "$($go env GOROOT)"
modules >"${TMPDIR:-/tmp}/modules.$$"
trap 'rm -f "${TMPDIR:-/tmp}/modules.$$"' EXIT
while read -r path version folder; do notice "$path" "$version" "$folder"; done <"${TMPDIR:-/tmp}/modules.$$"
