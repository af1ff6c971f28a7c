package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/mpu/bootstrap/launchenv"
)

// staleLimit is how long ranks that a dead launcher has left may take to end.
const staleLimit = 30 * time.Second

// procText is the most that is read of a file of /proc: an environment may be long.
const procText = 8 << 20

// endStale ends what an earlier launcher of the same command, in the same folder, has left when it
// was killed. The kernel ends such ranks with their launcher, but for one that it cannot yet, as
// where a driver holds it: that keeps its GPU's memory, ports and locks from the new ranks.
func (o *options) endStale(notes io.Writer) error {
	noted := false
	for end := time.Now().Add(staleLimit); ; time.Sleep(100 * time.Millisecond) {
		left := o.stale("/proc")
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return exitcode.Errorf(exitcode.IO, "processes %v from an earlier start of this command do not end, possibly because they are waiting for a driver or a disk; restart this host", left)
		}
		if !noted {
			fmt.Fprintf(notes, "launch: ending processes %v, which an earlier start of this command left\n", left)
			noted = true
		}
		for _, pid := range left {
			_ = system.SignalGroup(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
	}
}

// stale are the ranks of this command whose launcher is gone; root is /proc.
func (o *options) stale(root string) (pids []int) {
	here, err := os.Getwd()
	files, _ := filepath.Glob(filepath.Join(root, "[0-9]*"))
	if err != nil || len(o.words) == 0 {
		return nil
	}
	for _, file := range files {
		environment, err := exitcode.ReadFile(filepath.Join(file, "environ"), procText)
		if err != nil {
			continue // another user's, or it has ended
		}
		launcher := 0
		for entry := range strings.SplitSeq(string(environment), "\x00") {
			if text, is := strings.CutPrefix(entry, launchenv.Launcher+"="); is {
				launcher, _ = strconv.Atoi(text) // 0: it is not ours
			}
		}
		folder, err := os.Readlink(filepath.Join(file, "cwd"))
		if err != nil || launcher == 0 || folder != here || lives(root, launcher) || !o.isOurs(file) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(file)); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isOurs reports whether a process runs this launcher's command, whatever a restart has added to it.
func (o *options) isOurs(process string) bool {
	line, err := exitcode.ReadFile(filepath.Join(process, "cmdline"), procText)
	if err != nil || len(line) == 0 || bytes.Contains(zombie(process), []byte(") Z ")) {
		return false
	}
	words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	at := slices.Index(words, o.words[0])
	return at >= 0 && len(words)-at >= len(o.words) && slices.Equal(words[at:at+len(o.words)], o.words)
}

// zombie is what /proc says of a process's state.
func zombie(process string) []byte {
	text, _ := exitcode.ReadFile(filepath.Join(process, "stat"), procText) // none: it has ended
	return text
}

// lives reports whether a process runs.
func lives(root string, pid int) bool {
	process := filepath.Join(root, strconv.Itoa(pid))
	text := zombie(process)
	return len(text) > 0 && !bytes.Contains(text, []byte(") Z "))
}
