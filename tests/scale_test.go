package tests

import "strings"

// Claim (docs/schedules.md): steps that are skipped although the loss scale is the least are reported
// once in a row, with the layer; training continues, as in Megatron.
func skippedAtTheLeastScale(l *launching) {
	for flags, where := range map[string]string{
		"--min-loss-scale 1099511627776 --initial-loss-scale 1099511627776":              "the forward pass is finite; the gradient is not, first in ",
		"--min-loss-scale 1 --initial-loss-scale 1099511627776 --loss-scale-window 1000": "",
	} {
		cmd, notes := l.command("pretrain_gpt --world-size 2 " + mixed + "--fp16 --hysteresis 1 --train-iters 3 " + flags)
		if err := cmd.Run(); err != nil {
			l.t.Fatalf("%s: %v: %s", flags, err, notes)
		}
		reported := strings.Count(notes.String(), "was skipped at the smallest loss scale, ")
		if want := min(len(where), 1); reported != want || !strings.Contains(notes.String(), where) {
			l.t.Errorf("%s: told %d times, want %d with %q: %s", flags, reported, want, where, notes)
		}
	}
}
