#!/bin/sh
# Called by make dist and the proofs of packaging: what compiles the program with cgo for macOS on arm64, in
# .tools/macos, and prints the compiler's path. It is clang of the Python package ziglang. That has macOS's C library,
# but neither its frameworks nor mach_vm.h: stubs for the linker hold the names that Go's own packages import.
set -eu
cd "$(dirname "$0")/.."
zig=0.17.1
tools=$PWD/.tools/macos
cc=$tools/cc-$zig
[ ! -x "$cc" ] || { echo "$cc"; exit 0; }
if ! python3 -m pip install -q --root-user-action=ignore --upgrade --target "$tools/python" "ziglang==$zig" >&2; then
  echo "macos: ziglang $zig could not be fetched (no network, or no pip for python3)" >&2
  exit 1
fi

# stub LIBRARY FILE: the names that packages of Go import from it
stub() {
  names=$(grep -rh "^//go:cgo_import_dynamic .*\"$1\"" "$(${GO:-go} env GOROOT)/src" | awk '{print "_" $3}' | sort -u | paste -sd,)
  [ -n "$names" ] || { echo "macos: Go imports nothing from $1" >&2; exit 1; }
  mkdir -p "$(dirname "$2")"
  cat >"$2" <<END
--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '$1'
exports:
  - targets: [ arm64-macos ]
    symbols: [ $names ]
...
END
}
stub /usr/lib/libresolv.9.dylib "$tools/lib/libresolv.tbd"
for framework in CoreFoundation Security; do
  stub "/System/Library/Frameworks/$framework.framework/Versions/A/$framework" "$tools/frameworks/$framework.framework/$framework.tbd"
done

mkdir -p "$tools/include/mach"
cat >"$tools/include/mach/mach_vm.h" <<'END'
/* The one function of this header that a module (prometheus/client_golang) calls. */
#pragma once
#include <mach/mach_types.h>
kern_return_t mach_vm_region(vm_map_read_t, mach_vm_address_t *, mach_vm_size_t *, vm_region_flavor_t, vm_region_info_t, mach_msg_type_number_t *, mach_port_t *);
END
cat >"$cc.part" <<END
#!/bin/sh
PYTHONPATH='$tools/python' exec python3 -m ziglang cc -target aarch64-macos.12.0 -isystem '$tools/include' -F'$tools/frameworks' -L'$tools/lib' "\$@"
END
chmod +x "$cc.part"
mv "$cc.part" "$cc"
echo "$cc"
