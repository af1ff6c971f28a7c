package launch

import (
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/megatron/training"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/tools/internal/command"
)

const description = `Starts --nproc-per-node processes, each one rank of the run, and waits until all are
done. The command (-- in front of it may be left out) is a monotron command, or a path with a
slash:

   monotron launch --nproc-per-node 8 -- pretrain_gpt --tensor-model-parallel-size 2 ...

On several hosts, which must be reachable by ssh without a password and have this program and
the current folder at the same paths:

   monotron launch --hostfile hosts -- pretrain_gpt ...     # one host per line: node0 slots=8

Or run it on each host with the same flags except --node-rank:

   export MONOTRON_SECRET=$(openssl rand -hex 32)     # the same on all hosts
   monotron launch --nproc-per-node 8 --nnodes 2 --node-rank 0 --master-addr node0 -- pretrain_gpt ...
   monotron launch --nproc-per-node 8 --nnodes 2 --node-rank 1 --master-addr node0 -- pretrain_gpt ...

Standard output is that of the ranks. Each line on standard error is prefixed with its rank.
When a rank fails, the others end within seconds; the last line names the first failed rank and
the cause, and the exit code is that rank's (128 + signal number if a signal ended it). SIGTERM
and Ctrl-C are forwarded: the ranks save at the next step and exit with code 75; a second signal
ends them at once.

Kubeflow (PET_*), SkyPilot, dstack and Volcano start this command once on each host and set
--nnodes, --node-rank, --nproc-per-node, --master-addr and --master-port by environment variables; an
indexed job of Kubernetes sets --node-rank. Flags override them.

Under torchrun (with --no-python), srun, mpirun and mpiexec this command is not needed: start
pretrain_gpt itself.`

// startable are the commands that users start by this one.
var startable = []string{"monotron", "bin/monotron", "pretrain_gpt", "bin/pretrain_gpt", "pretrain_gpt.py", "serve", "doctor"}

// options are the command's flags.
type options struct {
	local, nodes, node int
	addr               string        // host:port at which ranks meet; "": a free port of this host
	restarts           int           // in a row without a newer checkpoint
	restartsAtAll      bool          // --auto-restart
	least              int           // ranks of this host to continue with
	fewer              bool          // it has gone on with fewer
	wanted, spares     int           // hosts that run ranks and spare hosts, as the flags say
	all, number0       int           // hosts and this one's number among them; nodes and node may become others
	given              string        // addr as the flags say
	start              int           // of the run on several hosts that meet, from 1
	leastNodes         int           // hosts to continue with
	hostWait           time.Duration // for a host that is gone, before the run continues without it
	grace              time.Duration // for ranks to end after the first has failed
	prefix             string
	words              []string     // program and arguments
	line               commandLine  // what their flags say
	saves              string       // what --save names; "": nothing
	staged             string       // the folder in which its checkpoints are: itself, or of an s3:// URL this host's
	begun              int64        // the iteration it had at first; -1: none
	resumes            bool         // the command is asked to continue from there
	segments           [][]*os.File // by local rank: memory for its memory checkpoints; nil: it keeps none
	folder             string       // for flight records and the verdict
	temporary          bool         // it is removed when the run ends well
}

