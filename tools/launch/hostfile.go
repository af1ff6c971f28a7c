package launch

import (
	"bufio"
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
)

// remoteHost is one line of a hostfile.
type remoteHost struct {
	name  string // as ssh takes it: host or user@host
	slots int    // ranks it may have; 0: not said
}

// hostNames are those that ssh cannot take for anything else.
var hostNames = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(@[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)

// maxHostfile bounds a list of hosts, in bytes.
const maxHostfile = 16 << 20

// readHostfile reads hosts as MPI's, DeepSpeed's and PBS's files name them: one a
// line, with `slots=8` or `:8` behind it, or a line for every slot; # begins a comment.
func readHostfile(path string) ([]remoteHost, error) {
	list, err := exitcode.ReadFile(path, maxHostfile)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.CodeOf(err), "--hostfile: %w", err)
	}
	var hosts []remoteHost
	lines := bufio.NewScanner(bytes.NewReader(list))
	for number := 1; lines.Scan(); number++ {
		// A line is a host, a comment or empty.
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		h, err := readHost(words)
		if err != nil {
			return nil, exitcode.Errorf(exitcode.Usage, "--hostfile %s, line %d: %w", path, number, err)
		}
		// A host that is listed again has one more slot per line (PBS), or the slots of both lines.
		if at := slices.IndexFunc(hosts, func(o remoteHost) bool { return o.name == h.name }); at >= 0 {
			hosts[at].slots = max(1, hosts[at].slots) + max(1, h.slots)
			continue
		}
		hosts = append(hosts, h)
	}
	if err := lines.Err(); err != nil {
		return nil, exitcode.Errorf(exitcode.Usage, "--hostfile %s: %w", path, err)
	}
	if len(hosts) == 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "--hostfile %s lists no host; write one HOST slots=RANKS per line", path)
	}
	return hosts, nil
}

// readHost reads the words of a line.
func readHost(words []string) (h remoteHost, err error) {
	h.name = words[0]
	slots := ""
	if name, n, found := strings.Cut(h.name, ":"); found {
		h.name, slots = name, n
	}
	for _, word := range words[1:] {
		value, is := strings.CutPrefix(word, "slots=")
		if !is {
			return h, exitcode.Errorf(exitcode.Usage, "unexpected %q; a line must be HOST, HOST:RANKS or HOST slots=RANKS", word)
		}
		slots = value
	}
	if slots != "" {
		if h.slots, err = strconv.Atoi(slots); err != nil || h.slots < 1 || h.slots > 4096 {
			return h, exitcode.Errorf(exitcode.Usage, "%q is not a number of ranks", slots)
		}
	}
	if !hostNames.MatchString(h.name) {
		return h, exitcode.Errorf(exitcode.Usage, "%q is not a valid host name", h.name)
	}
	return h, nil
}

// ranksOf is the number of ranks that every host gets: --nproc-per-node where it
// is given, else what the file says.
func ranksOf(hosts []remoteHost, given int) (int, error) {
	if given > 0 {
		return given, nil
	}
	for _, h := range hosts {
		if h.slots != hosts[0].slots {
			return 0, exitcode.Errorf(exitcode.Usage, "--hostfile gives %s %d ranks but %s %d ranks; all hosts must have the same number of ranks, which --nproc-per-node can set", hosts[0].name, max(1, hosts[0].slots), h.name, max(1, h.slots))
		}
	}
	return max(1, hosts[0].slots), nil
}
