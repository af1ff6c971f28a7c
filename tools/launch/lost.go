package launch

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// answerTime is how long one try to reach a host may take; ssh itself gives up connecting
// somewhat earlier.
const answerTime = 25 * time.Second

// withoutLost takes out of the run the hosts that ssh does not reach any more, after
// it has waited for them.
func (f *fleet) withoutLost(ctx context.Context, notes io.Writer) error {
	up, down := f.answering(ctx, notes)
	if len(down) == 0 || ctx.Err() != nil {
		return nil
	}
	o := *f.options
	o.all, o.wanted = len(f.hosts), len(f.hosts)
	n, err := o.hostsToUse(len(up), strings.Join(down, ", "), notes)
	if err != nil {
		return err
	}
	if up[0] != f.hosts[0] {
		f.addr = master(up)
	}
	f.hosts = up[:n]
	return nil
}

// answering are the hosts that ssh reaches, now or before the wait is over.
func (f *fleet) answering(ctx context.Context, notes io.Writer) (up []remoteHost, down []string) {
	limit := time.Now().Add(f.hostWait)
	answers, noted := make([]bool, len(f.hosts)), false
	for {
		// Ask all that have not answered yet, at once: a lost host takes as long as ssh's time limit.
		var all sync.WaitGroup
		for i := range f.hosts {
			if !answers[i] {
				all.Go(func() { answers[i] = f.answers(ctx, f.hosts[i].name) })
			}
		}
		all.Wait()
		// Done when all are up, or when the wait is over.
		up, down = nil, nil
		for i, h := range f.hosts {
			if answers[i] {
				up = append(up, h)
			} else {
				down = append(down, h.name)
			}
		}
		if len(down) == 0 || ctx.Err() != nil || !time.Now().Before(limit) {
			return up, down
		}
		if !noted {
			fmt.Fprintf(notes, "launch: %s does not answer; waiting %v for it\n", strings.Join(down, ", "), f.hostWait)
			noted = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(time.Second, time.Until(limit))):
		}
	}
}

// answers reports whether ssh reaches a host. The agent there gets no plan, and says
// that it was not: any word of it will do.
func (f *fleet) answers(ctx context.Context, host string) bool {
	_, reached := f.reach(ctx, host)
	return reached
}

// reach is answers, and what ssh has said.
func (f *fleet) reach(ctx context.Context, host string) (said string, reached bool) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ssh", f.sshWords(host)...).CombinedOutput()
	if err == nil || (ctx.Err() == nil && codeOf(err) != sshFailed) {
		return "", true
	}
	if said = strings.TrimSpace(string(out)); said == "" {
		said = err.Error()
	}
	return said, false
}
