package telemetry

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Alert is an event of a run that a person should check. It belongs to a step, and
// is reported once.
type Alert struct {
	Kind   string            `json:"kind"`
	Text   string            `json:"text"` // with the numbers, for people
	Values map[string]Number `json:"values,omitempty"`
}

// Kinds of alerts that Rules give; others may give more.
const (
	LossSpike      = "loss_spike"
	NothingLearned = "nothing_learned"
	GradientNorm   = "gradient_norm"
	DataWait       = "data_wait"
	SlowRank       = "slow_rank"
	FullDisk       = "full_disk"
	UnevenExpert   = "uneven_expert"
)

// When something is an alert.
const (
	recentSteps   = 64   // that a step is compared with
	fewestSteps   = 32   // of them, before anything is compared
	spikeSigmas   = 6.0  // standard deviations above the mean of the recent losses,
	spikeFactor   = 1.1  // and times that mean
	normFactor    = 10.0 // times the median of the recent gradient norms
	waitShare     = 0.2  // of the recent steps' time
	slowFactor    = 1.5  // times the median rank's own work,
	slowShare     = 0.05 // and that share of a step longer,
	slowLines     = 3    // at so many log lines in a row
	stretches     = 5    // without a lower mean loss than before
	shortestPlain = 50   // steps of a stretch
	fewestTokens  = 16   // an expert in the mean, from which on an uneven step is significant
	diskEvery     = 10 * time.Second
	diskSoon      = 6 * time.Hour
	diskWatched   = 5 * time.Minute // before a rate is believed
)

// Rules check each step for what a person should know of: a rule is a method that Check
// asks.
type Rules struct {
	Disks     []string                                   // folders that the run writes to
	Free      func(folder string) (bytes int64, ok bool) // on the disk of one of them
	Imbalance float64                                    // times an even part, from which on an expert has too many tokens; 0: never

	losses, norms, data, elapsed recent
	course                       course
	slow                         slowness
	disks                        map[string]*growth
	began                        time.Time // of the first step
	before                       int       // iteration before it
	quiet                        map[string]int
}

// Check are the alerts of a step.
func (r *Rules) Check(s *Step) (alerts []Alert) {
	if s.Split != "" {
		return nil
	}
	if r.began.IsZero() {
		r.began, r.before, r.quiet = s.Time.Add(-s.Elapsed), s.Iteration-1, map[string]int{}
	}
	for _, check := range []func(*Step) *Alert{r.spike, r.learned, r.norm, r.wait, r.rank, r.disk} {
		if a := check(s); a != nil {
			alerts = append(alerts, *a)
		}
	}
	return append(alerts, r.experts(s)...)
}

// fresh reports whether a condition at a step is new: it was not met for quiet steps before.
func (r *Rules) fresh(key string, iteration, quiet int) bool {
	last, ever := r.quiet[key]
	r.quiet[key] = iteration
	return !ever || iteration-last > quiet
}

func (r *Rules) spike(s *Step) *Alert {
	loss, ok := s.lmLoss()
	if !ok {
		return nil
	}
	defer r.losses.add(loss)
	mean, deviation := r.losses.mean(), r.losses.deviation()
	if !r.losses.enough() || loss <= mean+spikeSigmas*deviation || loss <= spikeFactor*mean || !r.fresh(LossSpike, s.Iteration, recentSteps) {
		return nil
	}
	return &Alert{LossSpike, fmt.Sprintf("loss spike: the loss is %.4f, but the mean of the %d steps before is %.4f (standard deviation %.4f)", loss, r.losses.n(), mean, deviation),
		map[string]Number{"loss": Number(loss), "mean": Number(mean), "deviation": Number(deviation)}}
}

func (r *Rules) norm(s *Step) *Alert {
	if s.GradNorm == nil || math.IsNaN(*s.GradNorm) {
		return nil
	}
	norm := *s.GradNorm
	defer r.norms.add(norm)
	median := r.norms.median()
	if !r.norms.enough() || norm <= normFactor*median || !r.fresh(GradientNorm, s.Iteration, recentSteps) {
		return nil
	}
	return &Alert{GradientNorm, fmt.Sprintf("the gradient norm is %.3f, which is %.0f times the median of the %d steps before (%.3f)", norm, norm/median, r.norms.n(), median),
		map[string]Number{"norm": Number(norm), "median": Number(median)}}
}

