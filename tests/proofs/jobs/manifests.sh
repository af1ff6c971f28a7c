# The manifests of examples/kubernetes decode strictly into the Go types of Kubernetes, JobSet, Kubeflow Trainer, the training
# operator, the MPI operator and Volcano; a manifest with an unknown field does not. Fetches those modules.
. "$(dirname "$0")/../common.sh"
cd tests/proofs/jobs/manifests || exit 1
"$GO" build -o "$work/manifests" . 2>"$work/log" || { tail -3 "$work/log"; echo "skipped: the modules could not be fetched"; exit 0; }
"$work/manifests" ../../../../examples/kubernetes/*.yaml
sed 's/completionMode/completionMood/' ../../../../examples/kubernetes/job.yaml >"$work/wrong.yaml"
if "$work/manifests" "$work/wrong.yaml" >"$work/out"; then echo "FAILED: an unknown field is not seen"; exit 1; fi
tail -1 "$work/out" | sed 's/^FAILED: .*wrong.yaml/refused, as it must be/'
