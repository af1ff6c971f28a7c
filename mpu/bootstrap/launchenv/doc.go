// Package launchenv finds out, from the variables that launchers set, which rank
// of a run this process is and where the ranks meet. It knows monotron launch,
// torchrun, Slurm's srun, Open MPI's mpirun, Hydra's and Intel MPI's mpiexec, and
// PALS and PBS; and Kubeflow, SkyPilot, dstack and Volcano, which start one process a host.
//
// Read launched.go (the variables of a rank), scheduled.go (those of a host), secret.go (what
// the ranks prove to each other), stops.go (the signals that end a run).
package launchenv
