/* Where threads wait for each other: the block's barrier, the exchanges of a warp,
 * and what a thread's asynchronous copies are waited for. */
#include "block.h"
#include "schedule.h"

namespace mt_emu {

void barrier(Place at) {
  Fiber *f = block->running;
  f->state = AT_BARRIER;
  f->at = at;
  /* Two objects by turns: with one, a late thread would seem ordered after those
   * that are on their way to the next barrier. */
  void *order = &block->barriers[block->turn];
  watch::release(order);
  yield();
  watch::acquire(order);
}

static bool same(Place a, Place b) { return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file)); }

/* Whether all lanes of the mask wait at the same place; those that are on their way are not there yet. */
static bool complete(const Fiber *f, Fiber *lanes, unsigned mask) {
  for (int lane = 0; lane < 32; lane++) {
    if (!(mask >> lane & 1)) continue;
    const Fiber &other = lanes[lane];
    if (other.state == DONE) {
      fail("%s:%d waits for lane %d, which has returned", f->at.file, f->at.line, lane);
      return false;
    }
    if (other.state != IN_WARP) return false;
    if (other.mask != mask || !same(other.at, f->at)) {
      fail("lane %u is at %s:%d with mask %08x, lane %d at %s:%d with mask %08x", f->lane, f->at.file, f->at.line, mask, lane, other.at.file,
           other.at.line, other.mask);
      return false;
    }
  }
  return true;
}

const Slot &meet(Place at, unsigned mask, const void *in, size_t bytes, Work work) {
  Fiber *f = block->running;
  Warp &w = block->warps[f->warp];
  Fiber *lanes = &block->fibers[f->warp * 32];
  unsigned here = (unsigned)block->fibers.size() - f->warp * 32;
  if (!(mask >> f->lane & 1)) fail("%s:%d: lane %u is not in its own mask %08x", at.file, at.line, f->lane, mask);
  if (here < 32) mask &= (1u << here) - 1; /* the last warp of an uneven block */
  memcpy(&w.in[f->lane], in, bytes);
  f->state = IN_WARP;
  f->at = at;
  f->mask = mask;
  void *order = &block->warp_sync[f->warp];
  watch::release(order);
  if (complete(f, lanes, mask)) {
    watch::acquire(order);
    work(w.in, w.out, mask);
    watch::release(order);
    for (unsigned lane = 0; lane < here && lane < 32; lane++)
      if (mask >> lane & 1) lanes[lane].state = READY;
  } else {
    yield();
  }
  watch::acquire(order);
  return w.out[f->lane];
}

unsigned ballot(Place at, unsigned mask, bool vote) {
  unsigned mine = vote;
  const Slot &out = meet(at, mask, &mine, sizeof mine, [](const Slot *in, Slot *out, unsigned mask) {
    unsigned votes = 0;
    for (int lane = 0; lane < 32; lane++)
      if (mask >> lane & 1) votes |= (unsigned)in[lane].bytes[0] << lane;
    for (int lane = 0; lane < 32; lane++)
      if (mask >> lane & 1) memcpy(&out[lane], &votes, sizeof votes);
  });
  unsigned votes;
  memcpy(&votes, &out, sizeof votes);
  return votes;
}

void sync_warp(Place at, unsigned mask) {
  char none = 0;
  meet(at, mask, &none, 1, [](const Slot *, Slot *, unsigned) {});
}

static void land(const Copy &c) {
  memcpy(c.dst, c.src, c.bytes);
  memset(static_cast<char *>(c.dst) + c.bytes, 0, c.room - c.bytes);
}

void copy_async(void *dst, const void *src, size_t bytes, size_t room) {
  if (((uintptr_t)dst | (bytes ? (uintptr_t)src : 0)) % room) fail("an asynchronous copy of %zu bytes is not aligned to them", room);
  Copy c = {dst, src, bytes, room};
  if (schedule.late)
    block->running->copies.push_back(c);
  else
    land(c);
}

void copy_commit() {
  Fiber *f = block->running;
  f->groups.push_back(f->copies.size());
}

void copy_wait(int groups) {
  Fiber *f = block->running;
  while (f->groups.size() - f->waited > (size_t)groups)
    for (size_t end = f->groups[f->waited++]; f->landed < end; f->landed++) land(f->copies[f->landed]);
}

} // namespace mt_emu
