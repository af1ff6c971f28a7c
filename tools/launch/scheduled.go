package launch

import (
	"os"
	"strconv"

	"github.com/urfave/cli/v2"

	"monotron/csrc/gpus"
	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/launchenv"
)

// scheduled fills flags that are not given from the variables of a scheduler that starts
// this command once a host. by says whose they are; "": none are set, or the flags
// describe other hosts.
func scheduled(c *cli.Context) (by string, err error) {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	s, err := launchenv.Schedule(os.Environ(), host, visible)
	if err != nil {
		return "", err
	}
	if s == nil {
		return indexed(c)
	}
	spares := c.Int("spares") // of the hosts that the scheduler has started
	if c.IsSet("nnodes") && c.Int("nnodes")+spares != s.Hosts {
		return "", nil
	}
	set := func(flag, value string, said bool) {
		if err == nil && said && !c.IsSet(flag) {
			err = c.Set(flag, value)
		}
	}
	set("nnodes", strconv.Itoa(s.Hosts-spares), s.Hosts > spares)
	set("node-rank", strconv.Itoa(s.Number), true)
	set("min-nnodes", strconv.Itoa(s.Least), s.Least > 0)
	set("nproc-per-node", strconv.Itoa(s.Ranks), s.Ranks > 0)
	if !c.IsSet("rdzv-endpoint") {
		set("master-addr", s.Addr, s.Addr != "" && s.Hosts > 1)
		set("master-port", strconv.Itoa(s.Port), s.Port > 0)
	}
	return s.By, exitcode.With(exitcode.Usage, err)
}

// indexed takes the number of this host from an indexed job of Kubernetes, which says nothing
// of the others.
func indexed(c *cli.Context) (by string, err error) {
	index := os.Getenv("JOB_COMPLETION_INDEX")
	if index == "" || c.Int("nnodes") == 1 || c.IsSet("node-rank") {
		return "", nil
	}
	if n, err := strconv.Atoi(index); err != nil || n < 0 {
		return "", exitcode.Errorf(exitcode.Usage, "JOB_COMPLETION_INDEX=%q in the environment is not the number of a pod; give --node-rank", index)
	}
	return "Kubernetes (JOB_COMPLETION_INDEX=" + index + ")", exitcode.With(exitcode.Usage, c.Set("node-rank", index))
}

// visible counts the GPUs that this process sees.
func visible() int {
	s, err := gpus.Read()
	if err != nil {
		return 0
	}
	shown, err := s.Visible(gpus.Here())
	if err != nil {
		return 0
	}
	return len(shown)
}
