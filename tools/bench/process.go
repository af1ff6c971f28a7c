package bench

import (
	"os"
	"strconv"
	"strings"
	"time"

	"monotron/internal/system"
)

// processorTime is what all threads of this process have used.
func processorTime() time.Duration {
	used, _ := system.Usage()
	return used
}

// forgetPeakMemory sets the kernel's mark of the most resident memory to what is
// resident now; where the kernel refuses, the mark stays, which is on the safe side.
func forgetPeakMemory() {
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

// peakMemory is the most memory this process had resident, in bytes; 0 where the
// system does not say.
func peakMemory() int64 {
	kib, _, _ := strings.Cut(strings.TrimSpace(system.Field("/proc/self/status", "VmHWM")), " ")
	n, err := strconv.ParseInt(kib, 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// firstLine of a file of the kernel's.
func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
