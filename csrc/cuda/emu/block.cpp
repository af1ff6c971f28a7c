/* The scheduler: runs the blocks of a grid, and the threads of a block in the
 * chosen order until each has returned, or says why they cannot. */
#include "block.h"

#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <deque>
#include <memory>
#include <numeric>

#include "schedule.h"
#include "switch.h"

namespace mt_emu {

thread_local Thread *self;
thread_local Block *block;

namespace {

const size_t SHARED_LIMIT = 227 << 10; /* of a block, on sm_90 */
#if defined(MT_WATCH_thread) || defined(MT_WATCH_address)
const size_t STACK = 256 << 10;
#else
const size_t STACK = 64 << 10;
#endif
#if defined(MT_WATCH_thread)
const int ROOMS = 64;
#else
const int ROOMS = 1;
#endif
const size_t ROOM = SHARED_LIMIT + 4096; /* the last piece may be too large by that much */

/* Stacks that no thread runs on. The last one given back is taken first: a kernel
 * without barriers uses one. For the race checker a stack rests long, and is then in
 * order behind its last thread: else threads would seem to share what is their own. */
thread_local std::deque<char *> stacks;
#if defined(MT_WATCH_thread)
const size_t RESTING = 2048;
#else
const size_t RESTING = 1;
#endif

char *take_stack() {
  if (stacks.size() < RESTING) {
    void *m = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) abort();
    return static_cast<char *>(m);
  }
  char *s = RESTING > 1 ? stacks.front() : stacks.back();
  if (RESTING > 1) stacks.pop_front();
  else stacks.pop_back();
  return s;
}

void thread_main() {
  Block *b = block;
  watch::after(b->running->watched, &b->host_watched);
  char *stack = b->running->stack;
  watch::acquire(stack);
  watch::acquire(&b->launched);
  (*b->thread)();
  watch::release(&b->ended);
  watch::release(stack);
  Fiber *f = b->running;
  f->state = DONE;
  void *unused;
  watch::leave(b->host_watched);
  mt_emu_switch(&unused, b->host);
}

/* Runs f until it waits or returns. */
void resume(Fiber *f) {
  Block *b = block;
  b->running = f;
  self = f;
  bool first = !f->stack;
  if (first) {
    f->stack = take_stack();
    f->top = mt_emu_stack(f->stack, STACK, thread_main);
    watch::begin(f->watched);
  }
  watch::before(b->host_watched, f->watched, first ? f->stack : nullptr, STACK);
  mt_emu_switch(&b->host, f->top);
  watch::after(b->host_watched);
  if (f->state != DONE) return;
  watch::end(f->watched);
  stacks.push_back(f->stack);
  f->stack = nullptr;
}

/* One pass over a warp; whether any lane ran. */
bool step(int warp, int lanes) {
  int order[32];
  schedule.permute(order, lanes);
  bool ran = false;
  for (int i = 0; i < lanes && !block->failed; i++) {
    Fiber *f = &block->fibers[warp * 32 + order[i]];
    if (f->state != READY) continue;
    resume(f);
    ran = true;
  }
  return ran;
}

int count(State s) {
  int n = 0;
  for (const Fiber &f : block->fibers) n += f.state == s;
  return n;
}

const Fiber *first_in(State s) {
  for (const Fiber &f : block->fibers)
    if (f.state == s) return &f;
  return nullptr;
}

/* Nobody can go on: the barrier is complete, or something is wrong. */
void release() {
  const Fiber *waiting = first_in(AT_BARRIER);
  if (const Fiber *lane = first_in(IN_WARP)) {
    block->running = const_cast<Fiber *>(lane);
    fail("deadlock: waits at %s:%d for lanes %08x of its warp%s", lane->at.file, lane->at.line, lane->mask,
         waiting ? ", others wait at a barrier" : "");
    return;
  }
  if (const Fiber *gone = first_in(DONE)) {
    block->running = const_cast<Fiber *>(gone);
    fail("returned while %d threads wait at the barrier %s:%d", count(AT_BARRIER), waiting->at.file, waiting->at.line);
    return;
  }
  for (Fiber &f : block->fibers) {
    if (f.at.line != waiting->at.line || strcmp(f.at.file, waiting->at.file)) {
      block->running = &f;
      fail("waits at the barrier %s:%d, thread 0 at %s:%d", f.at.file, f.at.line, waiting->at.file, waiting->at.line);
      return;
    }
  }
  block->turn ^= 1;
  for (Fiber &f : block->fibers) f.state = READY;
}

/* Makes bytes [from, to) of the block's memory, whole words, NaN in every type. By words
 * of its own, as the race checker watches memset. */
void poison(size_t from, size_t to) {
  volatile uint64_t *words = reinterpret_cast<uint64_t *>(block->memory);
  for (size_t i = from / 8; i < to / 8; i++) words[i] = ~(uint64_t)0;
}

/* Gives the block shared memory and warps. For the race checker the blocks of a grid are side by
 * side, so that their races in global memory show: it sees shared memory of the same
 * addresses only behind a turn of all rooms, where the host waits for all of them. */
void enter_room(size_t dynamic) {
  Block *b = block;
  if (b->rooms.empty()) b->rooms.resize(ROOMS * ROOM), b->most = 0, b->room = -1;
  b->room = (b->room + 1) % ROOMS;
  if (b->room == 0) watch::acquire(&b->ended);
  b->memory = b->rooms.data() + b->room * ROOM;
  b->warps = b->warp_rooms.data() + b->room * 32;
  b->used = (dynamic + 15) & ~(size_t)15;
  if (b->used > b->most) b->most = b->used;
  poison(0, b->most);
  b->pieces.clear();
}

void run_block(uint3 index, dim3 grid, dim3 size, size_t dynamic) {
  Block *b = block;
  enter_room(dynamic);
  int n = (int)b->fibers.size(), warps = (n + 31) / 32;
  for (int i = 0; i < n; i++) {
    Fiber &f = b->fibers[i];
    f.index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    f.block_index = index, f.block_size = size, f.grid_size = grid;
    f.lane = i % 32, f.warp = i / 32;
    f.state = READY, f.stack = nullptr;
    f.copies.clear(), f.groups.clear();
    f.landed = f.waited = 0;
  }
  int order[32];
  while (!b->failed && count(DONE) < n) {
    bool ran = false;
    schedule.permute(order, warps);
    for (int i = 0; i < warps && !b->failed; i++) {
      int lanes = n - order[i] * 32 < 32 ? n - order[i] * 32 : 32;
      while (step(order[i], lanes)) {
        ran = true;
        if (!schedule.greedy || b->failed) break;
      }
    }
    if (!ran && !b->failed) release();
  }
  for (Fiber &f : b->fibers) /* those that a failure left in the middle */
    if (f.stack) {
      watch::end(f.watched);
      stacks.push_back(f.stack);
    }
}

} // namespace

