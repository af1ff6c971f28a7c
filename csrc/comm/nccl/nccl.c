#include "nccl.h"

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "../../device/cutshort.h"

#define BYTES 1 /* ncclUint8: copies move bytes, whatever they mean */

int mt_nccl_open(const char *path, mt_nccl *out, char *error, size_t room) {
  const char *cut = mt_cut_short(path);
  if (cut) {
    snprintf(error, room, "%s: %s", path, cut);
    return -1;
  }
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(error, room, "%s", dlerror());
    return -1;
  }
  struct { const char *name; void *at; } wanted[] = {
      {"ncclGetVersion", &out->get_version}, {"ncclGetErrorString", &out->get_error_string}, {"ncclGetLastError", &out->get_last_error},
      {"ncclGetUniqueId", &out->get_unique_id}, {"ncclCommInitRankConfig", &out->comm_init_rank_config},
      {"ncclCommGetAsyncError", &out->comm_get_async_error}, {"ncclCommFinalize", &out->comm_finalize}, {"ncclCommDestroy", &out->comm_destroy},
      {"ncclCommAbort", &out->comm_abort}, {"ncclGroupStart", &out->group_start}, {"ncclGroupEnd", &out->group_end},
      {"ncclAllReduce", &out->all_reduce}, {"ncclReduce", &out->reduce}, {"ncclBroadcast", &out->broadcast},
      {"ncclAllGather", &out->all_gather}, {"ncclReduceScatter", &out->reduce_scatter}, {"ncclSend", &out->send}, {"ncclRecv", &out->recv},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *found = dlsym(library, wanted[i].name);
    if (!found) {
      snprintf(error, room, "the library has no %s; NCCL 2.14 or newer is needed", wanted[i].name);
      dlclose(library);
      return -1;
    }
    *(void **)wanted[i].at = found;
  }
  out->library = library;
  return 0;
}

int mt_nccl_version(const mt_nccl *l, int *version) { return l->get_version(version); }
const char *mt_nccl_error(const mt_nccl *l, int result) { return l->get_error_string(result); }
const char *mt_nccl_last(const mt_nccl *l, mt_nccl_comm comm) { return l->get_last_error(comm); }
int mt_nccl_unique(const mt_nccl *l, mt_nccl_id *id) { return l->get_unique_id(id); }

/* Without blocking: every call returns, and what it started can be given up. */
int mt_nccl_init(const mt_nccl *l, mt_nccl_comm *comm, int ranks, const mt_nccl_id *id, int rank) {
  mt_nccl_config config = {sizeof config, 0xcafebeef, 21400, 0};
  *comm = NULL;
  return l->comm_init_rank_config(comm, ranks, *id, rank, &config);
}

int mt_nccl_async(const mt_nccl *l, mt_nccl_comm comm, int *result) { return l->comm_get_async_error(comm, result); }
int mt_nccl_finalize(const mt_nccl *l, mt_nccl_comm comm) { return l->comm_finalize(comm); }
int mt_nccl_destroy(const mt_nccl *l, mt_nccl_comm comm) { return l->comm_destroy(comm); }
int mt_nccl_abort(const mt_nccl *l, mt_nccl_comm comm) { return l->comm_abort(comm); }

static int64_t microseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

/* What a call comes to. A thread of NCCL's takes it within some microseconds, far less than
 * any sleep of the host lasts; only a call that takes longer is worth one. */
static int taken(const mt_nccl *l, mt_nccl_comm comm, int result) {
  int64_t end = microseconds() + MT_NCCL_PATIENCE;
  for (int asked = 0; result == MT_NCCL_IN_PROGRESS && (asked < MT_NCCL_LEAST || microseconds() < end); asked++) {
    sched_yield(); /* to that thread, where processors are few */
    int failed = l->comm_get_async_error(comm, &result);
    if (failed != MT_NCCL_SUCCESS) return failed;
  }
  return result;
}

int mt_nccl_all_reduce(const mt_nccl *l, void *t, size_t n, int dtype, int op, mt_nccl_comm comm, mt_nccl_stream s) {
  return taken(l, comm, l->all_reduce(t, t, n, dtype, op, comm, s));
}

int mt_nccl_reduce(const mt_nccl *l, void *t, size_t n, int dtype, int op, int root, mt_nccl_comm comm, mt_nccl_stream s) {
  return taken(l, comm, l->reduce(t, t, n, dtype, op, root, comm, s));
}

int mt_nccl_broadcast(const mt_nccl *l, void *t, size_t bytes, int root, mt_nccl_comm comm, mt_nccl_stream s) {
  return taken(l, comm, l->broadcast(t, t, bytes, BYTES, root, comm, s));
}

int mt_nccl_all_gather(const mt_nccl *l, const void *in, void *out, size_t bytes, mt_nccl_comm comm, mt_nccl_stream s) {
  return taken(l, comm, l->all_gather(in, out, bytes, BYTES, comm, s));
}

int mt_nccl_reduce_scatter(const mt_nccl *l, const void *in, void *out, size_t n, int dtype, int op, mt_nccl_comm comm, mt_nccl_stream s) {
  return taken(l, comm, l->reduce_scatter(in, out, n, dtype, op, comm, s));
}

/* A group that was begun is ended, whatever happens in it. */
int mt_nccl_batch(const mt_nccl *l, const mt_nccl_p2p *ops, int n, mt_nccl_comm comm, mt_nccl_stream s) {
  int first = l->group_start();
  if (first != MT_NCCL_SUCCESS) return first;
  for (int i = 0; i < n && (first == MT_NCCL_SUCCESS || first == MT_NCCL_IN_PROGRESS); i++) {
    const mt_nccl_p2p *o = &ops[i];
    first = o->send ? l->send(o->data, o->bytes, BYTES, o->peer, comm, s) : l->recv(o->data, o->bytes, BYTES, o->peer, comm, s);
  }
  int last = l->group_end();
  return first == MT_NCCL_SUCCESS || first == MT_NCCL_IN_PROGRESS ? taken(l, comm, last) : first;
}
