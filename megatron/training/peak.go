package training

import (
	"fmt"
	"sync"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/telemetry"
)

// peak is what this process's device can compute a second, for the MFU of --log-extras.
// A short measurement may come at a bad time, and machines grow slower and faster: a step that
// does not fit to it has it measured again.
type peak struct {
	measure func() (float64, error) // operations a second

	mu       sync.Mutex
	speed    float64
	at       time.Time // of the last measurement
	measured int
	share    float64 // MFU of the first step after it; 0: there was none
}

// A measurement takes 0.2 s: repeated more than twice a minute its cost would show.
const (
	rest  = 30 * time.Second // between measurements, but for the one that a first result too low asks for
	drift = 1.4              // in either direction, of a step's MFU since the measurement
)

// MeasurePeak finds what a device multiplies in a second, in the run's precision:
// products of large square matrices, 0.2 s of them. `monotron bench` measures longer, and
// at the model's own shapes. The device is one of its own, so that the ranks' memory
// shows only what training takes.
func (j *Job) MeasurePeak(open func() (*device.Device, error)) error {
	var what string
	measure := func() (_ float64, err error) {
		defer device.CatchOutOfMemory(&err)
		d, err := open()
		if err != nil {
			return 0, err
		}
		defer d.Close()
		side := int64(1024)
		if d.Name == "ref" {
			side = 128 // plain Go: 1024 would take seconds
		}
		dtype := j.Config.DType()
		what = fmt.Sprintf("products of %d x %d in %s", side, side, dtype)
		speed, err := device.MatmulSpeed(d, dtype, device.Product{M: side, N: side, K: side}, 200*time.Millisecond)
		return speed.Sustained, err
	}
	speed, err := measure()
	if err != nil {
		return err
	}
	j.peak = &peak{measure: measure, speed: speed, at: time.Now(), measured: 1}
	j.console.note("peak for MFU: %.0f GFLOP/s (%s)", speed/1e9, what)
	return nil
}

// believed is the peak as it is known; 0: not measured.
func (p *peak) believed() float64 {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.speed
}

// doubted reports whether a step's MFU asks for another measurement.
func (p *peak) doubted(mfu float64, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.share == 0 {
		p.share = mfu
	}
	if now.Sub(p.at) < rest {
		return mfu > 1 && p.measured == 1
	}
	return mfu > 1 || mfu > drift*p.share || drift*mfu < p.share
}

// again measures once more; an error leaves all as it was.
func (p *peak) again(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.share, p.measured = now, 0, p.measured+1
	speed, err := p.measure()
	if err == nil {
		p.speed = speed
	}
	return err
}

// reached is a speed that a step had: it is possible, whatever was measured.
func (p *peak) reached(speed float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.speed = max(p.speed, speed)
}

// reconsider measures the peak again where a step does not fit to it, while all ranks
// stand still.
func (r *Run) reconsider(s *telemetry.Step) error {
	if r.peak == nil {
		return nil
	}
	doubt, now := nothing, time.Now()
	if r.rank.Last() && r.peak.doubted(s.MFU(), now) {
		doubt = 1
	}
	doubt, err := r.agree(doubt)
	if err != nil {
		return err
	}
	if doubt != nothing {
		err = r.measureAgain(now)
	}
	if r.rank.Last() {
		r.peak.reached(s.FLOPs / s.Elapsed.Seconds() * r.sharers())
	}
	s.Peak = r.peak.believed() / r.sharers()
	return err
}

// measureAgain has every process measure its own device.
func (r *Run) measureAgain(now time.Time) error {
	if r.rank.Last() || r.rank.RunName != "" {
		before := r.peak.believed()
		if err := r.peak.again(now); err != nil {
			r.log.notes.Warn("the peak for MFU cannot be measured again: %v", err)
		} else if r.rank.Last() {
			r.log.notes.At(r.log.current).Info("peak for MFU: %.0f GFLOP/s, measured again because the step times did not match %.0f", r.peak.believed()/1e9, before/1e9)
		}
	}
	_, err := r.agree(nothing) // nobody works meanwhile
	return err
}

// sharers are the ranks that share this process's device.
func (r *Run) sharers() float64 {
	if r.rank.RunName != "" {
		return 1
	}
	return float64(r.rank.Sizes.World())
}
