package bench

import (
	"fmt"
	"sort"
	"strings"
	"text/tabwriter"

	"monotron/tools/internal/command"
)

// print is the result for people. everyShape lists ops by shape, else by name.
func (r *result) print(out *command.Printer, everyShape bool) {
	t := tabwriter.NewWriter(out.W, 0, 0, 2, ' ', 0)
	to := &command.Printer{W: t}
	// The machine: rates of products, instructions, copies.
	to.Printf("device\t%s, %d threads on %d cores (%s)\n", r.Device, r.Threads, r.Processors, r.Processor)
	to.Printf("GEMM peak\tf32 %.0f GFLOP/s, bf16 %.0f GFLOP/s over seconds; %.0f in %s in the best moment\n", r.GEMMPeakF32/1e9, r.GEMMPeakBF16/1e9, r.GEMMBurst/1e9, r.Precision)
	if r.InstructionPeak > 0 {
		to.Printf("instructions\t%s in registers: %.0f GFLOP/s, one thread alone %.0f; the products reach %.1f%% of it\n", r.Instructions, r.InstructionPeak/1e9, r.InstructionThread/1e9, 100*r.GEMMPeak/r.InstructionPeak)
	}
	to.Printf("copy\t%.1f GB/s read and written\n", r.CopyBandwidth/1e9)
	// The step: tokens a second and shares of those rates.
	to.Printf("step\t%s, %d x %d tokens, %s, dropout %g: median of %d %.3f s, fastest %.3f s\n",
		r.Model, r.MicroBatchSize, r.SeqLength, r.Precision, r.Dropout, r.Steps, r.StepSeconds, r.FastestStep)
	to.Printf("speed\t%.1f tokens/s at %.4g FLOP a token: %.1f%% of the GEMM peak in %s (%.1f%% of the best moment)\n",
		r.TokensPerSecond, r.FLOPsPerToken, 100*r.Fraction, r.Precision, 100*r.OfBurst)
	if r.InstructionPeak > 0 {
		to.Printf("\t%.1f%% of the instruction peak\n", 100*r.OfInstructions)
		c := r.Cores
		to.Printf("cores\t%.1f%% of their time stolen, %.1f%% of the threads' time without a core, %.0f involuntary switches a second; between steps instructions at %.1f%% of their peak\n",
			100*c.Stolen, 100*c.Waited, c.Switches, 100*c.Instructions)
	}
	whose := ""
	if !r.onHost {
		whose = "of the host, which enqueues: "
	}
	// Its parts, memory, and what disturbed it.
	if r.Graphs != "" {
		to.Printf("graphs\t%s\n", strings.TrimPrefix(r.Graphs, "CUDA graphs: "))
	}
	to.Printf("phases\t%sdata %.3f s, forward %.3f, backward %.3f, optimizer %.3f, other %.3f\n",
		whose, r.Phases.Data, r.Phases.Forward, r.Phases.Backward, r.Phases.Optimizer, r.Phases.Other)
	to.Printf("memory\tpeak resident %.0f MiB; of the arena %.0f MiB: %s\n", mib(r.PeakMemory), mib(r.ArenaPeak), r.Arena)
	if r.onHost && r.Busy < 0.85 {
		to.Printf("note\tthis process had only %.0f%% of its threads' time: either other programs shared the cores, or threads waited\n", 100*r.Busy)
	}
	to.Printf("\n")
	if !r.onHost {
		to.Printf("Ops, in separate steps that wait for each op:\n")
	}
	// Every op.
	r.printOps(to, everyShape)
	if everyShape {
		to.Printf("\n")
		printProducts(to, r.GEMM)
	}
	if to.Err == nil {
		to.Err = t.Flush()
	}
	out.Err = to.Err
	if everyShape {
		r.printMarks(out)
	}
}

func printProducts(to *command.Printer, list []speed) {
	to.Printf("product\tdtype\tGFLOP/s in the best moment\tover seconds\n")
	for _, s := range list {
		by := ""
		if s.Library {
			by = ", the library's"
		}
		to.Printf("%s\t%s%s\t%.0f\t", s.Product, s.DType, by, s.Burst/1e9)
		if s.Sustained > 0 {
			to.Printf("%.0f", s.Sustained/1e9)
		}
		to.Printf("\n")
	}
}

func (r *result) printOps(to *command.Printer, everyShape bool) {
	ops := r.Ops
	if !everyShape {
		ops = byName(ops)
	}
	to.Printf("op\tshape\tcalls\tms a step\tshare\tGFLOP/s\tof products\tof instructions\tGB/s\tof copy\tof bound\n")
	left := 1.0
	for _, o := range ops {
		left -= o.Share
		to.Printf("%s\t%s\t%.0f\t%.1f\t%.1f%%\t%s\t%s\t%s\t%s\n", o.Op, o.Shape, o.Calls, 1e3*o.Seconds, 100*o.Share, rate(o.FLOPs, r.GEMMPeak), share(o.FLOPs, r.InstructionPeak), rate(o.Bytes, r.CopyBandwidth), share(o.OfBound, 1))
	}
	to.Printf("between ops\t\t\t%.1f\t%.1f%%\n", 1e3*left*r.StepSeconds, 100*left)
}

// rate is a speed in 10^9 a second, and its share of the best; two columns.
func rate(x, best float64) string {
	if x == 0 {
		return "\t"
	}
	return fmt.Sprintf("%.1f\t%.0f%%", x/1e9, 100*x/best)
}

// share is a speed's share of the best; empty where there is neither.
func share(x, best float64) string {
	if x == 0 || best == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f%%", 100*x/best)
}

// byName joins the shapes of each op.
func byName(ops []opSum) []opSum {
	at := map[string]int{}
	var list []opSum
	for _, o := range ops {
		i, ok := at[o.Op]
		if !ok {
			at[o.Op] = len(list)
			o.Shape = ""
			list = append(list, o)
			continue
		}
		sum := &list[i]
		seconds := sum.Seconds + o.Seconds
		sum.FLOPs = (sum.FLOPs*sum.Seconds + o.FLOPs*o.Seconds) / seconds
		sum.Bytes = (sum.Bytes*sum.Seconds + o.Bytes*o.Seconds) / seconds
		sum.OfBound = (sum.OfBound*sum.Seconds + o.OfBound*o.Seconds) / seconds
		sum.Calls, sum.Share, sum.Seconds = sum.Calls+o.Calls, sum.Share+o.Share, seconds
	}
	sort.SliceStable(list, func(a, b int) bool { return list[a].Seconds > list[b].Seconds })
	return list
}

func (m memory) String() string {
	var parts []string
	for name, bytes := range m {
		if bytes > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f", name, mib(bytes)))
		}
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
