package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// knownLibraries lists LD_LIBRARY_PATH's files, then the linker's cache: the
// order in which a library is searched.
func knownLibraries() []string {
	var paths []string
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		found, _ := filepath.Glob(filepath.Join(dir, "*.so*")) // the pattern is well formed
		paths = append(paths, found...)
	}
	for _, ldconfig := range []string{"ldconfig", "/sbin/ldconfig"} {
		if out, err := exec.Command(ldconfig, "-p").Output(); err == nil {
			return append(paths, cached(string(out))...)
		}
	}
	return paths
}

// cached takes the paths out of `ldconfig -p`: `	libc.so.6 (libc6,x86-64) => /lib/libc.so.6`.
func cached(listing string) []string {
	var paths []string
	for line := range strings.Lines(listing) {
		if _, path, ok := strings.Cut(line, "=> "); ok {
			paths = append(paths, strings.TrimSpace(path))
		}
	}
	return paths
}

// library is the first known path of one of the names, "" where there is none.
func (h host) library(names ...string) string {
	for _, name := range names {
		for _, path := range h.libraries {
			if filepath.Base(path) == name {
				return path
			}
		}
	}
	return ""
}

// oneDNNCost was measured; docs/devices.md says where and how.
const oneDNNCost = "about a tenth of the speed of f32 matrix products; products in bf16 lose nothing with AMX"

func (h host) oneDNN() Finding {
	path := h.library("libdnnl.so.3", "libdnnl.so.2")
	switch {
	case !builtWithC:
		return Finding{Name: "oneDNN", State: Note, Found: "not used: this program was built without cgo"}
	case os.Getenv("MONOTRON_ONEDNN") == "off":
		return Finding{Name: "oneDNN", State: Note, Found: "switched off by MONOTRON_ONEDNN=off", Works: "everything, with monotron's C kernels", Costs: oneDNNCost}
	case path == "":
		return Finding{Name: "oneDNN", State: Missing, Found: "the dynamic linker finds neither libdnnl.so.3 nor libdnnl.so.2",
			Works: "everything, with monotron's C kernels", Costs: oneDNNCost, Fix: "sudo apt-get install -y libdnnl2"}
	}
	found := path
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		found += " -> " + filepath.Base(real)
	}
	return Finding{Name: "oneDNN", State: OK, Found: found}
}
