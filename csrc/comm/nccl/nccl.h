/* The functions of NCCL that are used here, declared rather than included: the
 * library is opened at run time and never needed to build (NCCL 2.14 or newer,
 * whose names and numbers these are). */
#ifndef MT_NCCL_H
#define MT_NCCL_H

#include <stddef.h>
#include <stdint.h>

typedef struct { char internal[128]; } mt_nccl_id;
typedef void *mt_nccl_comm;
typedef void *mt_nccl_stream; /* a cudaStream_t */

enum { MT_NCCL_SUCCESS = 0, MT_NCCL_IN_PROGRESS = 7 };

/* ncclConfig_t as of 2.14; a newer library reads its size and takes defaults for
 * what came later. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int blocking;
} mt_nccl_config;

typedef struct {
  void *library;
  int (*get_version)(int *);
  const char *(*get_error_string)(int);
  const char *(*get_last_error)(mt_nccl_comm);
  int (*get_unique_id)(mt_nccl_id *);
  int (*comm_init_rank_config)(mt_nccl_comm *, int, mt_nccl_id, int, mt_nccl_config *);
  int (*comm_get_async_error)(mt_nccl_comm, int *);
  int (*comm_finalize)(mt_nccl_comm);
  int (*comm_destroy)(mt_nccl_comm);
  int (*comm_abort)(mt_nccl_comm);
  int (*group_start)(void);
  int (*group_end)(void);
  int (*all_reduce)(const void *, void *, size_t, int, int, mt_nccl_comm, mt_nccl_stream);
  int (*reduce)(const void *, void *, size_t, int, int, int, mt_nccl_comm, mt_nccl_stream);
  int (*broadcast)(const void *, void *, size_t, int, int, mt_nccl_comm, mt_nccl_stream);
  int (*all_gather)(const void *, void *, size_t, int, mt_nccl_comm, mt_nccl_stream);
  int (*reduce_scatter)(const void *, void *, size_t, int, int, mt_nccl_comm, mt_nccl_stream);
  int (*send)(const void *, size_t, int, int, mt_nccl_comm, mt_nccl_stream);
  int (*recv)(void *, size_t, int, int, mt_nccl_comm, mt_nccl_stream);
} mt_nccl;

/* Opens the library at path and finds every function above. -1: a text in error. */
int mt_nccl_open(const char *path, mt_nccl *out, char *error, size_t room);

int mt_nccl_version(const mt_nccl *l, int *version);
const char *mt_nccl_error(const mt_nccl *l, int result);
const char *mt_nccl_last(const mt_nccl *l, mt_nccl_comm comm);
int mt_nccl_unique(const mt_nccl *l, mt_nccl_id *id);
int mt_nccl_init(const mt_nccl *l, mt_nccl_comm *comm, int ranks, const mt_nccl_id *id, int rank);
int mt_nccl_async(const mt_nccl *l, mt_nccl_comm comm, int *result);
int mt_nccl_finalize(const mt_nccl *l, mt_nccl_comm comm);
int mt_nccl_destroy(const mt_nccl *l, mt_nccl_comm comm);
int mt_nccl_abort(const mt_nccl *l, mt_nccl_comm comm);

/* How long a call asks whether it was taken, before it returns "in progress": so many
 * microseconds, and so many times at least. */
enum { MT_NCCL_PATIENCE = 300, MT_NCCL_LEAST = 64 };

/* A batch of point-to-point transfers as one group. */
typedef struct {
  void *data;
  size_t bytes;
  int peer, send;
} mt_nccl_p2p;

int mt_nccl_all_reduce(const mt_nccl *l, void *t, size_t n, int dtype, int op, mt_nccl_comm comm, mt_nccl_stream s);
int mt_nccl_reduce(const mt_nccl *l, void *t, size_t n, int dtype, int op, int root, mt_nccl_comm comm, mt_nccl_stream s);
int mt_nccl_broadcast(const mt_nccl *l, void *t, size_t bytes, int root, mt_nccl_comm comm, mt_nccl_stream s);
int mt_nccl_all_gather(const mt_nccl *l, const void *in, void *out, size_t bytes, mt_nccl_comm comm, mt_nccl_stream s);
int mt_nccl_reduce_scatter(const mt_nccl *l, const void *in, void *out, size_t n, int dtype, int op, mt_nccl_comm comm, mt_nccl_stream s);
int mt_nccl_batch(const mt_nccl *l, const mt_nccl_p2p *ops, int n, mt_nccl_comm comm, mt_nccl_stream s);

#endif
