package preference

import "math"

// Methods of preference tuning: values of --tuning.
const (
	DPO   = "dpo"
	IPO   = "ipo"
	ORPO  = "orpo"
	SimPO = "simpo"
	KTO   = "kto"
)

// table has the losses; of those of a method the first is its own. σ is the logistic function; s and
// t are the log ratios of the chosen and the rejected answer, d = s − t; a and b their mean
// log-probabilities.
var table = []Loss{
	// −(1−ε) log σ(βd) − ε log σ(−βd): Rafailov et al., arXiv 2305.18290; with ε conservative DPO
	{Name: "sigmoid", Methods: []string{DPO}, own: true, Reference: true, Smoothing: true, pair: ofMargin(conservative)},
	// (−(1−ε) log σ(βd) + ε log σ(−βd)) / (1−2ε): Chowdhury et al., arXiv 2403.00409
	{Name: "robust", Methods: []string{DPO}, Reference: true, Smoothing: true, pair: ofMargin(robust)},
	// max(0, 1 − βd): Zhao et al., arXiv 2305.10425
	{Name: "hinge", Methods: []string{DPO}, Reference: true, pair: ofMargin(hinge)},
	// (s/n − t/m − 1/(2β))², n and m tokens: Azar et al., arXiv 2310.12036
	{Name: "ipo", Methods: []string{IPO, DPO}, own: true, Reference: true, pair: ipo},
	// −log σ(β(s/n − t/m))
	{Name: "sigmoid_norm", Methods: []string{DPO}, Reference: true, pair: sigmoidNorm},
	// KL of (σ(βd), σ(−βd)) from (1−ε, ε): Ji et al., arXiv 2402.00856
	{Name: "exo_pair", Methods: []string{DPO}, Reference: true, Smoothing: true, pair: ofMargin(exo)},
	// −log σ(βs) − ½ log σ(−βs) − ½ log σ(−βt): Chen et al., arXiv 2402.05369
	{Name: "nca_pair", Methods: []string{DPO}, Reference: true, pair: ofRewards(nca)},
	// −log σ(βs) − log σ(−βt): Jung et al., arXiv 2404.04656
	{Name: "bco_pair", Methods: []string{DPO}, Reference: true, pair: ofRewards(bco)},
	// (s − 1/(2β))² + (t + 1/(2β))²: Wu et al., arXiv 2405.00675
	{Name: "sppo_hard", Methods: []string{DPO}, Reference: true, pair: sppo},
	// 1 − σ(βs) + σ(βt): D'Oosterlinck et al., arXiv 2408.06266
	{Name: "apo_zero", Methods: []string{DPO}, Reference: true, pair: ofRewards(apoZero)},
	// σ(βs) + 1 − σ(βd): the same
	{Name: "apo_down", Methods: []string{DPO}, Reference: true, pair: ofRewards(apoDown)},
	// −β log σ(log odds of chosen − log odds of rejected), odds of e^a and e^b: Hong et al., arXiv 2403.07691
	{Name: "orpo", Methods: []string{ORPO}, own: true, Average: true, pair: orpo},
	// −(1−ε) log σ(β(a − b) − γ) − ε log σ(γ − β(a − b)): Meng et al., arXiv 2405.14734
	{Name: "simpo", Methods: []string{SimPO}, own: true, Average: true, Smoothing: true, pair: simpo},
	// good: w (1 − σ(β(s − kl))), bad: w (1 − σ(β(kl − s))): Ethayarajh et al., arXiv 2402.01306
	{Name: "kto", Methods: []string{KTO}, own: true, Reference: true, single: kto},
	// good: w (1 − σ(βs)), bad: w σ(βs): arXiv 2408.06266
	{Name: "apo_zero_unpaired", Methods: []string{KTO}, Reference: true, single: apoZeroUnpaired},
}

// sigma is the logistic function.
func sigma(x float64) float64 {
	if x < 0 {
		e := math.Exp(x)
		return e / (1 + e)
	}
	return 1 / (1 + math.Exp(-x))
}

// bend is the slope of sigma.
func bend(x float64) float64 { return sigma(x) * sigma(-x) }

// logSigma is log σ(x), of large |x| too.
func logSigma(x float64) float64 { return math.Min(x, 0) - math.Log1p(math.Exp(-math.Abs(x))) }

// ofMargin makes a loss of a function of x = βd that gives the value and the slope.
func ofMargin(f func(x, smoothing float64) (loss, slope float64)) func(*Options, Answer, Answer) (loss, byChosen, byRejected float64) {
	return func(o *Options, chosen, rejected Answer) (loss, byChosen, byRejected float64) {
		loss, slope := f(o.Beta*(chosen.ratio()-rejected.ratio()), o.LabelSmoothing)
		return loss, o.Beta * slope, -o.Beta * slope
	}
}

