package system

import (
	"bufio"
	"os"
	"strings"
)

// Processor is the name of the machine's; "" where the system does not say.
func Processor() string { return Field("/proc/cpuinfo", "model name") }

// Field is what follows the first "name:" of a file below /proc, without the white space around it; "" where
// there is none.
func Field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