func (r *Rules) wait(s *Step) *Alert {
	r.data.add(s.Data.Seconds())
	r.elapsed.add(s.Elapsed.Seconds())
	data, step := r.data.mean(), r.elapsed.mean()
	if !r.data.enough() || data <= waitShare*step || !r.fresh(DataWait, s.Iteration, recentSteps) {
		return nil
	}
	return &Alert{DataWait, fmt.Sprintf("the run waits for data for %.0f%% of the last %d steps (%.1f of %.1f ms per step)", 100*data/step, r.data.n(), 1000*data, 1000*step),
		map[string]Number{"share": Number(data / step), "seconds": Number(data)}}
}

// course is whether the loss falls: means of stretches of steps.
type course struct {
	sum   float64
	count int
	best  float64 // lowest mean
	at    int     // iteration at the end of its stretch; 0: none yet
	since int     // stretches after it
}

// learned checks stretches of a fiftieth of the run.
func (r *Rules) learned(s *Step) *Alert {
	loss, ok := s.lmLoss()
	if !ok {
		return nil
	}
	c, length := &r.course, max(shortestPlain, s.TrainIters/50)
	c.sum, c.count = c.sum+loss, c.count+1
	if c.count < length {
		return nil
	}
	mean := c.sum / float64(c.count)
	c.sum, c.count = 0, 0
	if c.at == 0 || mean < c.best {
		c.best, c.at, c.since = mean, s.Iteration, 0
		return nil
	}
	if c.since++; c.since != stretches {
		return nil
	}
	return &Alert{NothingLearned, fmt.Sprintf("nothing was learned since step %d: none of the %d periods of %d steps after it has a mean loss below %.4f; the last one has %.4f",
		c.at, stretches, length, c.best, mean), map[string]Number{"since": Number(c.at), "best": Number(c.best), "loss": Number(mean)}}
}

// experts finds those without a token, or with too many; each is reported once.
func (r *Rules) experts(s *Step) (alerts []Alert) {
	for _, layer := range s.MoELayers {
		total := 0.0
		for _, n := range layer.Tokens {
			total += n
		}
		mean := total / float64(len(layer.Tokens))
		for i, n := range layer.Tokens {
			what := ""
			switch {
			case mean < fewestTokens:
			case n == 0:
				what = "got no tokens"
			case r.Imbalance > 0 && n > r.Imbalance*mean:
				what = fmt.Sprintf("got %.1f times an even share of the tokens, more than --moe-imbalance-limit %g", n/mean, r.Imbalance)
			}
			if what == "" || !r.fresh(fmt.Sprint(UnevenExpert, layer.Number, " ", i), s.Iteration, math.MaxInt) {
				continue
			}
			alerts = append(alerts, Alert{UnevenExpert, fmt.Sprintf("layer %d: expert %d %s (%.0f tokens, %.0f in an even step); this is reported only once", layer.Number, i, what, n, mean),
				map[string]Number{"layer": Number(layer.Number), "expert": Number(i), "tokens": Number(n), "even": Number(mean)}})
		}
	}
	return alerts
}

// slowness is which rank was slow at the last log lines.
type slowness struct{ rank, lines int }

func (r *Rules) rank(s *Step) *Alert {
	if s.Line == nil || len(s.Line.Work.Seconds) < 2 {
		return nil
	}
	work, slow := s.Line.Work.Ranks(), 0
	for i := range work {
		if work[i] > work[slow] {
			slow = i
		}
	}
	median := slices.Sorted(slices.Values(work))[(len(work)-1)/2]
	if work[slow] <= slowFactor*median || work[slow]-median <= slowShare*s.Elapsed.Seconds() {
		r.slow = slowness{}
		return nil
	}
	if r.slow.lines == 0 || r.slow.rank != slow {
		r.slow = slowness{rank: slow}
	}
	// Of ranks that are slow in turn only the first is reported.
	quiet := 10 * slowLines * s.Line.Iterations
	if r.slow.lines++; r.slow.lines < slowLines {
		if last, alerted := r.quiet[SlowRank]; alerted && s.Iteration-last <= quiet {
			r.quiet[SlowRank] = s.Iteration
		}
		return nil
	}
	if !r.fresh(SlowRank, s.Iteration, quiet) {
		return nil
	}
	phase, own, usual := s.Line.Work.behind(slow)
	return &Alert{SlowRank, fmt.Sprintf("rank %d is slow: its own work takes %.1f ms per step, which is %.1f times the %.1f ms of the median rank; most of that is in %s, %.1f ms (median %.1f)",
		slow, 1000*work[slow], work[slow]/median, 1000*median, phase, 1000*own, 1000*usual),
		map[string]Number{"rank": Number(slow), "seconds": Number(work[slow]), "median": Number(median)}}
}

