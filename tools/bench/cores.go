package bench

import (
	"encoding/json"
	"errors"
	"math"
	"runtime"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
	"monotron/tools/internal/timing"
)

// benchCores prints how far two cores are apart.
func benchCores(c *cli.Context) error {
	if runtime.GOMAXPROCS(0) < 2 {
		return exitcode.Errorf(exitcode.Usage, "bench cores needs two cores, but this process has one")
	}
	nanoseconds := math.Round(1e9 * timing.RoundTrip(1000, 20))
	out := &command.Printer{W: c.App.Writer}
	if !c.Bool("json") {
		out.Printf("a message from one core to another and back takes %.0f ns\n", nanoseconds)
		return out.Err
	}
	text, err := json.Marshal(map[string]any{"round_trip_nanoseconds": nanoseconds})
	out.Printf("%s\n", text)
	return errors.Join(err, out.Err)
}
