package training

import (
	"bytes"
	"strings"

	"monotron/csrc/device"
)

// trialBytes is a trial as it travels: the outcome, then its text, filled up with zeros.
const trialBytes = 256

// shareTrials are all ranks' trials, by rank. One rank alone asks nobody.
func (e *Engine) shareTrials(mine attentionTrial) ([]attentionTrial, error) {
	world := e.rank.World
	if world.Size() == 1 {
		return []attentionTrial{mine}, nil
	}
	s := e.device.Arena.Scope(device.Communication)
	defer s.Release()
	in, out := s.Alloc(device.I32, trialBytes/4), s.Alloc(device.I32, int64(world.Size()), trialBytes/4)
	e.device.Write(in, mine.encode())
	if err := world.AllGather(out, in).Wait(); err != nil {
		return nil, err
	}
	raw := make([]byte, out.Bytes())
	e.device.Read(raw, out)
	if err := e.device.Sync(); err != nil {
		return nil, err
	}
	all := make([]attentionTrial, world.Size())
	for rank := range all {
		all[rank] = decodeTrial(raw[rank*trialBytes:][:trialBytes])
	}
	return all, nil
}

func (t attentionTrial) encode() []byte {
	raw := make([]byte, trialBytes)
	raw[0] = byte(t.outcome)
	copy(raw[1:], t.text)
	return raw
}

func decodeTrial(raw []byte) attentionTrial {
	text, _, _ := bytes.Cut(raw[1:], []byte{0})
	return attentionTrial{trialOutcome(raw[0]), strings.ToValidUTF8(string(text), "")}
}