// growth is how a disk fills: its free bytes at some times, thinned out as they grow many.
type growth struct {
	at   []time.Time
	free []int64
}

// mostSamples of a disk are kept.
const mostSamples = 512

func (g *growth) add(now time.Time, free int64) {
	if len(g.at) == mostSamples {
		for i := range mostSamples / 2 {
			g.at[i], g.free[i] = g.at[2*i], g.free[2*i]
		}
		g.at, g.free = g.at[:mostSamples/2], g.free[:mostSamples/2]
	}
	g.at, g.free = append(g.at, now), append(g.free, free)
}

// rate is bytes a second; 0 where it cannot be estimated: a single checkpoint that makes most of
// it says nothing of how often one is written.
func (g *growth) rate() float64 {
	n := len(g.at) - 1
	span, taken, most := g.at[n].Sub(g.at[0]), g.free[0]-g.free[n], int64(0)
	for i := range n {
		most = max(most, g.free[i]-g.free[i+1])
	}
	if span < diskWatched || taken <= 0 || 2*most > taken {
		return 0
	}
	return float64(taken) / span.Seconds()
}

// disk checks every diskEvery whether a disk will be full before the run ends, and soon.
func (r *Rules) disk(s *Step) *Alert {
	if r.disks == nil {
		r.disks = map[string]*growth{}
		for _, folder := range r.Disks {
			r.disks[folder] = &growth{}
		}
	}
	// Time left, at the pace of this process.
	left := time.Duration(float64(s.Time.Sub(r.began)) / float64(s.Iteration-r.before) * float64(s.TrainIters-s.Iteration))
	// Each folder's free bytes over time; bytes a second by which they fall.
	for _, folder := range r.Disks {
		g := r.disks[folder]
		if n := len(g.at); n > 0 && s.Time.Sub(g.at[n-1]) < diskEvery {
			continue
		}
		free, ok := r.Free(folder)
		if !ok {
			continue
		}
		g.add(s.Time, free)
		rate := g.rate()
		if rate == 0 {
			continue
		}
		// Only what fills before the run ends is worth an alert, and not at every check.
		until := time.Duration(min(float64(free)/rate, 1e9) * float64(time.Second))
		if until > diskSoon || until > left || !r.fresh(FullDisk+folder, s.Iteration, max(recentSteps, s.TrainIters/50)) {
			continue
		}
		return &Alert{FullDisk, fmt.Sprintf("the disk of %s will be full in about %s, before the run ends (about %s left): %.2f GB are free, and the use grows by %.2f GB per hour",
			folder, rounded(until), rounded(left), float64(free)/1e9, rate*3600/1e9),
			map[string]Number{"free_bytes": Number(free), "bytes_per_second": Number(rate), "seconds": Number(until.Seconds())}}
	}
	return nil
}

// rounded is a time as people say it.
func rounded(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	}
	return fmt.Sprintf("%.1f days", d.Hours()/24)
}

// rewarded reports whether the step's loss is made of advantages: it lies around 0, and may be negative.
func (s *Step) rewarded() bool {
	return slices.ContainsFunc(s.Preference, func(v Value) bool { return v.Name == "reward" })
}

// lmLoss is that of a step that was not skipped, where it is finite, and says how well the model learns.
func (s *Step) lmLoss() (float64, bool) {
	if s.rewarded() {
		return 0, false
	}
	for _, v := range s.Losses {
		if v.Name == "lm loss" {
			return v.Value, !s.Skipped && !math.IsNaN(v.Value) && !math.IsInf(v.Value, 0)
		}
	}
	return 0, false
}

// recent are a number's values of the last steps.
type recent struct {
	values []float64
	next   int
}

func (r *recent) add(v float64) {
	if len(r.values) < recentSteps {
		r.values = append(r.values, v)
		return
	}
	r.values[r.next] = v
	r.next = (r.next + 1) % recentSteps
}

func (r *recent) n() int { return len(r.values) }

// enough reports whether there is something to compare with.
func (r *recent) enough() bool { return r.n() >= fewestSteps }

func (r *recent) mean() float64 {
	sum := 0.0
	for _, v := range r.values {
		sum += v
	}
	return sum / float64(max(1, r.n()))
}

func (r *recent) deviation() float64 {
	mean, sum := r.mean(), 0.0
	for _, v := range r.values {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(max(1, r.n())))
}

func (r *recent) median() float64 {
	if r.n() == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(r.values))[r.n()/2]
}
