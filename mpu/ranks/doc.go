// Package ranks makes the ranks of a run, watches them while they work, and ends them:
// all as goroutines of this process, or the one that this process is. It returns why
// they ended, and leaves the end of the process to main.
//
// Reading order: rank.go (what a rank is and which groups it joins), ranks.go (Config and Run), goroutines.go (all ranks here), process.go (one rank of a
// launched run), watcher.go (who watches, and what is kept of the verdict), imagined.go (one rank alone, for plans).
//
// Who decides what. A rank that fails ends its groups; its peers return with its
// error. A rank that hangs, dies or disagrees is seen by the watcher (mpu/health),
// which makes the verdict and ends the groups of all. Ranks that do not notice, because
// they compute and call nothing, are left behind after a few seconds: Run returns and
// the process is expected to end.
//
// A new kind of group is one row in mpu/topology; who uses it names it in Config.Kinds,
// or asks Rank.Join for it once it knows what to ask for.
package ranks
