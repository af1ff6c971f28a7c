package pretrain

import (
	"encoding/json"
	"strings"
	"testing"
)

// Claim: with --log-format json every line on standard error is an object with a level
// and a component, of the same notes as in text, also where the command line is refused;
// --log-level leaves out what is below it.
func TestNotesForMachines(t *testing.T) {
	dir := t.TempDir()
	text := must(t, dir, tiny+someData+"--save DIR/a --save-interval 3").notes
	objects := must(t, dir, tiny+someData+"--save DIR/a --save-interval 3 --log-format json").notes
	var messages strings.Builder
	saved := false
	for _, line := range strings.Split(strings.TrimSuffix(objects, "\n"), "\n") {
		var note struct {
			Level, Message, Component string
			Rank, Step                *int
		}
		if err := json.Unmarshal([]byte(line), &note); err != nil || note.Level == "" || note.Component == "" {
			t.Fatalf("%s: %v", line, err)
		}
		messages.WriteString(note.Message + "\n")
		if strings.HasPrefix(note.Message, "saved iteration 3") {
			saved = *note.Rank == 0 && *note.Step == 3
		}
	}
	if messages.String() == "" || !saved {
		t.Errorf("no note of the save with its rank and step:\n%s", objects)
	}
	if said := strings.ReplaceAll(messages.String(), "has checkpoints up to", ""); strings.Count(said, "\n") < strings.Count(text, "\n") {
		t.Errorf("fewer notes for machines:\n%s\nthan for people:\n%s", said, text)
	}
	if quiet := must(t, dir, tiny+someData+"--log-level error").notes; quiet != "" {
		t.Errorf("--log-level error prints %q", quiet)
	}
	if r := call(t, dir, tiny+someData+"--log-format xml"); r.err == nil || !strings.Contains(r.err.Error(), "--log-format") {
		t.Errorf("--log-format xml: %v", r.err)
	}
}

// Claim: a run that is given training data alone says that nothing is evaluated, unless nothing is to be.
func TestNoValidationDataIsSaid(t *testing.T) {
	dir := t.TempDir()
	corpus(t, dir, "good", 300, 200)
	line := tiny + "--tokenizer-type NullTokenizer --vocab-size 50 --train-data-path DIR/good --train-iters 1 "
	for flags, want := range map[string]bool{"": true, "--eval-iters 0": false, "--valid-data-path DIR/good": false} {
		if notes := must(t, dir, line+flags).notes; strings.Contains(notes, "there is no validation data, so evaluations are not possible") != want {
			t.Errorf("%q: %s", flags, notes)
		}
	}
}
