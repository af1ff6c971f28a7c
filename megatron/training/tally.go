package training

import (
	"math"

	"monotron/megatron/preference"
	"monotron/megatron/telemetry"
)

// tally is sums over rows of preference data.
type tally struct {
	answers, rewards, logps [2]float64 // of better answers, of worse ones
	ranked                  float64    // pairs whose better answer has the higher reward
	nll, tokens             float64    // negative log-likelihoods that the loss learns, and of how many tokens
	odds                    float64    // log odds of the better answers over the worse ones
}

// numbers are the sums, to be added up over ranks.
func (t *tally) numbers() []*float64 {
	return []*float64{&t.answers[0], &t.answers[1], &t.rewards[0], &t.rewards[1], &t.logps[0], &t.logps[1], &t.ranked, &t.nll, &t.tokens, &t.odds}
}

// Which answer of a pair.
const (
	better = iota
	worse
)

// answer adds an answer and gives its reward.
func (t *tally) answer(l *preference.Loss, o *preference.Options, a *seenAnswer, which int) (reward float64) {
	reward = l.Reward(o, a.Answer)
	t.answers[which]++
	t.rewards[which] += reward
	t.logps[which] += l.LogP(a.Answer)
	return reward
}

// pair adds a pair of answers.
func (t *tally) pair(l *preference.Loss, o *preference.Options, chosen, rejected *seenAnswer) {
	if t.answer(l, o, chosen, better) > t.answer(l, o, rejected, worse) {
		t.ranked++
	}
	t.nll += chosen.nll
	t.tokens += chosen.learned
	if l.Name == preference.ORPO {
		t.odds += preference.LogOdds(chosen.Answer, rejected.Answer)
	}
}

// values are the means, under TRL's names. Those without rows are left out.
func (t *tally) values(p *preferring) (list []telemetry.Value) {
	add := func(name string, sum, of float64) {
		if of > 0 {
			list = append(list, telemetry.Value{Name: name, Value: sum / of})
		}
	}
	add("rewards_chosen", t.rewards[better], t.answers[better])
	add("rewards_rejected", t.rewards[worse], t.answers[worse])
	if t.answers[better] > 0 && t.answers[worse] > 0 {
		add("rewards_margins", t.rewards[better]/t.answers[better]-t.rewards[worse]/t.answers[worse], 1)
	}
	if p.loss.Paired() {
		add("rewards_accuracies", t.ranked, t.answers[better])
	}
	add("logps_chosen", t.logps[better], t.answers[better])
	add("logps_rejected", t.logps[worse], t.answers[worse])
	if p.loss.Mismatched() {
		add("kl", p.kl, 1)
	}
	if p.settings.SFTWeight > 0 {
		add("nll_loss", t.nll, math.Max(1, t.tokens))
	}
	if p.loss.Name == preference.ORPO {
		add("log_odds_chosen", t.odds, t.answers[better])
	}
	return list
}
