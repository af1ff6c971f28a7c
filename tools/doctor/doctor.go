package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/training"
	"monotron/tools/internal/command"
)

// State of one thing that was checked.
type State string

const (
	OK      State = "ok"
	Missing State = "missing"
	Note    State = "note" // works, but could do harm or be faster
)

// Finding is one thing that was checked.
type Finding struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Found string `json:"found"`           // what is here
	Works string `json:"works,omitempty"` // what still works without it
	Costs string `json:"costs,omitempty"` // what the lack costs
	Fix   string `json:"fix,omitempty"`   // the command or step that brings it
}

// Report is all findings.
type Report struct {
	Version  string    `json:"version"`
	Go       string    `json:"go"`
	Platform string    `json:"platform"`
	Findings []Finding `json:"findings"`
	Devices  []Speed   `json:"devices"`
}

// Command checks this machine. open makes the device of a name ("cpu", "ref",
// "cuda") for one rank, or says why it cannot.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "doctor",
		Usage: "report what this machine lacks, and what works nevertheless",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print one JSON object instead of text"},
			&cli.BoolFlag{Name: "hosts", Usage: "check all hosts of a run at once: monotron launch --hostfile FILE -- doctor --hosts"}},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return exitcode.Errorf(exitcode.Usage, "doctor accepts no arguments, but has %q", c.Args().First())
			}
			if c.Bool("hosts") {
				return examineHosts(c.Context, open, c.App.Writer, c.Bool("json"))
			}
			r := examine(thisHost(), training.Version, open)
			write := r.writeText
			if c.Bool("json") {
				write = r.writeJSON
			}
			if err := write(c.App.Writer); err != nil {
				return exitcode.Errorf(exitcode.IO, "writing the report: %w", err)
			}
			return r.verdict()
		},
	})
}

func examine(h host, version string, open func(string) (*device.Device, error)) Report {
	r := Report{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	for _, name := range []string{"cuda", "cpu", "ref"} {
		r.Devices = append(r.Devices, measure(name, open))
	}
	r.Findings = []Finding{
		h.cKernels(), h.processor(), h.oneDNN(), h.memory(), h.sharedMemory(), h.hugePages(), h.disk(), h.gpu(),
	}
	return r
}

// verdict fails only where no device opens.
func (r Report) verdict() error {
	for _, d := range r.Devices {
		if d.Error == "" {
			return nil
		}
	}
	return exitcode.Errorf(exitcode.Internal, "no device can be opened on this machine, not even ref; the reasons are in the report above")
}

func (r Report) writeJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(r)
}

func (r Report) writeText(w io.Writer) error {
	p := printer{w: w}
	p.line("monotron %s, %s, %s", r.Version, r.Go, r.Platform)
	for _, f := range r.Findings {
		p.line("%-8s %-15s %s", f.State, f.Name, f.Found)
		p.detail("works", f.Works)
		p.detail("costs", f.Costs)
		p.detail("fix", f.Fix)
	}
	p.line("devices (--device):")
	for _, d := range r.Devices {
		p.line("%-8s %-15s %s", d.state(), d.Name, d.text())
	}
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) detail(name, text string) {
	if text != "" {
		p.line("%24s %s: %s", "", name, text)
	}
}
