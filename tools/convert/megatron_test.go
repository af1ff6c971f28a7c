package convert

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
)

// Claim: a flag of Megatron-LM's convert.py is an error that says what to use instead, and this command has that.
func TestFlagsOfMegatron(t *testing.T) {
	_, _, err := call("--model-type", "GPT", "--load-dir", "x", "--target-tensor-parallel-size", "2", "--no_checking", "--to", "hf")
	for _, says := range []string{"--model-type of Megatron: leave the flag out", "--load-dir of Megatron: use --input", "use --tensor-model-parallel-size with --to torch", "--no-checking of Megatron: "} {
		if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	has := func(name string) bool {
		return slices.ContainsFunc(allFlags(), func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	}
	for name, text := range instead {
		if has(name) {
			t.Errorf("--%s is a flag of this command", name)
		}
		for _, flag := range regexp.MustCompile(`--([a-z][a-z-]+)`).FindAllStringSubmatch(text, -1) {
			if !has(flag[1]) {
				t.Errorf("--%s: %s: this command has no --%s", name, text, flag[1])
			}
		}
	}
}
