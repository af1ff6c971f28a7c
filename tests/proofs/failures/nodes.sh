# COUNT (50) kills -9 for each of disk, memory and spare: a random rank, or a complete host (a network
# namespace, or where those are not permitted this host) at a random moment of a run of two hosts. After a lost host the same
# command starts there again, as a scheduler does it; with a spare nothing does. Each run must end with
# the losses and the weights of the undisturbed one. Prints steps and seconds lost. SEED repeats ranks and moments.
. "$(dirname "$0")/../common.sh"
"$python" tests/proofs/failures/nodes.py "$PWD/bin/monotron" "$work" "${SEED:-1}" "${COUNT:-50}" ${MODES:-disk memory spare}
