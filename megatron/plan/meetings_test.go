package plan

import (
	"math"
	"strings"
	"testing"
)

// Claim: what meetings lose is found in steps that were made with it, whatever their lengths; and is
// never less than nothing.
func TestFitMeetings(t *testing.T) {
	made := func(seconds, late float64) (steps []Met) {
		for _, s := range [][3]float64{{10, 0.02, 0.01}, {100, 0.03, 0.02}, {40, 0.2, 0.15}, {12, 0.5, 0.4}} { // meetings, parts, work
			steps = append(steps, Met{Step: s[1] + s[0]*seconds + s[2]*late, Parts: s[1], Meetings: s[0], Work: s[2]})
		}
		return steps
	}
	for _, want := range []MeetingTimes{{Seconds: 1e-4, Late: 0.03}, {Late: 0.1}, {Seconds: 5e-5}} {
		got := FitMeetings(made(want.Seconds, want.Late))
		if math.Abs(got.Seconds-want.Seconds) > 1e-9 || math.Abs(got.Late-want.Late) > 1e-6 {
			t.Errorf("%+v, made with %+v", got, want)
		}
	}
	for _, c := range [][2]float64{{1e-4, -0.05}, {-1e-5, 0.05}, {-1e-5, -0.02}} {
		if got := FitMeetings(made(c[0], c[1])); got.Seconds < 0 || got.Late < 0 || got.Seconds > 0 && got.Late > 0 {
			t.Errorf("made with %v: %+v", c, got)
		}
	}
	if got := FitMeetings(nil); got != (MeetingTimes{}) {
		t.Errorf("of no steps: %+v", got)
	}
}

// Claim: a plan's tensor-parallel step is longer by what its meetings lose, of several groups by what those
// lose; and a rank that meets nobody loses nothing.
func TestMeetingsCount(t *testing.T) {
	step := func(flags string, meetings ...MeetingTimes) float64 {
		m := sharedMachine(t)
		m.Meetings = meetings
		m.index()
		k, err := NewClock(parsed(t, small+"--hidden-size 256 --seq-length 128 --global-batch-size 16 --micro-batch-size 2 "+flags), m)
		if err != nil {
			t.Fatal(err)
		}
		s, err := k.Run(nominal)
		if err != nil {
			t.Fatal(err)
		}
		return s.Step
	}
	of2, of4 := MeetingTimes{Ranks: 2, Seconds: 1e-3}, MeetingTimes{Ranks: 4, Seconds: 2e-3}
	const tp = "--world-size 2 --tensor-model-parallel-size 2"
	lost := step(tp, of2, of4) - step(tp)
	if n := lost / 1e-3; n < 8*2*4 || math.Abs(n-math.Round(n)) > 1e-6 { // 8 micro-batches, 2 layers or more, 4 meetings each
		t.Errorf("2 ranks lose %g s: %g meetings", lost, n)
	}
	if more := step(tp, MeetingTimes{Ranks: 2, Late: 0.1}) / step(tp); more < 1.05 || more > 1.1 {
		t.Errorf("with a tenth of the work the step is %g times as long", more)
	}
	const crowded = "--world-size 4 --tensor-model-parallel-size 2"
	if of2x2 := (MeetingTimes{Ranks: 2, Groups: 2, Seconds: 1e-3}); step(tp, of2x2) != step(tp) || step(crowded, of2x2) < step(crowded)+0.2 || step(crowded, of2) > step(crowded)+0.01 { // behind the passes all meet, as one group
		t.Errorf("two groups of 2: one alone %g s, of one %g; both %g, of one %g; without %g and %g", step(tp, of2x2), step(tp, of2), step(crowded, of2x2), step(crowded, of2), step(tp), step(crowded))
	}
	if one := step("--world-size 1"); step("--world-size 1", of2, of4) != one {
		t.Error("a single rank loses something")
	}
}

// Claim: meetings of fewer than two ranks, or with less than no time, are refused; so are cores nowhere.
func TestMeetingsChecked(t *testing.T) {
	for _, bad := range []string{"{ranks: 1, seconds: 1e-4, late: 0}", "{ranks: 2, seconds: -1, late: 0}", "{ranks: 2, seconds: 0, late: .nan}", "{ranks: 2, groups: -1, seconds: 0, late: 0}"} {
		if _, err := ParseMachine([]byte(tinyMachine + "meetings:\n  - " + bad + "\n")); err == nil || !strings.Contains(err.Error(), "meetings") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, bad := range []string{"-1", ".nan", "1"} {
		if _, err := ParseMachine([]byte(tinyMachine + "core_round_trip_seconds: " + bad + "\n")); err == nil || !strings.Contains(err.Error(), "core_round_trip_seconds") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