// Command is launch.
func Command() *cli.Command {
	return command.WrapStarter(&cli.Command{
		Name:        "launch",
		Usage:       "start the ranks of a run as processes, on this host or on several hosts",
		ArgsUsage:   "-- COMMAND [ARGUMENTS]",
		Description: description,
		Flags: append(torchruns(), []cli.Flag{
			// Ranks and hosts.
			command.Between(1, 4096, &cli.IntFlag{Name: "nproc-per-node", Aliases: []string{"nproc_per_node"}, Value: 1, Usage: "start N ranks on this host"}),
			command.Between(1, 1<<20, &cli.IntFlag{Name: "nnodes", Value: 1, Usage: "use N hosts"}),
			command.Between(0, 1<<20, &cli.IntFlag{Name: "node-rank", Usage: "set the index of this host, from 0"}),
			command.Between(0, 1<<16, &cli.IntFlag{Name: "spares", Usage: "with --auto-restart: let N hosts, in addition to --nnodes, wait and replace lost hosts; start this command on each of them with the next numbers as --node-rank, or name them last in --hostfile"}),
			&cli.StringFlag{Name: "master-addr", Value: "127.0.0.1", Usage: "set the address at which the other hosts reach the host of rank 0"},
			command.Between(0, 65535, &cli.IntFlag{Name: "master-port", Usage: "set the port on the host of rank 0 (default: a free port; with several hosts, 29500)"}),
			&cli.StringFlag{Name: "rdzv-endpoint", Usage: "set the address and port of the host of rank 0 as `HOST:PORT`; this replaces --master-addr and --master-port"},
			// Starting the other hosts from here.
			&cli.StringFlag{Name: "hostfile", Usage: "start the ranks on the hosts of `FILE` by ssh; each line is HOST slots=RANKS"},
			&cli.StringFlag{Name: "ssh-config", Usage: "let ssh read its settings from `FILE` (ssh -F)"},
			&cli.BoolFlag{Name: "agent", Hidden: true},
			// After a failure.
			command.Between(0, command.Sizes, &cli.IntFlag{Name: "max-restarts", Usage: "restart at most N times after failures without a newer checkpoint, on disk or in memory (default: 0; 3 with --auto-restart)"}),
			&cli.BoolFlag{Name: "auto-restart", Usage: "after every failure, restart from the last good checkpoint of --save, as long as checkpoints advance (the run ends after three restarts, or --max-restarts, without a newer checkpoint)"},
			command.Between(0, 1<<16, &cli.IntFlag{Name: "min-nproc-per-node", Usage: "when no restarts are left, continue with fewer ranks on this host, but at least N; this makes the data-parallel size smaller"}),
			command.Between(1, 1<<20, &cli.IntFlag{Name: "min-nnodes", Value: 1, Usage: "with --auto-restart on several hosts: continue with at least N hosts when others are lost"}),
			command.Between(1, 366*24*3600, &cli.IntFlag{Name: "host-wait-seconds", Value: 60, Usage: "with --auto-restart on several hosts: wait N seconds for a lost host"}),
			// Records and output.
			&cli.StringFlag{Name: "run-folder", Usage: "write flight records and the verdict (the cause of a failure) to `DIR`, which only its owner can read (default: a temporary folder, kept when the run fails)"},
			&cli.StringFlag{Name: "log-prefix", Value: "stderr", Usage: "`NAME`: choose which lines get the number of their rank as a prefix: those of stderr (stderr), those of stdout and stderr (both), or no lines (none)"},
		}...),
		Action: func(c *cli.Context) error {
			// On another host: the fleet's plan comes on stdin.
			if c.Bool("agent") {
				return agent(os.Stdin)
			}
			// A scheduler's variables (Slurm, PBS) give hosts and ranks, unless a launcher above has done so.
			by, err := "", error(nil)
			if !c.IsSet("hostfile") && os.Getenv(launchenv.Own) == "" {
				if by, err = scheduled(c); err != nil {
					return err
				}
			}
			o, err := read(c)
			if err != nil {
				return err
			}
			if by != "" {
				fmt.Fprintf(o.ownNotes(), "launch: host %d of %d, with %d ranks, as set by %s\n", o.node, o.nodes, o.local, by)
			}
			for _, note := range withoutEffect(c) {
				fmt.Fprintf(o.ownNotes(), "launch: %s\n", note)
			}
			if c.IsSet("hostfile") {
				f, err := readFleet(c, o)
				if err != nil {
					return err
				}
				outcome := training.NewOutcome()
				return outcome.Settle(o.logs(), f.run(os.Stdout, o.ownNotes()))
			}
			return o.run(os.Stdout, o.ownNotes())
		},
	}, startable)
}

// without are torchrun's flags that have no effect here, and what does the same: "" where nothing needs to.
var without = map[string]string{
	"standalone": "", "no-python": "", "rdzv-backend": "", "rdzv-id": "", "rdzv-conf": "", "start-method": "", "role": "", "local-addr": "", "monitor-interval": "",
	"log-dir": "redirect standard output and error", "redirects": "redirect standard output and error", "tee": "--log-prefix both puts the rank before each line",
}

// torchruns are those flags.
func torchruns() (list []cli.Flag) {
	for _, name := range slices.Sorted(maps.Keys(without)) {
		if name == "standalone" || name == "no-python" {
			list = append(list, &cli.BoolFlag{Name: name, Hidden: true})
		} else {
			list = append(list, &cli.StringFlag{Name: name, Hidden: true})
		}
	}
	return list
}

// withoutEffect says which of them were given in vain.
func withoutEffect(c *cli.Context) (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(without)) {
		if instead := without[name]; instead != "" && c.IsSet(name) {
			notes = append(notes, fmt.Sprintf("--%s has no effect; %s", name, instead))
		}
	}
	return notes
}

