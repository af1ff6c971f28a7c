package inference

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"time"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/model"
	"monotron/megatron/spec"
	"monotron/mpu/health"
)

// editions are the weights that a rank serves: those that new texts get, and with them,
// once a newer iteration was taken, those that older texts began with. What is loaded goes
// to the one that no text uses, so that nothing is lost where it cannot be loaded.
type editions struct {
	list []*Loaded // the second is made when it is first needed; from bases on, with adapters
	now  int32     // of new texts
	kv   []*model.Paged

	passes int64
}

// of is the edition of new texts that ask for an adapter by its number from 1, or for none, 0.
func (e *editions) of(adapter int) int32 {
	if adapter > 0 {
		return int32(bases + adapter - 1)
	}
	return e.now
}

// other is the edition that new texts do not get.
func (e *editions) other() int32 { return 1 - e.now }

// rows runs a batch with the weights of its edition.
func (e *editions) rows(b *batch, use func(first int, logits model.Tensor) error) error {
	e.passes++
	if r := e.list[0].rank; r != nil { // else somebody else watches
		r.Enter(health.Forward, e.passes)
	}
	return e.list[b.edition].rows(b, e.kv, use)
}

// reload loads an iteration next to the weights that are in use, on all ranks; new texts get
// it from then on. refused: this iteration cannot be had, and all is as before.
func (e *editions) reload(followers *orders, dir string, step int64) (refused, err error) {
	l := e.list[e.now]
	refused = func() (err error) {
		if e.list[e.other()] == nil {
			if e.list[e.other()], err = l.twin(); err != nil {
				return err
			}
		}
		return e.list[e.other()].reload(dir, step)
	}()
	if refused, err = followers.agree(refused); refused == nil && err == nil {
		e.now = e.other()
	}
	return refused, err
}

// twin is the same part of the same model, with memory of its own for weights.
func (l *Loaded) twin() (*Loaded, error) {
	t := *l
	if err := t.newStage(); err != nil {
		return nil, err
	}
	return &t, nil
}

// reload fills the weights from an iteration of the same model, whatever its format.
func (l *Loaded) reload(dir string, step int64) error {
	format, err := checkpoint.DetectAt(dir, step)
	if err != nil {
		return err
	}
	var report native.Report
	// Our own checkpoint: the configuration says whether it is the same model.
	if format == checkpoint.Native {
		c, err := storedConfig(dir, step)
		if err != nil {
			return err
		}
		if err := l.same(&c.Model); err != nil {
			return err
		}
		if _, report, err = all.LoadNative(dir, step, l.stored(), l.Device, native.LoadOptions{Convert: true}); err != nil {
			return err
		}
	} else {
		// Another program's.
		src, err := all.OpenAs(format, dir, checkpoint.OpenOptions{Step: step})
		if err != nil {
			return err
		}
		defer src.Close()
		if err := l.same(src.Info().Model); err != nil {
			return err
		}
		if _, report, err = native.LoadSource(checkpoint.Finite(src), l.stored(), l.Device, native.LoadOptions{Convert: true}); err != nil {
			return err
		}
	}
	l.loaded(report.Iteration)
	return l.Device.Err()
}

// same refuses another model.
func (l *Loaded) same(m *spec.Model) error {
	if list := l.Model.Differs(m); len(list) > 0 {
		return exitcode.Errorf(exitcode.BadData, "the checkpoint contains a different model: %s", strings.Join(list, ", "))
	}
	return nil
}

// Newest is the iteration of a save folder that loading takes now, and what distinguishes it from
// another of the same number.
//
// Errors: native.ErrNone in the chain, or exitcode.NoInput, while none exists yet;
// exitcode.Usage where dir is not a folder that iterations are saved to.
func Newest(dir string) (step int64, written time.Time, err error) {
	format, err := checkpoint.Detect(dir)
	switch {
	case err != nil:
		return 0, written, err
	case format == checkpoint.Native && !native.IsOne(dir):
		step, err = native.Latest(dir)
	case tracked(dir):
		var t checkpoint.Tracked
		if t, err = checkpoint.ReadTracker(dir); err == nil && t.Release {
			err = exitcode.Errorf(exitcode.Usage, "%s contains a release checkpoint, to which no run adds iterations", dir)
		}
		step = t.Iteration
	default:
		err = exitcode.Errorf(exitcode.Usage, "%s is one checkpoint (format %s); name the folder that a run saves its iterations to", dir, format)
	}
	if err != nil {
		return 0, written, err
	}
	st, err := os.Stat(filepath.Join(dir, checkpoint.IterName(step)))
	if err != nil {
		return 0, written, exitcode.With(exitcode.NoInput, err)
	}
	return step, st.ModTime(), nil
}

func tracked(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, checkpoint.TrackerName))
	return err == nil
}

// root is the prefix before the first token: texts of other weights share nothing. Iterations count from
// 0 up, adapters from -1 down.
func root(edition int64) (p prefix) {
	binary.LittleEndian.PutUint64(p[:], uint64(edition))
	return p
}
