//go:build cgo && linux

package gpus

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"monotron/internal/exitcode"
)

// eight is NVML's mock of a DGX A100, with what its GPUs do not answer by themselves.
func eight() *dgxa100.Server {
	s := dgxa100.New()
	for _, d := range s.Devices {
		d := d.(*dgxa100.Device)
		d.MemoryInfo = nvml.Memory{Total: 40 << 30, Free: 39 << 30, Used: 1 << 30}
		d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 41, nvml.SUCCESS }
		d.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 1200, nvml.SUCCESS }
		d.GetMaxClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 1410, nvml.SUCCESS }
		d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 1, nvml.SUCCESS }
		d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
	}
	return s
}

func surveyOf(t *testing.T, s *dgxa100.Server) Survey {
	t.Helper()
	got, err := survey(s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSurvey(t *testing.T) {
	s := surveyOf(t, eight())
	if len(s.GPUs) != 8 || s.Driver == "" || !strings.Contains(s.CUDA, ".") {
		t.Fatalf("%+v", s)
	}
	want := "GPU 3: Mock NVIDIA A100-SXM4-40GB (sm_80), 39.0 of 40.0 GiB free, 1200 of 1410 MHz, 41 C"
	if got := s.GPUs[3].String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestMissingAnswers: what a card does not tell stays out; a card that does not
// tell its memory is an error with its number.
func TestMissingAnswers(t *testing.T) {
	m := eight()
	m.Devices[2].(*dgxa100.Device).GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	if _, err := survey(m); err == nil || !strings.Contains(err.Error(), "GPU 2: ") {
		t.Errorf("a lost GPU gave %v", err)
	}
}

// TestChanges: a long run's log says what grew worse, once.
func TestChanges(t *testing.T) {
	m := eight()
	before := surveyOf(t, m)
	if lines := surveyOf(t, m).Changes(before); len(lines) != 0 {
		t.Errorf("nothing changed, but %q", lines)
	}
	d := m.Devices[5].(*dgxa100.Device)
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 0x4 | 0x40, nvml.SUCCESS }
	d.GetTotalEccErrorsFunc = func(kind nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
		if kind == nvml.MEMORY_ERROR_TYPE_UNCORRECTED {
			return 2, nvml.SUCCESS
		}
		return 0, nvml.SUCCESS
	}
	after := surveyOf(t, m)
	lines := strings.Join(after.Changes(before), "\n")
	for _, want := range []string{"GPU 5: slowed by its power limit, heat (hardware)", "GPU 5: 2 new uncorrected memory errors"} {
		if !strings.Contains(lines, want) {
			t.Errorf("no %q in %q", want, lines)
		}
	}
	after.GPUs = after.GPUs[:7]
	if lines := after.Changes(before); !strings.Contains(strings.Join(lines, "\n"), "GPU 7 ("+before.GPUs[7].UUID+") is no longer available") {
		t.Errorf("a lost GPU is not told: %q", lines)
	}
}

func TestVisible(t *testing.T) {
	s := surveyOf(t, eight())
	for _, c := range []struct {
		env  Environment
		want string // indices, or what the error must say
	}{
		{Environment{}, "01234567"},
		{Environment{"", true}, ""},
		{Environment{"-1", true}, ""},
		{Environment{"3, 1", true}, "31"},
		{Environment{s.GPUs[4].UUID[:12] + "," + s.GPUs[6].UUID, true}, "46"},
		{Environment{"0,8", true}, "error: GPU 8 does not exist; this host has 8 GPUs (index 0 to 7)"},
		{Environment{"0,0", true}, "error: names GPU 0 twice"},
		{Environment{"GPU-", true}, "error: the UUIDs of 8 GPUs begin with"},
		{Environment{"fast", true}, "error: neither an index"},
		{Environment{"1,,2", true}, "error: neither an index"},
	} {
		shown, err := s.Visible(c.env)
		got := ""
		for _, g := range shown {
			got += string(rune('0' + g.Index))
		}
		if want, bad := strings.CutPrefix(c.want, "error: "); bad {
			if err == nil || !strings.Contains(err.Error(), want) || exitcode.CodeOf(err) != exitcode.Usage {
				t.Errorf("%+v gave %v, want %q", c.env, err, want)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%+v shows %q (%v), want %q", c.env, got, err, c.want)
		}
	}
}

// TestSeat: one GPU takes one rank; the line says how many there are and how many
// were asked.
func TestSeat(t *testing.T) {
	s := surveyOf(t, eight())
	four := Environment{"4,5,6,7", true}
	if g, err := s.Seat(four, 1, 4); err != nil || g.Index != 5 {
		t.Errorf("rank 1 of 4 sits on %v (%v), want GPU 5", g, err)
	}
	_, err := s.Seat(four, 1, 8)
	if err == nil || !strings.HasPrefix(err.Error(), "4 GPUs are visible, but 8 are needed: CUDA_VISIBLE_DEVICES=4,5,6,7 on a host with 8 GPUs; a GPU can run only one rank") {
		t.Errorf("4 visible, 8 asked: %v", err)
	}
	_, err = s.Seat(Environment{"", true}, 0, 2)
	if err == nil || !strings.HasPrefix(err.Error(), "no GPU is visible, but 2 are needed: CUDA_VISIBLE_DEVICES= on a host with 8 GPUs; ") {
		t.Errorf("none visible, 2 asked: %v", err)
	}
}

// TestXid: an event is reported with the GPU and what it means, and the watch ends
// with its context.
func TestXid(t *testing.T) {
	m := eight()
	for _, d := range m.Devices {
		d.(*dgxa100.Device).RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	}
	events := []nvml.EventData{{Device: m.Devices[6], EventType: nvml.EventTypeXidCriticalError, EventData: 79}}
	ctx, stop := context.WithCancel(t.Context())
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
				if len(events) == 0 {
					stop()
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
				e := events[0]
				events = events[1:]
				return e, nvml.SUCCESS
			},
			FreeFunc: func() nvml.Return { return nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	var lines []string
	if err := watch(ctx, m, func(line string) { lines = append(lines, line) }); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 1 || lines[0] != "GPU 6: Xid 79: the GPU fell off the bus: check its power supply, temperature and seating" {
		t.Errorf("%q", lines)
	}
}

// TestShares: each rank gets a GPU of its own, by the name that the user wrote, where
// there are enough.
func TestShares(t *testing.T) {
	s := surveyOf(t, eight())
	for _, c := range []struct {
		env   Environment
		ranks int
		want  []string
	}{
		{Environment{}, 3, []string{"0", "1", "2"}},
		{Environment{}, 9, nil},
		{Environment{"5, 2,7", true}, 2, []string{"5", "2"}},
		{Environment{"5,2", true}, 3, nil},
		{Environment{"MIG-a,MIG-b", true}, 2, []string{"MIG-a", "MIG-b"}},
		{Environment{"", true}, 1, nil},
		{Environment{"9", true}, 1, nil},
	} {
		if got := s.Shares(c.env, c.ranks); !slices.Equal(got, c.want) {
			t.Errorf("%+v for %d ranks: %q, want %q", c.env, c.ranks, got, c.want)
		}
	}
}
