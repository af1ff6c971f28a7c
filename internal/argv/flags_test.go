package argv

import (
	"reflect"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

var set = Set{"num-layers": One, "data-path": Many, "fp16": Switch, "profile": Any, "seed": One}

// Claim: flags with several values end at the next flag; a dash is not a flag; one
// spelling with dashes and underscores; --name=value.
func TestSplit(t *testing.T) {
	given, rest, err := Split(set, strings.Fields("--num_layers 4 --data-path 0.3 a 0.7 b --fp16 --profile --seed=-1 stray - --profile out.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Given{
		{"num-layers", []string{"4"}, 0}, {"data-path", []string{"0.3", "a", "0.7", "b"}, 2}, {"fp16", nil, 7},
		{"profile", nil, 8}, {"seed", []string{"-1"}, 9}, {"profile", []string{"out.json"}, 12},
	}
	if !reflect.DeepEqual(given, want) || !reflect.DeepEqual(rest, []string{"stray", "-"}) {
		t.Errorf("%v, rest %v", given, rest)
	}
	cli := strings.Join(ForCLI(given), " ")
	if cli != "--num-layers=4 --data-path=0.3 --data-path=a --data-path=0.7 --data-path=b --fp16 --profile --seed=-1 --profile=out.json" {
		t.Errorf("for the library: %s", cli)
	}
	if _, rest, _ := Split(set, []string{"--", "--fp16"}); len(rest) != 1 {
		t.Errorf("after a bare --: %v", rest)
	}
}

// Claim: short forms that people type work, where the command has the flag, or are named as
// unknown; in place of a value they are values.
func TestShortForms(t *testing.T) {
	set := Set{"output": One, "compare": Many, "port": One, "format": One}
	for line, want := range map[string]string{
		"-o FILE run":             "--output=FILE | run",
		"run -o FILE":             "--output=FILE | run",
		"--compare a b -o FILE":   "--compare=a --compare=b --output=FILE | ",
		"--output -o":             "--output=-o | ",
		"--compare -1 -2":         "--compare=-1 --compare=-2 | ",
		"run -o":                  "--output needs a value",
		"run -v":                  "unknown flag -v; --help-all lists all flags",
		"-p 80":                   "unknown flag -p; did you mean --port?",
		"--compare a -f markdown": "unknown flag -f; did you mean --format?",
		"-- -o":                   " | -o",
	} {
		given, rest, err := Split(set, strings.Fields(line))
		got := strings.Join(ForCLI(given), " ") + " | " + strings.Join(rest, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if _, _, err := Split(Set{}, []string{"-o", "x"}); err == nil || err.Error() != "unknown flag -o; --help-all lists all flags" {
		t.Errorf("-o of a command without --output: %v", err)
	}
}

// Claim: all problems come together and exit 2.
func TestSplitProblems(t *testing.T) {
	_, _, err := Split(set, strings.Fields("--num-layer 4 --fp16=yes --data-path --nothing-like-it"))
	if exitcode.CodeOf(err) != exitcode.Usage {
		t.Fatalf("code %d", exitcode.CodeOf(err))
	}
	for _, want := range []string{"did you mean --num-layers?", "is a switch", "--data-path needs a value", "--nothing-like-it; --help"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// Claim: the first words of a flag find it.
func TestNearestContinues(t *testing.T) {
	if near := Nearest(Set{"micro-batch-size": One, "micro": One}, "micro-batch"); !reflect.DeepEqual(near, []string{"micro-batch-size"}) {
		t.Errorf("%v", near)
	}
}

func TestNearestOfALongName(t *testing.T) {
	if near := Nearest(set, strings.Repeat("seed", 1<<20)); near != nil {
		t.Errorf("%v", near)
	}
}

// Claim (docs/tutorials.md): the command that another starts begins at the first word that is neither a flag nor a value.
func TestDashed(t *testing.T) {
	for line, want := range map[string]string{
		"--seed 1 train --num-layers 2": "--seed 1 -- train --num-layers 2",
		"--seed=1 --fp16 train x":       "--seed=1 --fp16 -- train x",
		"train":                         "-- train",
		"--seed 1 -- train":             "--seed 1 -- train",
		"--bogus 1 train --x":           "--bogus 1 -- train --x",
		"--bogus 1 other --x":           "--bogus 1 other --x",
		"--bogus 1 -- x train":          "--bogus 1 -- x train",
		"--fp16":                        "--fp16",
		"--seed":                        "--seed",
		"":                              "",
	} {
		if got := strings.Join(Dashed(set, strings.Fields(line), []string{"train"}), " "); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}