void yield() {
  Fiber *f = block->running;
  Block *b = block;
  watch::before(f->watched, b->host_watched, nullptr, 0);
  mt_emu_switch(&f->top, b->host);
  watch::after(f->watched);
}

void fail(const char *format, ...) {
  char what[512], text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  const Fiber *f = block->running;
  snprintf(text, sizeof text, "kernel %s, block %u,%u,%u, thread %u,%u,%u: %s", block->kernel, f->block_index.x, f->block_index.y, f->block_index.z,
           f->index.x, f->index.y, f->index.z, what);
  if (!block->failed) set_launch_error(text);
  block->failed = true;
  if (f->state != DONE && self == f) yield(); /* for good: nobody makes it READY */
}

void *shared(const void *site, size_t bytes) {
  Block *b = block;
  for (const Piece &p : b->pieces)
    if (p.site == site) return b->memory + p.at;
  size_t at = b->used;
  b->used = (at + bytes + 15) & ~(size_t)15;
  if (b->used > SHARED_LIMIT) fail("%zu bytes of shared memory; a block has %zu", b->used, SHARED_LIMIT);
  if (b->used > b->most) poison(b->most, b->used), b->most = b->used;
  b->pieces.push_back({site, at});
  return b->memory + at;
}

void *dynamic_shared() { return block->memory; }

bool fits(const char *name, dim3 grid, dim3 size, size_t dynamic) {
  unsigned n = size.x * size.y * size.z;
  if (n > 0 && n <= 1024 && grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y <= 65535 && grid.z <= 65535 && dynamic <= SHARED_LIMIT) return true;
  char text[256];
  snprintf(text, sizeof text, "kernel %s: launched with a grid of %u,%u,%u, blocks of %u threads, %zu bytes of shared memory", name, grid.x, grid.y,
           grid.z, n, dynamic);
  set_launch_error(text);
  return false;
}

void run(const char *name, dim3 grid, dim3 size, size_t dynamic, const std::function<void()> &thread) {
  if (strikes()) return set_error(lost());
  hang();
  /* not a Block itself: a process has little room for what is a thread's in its libraries */
  static thread_local std::unique_ptr<Block> kept(new Block);
  Block &own = *kept;
  unsigned n = size.x * size.y * size.z;
  block = &own;
  own.kernel = name, own.thread = &thread;
  own.failed = false;
  own.fibers.resize(n);
#if defined(MT_WATCH_thread)
  for (Fiber &f : own.fibers) f.copies.reserve(4096), f.groups.reserve(4096); /* the checker watches who allocates */
#endif
  if (own.warp_rooms.empty()) own.warp_rooms.resize(ROOMS * 32);
  watch::host(own.host_watched);
  watch::release(&own.launched);
  uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z, step = 1;
  if (schedule.order == RANDOM) /* a stride that meets every block */
    for (step = blocks / 2 + 1; std::gcd(step, blocks) != 1; step++) {}
  uint64_t at = schedule.order == REVERSE ? blocks - 1 : 0;
  if (schedule.order == REVERSE) step = blocks - 1;
  for (uint64_t i = 0; i < blocks && !own.failed; i++, at = (at + step) % blocks)
    run_block({(unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y), (unsigned)(at / grid.x / grid.y)}, grid, size, dynamic);
  watch::acquire(&own.ended); /* of all blocks: the host sees what they wrote */
  self = nullptr;
  block = nullptr;
}

} // namespace mt_emu
