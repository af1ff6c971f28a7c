package schedule

import (
	"fmt"
	"strings"

	"monotron/internal/exitcode"
)

// Names of the schedules.
const (
	OneFOneBName = "1f1b" // interleaved where a stage has several chunks
	GPipeName    = "gpipe"
)

// Config says which schedule a pipeline runs.
type Config struct {
	Name        string // "": OneFOneBName
	Stages      int
	Chunks      int // of a stage; 0: 1
	Micros      int // micro-batches of a step
	Group       int // micro-batches a chunk takes in a row; 0: Stages
	ForwardOnly bool
	NoOverlap   bool // of an interleaved schedule's exchanges with computation
}

// filled has the defaults in place.
func (c Config) filled() Config {
	if c.Name == "" {
		c.Name = OneFOneBName
	}
	if c.Chunks == 0 {
		c.Chunks = 1
	}
	if c.Group == 0 {
		c.Group = c.Stages
	}
	return c
}

// maxSlots bounds micro-batches times chunks times stages of a step, whose actions are
// lists in memory: 4 GB then.
const maxSlots = 1 << 23

// Check lists everything that keeps c from being run (exitcode.Usage), each with the
// nearest values that would do.
func (c Config) Check() error {
	c = c.filled()
	var problems []string
	problem := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	if c.Name != OneFOneBName && c.Name != GPipeName {
		problem("--pipeline-schedule must be %s or %s, not %q", OneFOneBName, GPipeName, c.Name)
	}
	if c.Stages < 1 || c.Chunks < 1 || c.Micros < 1 || c.Group < 1 {
		problem("stages (%d), chunks (%d), micro-batches (%d) and their group (%d) must be at least 1", c.Stages, c.Chunks, c.Micros, c.Group)
	} else if c.Micros > maxSlots/c.Chunks/c.Stages {
		problem("a step of %d micro-batches on %d stages of %d chunks needs more than %d actions: lower --global-batch-size or raise --micro-batch-size", c.Micros, c.Stages, c.Chunks, 2*maxSlots)
	} else if c.Chunks > 1 {
		c.checkInterleaved(problem)
	}
	if len(problems) == 0 {
		return nil
	}
	return exitcode.Errorf(exitcode.Usage, "%s", strings.Join(problems, "; "))
}

// checkInterleaved: a smaller last group would leave stages waiting for values
// that are still on their way around, and Megatron refuses it. An evaluation may wait.
func (c Config) checkInterleaved(problem func(string, ...any)) {
	if c.Stages < 2 {
		problem("an interleaved schedule needs --pipeline-model-parallel-size of at least 2")
		return
	}
	switch rest := c.Micros % c.Group; {
	case c.ForwardOnly:
	case c.Micros < c.Stages:
		problem("an interleaved schedule of %d stages needs at least %d micro-batches per step, not %d: raise --global-batch-size or lower --micro-batch-size",
			c.Stages, c.Stages, c.Micros)
	case c.Group < c.Stages || c.Group > c.Micros:
		problem("--microbatch-group-size-per-virtual-pipeline-stage must be from %d (stages) to %d (micro-batches), not %d", c.Stages, c.Micros, c.Group)
	case rest > 0 && rest < c.Stages:
		lower, upper := c.Micros-rest, c.Micros-rest+c.Stages
		problem("%d micro-batches in groups of %d leave %d in the last group, which must have 0 or at least %d (the number of stages): use %d or %d micro-batches, or --microbatch-group-size-per-virtual-pipeline-stage %d",
			c.Micros, c.Group, rest, c.Stages, lower, upper, c.nearestGroup())
	}
}

// nearestGroup is the legal group size nearest to the one asked for. The number
// of micro-batches itself always is one.
func (c Config) nearestGroup() int {
	best := c.Micros
	for g := c.Stages; g <= c.Micros; g++ {
		if rest := c.Micros % g; (rest == 0 || rest >= c.Stages) && distance(g, c.Group) < distance(best, c.Group) {
			best = g
		}
	}
	return best
}

func distance(a, b int) int { return max(a-b, b-a) }

// Actions is the list of one stage. c has passed Check.
func (c Config) Actions(stage int) []Action {
	c = c.filled()
	switch {
	case c.Chunks == 1 && c.ForwardOnly:
		return ForwardOnly(stage, c.Stages, c.Micros)
	case c.Chunks == 1 && c.Name == GPipeName:
		return GPipe(stage, c.Stages, c.Micros)
	case c.Chunks == 1:
		return OneFOneB(stage, c.Stages, c.Micros)
	case c.ForwardOnly:
		return InterleavedForwardOnly(stage, c.Stages, c.Chunks, c.Micros, c.Group)
	case c.Name == GPipeName:
		return interleavedGPipe(stage, c.Stages, c.Chunks, c.Micros, c.Group)
	}
	return Interleaved(stage, c.Stages, c.Chunks, c.Micros, c.Group, !c.NoOverlap)
}

// All is the list of every stage, proved by CheckLists.
func (c Config) All() ([][]Action, Proof, error) {
	if err := c.Check(); err != nil {
		return nil, Proof{}, err
	}
	c = c.filled()
	lists := make([][]Action, c.Stages)
	for stage := range lists {
		lists[stage] = c.Actions(stage)
	}
	proof, err := CheckLists(lists, c.Chunks, c.Micros, c.ForwardOnly)
	return lists, proof, err
}

// Live is the formula for the most micro-batches alive on a stage, each chunk of
// one counted: those a stage has forwarded and not yet backwarded.
func (c Config) Live(stage int) int {
	c = c.filled()
	total := c.Chunks * c.Micros
	switch {
	case c.ForwardOnly:
		return 1
	case c.Name == GPipeName:
		return total
	case c.Chunks == 1:
		return min(c.Stages-stage, total)
	}
	return min(2*(c.Stages-stage-1)+(c.Chunks-1)*c.Group+1, total)
}

// BubbleFraction is the formula for the time a pipeline of equal stages idles,
// over the time it computes: (p-1)/m, divided by the chunks where they are
// interleaved (arXiv 2104.04473, section 2.2).
func (c Config) BubbleFraction() float64 {
	c = c.filled()
	return float64(c.Stages-1) / float64(c.Micros) / float64(c.Chunks)
}

// Book keeps lists that were proved, so that a run proves each configuration
// once. Its zero value is empty; it belongs to one rank.
type Book struct{ lists map[Config][]Action }

// Actions is the list of one stage of c; stage is the same in every call.
func (b *Book) Actions(c Config, stage int) ([]Action, error) {
	c = c.filled()
	if acts, ok := b.lists[c]; ok {
		return acts, nil
	}
	lists, _, err := c.All()
	if err != nil {
		return nil, err
	}
	if b.lists == nil {
		b.lists = map[Config][]Action{}
	}
	b.lists[c] = lists[stage]
	return lists[stage], nil
}
