package modelcase

import (
	"encoding/json"
	"path/filepath"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
)

// Options of a run.
type Options struct {
	Only string // of a case with several parts: this one; "": all
}

// Run runs the case at path, a folder with a case.json, on devices that open
// gives; a case of several ranks takes one each. A missing file is exitcode.NoInput, a
// malformed one exitcode.BadData, a case that is not of a dense model exitcode.Usage. Numbers
// over their tolerance are not an error here: the report lists them.
func Run(path string, open func() (*device.Device, error), o Options) (*Report, error) {
	muon, err := readMuon(path)
	if err != nil {
		return nil, err
	}
	c := &caseFile{dir: path}
	if muon != nil {
		c.Name = muon.Name
	} else if c, err = readCase(path); err != nil {
		return nil, err
	}
	d, err := open()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	r := &run{caseFile: c, muon: muon, device: d, open: open, only: o.Only, report: &Report{Case: c.Name, Device: d.Name}}
	if c.Name == "" {
		r.report.Case = filepath.Base(c.dir)
	}
	defer func() {
		for _, f := range r.opened {
			_ = f.Close() // opened for reading: nothing to lose
		}
	}()
	work, err := r.kind()
	if err != nil {
		return nil, err
	}
	if err := work(); err != nil {
		return nil, err
	}
	if len(r.report.Checks) == 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "%s has no part %q", r.report.Case, o.Only)
	}
	return r.report, d.Sync()
}

// run is one case under way.
type run struct {
	*caseFile
	muon   *muonCase // nil unless it is a case of Muon, of which caseFile has only name and folder
	device *device.Device
	open   func() (*device.Device, error)
	only   string
	report *Report
	opened []*tensors // weights, closed at the end
}

// wanted reports whether a part is to be run.
func (r *run) wanted(part string) bool { return r.only == "" || r.only == part }

// full reads the expected values of a case that has no parts.
func (r *run) full(want any) error {
	if r.only != "" {
		return exitcode.Errorf(exitcode.Usage, "%s has no parts; leave --only %s out", r.report.Case, r.only)
	}
	return r.caseFile.expected(want)
}

// kind chooses the runner by what the file holds.
func (r *run) kind() (func() error, error) {
	switch {
	case r.muon != nil:
		return r.runMuon, nil
	case r.PlainRun != nil:
		return nil, exitcode.Errorf(exitcode.Usage, "%s describes a run of pretrain_gpt, not a model; run the command with the case's flags and compare its log lines", r.report.Case)
	case r.Ranks != nil:
		return r.runRanks, nil
	case r.Variants != nil:
		return r.runVariants, nil
	case r.Micros > 0:
		return r.runAccumulation, nil
	case r.EOD != nil:
		return r.runPacking, nil
	case r.Architecture != "" && len(r.Expected) > 0 && r.Expected[0] == '[':
		return r.runGeneration, nil
	case r.Architecture != "":
		return r.runModel, nil
	case len(r.Rows) > 0:
		return r.table()
	}
	return nil, r.bad("this kind of case is unknown: the file describes neither a model nor a table")
}

// modelCase is the case that describes the model: this one, or the one it names.
func (c *caseFile) modelCase() (*caseFile, error) {
	named := c.Model + c.ModelCase
	if named == "" {
		return c, nil
	}
	return readCase(filepath.Join(c.dir, named))
}

// table is the runner of a case that lists rows of numbers.
func (r *run) table() (func() error, error) {
	var row map[string]json.RawMessage
	if err := json.Unmarshal(r.Rows[0], &row); err != nil {
		return nil, r.bad("rows: %v", err)
	}
	for key, runner := range map[string]func() error{"lr": r.runSchedules, "overflow": r.runLossScale} {
		if row[key] != nil {
			return runner, nil
		}
	}
	switch {
	case row["iterations"] != nil:
		return r.runBatchSize, nil
	case row["pipeline"] != nil:
		return r.runPipelineOrders, nil
	case row["rope_parameters"] != nil:
		return r.runRope, nil
	}
	return nil, r.bad("the rows are not those of a known table")
}
