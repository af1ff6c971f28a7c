// Package preference has the losses of preference tuning in one table: each is a function of the
// log-probabilities that policy and reference give to the answers of a row, with its slopes.
//
// Names, formulas and signs are TRL 1.16's; docs/finetuning.md explains the methods.
package preference

import (
	"math"
	"slices"
)

// Options are the numbers in the formulas.
type Options struct {
	Beta           float64 // β
	LabelSmoothing float64 // ε: share of the pairs whose order is wrong
	Gamma          float64 // γ: margin of SimPO
	Good, Bad      float64 // weights of KTO's good and bad answers
}

// Answer is what is known of an answer. Log-probabilities are sums over its tokens that are
// predicted.
type Answer struct {
	Policy, Reference float64
	Predicted         float64 // tokens in the sums
	Tokens            float64 // of the answer: one more than Predicted where the answer begins the sequence
}

// ratio is the log of the policy's probability over the reference's.
func (a *Answer) ratio() float64 { return a.Policy - a.Reference }

// mean is the log-probability of a token.
func (a *Answer) mean() float64 { return a.Policy / math.Max(1, a.Predicted) }

// Loss is a row of the table. Slopes are by Answer.Policy.
type Loss struct {
	Name      string
	Methods   []string // values of --tuning that have it
	own       bool     // it is the first method's own
	Reference bool     // compares with a reference
	Average   bool     // reads means over tokens: rewards are β times these
	Smoothing bool     // reads Options.LabelSmoothing

	mismatched bool // Mismatched, of a sum

	pair   func(o *Options, chosen, rejected Answer) (loss, byChosen, byRejected float64)
	single func(o *Options, a Answer, good bool, kl float64) (loss, slope float64)
}

// Paired reports whether a row has two answers.
func (l *Loss) Paired() bool { return l.pair != nil }

// Mismatched reports whether the loss asks for the log-probabilities of mismatched answers.
func (l *Loss) Mismatched() bool { return l.mismatched || l.Name == KTO }

// Pair is the loss of a pair of answers, and its slopes.
func (l *Loss) Pair(o *Options, chosen, rejected Answer) (loss, byChosen, byRejected float64) {
	return l.pair(o, chosen, rejected)
}

// Single is the loss of an answer with a label, and its slope. kl is the mean log ratio of
// mismatched answers, at least 0, a constant in the slope.
func (l *Loss) Single(o *Options, a Answer, good bool, kl float64) (loss, slope float64) {
	return l.single(o, a, good, kl)
}

// Reward is β times the log ratio, or the mean log-probability, of an answer.
func (l *Loss) Reward(o *Options, a Answer) float64 {
	if l.Reference {
		return o.Beta * a.ratio()
	}
	return o.Beta * l.LogP(a)
}

// LogP is an answer's log-probability as the loss reads it.
func (l *Loss) LogP(a Answer) float64 {
	if l.Average {
		return a.mean()
	}
	return a.Policy
}

// Of is the loss of a method (--tuning) by name, "": the method's own. nil: there is none, as of
// supervised tuning.
func Of(method, name string) *Loss {
	for i, l := range table {
		if name == "" && l.own && l.Methods[0] == method || name == l.Name && slices.Contains(l.Methods, method) {
			return &table[i]
		}
	}
	return nil
}

// Names are the losses of a method, its own first.
func Names(method string) (names []string) {
	for _, l := range table {
		if slices.Contains(l.Methods, method) {
			names = append(names, l.Name)
		}
	}
	return names
}
