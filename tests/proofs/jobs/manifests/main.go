// manifests decodes YAML files of Kubernetes strictly into the types of the controllers that read them: an unknown
// field, a field twice, a value of another type or an unknown kind is an error.
//
//	go run . FILE.yaml ...
//
// It is a module of its own, so that the trainer does not depend on Kubernetes.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	mpijob "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	trainjob "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	pytorchjob "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"
	volcano "volcano.sh/apis/pkg/apis/batch/v1alpha1"
)

// kinds make an empty value of each API version and kind.
var kinds = map[string]func() any{
	"v1 Service":                      func() any { return &core.Service{} },
	"batch/v1 Job":                    func() any { return &batch.Job{} },
	"jobset.x-k8s.io/v1alpha2 JobSet": func() any { return &jobset.JobSet{} },
	"trainer.kubeflow.org/v1alpha1 TrainingRuntime": func() any { return &trainjob.TrainingRuntime{} },
	"trainer.kubeflow.org/v1alpha1 TrainJob":        func() any { return &trainjob.TrainJob{} },
	"kubeflow.org/v1 PyTorchJob":                    func() any { return &pytorchjob.PyTorchJob{} },
	"kubeflow.org/v2beta1 MPIJob":                   func() any { return &mpijob.MPIJob{} },
	"batch.volcano.sh/v1alpha1 Job":                 func() any { return &volcano.Job{} },
}

func main() {
	failed := len(os.Args) < 2
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Printf("FAILED: %s: %v\n", path, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check decodes the documents of a file.
func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	documents := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	defer documents.Close()
	buffer := make([]byte, len(text)+1)
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(buffer[:n], &head); err != nil {
			return err
		}
		name := head.APIVersion + " " + head.Kind
		empty := kinds[name]
		if empty == nil {
			return fmt.Errorf("unknown kind %q", name)
		}
		if err := yaml.UnmarshalStrict(buffer[:n], empty()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%s: %s: ok\n", path, name)
	}
}
