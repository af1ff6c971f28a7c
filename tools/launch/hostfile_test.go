package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Claim (docs/launch.md): hostfiles of MPI's, DeepSpeed's and PBS's kind are read;
// what cannot be meant is refused with its line.
func TestHostfiles(t *testing.T) {
	for text, want := range map[string]string{
		"node0 slots=8\nnode1 slots=8 # the second\n\n": "[{node0 8} {node1 8}]",
		"a:2\nuser@b.c:2":          "[{a 2} {user@b.c 2}]",
		"n1\nn1\nn2\nn2\n":         "[{n1 2} {n2 2}]",
		"solo":                     "[{solo 0}]",
		"-oProxyCommand=x slots=1": "line 1: \"-oProxyCommand=x\" is not a valid host name",
		"a;b":                      "is not a valid host name",
		"a\nb slots=x":             "line 2: \"x\" is not a number of ranks",
		"a gpus=3":                 "unexpected \"gpus=3\"",
		"# nobody":                 "lists no host",
	} {
		path := filepath.Join(t.TempDir(), "hosts")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		hosts, err := readHostfile(path)
		if got := fmt.Sprint(hosts, err); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if n, err := ranksOf([]remoteHost{{"a", 4}, {"b", 2}}, 0); err == nil {
		t.Errorf("unequal hosts get %d ranks each", n)
	}
}

// Claim (docs/launch.md): a path reaches the program through a shell as it is.
func TestQuoted(t *testing.T) {
	for _, word := range []string{"/a b/c", "/it's", "$(x)`y`\"z\"\\", "*"} {
		out, err := exec.Command("sh", "-c", "printf %s "+quoted(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q came as %q: %v", word, out, err)
		}
	}
}
