package table

// ownFlags exist here alone.
var ownFlags = owned(Own,
	works("device", String, "auto", "Device", "where tensors live; auto: cuda where usable, else cpu").choices("auto", "cpu", "cuda", "ref"),
	works("cpu-threads", Int, "0", "CPUThreads", "threads of the CPU device; 0: all cores").from(0, 4096),
	works("no-plan", Switch, "", "NoPlan", "start without counting what the run will hold; a run that cannot fit is refused otherwise (docs/plan.md)"),
	works("config", String, "", "Raw.ConfigFile", "YAML file with these names; the command line wins"),
	works("print-config", Switch, "", "Raw.PrintConfig", "show each value and where it came from, then leave"),
	works("help", Switch, "", "Raw.Help", "this text"),
	works("run-folder", String, "", "Watch.Folder", "private folder for flight records, the verdict and recorded steps (postmortem, replay)"),
	works("stall-seconds", Int, "15", "Watch.StallSeconds", "without any rank doing anything, until that ends the run with a verdict").from(1, 86_400),
	works("inject", Strings, "", "Watch.Inject", "faults on purpose, as in kill:rank=3:step=7:phase=backward (docs/failures.md); may be repeated").repeats(),
	works("log-format", String, "text", "Log.Format", "notes on stderr as lines for people or an object each for machines").choices("text", "json"),
	works("log-level", String, "info", "Log.Level", "notes of that level and above").choices("debug", "info", "warning", "error"),
	works("eval-at-start", Switch, "", "EvalAtStart", "evaluate, and continue each --sample-prompt, before the first step of a new run"),
	works("log-jsonl", String, "", "Log.JSONL", "file that gets one JSON object a step"),
	works("log-memory", Switch, "", "Log.Memory", "a table of each rank's memory by purpose with the memory lines"),
	works("log-extras", Switch, "", "Log.Extras", "a second line a step: dt, dtf, dtb, tokens/s, MFU"),
	works("metrics-addr", String, "", "Log.MetricsAddr", "address for Prometheus, as in :9400"),
	works("freeze-parameters", Strings, "", "FreezeParameters", "names of parameters that are not trained, as shell patterns: embedding.* decoder.layers.[0-3].*"),
	works("sample-prompt", Strings, "", "SamplePrompt", "text to continue at every evaluation; may be repeated").repeats(),
	works("sample-tokens", Int, "64", "SampleTokens", "length of that continuation").from(1, 1_000_000),
)
