package dashboard

import (
	"math"
	"slices"

	"monotron/megatron/telemetry"
)

// Field is a number of an entry, as the page and CSV have it; nan: not known.
type Field struct {
	Name string
	of   func(*telemetry.Entry) telemetry.Number
}

var unknown = telemetry.Number(math.NaN())

// trained is a field that evaluations do not have.
func trained(name string, of func(*telemetry.Trained) telemetry.Number) Field {
	return Field{name, func(e *telemetry.Entry) telemetry.Number {
		if e.Trained == nil {
			return unknown
		}
		return of(e.Trained)
	}}
}

// preferred is a field of preference tuning.
func preferred(name string, of func(*telemetry.Preferred) *telemetry.Number) Field {
	return Field{name, func(e *telemetry.Entry) telemetry.Number {
		if e.Preferred == nil {
			return unknown
		}
		return pointer(of(e.Preferred))
	}}
}

// rewarded is a field of tuning by rewards.
func rewarded(name string, of func(*telemetry.Rewarded) *telemetry.Number) Field {
	return Field{name, func(e *telemetry.Entry) telemetry.Number {
		if e.Rewarded == nil {
			return unknown
		}
		return pointer(of(e.Rewarded))
	}}
}

func known(n telemetry.Number) telemetry.Number {
	if n == 0 {
		return unknown
	}
	return n
}

func pointer(n *telemetry.Number) telemetry.Number {
	if n == nil {
		return unknown
	}
	return *n
}

// Fields are the columns, in their order.
var Fields = []Field{
	{"iteration", func(e *telemetry.Entry) telemetry.Number { return telemetry.Number(e.Iteration) }},
	{"time", func(e *telemetry.Entry) telemetry.Number { return telemetry.Number(float64(e.Time.UnixMilli()) / 1000) }},
	{"tokens", func(e *telemetry.Entry) telemetry.Number { return telemetry.Number(e.ConsumedTokens) }},
	{"loss", loss},
	trained("learning_rate", func(t *telemetry.Trained) telemetry.Number { return t.LearningRate }),
	trained("grad_norm", func(t *telemetry.Trained) telemetry.Number { return pointer(t.GradNorm) }),
	trained("tokens_per_second", func(t *telemetry.Trained) telemetry.Number { return t.TokensPerSecond }),
	trained("mfu", func(t *telemetry.Trained) telemetry.Number { return known(t.MFU) }),
	trained("memory_bytes", func(t *telemetry.Trained) telemetry.Number { return known(telemetry.Number(t.MemoryBytes)) }),
	trained("data_seconds", dataSeconds),
	trained("seconds", func(t *telemetry.Trained) telemetry.Number { return t.Seconds }),
	trained("loss_scale", func(t *telemetry.Trained) telemetry.Number { return t.LossScale }),
	trained("skipped", func(t *telemetry.Trained) telemetry.Number {
		if t.Skipped {
			return 1
		}
		return 0
	}),
	trained("planned_memory_bytes", func(t *telemetry.Trained) telemetry.Number { return known(telemetry.Number(t.PlannedMemoryBytes)) }),
	trained("slowest_rank_seconds", func(t *telemetry.Trained) telemetry.Number { return rankSeconds(t, len(t.RankSeconds)-1) }),
	trained("median_rank_seconds", func(t *telemetry.Trained) telemetry.Number { return rankSeconds(t, (len(t.RankSeconds)-1)/2) }),
	trained("straggler_score", func(t *telemetry.Trained) telemetry.Number { return least(t.StragglerScores) }),
	trained("straggler_own_score", func(t *telemetry.Trained) telemetry.Number { return least(t.StragglerOwnScores) }),
	preferred("rewards_margins", func(p *telemetry.Preferred) *telemetry.Number { return p.RewardsMargins }),
	preferred("rewards_accuracies", func(p *telemetry.Preferred) *telemetry.Number { return p.RewardsAccuracies }),
	{"bits_per_byte", func(e *telemetry.Entry) telemetry.Number { return pointer(e.BitsPerByte) }},
	rewarded("reward", func(p *telemetry.Rewarded) *telemetry.Number { return p.Reward }),
	rewarded("completion_length", func(p *telemetry.Rewarded) *telemetry.Number { return p.MeanLength }),
	trained("fullest_expert", func(t *telemetry.Trained) telemetry.Number {
		most := unknown
		for _, layer := range t.Experts {
			if !(most >= layer.Most) {
				most = layer.Most
			}
		}
		return most
	}),
}

// fieldAt is a field's index in Fields.
var fieldAt = func() map[string]int {
	at := map[string]int{}
	for i, f := range Fields {
		at[f.Name] = i
	}
	return at
}()

// rankSeconds is the seconds of the rank at an index in the order of their own work.
func rankSeconds(t *telemetry.Trained, rank int) telemetry.Number {
	if len(t.RankSeconds) == 0 {
		return unknown
	}
	return slices.Sorted(slices.Values(t.RankSeconds))[rank]
}

// least is the lowest of scores.
func least(scores []telemetry.Number) telemetry.Number {
	if len(scores) == 0 {
		return unknown
	}
	return slices.Min(scores)
}

func dataSeconds(t *telemetry.Trained) telemetry.Number {
	if n, ok := t.PhaseSeconds["data"]; ok {
		return n
	}
	return unknown
}

func loss(e *telemetry.Entry) telemetry.Number {
	if n, ok := e.Loss["lm loss"]; ok {
		return n
	}
	return unknown
}

// row is an entry by fields.
func row(e *telemetry.Entry) []telemetry.Number {
	list := make([]telemetry.Number, len(Fields))
	for i, f := range Fields {
		list[i] = f.of(e)
	}
	return list
}
