/* Stacks that take turns: the one way a fiber is started, left and resumed. */
#ifndef MT_EMU_SWITCH_H
#define MT_EMU_SWITCH_H

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
/* Leaves the registers a call must keep on the old stack and its top in *from. */
extern "C" void mt_emu_switch(void **from, void *to);
asm(R"(
.text
.globl mt_emu_switch
.hidden mt_emu_switch
.type mt_emu_switch, @function
mt_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size mt_emu_switch, .-mt_emu_switch
)");

/* The top of a stack whose first switch enters `entry`, which never returns. */
inline void *mt_emu_stack(char *stack, size_t bytes, void (*entry)()) {
  void **top = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(stack + bytes) & ~(uintptr_t)15);
  *--top = nullptr; /* entry's return address; keeps its stack aligned */
  *--top = reinterpret_cast<void *>(entry);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  return top;
}
#else
/* On other processors the C library's contexts: slower, the same. */
#include <ucontext.h>
#include <new>

inline void mt_emu_switch(void **from, void *to) {
  ucontext_t here;
  *from = &here;
  swapcontext(&here, static_cast<ucontext_t *>(to));
}

inline void *mt_emu_stack(char *stack, size_t bytes, void (*entry)()) {
  ucontext_t *c = new (stack) ucontext_t;
  getcontext(c);
  c->uc_stack.ss_sp = stack + sizeof *c;
  c->uc_stack.ss_size = bytes - sizeof *c;
  makecontext(c, entry, 0);
  return c;
}
#endif

#endif
