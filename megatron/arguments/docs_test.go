package arguments

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/flags.md")

// Claim: docs/flags.md is the table.
func TestFlagsDocument(t *testing.T) {
	const file = "../../docs/flags.md"
	if *update {
		if err := os.WriteFile(file, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != Markdown() {
		t.Errorf("%s is not the table; run go test ./megatron/arguments -update", file)
	}
}