// ofRewards makes a loss of a function of x = βs and y = βt that gives the value and both slopes.
func ofRewards(f func(x, y float64) (loss, byX, byY float64)) func(*Options, Answer, Answer) (loss, byChosen, byRejected float64) {
	return func(o *Options, chosen, rejected Answer) (loss, byChosen, byRejected float64) {
		loss, byChosen, byRejected = f(o.Beta*chosen.ratio(), o.Beta*rejected.ratio())
		return loss, o.Beta * byChosen, o.Beta * byRejected
	}
}

func conservative(x, e float64) (loss, slope float64) {
	return -(1-e)*logSigma(x) - e*logSigma(-x), e*sigma(x) - (1-e)*sigma(-x)
}

func robust(x, e float64) (loss, slope float64) {
	return (e*logSigma(-x) - (1-e)*logSigma(x)) / (1 - 2*e), (-(1-e)*sigma(-x) - e*sigma(x)) / (1 - 2*e)
}

func hinge(x, _ float64) (loss, slope float64) {
	if x < 1 {
		return 1 - x, -1
	}
	return 0, 0
}

func exo(x, e float64) (loss, slope float64) {
	above, below := logSigma(x)-math.Log1p(-e), logSigma(-x)-math.Log(e)
	return sigma(x)*above + sigma(-x)*below, bend(x) * (above - below)
}

func ipo(o *Options, chosen, rejected Answer) (loss, byChosen, byRejected float64) {
	n, m := math.Max(1, chosen.Tokens), math.Max(1, rejected.Tokens)
	u := chosen.ratio()/n - rejected.ratio()/m - 1/(2*o.Beta)
	return u * u, 2 * u / n, -2 * u / m
}

func sigmoidNorm(o *Options, chosen, rejected Answer) (loss, byChosen, byRejected float64) {
	n, m := math.Max(1, chosen.Tokens), math.Max(1, rejected.Tokens)
	loss, slope := conservative(o.Beta*(chosen.ratio()/n-rejected.ratio()/m), 0)
	return loss, o.Beta * slope / n, -o.Beta * slope / m
}

func nca(x, y float64) (loss, byX, byY float64) {
	return -logSigma(x) - 0.5*logSigma(-x) - 0.5*logSigma(-y), 0.5*sigma(x) - sigma(-x), 0.5 * sigma(y)
}

func bco(x, y float64) (loss, byX, byY float64) {
	return -logSigma(x) - logSigma(-y), -sigma(-x), sigma(y)
}

func sppo(o *Options, chosen, rejected Answer) (loss, byChosen, byRejected float64) {
	u, v := chosen.ratio()-0.5/o.Beta, rejected.ratio()+0.5/o.Beta
	return u*u + v*v, 2 * u, 2 * v
}

func apoZero(x, y float64) (loss, byX, byY float64) {
	return sigma(-x) + sigma(y), -bend(x), bend(y)
}

func apoDown(x, y float64) (loss, byX, byY float64) {
	return sigma(x) + sigma(y-x), bend(x) - bend(x-y), bend(x - y)
}

// leastMean keeps odds finite where a model is certain of every token.
const leastMean = -1e-7

// LogOdds is the log of the chosen answer's odds over the rejected one's, as ORPO has them.
func LogOdds(chosen, rejected Answer) float64 {
	a, b := math.Min(chosen.mean(), leastMean), math.Min(rejected.mean(), leastMean)
	return a - b - math.Log(-math.Expm1(a)) + math.Log(-math.Expm1(b))
}

func orpo(o *Options, chosen, rejected Answer) (loss, byChosen, byRejected float64) {
	odds := LogOdds(chosen, rejected)
	slope := o.Beta * sigma(-odds)
	by := func(a Answer) float64 { // of the log odds, by the sum
		return -1 / math.Expm1(math.Min(a.mean(), leastMean)) / math.Max(1, a.Predicted)
	}
	return -o.Beta * logSigma(odds), -slope * by(chosen), slope * by(rejected)
}

func simpo(o *Options, chosen, rejected Answer) (loss, byChosen, byRejected float64) {
	loss, slope := conservative(o.Beta*(chosen.mean()-rejected.mean())-o.Gamma, o.LabelSmoothing)
	return loss, o.Beta * slope / math.Max(1, chosen.Predicted), -o.Beta * slope / math.Max(1, rejected.Predicted)
}

func kto(o *Options, a Answer, good bool, kl float64) (loss, slope float64) {
	x := o.Beta * (a.ratio() - kl)
	if good {
		return o.Good * sigma(-x), -o.Good * o.Beta * bend(x)
	}
	return o.Bad * sigma(x), o.Bad * o.Beta * bend(x)
}

func apoZeroUnpaired(o *Options, a Answer, good bool, _ float64) (loss, slope float64) {
	return kto(o, a, good, 0)
}
