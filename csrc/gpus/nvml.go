//go:build cgo && linux

package gpus

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"monotron/internal/exitcode"
)

// Read asks the driver's NVML. Without a driver: an error saying so.
func Read() (Survey, error) {
	lib, err := open()
	if err != nil {
		return Survey{}, err
	}
	defer lib.Shutdown()
	return survey(lib)
}

// open loads libnvidia-ml. Nothing of it may be called after a failure: the
// functions are not there, and calling one ends the process.
func open() (nvml.Interface, error) {
	lib := nvml.New()
	switch r := lib.Init(); r {
	case nvml.SUCCESS:
		return lib, nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, exitcode.Errorf(exitcode.Usage, "NVIDIA's driver is not installed (libnvidia-ml.so.1 was not found)")
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, exitcode.Errorf(exitcode.Usage, "NVIDIA's driver is installed but not running (run nvidia-smi for details)")
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return nil, exitcode.Errorf(exitcode.Usage, "NVIDIA's driver was updated, but the old one is still loaded; reboot, or reload the driver's kernel modules")
	default:
		return nil, exitcode.Errorf(exitcode.Usage, "NVIDIA's management library does not start: %s", name(r))
	}
}

// name spells a return code without the library, which may be what is missing.
func name(r nvml.Return) string { return fmt.Sprintf("NVML error %d", int(r)) }

func survey(lib nvml.Interface) (s Survey, err error) {
	if s.Driver, err = must(lib.SystemGetDriverVersion()); err != nil {
		return s, fmt.Errorf("reading the driver's version: %w", err)
	}
	version, err := must(lib.SystemGetCudaDriverVersion())
	if err != nil {
		return s, fmt.Errorf("reading the driver's CUDA version: %w", err)
	}
	s.CUDA = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
	n, err := must(lib.DeviceGetCount())
	if err != nil {
		return s, fmt.Errorf("counting GPUs: %w", err)
	}
	for i := range n {
		g, err := readGPU(lib, i)
		if err != nil {
			return s, fmt.Errorf("GPU %d: %w", i, err)
		}
		s.GPUs = append(s.GPUs, g)
	}
	return s, nil
}

// readGPU reads one GPU. What a card or a container does not tell stays zero; name,
// UUID and memory must be there.
func readGPU(lib nvml.Interface, index int) (g GPU, err error) {
	// These are required of every GPU.
	d, err := must(lib.DeviceGetHandleByIndex(index))
	if err != nil {
		return g, err
	}
	g.Index = index
	if g.Name, err = must(d.GetName()); err != nil {
		return g, err
	}
	if g.UUID, err = must(d.GetUUID()); err != nil {
		return g, err
	}
	memory, err := must(d.GetMemoryInfo())
	if err != nil {
		return g, err
	}
	g.Memory, g.Free = memory.Total, memory.Free
	// The rest may be missing.
	if major, minor, r := d.GetCudaComputeCapability(); r == nvml.SUCCESS {
		g.Capability = fmt.Sprintf("%d.%d", major, minor)
	}
	g.Temperature = int(may(d.GetTemperature(nvml.TEMPERATURE_GPU)))
	g.Clock = int(may(d.GetClockInfo(nvml.CLOCK_SM)))
	g.MaxClock = int(may(d.GetMaxClockInfo(nvml.CLOCK_SM)))
	g.Slowed = slowed(may(d.GetCurrentClocksThrottleReasons()))
	g.Corrected = may(d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC))
	g.Uncorrected = may(d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC))
	return g, nil
}

func must[T any](v T, r nvml.Return) (T, error) {
	if r != nvml.SUCCESS {
		return v, exitcode.Errorf(exitcode.Internal, "NVIDIA's management library reports %s", name(r))
	}
	return v, nil
}

func may[T any](v T, r nvml.Return) T {
	if r != nvml.SUCCESS {
		var zero T
		return zero
	}
	return v
}

// Watch reports each Xid error (the driver's word for a GPU's fault) until ctx
// ends. It returns at once where the driver reports none.
func Watch(ctx context.Context, tell func(line string)) error {
	lib, err := open()
	if err != nil {
		return err
	}
	defer lib.Shutdown()
	return watch(ctx, lib, tell)
}

const waitFor = 1000 // milliseconds until ctx is checked again

func watch(ctx context.Context, lib nvml.Interface, tell func(string)) error {
	set, err := must(lib.EventSetCreate())
	if err != nil {
		return fmt.Errorf("GPUs cannot be watched for Xid errors: %w", err)
	}
	defer set.Free()
	n, err := must(lib.DeviceGetCount())
	if err != nil {
		return fmt.Errorf("counting GPUs: %w", err)
	}
	for i := range n {
		d, err := must(lib.DeviceGetHandleByIndex(i))
		if err != nil {
			return fmt.Errorf("GPU %d: %w", i, err)
		}
		if r := d.RegisterEvents(nvml.EventTypeXidCriticalError, set); r != nvml.SUCCESS && r != nvml.ERROR_NOT_SUPPORTED {
			return exitcode.Errorf(exitcode.Internal, "GPU %d cannot be watched for Xid errors: %s", i, name(r))
		}
	}
	for ctx.Err() == nil {
		e, r := set.Wait(waitFor)
		switch r {
		case nvml.SUCCESS:
			index, _ := e.Device.GetIndex() // 0 where the GPU no longer answers
			tell(fmt.Sprintf("GPU %d: Xid %d: %s", index, e.EventData, meaning(e.EventData)))
		case nvml.ERROR_TIMEOUT:
		default:
			return exitcode.Errorf(exitcode.Internal, "waiting for Xid errors failed: %s", name(r))
		}
	}
	return nil
}