// read checks the flags.
func read(c *cli.Context) (*options, error) {
	o := &options{local: c.Int("nproc-per-node"), nodes: c.Int("nnodes"), node: c.Int("node-rank"), restarts: c.Int("max-restarts"), restartsAtAll: c.Bool("auto-restart"), least: c.Int("min-nproc-per-node"),
		prefix: c.String("log-prefix"), folder: c.String("run-folder"), words: c.Args().Slice(), grace: 7 * time.Second,
		wanted: c.Int("nnodes"), spares: c.Int("spares"), all: c.Int("nnodes") + c.Int("spares"), number0: c.Int("node-rank"), leastNodes: c.Int("min-nnodes"), hostWait: time.Duration(c.Int("host-wait-seconds")) * time.Second}
	// Flags that exclude or need each other.
	switch {
	case len(o.words) == 0:
		return nil, exitcode.Errorf(exitcode.Usage, "the command to start is missing; give it after --, for example: monotron launch --nproc-per-node 2 -- pretrain_gpt ...")
	case o.node >= o.all && o.spares > 0:
		return nil, exitcode.Errorf(exitcode.Usage, "--node-rank must be from 0 to %d, not %d: --nnodes is %d and --spares %d", o.all-1, o.node, o.nodes, o.spares)
	case o.node >= o.nodes && o.spares == 0:
		return nil, exitcode.Errorf(exitcode.Usage, "--node-rank must be from 0 to %d, not %d: --nnodes is %d", o.nodes-1, o.node, o.nodes)
	case o.spares > 0 && !o.restartsAtAll:
		return nil, exitcode.Errorf(exitcode.Usage, "--spares %d needs --auto-restart, because a spare host replaces a lost host when the run restarts", o.spares)
	case o.all > 1 && !c.IsSet("hostfile") && !c.IsSet("master-addr") && !c.IsSet("rdzv-endpoint"):
		return nil, exitcode.Errorf(exitcode.Usage, "%d hosts need --master-addr, the address at which the other hosts reach the host of rank 0", o.all)
	case o.least > o.local:
		return nil, exitcode.Errorf(exitcode.Usage, "--min-nproc-per-node must be from 1 to --nproc-per-node %d, not %d", o.local, o.least)
	case o.least > 0 && o.all > 1:
		return nil, exitcode.Errorf(exitcode.Usage, "--min-nproc-per-node needs a single host; with several hosts use --min-nnodes")
	case o.leastNodes > o.nodes && !c.IsSet("hostfile"):
		return nil, exitcode.Errorf(exitcode.Usage, "--min-nnodes must be at most --nnodes %d, not %d", o.nodes, o.leastNodes)
	case o.prefix != "stderr" && o.prefix != "both" && o.prefix != "none":
		return nil, argv.WrongChoice("log-prefix", o.prefix, "stderr", "both", "none")
	}
	if o.restartsAtAll && !c.IsSet("max-restarts") {
		o.restarts = 3
	}
	// The command to start is read as it will read its flags: where it saves decides how a restart continues.
	o.line = readLine(o.words, o.local*o.nodes)
	var err error
	if o.saves, o.staged, err = saves(&o.line.config.Checkpoint); err != nil {
		return nil, err
	}
	if folder := o.line.config.Watch.Folder; o.line.given("run-folder") {
		o.folder = folder
	}
	if o.restartsAtAll && o.saves == "" {
		if exitcode.CodeOf(o.line.err) == exitcode.NoInput { // the --config file may have said it
			return nil, o.line.err
		}
		return nil, exitcode.Errorf(exitcode.Usage, "--auto-restart needs --save (and --save-interval) in the command to start, because without a checkpoint a restart begins at step 1")
	}
	o.given, err = meeting(c, o.all)
	o.addr = o.given
	return o, err
}

// readFleet reads --hostfile and the flags that need it.
func readFleet(c *cli.Context, o *options) (*fleet, error) {
	for _, flag := range []string{"nnodes", "node-rank"} {
		if c.IsSet(flag) {
			return nil, exitcode.Errorf(exitcode.Usage, "--%s cannot be combined with --hostfile; leave one out", flag)
		}
	}
	if c.IsSet("min-nproc-per-node") {
		return nil, exitcode.Errorf(exitcode.Usage, "--min-nproc-per-node cannot be combined with --hostfile; use --min-nnodes")
	}
	addr, ranks := o.addr, 0
	if !c.IsSet("master-addr") && !c.IsSet("rdzv-endpoint") {
		addr = ""
	} else if addr == "" {
		addr = rendezvous.Address(c.String("master-addr"), 29500)
	}
	if c.IsSet("nproc-per-node") {
		ranks = o.local
	}
	f, err := fleetOf(o, c.String("hostfile"), c.String("ssh-config"), addr, ranks)
	if err != nil {
		return nil, err
	}
	if f.port == 0 {
		f.port = c.Int("master-port")
	}
	if f.stays() {
		return f, f.checkStaying()
	}
	return f, nil
}

// meeting is where ranks meet; "" leaves the port to each attempt.
func meeting(c *cli.Context, nodes int) (string, error) {
	if end := c.String("rdzv-endpoint"); end != "" {
		if c.IsSet("master-addr") || c.IsSet("master-port") {
			return "", exitcode.Errorf(exitcode.Usage, "--rdzv-endpoint cannot be combined with --master-addr or --master-port; give one")
		}
		host, port, err := net.SplitHostPort(end)
		if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 1 || n > 65535 || host == "" {
			return "", exitcode.Errorf(exitcode.Usage, "--rdzv-endpoint %s is not HOST:PORT", end)
		}
		return end, nil
	}
	port := c.Int("master-port")
	if port < 0 || port > 65535 {
		return "", exitcode.Errorf(exitcode.Usage, "--master-port %d is not a valid port", port)
	}
	if port == 0 {
		if nodes == 1 {
			return "", nil
		}
		port = 29500
	}
	return rendezvous.Address(c.String("master-addr"), port), nil
}
