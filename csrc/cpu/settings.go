package cpu

import (
	"os"
	"slices"
	"strings"

	"monotron/internal/exitcode"
)

// settings are what the environment may say for comparing kernels, read by isa.c, amx.c and
// onednn.c.
var settings = []struct {
	name   string
	values []string
}{
	{"MONOTRON_ISA", []string{"avx2", "portable"}},
	{"MONOTRON_AMX", []string{"off"}},
	{"MONOTRON_ONEDNN", []string{"off", "all"}},
}

// checkSettings refuses a value that nothing would obey.
func checkSettings() error {
	for _, s := range settings {
		if value := os.Getenv(s.name); value != "" && !slices.Contains(s.values, value) {
			return exitcode.Errorf(exitcode.Usage, "%s=%s is not a valid setting; set the variable to %s, or unset it", s.name, value, strings.Join(s.values, " or "))
		}
	}
	return nil
}
