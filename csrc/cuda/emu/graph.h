/* Stream capture as CUDA has it: what a captured stream is given is taken down and not
 * done; a node keeps a copy of its arguments; a call that would have to wait, or takes
 * memory, fails and spoils the capture. Streams that join a capture are not emulated. */
#ifndef MT_EMU_GRAPH_H
#define MT_EMU_GRAPH_H

#include <functional>

#include "runtime.h"

namespace mt_emu {

/* Enqueues work, or records it where the stream is captured. Its arguments are searched
 * for device memory: a graph whose memory was freed since does not run. */
cudaError_t submit(cudaStream_t stream, const char *what, std::function<void()> work, const void *arguments, size_t bytes);

bool captured(cudaStream_t stream);

/* An error, where a capture forbids the call; the capture is then lost. */
cudaError_t waits_for(cudaStream_t stream);                       /* waiting for a stream */
cudaError_t waits_for_all();                                      /* for all of them */
cudaError_t unsafe();                                             /* cudaMalloc and its like, on this thread */
cudaError_t spoil(cudaStream_t stream, cudaError_t why);          /* whatever else */

} // namespace mt_emu

#endif
