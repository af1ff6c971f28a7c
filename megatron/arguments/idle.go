package arguments

import (
	"slices"
	"strings"
	"sync"

	"monotron/megatron/arguments/table"
	"monotron/megatron/spec"
)

// dependents are flags that do something only beside another one (any of
// beside). Megatron-LM is silent about them; a run that ignores what was asked of
// it is not what its user believes it to be.
var dependents = []struct {
	beside, flags []string
}{
	{[]string{"save"}, []string{"save-interval", "keep-last", "save-retain-interval", "async-save", "no-save-optim", "resume-from-save"}},
	{[]string{"load", "pretrained-checkpoint"}, []string{"finetune", "no-load-optim", "exit-on-missing-checkpoint", "override-opt-param-scheduler", "use-checkpoint-opt-param-scheduler"}},
	{[]string{"tensorboard-dir"}, []string{"tensorboard-log-interval", "tensorboard-queue-size", "log-timers-to-tensorboard", "log-memory-to-tensorboard",
		"log-validation-ppl-to-tensorboard", "log-world-size-to-tensorboard", "no-log-loss-scale-to-tensorboard"}},
	{[]string{"profile"}, []string{"profile-step-start", "profile-step-end"}},
	{[]string{"sample-prompt"}, []string{"sample-tokens"}},
	{[]string{"fp16"}, []string{"loss-scale", "initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"}},
	{[]string{"use-rope-scaling"}, []string{"rope-scaling-factor"}},
	{[]string{"moe-shared-expert-intermediate-size"}, []string{"moe-shared-expert-overlap"}},
	{[]string{"optimizer-cpu-offload"}, []string{"optimizer-offload-fraction"}},
	{[]string{"moe-use-upcycling"}, []string{"moe-upcycling-granularity"}},
}

// noteIdle names the flags given that have no effect because of another one that
// is not. Flags read from a checkpoint are not the user's.
func (p *parser) noteIdle() {
	if p.options.Partial {
		return
	}
	for _, d := range dependents {
		if !slices.ContainsFunc(d.beside, p.isOn) {
			p.idle(d.flags, "without --"+strings.Join(d.beside, " or --"))
		}
	}
	if !p.isOn("num-experts") {
		p.idle(mixtureFlags(), "without --num-experts")
	}
	if p.Model.Position != spec.PositionRope {
		p.idle([]string{"rotary-base", "rotary-percent", "rotary-interleaved", "rotary-seq-len-interpolation-factor", "use-rope-scaling", "no-rope-freq"},
			"without --position-embedding-type rope")
	}
}

// idle is one notice for those of the flags that were typed.
func (p *parser) idle(names []string, reason string) {
	var typed []string
	for _, name := range names {
		if v, ok := p.values[name]; ok && v.direct && p.isOn(name) {
			typed = append(typed, "--"+name)
		}
	}
	if len(typed) > 0 {
		p.notice("%s: no effect %s", strings.Join(typed, ", "), reason)
	}
}

// mixtureFlags are the names of all rows about experts that work, but the one
// that asks for them.
var mixtureFlags = sync.OnceValue(func() (names []string) {
	for _, f := range table.All() {
		if f.Owner == table.Experts && f.Class == table.Works && f.Name != "num-experts" {
			names = append(names, f.Name)
		}
	}
	return names
})
