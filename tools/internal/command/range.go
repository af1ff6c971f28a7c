package command

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
)

// Upper ends that flags of several commands have.
const (
	Threads = 4096      // of a processor, or workers
	Sizes   = 1<<31 - 1 // no product of two overflows 64 bits
	Counts  = 1 << 53   // a float64 counts them one by one
)

// numbers are the flags that have one.
type numbers interface {
	*cli.IntFlag | *cli.Int64Flag | *cli.Uint64Flag | *cli.Float64Flag | *cli.IntSliceFlag
}

// Between is f, which takes numbers from low to high alone. Wrap reports all that
// lie outside at once.
func Between[F numbers](low, high float64, f F) F {
	switch f := any(f).(type) {
	case *cli.IntFlag:
		f.Action = func(c *cli.Context, x int) error { return within(c, f.Name, low, high, float64(x), strconv.Itoa(x)) }
	case *cli.Int64Flag:
		f.Action = func(c *cli.Context, x int64) error {
			return within(c, f.Name, low, high, float64(x), strconv.FormatInt(x, 10))
		}
	case *cli.Uint64Flag:
		f.Action = func(c *cli.Context, x uint64) error {
			return within(c, f.Name, low, high, float64(x), strconv.FormatUint(x, 10))
		}
	case *cli.Float64Flag:
		f.Action = func(c *cli.Context, x float64) error { return within(c, f.Name, low, high, x, plain(x)) }
	case *cli.IntSliceFlag:
		f.Action = func(c *cli.Context, list []int) error {
			for _, x := range list {
				within(c, f.Name, low, high, float64(x), strconv.Itoa(x))
			}
			return nil
		}
	}
	return f
}

// mustHaveRanges keeps numbers without ends out of every command: a billion workers
// are a slip of the hand, and no machine survives them.
func mustHaveRanges(c *cli.Command) {
	for _, f := range c.Flags {
		without := false
		switch f := f.(type) {
		case *cli.IntFlag:
			without = f.Action == nil
		case *cli.Int64Flag:
			without = f.Action == nil
		case *cli.Uint64Flag:
			without = f.Action == nil
		case *cli.Float64Flag:
			without = f.Action == nil
		case *cli.IntSliceFlag:
			without = f.Action == nil
		}
		if without {
			panic(fmt.Sprintf("%s: --%s takes any number; Between says which it may be", c.Name, f.Names()[0]))
		}
	}
}

const outside = "numbers out of range"

// within keeps what is wrong for ranges, in the digits that were given; not a number lies nowhere.
func within(c *cli.Context, name string, low, high, x float64, digits string) error {
	if !(x >= low && x <= high) {
		problems, _ := c.App.Metadata[outside].([]error)
		c.App.Metadata[outside] = append(problems, fmt.Errorf("--%s must be from %s to %s, not %s", name, plain(low), plain(high), digits))
	}
	return nil
}

// ranges is the error of all numbers that lie outside.
func ranges(c *cli.Context) error {
	problems, _ := c.App.Metadata[outside].([]error)
	return exitcode.With(exitcode.Usage, errors.Join(problems...))
}

// plain writes numbers that are counted with all their digits.
func plain(x float64) string {
	if x == float64(int64(x)) && x <= Counts && x >= -Counts {
		return strconv.FormatInt(int64(x), 10)
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}
