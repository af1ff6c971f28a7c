package serving

import (
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"monotron/tools/internal/command"
)

// results are those of a server, a row for each rate; times in seconds.
type results struct {
	Server     string    `json:"server"`
	Model      string    `json:"model"`
	Seed       uint64    `json:"seed"`
	Words      int       `json:"prompt_words"`
	Shared     int       `json:"shared_words"`
	MostTokens int       `json:"max_tokens"`
	TTFTLimit  float64   `json:"ttft_limit_seconds"`
	TPOTLimit  float64   `json:"tpot_limit_seconds"`
	Rates      []*result `json:"rates"`
}

// result is what came of the requests of one rate.
type result struct {
	Rate     float64        `json:"request_rate"` // asked for
	Sent     float64        `json:"sent_rate"`    // as the arrivals were drawn
	Requests int            `json:"requests"`
	Answered int            `json:"answered"`
	Failed   map[string]int `json:"failed"`
	Seconds  float64        `json:"seconds"` // from the start to the last answer
	Tokens   int            `json:"generated_tokens"`
	Output   float64        `json:"generated_tokens_per_second"`
	First    times          `json:"time_to_first_token_seconds"`
	Between  times          `json:"time_between_tokens_seconds"`
	Complete times          `json:"whole_answer_seconds"`
	Good     int            `json:"good"`
	Goodput  float64        `json:"goodput_requests_per_second"`
}

// times are of many requests.
type times struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
}

// timesOf sorts list. A percentile is the smallest value that so many are not above.
func timesOf(list []time.Duration) (t times) {
	if len(list) == 0 {
		return t
	}
	slices.Sort(list)
	at := func(percent int) float64 { return list[(len(list)*percent+99)/100-1].Seconds() }
	sum := time.Duration(0)
	for _, x := range list {
		sum += x
	}
	return times{Mean: sum.Seconds() / float64(len(list)), P50: at(50), P95: at(95), P99: at(99)}
}

// summary counts what came back; sent is when the last request went out, took when the last
// answer had come.
func (k *client) summary(rate float64, answers []answer, sent, took time.Duration) *result {
	r := &result{Rate: rate, Sent: float64(len(answers)) / sent.Seconds(), Requests: len(answers), Failed: map[string]int{}, Seconds: took.Seconds()}
	var first, between, full []time.Duration
	for i := range answers {
		a := &answers[i]
		if a.failed != "" {
			r.Failed[a.failed]++
			continue
		}
		r.Answered++
		r.Tokens += a.tokens
		full, between = append(full, a.full), append(between, a.gaps...)
		if a.first > 0 { // an answer may be empty
			first = append(first, a.first)
		}
		if a.first <= k.ttft && a.perToken() <= k.tpot {
			r.Good++
		}
	}
	r.First, r.Between, r.Complete = timesOf(first), timesOf(between), timesOf(full)
	r.Output, r.Goodput = float64(r.Tokens)/took.Seconds(), float64(r.Good)/took.Seconds()
	return r
}

// print is the table for people, in milliseconds.
func (r *results) print(out *command.Printer) {
	out.Printf("%s, model %s: prompts of %d words, %d of them shared, answers of up to %d tokens, seed %d\n", r.Server, r.Model, r.Words, r.Shared, r.MostTokens, r.Seed)
	t := tabwriter.NewWriter(out.W, 0, 0, 2, ' ', tabwriter.AlignRight)
	to := &command.Printer{W: t}
	to.Printf("requests/s\tanswered\ttokens/s\tfirst token ms\tp95\tp99\tbetween tokens ms\tp95\tp99\ttotal s\tp99\tgoodput/s\tgood\t\n")
	for _, x := range r.Rates {
		to.Printf("%.2f\t%d of %d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t%.2f\t%.0f%%\t\n", x.Sent, x.Answered, x.Requests, x.Output,
			1e3*x.First.P50, 1e3*x.First.P95, 1e3*x.First.P99, 1e3*x.Between.P50, 1e3*x.Between.P95, 1e3*x.Between.P99, x.Complete.P50, x.Complete.P99,
			x.Goodput, 100*float64(x.Good)/float64(x.Requests))
	}
	if to.Err == nil {
		to.Err = t.Flush()
	}
	out.Err = to.Err
	for _, x := range r.Rates {
		for _, why := range slices.Sorted(maps.Keys(x.Failed)) {
			out.Printf("%.2f requests/s: %d not answered: %s\n", x.Sent, x.Failed[why], why)
		}
	}
	out.Printf("good: complete, the first token within %s, then a token every %s on average\n", seconds(r.TTFTLimit), seconds(r.TPOTLimit))
}

func seconds(s float64) string { return fmt.Sprint(time.Duration(s * float64(time.Second))) }
