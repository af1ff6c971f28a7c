package training

import (
	"errors"
	"os"
	"path/filepath"

	"monotron/internal/exitcode"
	"monotron/megatron/telemetry"
	"monotron/megatron/telemetry/dashboard"
)

// page is the run's own page: a server in the training process, which reads the file that
// --log-jsonl writes, or one of its own that is removed with the run.
type page struct {
	log    *telemetry.JSONL // nil: --log-jsonl's
	folder string           // of log
	server *dashboard.Server
}

// page opens --dashboard-addr. The sink of --log-jsonl is open by then.
func (l *logger) page() (_ telemetry.Sink, err error) {
	p, c := &page{}, &l.config.Log
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	path := c.JSONL
	if path == "" {
		if p.folder, err = os.MkdirTemp("", "monotron-dashboard-"); err != nil {
			return nil, exitcode.Errorf(exitcode.IO, "--dashboard-addr: a folder for the log cannot be created in TMPDIR %s: %w; set TMPDIR to another folder, or give --log-jsonl", os.TempDir(), err)
		}
		path = filepath.Join(p.folder, "steps.jsonl")
		if p.log, err = telemetry.OpenJSONL(path); err != nil {
			return nil, err
		}
	}
	p.server, err = dashboard.Serve(c.Dashboard, []dashboard.Source{{Name: l.about.Name, About: l.about, Path: path, Ongoing: true, Passing: p.log != nil,
		Extra: []string{l.config.Checkpoint.Save, l.config.Watch.Folder}, Flags: l.config.Flags, FlagsOf: CheckpointFlags, Price: c.Price}}, nil)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.Usage, "--dashboard-addr %s: %w", c.Dashboard, err)
	}
	l.notes.Info("the run's page is at http://%s/", p.server.Addr())
	return p, nil
}

// Take writes the step where nobody else does.
func (p *page) Take(s *telemetry.Step) error {
	if p.log == nil {
		return nil
	}
	return p.log.Take(s)
}

// Close ends the page.
func (p *page) Close() (err error) {
	if p.server != nil {
		err = p.server.Close()
	}
	if p.log != nil {
		err = errors.Join(err, p.log.Close())
	}
	if p.folder != "" {
		err = errors.Join(err, exitcode.With(exitcode.IO, os.RemoveAll(p.folder)))
	}
	return err
}
