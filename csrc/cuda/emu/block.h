/* A block of CUDA threads while it runs. */
#ifndef MT_EMU_BLOCK_H
#define MT_EMU_BLOCK_H

#include <string>
#include <vector>

#include "emu.h"
#include "watch.h"

namespace mt_emu {

enum State { READY, AT_BARRIER, IN_WARP, DONE };

struct Copy {
  void *dst;
  const void *src;
  size_t bytes, room;
};

/* A CUDA thread and the stack it runs on, which it has from its first step to its last. */
struct Fiber : Thread {
  State state;
  Place at; /* where it waits */
  unsigned mask; /* of the lanes it waits for */
  int warp;
  char *stack;
  void *top;
  std::vector<Copy> copies; /* asynchronous ones of this thread, in order: */
  std::vector<size_t> groups; /* where each committed group of them ends */
  size_t landed, waited; /* how many copies, and groups, are over */
  watch::Fiber watched;
};

struct Warp {
  Slot in[32], out[32];
  Work work[32]; /* what each lane waits for */
};

struct Piece {
  const void *site;
  size_t at;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warp_rooms; /* of one block after the other */
  Warp *warps; /* this block's */
  std::vector<char> rooms; /* shared memory, of one block after the other */
  char *memory;            /* this block's: dynamic first, then the pieces */
  std::vector<Piece> pieces;
  size_t used, most; /* bytes of it; of any block so far */
  int room;
  const std::function<void()> *thread; /* what each does */
  const char *kernel;
  Fiber *running;
  void *host; /* the stack that switches between fibers */
  watch::Fiber host_watched;
  char barriers[2], warp_sync[32], launched, ended; /* what the race check orders by */
  int turn;
  bool failed;
};

extern thread_local Block *block __attribute__((tls_model("initial-exec")));

void yield(); /* to the scheduler, until made READY */

} // namespace mt_emu

#endif
