/* What the race and address checkers must know about fibers. Without a checker
 * every function here is empty. The emulator itself is compiled without them: they are to
 * check kernels. */
#ifndef MT_EMU_WATCH_H
#define MT_EMU_WATCH_H

#include <cstddef>

#if defined(MT_WATCH_thread)
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *at);
void __tsan_release(void *at);
}
namespace watch {
struct Fiber { void *tsan = nullptr; };
inline void begin(Fiber &f) { f.tsan = __tsan_create_fiber(0); }
inline void end(Fiber &f) { __tsan_destroy_fiber(f.tsan), f.tsan = nullptr; }
inline void host(Fiber &f) { f.tsan = __tsan_get_current_fiber(); }
inline void before(Fiber &, Fiber &to, const char *, size_t) { __tsan_switch_to_fiber(to.tsan, 1); /* 1: orders nothing */ }
inline void leave(Fiber &to) { __tsan_switch_to_fiber(to.tsan, 1); }
inline void after(Fiber &, Fiber * = nullptr) {}
inline void acquire(void *at) { __tsan_acquire(at); }
inline void release(void *at) { __tsan_release(at); }
} // namespace watch
#elif defined(MT_WATCH_address)
extern "C" {
void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size);
}
namespace watch {
struct Fiber { void *fake = nullptr; const void *bottom = nullptr; size_t size = 0; };
inline void begin(Fiber &f) { f.fake = nullptr; }
inline void end(Fiber &) {}
inline void host(Fiber &) {}
inline void before(Fiber &from, Fiber &to, const char *stack, size_t size) {
  if (stack) to.bottom = stack, to.size = size;
  __sanitizer_start_switch_fiber(&from.fake, to.bottom, to.size);
}
inline void leave(Fiber &to) { __sanitizer_start_switch_fiber(nullptr, to.bottom, to.size); } /* never to come back */
/* Called where a switch arrives; the first arrival learns the host's stack. */
inline void after(Fiber &here, Fiber *left = nullptr) {
  const void *bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(here.fake, &bottom, &size);
  if (left) left->bottom = bottom, left->size = size;
}
inline void acquire(void *) {}
inline void release(void *) {}
} // namespace watch
#else
namespace watch {
struct Fiber {};
inline void begin(Fiber &) {}
inline void end(Fiber &) {}
inline void host(Fiber &) {}
inline void before(Fiber &, Fiber &, const char *, size_t) {}
inline void leave(Fiber &) {}
inline void after(Fiber &, Fiber * = nullptr) {}
inline void acquire(void *) {}
inline void release(void *) {}
} // namespace watch
#endif

#endif
