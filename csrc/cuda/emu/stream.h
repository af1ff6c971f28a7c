/* Streams of the emulated GPU: each has a thread of its own that does what was
 * enqueued, in order, behind the host's back. The null stream, and every stream under a
 * race or address checker, does it at once on the calling thread. */
#ifndef MT_EMU_STREAM_H
#define MT_EMU_STREAM_H

#include <functional>

#include "runtime.h"

namespace mt_emu {

void enqueue(cudaStream_t stream, std::function<void()> work);

void set_launch_error(const std::string &text); /* of the thread that calls */
void set_error(cudaError_t e);                  /* of the thread that calls, unless it is none */
bool failed();
cudaError_t take_error(); /* and forgets it, unless the GPU is lost */

/* MONOTRON_EMU_FAULT=n: the n-th kernel touches an address that is nobody's, or, with n,719,
 * fails by that error. As on a GPU that is the end of the process's work there: whatever it is
 * asked from then on fails. */
bool strikes();     /* whether this kernel is the one, or comes after it */
cudaError_t lost(); /* an error from then on */

/* MONOTRON_EMU_HANG=n: the n-th kernel never ends. */
void hang();

} // namespace mt_emu

#endif
