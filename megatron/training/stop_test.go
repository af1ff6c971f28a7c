package training

import (
	"strings"
	"testing"

	"monotron/megatron/config"
)

// Claim (docs/exit-codes.md): a run that was stopped names what continues it: the same command only where
// that loads what was saved.
func TestStoppedRunNamesWhatContinuesIt(t *testing.T) {
	for _, c := range []struct {
		config config.Checkpoint
		want   string
	}{
		{config.Checkpoint{}, "nothing is saved because --save is not given"},
		{config.Checkpoint{Save: "out"}, "run the same command with --load out to continue"},
		{config.Checkpoint{Save: "out", Load: "base"}, "run the same command with --load out to continue"},
		{config.Checkpoint{Save: "out", Load: "out/"}, "run the same command again to continue"},
		{config.Checkpoint{Save: "out", Resume: true}, "run the same command again to continue"},
		{config.Checkpoint{Save: "out", Load: "base", Finetune: true}, "with --load out and without --finetune to continue"},
		{config.Checkpoint{Save: "cache", Remote: "s3://b/out"}, "with --load s3://b/out to continue"},
	} {
		r := &Run{Job: &Job{Config: config.Run{Checkpoint: c.config}}}
		if got := r.kept(); !strings.HasSuffix(got, c.want) {
			t.Errorf("%+v: %s", c.config, got)
		}
	}
}
